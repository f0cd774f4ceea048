"""Tests of networks.activations and networks.validation: the forward reading against loops written
in NumPy.
"""

import math
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import special

from jaxbnn.networks import (
    Activation,
    AvgPool,
    Conv,
    Dense,
    Flatten,
    Network,
    Residual,
    apply,
    features,
    init,
    mlp,
    parameter_shapes,
)


def numpy_convolution(x, w, stride):
    """Cross-correlation without padding, one multiplication at a time."""
    n, rows, columns, channels = x.shape
    height, width, _, out_channels = w.shape
    out_rows = len(range(0, rows - height + 1, stride[0]))
    out_columns = len(range(0, columns - width + 1, stride[1]))
    z = np.zeros((n, out_rows, out_columns, out_channels))
    for a, i, j, k in np.ndindex(z.shape):
        for u, v, c in np.ndindex(height, width, channels):
            z[a, i, j, k] += x[a, i * stride[0] + u, j * stride[1] + v, c] * w[u, v, c, k]
    return z


def numpy_pooling(x, window, stride):
    """Mean over each whole window; what is left over at the far edges is not looked at."""
    starts = [range(0, x.shape[1 + a] - window[a] + 1, stride[a]) for a in range(2)]
    z = np.zeros((x.shape[0], len(starts[0]), len(starts[1]), x.shape[3]))
    for i, row in enumerate(starts[0]):
        for j, column in enumerate(starts[1]):
            block = x[:, row : row + window[0], column : column + window[1]]
            z[:, i, j] = block.reshape(len(x), -1, x.shape[3]).sum(1) / math.prod(window)
    return z


def random_params(rng, network):
    shapes = parameter_shapes(network)
    return jax.tree.map(lambda leaf: jnp.asarray(rng.standard_normal(leaf.shape)), shapes)


