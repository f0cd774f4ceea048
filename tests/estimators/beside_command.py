"""The estimators beside the command: the same rows, settings and seed, and their scores."""

import contextlib
import io
import json
import tempfile
import warnings
from pathlib import Path

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from experiments.benchmarks.command.tables import Table, rows_of, table, write_csv
from jaxbnn.cli import main
from jaxbnn.estimators import BayesianClassifier, BayesianRegressor

SETS = ("iris", "concrete")
SETTINGS = {"hidden": 10, "chains": 2, "warmup": 200, "samples": 200, "sampler": "nuts"}


def rows() -> list[str]:
    """Return rows of a table: each score by the command, and by the estimator with two seeds."""
    lines = []
    for name in SETS:
        data = table(name)
        said = _by_command(data)
        same, other = (_by_estimator(data, seed) for seed in (0, 1))
        for score in same:
            numbers = " | ".join(f"{one[score]:.7g}" for one in (said, same, other))
            lines.append(f"| {name} | {score} | {numbers} |")
    return lines


def _by_command(data: Table) -> dict[str, float]:
    words = [word for name, value in SETTINGS.items() for word in (f"--{name}", str(value))]
    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(io.StringIO()):
        path = Path(folder) / "data.csv"
        write_csv(path, data)
        if main(["fit", str(path), "--target", "y", "--seed", "0", "--quiet", *words]):
            raise RuntimeError(f"the command refused {data.name}")
        return json.loads((Path(folder) / "data-fit" / "scores.json").read_text())


def _by_estimator(data: Table, seed: int) -> dict[str, float]:
    """Return the scores of the rows that the command holds out with --seed 0."""
    training, held = rows_of(len(data.x), 0)
    x, y = data.x[held], data.y[held]
    kind = BayesianClassifier if data.name == "iris" else BayesianRegressor
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model = kind(**SETTINGS, random_state=seed).fit(data.x[training], data.y[training])
    if data.name == "iris":
        return {"accuracy": model.score(x, y), "log_score": model.log_score(x, y)}
    low, high = model.predict_interval(x).T
    return {
        "rmse": float(np.sqrt(np.mean((model.predict(x) - y) ** 2))),
        "log_score": model.log_score(x, y),
        "coverage": float(np.mean((low < y) & (y < high))),
    }
