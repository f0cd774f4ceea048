"""Triangular solves that can be mapped over chains.

JAX hands a batch of triangular solves on a CPU to LAPACK as one call, which spreads it over the
threads of the very pool that runs it and waits for them. Two such calls at once, which is what a
program mapped over chains with two independent solves makes, wait for each other for ever where
the pool has two threads (jaxlib 0.10.2). Here a mapped solve is on a CPU a loop of single ones,
and on other devices JAX's batch.
"""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax.custom_batching import custom_vmap
from jaxtyping import Array, Float

from jaxbnn.numerics.arguments import check_flag
from jaxbnn.numerics.checks import check_float
from jaxbnn.numerics.products import product


def solve_triangular(
    lower: Float[Array, "*batch n n"],
    columns: Float[Array, "*batch n k"],
    *,
    transposed: bool = False,
) -> Float[Array, "*batch n k"]:
    """Solve L X = B, or L^T X = B, with L the lower triangle of a matrix.

    Differentiable in both arguments, in forward and in reverse mode.

    Parameters
    ----------
    lower
        L. What stands above the diagonal is not read.
    columns
        B.
    transposed
        Solve with L^T.

    Raises
    ------
    ValueError
        Arrays whose shapes do not fit each other.
    TypeError
        Arrays that are neither float32 nor float64.

    Examples
    --------
    >>> solve_triangular(jnp.array([[2.0, 0.0], [1.0, 1.0]]), jnp.array([[2.0], [3.0]]))
    Array([[1.],
           [2.]], dtype=float32)
    """
    check_flag("transposed", transposed)
    check_float("lower", lower)
    check_float("columns", columns, like=lower)
    square, shape = np.shape(lower), np.shape(columns)
    if len(square) < 2 or square[-1] != square[-2] or shape[:-1] != square[:-1]:
        raise ValueError(
            f"solve_triangular needs lower (..., n, n) and columns (..., n, k) with the same "
            f"leading axes, but the shapes are {square} and {shape}."
        )
    solve = partial(_solve, transposed=transposed)
    for _ in range(lower.ndim - 2):
        solve = jax.vmap(solve)
    with jax.default_matmul_precision("highest"):  # blocked solves are matrix products
        return solve(lower, columns)


def _solve(lower: Array, columns: Array, *, transposed: bool) -> Array:
    """Make the solve linear in the eyes of JAX, which then derives derivatives from it."""

    def multiply(x):
        matrix = jnp.tril(lower)
        return product(matrix.T if transposed else matrix, x)

    def solve_with(transposed):
        return lambda _, b: _single(transposed)(lower, b)

    return jax.lax.custom_linear_solve(
        multiply, columns, solve_with(transposed), solve_with(not transposed)
    )


def _single(transposed: bool):
    """Return the solve with one matrix, and what it becomes when it is mapped."""

    def batched(lower, columns):
        return jax.lax.linalg.triangular_solve(
            lower, columns, left_side=True, lower=True, transpose_a=transposed
        )

    single = custom_vmap(batched)

    @single.def_vmap
    def mapped(axis_size, in_batched, lower, columns):
        if not in_batched[0]:  # one matrix: all columns at once
            n, k = columns.shape[1:]
            side_by_side = jnp.moveaxis(columns, 0, 1).reshape(n, axis_size * k)
            solved = single(lower, side_by_side).reshape(n, axis_size, k)
            return jnp.moveaxis(solved, 1, 0), True
        if not in_batched[1]:
            columns = jnp.broadcast_to(columns[None], (axis_size, *columns.shape))
        one_by_one = partial(jax.lax.map, lambda pair: single(*pair))
        solved = jax.lax.platform_dependent(
            lower, columns, cpu=lambda *pairs: one_by_one(pairs), default=batched
        )
        return solved, True

    return single
