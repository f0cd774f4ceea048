"""Tests of targets.prior_density and targets.prior_trees: priors against scipy.stats, their shapes,
and the sentences for those that do not fit.
"""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
import scipy.stats

from jaxbnn.networks import Dense, Network, Residual, init, mlp
from jaxbnn.targets import expand_prior, normal_prior, uniform_prior
from jaxbnn.targets.prior_density import prior_log_prob, prior_log_ratio
from jaxbnn.targets.prior_trees import is_distribution, sample_prior

NETWORK = mlp((4, 3, 2))


def _random_params(rng, dtype=np.float64, scale=1.0):
    shapes = [(4, 3), (3,), (3, 2), (2,)]
    w1, b1, w2, b2 = (jnp.asarray(scale * rng.normal(size=s), dtype) for s in shapes)
    return ({"w": w1, "b": b1}, (), {"w": w2, "b": b2})


@pytest.mark.parametrize("as_array", [False, True])
def test_normal_prior_has_a_precision_per_layer(x64, rng, as_array):
    params = _random_params(rng)
    precisions = np.array([4.0, 9.0]) if as_array else [4.0, 9.0]
    prior = normal_prior(NETWORK, weight_precision=precisions, bias_precision=0.25, mean=0.5)
    expected = sum(
        scipy.stats.norm.logpdf(np.asarray(values), 0.5, scale).sum()
        for values, scale in [
            (params[0]["w"], 1 / 2),
            (params[0]["b"], 2.0),
            (params[2]["w"], 1 / 3),
            (params[2]["b"], 2.0),
        ]
    )
    np.testing.assert_allclose(prior_log_prob(prior, params), expected, rtol=1e-13)
    numpyro_own = sum(
        d.log_prob(p)
        for d, p in zip(
            jax.tree.leaves(prior, is_leaf=is_distribution), jax.tree.leaves(params), strict=True
        )
    )
    np.testing.assert_allclose(numpyro_own, expected, rtol=1e-13)


def test_normal_prior_with_a_mean_per_parameter(x64, rng):
    params, mean = _random_params(rng), _random_params(rng)
    prior = normal_prior(NETWORK, mean=mean)
    expected = sum(
        scipy.stats.norm.logpdf(p, m).sum()
        for p, m in zip(jax.tree.leaves(params), jax.tree.leaves(mean), strict=True)
    )
    np.testing.assert_allclose(prior_log_prob(prior, params), expected, rtol=1e-13)


def test_normal_prior_of_any_parameters_knows_biases_by_name(x64):
    params = {"Dense_0": {"kernel": jnp.ones((2, 3)), "bias": jnp.ones(3)}, "scale": jnp.ones(())}
    prior = normal_prior(params, weight_precision=4.0, bias_precision=16.0)
    assert prior["Dense_0"]["bias"].event_shape == (3,)
    np.testing.assert_allclose(prior["Dense_0"]["bias"].variance, 1 / 16)
    np.testing.assert_allclose(prior["Dense_0"]["kernel"].variance, 1 / 4)
    np.testing.assert_allclose(prior["scale"].variance, 1 / 4)


def test_residual_layers_have_their_own_precisions():
    network = Network((Dense(2), Residual((Dense(2), Dense(2, bias=False)))), (2,))
    prior = normal_prior(network, weight_precision=[1.0, 4.0, 16.0])
    scales = [d.variance.ravel()[0] for d in (prior[0]["w"], prior[1][0]["w"], prior[1][1]["w"])]
    np.testing.assert_allclose(scales, [1, 1 / 4, 1 / 16])


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_traced_precisions_under_vmap(x64, rng, dtype):
    params = _random_params(rng, dtype)

    def log_prior(precision, mean):
        prior = normal_prior(NETWORK, weight_precision=precision, mean=mean)
        return prior_log_prob(prior, params)

    precisions = np.array([[1.0, 2.0], [3.0, 0.5]], dtype)
    values = jax.jit(jax.vmap(log_prior))(precisions, np.zeros(2, dtype))
    assert values.dtype == dtype
    expected = [
        prior_log_prob(normal_prior(NETWORK, weight_precision=list(p)), params) for p in precisions
    ]
    np.testing.assert_allclose(values, expected, rtol=1e-5)


