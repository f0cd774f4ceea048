"""The outputs of a pooled convolution integrated out, and drawn again."""

import dataclasses
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

from jaxbnn.gibbs import IntermediateNoise, collapse_pooling, gibbs_sampler
from jaxbnn.gibbs.chain import chain_values
from jaxbnn.networks import Activation, AvgPool, Conv, Dense, Flatten, Network, mlp
from tests.gibbs.cases import MODELS

CASES = {
    # Strides, a gap between windows, pixels in no window, two channels, no bias.
    "uneven": (Conv(2, (2, 3), stride=(2, 1)), AvgPool((1, 2), stride=(1, 3)), (6, 9, 2)),
    "square": (Conv(2, (2, 2), bias=False), AvgPool((2, 2)), (6, 5, 1)),
}
VARIANCES = (0.3, 0.2, 0.5, 0.4)


def model_of(name):
    conv, pool, shape = CASES[name]
    layers = (conv, pool, Activation("relu"), Flatten(), Dense(1))
    return IntermediateNoise(Network(layers, shape), VARIANCES, (0.8, 1.3), (0.5, 2.0))


def drawn(model, n=3):
    x = jax.random.normal(jax.random.key(0), (n, *model.network.input_shape))
    params = model.sample_prior(jax.random.key(1))
    position, y = model.simulate(jax.random.key(2), params, x)
    return x, y, position


def without_outputs(position):
    params = (position.params[0], *position.params[2:])
    return position._replace(params=params, pre=position.pre[1:])


@pytest.mark.parametrize("name", CASES)
def test_the_density_is_the_integral_over_the_outputs(name, x64):
    # Given everything else, log p(v, rest) - log p(rest) must be a normal law's in v: it is
    # compared with SciPy's, whose mean and covariance come from a least-squares system.
    model = model_of(name)
    x, y, position = drawn(model)
    collapsed, averaged, *_ = collapse_pooling(model, x)
    rest = collapsed.log_density(without_outputs(position), averaged, y)
    d_v, d_z = VARIANCES[:2]
    values = chain_values(model, position, y, x.dtype)
    mean = model.stages[0].mean(position.params, jnp.moveaxis(x, 0, -1))
    shape = mean.shape[:-1]
    size = int(np.prod(shape))
    basis = jnp.eye(size).reshape(*shape, size)
    average = np.asarray(model.stages[1].mean(position.params, basis)).reshape(-1, size)
    precision = np.eye(size) / d_v + average.T @ average / d_z
    covariance = np.linalg.inv(precision)
    log_density = 0.0
    for i in range(len(x)):
        v, m, z = (np.asarray(a[..., i]).ravel() for a in (values[0], mean, values[1]))
        centre = covariance @ (m / d_v + average.T @ z / d_z)
        log_density += scipy.stats.multivariate_normal(centre, covariance).logpdf(v)
    np.testing.assert_allclose(model.log_density(position, x, y), rest + log_density, rtol=1e-10)


@pytest.mark.parametrize("name", CASES)
def test_the_mean_is_that_of_the_pooled_convolution(name, x64):
    model = model_of(name)
    x, _, position = drawn(model)
    collapsed, averaged, *_ = collapse_pooling(model, x)
    full = model.forward(None, position.params, jnp.moveaxis(x, 0, -1))
    short = collapsed.forward(None, without_outputs(position).params, jnp.moveaxis(averaged, 0, -1))
    for a, b in zip(full[1:], short, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-12)


def test_what_is_restored_has_the_law_of_the_model(x64):
    # Everything but v from the model, v anew: the joint law is the model's again, so v less its
    # mean is N(0, D_v), and less its windows' pooled values too.
    model = model_of("square")
    n = 10_000
    x, _, position = drawn(model, n)
    collapsed = collapse_pooling(model, x)
    restored = jax.jit(collapsed.restore)(jax.random.key(5), without_outputs(position))
    assert jax.tree.structure(restored) == jax.tree.structure(position)
    mean = model.stages[0].mean(position.params, jnp.moveaxis(x, 0, -1))
    noise = np.asarray(restored.pre[0] - mean)
    pooled = np.asarray(restored.pre[1] - model.stages[1].mean(position.params, restored.pre[0]))
    for row, column, unit in itertools.product((0, 4), (1, 3), (0, 1)):
        p = scipy.stats.kstest(noise[row, column, unit] / VARIANCES[0] ** 0.5, "norm").pvalue
        assert p > 1e-6 / 8
    p = scipy.stats.kstest(pooled[0, 1, 1] / VARIANCES[1] ** 0.5, "norm").pvalue
    assert p > 1e-6
    correlation = np.corrcoef(noise[0, 2, 0], pooled[0, 1, 0])[0, 1]
    assert abs(correlation) < 4.9 / n**0.5  # 1e-6, of independent normals


