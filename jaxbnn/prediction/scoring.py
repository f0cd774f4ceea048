"""How good a posterior's predictions are at data it has not seen: proper scores, per datum."""

import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import logsumexp, ndtr
from jax.scipy.stats import norm
from jaxtyping import Array, Float, Shaped

from jaxbnn.numerics.checks import check_outside
from jaxbnn.numerics.data import finite_array
from jaxbnn.prediction.families import Components, scores_of, scores_of_counts
from jaxbnn.prediction.predictions import WHY_OUTSIDE, check_posterior, over_rows

# The CRPS of a mixture is a sum over pairs of its components.
_MOST_COMPONENTS = 256
_LARGE = 1e30  # far below what float32 holds


class NumberScores(NamedTuple):
    """Scores of predicted numbers, laid out as y is.

    Attributes
    ----------
    log_score
        log (1/S) sum_s p(y | x, t_s), each column's own; large is good.
    crps
        Continuous ranked probability score, in the units of y; small is good.
    pit
        The predictive distribution function at y: uniform if the predictions are calibrated.
    error
        y less the predictive mean.
    """

    log_score: Float[np.ndarray, "n *columns"]
    crps: Float[np.ndarray, "n *columns"]
    pit: Float[np.ndarray, "n *columns"]
    error: Float[np.ndarray, "n *columns"]


class ClassScores(NamedTuple):
    """Scores of predicted classes.

    Attributes
    ----------
    log_score
        log of the mean probability of the class that occurred; large is good.
    brier
        sum_c (p_c - 1{y = c})^2; small is good.
    is_correct
        Whether the most probable class occurred.
    probabilities
        The mean probabilities, for `reliability`.
    """

    log_score: Float[np.ndarray, "n *columns"]
    brier: Float[np.ndarray, "n *columns"]
    is_correct: Shaped[np.ndarray, "n *columns"]
    probabilities: Float[np.ndarray, "n *columns classes"]


def scores(
    draws: Any, x: Shaped[Any, "n ..."], y: Shaped[Any, "n ..."], posterior: Any
) -> NumberScores | ClassScores:
    """Score predictions against what was observed.

    Parameters
    ----------
    draws, x, posterior
        As in `predict`.
    y
        What was observed at x, laid out as the posterior's own y.

    Returns
    -------
    One score a datum (and column): average them, and their standard error is
    `score.std() / n**0.5`.

    Raises
    ------
    ValueError
        As `predict`; y with NaN, of another length or layout, or with what is no class or no count.
    TypeError
        As `predict`.

    Notes
    -----
    Gneiting and Raftery (2007). The CRPS of a mixture of normals is exact (Grimit et al. 2006), for
    at most 256 components, evenly spaced among the draws; the other scores use all draws. Of
    other families the CRPS is that of at least 4,096 draws from the mixture, and the PIT of counts
    is randomised within the jump at the count.

    Examples
    --------
    >>> import jaxbnn
    >>> network = jaxbnn.mlp((1, 1))
    >>> x, y = jnp.ones((2, 1)), jnp.ones(2)
    >>> prior = jaxbnn.normal_prior(network)
    >>> posterior = jaxbnn.Posterior(network, prior, jaxbnn.Gaussian(1.0), x, y)
    >>> draws = ({"w": np.ones((1, 4, 1, 1)), "b": np.zeros((1, 4, 1))},)
    >>> found = scores(draws, np.zeros((1, 1)), np.zeros(1), posterior)
    >>> round(float(found.log_score[0]), 4), float(found.pit[0]), round(float(found.crps[0]), 4)
    (-0.9189, 0.5, 0.2337)
    """
    check_outside("scores", WHY_OUTSIDE, draws, x, y)
    check_posterior(posterior)
    finite_array("y", y)
    y = np.asarray(y)
    if np.shape(y)[:1] != np.shape(x)[:1] or y.shape[1:] != posterior.y.shape[1:]:
        raise ValueError(
            f"y must be laid out as the posterior's, with a row for each of x, but has shape "
            f"{y.shape} where x has {np.shape(x)} and the posterior's y {posterior.y.shape}."
        )
    arrays = (x, y, np.arange(len(y)))
    parts = over_rows(_score, draws, arrays, posterior, on_host=_score_counts)
    if "crps" in parts:
        return NumberScores(**parts)
    most = parts["probabilities"].shape[-1] - 1
    is_class = (y >= 0) & (y <= most) & (y == y.astype(np.int64))
    if not is_class.all():
        raise ValueError(f"y must hold classes 0..{most}, but holds {y[~is_class].flat[0]}.")
    return ClassScores(**parts)


