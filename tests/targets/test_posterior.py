"""Tests of targets.padding and targets.powers: the posterior as a whole: densities, powers, any
network, tracing, and what it refuses.
"""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
import scipy.stats

from jaxbnn.networks import init, mlp
from jaxbnn.targets import (
    Bernoulli,
    Categorical,
    CrossEntropy,
    Gaussian,
    LearnedGaussian,
    Likelihood,
    Poisson,
    Posterior,
    normal_prior,
    uniform_prior,
)

NETWORK = mlp((4, 3, 3), "tanh")
NORMAL = dist.Normal(0.0, 1.0)
N = 37  # not a multiple of what a CPU works on at once: the log density pads the rows


@pytest.fixture
def problem(x64, rng):
    x, y = rng.normal(size=(N, 4)), rng.integers(0, 3, N)
    posterior = Posterior(NETWORK, normal_prior(NETWORK, weight_precision=2.0), Categorical(), x, y)
    return posterior, init(jax.random.key(3), NETWORK)


def _reference(params, x, y):
    """Log prior and log-likelihood terms, written out with NumPy and SciPy."""
    first, _, second = jax.tree.map(np.asarray, params)
    logits = np.tanh(x @ first["w"] + first["b"]) @ second["w"] + second["b"]
    terms = logits[np.arange(len(y)), y] - np.log(np.exp(logits).sum(axis=1))
    prior = sum(
        scipy.stats.norm.logpdf(layer["w"], 0, 2**-0.5).sum()
        + scipy.stats.norm.logpdf(layer["b"]).sum()
        for layer in (first, second)
    )
    return prior, terms


def test_what_a_network_of_ones_own_failed_with_is_told():
    """Of an error without words its kind; it ended in an IndexError."""
    for error in (AssertionError(), KeyError("w")):

        def network(params, x, error=error):
            raise error

        reason = f"{type(error).__name__}" + (": 'w'" if error.args else "")
        with pytest.raises(ValueError, match=rf"shaped like the prior \({reason}\); give") as found:
            Posterior(network, dist.Normal(0.0, 1.0), Gaussian(1.0), np.ones((2, 1)), np.ones(2))
        assert found.value.__cause__ is error


def test_a_power_is_one_number(annotations_unchecked):
    network = mlp((1, 1))
    posterior = Posterior(
        network, normal_prior(network), Gaussian(1.0), np.ones((2, 1)), np.ones(2)
    )
    with pytest.raises(ValueError, match=r"t must be one power, but has shape \(2,\)"):
        posterior.tempered(np.ones(2))
    with pytest.raises(TypeError, match="t must hold real numbers"):
        posterior.tempered("1")


def test_densities_are_those_of_numpy(problem):
    posterior, params = problem
    prior, terms = _reference(params, np.asarray(posterior.x), np.asarray(posterior.y))
    np.testing.assert_allclose(posterior.log_prior(params), prior, rtol=1e-12)
    np.testing.assert_allclose(posterior.log_likelihood(params), terms, rtol=1e-12)
    np.testing.assert_allclose(posterior.log_density(params), prior + terms.sum(), rtol=1e-12)


@pytest.mark.parametrize(
    ("what", "prior_power"), [("likelihood", 1.0), ("posterior", 0.3)], ids=str
)
def test_tempered_scales_density_and_gradient(problem, what, prior_power):
    posterior, params = problem
    prior, terms = _reference(params, np.asarray(posterior.x), np.asarray(posterior.y))
    other = jax.tree.map(lambda leaf: leaf + 0.1, params)

    @jax.jit
    def everything(t):
        tempered = posterior.tempered(t, what=what)
        twice = posterior.tempered(0.5, what=what).tempered(2 * t, what=what)
        return (
            tempered.log_prior(params),
            tempered.log_likelihood(params),
            tempered.log_density(params),
            twice.log_density(params),
            tempered.log_density_from(params)(other),
            tempered.log_density(other) - tempered.log_density(params),
            jax.grad(tempered.log_density)(params),
            jax.grad(tempered.log_density_from(other))(params),
        )

    log_prior, terms_t, density, twice, ratio, difference, gradient, gradient_from = everything(0.3)
    np.testing.assert_allclose(log_prior, prior_power * prior, rtol=1e-12)
    np.testing.assert_allclose(terms_t, 0.3 * terms, rtol=1e-12)
    np.testing.assert_allclose(density, prior_power * prior + 0.3 * terms.sum(), rtol=1e-12)
    np.testing.assert_allclose(twice, density, rtol=1e-12)
    np.testing.assert_allclose(ratio, difference, rtol=1e-9)

    def numpy_density(first_bias):
        moved = ({**params[0], "b": first_bias}, *params[1:])
        prior, terms = _reference(moved, np.asarray(posterior.x), np.asarray(posterior.y))
        return prior_power * prior + 0.3 * terms.sum()

    bias, step = np.asarray(params[0]["b"]), 1e-5 * np.eye(3)
    central = [(numpy_density(bias + s) - numpy_density(bias - s)) / 2e-5 for s in step]
    np.testing.assert_allclose(gradient[0]["b"], central, rtol=1e-7)
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-10, atol=1e-14),
        gradient,
        gradient_from,
    )


