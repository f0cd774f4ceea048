"""Inverse factors of precision matrices, small ones and in batches.

    P = L L^T,  returned is R = L^-1:  P^-1 = R^T R, and R^T xi has covariance P^-1

One product with R serves any number of right-hand sides. Row operations that turn [P, I] into
[L^T, R] are faster here than LAPACK, up to hundreds of rows, and they do not hang: jaxlib
(0.10.2, CPU) runs LAPACK calls that do not depend on each other at once, and in batches each
waits for the same threads, forever.
"""

import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float

from jaxbnn.gibbs.linear_maps import product

_LEAF = 32  # larger matrices are halved: products beat row operations


def inverse_factor(precision: Float[Array, "n n"]) -> Float[Array, "n n"]:
    """Return R = L^-1 of P = L L^T; NaN unless P is positive definite.

    Examples
    --------
    >>> R = inverse_factor(jnp.array([[4.0, 2.0], [2.0, 2.0]]))
    >>> R.tolist()
    [[0.5, 0.0], [-0.5, 1.0]]
    """
    n = precision.shape[0]
    if n <= _LEAF:
        return _by_rows(precision)
    half = (n + 1) // 2
    upper = inverse_factor(precision[:half, :half])
    corner = product(precision[half:, :half], upper.T)
    lower = inverse_factor(precision[half:, half:] - product(corner, corner.T))
    between = -product(lower, product(corner, upper))
    return jnp.block([[upper, jnp.zeros_like(between.T)], [between, lower]])


def inverse(precision: Float[Array, "n n"]) -> Float[Array, "n n"]:
    """Return P^-1 of a positive definite matrix.

    Examples
    --------
    >>> inverse(jnp.array([[4.0]])).tolist()
    [[0.25]]
    """
    root = inverse_factor(precision)
    return product(root.T, root)


def _by_rows(precision: Array) -> Array:
    n = precision.shape[0]
    rows = jnp.arange(n)

    def eliminate(k, matrix):
        row = lax.dynamic_index_in_dim(matrix, k, 0, keepdims=False)
        column = lax.dynamic_index_in_dim(matrix, k, 1, keepdims=False)
        scale = lax.rsqrt(lax.dynamic_index_in_dim(row, k, 0, keepdims=False))
        row = row * scale
        below = jnp.where(rows > k, column * scale, 0)
        matrix = matrix - below[:, None] * row[None, :]
        return jnp.where((rows == k)[:, None], row[None, :], matrix)

    start = jnp.concatenate([precision, jnp.eye(n, dtype=precision.dtype)], axis=1)
    return lax.fori_loop(0, n, eliminate, start)[:, n:]
