"""Laws that are known, and what an estimator with default settings recovers of them.

One fit: `python -m experiments.benchmarks.known_truth.laws NAME SEED result.json`.
"""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float
from scipy import stats

LEVEL = 0.9
NUM_FRESH = 10_000
DEGREES, CONCENTRATION = 3.0, 2.0
COLUMNS, THAT_MATTER, NOISE = 200, 5, 0.5

Rows = Float[np.ndarray, "n d"]
Numbers = Float[np.ndarray, " n"]


class Drawn(NamedTuple):
    """Rows, targets, and the mean log density or log probability of the targets under the truth."""

    x: Rows
    y: Numbers
    log_score: float


Draw = Callable[[np.random.Generator, int], Drawn]


def heavy_tails(rng: np.random.Generator, num: int) -> Drawn:
    """Draw y = sin(2 x_1) + x_2 / 2 + .3 t, t with three degrees of freedom."""
    x = rng.uniform(-2, 2, (num, 3))
    mean = np.sin(2 * x[:, 0]) + 0.5 * x[:, 1]
    law = stats.t(DEGREES, mean, 0.3)
    y = law.rvs(random_state=rng)
    return Drawn(x, y, float(law.logpdf(y).mean()))


def counts(rng: np.random.Generator, num: int) -> Drawn:
    """Draw Poisson counts of mean exp(1 + sin(2 x_1) + x_2 / 2)."""
    x = rng.uniform(-2, 2, (num, 3))
    law = stats.poisson(np.exp(1 + np.sin(2 * x[:, 0]) + 0.5 * x[:, 1]))
    y = law.rvs(random_state=rng)
    return Drawn(x, y.astype(float), float(law.logpmf(y).mean()))


def scattered_counts(rng: np.random.Generator, num: int) -> Drawn:
    """Draw counts of the same means, with variance m + m^2 / 2."""
    x = rng.uniform(-2, 2, (num, 3))
    mean = np.exp(1 + np.sin(2 * x[:, 0]) + 0.5 * x[:, 1])
    law = stats.nbinom(CONCENTRATION, CONCENTRATION / (CONCENTRATION + mean))
    y = law.rvs(random_state=rng)
    return Drawn(x, y.astype(float), float(law.logpmf(y).mean()))


def many_columns(rng: np.random.Generator, num: int) -> Drawn:
    """Draw y = x_1 + x_2 - x_3 + x_4 / 2 + sin(2 x_5) + noise, of 200 normal columns."""
    x = rng.standard_normal((num, COLUMNS))
    mean = x[:, 0] + x[:, 1] - x[:, 2] + 0.5 * x[:, 3] + np.sin(2 * x[:, 4])
    law = stats.norm(mean, NOISE)
    y = law.rvs(random_state=rng)
    return Drawn(x, y, float(law.logpdf(y).mean()))


class Fit(NamedTuple):
    """Data, their number, and the settings of a `BayesianRegressor`; or of ridge or lasso."""

    draw: Draw
    rows: int
    settings: dict[str, Any]
    peer: str | None = None


FITS = {
    "heavy tails, student-t": Fit(heavy_tails, 600, {"likelihood": "student-t"}),
    "heavy tails, gaussian": Fit(heavy_tails, 600, {"likelihood": "gaussian"}),
    "counts": Fit(counts, 600, {}),
    "scattered counts, negative-binomial": Fit(
        scattered_counts, 600, {"likelihood": "negative-binomial"}
    ),
    "scattered counts": Fit(scattered_counts, 600, {}),
    "200 columns": Fit(many_columns, 150, {}),
    "200 columns, relevance": Fit(many_columns, 150, {"relevance": True}),
    "200 columns, ridge": Fit(many_columns, 150, {}, "ridge"),
    "200 columns, lasso": Fit(many_columns, 150, {}, "lasso"),
}


def judged(name: str, seed: int, num_fresh: int = NUM_FRESH, **settings: Any) -> dict[str, Any]:
    """Return what one fit recovers, and how it does on fresh rows; `settings` add to its own."""
    fit = FITS[name]
    rng = np.random.default_rng(seed)
    seen, fresh = fit.draw(rng, fit.rows), fit.draw(rng, num_fresh)
    if fit.peer is not None:
        return _by_peer(fit.peer, seen, fresh)
    return _by_estimator(fit.settings | settings, seed, seen, fresh)


def _by_estimator(settings: dict[str, Any], seed: int, seen: Drawn, fresh: Drawn) -> dict[str, Any]:
    # Here, so that the other benchmarks need no scikit-learn.
    from jaxbnn.estimators import BayesianRegressor

    model = BayesianRegressor(random_state=seed, **settings).fit(seen.x, seen.y)
    low, high = model.predict_interval(fresh.x, LEVEL).T
    found = {
        "likelihood": model.likelihood_,
        "rmse": _rmse(np.asarray(model.predict(fresh.x)), fresh.y),
        "coverage": float(np.mean((low <= fresh.y) & (fresh.y <= high))),
        "log_score_below_the_truth": fresh.log_score - model.log_score(fresh.x, fresh.y),
        "rhat": float(model.verdict_.numbers.get("rhat", np.nan)),
    }
    for name in ("degrees", "concentration"):
        leaf = f"log_{name}"
        if isinstance(model.draws_.positions, dict) and leaf in model.draws_.positions:
            values = np.exp(np.asarray(model.draws_.positions[leaf], float))
            ends = np.quantile(values, [(1 - LEVEL) / 2, 0.5, (1 + LEVEL) / 2])
            found |= dict(zip((f"{name}_lower", name, f"{name}_upper"), ends.tolist(), strict=True))
    if hasattr(model, "relevance_"):  # asked for, or taken
        largest = np.argsort(model.relevance_)[-THAT_MATTER:]
        found["columns_found"] = int(np.sum(largest < THAT_MATTER))
    return found


def _by_peer(peer: str, seen: Drawn, fresh: Drawn) -> dict[str, Any]:
    from sklearn.linear_model import LassoCV, RidgeCV

    model = {"ridge": RidgeCV(np.geomspace(0.01, 1e4, 40)), "lasso": LassoCV(random_state=0)}[peer]
    return {"rmse": _rmse(model.fit(seen.x, seen.y).predict(fresh.x), fresh.y)}


def _rmse(predicted: Numbers, y: Numbers) -> float:
    return float(np.sqrt(np.mean(np.square(np.asarray(predicted, float) - y))))


if __name__ == "__main__":
    found = judged(sys.argv[1], int(sys.argv[2]))
    Path(sys.argv[3]).write_text(json.dumps(found) + "\n", encoding="utf-8")