def test_uniform_prior_is_minus_infinity_outside_and_its_gradient_finite(x64):
    prior = uniform_prior(NETWORK, -1.0, 3.0)
    inside = jax.tree.map(jnp.zeros_like, _random_params(np.random.default_rng(0)))
    value, gradient = jax.value_and_grad(lambda p: prior_log_prob(prior, p))(inside)
    np.testing.assert_allclose(value, -23 * np.log(4))
    outside = (inside[0] | {"b": jnp.array([0.0, -1.001, 0.0])}, *inside[1:])
    value, gradient = jax.value_and_grad(lambda p: prior_log_prob(prior, p))(outside)
    assert value == -jnp.inf
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(gradient))
    assert prior_log_ratio(prior, inside)(outside) == -jnp.inf
    assert prior_log_ratio(prior, inside)(inside) == 0.0


@pytest.mark.short("Gamma-rv_continuous_frozen")
@pytest.mark.parametrize(
    ("distribution", "reference"),
    [
        (dist.Laplace(0.5, 2.0), scipy.stats.laplace(0.5, 2.0)),
        (dist.StudentT(3.0), scipy.stats.t(3.0)),
        (dist.HalfNormal(2.0), scipy.stats.halfnorm(scale=2.0)),
        (dist.Gamma(2.0, 3.0), scipy.stats.gamma(2.0, scale=1 / 3)),
        (dist.Normal(0, 1), scipy.stats.norm()),
    ],
    ids=lambda value: type(value).__name__,
)
def test_any_distribution_for_everything(x64, rng, distribution, reference):
    prior = expand_prior(distribution, NETWORK)
    assert [d.event_shape for d in jax.tree.leaves(prior, is_leaf=is_distribution)] == [
        (3,),
        (4, 3),
        (2,),
        (3, 2),
    ]
    positive = jax.tree.map(jnp.abs, _random_params(rng))
    flat = np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(positive)])
    expected = reference.logpdf(flat).sum()
    np.testing.assert_allclose(prior_log_prob(prior, positive), expected, rtol=1e-12)

    other = jax.tree.map(lambda leaf: 1.1 * leaf, positive)
    np.testing.assert_allclose(
        prior_log_ratio(prior, positive)(other),
        reference.logpdf(1.1 * flat).sum() - expected,
        rtol=1e-9,
    )
    negative = jax.tree.map(jnp.negative, positive)
    value, gradient = jax.value_and_grad(lambda p: prior_log_prob(prior, p))(negative)
    np.testing.assert_allclose(value, reference.logpdf(-flat).sum(), rtol=1e-12)
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(gradient))


@pytest.mark.long
def test_normal_ratio_in_float32_where_totals_cancel(rng):
    exact = _random_params(rng, np.float32, scale=300.0)
    near = jax.tree.map(lambda leaf: leaf + np.float32(1e-3), exact)
    prior = normal_prior(NETWORK, weight_precision=100.0, bias_precision=100.0, mean=0.25)
    expected = sum(
        np.sum(
            -50 * (np.asarray(p, np.float64) - 0.25) ** 2
            + 50 * (np.asarray(r, np.float64) - 0.25) ** 2
        )
        for p, r in zip(jax.tree.leaves(near), jax.tree.leaves(exact), strict=True)
    )
    ratio = jax.jit(prior_log_ratio(prior, exact))(near)
    assert abs(float(ratio) - expected) < 1e-3
    plain = prior_log_prob(prior, near) - prior_log_prob(prior, exact)
    assert abs(float(plain) - expected) > 1  # the test has power: totals do cancel here


@pytest.mark.third_party(reason="NumPyro's multivariate normal adds arrays of different ranks")
def test_a_multivariate_distribution_is_repeated_over_leading_axes():
    covariance = np.array([[2.0, 0.5, 0.0], [0.5, 1.0, 0.0], [0.0, 0.0, 3.0]], np.float32)
    multivariate = dist.MultivariateNormal(np.zeros(3, np.float32), covariance)
    prior = expand_prior({"w": multivariate, "c": dist.Normal(np.arange(3.0), 1.0)}, _WC)
    w = np.arange(12, dtype=np.float32).reshape(4, 3) / 5
    expected = scipy.stats.multivariate_normal(np.zeros(3), covariance).logpdf(w).sum()
    expected += scipy.stats.norm(np.arange(3.0)).logpdf(np.zeros((2, 3))).sum()
    position = {"w": jnp.asarray(w), "c": jnp.zeros((2, 3))}
    np.testing.assert_allclose(prior_log_prob(prior, position), expected, rtol=1e-5)


