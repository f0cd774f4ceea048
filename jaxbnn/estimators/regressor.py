"""Regression by a Bayesian neural network, in scikit-learn's manner."""

import os
from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Float, Shaped
from sklearn.base import RegressorMixin
from sklearn.utils.validation import check_X_y

from jaxbnn.estimators.arguments import check_targets, settings_of
from jaxbnn.estimators.base import BayesianNetwork
from jaxbnn.estimators.scaling import Scaling, learn_scaling
from jaxbnn.numerics import check_fraction
from jaxbnn.tabular.candidates import candidates
from jaxbnn.tabular.kinds import (
    CLASSES,
    COUNTS,
    LIKELIHOODS,
    MOST_COUNT,
    are_counts,
    likelihood_of_numbers,
    notes_of_another,
)
from jaxbnn.tabular.settings import SAMPLERS, check_sampler, choose_sampler

_LIKELIHOODS = tuple(name for name in LIKELIHOODS if name not in CLASSES)
_NO_SCALING = Scaling(0.0, 1.0)


class BayesianRegressor(RegressorMixin, BayesianNetwork):
    """A network that predicts numbers, with their uncertainty, from draws of its weights.

    Inputs and targets are standardised inside, by the rows of `fit`; all answers are in the
    target's own units. What is fitted is what the command `jaxbnn fit` fits: with an int for
    `random_state`, and the same rows, the draws are those of its `--seed`; but it leaves constant
    columns out, of which the estimators look at no value.

    Parameters
    ----------
    hidden
        Hidden units by layer, as (50,) or (20, 20), or () for none; or one number. None: 50; from a
        hundred rows on by nuts or ensemble also none or, where the ensemble ends in time and
        neither `sampler` is "nuts" nor `relevance` set, (16, 16, 16, 16), if training rows that
        are left out are predicted better so. Then, with `likelihood` "auto", this also tells
        whether one noise serves all rows. Of counts and Laplace noise always 50.
    sampler
        "nuts", "ensemble" (networks are trained, and microcanonical chains go on from them),
        "gibbs", "pcn" or "dvi" (a Gaussian approximation); "auto": of nuts, ensemble and dvi the
        best, by log score, of those that end in minutes in a benchmark of like size.
    likelihood
        "gaussian", "heteroscedastic" (Gaussian noise that the network gives, row by row),
        "student-t", "laplace", "poisson", "negative-binomial"; "auto": by the kind of numbers that
        the target holds.
    prior_scale
        Fixes the weights' prior standard deviations at so many times the usual ones. None: nuts
        and ensemble learn them, the others take 1.
    relevance
        Whether nuts or ensemble learns a prior scale for each column, too. With fewer than four
        rows a column, and `hidden` None, this is tried besides.
    chains
        Each begins anew, from the prior or a trained network. None: 4, and 10 of the ensemble.
    warmup, samples
        `samples` draws of each chain are kept (of dvi so many times `chains` in all). `warmup` is
        the effort before them: draws of nuts; twenty steps of pcn and five sweeps of gibbs each,
        which thin the kept draws too; tens of updates of dvi; of the ensemble a measure of each of
        its parts.
    noise
        Of gibbs alone: the noise, in standard deviations of the target, which it does not learn.
        None: .3.
    random_state
        An int, a `numpy.random.RandomState`, or None.
    verbose
        Whether progress is told on standard error.
    checkpoint
        A folder: a fit that was stopped goes on when the same is fitted again, and draws the same.
        It takes an int for `random_state`, and a folder for each fit: none in a grid search.

    Attributes
    ----------
    verdict_
        Whether to believe the draws: `str(verdict_)`, `verdict_.is_good` and `verdict_.numbers`
        (R-hat and effective draws of the predictions). When it is not good, `fit` warns by the same
        sentence.
    draws_, posterior_
        Draws and posterior in standardised units, as `jaxbnn.interop.arviz.to_arviz(draws_,
        posterior_)` takes them; `jaxbnn.summary` takes `draws_.positions`.
    sampler_, likelihood_, hidden_, activation_
        Those that were taken; units are "tanh" or "relu".
    notes_
        Sentences about the fit.
    relevance_
        (columns,): each column's learnt prior scale, in units of the usual one, where learnt.
    x_scaling_, y_scaling_
        Means and standard deviations of the rows of `fit`.
    n_features_in_, feature_names_in_
        As everywhere in scikit-learn.

    Notes
    -----
    Sample weights, missing values and several targets are not supported; for the last wrap it in
    `sklearn.multioutput.MultiOutputRegressor`.

    Examples
    --------
    >>> x = np.linspace(-2, 2, 40)[:, None]
    >>> model = BayesianRegressor(hidden=(3,), sampler="pcn", samples=200, random_state=0)
    >>> model = model.fit(x, 3 * x[:, 0] + 50)
    >>> mean, sd = model.predict(x[:2], return_std=True)
    >>> mean.shape, sd.shape, model.predict_interval(x[:2]).shape
    ((2,), (2,), (2, 2))
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
        noise: float | None = None,
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
        self.noise = noise
        self.random_state = random_state
        self.verbose = verbose
        self.checkpoint = checkpoint

    def fit(self, X: Any, y: Any) -> "BayesianRegressor":
        """Sample the posterior given rows X, (n, columns), and numbers y, (n,).

        Raises
        ------
        ValueError, TypeError
            A setting that cannot be used; data that are not finite numbers, or whose lengths
            differ; text, dates, or masked values; several targets; a likelihood of counts for other
            numbers.
        """
        with self._whole():
            self._fit(X, y)
        return self

    def _fit(self, X: Any, y: Any) -> None:
        settings = settings_of(self, SAMPLERS, _LIKELIHOODS)
        shape = np.asarray(y).shape
        if len(shape) == 2 and shape[1] > 1:
            raise ValueError(
                f"y has {shape[1]} columns, but BayesianRegressor has one target; fit one "
                "for each, by sklearn.multioutput.MultiOutputRegressor."
            )
        check_targets(y)
        X, y = self._validated(X, y, y_numeric=True, ensure_min_samples=2)
        y = _finite(y)
        asked = settings.likelihood
        likelihood = wanted = likelihood_of_numbers(y)[0] if asked == "auto" else asked
        sampler = choose_sampler(settings, likelihood, *X.shape, is_class=False)
        if asked == "auto" and sampler in ("dvi", "gibbs"):  # these two know the Gaussian only
            likelihood = "gaussian"
        settings = settings._replace(likelihood=likelihood)
        _check_counts(settings.likelihood, y, "leave it out")
        check_sampler(sampler, settings.likelihood, relevance=settings.relevance)
        is_count = settings.likelihood in COUNTS
        scaling = _NO_SCALING if is_count else learn_scaling(y)
        tried = candidates(
            settings._replace(likelihood=asked), likelihood, sampler, *X.shape, is_class=False
        )
        self._sample(X, scaling.standardised(y), tried, settings)
        self.notes_ += notes_of_another(wanted, likelihood, sampler)
        self.y_scaling_: Scaling = scaling

    def predict(
        self, X: Any, return_std: bool = False
    ) -> Float[np.ndarray, " n"] | tuple[Float[np.ndarray, " n"], Float[np.ndarray, " n"]]:
        """Return predictive means, and with `return_std` standard deviations, noise included.

        Standard deviations are infinite where Student's t noise has two degrees of freedom or fewer
        in a draw. Of counts of few rows, or far from all rows, both may be infinite though no
        draw's is, and rest on a few draws; `verdict_` says so of the rows that it was fitted to.
        Go by `predict_interval` there.
        """
        mean, sd = self._predicted(X, "mean", "sd")
        means = self.y_scaling_.in_units(mean)
        return (means, sd.astype(float) * self.y_scaling_.sd) if return_std else means

    def predict_interval(self, X: Any, level: float = 0.9) -> Float[np.ndarray, "n 2"]:
        """Return the ends of central predictive intervals of probability `level`, noise included.

        Raises
        ------
        ValueError
            A level that is no probability.
        """
        check_fraction("level", level, "; 0.9 is usual")
        ends = self._predicted(X, "lower", "upper", level=level)
        return self.y_scaling_.in_units(np.stack(ends, axis=1))

    def sample_y(
        self, X: Any, n_samples: int = 1, random_state: Any = 0
    ) -> Float[np.ndarray, "n n_samples"]:
        """Draw targets from the predictive distribution, noise included.

        A column holds the targets of all rows given one draw of the weights.
        """
        values = self._simulated(X, n_samples, random_state)
        return self.y_scaling_.in_units(values)

    def log_score(self, X: Any, y: Any) -> float:
        """Return the mean log predictive density of y, (n,), in nats and the target's units.

        Larger is better; of counts it is a log probability.

        Raises
        ------
        ValueError
            Targets that are no counts, where the likelihood is of counts; text, dates, or masked
            values; a target too far from those of `fit` for single precision.
        """
        inputs = self._inputs(X)
        check_targets(y)
        _, y = check_X_y(inputs, y, y_numeric=True)
        numbers = _finite(y)
        _check_counts(self.likelihood_, numbers, "score counts")
        targets = self._near_targets(numbers)
        return float(self._log_scores(inputs, targets).mean() - np.log(self.y_scaling_.sd))

    def _near_targets(self, y: Float[np.ndarray, " n"]) -> Float[np.ndarray, " n"]:
        """Return targets in the units of the draws; refuse those that single precision lacks."""
        with np.errstate(over="ignore"):
            targets = self.y_scaling_.standardised(y)
        far = np.flatnonzero(~np.isfinite(targets))
        if len(far):
            raise ValueError(
                f"y holds {y[far[0]]:g} at row {far[0]}, too far from the targets of fit to be "
                "scored; leave it out."
            )
        return targets


def _finite(y: Shaped[np.ndarray, " n"]) -> Float[np.ndarray, " n"]:
    """Return targets in double precision; None among others passes scikit-learn's check as NaN."""
    numbers = np.asarray(y, float)
    missing = np.flatnonzero(~np.isfinite(numbers))
    if len(missing):
        raise ValueError(
            f"y holds {numbers[missing[0]]:g} at row {missing[0]}; leave out rows without a target."
        )
    return numbers


def _check_counts(likelihood: str, y: Float[np.ndarray, " n"], what_to_do: str) -> None:
    if likelihood in COUNTS and not are_counts(y):
        raise ValueError(
            f"likelihood={likelihood!r} takes counts, whole numbers from 0 to {MOST_COUNT:,}, but "
            f"y holds others; {what_to_do}."
        )
