"""One fit: `python -m experiments.benchmarks.samplers.fit KIND SET ROWS SAMPLER result.json`."""

import json
import sys
from pathlib import Path

import numpy as np

from experiments.datasets import Split, uci

# The last has little noise.
SETS = ("kin8nm", "power-plant", "protein-tertiary-structure", "naval-propulsion-plant")
KINDS = ("numbers", "classes")
_NUM_TEST = 2000
_HIDDEN = 50


def rows_of(kind: str, name: str, size: int) -> Split:
    """Return `size` random training rows and 2,000 test rows; classes are thirds of the target."""
    split = uci(name, 0)
    x = np.concatenate([split.x_train, split.x_test])
    y = np.concatenate([split.y_train, split.y_test])
    order = np.random.default_rng(0).permutation(len(y))
    test, train = order[:_NUM_TEST], order[_NUM_TEST : _NUM_TEST + size]
    if kind == "classes":
        y = np.searchsorted(np.quantile(y[train], [1 / 3, 2 / 3]), y)
    return Split(x[train], y[train], x[test], y[test])


def fit(kind: str, name: str, size: int, sampler: str) -> dict[str, float]:
    """Return the mean log score of the test rows, and the parameters of a network of one output."""
    # Here, so that who only wants the rows needs no scikit-learn.
    from jaxbnn.estimators import BayesianClassifier, BayesianRegressor

    split = rows_of(kind, name, size)
    make = BayesianRegressor if kind == "numbers" else BayesianClassifier
    model = make((_HIDDEN,), sampler=sampler, random_state=0)
    model.fit(split.x_train, split.y_train)
    score = model.log_score(split.x_test, split.y_test)
    parameters = (split.x_train.shape[1] + 1) * _HIDDEN + _HIDDEN + 1
    return {"log_score": score, "parameters": parameters, "is_good": model.verdict_.is_good}


if __name__ == "__main__":
    found = fit(sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4])
    Path(sys.argv[5]).write_text(json.dumps(found) + "\n", encoding="utf-8")
