"""Classification by a Bayesian neural network, in scikit-learn's manner."""

import os
from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Float, Shaped
from sklearn.base import ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_X_y

from jaxbnn.estimators.arguments import check_labels, is_number, settings_of
from jaxbnn.estimators.base import BayesianNetwork
from jaxbnn.tabular.candidates import candidates
from jaxbnn.tabular.kinds import CLASSES
from jaxbnn.tabular.scales import known_scale
from jaxbnn.tabular.settings import SAMPLERS, check_sampler, choose_sampler


class BayesianClassifier(ClassifierMixin, BayesianNetwork):
    """A network that predicts probabilities of classes, from draws of its weights.

    Inputs are standardised inside, by the rows of `fit`. What is fitted is what the command
    `jaxbnn fit` fits: with an int for `random_state`, and the same rows, the draws are those of its
    `--seed`; but it leaves constant columns out, of which the estimators look at no value.

    Parameters
    ----------
    hidden
        Hidden units by layer, as (50,) or (20, 20), or () for none; or one number. None: 50; from a
        hundred rows on by nuts or ensemble, the best by cross-validation of none, 50 tanh and 50
        ReLU units, those with a prior scale for each column unless `prior_scale` is given.
    sampler
        "nuts", "ensemble" (trained networks, and microcanonical chains from them), "pcn" or "dvi"
        (a Gaussian approximation); "auto": of nuts, ensemble and dvi the best, by log score, of
        those that end in minutes in a benchmark of like size.
    likelihood
        "categorical", or "ordinal" for classes whose order means something: that of the categories,
        where y is an ordered Categorical of pandas, else that of numbers, also as text, or of words
        such as low, medium, high; `notes_` tells which was taken. "auto": categorical.
    prior_scale
        Fixes the weights' prior standard deviations at so many times the usual ones. None: nuts
        and ensemble learn them, the others take 1.
    relevance
        Whether nuts or ensemble learns a prior scale for each column, too, whatever is in `hidden`.
    chains
        Each begins anew, from the prior or a trained network. None: 4, and 10 of the ensemble.
    warmup, samples
        `samples` draws of each chain are kept (of dvi so many times `chains` in all). `warmup` is
        the effort before them: draws of nuts; twenty steps of pcn each, which thin the kept draws
        too; tens of updates of dvi; of the ensemble a measure of each of its parts.
    random_state
        An int, a `numpy.random.RandomState`, or None.
    verbose
        Whether progress is told on standard error.
    checkpoint
        A folder: a fit that was stopped goes on when the same is fitted again, and draws the same.
        It takes an int for `random_state`, and a folder for each fit: none in a grid search.

    Attributes
    ----------
    classes_
        (classes,): sorted, whatever the order of ordinal ones.
    verdict_
        Whether to believe the draws: `str(verdict_)`, `verdict_.is_good` and `verdict_.numbers`
        (R-hat and effective draws of the predictions). When it is not good, `fit` warns by the same
        sentence.
    draws_, posterior_
        Draws and posterior in standardised units, as `jaxbnn.interop.arviz.to_arviz(draws_,
        posterior_)` takes them; `jaxbnn.summary` takes `draws_.positions`. The posterior's labels
        of ordinal classes are places in their order.
    sampler_, likelihood_, hidden_, activation_
        Those that were taken; units are "tanh" or "relu".
    notes_
        Sentences about the fit.
    relevance_
        (columns,): each column's learnt prior scale, in units of the usual one, where learnt.
    x_scaling_
        Means and standard deviations of the rows of `fit`.
    n_features_in_, feature_names_in_
        As everywhere in scikit-learn.

    Notes
    -----
    Sample weights, missing values and several targets are not supported.

    Examples
    --------
    >>> x = np.linspace(-2, 2, 40)[:, None]
    >>> y = np.where(x[:, 0] > 0, "warm", "cold")
    >>> model = BayesianClassifier(hidden=(3,), sampler="pcn", samples=200, random_state=0)
    >>> model.fit(x, y).predict([[-2.0], [2.0]]).tolist()
    ['cold', 'warm']
    >>> model.predict_proba(x).shape
    (40, 2)
    """

    def __init__(
        self,
        hidden: Sequence[int] | int | None = None,
        *,
        sampler: str = "auto",
        likelihood: str = "auto",
        prior_scale: float | None = None,
        relevance: bool = False,
        chains: int | None = None,
        warmup: int = 400,
        samples: int = 400,
        random_state: Any = None,
        verbose: bool = False,
        checkpoint: str | os.PathLike | None = None,
    ):
        self.hidden = hidden
        self.sampler = sampler
        self.likelihood = likelihood
        self.prior_scale = prior_scale
        self.relevance = relevance
        self.chains = chains
        self.warmup = warmup
        self.samples = samples
        self.random_state = random_state
        self.verbose = verbose
        self.checkpoint = checkpoint

    def fit(self, X: Any, y: Any) -> "BayesianClassifier":
        """Sample the posterior given rows X, (n, columns), and labels y, (n,).

        Raises
        ------
        ValueError, TypeError
            A setting that cannot be used; data that are not finite numbers, or whose lengths
            differ; dates or masked values among them; labels that are missing, of one class only,
            or numbers that are no classes.
        """
        with self._whole():
            self._fit(X, y)
        return self

    def _fit(self, X: Any, y: Any) -> None:
        samplers = tuple(name for name in SAMPLERS if name != "gibbs")  # which knows numbers only
        settings = settings_of(self, samplers, ("auto", *CLASSES))
        if y is not None:  # which scikit-learn refuses in its own words
            check_labels(y)
        categories = _ordered_categories(y)
        X, y = self._validated(X, y, ensure_min_samples=2)
        check_classification_targets(y)
        classes, labels = np.unique(y, return_inverse=True)
        if len(classes) < 2:
            only = classes.tolist()[0]
            raise ValueError(f"y holds one class only, {only!r}; a classifier needs two or more.")
        if settings.likelihood == "auto":
            settings = settings._replace(likelihood="categorical")
        sampler = choose_sampler(settings, settings.likelihood, *X.shape, is_class=True)
        check_sampler(sampler, settings.likelihood, relevance=settings.relevance)
        tried = candidates(settings, settings.likelihood, sampler, *X.shape, is_class=True)
        is_ordinal = settings.likelihood == "ordinal"
        order = _order_of(classes, categories) if is_ordinal else np.arange(len(classes))
        self._sample(X, np.argsort(order)[labels].astype(np.int32), tried, settings, len(classes))
        if is_ordinal:
            self.notes_.append(_told(classes[order], categories))
        self.classes_, self._order = classes, order

    def predict(self, X: Any) -> Shaped[np.ndarray, " n"]:
        """Return the most probable class of each row."""
        labels = self.predict_proba(X).argmax(axis=1)
        return self.classes_[labels]

    def predict_proba(self, X: Any) -> Float[np.ndarray, "n classes"]:
        """Return the probabilities of `classes_`, means over the draws."""
        (found,) = self._predicted(X, "probabilities")
        found = found[:, np.argsort(self._order)].astype(float)
        return found / found.sum(axis=1, keepdims=True)

    def sample_y(
        self, X: Any, n_samples: int = 1, random_state: Any = 0
    ) -> Shaped[np.ndarray, "n n_samples"]:
        """Draw classes from the predictive distribution.

        A column holds the classes of all rows given one draw of the weights.
        """
        labels = self._simulated(X, n_samples, random_state)
        return self.classes_[self._order][labels]

    def log_score(self, X: Any, y: Any) -> float:
        """Return the mean log probability of the classes y, (n,), in nats; larger is better.

        Raises
        ------
        ValueError
            A class that `fit` has not seen, or a label that is missing or masked.
        """
        inputs = self._inputs(X)
        check_labels(y)
        _, y = check_X_y(inputs, y)
        strange = np.setdiff1d(y, self.classes_)
        if len(strange):
            raise ValueError(f"y holds {strange.tolist()[0]!r}, a class that fit has not seen.")
        labels = np.argsort(self._order)[np.searchsorted(self.classes_, y)].astype(np.int32)
        return float(self._log_scores(inputs, labels).mean())


