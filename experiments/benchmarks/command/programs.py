"""The methods of others: `python programs.py METHOD data.npz result.json SEED`.

Run by the environment that the benchmark makes, and therefore without this repository's packages.
No setting is chosen on test rows: where there are several, five-fold cross-validation of the
training rows chooses. Inputs are standardised by the training rows, and so are numbers to predict.
"""

import json
import sys
from typing import Any

import numpy as np

LEVEL_SD = 1.6448536269514722  # of a normal interval of 90 %
TREES = 500


def main() -> None:
    """Fit, predict the test rows, and write the scores in the target's own units."""
    method, data, result, seed = sys.argv[1:]
    given = np.load(data)
    x, y, train, test = (given[name] for name in ("x", "y", "train", "test"))
    mean, sd = x[train].mean(0), x[train].std(0)
    x = (x - mean) / np.where(sd > 1e-12, sd, 1.0)
    parts = x[train], y[train], x[test], y[test]
    is_class = np.issubdtype(y.dtype, np.integer)
    scores = (classes if is_class else numbers)(method, int(seed), *parts)
    with open(result, "w", encoding="utf-8") as file:
        json.dump({name: float(value) for name, value in scores.items()}, file)


def numbers(method, seed, x, y, x_new, y_new) -> dict[str, Any]:
    """Score a density of numbers: one Gaussian a row, or for bde a mixture of them."""
    centre, scale = y.mean(), y.std()
    predict = globals()[f"{method}_numbers"]
    mean, sd = predict(seed, x, (y - centre) / scale, x_new)  # (row,) or (draw, row)
    mean, sd = np.atleast_2d(mean * scale + centre), np.atleast_2d(sd * scale)
    from scipy.special import logsumexp, ndtr

    terms = -0.5 * ((y_new - mean) / sd) ** 2 - np.log(sd) - 0.5 * np.log(2 * np.pi)
    pit = ndtr((y_new - mean) / sd).mean(0)
    return {
        "log_score": (logsumexp(terms, axis=0) - np.log(len(mean))).mean(),
        "rmse": np.sqrt(np.mean((mean.mean(0) - y_new) ** 2)),
        "coverage": np.mean((pit >= 0.05) & (pit <= 0.95)),
    }


def classes(method, seed, x, y, x_new, y_new) -> dict[str, Any]:
    """Score probabilities of classes; one that training did not have gets the least there is."""
    known = np.unique(y)
    place = {label: i for i, label in enumerate(known)}
    found = globals()[f"{method}_classes"](seed, x, np.array([place[v] for v in y]), x_new)
    least = np.finfo(np.float32).tiny
    given = [p[place[v]] if v in place else least for p, v in zip(found, y_new, strict=True)]
    return {
        "log_score": np.log(np.maximum(given, least)).mean(),
        "accuracy": np.mean(known[found.argmax(1)] == y_new),
    }


def linear_numbers(seed, x, y, x_new):
    """Ridge regression, its penalty and its noise by leave-one-out cross-validation."""
    from sklearn.linear_model import RidgeCV

    model = RidgeCV(np.logspace(-3, 4, 22), store_cv_results=True).fit(x, y)
    errors = model.cv_results_.reshape(len(y), -1).mean(0).min()
    return model.predict(x_new), np.full(len(x_new), np.sqrt(errors))


def linear_classes(seed, x, y, x_new):
    """Logistic regression, its penalty by the log score of five folds."""
    from sklearn.linear_model import LogisticRegressionCV

    folds = _folds(y, seed)
    model = LogisticRegressionCV(Cs=10, cv=folds, scoring="neg_log_loss", max_iter=5000)
    return model.fit(x, y).predict_proba(x_new)


def forest_numbers(seed, x, y, x_new):
    """Random forest; variance a + b (spread of trees)^2, a and b by the out-of-bag rows."""
    from scipy.optimize import minimize
    from sklearn.ensemble import RandomForestRegressor

    model = RandomForestRegressor(TREES, random_state=seed).fit(x, y)
    total = np.zeros((3, len(y)))  # trees that had not seen a row, their sum and sum of squares
    for tree, rows in zip(model.estimators_, model.estimators_samples_, strict=True):
        unseen = np.setdiff1d(np.arange(len(y)), rows)
        values = tree.predict(x[unseen])
        total[:, unseen] += [np.ones(len(unseen)), values, values**2]
    seen = total[0] > 1
    mean = total[1, seen] / total[0, seen]
    spread = np.maximum(total[2, seen] / total[0, seen] - mean**2, 1e-12)
    error = (y[seen] - mean) ** 2

    def loss(logs):
        variance = np.exp(logs[0]) + np.exp(logs[1]) * spread
        return np.mean(np.log(variance) + error / variance)

    start = np.log([error.mean() / 2, error.mean() / 2 / spread.mean()])
    a, b = np.exp(minimize(loss, start, method="Nelder-Mead").x)
    trees = np.stack([tree.predict(x_new) for tree in model.estimators_])
    return trees.mean(0), np.sqrt(a + b * trees.var(0))


