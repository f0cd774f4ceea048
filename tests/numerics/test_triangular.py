"""Tests of numerics.triangular: right, differentiable, and on a CPU never a batch of LAPACK's."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.linalg
from jax.test_util import check_grads

from jaxbnn.numerics import solve_triangular


@pytest.fixture
def problem(rng):
    lower = rng.normal(size=(3, 2, 4, 4)) + 4 * np.eye(4)
    return jnp.asarray(lower, jnp.float32), jnp.asarray(rng.normal(size=(3, 2, 4, 5)), jnp.float32)


def reference(lower, columns, transposed):
    """One solve at a time by SciPy, in float64."""
    shape = np.broadcast_shapes(lower.shape[:-2], columns.shape[:-2])
    solved = np.empty((*shape, *columns.shape[-2:]))
    for index in np.ndindex(*shape):
        matrix = np.asarray(np.broadcast_to(lower, (*shape, 4, 4))[index], np.float64)
        right = np.asarray(np.broadcast_to(columns, (*shape, 4, 5))[index], np.float64)
        solved[index] = scipy.linalg.solve_triangular(
            matrix, right, lower=True, trans="T" if transposed else "N"
        )
    return solved


@pytest.mark.parametrize("transposed", [False, True])
def test_solutions_with_and_without_batches(problem, transposed):
    lower, columns = problem

    def solve(lower, columns):
        return solve_triangular(lower, columns, transposed=transposed)

    expected = reference(lower, columns, transposed)
    batch = jax.jit(solve)(lower, columns)
    np.testing.assert_allclose(batch, expected, rtol=2e-5, atol=2e-6)
    mapped = jax.jit(jax.vmap(jax.vmap(solve)))(lower, columns)
    np.testing.assert_allclose(mapped, expected, rtol=2e-5, atol=2e-6)
    one_matrix = jax.jit(jax.vmap(solve, in_axes=(None, 0)))(lower[0, 0], columns[:, 0])
    shared = reference(lower[:1, 0], columns[:, 0], transposed)
    np.testing.assert_allclose(one_matrix, shared, rtol=2e-5, atol=2e-6)
    one_right_side = jax.jit(jax.vmap(solve, in_axes=(0, None)))(lower[:, 0], columns[0, 0])
    shared = reference(lower[:, 0], columns[:1, 0], transposed)
    np.testing.assert_allclose(one_right_side, shared, rtol=2e-5, atol=2e-6)


@pytest.mark.short("True")
@pytest.mark.parametrize("transposed", [False, True])
def test_derivatives_of_both_arguments(problem, transposed, x64):
    lower, columns = (jnp.asarray(np.asarray(a)[:2, 0], jnp.float64) for a in problem)

    def solve(lower, columns):
        return jax.vmap(lambda *pair: solve_triangular(*pair, transposed=transposed))(
            lower, columns
        )

    check_grads(jax.jit(solve), (lower, columns), order=2, modes=("fwd", "rev"))


def test_on_a_cpu_lapack_sees_one_matrix_at_a_time(problem):
    """Two batched calls at once wait for each other for ever on a pool of two threads."""
    lower, columns = (a[:, 0] for a in problem)

    def value(lower, columns):
        both = solve_triangular(lower, columns), solve_triangular(2 * lower, columns)
        return jnp.sum(both[0]) + jnp.sum(both[1])

    text = jax.jit(jax.vmap(jax.grad(value))).lower(lower, columns).as_text()
    calls = [line for line in text.splitlines() if "custom_call" in line and "trsm" in line]
    assert len(calls) >= 2
    assert not [line for line in calls if "tensor<3x4x4xf32>" in line]


def test_other_devices_solve_the_batch(problem):
    lower, columns = (a[:, 0] for a in problem)
    exported = jax.export.export(jax.jit(solve_triangular), platforms=["cuda"])(lower, columns)
    assert "stablehlo.while" not in exported.mlir_module()
