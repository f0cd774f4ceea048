"""How far apart two covariance matrices are, whatever the coordinates."""

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Float

from jaxbnn.numerics import check_real, is_concrete, solve_triangular
from jaxbnn.numerics.arrays import float_dtype
from jaxbnn.numerics.products import product

# Of the standard deviations of two coordinates; above what float16 rounds.
_ASYMMETRY = 1e-3


def covariance_distance(a: ArrayLike, b: ArrayLike) -> Float[Array, "*batch"]:
    """Distance of two covariance matrices that no linear map of the coordinates changes.

    (sum_i log(l_i)^2)^(1/2), l_i the eigenvalues of a^-1 b (Foerstner and Moonen, 1999): the
    length of the shortest path between them in the affine-invariant geometry. The standard
    deviation of one coordinate doubled is 2 log 2 = 1.39 away.

    Parameters
    ----------
    a, b
        (..., p, p), symmetric; their leading axes are broadcast.

    Returns
    -------
    (...); infinite where b is singular, NaN where a is not positive definite.

    Raises
    ------
    ValueError
        Matrices that are not square, not of one size, or not symmetric.

    Examples
    --------
    >>> round(float(covariance_distance(jnp.eye(3), jnp.diag(jnp.array([1.0, 1.0, 4.0])))), 2)
    1.39
    """
    for matrix in (a, b):
        check_real("a covariance matrix", matrix)
    shapes = np.shape(a), np.shape(b)
    if any(len(shape) < 2 or shape[-2:] != (shapes[0][-1],) * 2 or 0 in shape for shape in shapes):
        raise ValueError(
            "covariance_distance needs square matrices (..., p, p) of one size, but the shapes "
            f"are {shapes[0]} and {shapes[1]}."
        )
    for matrix in (a, b):
        check_symmetric("a covariance matrix", matrix)
    if is_concrete((a, b)):
        a, b = _in_units(np.asarray(a), np.asarray(b))
    left, right = jnp.asarray(a), jnp.asarray(b)
    dtype = jnp.promote_types(float_dtype(left.dtype), float_dtype(right.dtype))
    batch = jnp.broadcast_shapes(left.shape, right.shape)
    factor = jnp.linalg.cholesky(jnp.broadcast_to(left.astype(dtype), batch))
    inner = whiten(factor, jnp.broadcast_to(right.astype(dtype), batch))
    eigenvalues = jnp.linalg.eigvalsh((inner + jnp.swapaxes(inner, -1, -2)) / 2)
    # Rounding may put the eigenvalues of a singular matrix on either side of zero.
    floor = jnp.finfo(dtype).eps * jnp.max(jnp.abs(eigenvalues), axis=-1, keepdims=True)
    logs = jnp.where(eigenvalues > floor, jnp.log(jnp.maximum(eigenvalues, floor)), jnp.inf)
    logs = jnp.where(jnp.isnan(eigenvalues), jnp.nan, logs)
    return jnp.sqrt(jnp.sum(logs**2, axis=-1))


def _in_units(a: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return both matrices in units of the coordinates' deviations by a, in their own precision.

    No unit matters to the distance, but the squares of small ones are no numbers of float32.
    """
    variances = np.diagonal(np.asarray(a, float), axis1=-2, axis2=-1)
    with np.errstate(invalid="ignore"):
        units = np.where(variances > 0, np.sqrt(variances), 1)[..., None]
    row = np.swapaxes(units, -1, -2)
    first, second = ((m / units / row).astype(float_dtype(m.dtype)) for m in (a, b))
    return first, second


def check_symmetric(name: str, matrix: ArrayLike) -> None:
    """Raise unless matrices (..., p, p) are symmetric to a thousandth; traced ones are not seen."""
    if not is_concrete(matrix):
        return
    values = np.asarray(matrix, float)
    size = np.sqrt(np.abs(np.diagonal(values, axis1=-2, axis2=-1)))
    apart = np.abs(values - np.swapaxes(values, -1, -2))
    # NaNs, of which the distance is NaN, compare false.
    if (apart > _ASYMMETRY * size[..., :, None] * size[..., None, :]).any():
        raise ValueError(
            f"{name} must be symmetric, but is not: of a Cholesky factor L give L L^T."
        )


def whiten(
    factor: Float[Array, "*#batch p p"], matrix: Float[Array, "*#batch p p"]
) -> Float[Array, "*batch p p"]:
    """Return L^-1 A L^-T, the matrix A in coordinates in which L L^T is the identity."""
    # One inverse for all matrices: a mapped solve is a loop of single ones on a CPU.
    identity = jnp.broadcast_to(jnp.eye(factor.shape[-1], dtype=factor.dtype), factor.shape)
    inverse = solve_triangular(factor, identity)
    half = product(inverse, matrix)
    return product(half, jnp.swapaxes(inverse, -1, -2))