_WC = {"w": np.zeros((4, 3)), "c": np.zeros((2, 3))}


def test_draws_have_the_prior_s_moments():
    prior = normal_prior(mlp((4, 50)), weight_precision=4.0, bias_precision=100.0, mean=1.0)
    draws = jax.jit(lambda key: sample_prior(key, prior, (40, 25)))(jax.random.key(1))
    w, b = draws[0]["w"], draws[0]["b"]
    assert w.shape == (40, 25, 4, 50)
    assert b.shape == (40, 25, 50)
    # False alarms 1e-6: |z| < 5.2 for two means and a deviation, of independent draws.
    assert abs(float(w.mean()) - 1) < 5.2 * 0.5 / np.sqrt(w.size)
    assert abs(float(b.mean()) - 1) < 5.2 * 0.1 / np.sqrt(b.size)
    assert abs(float(w.std()) - 0.5) < 5.2 * 0.5 / np.sqrt(2 * w.size)
    assert not np.allclose(w[0, 0], w[0, 1])


NORMAL = dist.Normal(0.0, 1.0)


@pytest.mark.parametrize(
    ("make", "error", "sentence"),
    [
        (lambda: normal_prior(NETWORK, weight_precision=0.0), ValueError, "weight_precision must"),
        (
            lambda: normal_prior(NETWORK, bias_precision=[1.0, -2.0]),
            ValueError,
            r"bias_precision\[1\] must be positive and finite, but is -2",
        ),
        (
            lambda: normal_prior(NETWORK, bias_precision=[1.0, 2.0, 3.0]),
            ValueError,
            "bias_precision has 3 entries for 2 layers",
        ),
        (
            lambda: normal_prior(NETWORK, weight_precision=np.ones((2, 1))),
            ValueError,
            "one per layer, but has shape",
        ),
        (lambda: normal_prior(NETWORK, mean=np.zeros(3)), ValueError, "mean must be a number or"),
        (
            lambda: normal_prior({"w": np.zeros(3)}, mean={"w": np.zeros(2)}),
            ValueError,
            r"mean\['w'\] has shape \(2,\)",
        ),
        (lambda: uniform_prior(NETWORK, 1.0, 1.0), ValueError, "low must be smaller than high"),
        (lambda: uniform_prior(NETWORK, 0.0, np.inf), ValueError, "both finite"),
        (
            lambda: expand_prior(({"w": NORMAL}, (), NORMAL), NETWORK),
            ValueError,
            r"no distribution for the parameter \[0\]\['b'\]",
        ),
        (
            lambda: expand_prior((NORMAL, NORMAL, NORMAL), NETWORK),
            ValueError,
            r"a distribution at \[1\], where there is no parameter",
        ),
        (
            lambda: expand_prior((NORMAL, (), {"w": NORMAL.expand((2, 3)), "b": NORMAL}), NETWORK),
            ValueError,
            r"prior\[2\]\['w'\] draws values of shape \(2, 3\), but the parameter has .*\(3, 2\)",
        ),
        (
            lambda: expand_prior((1.0, (), NORMAL), NETWORK),
            TypeError,
            r"prior\[0\] is of type float",
        ),
        (
            lambda: expand_prior([NORMAL, (), NORMAL], NETWORK),
            ValueError,
            "the same tuples, lists and dicts",
        ),
        (
            lambda: prior_log_prob(normal_prior(NETWORK), init(jax.random.key(0), mlp((4, 2, 2)))),
            ValueError,
            r"the position\[0\]\['b'\] has shape \(2,\)",
        ),
        (
            lambda: prior_log_prob(normal_prior(NETWORK), {"w": np.zeros(2)}),
            ValueError,
            "the position must be shaped like the prior",
        ),
    ],
)
def test_bad_input_gets_one_sentence(make, error, sentence):
    with pytest.raises(error, match=sentence):
        make()
