"""Hessian and Gauss-Newton matrices against automatic and written-out ones, in float64."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from jax.flatten_util import ravel_pytree

from jaxbnn.dvi import SoftplusGaussian
from jaxbnn.networks import Activation, Dense, Flatten, Network, Residual, apply, init, mlp
from jaxbnn.targets import (
    Bernoulli,
    Categorical,
    Gaussian,
    HeteroscedasticGaussian,
    LearnedGaussian,
    Likelihood,
    Poisson,
    Posterior,
    gauss_newton_metric,
    normal_prior,
    posterior_hessian,
)
from tests.kit.sizes import QUICK

pytestmark = pytest.mark.usefixtures("x64")

N = 37  # filled up to 48 rows inside


def quick(function):
    return jax.jit(function, compiler_options=QUICK)


def data(rng, width, classes):
    return rng.standard_normal((N, width)), rng.integers(0, max(classes, 2), N)


def softplus_square(z):
    return jax.nn.softplus(z) ** 2


CASES = {
    "one hidden layer": (mlp((3, 2, 3), "sigmoid"), Categorical, {}),
    "two hidden layers, ntk": (
        mlp((2, 3, 2, 1), "tanh", parametrisation="ntk", weight_scale=1.5, bias_scale=0.7),
        Bernoulli,
        {},
    ),
    "no bias, a callable": (
        mlp((3, 2, 2, 2), softplus_square, bias=False),
        lambda: Gaussian(np.array([0.5, 2.0])),
        {},
    ),
    "linear": (mlp((3, 2)), HeteroscedasticGaussian, {}),
    "tempered": (mlp((2, 2, 1), "tanh"), lambda: Gaussian(0.7), {"t": 0.3, "what": "posterior"}),
}


def make(rng, name):
    network, likelihood, powers = CASES[name]
    outputs = network.layers[-1].features
    x, y = data(rng, network.input_shape[0], outputs)
    if name == "no bias, a callable":
        y = rng.standard_normal((N, 2))
    posterior = Posterior(network, normal_prior(network, weight_precision=0.6), likelihood(), x, y)
    return posterior.tempered(**powers) if powers else posterior


def position(network):
    params = init(jax.random.key(4), network, jnp.float64)
    return jax.tree.map(lambda leaf: leaf + 0.3, params)


@pytest.mark.short("tempered", "two hidden layers, ntk")
@pytest.mark.parametrize("name", CASES)
def test_hessian_equals_the_automatic_one(rng, name):
    posterior = make(rng, name)
    params = position(posterior.network)
    vector, unravel = ravel_pytree(params)
    automatic = quick(jax.hessian(lambda v: -posterior.log_density(unravel(v))))(vector)
    np.testing.assert_allclose(
        quick(posterior_hessian(posterior))(params), automatic, rtol=1e-10, atol=1e-10
    )


@pytest.mark.third_party(reason="NumPyro's multivariate normal promotes ranks")
def test_hessian_with_a_prior_that_couples_parameters(rng):
    network = mlp((2, 2, 1), "tanh")
    coupled = dist.MultivariateNormal(0.0, np.array([[1.0, 0.6], [0.6, 2.0]]))
    prior = (coupled, (), dist.StudentT(4.0))
    posterior = Posterior(network, prior, Bernoulli(), *data(rng, 2, 1))
    params = position(network)
    vector, unravel = ravel_pytree(params)
    automatic = quick(jax.hessian(lambda v: -posterior.log_density(unravel(v))))(vector)
    np.testing.assert_allclose(
        quick(posterior_hessian(posterior))(params), automatic, rtol=1e-10, atol=1e-10
    )


def fisher_of_outputs(name, outputs):
    """Return each datum's expected Fisher information by the outputs, from its definition."""
    if name == "one hidden layer":
        p = np.exp(outputs) / np.exp(outputs).sum(axis=1, keepdims=True)
        return p[:, :, None] * np.eye(3) - p[:, :, None] * p[:, None]
    if name == "two hidden layers, ntk":
        p = 1 / (1 + np.exp(-outputs))
        return (p * (1 - p))[:, :, None]
    precision = {"no bias, a callable": [4.0, 0.25], "tempered": [0.3 / 0.49]}[name]
    return np.tile(np.diag(precision), (N, 1, 1))


