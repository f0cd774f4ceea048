"""What the regressor and the classifier share: sampling, the verdict, and blocks of predictions."""

import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import jax
import numpy as np
from sklearn.base import BaseEstimator
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data

from jaxbnn.estimators.arguments import check_columns
from jaxbnn.estimators.rows import simulate
from jaxbnn.estimators.scaling import Scaling, learn_scaling
from jaxbnn.numerics import check_count
from jaxbnn.prediction import predict, scores
from jaxbnn.prediction.blocks import by_blocks
from jaxbnn.sampling import Draws
from jaxbnn.tabular.candidates import Candidate
from jaxbnn.tabular.fitted import Fitted, relevance_scales
from jaxbnn.tabular.noise import noise_notes, rounding_noise
from jaxbnn.tabular.posteriors import make_posterior
from jaxbnn.tabular.samplers import run
from jaxbnn.tabular.settings import Settings, prior_note
from jaxbnn.tabular.trial import best_of
from jaxbnn.tabular.verdict import judge_chains

# What `validate_data` sets.
_COLUMNS = ("n_features_in_", "feature_names_in_")


class BayesianNetwork(BaseEstimator):
    """Draws of a network's weights given rows, in scikit-learn's manner."""

    def _sample(
        self,
        x: np.ndarray,
        y: np.ndarray,
        tried: Sequence[Candidate],
        settings: Settings,
        num_classes: int | None = None,
    ) -> None:
        """Sample the posterior of rows x, whose targets are as the sampler takes them.

        Of several candidates by that which cross-validation says is best. Nothing is set before the
        draws are there, and no more can fail then: see `_whole`.
        """
        # Of another value where all are equal nothing is learnt: it is not looked at.
        scaling = learn_scaling(x, np.inf)
        inputs = scaling.standardised_inputs(x)
        settings = settings._replace(least_noise=rounding_noise(y))
        taken, notes = tried[0], []
        if len(tried) > 1:
            taken, why = best_of(tried, settings, inputs, y, num_classes, self.verbose)
            notes.append(why)
        sampler, settings = taken.sampler, taken.of(settings)
        posterior = make_posterior(sampler, settings, inputs, y, num_classes)
        folder = None if self.checkpoint is None else Path(self.checkpoint)
        fitted = run(sampler, posterior, settings, self.verbose, folder)
        if fitted.draws is not None and fitted.draws.interrupted:
            raise KeyboardInterrupt
        verdict = judge_chains(sampler, fitted, posterior, inputs)
        self.x_scaling_: Scaling = scaling
        self.sampler_, self.likelihood_ = sampler, settings.likelihood
        self.hidden_, self.activation_ = settings.hidden, settings.activation_of(sampler)
        self.posterior_ = posterior
        # Whose data are not looked at: programs that predict do not depend on the number of rows.
        self._predictive = make_posterior(sampler, settings, inputs[:1], y[:1], num_classes)
        self.draws_ = _draws_of(fitted)
        self.notes_ = [
            *notes,
            *fitted.notes,
            prior_note(settings, sampler),
            *noise_notes(settings.likelihood, settings.least_noise, y),
        ]
        if hasattr(self, "relevance_"):  # of a fit before, with other settings
            del self.relevance_
        if settings.relevance:
            self.relevance_: Any = relevance_scales(fitted.positions)
        self.verdict_ = verdict

    @contextmanager
    def _whole(self) -> Iterator[None]:
        """Leave the fit before as it was when this one is refused or stopped; warn at the end.

        scikit-learn sets the columns of a fit before it is known whether there will be one. The
        warning is the last of all, since a filter may make an error of it.
        """
        known = {name: getattr(self, name) for name in _COLUMNS if hasattr(self, name)}
        try:
            yield
        except BaseException:
            for name in _COLUMNS:
                self.__dict__.pop(name, None)
            self.__dict__.update(known)
            raise
        if not self.verdict_.is_good:
            # Of the caller of `fit`, beyond this function, the context manager's exit and `fit`.
            warnings.warn(str(self.verdict_), ConvergenceWarning, stacklevel=4)

    def _inputs(self, x: Any) -> np.ndarray:
        """Return new rows in the scale of the training rows."""
        check_is_fitted(self)
        return self.x_scaling_.standardised_inputs(self._validated(x, reset=False))

    def _validated(self, x: Any, *y: Any, **checks: Any) -> Any:
        """Return rows, and targets where they are given, as scikit-learn checks them."""
        check_columns(x)
        return validate_data(self, x, *y, dtype=np.float64, **checks)

    def _predicted(self, x: Any, *fields: str, level: float = 0.9) -> list[np.ndarray]:
        """Return fields of `jaxbnn.predict`, in the network's units."""

        def of_block(block: np.ndarray) -> list[np.ndarray]:
            found = predict(self.draws_, block, self._predictive, level=level)
            return [getattr(found, field) for field in fields]

        return by_blocks(of_block, self._inputs(x))

    def _log_scores(self, inputs: np.ndarray, targets: np.ndarray) -> np.ndarray:
        def of_block(x: np.ndarray, y: np.ndarray) -> list[np.ndarray]:
            return [scores(self.draws_, x, y, self._predictive).log_score]

        (found,) = by_blocks(of_block, inputs, targets)
        return found.astype(float)

    def _simulated(self, x: Any, n_samples: int, random_state: Any) -> np.ndarray:
        inputs = self._inputs(x)
        check_count("n_samples", n_samples)
        seeds = check_random_state(random_state)
        return simulate(seeds, self._predictive, self.draws_.positions, inputs, int(n_samples))


def _draws_of(fitted: Fitted) -> Draws:
    """Return the draws without the kernel's states, of a Gaussian fit as one chain."""
    if fitted.draws is not None:
        return fitted.draws._replace(final_state=None)
    number = np.shape(jax.tree.leaves(fitted.positions)[0])[1]
    steps = np.arange(1, number + 1)
    rate = np.full(1, np.nan)
    return Draws(fitted.positions, None, {}, None, None, steps, rate, False)
