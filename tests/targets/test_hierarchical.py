"""Tests of targets.hierarchical, targets.log_gamma and targets.positions: densities against SciPy
and each other, exact draws, and what other samplers say of such a prior.
"""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
import scipy.integrate
import scipy.stats

import jaxbnn
from jaxbnn import dvi
from jaxbnn.gibbs import IntermediateNoise
from jaxbnn.kernels import cycle, on_block, prior_precisions, redraw_units, symmetry_moves
from jaxbnn.networks import mlp
from jaxbnn.targets import (
    Bernoulli,
    Gaussian,
    LearnedGaussian,
    LogGamma,
    Posterior,
    gauss_newton_metric,
    hierarchical_prior,
    normal_prior,
    posterior_hessian,
)
from tests.kit import both_sizes, check_exact_start, posterior_target

NETWORK = mlp((3, 2, 1))
X = np.array([[0.5, -1.0, 0.3], [1.5, 0.2, -0.4], [-0.7, 0.9, 1.1], [0.1, 0.1, -2.0]])
Y = np.array([[0.3], [-1.0], [0.8], [0.1]])
NOISE = {"log_noise_scale": LogGamma(2.0, 0.7, exponent=-0.5)}


def make(is_centred=True, relevance=True, **more):
    settings = {"concentration": 1.5, "rate": 0.6, "weight_precision": [3.0, 2.0], **more}
    return hierarchical_prior(NETWORK, is_centred=is_centred, relevance=relevance, **settings)


def posterior_of(prior):
    likelihood = LearnedGaussian() if prior.likelihood else Gaussian(0.5)
    return Posterior(NETWORK, prior, likelihood, jnp.asarray(X), jnp.asarray(Y))


@pytest.mark.parametrize("exponent", [1.0, -0.5])
def test_log_gamma_is_the_law_of_a_logarithm(x64, exponent):
    law = LogGamma(0.3, 2.0, exponent=exponent)
    values = np.linspace(-3, 2, 7)
    tau = np.exp(values / exponent)
    expected = scipy.stats.gamma.logpdf(tau, 0.3, scale=0.5) + np.log(tau) - np.log(abs(exponent))
    np.testing.assert_allclose(law.log_prob(jnp.asarray(values)), expected, rtol=1e-12)
    draws = np.exp(np.asarray(law.sample(jax.random.key(0), (20_000,))) / exponent)
    assert scipy.stats.kstest(draws, scipy.stats.gamma(0.3, scale=0.5).cdf).pvalue > 1e-6
    logs = exponent * np.log(scipy.stats.gamma(0.3, scale=0.5).ppf((np.arange(10**5) + 0.5) / 1e5))
    np.testing.assert_allclose(law.mean, logs.mean(), rtol=1e-3)
    np.testing.assert_allclose(law.variance, logs.var(), rtol=1e-2)


@pytest.mark.parametrize("concentration", [0.5, 2.0, 30.0, 1e3, 1e5, 1e7])
def test_log_densities_of_a_narrow_log_gamma_hold_in_float32(concentration):
    """Terms of the usual formula are a log(a) and more: ten million and more nats for 1e7."""
    law = scipy.stats.loggamma(concentration)
    values = np.float32(law.mean() + law.std() * np.linspace(-3, 3, 13))
    found = np.asarray(LogGamma(concentration, 1.0).log_prob(jnp.asarray(values)), float)
    expected = law.logpdf(values.astype(float))
    spacing = 2.0**-22 * max(1, abs(law.mean()))  # of values, and of the logarithms beside them
    tolerance = 1e-5 + 8 * spacing * np.sqrt(concentration)
    np.testing.assert_allclose(found, expected, rtol=3e-6, atol=tolerance)


def test_a_small_concentration_gives_finite_draws_in_float32():
    draws = LogGamma(1e-3, 1.0).sample(jax.random.key(0), (1000,))
    assert bool(jnp.all(jnp.isfinite(draws)))
    assert float(jnp.min(draws)) < -100  # where the Gamma variable itself is zero


def _scipy_log_prior(prior, position):
    """The centred density from its definition."""
    params = jax.tree.map(np.asarray, prior.network_parameters(position))
    base = {"w": [3.0, 2.0], "b": [1.0, 1.0]}
    total = 0.0
    for layer, index in ((0, 0), (2, 1)):
        for name in ("w", "b"):
            log_tau = np.asarray(position["log_precision"][layer][name])
            theta = params[layer][name]
            tau = np.exp(log_tau)[:, None] if log_tau.ndim else np.exp(log_tau)
            sd = (base[name][index] * tau) ** -0.5
            total += scipy.stats.norm.logpdf(theta, 0, sd).sum()
            total += (scipy.stats.gamma.logpdf(np.exp(log_tau), 1.5, scale=1 / 0.6) + log_tau).sum()
    if "log_noise_scale" in position:
        kappa = np.exp(-2 * float(position["log_noise_scale"]))
        total += scipy.stats.gamma.logpdf(kappa, 2.0, scale=1 / 0.7) + np.log(2 * kappa)
    return total


