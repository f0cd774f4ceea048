"""Tests of networks.layers, networks.shapes and networks.summary: networks as data: equality,
shapes, counts, the table, and what does not fit.
"""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

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
    layer_shapes,
    mlp,
    network_summary,
    num_parameters,
    output_shape,
    parameter_shapes,
)


def test_networks_are_equal_and_hash_by_value(annotations_unchecked):
    first = mlp((4, 3, 3), "tanh")
    second = Network([Dense(np.int64(3)), Activation("tanh"), Dense(3, True)], np.array([4]))
    assert first == second
    assert hash(first) == hash(second)
    assert len({first, second, mlp((4, 3, 3)), mlp((4, 3, 3), "tanh", bias=False)}) == 3
    assert mlp((4, 3), parametrisation="ntk") != mlp((4, 3))
    assert Network((AvgPool((2, 2)),), (4, 4, 1)) == Network((AvgPool((2, 2), (2, 2)),), (4, 4, 1))
    assert Activation(jnp.sin) == Activation(jnp.sin)


def test_networks_cannot_be_changed():
    with pytest.raises(AttributeError):
        mlp((4, 3)).input_shape = (5,)
    with pytest.raises(AttributeError):
        Dense(3).features = 4


def test_mlp_has_no_activation_after_the_read_out():
    assert mlp((4, 5, 3), "relu", bias=False).layers == (
        Dense(5, bias=False),
        Activation("relu"),
        Dense(3, bias=False),
    )
    assert mlp((4, 3)).layers == (Dense(3),)
    scaled = mlp((4, 3), parametrisation="ntk", weight_scale=2.0, bias_scale=0.5)
    assert scaled.layers == (Dense(3, weight_scale=2.0, bias_scale=0.5),)


NETWORK = Network(
    (
        Conv(3, (2, 2), (2, 1)),
        Residual((Residual((Dense(3),)), Activation("relu"), Dense(3, bias=False))),
        AvgPool((2, 2)),
        Flatten(),
        Dense(2),
    ),
    (9, 6, 2),
)


def test_shapes_and_counts():
    assert layer_shapes(NETWORK) == ((4, 5, 3), (4, 5, 3), (2, 2, 3), (12,), (2,))
    assert output_shape(NETWORK) == (2,)
    assert num_parameters(NETWORK) == (24 + 3) + (9 + 3 + 9) + (24 + 2)
    shapes = jax.tree.map(lambda leaf: leaf.shape, parameter_shapes(NETWORK))
    assert shapes == (
        {"w": (2, 2, 2, 3), "b": (3,)},
        (({"w": (3, 3), "b": (3,)},), (), {"w": (3, 3)}),
        (),
        (),
        {"w": (12, 2), "b": (2,)},
    )


def test_shape_functions_agree_with_a_traced_run():
    params = jax.eval_shape(lambda: init(jax.random.key(0), NETWORK))
    x = jax.ShapeDtypeStruct((7, *NETWORK.input_shape), "float32")
    assert jax.eval_shape(partial(apply, NETWORK), params, x).shape == (7, *output_shape(NETWORK))


@pytest.mark.parametrize("dtype", [None, "float32", "float64"])
def test_parameter_shapes_have_the_asked_dtype(x64, dtype):
    shapes = parameter_shapes(NETWORK) if dtype is None else parameter_shapes(NETWORK, dtype)
    assert {leaf.dtype for leaf in jax.tree.leaves(shapes)} == {np.dtype(dtype or "float64")}


