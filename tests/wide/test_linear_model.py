"""The two forms of the read-out's linear model, against definitions and against wrong formulas."""

import jax
import numpy as np
import pytest

from jaxbnn.wide.linear_model import (
    cheaper_form,
    from_read_out,
    log_marginal_terms,
    to_read_out,
)
from tests.kit.sizes import QUICK
from tests.wide.linear_algebra import (
    log_joint,
    log_marginal,
    posterior_of_read_out,
    standard_normal,
)

FORMS = ["data", "features"]
# (data, features, outputs): wide, narrow, one datum.
SHAPES = [(5, 8, 3), (12, 4, 2), (1, 3, 1)]
NOISE_SCALE = 0.3

terms = jax.jit(log_marginal_terms, static_argnames="form", compiler_options=QUICK)
to_theta = jax.jit(to_read_out, static_argnames="form", compiler_options=QUICK)
to_phi = jax.jit(from_read_out, static_argnames="form", compiler_options=QUICK)


def problem(rng, shape, dtype=np.float64):
    n, p, k = shape
    psi = rng.standard_normal((n, p)) / np.sqrt(p)
    y = rng.standard_normal((n, k))
    return psi.astype(dtype), y.astype(dtype), np.asarray(NOISE_SCALE, dtype)


def linear_part(psi, sigma, form):
    """Return A: the images of the unit vectors where y is zero."""
    n, p = psi.shape
    return np.asarray(to_theta(np.eye(p), psi, np.zeros((n, p)), sigma, form=form))


def identity_residual(log_likelihood, a, phi, theta, psi, y, sigma):
    """Return log N(theta) + log p(Y | theta) + k log|det A| - log N(phi) - l: zero if right."""
    volume = y.shape[1] * np.linalg.slogdet(a)[1]
    left = log_joint(theta, psi, y, sigma) + volume
    return left - standard_normal(phi) - log_likelihood


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("shape", SHAPES)
def test_identities(shape, form, rng):
    psi, y, sigma = problem(rng, shape)
    n, p, k = shape
    covariance, mean = posterior_of_read_out(psi, y, sigma)
    a = linear_part(psi, sigma, form)
    np.testing.assert_allclose(a @ a.T, covariance, atol=1e-12)
    sign, log_det = np.linalg.slogdet(a)
    assert sign == 1
    assert log_det == pytest.approx(np.linalg.slogdet(covariance)[1] / 2, abs=1e-10)

    phi = rng.standard_normal((p, k))
    theta = np.asarray(to_theta(phi, psi, y, sigma, form=form))
    np.testing.assert_allclose(theta, a @ phi + mean, atol=1e-11)
    np.testing.assert_allclose(to_phi(theta, psi, y, sigma, form=form), phi, atol=1e-11)

    found = np.asarray(terms(psi, y, sigma, form=form))
    assert found.shape == ((n,) if form == "data" else (n + p,))
    assert found.sum() == pytest.approx(log_marginal(psi, y, sigma), abs=1e-10)
    assert abs(identity_residual(found.sum(), a, phi, theta, psi, y, sigma)) < 1e-9


def test_terms_of_the_data_form_are_predictive_densities(x64, rng):
    psi, y, sigma = problem(rng, (5, 8, 3))
    whole = [log_marginal(psi[:m], y[:m], sigma) for m in range(1, 6)]
    np.testing.assert_allclose(
        terms(psi, y, sigma, form="data"), np.diff(whole, prepend=0.0), atol=1e-10
    )


def _gram(psi, sigma):
    return psi @ psi.T + sigma**2 * np.eye(len(psi))


def sign_as_printed(psi, y, sigma):
    """Defect: exp(+1/2 y^T K^-1 y), as in appendix A (erratum B3)."""
    quadratic = np.sum(y * np.linalg.solve(_gram(psi, sigma), y))
    return log_marginal(psi, y, sigma) + quadratic


def determinant_as_printed(psi, y, sigma):
    """Defect: "det Sigma proportional to det K", hence K^(1/2) for K^(-1/2)."""
    return log_marginal(psi, y, sigma) + y.shape[1] * np.linalg.slogdet(_gram(psi, sigma))[1]


def both_as_printed(psi, y, sigma):
    right = log_marginal(psi, y, sigma)
    return sign_as_printed(psi, y, sigma) + determinant_as_printed(psi, y, sigma) - right


def one_determinant(psi, y, sigma):
    """Defect: det^(-1/2) once, whatever the number of outputs."""
    return (
        log_marginal(psi, y, sigma) + (y.shape[1] - 1) / 2 * np.linalg.slogdet(_gram(psi, sigma))[1]
    )


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    "wrong", [sign_as_printed, determinant_as_printed, both_as_printed, one_determinant]
)
def test_printed_densities_break_the_identity(wrong, form, rng):
    # The residual of two designs: constants of proportionality do not count.
    residuals = []
    for _ in range(2):
        psi, y, sigma = problem(rng, (5, 8, 3))
        phi = rng.standard_normal((8, 3))
        theta = np.asarray(to_theta(phi, psi, y, sigma, form=form))
        a = linear_part(psi, sigma, form)
        residuals.append(identity_residual(wrong(psi, y, sigma), a, phi, theta, psi, y, sigma))
    assert abs(residuals[0] - residuals[1]) > 0.1


def test_matheron_without_its_noise_breaks_the_identity(x64, rng):
    psi, y, sigma = problem(rng, (5, 8, 3))
    covariance, mean = posterior_of_read_out(psi, y, sigma)
    gain = psi.T @ np.linalg.inv(_gram(psi, sigma))
    phi = rng.standard_normal((8, 3))
    theta = phi + gain @ (y - psi @ phi)
    np.testing.assert_allclose(theta, covariance @ phi + mean, atol=1e-12)  # A = Sigma
    residual = identity_residual(log_marginal(psi, y, sigma), covariance, phi, theta, psi, y, sigma)
    assert abs(residual) > 1


def test_the_cheaper_form_is_the_smaller_matrix():
    assert [cheaper_form(n, 10) for n in (1, 10, 11)] == ["data", "data", "features"]


@pytest.mark.parametrize(
    ("form", "theta_error", "l_error"), [("data", 1e-4, 1e-3), ("features", 5e-4, 1e-3)]
)
def test_float32(form, theta_error, l_error, rng):
    """The read-out and a difference of two l at n = 256 and a noise scale of 0.1."""
    n, p, k = 256, 384, 10
    thetas, differences, problems = [], [], []
    for _ in range(2):
        psi = np.maximum(rng.standard_normal((n, p)), 0) / np.sqrt(p)
        values = (rng.standard_normal((p, k)), psi, 0.3 * rng.standard_normal((n, k)), 0.1)
        problems.append([np.asarray(value, np.float32) for value in values])
    for dtype in (np.float32, np.float64):
        with jax.enable_x64(dtype == np.float64):
            args = [[value.astype(dtype) for value in values] for values in problems]
            thetas.append(np.asarray(to_theta(*args[0], form=form), np.float64))
            first, second = (np.asarray(terms(*a[1:], form=form), np.float64) for a in args)
            differences.append(np.sum(first - second))
    assert np.abs(thetas[0] - thetas[1]).max() < theta_error
    assert abs(differences[0] - differences[1]) < l_error
    assert abs(differences[1]) > 1