def test_temperature_tempers_the_likelihood_only(problem):
    posterior, params = problem
    hot = Posterior(NETWORK, posterior.prior, CrossEntropy(2.0), posterior.x, posterior.y)
    np.testing.assert_allclose(
        hot.log_density(params), posterior.tempered(1 / 4).log_density(params), rtol=1e-12
    )


def test_a_function_with_dicts_of_parameters_is_a_network(problem, rng):
    posterior, params = problem

    def apply_fn(variables, x):
        layers = variables["params"]
        for name in ("Dense_0", "Dense_1"):
            x = jnp.dot(x, layers[name]["kernel"]) + layers[name]["bias"][None]
            x = jnp.tanh(x) if name == "Dense_0" else x
        return x

    layers = (params[0], params[2])
    variables = {
        "params": {f"Dense_{i}": {"kernel": p["w"], "bias": p["b"]} for i, p in enumerate(layers)}
    }
    prior = normal_prior(variables, weight_precision=2.0)
    same = Posterior(apply_fn, prior, Categorical(), posterior.x, posterior.y)
    np.testing.assert_allclose(
        same.log_density(variables), posterior.log_density(params), rtol=1e-12
    )
    draws = jax.eval_shape(lambda key: same.sample_prior(key, (2,)), jax.random.key(0))
    assert draws["params"]["Dense_0"]["bias"].shape == (2, 3)


def test_learned_noise_is_part_of_the_position(x64, rng):
    network = mlp((2, 1))
    prior = {"network": dist.Normal(0.0, 2.0), "log_noise_scale": dist.Normal(-1.0, 0.5)}
    x, y = rng.normal(size=(N, 2)), rng.normal(size=N)
    posterior = Posterior(network, prior, LearnedGaussian(), x, y)
    position = jax.jit(posterior.sample_prior)(jax.random.key(0))
    s, layer = float(position["log_noise_scale"]), position["network"][0]
    mean = x @ np.asarray(layer["w"])[:, 0] + float(layer["b"][0])
    expected = scipy.stats.norm.logpdf(s, -1, 0.5) + sum(
        scipy.stats.norm.logpdf(values, scale=2).sum() for values in layer.values()
    )
    expected += scipy.stats.norm.logpdf(y, mean, np.exp(s)).sum()
    np.testing.assert_allclose(posterior.log_density(position), expected, rtol=1e-12)
    other = jax.tree.map(lambda leaf: leaf - 0.2, position)
    np.testing.assert_allclose(
        posterior.log_density_from(other)(position),
        posterior.log_density(position) - posterior.log_density(other),
        rtol=1e-10,
    )
    predictive = posterior.predictive(position, x[:3])
    np.testing.assert_allclose(predictive.variance, np.exp(2 * s) * np.ones(3), rtol=1e-12)
    assert predictive.sample(jax.random.key(1)).shape == (3,)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_everything_may_be_traced(x64, rng, dtype):
    """A factory inside a traced function: data, precisions, noise scale and power are arguments."""
    network = mlp((2, 3, 1))
    x, y = rng.normal(size=(N, 2)).astype(dtype), rng.normal(size=(N, 1)).astype(dtype)
    params = init(jax.random.key(0), network, dtype)

    def density(precision, noise_scale, t, x, y):
        prior = normal_prior(network, weight_precision=precision, bias_precision=precision)
        posterior = Posterior(network, prior, Gaussian(noise_scale), x, y).tempered(t)
        return posterior.log_density(params), posterior.log_density_from(params)(params)

    arguments = [np.array(a, dtype) for a in ([1.0, 4.0], [0.5, 0.1], [1.0, 0.2])]
    values, zeros = jax.jit(jax.vmap(density, in_axes=(0, 0, 0, None, None)))(*arguments, x, y)
    assert values.dtype == dtype
    np.testing.assert_array_equal(zeros, 0)
    for i in range(2):
        precision, noise_scale, t = (a[i] for a in arguments)
        first, _, second = jax.tree.map(np.asarray, params)
        outputs = np.maximum(x @ first["w"] + first["b"], 0) @ second["w"] + second["b"]
        expected = t * scipy.stats.norm.logpdf(y, outputs, noise_scale).sum() + sum(
            scipy.stats.norm.logpdf(leaf, 0, precision**-0.5).sum()
            for leaf in jax.tree.leaves(params)
        )
        np.testing.assert_allclose(values[i], expected, rtol=2e-5)