def forest_classes(seed, x, y, x_new):
    """Random forest; one vote more for every class, so that none has probability 0."""
    from sklearn.ensemble import RandomForestClassifier

    model = RandomForestClassifier(TREES, random_state=seed).fit(x, y)
    votes = TREES * model.predict_proba(x_new) + 1
    return votes / votes.sum(1, keepdims=True)


def boosting_numbers(seed, x, y, x_new):
    """Gradient boosting, by five folds; its noise is the error of the folds."""
    from sklearn.ensemble import HistGradientBoostingRegressor
    from sklearn.model_selection import GridSearchCV, KFold

    folds = KFold(5, shuffle=True, random_state=seed)
    search = GridSearchCV(
        HistGradientBoostingRegressor(early_stopping=False, random_state=seed),
        _boosting_grid(),
        scoring="neg_mean_squared_error",
        cv=folds,
    ).fit(x, y)
    return search.predict(x_new), np.full(len(x_new), np.sqrt(-search.best_score_))


def boosting_classes(seed, x, y, x_new):
    """Gradient boosting, by the log score of five folds."""
    from sklearn.ensemble import HistGradientBoostingClassifier
    from sklearn.model_selection import GridSearchCV

    model = HistGradientBoostingClassifier(early_stopping=False, random_state=seed)
    folds = _folds(y, seed)
    search = GridSearchCV(model, _boosting_grid(), scoring="neg_log_loss", cv=folds)
    return search.fit(x, y).predict_proba(x_new)


def gaussian_process_numbers(seed, x, y, x_new):
    """Gaussian process with a length scale a column; its kernel by the marginal likelihood."""
    from sklearn.gaussian_process import GaussianProcessRegressor
    from sklearn.gaussian_process.kernels import ConstantKernel, WhiteKernel

    models = [
        GaussianProcessRegressor(
            ConstantKernel(1.0, (1e-3, 1e3)) * shape + WhiteKernel(0.1, (1e-6, 1e1)),
            n_restarts_optimizer=1,
            random_state=seed,
        ).fit(x, y)
        for shape in _shapes(np.full(x.shape[1], np.sqrt(x.shape[1])))
    ]
    model = max(models, key=lambda one: one.log_marginal_likelihood_value_)
    return model.predict(x_new, return_std=True)  # with the noise, which is part of the kernel


def gaussian_process_classes(seed, x, y, x_new):
    """Gaussian process by Laplace's approximation, one class against the rest."""
    from sklearn.gaussian_process import GaussianProcessClassifier
    from sklearn.gaussian_process.kernels import ConstantKernel

    models = [
        GaussianProcessClassifier(
            ConstantKernel(1.0, (1e-3, 1e3)) * shape, n_restarts_optimizer=1, random_state=seed
        ).fit(x, y)
        for shape in _shapes(np.sqrt(x.shape[1]))
    ]
    model = max(models, key=lambda one: one.log_marginal_likelihood_value_)
    return model.predict_proba(x_new)


def _shapes(length):
    from sklearn.gaussian_process.kernels import RBF, Matern

    bounds = (1e-2, 1e3)
    return RBF(length, bounds), Matern(length, bounds, nu=1.5)


def bde_numbers(seed, x, y, x_new):
    """Return the mixture of all draws, at the settings of the package's paper for airfoil."""
    from bde import BdeRegressor
    from bde.loss import GaussianNLL

    model = BdeRegressor(loss=GaussianNLL(), seed=seed, **bde_settings())
    model.fit(x=x, y=y)
    raw = np.asarray(model.predict(x_new, raw=True)).reshape(-1, len(x_new), 2)
    return raw[..., 0], np.logaddexp(0.0, raw[..., 1]) + 1e-6  # a softplus, as the package has it


def bde_classes(seed, x, y, x_new):
    """Return the mean probabilities of all draws, at the same settings."""
    from bde import BdeClassifier
    from bde.loss import CategoricalCrossEntropy

    model = BdeClassifier(loss=CategoricalCrossEntropy(), seed=seed, **bde_settings())
    model.fit(x=x.astype("float32"), y=y.astype("int32"))
    return np.asarray(model.predict_proba(x_new))


def bde_settings() -> dict[str, Any]:
    """Return the settings that the package's paper has for airfoil."""
    return {
        "n_members": 10,
        "hidden_layers": [16, 16, 16, 16],
        "epochs": 1200,
        "validation_split": 0.15,
        "lr": 1e-3,
        "weight_decay": 1e-4,
        "warmup_steps": 50_000,
        "n_samples": 1000,
        "n_thinning": 10,
        "patience": 20,
    }


def _boosting_grid() -> dict[str, list]:
    return {
        "learning_rate": [0.03, 0.1],
        "max_iter": [100, 400],
        "max_leaf_nodes": [7, 31],
        "min_samples_leaf": [5, 20],  # 20, scikit-learn's own, is many of 200 rows
    }


def _folds(y, seed):
    from sklearn.model_selection import StratifiedKFold

    return StratifiedKFold(5, shuffle=True, random_state=seed)


if __name__ == "__main__":
    main()
