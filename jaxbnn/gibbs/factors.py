"""Factors of precision matrices, small ones and in batches, with the digits that the data have.

    A = L L^T,  R = L^-1:  A^-1 = R^T R, and R^T xi has covariance A^-1

One product with R serves any number of right-hand sides. Row operations that turn [A, I] into
[L^T, R] are faster here than LAPACK, up to hundreds of rows, and they do not hang: jaxlib
(0.10.2, CPU) runs LAPACK calls that do not depend on each other at once, and in batches each
waits for the same threads, forever.

A precision is a sum of squares, A = Phi Phi^T + diag(ridge). Where features are nearly
collinear, rounding A to float32 loses what Phi still holds: two units that differ by the noise
sqrt(Delta) alone make a pivot of Delta beside ones of order 1. `whiten` then goes back to Phi,

    C = R Phi,   B = C C^T + R diag(ridge) R^T = L' L'^T,   R <- L'^-1 R,

and B, nearly the identity, loses nothing (CholeskyQR with a floor under the pivots in place of
a shift: Fukaya, Kannan, Nakatsukasa, Yamamoto, Yanagisawa (2020), SIAM J. Sci. Comput. 42,
A477-A503). The error is then that of rounding Phi, as in a QR decomposition, by products and
sums over data only, so that it runs sharded and in batches.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float

from jaxbnn.numerics.products import product

_LEAF = 32  # larger matrices are halved: products beat row operations
_ROUNDED_UP = 1 + 1e-5  # of a pivot's square root squared, beside the pivot
_MOST_PASSES = 5  # each gains half the digits of the type or more; three were the most seen


class Whitened(NamedTuple):
    """A factored precision and what `whiten` was given beside it.

    Attributes
    ----------
    lower, root
        L and R. NaN where the precision could not be factored.
    linear
        R h.
    """

    lower: Float[Array, "p p"]
    root: Float[Array, "p p"]
    linear: Float[Array, "p k"]


def whiten(
    sums: Callable[[Array | None], tuple[Float[Array, "p p"], Float[Array, "p k"]]],
) -> Whitened:
    """Factor A and whiten h, from sums over data that can be taken again in other coordinates.

    The first pass is all there is where every pivot keeps half the digits of its type.

    Parameters
    ----------
    sums
        sums(R) returns R A R^T and R h, computed from R Phi; sums(None) returns A and h.

    Examples
    --------
    >>> phi, ridge = jnp.array([[1.0, 1.0], [1.0, 1.0 + 1e-6]]), jnp.full(2, 1e-9)
    >>> def sums(root):
    ...     root = jnp.eye(2) if root is None else root
    ...     return product(root @ phi, (root @ phi).T) + root * ridge @ root.T, root @ phi
    >>> for root in (whiten(sums).root, inverse_factor(sums(None)[0])):
    ...     print(bool(jnp.isfinite(root).all()))
    True
    False
    """
    precision, linear = sums(None)
    lower, root, share = _factor(precision)
    # A pivot is a difference of numbers as large as its diagonal: `share` of the digits is left.
    enough = jnp.finfo(precision.dtype).eps ** 0.5

    def improve(carry):
        passes, _, (lower, root, _) = carry
        precision, linear = sums(root)
        more, back, share = _factor(precision)
        found = Whitened(product(lower, more), product(back, root), product(back, linear))
        return passes + 1, share, found

    def is_rough(carry):
        passes, share, _ = carry
        return (share < enough) & (passes < _MOST_PASSES)

    first = Whitened(lower, root, product(root, linear))
    if precision.shape[0] == 1:  # its pivot is its diagonal
        return first
    _, share, found = lax.while_loop(is_rough, improve, (jnp.int32(1), share, first))
    failed = jnp.where(share >= enough, 0, jnp.nan).astype(share.dtype)
    return Whitened(*(part + failed for part in found))


def inverse_factor(precision: Float[Array, "n n"]) -> Float[Array, "n n"]:
    """Return R = L^-1 of P = L L^T; NaN unless P is positive definite.

    Examples
    --------
    >>> R = inverse_factor(jnp.array([[4.0, 2.0], [2.0, 2.0]]))
    >>> R.tolist()
    [[0.5, 0.0], [-0.5, 1.0]]
    """
    return _halves(precision, jnp.zeros(precision.shape[0], precision.dtype))[1]


def _factor(precision: Array) -> tuple[Array, Array, Float[Array, ""]]:
    """Return L, R and the least pivot over its diagonal, pivots kept off zero.

    A pivot below the rounding of its diagonal has no digits, nor has what stands beside it. Any
    positive number in its place, and zeros beside it, give coordinates in which the next pass sees
    the true ones.
    """
    n = precision.shape[0]
    diagonal = jnp.diagonal(precision)
    floor = 2 * n * jnp.finfo(precision.dtype).eps * diagonal
    lower, root = _halves(precision, floor)
    return lower, root, jnp.min(jnp.square(jnp.diagonal(lower)) / diagonal)


def _halves(precision: Array, floor: Array) -> tuple[Array, Array]:
    """Return L and R, each pivot at least its floor; a pivot at its floor stands alone."""
    n = precision.shape[0]
    if n <= _LEAF:
        return _by_rows(precision, floor)
    half = (n + 1) // 2
    above, upper = _halves(precision[:half, :half], floor[:half])
    corner = product(precision[half:, :half], upper.T)
    is_lost = jnp.square(jnp.diagonal(above)) <= floor[:half] * _ROUNDED_UP
    corner = jnp.where(is_lost[None, :], 0, corner)
    rest = precision[half:, half:] - product(corner, corner.T)
    below, lower = _halves(rest, floor[half:])
    between = -product(lower, product(corner, upper))
    zeros = jnp.zeros_like(between.T)
    return jnp.block([[above, zeros], [corner, below]]), jnp.block(
        [[upper, zeros], [between, lower]]
    )


def _by_rows(precision: Array, floor: Array) -> tuple[Array, Array]:
    n = precision.shape[0]
    rows, is_left = jnp.arange(n), jnp.arange(2 * n) < n

    def eliminate(k, matrix):
        row = lax.dynamic_index_in_dim(matrix, k, 0, keepdims=False)
        column = lax.dynamic_index_in_dim(matrix, k, 1, keepdims=False)
        pivot = lax.dynamic_index_in_dim(row, k, 0, keepdims=False)
        least = lax.dynamic_index_in_dim(floor, k, 0, keepdims=False)
        is_lost = pivot < least  # not of NaN, which stays
        pivot = jnp.where(is_lost, least, pivot)
        # What is left beside a lost pivot is rounding, and grows from one to the next if it is
        # taken for more.
        row = jnp.where(is_lost & is_left, 0, row)
        row = lax.dynamic_update_index_in_dim(row, pivot, k, 0) * lax.rsqrt(pivot)
        below = jnp.where((rows > k) & ~is_lost, column * lax.rsqrt(pivot), 0)
        matrix = matrix - below[:, None] * row[None, :]
        return jnp.where((rows == k)[:, None], row[None, :], matrix)

    start = jnp.concatenate([precision, jnp.eye(n, dtype=precision.dtype)], axis=1)
    both = lax.fori_loop(0, n, eliminate, start)
    return jnp.triu(both[:, :n]).T, both[:, n:]
