"""Draws, predictive laws and divergences against numbers that are known, outputs of unequal
scales among them.
"""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from scipy import integrate, stats

from jaxbnn import Categorical, Dense, Gaussian, LearnedGaussian, Network, Residual, mlp
from jaxbnn.dvi import (
    FactorisedNormal,
    GaussianMoments,
    LayerwiseNormal,
    activation_draws,
    deterministic_vi,
    expected_log_likelihood,
    initial_position,
    kl_divergence,
    predictive,
    propagate,
    standardisation,
)
from jaxbnn.dvi.predictive import mixture

STANDARD_NORMAL = dist.Normal(0.0, 1.0)


def test_draws_of_a_layer_have_the_covariance_of_their_factor():
    """L = [[1, 0], [2, 1]]. Six standard errors of 20,000 draws' covariances, 1e-8 in all."""
    q = LayerwiseNormal(
        ({"w": jnp.zeros((1, 1)), "b": jnp.zeros(1)},), (jnp.array([[0.0, 0.0], [2.0, 0.0]]),)
    )
    vi = deterministic_vi(mlp((1, 1)), Gaussian(1.0), STANDARD_NORMAL)
    draws = vi.sample(jax.random.key(0), vi.init(q), 20_000)[0]
    found = np.cov(draws["w"][:, 0, 0], draws["b"][:, 0])
    exact = np.array([[1.0, 2.0], [2.0, 5.0]])
    errors = np.sqrt((exact**2 + np.outer(np.diag(exact), np.diag(exact))) / 20_000)
    assert np.all(np.abs(found - exact) < 6 * errors), found


def standardised(method, network):
    """Return a VI whose network works on labels less 2, over 3."""
    options = {"output_scale": 3.0, "output_shift": 2.0}
    return deterministic_vi(network, Gaussian(1.0), STANDARD_NORMAL, method=method, **options)


@pytest.mark.parametrize("method", ["mcvi", "rmcvi"])
def test_drawn_outputs_are_scaled_and_shifted_as_moments_are(method):
    """With weights that hardly vary."""
    network, x, y = mlp((2, 1)), jnp.ones((3, 2)), jnp.zeros(3)
    q = initial_position(jax.random.key(0), network, variance=1e-10)
    found = standardised(method, network).elbo(q, x, y, jax.random.key(1))
    exact = standardised("dvi", network).elbo(q, x, y)
    np.testing.assert_allclose(
        found.expected_log_likelihood, exact.expected_log_likelihood, rtol=1e-3
    )


def test_predictions_from_drawn_weights_are_scaled_and_shifted():
    """With weights that hardly vary."""
    network, x = mlp((2, 1)), jnp.ones((3, 2))
    q = initial_position(jax.random.key(0), network, variance=1e-10)
    vi = standardised("mcvi", network)
    found = vi.predict(q, x, rng_key=jax.random.key(1), num_samples=5)
    np.testing.assert_allclose(found.mean, vi.apply(q.mean, x)[:, 0], atol=1e-3)
    np.testing.assert_allclose(vi.apply(q.mean, x), 3 * network.apply(q.mean, x) + 2, rtol=1e-5)


def test_drawn_activations_have_the_scales_of_ntk_networks():
    """One variance, of 20,000 draws: six standard errors, two-sided 2e-9."""
    network = mlp((3, 1), parametrisation="ntk", weight_scale=3.0, bias_scale=0.5)
    q, x = initial_position(jax.random.key(0), network), jnp.ones((1, 3))
    draws = activation_draws(jax.random.key(1), network, q, x, 20_000)
    exact = propagate(network, q, x).variance
    np.testing.assert_allclose(draws.var(axis=0), exact, rtol=6 * (2 / 20_000) ** 0.5)


def test_drawn_activations_pass_by_a_residual_block():
    """With weights that hardly vary."""
    network, x = Network((Residual((Dense(2),)),), (2,)), jnp.array([[1.0, -2.0]])
    q = initial_position(jax.random.key(0), network, variance=1e-8)
    found = activation_draws(jax.random.key(1), network, q, x, 2)[0]
    np.testing.assert_allclose(found, network.apply(q.mean, x), atol=1e-2)


def test_a_learnt_noise_is_averaged_over(x64):
    """Against quadrature over log sigma ~ N(m, v), and the mean of sigma^2 in closed form."""
    m, v, mean, variance, y = -0.4, 0.3, 0.2, 0.5, 0.9
    moments = GaussianMoments(jnp.array([[mean]]), jnp.array([[variance]]))
    noise = (jnp.asarray(m), jnp.asarray(v))

    def integrand(log_scale):
        spread = (variance + np.exp(2 * log_scale)) ** 0.5
        return stats.norm.pdf(log_scale, m, v**0.5) * stats.norm.pdf(y, mean, spread)

    found = predictive(LearnedGaussian(), moments, noise=noise).log_prob(jnp.array([y]))
    np.testing.assert_allclose(found, np.log(integrate.quad(integrand, -8, 8)[0]), rtol=1e-6)
    closed = predictive(LearnedGaussian(), moments, noise=noise, density="closed_form")
    np.testing.assert_allclose(closed.variance, variance + np.exp(2 * m + 2 * v), rtol=1e-6)


def test_a_learnt_noise_is_drawn_with_its_standard_deviation():
    """By Monte Carlo as in closed form.

    A draw of -s - exp(-2 s) / 2, s ~ N(0, 1/4), has the standard deviation 0.77: of 40,000 draws
    0.03 is 7.8 standard errors.
    """
    moments = GaussianMoments(jnp.zeros((1, 1)), jnp.full((1, 1), 1e-6))
    noise = (jnp.asarray(0.0), jnp.asarray(0.25))

    def expectation(**options):
        return expected_log_likelihood(
            LearnedGaussian(), moments, jnp.ones(1), noise=noise, **options
        )

    drawn = {"expectation": "monte_carlo", "rng_key": jax.random.key(0), "num_samples": 40_000}
    np.testing.assert_allclose(expectation(**drawn), expectation(), atol=0.03)


