"""Effective draws and scores of linear models that NUTS samples: their metric and their weights."""

import warnings

import numpy as np
import sklearn.datasets

from jaxbnn.estimators import BayesianClassifier, BayesianRegressor

TITLE = "linear models by `nuts`"
BEFORE = "1a8d586a"  # diagonal metrics, standardised weights


def measure():
    warnings.simplefilter("ignore")  # verdicts, which the rows tell
    return [(name, _fitted(*case)) for name, case in _cases()]


def _fitted(likelihood, x, y):
    """Fit four fifths of the rows; tell of R-hat, effective draws and the score of the others."""
    options = {"sampler": "nuts", "random_state": 0}
    if likelihood is None:
        model = BayesianClassifier((), **options)
    else:
        model = BayesianRegressor((), likelihood=likelihood, **options)
    held_out = np.random.default_rng(0).permutation(len(x)) < max(len(x) // 5, 1)
    model.fit(x[~held_out], y[~held_out])
    numbers = model.verdict_.numbers
    score = model.log_score(x[held_out], y[held_out])
    believed = "believed" if model.verdict_.is_good else "not believed"
    return (
        f"R-hat {numbers['rhat']:.3f}, {numbers['ess_bulk']:.0f} effective draws, "
        f"log score {score:.3f}; {believed}"
    )


def _cases():
    """Yield tables: of categories beside a nearly linear target, real ones, counts, few rows."""
    rng = np.random.default_rng(1)
    x = rng.normal(size=(160, 2))
    category = rng.integers(0, 3, 160)
    y = 2 * x[:, 0] - x[:, 1] + category + 0.1 * rng.normal(size=160)
    columns = np.column_stack([x, np.eye(3)[category]])
    yield "160 rows, a column of three categories, nearly linear", ("gaussian", columns, y)
    yield "diabetes", ("gaussian", *sklearn.datasets.load_diabetes(return_X_y=True))
    x = rng.normal(size=(300, 4))
    rate = np.exp(1 + 0.5 * x[:, 0] - 0.3 * x[:, 1])
    yield "counts, poisson", ("poisson", x, rng.poisson(rate))
    y = rng.negative_binomial(2, 2 / (2 + rate))
    yield "counts, negative-binomial", ("negative-binomial", x, y)
    yield "iris", (None, *sklearn.datasets.load_iris(return_X_y=True))
    yield "cancer", (None, *sklearn.datasets.load_breast_cancer(return_X_y=True))
    x = rng.normal(size=(14, 6))
    yield "14 rows, six columns", ("gaussian", x, x[:, 0] + 0.3 * rng.normal(size=14))
