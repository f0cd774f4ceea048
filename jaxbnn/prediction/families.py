"""Mixtures of other families than the normal: Student-t, Laplace, Poisson, negative binomial.

Means, variances, log densities and distribution functions are those of the components, exactly;
those of counts are computed by the host in double precision, since single precision loses them
from ten thousand on. Quantiles and the CRPS have no closed form for such mixtures, and are those of
draws from them.
"""

import math
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jax.scipy.special import betainc, logsumexp, ndtr
from jaxtyping import Array, Float, Int, PRNGKeyArray, Shaped
from scipy import special

from jaxbnn.numerics.arrays import float_dtype
from jaxbnn.targets.heavy_tails import log_gamma_step

# Draws from each row's mixture, at least: what lies below their quantile at probability p has the
# probability p, with a standard deviation of (p (1 - p) / 4096)^(1/2).
FEWEST_DRAWN = 4096
_SEED = 0
# Whatever JAX's default keys are; `jax.random.poisson` knows no others.
_IMPL = "threefry2x32"
# From here on Poisson counts are drawn from the normal that has their mean, variance and skewness,
# whose distribution function is off by 2e-6: that of `jax.random.poisson` in float32 is by .001 at
# 3e4 and by .003 at 1e5, it draws too few far ones from 1e6 on, and none beyond 2^31.
_LARGE_RATE = 1e4
# From here on the beta function of float32 is less exact than a normal: at 3,000 it is off by .004.
_MANY_DEGREES = 300.0


class Family(NamedTuple):
    """What is known of a family of distributions.

    Attributes
    ----------
    parameters
        Its parameters' names.
    centre
        Its mean; its location, where it has no mean.
    log_prob, cdf
        (distribution, y) -> log p(y) and P(Y <= y); None of counts.
    of_counts
        (parameters, y) -> log P(Y = y) and P(Y <= y), in double precision on the host; None of a
        family that does not live on 0, 1, 2, ...
    """

    parameters: tuple[str, ...]
    centre: Callable[[Any], Array]
    log_prob: Callable[[Any, Array], Array] | None
    cdf: Callable[[Any, Array], Array] | None
    of_counts: Callable[..., tuple[np.ndarray, np.ndarray]] | None


class Components(NamedTuple):
    """The components at some rows: one distribution, of batch shape (draws, rows, ...)."""

    family: Family
    law: Any


def _student_cdf(law: Any, y: Array) -> Array:
    z = (y - law.loc) / law.scale
    # The smaller tail by the beta function's, which keeps its digits there.
    few = jnp.minimum(law.df, _MANY_DEGREES)
    tail = 0.5 * betainc(0.5 * few, jnp.full_like(z, 0.5), few / (few + z**2))
    # Abramowitz and Stegun 26.7.8.
    near = (1 - 0.25 / law.df) / jnp.sqrt(1 + 0.5 * z**2 / law.df)
    tail = jnp.where(law.df > _MANY_DEGREES, ndtr(-jnp.abs(z) * near), tail)
    return jnp.where(z > 0, 1 - tail, tail)


def _student_log_prob(law: Any, y: Array) -> Array:
    z = (y - law.loc) / law.scale
    # NumPyro's subtracts two logarithms of Gamma functions, which cancel from 1e4 degrees on.
    height = log_gamma_step(law.df / 2) - 0.5 * jnp.log(math.pi * law.df) - jnp.log(law.scale)
    return height - 0.5 * (law.df + 1) * jnp.log1p(z**2 / law.df)


def _laplace_cdf(law: Any, y: Array) -> Array:
    z = (y - law.loc) / law.scale
    tail = 0.5 * jnp.exp(-jnp.abs(z))
    return jnp.where(z > 0, 1 - tail, tail)