def mixture_crps(
    y: Float[Array, "*rows"], means: Float[Array, "draws *rows"], sds: Float[Array, "draws *rows"]
) -> Float[Array, "*rows"]:
    """Return the CRPS of an equal mixture of normals, integral of (F(z) - 1{y <= z})^2.

    With A(m, s) = E|m + s xi| = 2 s phi(m / s) + m (2 Phi(m / s) - 1), xi standard normal, it is
    mean_i A(y - m_i, s_i) - mean_ij A(m_i - m_j, (s_i^2 + s_j^2)^(1/2)) / 2 (Grimit et al. 2006).

    Examples
    --------
    >>> crps = mixture_crps(jnp.zeros(1), jnp.zeros((3, 1)), jnp.ones((3, 1)))
    >>> round(float(crps[0]), 4)  # (2^(1/2) - 1) / pi^(1/2)
    0.2337
    """

    def absolute(mean, sd):
        z = mean / sd
        return 2 * sd * norm.pdf(z) + mean * (2 * ndtr(z) - 1)

    number = len(means)
    # Sums over pairs overflow before the score does.
    largest = jnp.maximum(jnp.max(jnp.abs(means), axis=0), jnp.max(sds, axis=0))
    unit = jnp.where((largest > _LARGE) & jnp.isfinite(largest), largest, 1).astype(means.dtype)
    y, means, sds = y / unit, means / unit[None], sds / unit[None]

    def apart(shift):
        """Mean over i of A for the pair of i and i + shift; of a half turn, each pair twice."""
        other = jnp.roll(means, shift, axis=0), jnp.roll(sds, shift, axis=0)
        # `hypot`: the squares of large deviations overflow, those of small ones are 0.
        mean = jnp.mean(absolute(means - other[0], jnp.hypot(sds, other[1])), axis=0)
        return jnp.where(2 * shift == number, 1, 2).astype(means.dtype) * mean

    # A is symmetric: half of the shifts stand for all pairs but those of a component with itself.
    shifts = jnp.arange(1, number // 2 + 1)
    itself = 2 * jnp.mean(sds, axis=0) / math.sqrt(math.pi)
    spread = (itself + jnp.sum(jax.lax.map(apart, shifts), axis=0)) / number
    away = jnp.mean(absolute(y[None] - means, sds), axis=0)
    infinite = jnp.isposinf(away) | jnp.isposinf(spread)
    return unit * jnp.where(infinite, jnp.inf, away - spread / 2)


def _score_counts(scores: dict[str, np.ndarray], y: np.ndarray, rows: np.ndarray) -> dict:
    return scores_of_counts(scores, y)


def _score(components: Any, y: Array, rows: Array) -> dict[str, Array]:
    if isinstance(components, Components):
        return scores_of(components, y, rows)
    if isinstance(components, tuple):
        means, sds = components
        y = y.astype(means.dtype)
        z = (y[None] - means) / sds
        log_count = jnp.log(jnp.asarray(len(means), means.dtype))
        spacing = -(-len(means) // _MOST_COMPONENTS)
        return {
            "log_score": logsumexp(norm.logpdf(z) - jnp.log(sds), axis=0) - log_count,
            "crps": mixture_crps(y, means[::spacing], sds[::spacing]),
            "pit": jnp.mean(ndtr(z), axis=0),
            "error": y - jnp.mean(means, axis=0),
        }
    mean = jnp.mean(jnp.exp(components), axis=0)
    y = y.astype(jnp.int32)
    occurred = jax.nn.one_hot(y, mean.shape[-1], dtype=bool)
    # Not the log of the mean: probabilities that no float32 holds have logarithms.
    of_class = jnp.sum(jnp.where(occurred[None], components, 0), axis=-1)
    log_count = jnp.log(jnp.asarray(len(components), mean.dtype))
    return {
        "log_score": logsumexp(of_class, axis=0) - log_count,
        "brier": jnp.sum((mean - occurred.astype(mean.dtype)) ** 2, axis=-1),
        "is_correct": jnp.argmax(mean, axis=-1) == y,
        "probabilities": mean,
    }