@pytest.mark.short("True-learned")
@pytest.mark.parametrize("likelihood", [None, NOISE], ids=["known", "learned"])
@pytest.mark.parametrize("relevance", [False, True])
def test_the_density_is_that_of_the_definition_in_both_coordinates(x64, relevance, likelihood):
    centred = make(True, relevance, likelihood=likelihood)
    other = make(False, relevance, likelihood=likelihood)
    first, second = posterior_of(centred), posterior_of(other)
    position = jax.jit(first.sample_prior)(jax.random.key(3))
    log_prior = jax.jit(first.log_prior)(position)
    np.testing.assert_allclose(log_prior, _scipy_log_prior(centred, position), rtol=1e-12)
    standardised = jax.jit(other.standardised)(position, position["network"])
    moved = position | {"network": standardised}
    seen = [
        jax.jit(lambda p, one=one: (one.outputs(p, X), one.log_likelihood(p)))(where)
        for one, where in ((first, position), (second, moved))
    ]
    for ours, theirs in zip(*seen, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-12)

    def to_network(z):
        flat = other.network_parameters(moved | {"network": unravel(z)})
        return jax.flatten_util.ravel_pytree(flat)[0]

    z, unravel = jax.flatten_util.ravel_pytree(moved["network"])
    log_volume = np.linalg.slogdet(jax.jit(jax.jacfwd(to_network))(z))[1]
    np.testing.assert_allclose(jax.jit(second.log_prior)(moved), log_prior + log_volume, rtol=1e-12)


@pytest.mark.long
@pytest.mark.parametrize("is_centred", [True, False])
def test_differences_are_those_of_the_totals_and_do_not_cancel(x64, is_centred):
    posterior = posterior_of(make(is_centred, likelihood=NOISE))
    a, b = (posterior.sample_prior(jax.random.key(seed)) for seed in (1, 2))
    expected = posterior.log_density(b) - posterior.log_density(a)
    np.testing.assert_allclose(posterior.log_density_from(a)(b), expected, rtol=1e-10)
    cold = posterior.tempered(0.3, what="posterior")
    np.testing.assert_allclose(cold.log_density_from(a)(b), 0.3 * expected, rtol=1e-10)

    wide = mlp((1000, 1))
    x, y = jnp.zeros((2, 1000)), jnp.zeros((2, 1))
    large = Posterior(wide, hierarchical_prior(wide), Gaussian(1.0), x, y)
    position = large.sample_prior(jax.random.key(0))
    near = jax.tree.map(lambda leaf: leaf + 1e-6, position)
    exact = large.log_density_from(position)(near)
    single = jax.tree.map(lambda leaf: jnp.asarray(leaf, jnp.float32), (large, position, near))
    found = single[0].log_density_from(single[1])(single[2])
    # The positions themselves are rounded: the difference is that of the rounded ones.
    rounded = jax.tree.map(lambda leaf: leaf.astype(jnp.float64), single)
    exact = rounded[0].log_density_from(rounded[1])(rounded[2])
    np.testing.assert_allclose(found, exact, atol=1e-6)


@pytest.mark.long
def test_parameters_are_student_t_marginally(x64):
    """Two weights of an array: the joint density by quadrature over the precision."""
    prior = hierarchical_prior({"w": jnp.zeros(2)}, concentration=1.5, rate=0.6)
    theta = jnp.array([0.7, -1.2])

    def integrand(log_tau):
        position = {"network": {"w": theta}, "log_precision": {"w": jnp.asarray(log_tau)}}
        return float(jnp.exp(prior.log_prob(position)))

    marginal = scipy.integrate.quad(integrand, -20, 8, epsabs=1e-12)[0]
    expected = scipy.stats.multivariate_t(shape=0.6 / 1.5 * np.eye(2), df=3).pdf(theta)
    np.testing.assert_allclose(marginal, expected, rtol=1e-8)


@pytest.mark.long
def test_draws_of_the_prior_are_student_t():
    prior = hierarchical_prior(NETWORK, concentration=1.5, rate=0.6)
    draws = posterior_of(prior).sample_prior(jax.random.key(0), (20_000,))
    weights = np.asarray(draws["network"][0]["w"][:, 1, 0])
    law = scipy.stats.t(df=3, scale=(0.6 / 1.5) ** 0.5)
    assert scipy.stats.kstest(weights, law.cdf).pvalue > 1e-6
    # Weights of an array share a precision: their squares are correlated, their values are not.
    two = np.abs(np.asarray(draws["network"][0]["w"][:, 0, :]))
    assert scipy.stats.spearmanr(two[:, 0], two[:, 1]).statistic > 0.1


def test_relevance_gives_each_input_a_precision(x64):
    prior = make(relevance=True)
    position = posterior_of(prior).sample_prior(jax.random.key(0))
    assert position["log_precision"][0]["w"].shape == (3,)
    variance = prior.given(position)[0]["w"].variance
    tau = np.exp(np.asarray(position["log_precision"][0]["w"]))
    np.testing.assert_allclose(variance, np.repeat(1 / (3 * tau)[:, None], 2, axis=1), rtol=1e-12)