def test_variances_may_be_one_number_and_traced():
    x, y, _ = drawn(model_of("square"))

    def density(variance):
        model = dataclasses.replace(model_of("square"), noise_variance=variance)
        collapsed, averaged, *_ = collapse_pooling(model, x)
        return collapsed.log_density(collapsed.zero_position(averaged, y), averaged, y)

    many = jax.jit(jax.vmap(density))(jnp.array([0.2, 0.3]))
    np.testing.assert_allclose(many[1], density(0.3), rtol=1e-5)
    model = dataclasses.replace(model_of("square"), noise_variance=0.2)
    collapsed = collapse_pooling(model, x).model
    np.testing.assert_allclose(collapsed.noise_variance, (0.2 / 4 + 0.2, 0.2, 0.2))


def test_the_sampler_takes_it_with_labels():
    model = MODELS["conv"]
    x = jax.random.normal(jax.random.key(0), (6, *model.network.input_shape))
    _, y = model.simulate(jax.random.key(1), model.sample_prior(jax.random.key(2)), x)
    collapsed, averaged, *_ = collapse_pooling(model, x)
    kernel = gibbs_sampler(collapsed, averaged, y)
    state = kernel.init(collapsed.random_position(jax.random.key(3), averaged, y))
    state, info = jax.jit(kernel.step)(jax.random.key(4), state)
    assert not bool(info.is_divergent)
    restored = collapse_pooling(model, x).restore(jax.random.key(5), state.position)
    assert bool(jnp.isfinite(model.log_density(restored, x, y)))


def test_positions_of_others_are_not_restored(annotations_unchecked):
    model = model_of("square")
    x, y, position = drawn(model)
    collapsed = collapse_pooling(model, x)
    own = collapsed.model.zero_position(collapsed.x, y)
    key = jax.random.key(0)
    with pytest.raises(ValueError, match=r"chains go through jax\.vmap"):
        collapsed.restore(key, jax.tree.map(lambda leaf: jnp.stack([leaf] * 2), own))
    with pytest.raises(TypeError, match="position must be a GibbsPosition"):
        collapsed.restore(key, own.params)
    with pytest.raises(ValueError, match="give a position of the collapsed model"):
        collapsed.restore(key, own._replace(pre=position.pre))


def test_other_networks_are_refused():
    with pytest.raises(ValueError, match="begins with Conv and AvgPool"):
        collapse_pooling(IntermediateNoise(mlp((2, 3, 1)), 0.1), jnp.ones((4, 2)))
    layers = (Conv(1, (2, 2)), AvgPool((2, 2), stride=(1, 1)), Flatten(), Dense(1))
    overlapping = IntermediateNoise(Network(layers, (5, 5, 1)), 0.1)
    with pytest.raises(ValueError, match="share pixels"):
        collapse_pooling(overlapping, jnp.ones((4, 5, 5, 1)))


@pytest.mark.parametrize("last", [(), (Flatten(),)], ids=["pooling", "flattened"])
def test_pooled_values_may_be_the_outputs(last, x64):
    """What is restored has the mean that a regression of the pooled outputs gives."""
    network = Network((Conv(2, (2, 2), bias=False), AvgPool((2, 2)), *last), (3, 3, 1))
    model = IntermediateNoise(network, (0.5, 0.1))
    x = jax.random.normal(jax.random.key(0), (4, 3, 3, 1))
    _, y = model.simulate(jax.random.key(1), model.sample_prior(jax.random.key(2)), x)
    collapsed = collapse_pooling(model, x)
    position = collapsed.model.zero_position(collapsed.x, y)
    with pytest.raises(ValueError, match=r"write restore\(key, position, y\)"):
        collapsed.restore(jax.random.key(3), position)
    keys = jax.random.split(jax.random.key(4), 4000)
    (outputs,) = jax.vmap(lambda key: collapsed.restore(key, position, y).pre)(keys)
    # The weights are zero: v ~ N(0, D_v) and y = average(v) + N(0, D_y) of four pixels.
    gain = 0.5 / 4 / (0.5 / 4 + 0.1)
    expected = gain * jnp.moveaxis(jnp.reshape(y, (4, 1, 1, 2)), 0, -1)
    np.testing.assert_allclose(
        jnp.mean(outputs, 0), jnp.broadcast_to(expected, (2, 2, 2, 4)), atol=0.06
    )