def test_the_posterior_of_some_of_the_rows(problem):
    posterior, params = problem
    rows = jnp.array([3, 0, 8])
    prior, terms = _reference(params, np.asarray(posterior.x), np.asarray(posterior.y))
    warm = posterior.tempered(0.4)

    @jax.jit
    def density(rows):
        return warm.with_data(posterior.x[rows], posterior.y[rows]).log_density(params)

    np.testing.assert_allclose(density(rows), prior + 0.4 * terms[np.asarray(rows)].sum())
    for x, y, sentence in (
        (posterior.x[:, :2], posterior.y, r"x has shape \(37, 2\), but this posterior's has"),
        (posterior.x, posterior.y[:, None], r"y has shape \(37, 1\), but this"),
        (posterior.x[:5], posterior.y[:4], "x has 5 rows and y has 4; give one target per datum"),
    ):
        with pytest.raises(ValueError, match=sentence):
            posterior.with_data(x, y)


def test_a_posterior_is_a_pytree(problem):
    posterior, params = problem
    density = jax.jit(lambda posterior, params: posterior.tempered(0.5).log_density(params))
    expected = posterior.tempered(0.5).log_density(params)
    np.testing.assert_allclose(density(posterior, params), expected, rtol=1e-12)
    again = Posterior(
        mlp((4, 3, 3), "tanh"), posterior.prior, Categorical(), posterior.x, posterior.y
    )
    density(again, params)
    assert density._cache_size() == 1  # an equal network and likelihood do not trace again


def test_integers_stay_integers_and_draws_have_the_data_s_dtype(x64, rng):
    x, y = rng.normal(size=(N, 4)).astype(np.float32), np.arange(N) % 3
    posterior = Posterior(NETWORK, dist.Normal(0, 1), Categorical(), x, y)
    assert jnp.issubdtype(posterior.y.dtype, jnp.integer)
    draws = jax.eval_shape(lambda key: posterior.sample_prior(key, (5,)), jax.random.key(0))
    assert draws[0]["w"].shape == (5, 4, 3)
    assert {leaf.dtype for leaf in jax.tree.leaves(draws)} == {np.dtype(np.float32)}
    assert jax.eval_shape(jax.vmap(posterior.log_density), draws).dtype == np.float32


def test_whole_numbers_beyond_int32_are_kept():
    """JAX keeps the last 32 bits of them, without a word."""
    y = np.array([3_000_000_000, 2_500_000_000, 1])
    params = {"w": jnp.ones((1, 1))}
    network = lambda p, x: jnp.log(x.astype(jnp.float32)) @ p["w"]  # noqa: E731
    x = y[:, None]
    for likelihood in (Gaussian(1e9), Poisson()):
        posterior = Posterior(network, normal_prior(params), likelihood, x, y)
        for found in (posterior, posterior.with_data(x, y)):
            np.testing.assert_allclose(found.y, y, rtol=1e-7)
            np.testing.assert_allclose(found.x, x, rtol=1e-7)
        np.testing.assert_allclose(posterior.outputs(params, x), np.log(x), rtol=1e-6)
    with pytest.raises(ValueError, match=r"labels must lie in 0..2, .* holds 4294967296 at index"):
        _posterior(y=np.array([0, 1, 2**32]))