def test_summary_is_a_table():
    lines = network_summary(NETWORK).splitlines()
    assert lines[0].split() == ["layer", "output", "parameters"]
    assert lines[3].split() == [
        "Conv(3,",
        "(2,",
        "2),",
        "stride=(2,",
        "1))",
        "(4,",
        "5,",
        "3)",
        "27",
    ]
    assert lines[4].split() == ["Residual", "(4,", "5,", "3)", "21"]
    assert lines[5].startswith("  Residual ")
    assert lines[6].startswith("    Dense(3) ")
    assert lines[-1] == "74 parameters, standard parametrisation"
    assert "Activation(sin)" in network_summary(Network((Activation(jnp.sin),), (2,)))
    assert "Dense(2, bias_scale=0.5)" in network_summary(
        mlp((3, 2), parametrisation="ntk", bias_scale=0.5)
    )


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: Dense(0), "features of Dense must be a positive integer, but is 0."),
        (lambda: Dense(2.5), "features of Dense must be a positive integer, but is 2.5."),
        (lambda: Dense(2, weight_scale=-1.0), "weight_scale of Dense must be a positive number"),
        (lambda: Conv(2, (3,)), r"window of Conv must be a pair of positive integers"),
        (lambda: Conv(2, 3), r"window of Conv must be a pair .* but is 3\."),
        (lambda: Conv(2, (3, 3), (0, 1)), r"stride of Conv must be a pair .* but is \(0, 1\)\."),
        (lambda: AvgPool((2, -2)), "window of AvgPool must be a pair"),
        (lambda: Activation("rleu"), "unknown activation 'rleu'; use one of relu, .* softplus, or"),
        (lambda: Residual(()), "Residual has no layers; give at least one."),
        (lambda: Network((), (4,)), "Network has no layers; give at least one."),
        (lambda: Network((Dense(2),), (0,)), r"input_shape must be .* but is \(0,\)\."),
        (lambda: Network((Dense(2),), 4), r"input_shape must be .* such as \(4,\) .* but is 4\."),
        (lambda: Network((Dense(2),), ()), r"layer 0 \(Dense\) acts on the last axis"),
        (lambda: Network((Dense(2),), (4,), "mup"), "must be 'standard' or 'ntk', but is 'mup'."),
        (
            lambda: Network((Dense(2, weight_scale=2.0),), (4,)),
            "weight_scale 2 and bias_scale 1 of Dense are used in the ntk parametrisation only",
        ),
        (
            lambda: Network((Conv(2, (5, 3)),), (4, 4, 1)),
            r"layer 0 \(Conv\) has a window of 5 x 3, larger than its input of 4 x 4; use",
        ),
        (
            lambda: Network((Conv(2, (3, 3)), AvgPool((3, 3))), (4, 4, 1)),
            r"layer 1 \(AvgPool\) has a window of 3 x 3, larger than its input of 2 x 2; use",
        ),
        (
            lambda: Network((Flatten(), AvgPool((2, 2))), (4, 4, 1)),
            r"layer 1 \(AvgPool\) needs input .*\(height, width, channels\), but gets \(16,\);",
        ),
        (
            lambda: Network((Dense(3), Residual((Dense(4),))), (3,)),
            r"layer 1 \(Residual\) adds its input of shape \(3,\) .* output of shape \(4,\); make",
        ),
        (
            lambda: Network((Residual((Conv(1, (9, 9)),)),), (4, 4, 1)),
            r"layer 0 \(Residual\), inner layer 0 \(Conv\) has a window of 9 x 9",
        ),
        (lambda: mlp((4,)), r"widths must hold at least the input's and the output's, but is \(4"),
        (lambda: mlp((4, 0, 1)), "features of Dense must be a positive integer, but is 0."),
        (lambda: mlp((4, 2, 1), "rleu"), "unknown activation 'rleu'"),
    ],
)
def test_what_does_not_fit_is_said_when_the_network_is_made(annotations_unchecked, make, sentence):
    with pytest.raises(ValueError, match=sentence):
        make()


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: Network((Dense(2), "relu"), (4,)), "layer 1 of Network is 'relu', not a layer"),
        (lambda: Network(Dense(2), (4,)), "layers of Network must be a tuple of layers"),
        (lambda: Activation(3), "but is an int; give a name"),
        (lambda: Activation(Unhashable()), "must be hashable"),
    ],
)
def test_what_is_no_layer_is_a_type_error(annotations_unchecked, make, sentence):
    with pytest.raises(TypeError, match=sentence):
        make()


class Unhashable:
    __hash__ = None

    def __call__(self, z):
        return z


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda p, x: (p, x[:, :3]), r"x must have shape \(n, 4\), but has \(5, 3\)\."),
        (lambda p, x: (p, x[0]), r"but has \(4,\); write x\[None\] for one datum\."),
        (lambda p, x: (p, x[None]), r"x must have shape \(n, 4\), but has \(1, 5, 4\)\."),
        (lambda p, x: (p[:2], x), "params do not fit the network: .* one entry per layer"),
        (lambda p, x: (list(p), x), "params do not fit the network"),
        (lambda p, x: (({"w": p[0]["w"]}, *p[1:]), x), "params do not fit the network"),
        (
            lambda p, x: (({"w": p[0]["w"].T, "b": p[0]["b"]}, *p[1:]), x),
            r"params\[0\]\['w'\] must have shape \(4, 3\) in this network, but has \(3, 4\)\.",
        ),
        (
            lambda p, x: (jax.tree.map(lambda leaf: leaf[None], p), x),
            r"params\[0\]\['b'\] must have shape \(3,\) in this network, but has \(1, 3\)\.",
        ),
    ],
)
@pytest.mark.parametrize("function", [apply, features])
def test_data_and_parameters_that_do_not_fit(function, change, sentence):
    network = mlp((4, 3, 2))
    params = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape), parameter_shapes(network))
    params, x = change(params, jnp.ones((5, 4)))
    with pytest.raises(ValueError, match=sentence):
        function(network, params, x)


def test_whole_numbers_are_no_data():
    network = mlp((4, 2))
    with pytest.raises(TypeError, match=r"x must be floating point, but has dtype int32; use"):
        apply(network, init(jax.random.key(0), network), np.ones((5, 4), "int32"))


def test_features_need_a_dense_read_out():
    network = Network((Dense(2), Activation("sigmoid")), (4,))
    with pytest.raises(
        ValueError, match=r"features are .* but the network ends in Activation; let"
    ):
        features(network, init(jax.random.key(0), network), jnp.ones((5, 4)))