@pytest.mark.short("two hidden layers, ntk-False", "tempered-True")
@pytest.mark.parametrize(
    ("name", "any_function"),
    [
        ("one hidden layer", False),
        ("two hidden layers, ntk", False),
        ("no bias, a callable", True),
        ("tempered", False),
        ("tempered", True),
    ],
)
def test_gauss_newton_is_the_expected_fisher_information_and_the_priors(rng, name, any_function):
    posterior = make(rng, name)
    network, params = posterior.network, position(posterior.network)
    vector, unravel = ravel_pytree(params)
    outputs = np.asarray(apply(network, params, posterior.x))
    of_outputs = jax.jacrev(lambda v: apply(network, unravel(v), posterior.x))
    jacobian = np.asarray(quick(of_outputs)(vector))
    expected = np.einsum("ikd,ikl,ile->de", jacobian, fisher_of_outputs(name, outputs), jacobian)
    power = 0.3 if name == "tempered" else 1.0
    is_weight = ravel_pytree(
        jax.tree_util.tree_map_with_path(lambda p, a: jnp.full_like(a, p[-1].key == "w"), params)
    )[0]
    expected += power * np.diag(np.where(is_weight, 0.6, 1.0))
    if any_function:
        function = Posterior(
            lambda params, x: apply(network, params, x),
            posterior.prior,
            posterior.likelihood,
            posterior.x,
            posterior.y,
        )
        posterior = function.tempered(power, what="posterior")
    found = quick(gauss_newton_metric(posterior))(params)
    np.testing.assert_allclose(found, expected, rtol=1e-10, atol=1e-12)
    assert np.linalg.eigvalsh(found).min() > 0


@pytest.mark.long
def test_what_has_no_gauss_newton_form_is_refused(rng):
    """Of either the matrix has a negative diagonal: -50 of the first, far from its targets."""
    network = mlp((3, 2))
    x, y = rng.standard_normal((4, 3)), 10.0 + rng.standard_normal(4)
    normal = normal_prior(network)

    class Cauchy(Likelihood):
        outputs_per_column = 2

        def log_prob(self, outputs, y):
            return -jnp.log1p((y - outputs[:, 0]) ** 2)

        def predictive(self, outputs, rank):
            raise NotImplementedError

    for likelihood in (HeteroscedasticGaussian(), SoftplusGaussian(), Cauchy()):
        posterior = Posterior(network, normal, likelihood, x, y)
        with pytest.raises(ValueError, match="no Gauss-Newton form"):
            gauss_newton_metric(posterior)
        any_function = Posterior(lambda p, x: apply(network, p, x), normal, likelihood, x, y)
        with pytest.raises(ValueError, match="no Gauss-Newton form"):
            gauss_newton_metric(any_function)
        assert np.isfinite(posterior_hessian(posterior)(position(network))).all()
    heavy = Posterior(network, dist.Cauchy(0.0, 0.1), Gaussian(1.0), x, rng.standard_normal((4, 2)))
    assert jnp.diagonal(posterior_hessian(heavy)(position(network))).min() < 0
    with pytest.raises(ValueError, match="family Cauchy, which is not log-concave"):
        gauss_newton_metric(heavy)


def test_what_is_not_covered_is_refused(rng):
    x, y = data(rng, 2, 1)
    residual = Network((Dense(2), Residual((Dense(2),)), Flatten(), Dense(1)), (2,))
    posterior = Posterior(residual, normal_prior(residual), Bernoulli(), x, y)
    for function in (posterior_hessian, gauss_newton_metric):
        with pytest.raises(ValueError, match="has Residual; leave the Hessian to smmala"):
            function(posterior)
    rows = Network((Dense(2), Activation("tanh"), Dense(2)), (3, 4))
    of_rows = Posterior(
        rows, normal_prior(rows), Gaussian(1.0), np.zeros((2, 3, 4)), np.zeros((2, 3, 2))
    )
    for function in (posterior_hessian, gauss_newton_metric):
        with pytest.raises(ValueError, match=r"on vectors, but its input_shape is \(3, 4\)"):
            function(of_rows)
    network = mlp((2, 1))
    prior = {"network": normal_prior(network), "log_noise_scale": dist.Normal(0.0, 1.0)}
    learned = Posterior(network, prior, LearnedGaussian(), x, 1.0 * y)
    with pytest.raises(ValueError, match="no parameter of its own"):
        posterior_hessian(learned)
    function = Posterior(
        lambda params, x: x @ params, dist.Normal(0.0, 1.0).expand((2,)), Bernoulli(), x, y
    )
    with pytest.raises(ValueError, match="needs a Network"):
        posterior_hessian(function)


@pytest.mark.parametrize("is_traced", [False, True])
def test_to_the_power_zero_the_prior_s_curvature_is_left_where_the_likelihood_overflows(is_traced):
    network = mlp((1, 1), bias=False)
    x, y = np.full((1, 1), 1000.0), np.zeros((1, 1))
    posterior = Posterior(network, normal_prior(network), Poisson(), x, y)
    params = ({"w": jnp.ones((1, 1))},)

    def matrix(power):
        return posterior_hessian(posterior.tempered(power))(params)

    found = jax.jit(matrix)(0.0) if is_traced else matrix(0.0)
    np.testing.assert_allclose(found, np.eye(1))
