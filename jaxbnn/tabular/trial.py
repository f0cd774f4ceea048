"""Which network is taken where none is asked for, and which noise: by cross-validation.

A network is tried by training some of it, which takes seconds where chains take minutes. A few
trained networks together predict worse than draws of their posterior; but of two networks for
numbers that whose trained ones predict better is nearly always that whose posterior does. Of
classes it often is not: networks that stop in time predict nearly as well as a linear model where
their posterior is far worse. Nor is it of numbers with nearly as many columns as rows, of which
trained networks learn next to nothing. These are tried by short chains, where such end soon enough.
"""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np
from jaxtyping import Float, PyTree, Shaped

from jaxbnn import prediction
from jaxbnn.ensembles import TrainingDiverged
from jaxbnn.tabular.candidates import FOLDS, SHORT, Candidate, by_chains
from jaxbnn.tabular.devices import mesh_for
from jaxbnn.tabular.posteriors import make_posterior
from jaxbnn.tabular.samplers import run
from jaxbnn.tabular.settings import Settings
from jaxbnn.tabular.trained import trained
from jaxbnn.targets import Posterior

# More take their time, and tell no more.
MOST_ROWS = 3000
_NETWORKS = 4
# The part of its training rows by which a network stops.
_STOPS_BY = 0.2
_APART = 2**31 - 1
# The log score of a row where training diverged.
_WORST = -1e3


def best_of(
    tried: Sequence[Candidate],
    settings: Settings,
    x: Float[np.ndarray, "n d"],
    y: Shaped[np.ndarray, " n"],
    num_classes: int | None = None,
    progress: bool | Callable[[Any], None] = False,
) -> tuple[Candidate, str]:
    """Score each candidate by cross-validation; return the best, and a sentence on why.

    A row's score is that of a few networks together, which have seen it neither in training nor to
    stop by: rows to stop by flatter networks that bend more, since these have more epochs to choose
    from. A later candidate is taken if its mean score is larger by more than a standard error of
    the rows' differences. Or the score is that of draws of the posterior of the other folds (see
    `jaxbnn.tabular.candidates.by_chains`), as the fit's will be, and the largest mean is taken.

    Parameters
    ----------
    tried
        As `candidates` returns; at least two.
    settings
        Of the fit; its seed is that of the training.
    x, y
        Training rows, standardised, with standardised numbers or whole numbers of classes; of more
        than MOST_ROWS so many are taken.
    num_classes
        Of classes.
    progress
        As `jaxbnn.ensembles.optimised_starts` takes it.
    """
    rows = np.random.default_rng(settings.seed).permutation(len(y))[:MOST_ROWS]
    data = x[rows], y[rows], num_classes
    is_class = num_classes is not None
    draws = by_chains(tried, settings, len(rows), x.shape[1], is_class=is_class)
    scores = [_scores(one, settings, *data, progress, draws) for one in tried]
    best = 0
    for number in range(1, len(tried)):
        gain = scores[number] - scores[best]
        error = gain.std(ddof=1) / np.sqrt(len(gain))
        if gain.mean() > (0 if draws else error):
            best = number
    told = "; ".join(f"{one}: {score.mean():.2f}" for one, score in zip(tried, scores, strict=True))
    way = "short chains" if draws else f"{_NETWORKS} trained networks"
    some = f"{len(rows):,} of the" if len(rows) < len(y) else "the"
    of_target = "" if is_class else " of the standardised target"
    return tried[best], (
        f"Tried, by {FOLDS}-fold cross-validation of {some} training rows with {way} of each (mean "
        f"log score{of_target}, in nats): {told}. Taken: {tried[best]}."
    )


def _scores(
    candidate: Candidate,
    settings: Settings,
    x: np.ndarray,
    y: np.ndarray,
    num_classes: int | None,
    progress: bool | Callable[[Any], None],
    draws: bool,
) -> Float[np.ndarray, " row"]:
    """Return the log score of each row, by networks of the other folds: draws, or trained ones."""
    size = len(y) // FOLDS
    settings = candidate.of(settings)
    found = []
    for fold in range(FOLDS):
        held = np.arange(fold * size, (fold + 1) * size)  # of one size, so that programs are kept
        kept = np.delete(np.arange(len(y)), held)
        posterior = make_posterior(candidate.sampler, settings, x[kept], y[kept], num_classes)
        try:
            if draws:
                networks: Any = _drawn(candidate.sampler, posterior, settings, progress)
            else:
                # `run` splits the seed's own key, and fold_in(key, i) is split(key)[i].
                apart = jax.random.fold_in(jax.random.key(settings.seed), _APART)
                key = jax.random.fold_in(apart, fold)
                # One that diverges is as it was in its best epoch.
                networks = trained(
                    key,
                    posterior,
                    _NETWORKS,
                    validation=_STOPS_BY,
                    mesh=mesh_for(_NETWORKS),
                    progress=progress,
                )
        except TrainingDiverged:
            found.append(np.full(size, _WORST))
            continue
        score = prediction.scores(networks, x[held], y[held], posterior).log_score
        found.append(np.maximum(np.nan_to_num(np.asarray(score, float), nan=_WORST), _WORST))
    return np.concatenate(found)


def _drawn(
    sampler: str,
    posterior: Posterior,
    settings: Settings,
    progress: bool | Callable[[Any], None],
) -> PyTree:
    short = settings._replace(**SHORT._asdict())
    fitted = run(sampler, posterior, short, progress)
    if fitted.draws is not None and fitted.draws.interrupted:
        raise KeyboardInterrupt
    return fitted.positions
