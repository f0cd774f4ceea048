"""Which network is taken where none is asked for, and which noise: what trained networks say.

A network is tried by training some of it, which takes seconds where chains take minutes. Trained
networks predict worse than draws of their posteriors, but of two networks that whose trained ones
predict better is nearly always that whose posterior does.
"""

import warnings
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np
from jaxtyping import Float, Shaped

from jaxbnn.ensembles import optimised_starts
from jaxbnn.tabular.candidates import Candidate
from jaxbnn.tabular.posteriors import make_posterior
from jaxbnn.tabular.settings import Settings

# More take their time, and tell no more.
MOST_ROWS = 3000
_NETWORKS, _HELD_OUT = 8, 0.2
# The log score of a network whose training diverged.
_WORST = -1e3


def best_of(
    tried: Sequence[Candidate],
    settings: Settings,
    x: Float[np.ndarray, "n d"],
    y: Shaped[np.ndarray, " n"],
    num_classes: int | None = None,
    progress: bool | Callable[[Any], None] = False,
) -> tuple[Candidate, str]:
    """Train networks of each candidate; return the best, and a sentence on why.

    Every network holds out rows of its own, the same for each candidate. A later candidate is taken
    if its mean log score of these rows is larger by more than a standard error, which counts that
    the networks share most of their rows (Nadeau and Bengio, 2003, section 3).

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
        As `optimised_starts` takes it.
    """
    rows = np.random.default_rng(settings.seed).permutation(len(y))[:MOST_ROWS]
    data = x[rows], y[rows], num_classes
    scores = [_scores(one, settings, *data, progress) for one in tried]
    best = 0
    for number in range(1, len(tried)):
        gain = scores[number] - scores[best]
        if gain.mean() > standard_error(gain):
            best = number
    told = "; ".join(f"{one}: {score.mean():.2f}" for one, score in zip(tried, scores, strict=True))
    return tried[best], (
        f"Tried, by {_NETWORKS} networks of each that were trained and scored on training rows "
        f"held out from them (mean log score, in nats): {told}. Taken: {tried[best]}."
    )


def standard_error(values: Float[np.ndarray, " network"]) -> float:
    """Return that of a mean over networks, each trained on other four fifths of the same rows.

    Scores of such networks are correlated; the fifth that each holds out, over what it trains on,
    is added to 1 / number for that (Nadeau and Bengio, 2003, equation 9, an approximation).

    Examples
    --------
    >>> round(standard_error(np.array([0.0, 2.0])), 4)  # as uncorrelated ones: 1
    1.2247
    """
    share = 1 / len(values) + _HELD_OUT / (1 - _HELD_OUT)
    return float(values.std(ddof=1) * np.sqrt(share))


def _scores(
    candidate: Candidate,
    settings: Settings,
    x: np.ndarray,
    y: np.ndarray,
    num_classes: int | None,
    progress: bool | Callable[[Any], None],
) -> Float[np.ndarray, " network"]:
    """Return each trained network's mean log score of the rows that it held out."""
    posterior = make_posterior(candidate.sampler, candidate.of(settings), x, y, num_classes)
    with warnings.catch_warnings():
        # One that diverges has the score of its best epoch.
        warnings.filterwarnings("ignore", "training diverged")
        try:
            found = optimised_starts(
                jax.random.key(settings.seed),
                posterior,
                _NETWORKS,
                validation=_HELD_OUT,
                progress=progress,
            )
        except ValueError as error:
            if not str(error).startswith("training diverged"):
                raise
            return np.full(_NETWORKS, _WORST)
    # Behind the epoch in which a network stopped its curve is NaN.
    return np.maximum(-np.nanmin(found.validation, axis=1), _WORST)