def test_probabilities_of_classes_are_averaged_not_logits():
    draws = jnp.array([[[5.0, 0.0, 0.0]], [[0.0, 5.0, 1.0]]])
    exact = jax.nn.softmax(draws, axis=-1).mean(axis=0)
    np.testing.assert_allclose(mixture(Categorical(), draws, 1).probs, exact, rtol=1e-5)


@pytest.mark.parametrize("gap", [60.0, 200.0])
def test_a_class_that_is_far_from_likely_has_a_finite_log_probability(gap):
    """e^-200 is zero in float32; its logarithm is a score."""
    draws = jnp.tile(jnp.array([[[0.0, gap]]]), (10, 1, 1))
    found = mixture(Categorical(), draws, 1).log_prob(jnp.array([0]))
    np.testing.assert_allclose(found, [-gap], rtol=1e-6)
    moments = GaussianMoments(draws[0], jnp.full((1, 2), 1e-6), 1e-6 * jnp.eye(2)[None])
    found = predictive(Categorical(), moments).log_prob(jnp.array([0]))
    np.testing.assert_allclose(found, [-gap], rtol=1e-5)


OUTPUT_SCALES = np.array([0.3, 2.0], np.float32)
TWO_OUTPUTS = GaussianMoments(jnp.zeros((1, 2)), jnp.ones((1, 2)))


def test_every_output_is_expected_at_its_own_noise():
    found = expected_log_likelihood(Gaussian(OUTPUT_SCALES), TWO_OUTPUTS, jnp.zeros((1, 2)))
    exact = np.sum(stats.norm.logpdf(0, 0, OUTPUT_SCALES) - 0.5 / OUTPUT_SCALES**2)
    np.testing.assert_allclose(found[0], exact, rtol=1e-5)


def test_every_output_is_predicted_with_its_own_noise():
    found = predictive(Gaussian(OUTPUT_SCALES), TWO_OUTPUTS, 2).variance[0]
    np.testing.assert_allclose(found, 1 + OUTPUT_SCALES**2, rtol=1e-5)


THREE_WEIGHTS = FactorisedNormal({"w": jnp.zeros(3)}, {"w": jnp.zeros(3)})  # standard normal
PRIOR_SCALES = np.array([0.5, 1.0, 3.0], np.float32)


def test_the_divergence_from_normals_of_unequal_scales():
    found = kl_divergence(THREE_WEIGHTS, {"w": dist.Normal(0.0, PRIOR_SCALES)})
    exact = np.sum(0.5 / PRIOR_SCALES**2 - 0.5 + np.log(PRIOR_SCALES))
    np.testing.assert_allclose(found, exact, rtol=1e-5)


def test_the_divergence_from_laplace_laws_of_unequal_scales():
    """E |w| = sqrt(2 / pi), and the entropy of a standard normal is (1 + log 2 pi) / 2."""
    found = kl_divergence(THREE_WEIGHTS, {"w": dist.Laplace(0.0, PRIOR_SCALES)})
    cross_entropy = np.sum(np.sqrt(2 / np.pi) / PRIOR_SCALES + np.log(2 * PRIOR_SCALES))
    np.testing.assert_allclose(found, cross_entropy - 1.5 * (1 + np.log(2 * np.pi)), rtol=1e-5)


@pytest.mark.parametrize(
    "column",
    [
        1e200 * np.arange(5.0),
        1e-200 * np.arange(5.0),
        1.6e15 + 1000 * np.arange(5.0),  # stamps of time in microseconds, by milliseconds
    ],
)
def test_columns_of_any_units_are_standardised(column):
    found = standardisation(column[:, None], column)
    assert found.constant_columns == ()
    exact = np.arange(-2, 3) / np.sqrt(2)
    np.testing.assert_allclose(found.inputs(column[:, None])[:, 0], exact, rtol=1e-12)
    np.testing.assert_allclose(found.targets(column), exact, rtol=1e-12)


def test_a_column_that_varies_by_rounding_is_kept_as_zeros():
    column = 2**60 + 256 * np.arange(3)
    found = standardisation(column[:, None], np.arange(3.0))
    assert found.constant_columns == (0,)
    assert not found.inputs(column[:, None]).any()
    np.testing.assert_allclose(found.inputs(np.array([[1.0]])), -(2.0**60))


@pytest.mark.parametrize(
    ("values", "error", "said"),
    [
        (np.ma.array([[1.0, 2.0]], mask=[[False, True]]), ValueError, "x is masked"),
        (np.array([[1.0, np.nan]]), ValueError, "x"),
        (np.array([[1j, 2.0]]), TypeError, "x must hold real numbers"),
        (np.zeros((1, 3)), ValueError, "standardised with columns of shape"),
    ],
)
def test_what_cannot_be_standardised_is_refused(values, error, said):
    s = standardisation(np.arange(6.0).reshape(3, 2), np.arange(3.0))
    with pytest.raises(error, match=said):
        s.inputs(values)
    with pytest.raises(ValueError, match=r"y has shape .*, but was standardised as numbers"):
        s.targets(np.zeros((3, 2)))


def test_standardised_targets_have_mean_zero_and_variance_one():
    x, y = np.arange(6.0).reshape(3, 2), np.array([[1.0, 7.0], [2.0, 3.0], [6.0, 2.0]])
    found = standardisation(x, y).targets(y)
    np.testing.assert_allclose(found.mean(axis=0), 0, atol=1e-12)
    np.testing.assert_allclose(found.std(axis=0), 1)