def _poisson(rate: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    log_prob = special.xlogy(y, rate) - rate - special.gammaln(y + 1)
    log_prob = np.where(np.isposinf(rate), -np.inf, log_prob)  # of two infinite terms
    return log_prob, special.gammaincc(y + 1, rate)


def _negative_binomial(
    concentration: np.ndarray, rate: np.ndarray, y: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    # NumPyro's rate is concentration / mean: the probability of a success is rate / (1 + rate).
    # Gamma(y + c) / (Gamma(c) y!), by a beta function: gammaln(y + c) - gammaln(c) cancels.
    ways = -special.betaln(concentration, y + 1) - np.log(y + concentration)
    log_prob = ways - concentration * np.log1p(1 / rate) - special.xlog1py(y, rate)
    return log_prob, special.betainc(concentration, y + 1, 1 / (1 + 1 / rate))


def _mean(law: Any) -> Array:
    return law.mean


def _log_prob(law: Any, y: Array) -> Array:
    return law.log_prob(y)


FAMILIES: dict[type, Family] = {
    # Without a mean at one degree of freedom or fewer: its centre is its location.
    dist.StudentT: Family(
        ("df", "loc", "scale"), lambda law: law.loc, _student_log_prob, _student_cdf, None
    ),
    dist.Laplace: Family(("loc", "scale"), _mean, _log_prob, _laplace_cdf, None),
    dist.Poisson: Family(("rate",), _mean, None, None, _poisson),
    dist.GammaPoisson: Family(("concentration", "rate"), _mean, None, None, _negative_binomial),
}


def family_of(law: Any) -> type | None:
    """Return the key of a distribution's family in `FAMILIES`; None if it is not among them.

    Examples
    --------
    >>> family_of(dist.NegativeBinomial2(1.0, 2.0)).__name__, family_of(dist.Gumbel())
    ('GammaPoisson', None)
    """
    return next((kind for kind in FAMILIES if isinstance(law, kind)), None)


def parameters_of(law: Any) -> tuple[Array, ...]:
    """Return a distribution's parameters, each of its whole shape.

    Examples
    --------
    >>> [p.shape for p in parameters_of(dist.Laplace(jnp.zeros(3), 1.0))]
    [(3,), (3,)]
    """
    kind = family_of(law)
    assert kind is not None
    names = FAMILIES[kind].parameters
    return tuple(jnp.broadcast_to(getattr(law, name), law.batch_shape) for name in names)


def components(kind: type, parameters: tuple[Array, ...]) -> Components:
    """Return the components of a family at these parameters.

    Examples
    --------
    >>> found = components(dist.Poisson, (jnp.ones((5, 2)),))
    >>> found.family.parameters, found.law.batch_shape
    (('rate',), (5, 2))
    """
    return Components(FAMILIES[kind], kind(*parameters))


def sample_law(law: Any, key: PRNGKeyArray) -> Shaped[Array, "..."]:
    """Return a draw from each of a distribution's components; large counts are numbers.

    Counts whose rate is beyond what their dtype holds are infinite.

    Examples
    --------
    >>> sample_law(dist.Poisson(jnp.array([3.0, 1e12])), jax.random.key(0)).dtype
    dtype('float32')
    """
    if isinstance(law, dist.Independent):
        return sample_law(law.base_dist, key)
    if isinstance(law, dist.GammaPoisson):
        key_gamma, key = jax.random.split(key)
        rate = jax.random.gamma(key_gamma, law.concentration, law.batch_shape) / law.rate
    elif isinstance(law, dist.Poisson):
        rate = jnp.broadcast_to(law.rate, law.batch_shape)
    else:
        return law.sample(key)
    small = jax.random.poisson(_as_threefry(key), jnp.minimum(rate, _LARGE_RATE), rate.shape)
    z = jax.random.normal(jax.random.fold_in(key, 1), rate.shape, rate.dtype)
    large = jnp.round(rate + jnp.sqrt(rate) * z + (z**2 - 1) / 6)
    large = jnp.where(jnp.isfinite(rate), large, rate)
    return jnp.where(rate <= _LARGE_RATE, small.astype(rate.dtype), large)


def _as_threefry(key: PRNGKeyArray) -> PRNGKeyArray:
    if str(jax.random.key_impl(key)) == _IMPL:
        return key
    return jax.random.wrap_key_data(jax.random.bits(key, (2,), jnp.uint32), impl=_IMPL)


def draw(found: Components, *, is_shared: bool) -> Float[Array, "number *rows"]:
    """Return sorted draws from each row's mixture, as many from each component; at least 4,096.

    With `is_shared` every row is drawn with the same random numbers: what is made of them depends
    neither on a row's place nor on the rows beside it. Without, errors average over the rows.

    Examples
    --------
    >>> values = draw(components(dist.Poisson, (jnp.full((5, 2), 3.0),)), is_shared=True)
    >>> values.shape, bool(abs(values.mean() - 3) < 0.1), bool((values[:, 0] == values[:, 1]).all())
    ((4100, 2), True, True)
    """
    number, *rows = found.law.batch_shape
    each = math.ceil(FEWEST_DRAWN / number)
    keys = jax.random.split(jax.random.key(_SEED, impl=_IMPL), each)
    parameters = parameters_of(found.law)
    dtype = parameters[0].dtype
    if not is_shared:
        values = jax.vmap(partial(sample_law, found.law))(keys).astype(dtype)
        return jnp.sort(values.reshape(each * number, *rows), axis=0)

    def of_row(own):
        return jax.vmap(partial(sample_law, type(found.law)(*own)))(keys)

    columns = [leaf.reshape(number, -1) for leaf in parameters]
    values = jax.vmap(of_row, in_axes=1, out_axes=-1)(columns).astype(dtype)
    return jnp.sort(values.reshape(each * number, *rows), axis=0)


def quantile_of_sorted(
    values: Float[Array, "number *rows"], probability: Float[Array, ""]
) -> Float[Array, "*rows"]:
    """Return the smallest of the sorted values with this fraction of them at it or below.

    Examples
    --------
    >>> float(quantile_of_sorted(jnp.arange(10.0), jnp.array(0.5)))
    4.0
    """
    number = len(values)
    index = jnp.ceil(probability * number).astype(jnp.int32) - 1
    return values[jnp.clip(index, 0, number - 1)]


def crps_of_sorted(
    values: Float[Array, "number *rows"], y: Float[Array, "*rows"]
) -> Float[Array, "*rows"]:
    """Return the CRPS from sorted draws, mean |x_i - y| - mean over pairs i < j of |x_i - x_j| / 2.

    Infinite where a draw is, or a sum of draws.

    Examples
    --------
    >>> float(crps_of_sorted(jnp.array([0.0, 1.0]), jnp.array(0.0)))
    0.0
    """
    number = len(values)
    place = jnp.arange(1, number + 1, dtype=values.dtype).reshape(-1, *(1,) * (values.ndim - 1))
    # About the median, so that the sum of large values does not cancel.
    centred = values - values[number // 2][None]
    weights = (2 * place - number - 1) / number
    apart = 2 * jnp.sum(weights * centred, axis=0) / (number - 1)
    found = jnp.mean(jnp.abs(values - y[None]), axis=0) - apart / 2
    is_number = jnp.isfinite(found) | jnp.isnan(values[-1]) | jnp.isnan(y)
    return jnp.where(is_number, found, jnp.inf)


def summary_of(found: Components, tail: Float[Array, ""]) -> dict[str, Array]:
    """Return the fields of `NumberPrediction`; a variance that diverges is infinite.

    `tail` is the probability on either side of the interval.
    """
    means = found.family.centre(found.law)
    mean = jnp.mean(means, axis=0)
    # By the deviations themselves, whose squares may be beyond the numbers of this precision.
    within = root_mean_square(_deviations(found.law))
    sd = jnp.hypot(within, root_mean_square(means - mean[None]))
    aleatoric = jnp.mean(_variances(found.law), axis=0)
    epistemic = jnp.mean((means - mean[None]) ** 2, axis=0)
    epistemic = jnp.where(jnp.isposinf(mean), jnp.inf, epistemic)
    values = draw(found, is_shared=True)
    return {
        "mean": mean,
        "sd": jnp.where(jnp.isposinf(mean), jnp.inf, sd),
        "lower": quantile_of_sorted(values, tail),
        "upper": quantile_of_sorted(values, 1 - tail),
        "aleatoric": aleatoric,
        "epistemic": epistemic,
    }


def scores_of(found: Components, y: Array, rows: Int[Array, " rows"]) -> dict[str, Array]:
    """Return the fields of `NumberScores`; of counts what `scores_of_counts` makes them from.

    `rows` are the numbers of the data: where a count's PIT lies within its jump depends on them.
    """
    means = found.family.centre(found.law)
    y = y.astype(means.dtype)
    crps = crps_of_sorted(draw(found, is_shared=False), y)
    if isinstance(found.law, dist.StudentT):  # from here down its integral diverges
        crps += jnp.where((found.law.df <= 0.5).any(axis=0), jnp.inf, 0.0)
    scores = {
        "crps": crps,
        "error": y - jnp.mean(means, axis=0),
    }
    if found.family.cdf is None:
        keys = jax.vmap(jax.random.fold_in, (None, 0))(jax.random.key(_SEED + 1, impl=_IMPL), rows)
        place = jax.vmap(lambda key: jax.random.uniform(key, y.shape[1:], float_dtype(y.dtype)))(
            keys
        )
        parameters = zip(found.family.parameters, parameters_of(found.law), strict=True)
        of_draws = {name: jnp.moveaxis(values, 0, -1) for name, values in parameters}
        return {**scores, "place": place, **of_draws}
    assert found.family.log_prob is not None
    log_count = jnp.log(jnp.asarray(len(means), means.dtype))
    return {
        **scores,
        "log_score": logsumexp(found.family.log_prob(found.law, y[None]), axis=0) - log_count,
        "pit": jnp.mean(found.family.cdf(found.law, y[None]), axis=0),
    }


def scores_of_counts(
    scores: dict[str, np.ndarray], y: Shaped[np.ndarray, "*rows"]
) -> dict[str, np.ndarray]:
    """Return `scores_of` with the log score and the PIT of counts, in double precision.

    The PIT is uniform for calibrated predictions, of counts too: a place drawn within the
    distribution function's jump (Smith 1985; Czado et al. 2009). Other scores are as they were.

    Raises
    ------
    ValueError
        If y holds what is no count.

    Examples
    --------
    >>> found = components(dist.Poisson, (jnp.ones((2, 1)),))
    >>> scores = jax.device_get(scores_of(found, jnp.zeros(1), jnp.arange(1)))
    >>> found = scores_of_counts(scores, np.zeros(1))
    >>> float(found["log_score"][0]), bool(0 < found["pit"][0] < np.exp(-1))
    (-1.0, True)
    """
    if "place" not in scores:
        return scores
    y = y.astype(float)
    if (is_none := (y < 0) | (y != np.floor(y))).any():
        raise ValueError(f"y must hold counts 0, 1, 2, ..., but holds {y[is_none].flat[0]:g}.")
    crps, error, place = (scores[name] for name in ("crps", "error", "place"))
    names = {*scores} - {"crps", "error", "place"}
    family = next(one for one in FAMILIES.values() if {*one.parameters} == names)
    assert family.of_counts is not None
    parameters = (scores[name].astype(float) for name in family.parameters)
    with np.errstate(all="ignore"):  # as in a program of JAX
        log_prob, cdf = family.of_counts(*parameters, y[..., None])
    log_score = special.logsumexp(log_prob, axis=-1) - math.log(log_prob.shape[-1])
    pit = np.mean(cdf, axis=-1) - (1 - place) * np.mean(np.exp(log_prob), axis=-1)
    return {
        "log_score": log_score.astype(error.dtype),
        "crps": crps,
        "pit": np.clip(pit, 0, 1).astype(error.dtype),
        "error": error,
    }


def root_mean_square(values: Float[Array, "draws *rows"]) -> Float[Array, "*rows"]:
    """Return it, also where the squares overflow, or are 0."""
    largest = jnp.max(jnp.abs(values), axis=0)
    unit = jnp.where((largest > 0) & jnp.isfinite(largest), largest, 1)
    return unit * jnp.sqrt(jnp.mean((values / unit[None]) ** 2, axis=0))


def _deviations(law: Any) -> Array:
    if isinstance(law, dist.Laplace):
        return math.sqrt(2) * law.scale
    if isinstance(law, dist.StudentT):
        degrees = jnp.maximum(law.df, 2.0)
        ratio = jnp.sqrt(degrees / jnp.where(law.df > 2, degrees - 2, 1.0))
        return jnp.where(law.df > 2, law.scale * ratio, jnp.inf)
    return jnp.sqrt(law.variance)


def _variances(law: Any) -> Array:
    if isinstance(law, dist.StudentT):  # NumPyro's has no value at one degree or fewer
        several = jnp.maximum(law.df, 2.0)
        finite = law.scale**2 * law.df / jnp.where(law.df > 2, several - 2, 1.0)
        return jnp.where(law.df > 2, finite, jnp.inf)
    return law.variance