def test_uniform_box_posterior_is_minus_infinity_outside(problem):
    posterior, params = problem
    prior = uniform_prior(NETWORK, -0.01, 0.01)
    boxed = Posterior(NETWORK, prior, Categorical(), posterior.x, posterior.y)
    assert boxed.log_density(params) == -jnp.inf
    assert np.isfinite(boxed.log_density(jax.tree.map(jnp.zeros_like, params)))


def _posterior(network=NETWORK, prior=None, likelihood=None, x=None, y=None):
    x = np.ones((3, 4), np.float32) if x is None else np.asarray(x, np.float32)
    return Posterior(
        network,
        dist.Normal(0.0, 1.0) if prior is None else prior,
        likelihood or Categorical(),
        x,
        np.array([0, 1, 2]) if y is None else np.asarray(y),
    )


@pytest.mark.parametrize(
    ("make", "error", "sentence"),
    [
        (
            lambda: _posterior(x=np.where(np.eye(3, 4) == 1, np.nan, 0)),
            ValueError,
            r"x holds nan at index \(0, 0\)",
        ),
        (
            lambda: _posterior(mlp((4, 1)), likelihood=Gaussian(1.0), y=[0.0, np.inf, 1.0]),
            ValueError,
            r"y holds inf at index \(1,\)",
        ),
        (
            lambda: Posterior(NETWORK, NORMAL, Categorical(), np.full((3, 4), 1e39), np.arange(3)),
            ValueError,
            r"x, as float32, holds inf at index \(0, 0\); give it in smaller units",
        ),
        (lambda: _learned((3,)), ValueError, r"log_noise_scale of LearnedGaussian must have shape"),
        (lambda: _learned((1,), (2,)), ValueError, r"must have shape \(\) or \(2,\) for y with"),
        (lambda: _posterior(y=[0, 1]), ValueError, "x has 3 and y has 2"),
        (lambda: _posterior(x=np.ones((0, 4)), y=np.ones(0, int)), ValueError, "at least one"),
        (lambda: _posterior(y=1), ValueError, "must have a leading data axis"),
        (lambda: _posterior(x=np.ones((3, 5))), ValueError, r"x must have shape \(n, 4\)"),
        (lambda: _posterior(y=[0, 1, 3]), ValueError, r"labels must lie in 0..2"),
        (lambda: _posterior(likelihood=Bernoulli()), ValueError, "output width 1"),
        (
            lambda: _posterior(prior=(dist.Normal(0, 1), (), {"w": dist.Normal(0, 1)})),
            ValueError,
            r"no distribution for the parameter \[2\]\['b'\]",
        ),
        (
            lambda: _posterior(likelihood=LearnedGaussian()),
            ValueError,
            'the prior must be {"network": prior, "log_noise_scale"',
        ),
        (
            lambda: _posterior(lambda params, x: x @ params, normal_prior(np.ones((3, 3)))),
            ValueError,
            "the network cannot be applied to x and parameters shaped like the prior",
        ),
        (
            lambda: _posterior(lambda p, x: (x @ p).sum(), normal_prior(np.ones((4, 3)))),
            ValueError,
            "must return an array with one row per datum",
        ),
        (lambda: _posterior().tempered(-0.5), ValueError, "t must be a finite power"),
        (lambda: _posterior().tempered(np.nan), ValueError, "t must be a finite power"),
        (
            lambda: _learned().log_density({"network": 0.0}),
            ValueError,
            "with LearnedGaussian, parameters are",
        ),
    ],
)
def test_bad_input_gets_one_sentence(make, error, sentence):
    with pytest.raises(error, match=sentence) as caught:
        make()
    assert str(caught.value).endswith(".")
    assert "\n" not in str(caught.value)


def _learned(scales=(), columns=()):
    prior = {"network": NORMAL, "log_noise_scale": NORMAL.expand(scales)}
    network = mlp((4, *(columns or (1,))))
    return _posterior(network, prior, LearnedGaussian(), y=np.ones((3, *columns)))


