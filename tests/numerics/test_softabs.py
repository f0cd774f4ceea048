"""SoftAbs against its formula in NumPy, and the metric against explicit matrices."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxbnn.numerics import (
    metric_inverse_sqrt,
    metric_log_det,
    metric_quadratic,
    metric_solve,
    softabs,
    softabs_metric,
)


@pytest.mark.parametrize(("dtype", "tolerance"), [(np.float32, 5e-7), (np.float64, 1e-15)])
def test_softabs_values(dtype, tolerance):
    with jax.enable_x64(dtype is np.float64):
        alpha = 1000.0
        positive = np.geomspace(1e-12, 1e6, 2000).astype(dtype)
        value = softabs(jnp.asarray(positive), alpha)
        y = alpha * positive.astype(np.longdouble)
        np.testing.assert_allclose(value, positive / np.tanh(y), rtol=tolerance)
        np.testing.assert_array_equal(softabs(jnp.asarray(-positive), alpha), value)
        assert value.dtype == dtype


@pytest.mark.long
@pytest.mark.parametrize("alpha", [1e-3, 1.0, 1e6])
def test_softabs_at_and_around_zero(alpha):
    assert float(softabs(jnp.float32(0.0), alpha)) == pytest.approx(1 / alpha, rel=1e-6)
    x = jnp.asarray([0.0, 1e-30, -1e-30, 0.03 / alpha, 1 / alpha, 1e3], jnp.float32)
    gradient = jax.vmap(jax.grad(lambda v: softabs(v, alpha)))(x)
    y = alpha * np.asarray(x, float)
    safe = np.where(np.abs(y) < 1e-4, 1, y)
    with np.errstate(over="ignore"):
        exact = np.where(np.abs(y) < 1e-4, 2 * y / 3, 1 / np.tanh(safe) - safe / np.sinh(safe) ** 2)
    np.testing.assert_allclose(gradient, exact, rtol=2e-4)


def test_metric_functions_against_the_matrix(x64, rng):
    hessians = rng.normal(size=(4, 5, 5))
    hessians = hessians + hessians.swapaxes(1, 2)
    hessians[0, :, 4] = hessians[0, 4, :] = 0  # a flat direction
    vector, alpha = jnp.asarray(rng.normal(size=(4, 5))), 3.0
    metric = softabs_metric(jnp.asarray(hessians), alpha)
    for i, hessian in enumerate(hessians):
        values, vectors = np.linalg.eigh(hessian)
        values = np.where(np.abs(values) < 1e-9, 1, values)
        soft = values / np.tanh(alpha * values)
        if i == 0:
            soft[np.argmin(np.abs(np.linalg.eigvalsh(hessian)))] = 1 / alpha
        matrix = (vectors * soft) @ vectors.T
        one = jax.tree.map(lambda a, i=i: a[i], metric)
        v, w = vector[i], np.asarray(vector[i])
        np.testing.assert_allclose(metric_log_det(one), np.linalg.slogdet(matrix)[1], rtol=1e-10)
        np.testing.assert_allclose(metric_quadratic(one, v), w @ matrix @ w, rtol=1e-10)
        np.testing.assert_allclose(metric_solve(one, v), np.linalg.solve(matrix, w), rtol=1e-9)
        root = np.stack([metric_inverse_sqrt(one, e) for e in jnp.eye(5)], axis=1)
        np.testing.assert_allclose(root @ root.T, np.linalg.inv(matrix), atol=1e-10)
    np.testing.assert_allclose(metric_solve(metric, vector)[3], metric_solve(one, vector[3]))


def test_the_sign_of_the_hessian_does_not_matter(rng):
    hessian = rng.normal(size=(3, 3)).astype(np.float32)
    hessian = jnp.asarray(hessian + hessian.T)
    plus, minus = softabs_metric(hessian, 10.0), softabs_metric(-hessian, 10.0)
    v = jnp.ones(3)
    np.testing.assert_allclose(metric_solve(plus, v), metric_solve(minus, v), rtol=1e-4)


def test_alpha_must_be_positive():
    with pytest.raises(ValueError, match="alpha must be positive"):
        softabs(jnp.ones(2), 0.0)


@pytest.mark.parametrize("dtype", [np.int32, np.uint8, np.float16])
def test_whole_numbers_and_halves_are_made_floats(dtype, annotations_unchecked):
    """A sharpness of 0.5 was 0 in their dtype, one of 1e6 infinite."""
    values = np.array([3, 0], dtype)
    for alpha in (0.5, 1e6):
        np.testing.assert_array_equal(softabs(values, alpha), softabs(values.astype("f4"), alpha))


@pytest.mark.parametrize("shape", [(2, 1), (3,), (1, 2)])
def test_alpha_does_not_enlarge_the_result(shape):
    with pytest.raises(ValueError, match=r"alpha must be one number, or one an eigenvalue.*\(2,\)"):
        softabs(jnp.ones(2), np.ones(shape))


def test_the_halves_of_a_hessian_are_averaged():
    found = softabs_metric(jnp.array([[1.0, 3.0], [1.0, 1.0]]), 1e3).eigenvalues
    np.testing.assert_allclose(found, [1.0, 3.0], rtol=1e-5)
