"""One effective sample size for all coordinates together."""

import math

import jax
import jax.numpy as jnp
from jaxtyping import Array, ArrayLike, Bool, Float, Shaped

from jaxbnn.diagnostics.draws import check_draws
from jaxbnn.numerics import check_count
from jaxbnn.numerics.arrays import float_dtype
from jaxbnn.numerics.products import product


def multivariate_ess(draws: ArrayLike, batch_size: int | None = None) -> Float[Array, ""]:
    """Multivariate ESS over all chains, (M N) (det Lambda / det Sigma)^(1/p), by batch means.

    Vats, Flegal and Jones (2019): Lambda is the covariance of the draws and Sigma the batch-means
    estimate of the asymptotic covariance, b/(K-1) sum_k (ybar_k - ybar)(ybar_k - ybar)^T with K
    batches of b draws. With several chains the batches of all chains are centred at the
    common mean (Gupta and Vats, 2020), so that chains that disagree count for less. Unlike the
    smallest ESS of the coordinates it sees correlations between them.

    Parameters
    ----------
    draws
        Array (chain, draw, ...); the trailing axes are flattened to p coordinates.
    batch_size
        b; by default the square root of the number of draws per chain, rounded down. Draws at
        the start of a chain that fill no batch are left out.

    Returns
    -------
    A scalar, the total over all chains. NaN if any draw, used or not, is NaN or infinite, any
    coordinate is constant, or the coordinates are linearly dependent, to rounding: as the
    probabilities of all classes are.

    Raises
    ------
    ValueError
        Not more batches than coordinates, which leaves Sigma singular; fewer than four draws;
        no chain axis.

    Examples
    --------
    >>> import jax
    >>> draws = jax.random.normal(jax.random.key(0), (4, 10_000, 3))
    >>> bool(abs(multivariate_ess(draws) / 40_000 - 1) < 0.15)
    True
    """
    checked = check_draws("multivariate_ess", draws, min_draws=4)
    chains, length, *shape = checked.shape
    if batch_size is not None:
        check_count("batch_size", batch_size)
    size = math.isqrt(length) if batch_size is None else int(batch_size)
    if not 1 <= size <= length:
        raise ValueError(f"batch_size must be between 1 and {length} (draws), but is {size}.")
    batches, count = length // size * chains, math.prod(shape)
    if batches <= count:
        raise ValueError(
            f"multivariate_ess needs more batches than coordinates, but there are {batches} "
            f"batches of {size} draws for {count} coordinates; keep more draws, or give a "
            "smaller batch_size or fewer coordinates."
        )
    return _multivariate_ess(checked, size)


@jax.jit(static_argnums=1)
def _multivariate_ess(draws: Shaped[Array, "chain draw ..."], size: int) -> Float[Array, ""]:
    chains, length, *shape = draws.shape
    count = math.prod(shape)
    dtype = float_dtype(draws.dtype)
    per_chain = length // size
    start = length - per_chain * size
    flat = draws.reshape(chains, length, count)
    # In one unit for all coordinates the determinants would over- and underflow.
    origin = flat[0, start].astype(dtype)
    low, high = flat.min(axis=(0, 1)).astype(dtype), flat.max(axis=(0, 1)).astype(dtype)
    largest = jnp.maximum(high - origin, origin - low)
    largest = jnp.where(largest > 0, largest, 1)

    def batch_of(index):
        chain, batch = index // per_chain, index % per_chain
        rows = jax.lax.dynamic_slice(flat, (chain, start + batch * size, 0), (1, size, count))
        return (rows[0].astype(dtype) - origin[None]) / largest[None]

    index = jnp.arange(chains * per_chain)
    # A batch at a time: centring all draws at once would copy them.
    means, squares = jax.lax.map(
        lambda i: (jnp.mean(batch_of(i), axis=0), jnp.mean(batch_of(i) ** 2, axis=0)), index
    )
    mean = jnp.mean(means, axis=0)
    scale = jnp.sqrt(jnp.mean(squares, axis=0) - mean**2)

    def add(total, i):
        unit = (batch_of(i) - mean[None]) / scale[None]
        return total + product(unit.T, unit), None

    scatter, _ = jax.lax.scan(add, jnp.zeros((count, count), dtype), index)
    unit_means = (means - mean[None]) / scale[None]
    batch_scatter = product(unit_means.T, unit_means)
    batches = chains * per_chain
    sign, log_det = jnp.linalg.slogdet(scatter / (batches * size - 1))
    batch_sign, batch_log_det = jnp.linalg.slogdet(batch_scatter * (size / (batches - 1)))
    ess = chains * length * jnp.exp((log_det - batch_log_det) / count)
    has_both = (sign > 0) & (batch_sign > 0) & ~_is_singular(scatter) & ~_is_singular(batch_scatter)
    # Draws that fill no batch have no other way to be seen.
    return jnp.where(has_both & jnp.isfinite(flat).all(), ess, jnp.nan)


def _is_singular(matrix: Float[Array, "p p"]) -> Bool[Array, ""]:
    """Whether the least eigenvalue of its correlation matrix may be rounding alone.

    That of dependent coordinates was seen at up to 7 machine epsilons, of either sign: the sign of
    the determinant does not tell.
    """
    scale = jnp.sqrt(jnp.diagonal(matrix))
    values = jnp.linalg.eigvalsh(matrix / scale[:, None] / scale[None])
    rounding = 8 * math.sqrt(len(matrix)) * jnp.finfo(matrix.dtype).eps
    return values[0] <= rounding * values[-1]