def _ordered_categories(y: Any) -> list | None:
    """Return the categories of an ordered Categorical, or of a table's only column, in order."""
    is_table = hasattr(y, "iloc") and y.ndim == 2
    dtype: Any = getattr(y.iloc[:, 0] if is_table else y, "dtype", None)
    return list(dtype.categories) if getattr(dtype, "ordered", False) else None


def _order_of(classes: Shaped[np.ndarray, " classes"], categories: list | None) -> np.ndarray:
    """Return the places of the classes, which are sorted, in the order of the categories.

    The class at place k of that order is `classes[order[k]]`. Without categories numbers are in
    their own order, those written as text too, and words in that of a known scale.

    Raises
    ------
    ValueError
        Words whose order is not known.
    """
    if categories is None:
        if not isinstance(classes[0], str):
            return np.arange(len(classes))
        categories = _known_order(classes.tolist())
    places = {category: place for place, category in enumerate(categories)}
    return np.argsort([places[one] for one in classes.tolist()])


def _known_order(words: list[str]) -> list[str]:
    if all(is_number(word) and np.isfinite(float(word)) for word in words):
        return sorted(words, key=float)
    known = known_scale(words, fewest=2)
    if known is None and len(words) == 2:  # which is the higher changes nothing
        return words
    if known is None:
        raise ValueError(
            f"the order of {', '.join(words[:20])} is not known; give y as an ordered Categorical "
            "of pandas, or as numbers 0, 1, 2, ..."
        )
    return known


def _told(classes: Shaped[np.ndarray, " classes"], categories: list | None) -> str:
    """Say in which order ordinal classes were taken."""
    order = " < ".join(map(str, classes.tolist()))
    if categories is not None:
        return f"The classes were taken in the order of y's categories: {order}."
    return (
        f"The classes were taken in this order: {order} (an ordered Categorical of pandas has "
        "another)."
    )
