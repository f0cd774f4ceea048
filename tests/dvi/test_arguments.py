"""Tests of dvi.learned: arguments that gave a wrong number are refused."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest

from jaxbnn import Categorical, Gaussian, LearnedGaussian, mlp
from jaxbnn.dvi import (
    FactorisedNormal,
    GaussianMoments,
    activation_draws,
    activation_moments,
    deterministic_vi,
    empirical_bayes,
    expected_log_likelihood,
    fit,
    initial_position,
    per_fan_in,
    predictive,
    standardisation,
)
from jaxbnn.dvi.families import draw_weights
from jaxbnn.targets import HeteroscedasticGaussian, NegativeBinomial, StudentT

LINE = mlp((2, 1))
STANDARD_NORMAL = dist.Normal(0.0, 1.0)
OUTPUTS = GaussianMoments(jnp.zeros((2, 1)), jnp.ones((2, 1)))
X, Y = jnp.ones((2, 2)), jnp.zeros(2)
pytestmark = pytest.mark.usefixtures("annotations_unchecked")


def key():
    return jax.random.key(0)


@pytest.mark.parametrize(
    ("likelihood", "prior", "error", "sentence"),
    [
        (Gaussian(1.0), 3, TypeError, "prior is of type int, not a NumPyro distribution"),
        (Gaussian(1.0), dist.Cauchy(0.0, 1.0), TypeError, "no closed form.*Cauchy"),
        (Gaussian(1.0), {"w": STANDARD_NORMAL}, ValueError, "no distribution for the parameter"),
        (Gaussian(1.0), empirical_bayes(partition={"w": 1}), ValueError, "partition has labels at"),
        (Gaussian(1.0), empirical_bayes(beta={"w": 1.0}), ValueError, "beta has numbers at"),
        (LearnedGaussian(), STANDARD_NORMAL, ValueError, 'the prior must be {"network": prior'),
        (
            LearnedGaussian(),
            {"network": dist.Cauchy(0.0, 1.0), "log_noise_scale": STANDARD_NORMAL},
            TypeError,
            "no closed form.*Cauchy",
        ),
    ],
)
def test_a_prior_is_looked_at_before_any_fit(likelihood, prior, error, sentence):
    """It was when the first ELBO was computed, maybe hours into a program."""
    with pytest.raises(error, match=sentence):
        deterministic_vi(LINE, likelihood, prior)


@pytest.mark.parametrize("count", [0, 1.5])
def test_draws_are_a_whole_number(count):
    """Of none, the mean was NaN."""
    vi = deterministic_vi(LINE, Gaussian(1.0), STANDARD_NORMAL)
    q = initial_position(key(), LINE)
    for call in (
        lambda options: expected_log_likelihood(
            Gaussian(1.0), OUTPUTS, Y, expectation="monte_carlo", **options
        ),
        lambda options: predictive(Gaussian(1.0), OUTPUTS, density="monte_carlo", **options),
        lambda options: vi.predict(q, X, density="monte_carlo", **options),
        lambda options: vi.sample(key(), vi.init(q), count - 1),
    ):
        with pytest.raises((TypeError, ValueError), match="num_samples must be"):
            call({"rng_key": key(), "num_samples": count})


@pytest.mark.parametrize("count", [0, 1, 1.5, 301])
def test_a_predictive_has_two_to_300_nodes(count):
    """One sees no variance of the noise, and the weights of 372 overflow."""
    outputs = GaussianMoments(jnp.zeros((2, 2)), jnp.ones((2, 2)))
    with pytest.raises((TypeError, ValueError), match="num_nodes must be"):
        predictive(HeteroscedasticGaussian(), outputs, num_nodes=count)


@pytest.mark.parametrize(
    ("likelihood", "noise", "sentence"),
    [
        (Gaussian(1.0), (0.0, 0.1), "Gaussian learns no noise"),
        (LearnedGaussian(), 0.5, r"noise of LearnedGaussian must be \(mean, variance\), or"),
        (LearnedGaussian(), {"log_noise": (0.0, 0.1)}, '{"log_noise_scale": '),
        (LearnedGaussian(), (0.0, -1.0), "variance of log_noise_scale must not be negative"),
        (LearnedGaussian(), (jnp.nan, 0.1), "mean of log_noise_scale holds nan"),
        (LearnedGaussian(), (jnp.zeros(1), jnp.ones(())), "must have one shape"),
        (StudentT(), (0.0, 0.1), 'must be {"log_degrees": '),
    ],
)
def test_noise_is_what_the_likelihood_learns(likelihood, noise, sentence):
    with pytest.raises(ValueError, match=sentence):
        expected_log_likelihood(likelihood, OUTPUTS, Y, noise=noise)
    with pytest.raises(ValueError, match=sentence):
        predictive(likelihood, OUTPUTS, noise=noise)


def test_noise_may_be_numbers():
    """Whole numbers too, drawn or in closed form."""
    for expectation in ("closed_form", "monte_carlo"):
        found, expected = (
            expected_log_likelihood(
                LearnedGaussian(), OUTPUTS, Y, noise=noise, expectation=expectation, rng_key=key()
            )
            for noise in ((-1, 1), (jnp.array(-1.0), jnp.array(1.0)))
        )
        np.testing.assert_array_equal(found, expected)


def test_what_is_learnt_under_another_name_is_averaged_over():
    """With outputs and a concentration that hardly vary."""
    likelihood = NegativeBinomial()
    prior = {"network": STANDARD_NORMAL, "log_concentration": STANDARD_NORMAL}
    vi = deterministic_vi(LINE, likelihood, prior, expectation="monte_carlo")
    q = initial_position(key(), LINE, variance=1e-10)
    position = {
        "network": q,
        "log_concentration": FactorisedNormal(jnp.array(0.5), jnp.array(-12.0)),
    }
    y = jnp.array([3, 0])
    found = vi.elbo(position, X, y, key()).expected_log_likelihood
    known = NegativeBinomial(np.exp(0.5))
    exact = known.log_prob(vi.apply(q.mean, X), y).sum()
    np.testing.assert_allclose(found, exact, rtol=1e-3)


def test_whole_numbers_have_moments_as_floats_do():
    """Nodes of the quadrature were cut to whole numbers, and a variance was 0."""
    whole = GaussianMoments(jnp.array([[1, 2]]), jnp.array([[1, 4]]))
    floats = jax.tree.map(lambda leaf: leaf.astype(float), whole)
    found, expected = (
        activation_moments("tanh", moments, rule="gauss_hermite") for moments in (whole, floats)
    )
    jax.tree.map(np.testing.assert_array_equal, found, expected)


def test_drawn_activations_take_no_whole_numbers():
    """Squares of bytes wrap."""
    q = initial_position(key(), LINE)
    with pytest.raises(TypeError, match="x must be floating point, but has dtype uint8"):
        activation_draws(key(), LINE, q, np.full((2, 2), 200, np.uint8), 3)


def test_the_number_of_data_is_one_positive_number():
    vi = deterministic_vi(LINE, Gaussian(1.0), STANDARD_NORMAL)
    q = initial_position(key(), LINE)
    with pytest.raises(ValueError, match="num_data must be positive"):
        vi.elbo(q, X, Y, None, 0)
    with pytest.raises(ValueError, match="num_data must be one number"):
        vi.step(key(), vi.init(q), X, Y, np.array([4, 4]))


def test_starts_are_of_single_numbers():
    for name in ("mean_variance", "variance", "bias_variance", "bias_mean_variance"):
        with pytest.raises(ValueError, match=f"{name} must be one number"):
            initial_position(key(), LINE, **{name: np.ones(1)})
    with pytest.raises(ValueError, match="log_noise_scale holds nan"):
        initial_position(key(), LINE, log_noise_scale=np.nan)
    with pytest.raises(ValueError, match="value must be one number"):
        per_fan_in(LINE, np.ones(2))
    with pytest.raises(TypeError, match="value must hold real numbers"):
        per_fan_in(LINE, "1")


def test_factors_fit_their_layers():
    q = initial_position(key(), LINE, correlated=True)
    with pytest.raises(ValueError, match=r"with 3 parameters needs a factor of shape \(3, 3\)"):
        draw_weights(key(), q._replace(factor=(jnp.zeros((2, 2)),)))


def test_correlated_weights_are_drawn_at_full_precision():
    q = initial_position(key(), LINE, correlated=True)
    drawn = str(jax.make_jaxpr(draw_weights)(key(), q))
    assert drawn.count("dot_general[") == 1
    assert "Precision.HIGHEST" in drawn


def test_labels_of_classes_have_rank_one():
    outputs = GaussianMoments(jnp.zeros((2, 3)), jnp.ones((2, 3)))
    with pytest.raises(ValueError, match="of rank 1, but rank is 2"):
        predictive(Categorical(), outputs, rank=2)


def test_a_tolerance_that_no_chunk_would_meet_is_refused():
    vi = deterministic_vi(LINE, Gaussian(1.0), STANDARD_NORMAL)
    start = initial_position(key(), LINE, shape=(1,))
    with pytest.raises(ValueError, match="used after 10 chunks, but 90 updates are 9 of 10;"):
        fit(key(), vi, start, X, Y, 90, stop_tolerance=1.0, chunk_size=10, progress=False)


def test_data_are_standardised_in_their_own_columns():
    """One column was taken for both."""
    x, y = np.array([[1.0, 2.0], [3.0, 7.0]]), np.array([[1.0, 2.0], [2.0, 4.0]])
    kept = standardisation(x, y)
    for call in (kept.inputs, kept.targets):
        with pytest.raises(ValueError, match=r"has shape \(4, 1\), but was standardised with"):
            call(np.ones((4, 1)))
    for rows in (0, 1):
        with pytest.raises(ValueError, match="same number of rows, at least one"):
            standardisation(x[:0], y[:rows])


def test_variances_that_float32_does_not_hold_are_refused():
    with pytest.raises(
        ValueError, match=r"must be numbers of float32, but are .* give larger ones"
    ):
        initial_position(key(), LINE, variance=1e-44)


def test_targets_beyond_float32_have_no_expected_log_likelihood():
    with pytest.raises(ValueError, match="y, as float32, holds inf"):
        expected_log_likelihood(Gaussian(1.0), OUTPUTS, np.array([[0.0], [1e39]]))