@pytest.mark.parametrize("ntk", [False, True])
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("lead", [(), (3,), (3, 2)])
def test_dense_acts_on_the_last_axis(x64, rng, ntk, bias, lead):
    layer = Dense(5, bias, weight_scale=1.5, bias_scale=0.5) if ntk else Dense(5, bias)
    network = Network((layer,), (*lead, 4), "ntk" if ntk else "standard")
    params = random_params(rng, network)
    x = rng.standard_normal((7, *lead, 4))
    w = np.asarray(params[0]["w"])
    expected = np.zeros((7, *lead, 5))
    for index in np.ndindex(expected.shape):
        expected[index] = sum(x[(*index[:-1], i)] * w[i, index[-1]] for i in range(4))
    if ntk:
        expected *= 1.5 / 2.0
    if bias:
        expected += (0.5 if ntk else 1.0) * np.asarray(params[0]["b"])
    np.testing.assert_allclose(network.apply(params, x), expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("ntk", [False, True])
@pytest.mark.parametrize(
    ("shape", "window", "stride"),
    [
        ((7, 6, 3), (3, 2), (2, 3)),
        ((5, 5, 1), (5, 5), (1, 1)),
        ((6, 9, 2), (2, 3), (1, 2)),
        ((4, 4, 2), (1, 1), (3, 3)),
    ],
)
def test_convolution_matches_loops(x64, rng, ntk, shape, window, stride):
    scales = {"weight_scale": 1.5, "bias_scale": 0.5} if ntk else {}
    layer = Conv(4, window, stride, **scales)
    network = Network((layer,), shape, "ntk" if ntk else "standard")
    params = random_params(rng, network)
    x = rng.standard_normal((2, *shape))
    expected = numpy_convolution(x, np.asarray(params[0]["w"]), stride)
    weight_scale = 1.5 / math.sqrt(math.prod(window) * shape[-1]) if ntk else 1.0
    bias_scale = 0.5 if ntk else 1.0
    expected = weight_scale * expected + bias_scale * np.asarray(params[0]["b"])
    np.testing.assert_allclose(apply(network, params, x), expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(
    ("window", "stride"),
    [((2, 2), None), ((3, 2), None), ((2, 3), (1, 2)), ((3, 3), (2, 2)), ((7, 5), None)],
)
def test_pooling_matches_loops_and_drops_what_is_left_over(x64, rng, window, stride):
    network = Network((AvgPool(window, stride),), (7, 5, 2))
    x = rng.standard_normal((3, 7, 5, 2))
    expected = numpy_pooling(x, window, stride or window)
    np.testing.assert_allclose(apply(network, ((),), x), expected, rtol=1e-12)


ACTIVATIONS = {
    "relu": lambda z: np.maximum(z, 0),
    "leaky_relu": lambda z: np.where(z > 0, z, 0.01 * z),
    "abs": np.abs,
    "sign": np.sign,
    "heaviside": lambda z: np.heaviside(z, 0.0),
    "hard_tanh": lambda z: np.clip(z, -1, 1),
    "identity": lambda z: z,
    "sigmoid": special.expit,
    "tanh": np.tanh,
    "gelu": lambda z: z * special.ndtr(z),
    "erf": special.erf,
    "softplus": lambda z: np.logaddexp(z, 0),
}


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_activations_by_name(x64, name):
    network = Network((Activation(name),), (23,))
    x = jnp.linspace(-5.0, 5.0, 46).reshape(2, 23).at[0, 0].set(0.0)
    out = apply(network, ((),), x)
    assert out.dtype == x.dtype
    np.testing.assert_allclose(out, ACTIVATIONS[name](np.asarray(x)), rtol=1e-11, atol=1e-13)
    gradient = jax.grad(lambda x: apply(network, ((),), x).sum())(x)
    assert np.isfinite(gradient).all()


def test_a_callable_is_an_activation_too(rng):
    network = Network((Activation(jnp.sin),), (3,))
    x = jnp.asarray(rng.standard_normal((2, 3)), jnp.float32)
    np.testing.assert_allclose(apply(network, ((),), x), np.sin(x), rtol=1e-6)


def deep_network():
    """Every layer once, a Residual within a Residual."""
    inner = Residual((Dense(3), Activation("tanh")))
    return Network(
        (
            Conv(3, (2, 2), (2, 1)),
            Residual((inner, Activation("relu"), Dense(3, bias=False))),
            AvgPool((2, 2)),
            Activation("gelu"),
            Flatten(),
            Dense(4),
            Activation("softplus"),
            Dense(2),
        ),
        (9, 6, 2),
    )


def test_layers_compose_with_residuals_nested(x64, rng):
    network = deep_network()
    params = random_params(rng, network)
    p = jax.tree.map(np.asarray, params)
    x = rng.standard_normal((3, 9, 6, 2))
    z = numpy_convolution(x, p[0]["w"], (2, 1)) + p[0]["b"]
    inner = z + np.tanh(z @ p[1][0][0]["w"] + p[1][0][0]["b"])
    z = z + np.maximum(inner, 0) @ p[1][2]["w"]
    z = numpy_pooling(z, (2, 2), (2, 2))
    z = (z * special.ndtr(z)).reshape(3, -1)
    z = np.logaddexp(z @ p[5]["w"] + p[5]["b"], 0)
    np.testing.assert_allclose(features(network, params, x), z, rtol=1e-11)
    np.testing.assert_allclose(
        apply(network, params, x), z @ p[7]["w"] + p[7]["b"], rtol=1e-10, atol=1e-10
    )


@pytest.mark.parametrize("parametrisation", ["standard", "ntk"])
def test_features_then_read_out_is_apply(x64, rng, parametrisation):
    network = mlp((4, 6, 3), "tanh", parametrisation=parametrisation)
    params = random_params(rng, network)
    x = rng.standard_normal((5, 4))
    read_out = Network(network.layers[-1:], (6,), parametrisation)
    phi = features(network, params, x)
    assert phi.shape == (5, 6)
    np.testing.assert_array_equal(apply(read_out, params[-1:], phi), apply(network, params, x))


def test_features_of_a_linear_network_are_its_input():
    network = mlp((4, 2))
    x = jnp.ones((3, 4))
    np.testing.assert_array_equal(features(network, init(jax.random.key(0), network), x), x)


def small_network():
    return Network(
        (
            Conv(2, (2, 2), (2, 1)),
            Residual((Dense(2), Activation("tanh"))),
            AvgPool((2, 2)),
            Flatten(),
            Dense(2),
        ),
        (5, 4, 1),
        "ntk",
    )


@pytest.mark.short("float32")
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_jit_grad_and_vmap_over_parameters_in_both_precisions(x64, rng, dtype):
    network = small_network()
    shapes = parameter_shapes(network)
    stacked = jax.tree.map(
        lambda leaf: jnp.asarray(rng.standard_normal((3, *leaf.shape)), dtype), shapes
    )
    x = jnp.asarray(rng.standard_normal((4, 5, 4, 1)), dtype)
    run = jax.jit(
        lambda network, stacked: jax.vmap(
            jax.value_and_grad(lambda p: jnp.sum(apply(network, p, x) ** 2))
        )(stacked),
        static_argnums=0,
    )
    values, gradients = run(network, stacked)
    assert values.dtype == dtype
    for leaf in jax.tree.leaves(gradients):
        assert leaf.dtype == dtype
        assert np.isfinite(leaf).all()
        assert np.abs(leaf).max() > 0
    one = jax.tree.map(lambda leaf: leaf[1], stacked)
    expected = np.sum(np.asarray(apply(network, one, x)) ** 2)
    np.testing.assert_allclose(values[1], expected, rtol=1e-5 if dtype == "float32" else 1e-12)
    # An equal network, made anew, is the same static argument.
    run(small_network(), stacked)
    assert run._cache_size() == 1


def test_float32_agrees_with_float64(x64, rng):
    network = mlp((50, 100, 100, 1), "erf")
    params = jax.tree.map(lambda leaf: leaf / 10.0, random_params(rng, network))
    x = rng.standard_normal((20, 50))
    single = jax.tree.map(lambda leaf: leaf.astype("float32"), params)
    rounded = apply(network, single, x.astype("float32"))
    assert rounded.dtype == np.float32
    np.testing.assert_allclose(rounded, apply(network, params, x), atol=2e-6)


def test_products_are_asked_for_at_the_highest_precision():
    """On GPUs the default is TF32; the lowered program must say otherwise, gradients included."""
    network = Network((Conv(2, (2, 2)), Flatten(), Dense(3)), (3, 3, 1), "ntk")
    params = jax.eval_shape(lambda: init(jax.random.key(0), network))

    def loss(params, x):
        return apply(network, params, x).sum()

    text = jax.jit(jax.grad(loss)).lower(params, jnp.ones((2, 3, 3, 1))).as_text()
    products = [
        line for line in text.splitlines() if "dot_general" in line or "stablehlo.convol" in line
    ]
    assert len(products) >= 4
    assert all("HIGHEST" in line for line in products)


@pytest.mark.long
@pytest.mark.parametrize(
    ("layer", "input_shape"),
    [
        pytest.param(partial(Dense, 50), (9,), marks=pytest.mark.long),
        (partial(Conv, 50, (3, 3)), (3, 3, 1)),
    ],
)
def test_ntk_output_variance_at_init(layer, input_shape):
    """Linear network: Var z1 = sw^2 |x|^2 / d + sb^2 = v, Var z2 = sw^2 v + sb^2.

    z2 is a scale mixture of normals with 50 hidden units: its excess kurtosis is at most 6 / 50,
    so the relative standard error of the variance of 10,000 draws is at most
    sqrt(2.12 / 10,000) = 1.46%. The bounds are 5 standard errors, false alarms 6e-7 each.
    """
    scales = {"weight_scale": 1.3, "bias_scale": 0.4}
    network = Network((layer(**scales), Flatten(), Dense(1, **scales)), input_shape, "ntk")
    x = jnp.full((1, *input_shape), 0.7)
    keys = jax.random.split(jax.random.key(3), 10_000)
    draws = jax.jit(jax.vmap(lambda key: apply(network, init(key, network), x)[0, 0]))(keys)
    expected = 1.3**2 * (1.3**2 * 0.7**2 + 0.4**2) + 0.4**2
    assert abs(np.var(draws) / expected - 1) < 5 * 0.0146
    assert abs(np.mean(draws)) < 5 * math.sqrt(expected / 10_000)


def test_standard_init_has_variance_one_over_fan_in():
    """40,000 weights: the standard error of their variance is 0.71%, 5 of them 6e-7."""
    network = Network((Conv(400, (2, 5)), Flatten(), Dense(100)), (2, 5, 10))
    conv, _, dense = jax.jit(init, static_argnums=1)(jax.random.key(0), network)
    assert conv["w"].size == dense["w"].size == 40_000
    assert abs(np.var(conv["w"]) * 100 - 1) < 5 * 0.0071
    assert abs(np.var(dense["w"]) * 400 - 1) < 5 * 0.0071
    assert not np.any(conv["b"])
    assert not np.any(dense["b"])


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_init_has_the_asked_shapes_and_dtype(x64, dtype):
    network = deep_network()
    params = jax.jit(init, static_argnums=(1, 2))(jax.random.key(0), network, dtype)
    shapes = parameter_shapes(network, dtype)
    assert jax.tree.structure(params) == jax.tree.structure(shapes)
    for leaf, expected in zip(jax.tree.leaves(params), jax.tree.leaves(shapes), strict=True):
        assert (leaf.shape, leaf.dtype) == (expected.shape, expected.dtype)
    kernels = [params[1][0][0]["w"], params[1][2]["w"]]
    assert not np.array_equal(*kernels)


@pytest.mark.parametrize("ntk", [False, True])
@pytest.mark.parametrize("width", [16, 17, 256, 257])
def test_outputs_are_the_same_however_the_data_are_laid_out(x64, rng, width, ntk):
    network = mlp((3, width, 2), "tanh", parametrisation="ntk" if ntk else "standard")
    params = random_params(rng, network)
    x = rng.standard_normal((5, 3))
    first, last = (1 / math.sqrt(3), 1 / math.sqrt(width)) if ntk else (1.0, 1.0)
    one, _, two = jax.tree.map(np.asarray, params)
    hidden = np.tanh(first * x @ one["w"] + one["b"])
    expected = last * hidden @ two["w"] + two["b"]
    np.testing.assert_allclose(apply(network, params, x), expected, rtol=1e-11, atol=1e-11)