def test_a_noise_scale_for_each_column_is_learnt():
    posterior = _learned((2,), (2,))
    position = posterior.sample_prior(jax.random.key(0))
    scales = np.exp(position["log_noise_scale"])
    outputs = posterior.outputs(position, posterior.x)
    expected = scipy.stats.norm.logpdf(np.ones((3, 2)), outputs, scales).sum(axis=1)
    np.testing.assert_allclose(posterior.log_likelihood(position), expected, rtol=1e-5)
    alone = _learned((1,))
    assert alone.log_likelihood(alone.sample_prior(jax.random.key(0))).shape == (3,)


def test_what_is_tempered_is_one_of_two(annotations_unchecked):
    said = "what must be 'likelihood' or 'posterior', but is 'prior'"
    with pytest.raises(ValueError, match=said):
        _posterior().tempered(0.5, what="prior")


@dataclasses.dataclass(frozen=True)
class Within(Likelihood):
    """Noise that is never larger than one."""

    def log_prob(self, outputs, y):
        return jnp.where(jnp.abs(outputs[:, 0] - y) < 1, 0.0, -jnp.inf)

    def predictive(self, outputs, rank):
        return dist.Uniform(outputs[:, 0] - 1, outputs[:, 0] + 1)


def test_to_the_power_zero_the_prior_is_left_where_the_likelihood_is_zero():
    network = mlp((1, 1))
    x, y = jnp.ones((2, 1)), jnp.zeros(2)
    posterior = Posterior(network, normal_prior(network), Within(), x, y)
    far, near = (({"w": jnp.full((1, 1), v), "b": jnp.zeros(1)},) for v in (3.0, 0.1))

    def densities(t):
        cold = posterior.tempered(t)
        return (
            cold.log_density(far),
            cold.log_density_from(near)(far),
            jnp.sum(cold.log_likelihood(far)),
            cold.log_density(near),
        )

    prior = posterior.log_prior(far)
    for run in (densities, jax.jit(densities)):
        found = run(0.0)
        np.testing.assert_allclose(found[0], prior, rtol=1e-6)
        np.testing.assert_allclose(found[1], prior - posterior.log_prior(near), rtol=1e-6)
        assert found[2] == 0
        assert run(0.5)[0] == -np.inf
        np.testing.assert_allclose(run(0.5)[3], posterior.log_prior(near), rtol=1e-6)
    gradient = jax.grad(posterior.tempered(0.0).log_density)(far)[0]["w"]
    np.testing.assert_allclose(gradient, [[-3.0]], rtol=1e-6)


def test_a_shape_that_is_no_tuple_is_refused(problem, annotations_unchecked):
    with pytest.raises(TypeError, match="shape must be a tuple of whole numbers"):
        problem[0].sample_prior(jax.random.key(0), 4)


@pytest.mark.parametrize("log_rate", [3.0, 1000.0])
def test_to_the_power_0_derivatives_are_the_priors_where_the_likelihood_overflows(log_rate):
    network = mlp((1, 1))
    prior, x, y = normal_prior(network), jnp.ones((3, 1)), jnp.ones(3, jnp.int32)
    posterior = Posterior(network, prior, Poisson(), x, y)
    params = ({"w": jnp.full((1, 1), log_rate), "b": jnp.zeros(1)},)
    reference = ({"w": jnp.zeros((1, 1)), "b": jnp.zeros(1)},)
    densities = {
        "terms": lambda t, p: (
            posterior.tempered(t).log_likelihood(p).sum() + posterior.log_prior(p)
        ),
        "density": lambda t, p: posterior.tempered(t).log_density(p),
        "from": lambda t, p: posterior.tempered(t).log_density_from(reference)(p),
    }
    powers = jnp.array([0.0, 0.5])
    for density in densities.values():
        found = jax.jit(jax.vmap(jax.grad(density, 1), (0, None)))(powers, params)
        assert found[0]["w"][0].item() == -log_rate
        assert found[0]["b"][0].item() == 0
        by_one = jax.grad(density, 1)(0.5, params)  # where the power is known
        np.testing.assert_allclose(found[0]["w"][1], by_one[0]["w"], rtol=1e-6)


def test_draws_of_the_prior_may_have_a_list_for_a_shape(annotations_unchecked):
    drawn = _posterior().sample_prior(jax.random.key(0), [2, 3])
    assert jax.tree.leaves(drawn)[0].shape[:2] == (2, 3)
