"""Mixtures of other families than the normal: Student-t, Laplace, Poisson, negative binomial.

Means, variances, log densities and distribution functions are those of the components, exactly.
Quantiles and the CRPS have no closed form for such mixtures, and are those of draws from them.
"""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpyro.distributions as dist
from jax.scipy.special import betainc, gammaincc, logsumexp
from jaxtyping import Array, Float, Int

# Draws from each row's mixture, at least; their quantiles are off by a fiftieth of a deviation.
FEWEST_DRAWN = 4096
_SEED = 0


class Family(NamedTuple):
    """What is known of a family of distributions.

    Attributes
    ----------
    parameters
        Its parameters' names.
    centre
        Its mean; its location, where it has no mean.
    cdf
        (distribution, y) -> P(Y <= y).
    is_count
        Whether it lives on 0, 1, 2, ...
    """

    parameters: tuple[str, ...]
    centre: Callable[[Any], Array]
    cdf: Callable[[Any, Array], Array]
    is_count: bool


class Components(NamedTuple):
    """The components at some rows: one distribution, of batch shape (draws, rows, ...)."""

    family: Family
    law: Any


def _student_cdf(law: Any, y: Array) -> Array:
    z = (y - law.loc) / law.scale
    # The smaller tail by the beta function's, which keeps its digits there.
    tail = 0.5 * betainc(0.5 * law.df, jnp.full_like(z, 0.5), law.df / (law.df + z**2))
    return jnp.where(z > 0, 1 - tail, tail)


def _laplace_cdf(law: Any, y: Array) -> Array:
    z = (y - law.loc) / law.scale
    tail = 0.5 * jnp.exp(-jnp.abs(z))
    return jnp.where(z > 0, 1 - tail, tail)


def _poisson_cdf(law: Any, y: Array) -> Array:
    whole = jnp.floor(y)
    cdf = gammaincc(jnp.maximum(whole, 0) + 1, law.rate)
    return jnp.where(whole < 0, 0, cdf)


def _negative_binomial_cdf(law: Any, y: Array) -> Array:
    whole = jnp.floor(y)
    success = law.rate / (1 + law.rate)
    cdf = betainc(law.concentration, jnp.maximum(whole, 0) + 1, success)
    return jnp.where(whole < 0, 0, cdf)


def _mean(law: Any) -> Array:
    return law.mean


FAMILIES: dict[type, Family] = {
    # Without a mean at one degree of freedom or fewer: its centre is its location.
    dist.StudentT: Family(("df", "loc", "scale"), lambda law: law.loc, _student_cdf, False),
    dist.Laplace: Family(("loc", "scale"), _mean, _laplace_cdf, False),
    dist.Poisson: Family(("rate",), _mean, _poisson_cdf, True),
    dist.GammaPoisson: Family(("concentration", "rate"), _mean, _negative_binomial_cdf, True),
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
    >>> found.family.is_count, found.law.batch_shape
    (True, (5, 2))
    """
    return Components(FAMILIES[kind], kind(*parameters))


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
    keys = jax.random.split(jax.random.key(_SEED), each)
    parameters = parameters_of(found.law)
    dtype = parameters[0].dtype
    if not is_shared:
        values = jax.vmap(found.law.sample)(keys).astype(dtype)
        return jnp.sort(values.reshape(each * number, *rows), axis=0)

    def of_row(own):
        return jax.vmap(type(found.law)(*own).sample)(keys)

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
    return jnp.mean(jnp.abs(values - y[None]), axis=0) - apart / 2


def summary_of(found: Components, level: Float[Array, ""]) -> dict[str, Array]:
    """Return the fields of `NumberPrediction`; a variance that diverges is infinite."""
    means = found.family.centre(found.law)
    mean = jnp.mean(means, axis=0)
    aleatoric = jnp.mean(_variances(found.law), axis=0)
    epistemic = jnp.mean((means - mean[None]) ** 2, axis=0)
    values = draw(found, is_shared=True)
    return {
        "mean": mean,
        "sd": jnp.sqrt(aleatoric + epistemic),
        "lower": quantile_of_sorted(values, 0.5 - level / 2),
        "upper": quantile_of_sorted(values, 0.5 + level / 2),
        "aleatoric": aleatoric,
        "epistemic": epistemic,
    }


def scores_of(found: Components, y: Array, rows: Int[Array, " rows"]) -> dict[str, Array]:
    """Return the fields of `NumberScores`; `rows` are the numbers of the data, as in `pit_of`."""
    means = found.family.centre(found.law)
    y = y.astype(means.dtype)
    log_count = jnp.log(jnp.asarray(len(means), means.dtype))
    return {
        "log_score": logsumexp(found.law.log_prob(y[None]), axis=0) - log_count,
        "crps": crps_of_sorted(draw(found, is_shared=False), y),
        "pit": pit_of(found, y, rows),
        "error": y - jnp.mean(means, axis=0),
    }


def pit_of(
    found: Components, y: Float[Array, "*rows"], rows: Int[Array, " n"]
) -> Float[Array, "*rows"]:
    """Return the mixture's distribution function at y, at counts a place drawn within its jump.

    It is uniform for calibrated predictions, of counts too (Smith 1985; Czado et al. 2009). The
    place depends on the datum's number in `rows`, not on those that are scored with it.

    Examples
    --------
    >>> found = components(dist.Laplace, (jnp.zeros((2, 1)), jnp.ones((2, 1))))
    >>> pit_of(found, jnp.zeros(1), jnp.arange(1)).tolist()
    [0.5]
    """
    pit = jnp.mean(found.family.cdf(found.law, y[None]), axis=0)
    if not found.family.is_count:
        return pit
    below = jnp.mean(found.family.cdf(found.law, y[None] - 1), axis=0)
    keys = jax.vmap(jax.random.fold_in, (None, 0))(jax.random.key(_SEED + 1), rows)
    place = jax.vmap(lambda key: jax.random.uniform(key, pit.shape[1:], pit.dtype))(keys)
    return below + place * (pit - below)


def _variances(law: Any) -> Array:
    if isinstance(law, dist.StudentT):  # NumPyro's has no value at one degree or fewer
        several = jnp.maximum(law.df, 2.0)
        finite = law.scale**2 * law.df / jnp.where(law.df > 2, several - 2, 1.0)
        return jnp.where(law.df > 2, finite, jnp.inf)
    return law.variance
