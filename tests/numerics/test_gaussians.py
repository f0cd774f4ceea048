"""Tests of numerics.gaussians and numerics.products: Gaussians from precisions against NumPy and
SciPy.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

from jaxbnn.numerics import gaussian_from_noise, gaussian_log_density, sample_from_precision


@pytest.fixture
def precisions(rng):
    roots = rng.normal(size=(3, 4, 4))
    return roots @ roots.swapaxes(1, 2) + np.eye(4)


def test_draws_are_an_affine_map_with_the_right_mean_and_covariance(x64, precisions, rng):
    """Exactly, from the images of 0 and of the unit vectors: no Monte Carlo."""
    linear = rng.normal(size=4)
    for precision in precisions:
        cholesky = jnp.linalg.cholesky(jnp.asarray(precision))
        rows = jnp.tile(jnp.asarray(linear), (4, 1))
        mean = gaussian_from_noise(jnp.zeros(4), cholesky, jnp.asarray(linear))
        images = gaussian_from_noise(jnp.eye(4), cholesky, rows) - jnp.tile(mean, (4, 1))
        np.testing.assert_allclose(mean, np.linalg.solve(precision, linear), rtol=1e-10)
        np.testing.assert_allclose(images.T @ images, np.linalg.inv(precision), atol=1e-12)


def test_one_precision_for_all_rows_or_one_for_each(precisions, rng):
    P = jnp.asarray(precisions, jnp.float32)
    h = jnp.asarray(rng.normal(size=(3, 4)), jnp.float32)
    noise = jnp.asarray(rng.normal(size=(3, 4)), jnp.float32)
    L = jnp.linalg.cholesky(P)
    each = gaussian_from_noise(noise, L, h)
    shared = gaussian_from_noise(noise, L[1], h)
    np.testing.assert_allclose(each[1], shared[1], rtol=1e-5)
    np.testing.assert_allclose(each[2], gaussian_from_noise(noise[2], L[2], h[2]), rtol=1e-5)


def test_sample_from_precision(precisions):
    """Whitened draws are standard normal (Kolmogorov-Smirnov, false-alarm rate 1e-6)."""
    P, h = precisions[0], np.array([1.0, -2.0, 0.5, 3.0])
    n = 20_000
    rows = jnp.tile(jnp.asarray(h, jnp.float32), (n, 1))
    draws = sample_from_precision(jax.random.key(0), jnp.asarray(P, jnp.float32), rows)
    white = (np.asarray(draws, float) - np.linalg.solve(P, h)) @ np.linalg.cholesky(P)
    for column in white.T:
        assert scipy.stats.kstest(column, "norm").pvalue > 1e-6 / 4


def test_log_density(x64, precisions, rng):
    x, mean = rng.normal(size=(2, 3, 4))
    L = np.linalg.cholesky(precisions)
    each = gaussian_log_density(jnp.asarray(x), jnp.asarray(mean), jnp.asarray(L))
    for i, precision in enumerate(precisions):
        exact = scipy.stats.multivariate_normal(mean[i], np.linalg.inv(precision)).logpdf(x[i])
        assert float(each[i]) == pytest.approx(exact, rel=1e-9)
        shared = gaussian_log_density(jnp.asarray(x), jnp.asarray(mean), jnp.asarray(L[i]))
        assert float(shared[i]) == pytest.approx(exact, rel=1e-9)


def test_a_matrix_that_is_no_precision_gives_nan():
    draw = sample_from_precision(jax.random.key(0), -jnp.eye(2), jnp.ones(2))
    assert np.all(np.isnan(draw))


def test_only_the_lower_half_of_a_factor_counts(precisions, rng):
    """SciPy's `cho_factor` leaves the entries of the matrix itself above the diagonal."""
    precision = precisions[0].astype(np.float32)
    factor, _ = scipy.linalg.cho_factor(precision, lower=True)
    x, mean = jnp.asarray(rng.normal(size=(2, 4)), jnp.float32)
    clean = gaussian_log_density(x, mean, jnp.linalg.cholesky(precision))
    np.testing.assert_allclose(gaussian_log_density(x, mean, jnp.asarray(factor)), clean, rtol=1e-4)
    each = gaussian_log_density(x[None], mean[None], jnp.asarray(factor)[None])
    np.testing.assert_allclose(each[0], clean, rtol=1e-4)