@pytest.mark.long
@both_sizes(30_000)
def test_symmetry_moves_given_the_precisions_are_right(num_chains):
    network = mlp((1, 2, 1), "relu")
    x = jnp.array([[-1.0], [0.5]])
    prior = hierarchical_prior(network, concentration=2.0)
    target = posterior_target(
        lambda y: Posterior(network, prior, Gaussian(0.4), x, y), x, jnp.zeros((2, 1))
    )

    def kernel_of(stale):
        def of(whole):
            position = whole(None)
            if stale:  # a prior of other precisions than the position's
                position = {
                    "log_precision": jax.tree.map(lambda v: v + 1, position["log_precision"])
                }
            return symmetry_moves(network, prior.given(position))

        return on_block(of, "network")

    def posterior(y):
        return Posterior(network, prior, Gaussian(0.4), x, y)

    for stale in (False, True):
        result = check_exact_start(
            lambda y, stale=stale: cycle(kernel_of(stale), prior_precisions(posterior(y))),
            target,
            steps=2,
            num_chains=num_chains,
        )
        assert result.passes is not stale, str(result)


def test_what_cannot_take_it_says_so_in_one_sentence(annotations_unchecked):
    prior = make()
    posterior = posterior_of(prior)
    calls = [
        lambda: symmetry_moves(NETWORK, prior),
        lambda: redraw_units(NETWORK, prior, posterior.log_likelihood),
        lambda: gauss_newton_metric(posterior),
        lambda: posterior_hessian(posterior),
        lambda: dvi.deterministic_vi(NETWORK, Gaussian(0.5), prior),
    ]
    for call in calls:
        with pytest.raises(ValueError, match="hierarchical prior ties") as caught:
            call()
        assert str(caught.value).endswith(".")
        assert "\n" not in str(caught.value)
    with pytest.raises((TypeError, ValueError), match="weight_precision must hold real numbers"):
        IntermediateNoise(mlp((3, 2, 1), "relu"), 0.1, weight_precision=prior)


@pytest.mark.parametrize(
    ("call", "error", "sentence"),
    [
        (lambda: make(concentration=0.0), ValueError, "concentration must be positive"),
        (lambda: make(concentration=np.ones(3)), ValueError, r"one number, .* has shape \(3,\)"),
        (lambda: make(rate=np.ones(1)), ValueError, "rate must be one number, for all precisions"),
        (lambda: LogGamma(1.0, 1.0, exponent=0.0), ValueError, "exponent must be a finite number"),
        (lambda: make(False).given({}), ValueError, "standardised parameters"),
        (
            lambda: hierarchical_prior({"b": jnp.zeros(2)}, relevance=True),
            ValueError,
            "relevance needs first weights",
        ),
        (
            lambda: Posterior(NETWORK, make(), LearnedGaussian(), X, Y),
            ValueError,
            "LearnedGaussian learns log_noise_scale, but the hierarchical prior has nothing",
        ),
        (
            lambda: Posterior(mlp((3, 4, 1)), make(), Bernoulli(), X, (Y > 0) * 1),
            ValueError,
            "make it of this network",
        ),
        (
            lambda: prior_precisions(
                Posterior(NETWORK, normal_prior(NETWORK), Gaussian(1.0), X, Y)
            ),
            ValueError,
            "are fixed",
        ),
        (
            lambda: posterior_of(make()).log_density(({"w": jnp.zeros(2)},)),
            ValueError,
            "with this prior, parameters are",
        ),
    ],
)
def test_bad_input_gets_one_sentence(call, error, sentence):
    with pytest.raises(error, match=sentence) as caught:
        call()
    assert str(caught.value).endswith(".")
    assert "\n" not in str(caught.value)


@pytest.mark.long
def test_a_posterior_with_it_is_an_argument_of_compiled_functions():
    posterior = posterior_of(make(likelihood=NOISE))
    position = posterior.sample_prior(jax.random.key(0), (4,))
    found = jax.jit(lambda p, q: jax.vmap(p.log_density)(q))(posterior, position)
    alone = posterior.log_density(jax.tree.map(lambda leaf: leaf[1], position))
    np.testing.assert_allclose(found[1], alone, rtol=1e-5)
    assert jaxbnn.hierarchical_prior is hierarchical_prior
    assert isinstance(posterior.prior.likelihood["log_noise_scale"], dist.Distribution)


def test_differences_are_those_of_the_log_densities(x64):
    network = mlp((3, 1))
    prior = hierarchical_prior(network, concentration=1.5, rate=0.6, relevance=True)
    posterior = Posterior(network, prior, Gaussian(0.5), np.ones((2, 3)), np.ones((2, 1)))
    a, b = (posterior.sample_prior(jax.random.key(seed)) for seed in (1, 2))
    difference = prior.log_prob(b) - prior.log_prob(a)
    np.testing.assert_allclose(prior.log_ratio(a)(b), difference, rtol=1e-10)
