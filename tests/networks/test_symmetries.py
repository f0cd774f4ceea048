"""Tests of networks.symmetries.canonical, networks.symmetries.groups, networks.symmetries.segments
and networks.symmetries.transformations: every transformation leaves the output as it is, and its
Jacobian is the automatic one.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree

from jaxbnn.networks import (
    Activation,
    AvgPool,
    Conv,
    Dense,
    Flatten,
    Network,
    Residual,
    mlp,
    parameter_shapes,
)
from jaxbnn.networks.symmetries import (
    canonicalize,
    flip_units,
    permute_units,
    scale_units,
    segments,
    shift_classes,
    weight_symmetries,
)

NAMES = (
    "relu", "leaky_relu", "abs", "sign", "heaviside", "hard_tanh", "identity", "sigmoid", "tanh",
    "gelu", "erf", "softplus",
)  # fmt: skip
FLIPPING = {"abs", "sign", "heaviside", "hard_tanh", "identity", "sigmoid", "tanh", "erf"}
SCALING = {"relu", "leaky_relu", "abs", "identity"}
SCALES = {"weight_scale": 1.7, "bias_scale": 0.6}


def perceptron(activation, parametrisation):
    scales = SCALES if parametrisation == "ntk" else {}
    return mlp((3, 4, 3, 2), activation, parametrisation=parametrisation, **scales)


def image_network(activation, parametrisation="standard"):
    layers = (
        Conv(3, (2, 2), **(SCALES if parametrisation == "ntk" else {})),
        Activation(activation),
        Conv(2, (2, 2)),
        AvgPool((2, 2), (1, 1)),
        Activation(activation),
        Flatten(),
        Dense(3),
        Activation(activation),
        Dense(2),
    )
    return Network(layers, (5, 5, 2), parametrisation)


def residual_network(activation, parametrisation="standard"):
    inner = (Dense(2), Activation(activation), Dense(4), Activation(activation))
    layers = (Dense(4), Activation(activation), Residual(inner), Dense(3))
    return Network(layers, (3,), parametrisation)


def tied_to_itself(activation):
    """The sum of a unit and its own activation, and a Residual in front of the activation."""
    inner = (Activation(activation), Dense(4))
    return Network((Dense(4), Residual(inner), Activation(activation), Dense(2)), (3,))


def flattened_residual(activation):
    """Channels that a Dense is added to, block by block."""
    layers = (
        Conv(2, (2, 2)),
        Activation(activation),
        Flatten(),
        Residual((Dense(8), Activation(activation))),
        Dense(2),
    )
    return Network(layers, (3, 3, 1))


ALL = (
    [(perceptron(name, p), f"mlp-{name}-{p}") for name in NAMES for p in ("standard", "ntk")]
    + [(image_network(name, "ntk"), f"conv-{name}") for name in ("sigmoid", "relu", "tanh")]
    + [(residual_network(name), f"residual-{name}") for name in ("tanh", "sigmoid", "relu", "abs")]
    + [(tied_to_itself(name), f"tied-{name}") for name in ("sigmoid", "abs", "identity")]
    + [(flattened_residual(name), f"blocks-{name}") for name in ("tanh", "relu")]
)
every_network = pytest.mark.parametrize(
    "network", [n for n, _ in ALL], ids=[name for _, name in ALL]
)


def draw(rng, network):
    """Parameters with biases, as no symmetry may rest on zero biases."""
    shapes = parameter_shapes(network)
    return jax.tree.map(lambda leaf: jnp.asarray(rng.normal(size=leaf.shape)), shapes)


def data(rng, network):
    return rng.normal(size=(6, *network.input_shape))


def move(transformation, units, amounts):
    return lambda params: transformation(params, units, jnp.asarray(amounts))


def random_transformations(rng, network):
    """Return (name, function of the parameters) for every symmetry, with random amounts."""
    found = weight_symmetries(network)
    moves = []
    for units in found.permutations:
        order = rng.permutation(units.size)
        cycle = np.empty_like(order)
        cycle[order] = np.roll(order, 1)  # moves every unit
        moves.append(("permute", move(permute_units, units, cycle)))
    for units in found.flips:
        signs = rng.choice([-1.0, 1.0], units.size)
        signs[rng.integers(units.size)] = -1.0
        moves.append(("flip", move(flip_units, units, signs)))
    for units in found.scalings:
        moves.append(("scale", move(scale_units, units, np.exp(rng.normal(size=units.size)))))
    return moves


@pytest.mark.parametrize(
    "network",
    [
        pytest.param(network, id=name, marks=[pytest.mark.long] if i % 2 else [])
        for i, (network, name) in enumerate(ALL)
    ],
)
def test_transformations_leave_the_output(network, rng, x64):
    params, x = draw(rng, network), data(rng, network)
    expected = network.apply(params, x)
    moves = random_transformations(rng, network)

    @jax.jit  # one program a network: op by op costs a compilation each
    def outputs(params):
        moved = [f(params)[0] for _, f in moves]
        return moved, [network.apply(p, x) for p in moved]

    for (name, _), moved, got in zip(moves, *outputs(params), strict=True):
        leaves = zip(jax.tree.leaves(moved), jax.tree.leaves(params), strict=True)
        assert not all(np.allclose(a, b) for a, b in leaves), name
        scale = 1 + np.abs(expected).max()
        np.testing.assert_allclose(got / scale, expected / scale, atol=1e-12, err_msg=name)


@pytest.mark.parametrize(
    "network",
    [
        mlp((2, 3, 2, 2), "abs"),
        mlp((2, 3, 2), "sigmoid", parametrisation="ntk", **SCALES),
        residual_network("relu"),
        residual_network("tanh"),
        tied_to_itself("sigmoid"),
        tied_to_itself("identity"),
        flattened_residual("relu"),
    ],
)
def test_jacobian_is_the_automatic_one(network, rng, x64):
    params = draw(rng, network)
    flat, unravel = ravel_pytree(params)
    moves = random_transformations(rng, network)
    assert moves

    @jax.jit
    def jacobians(flat):
        return [
            (
                jax.jacfwd(lambda v, f=f: ravel_pytree(f(unravel(v))[0])[0])(flat),
                f(unravel(flat))[1],
            )
            for _, f in moves
        ]

    for (name, _), (jacobian, got) in zip(moves, jacobians(flat), strict=True):
        _, log_determinant = np.linalg.slogdet(jacobian)
        np.testing.assert_allclose(got, log_determinant, atol=1e-10, err_msg=name)


@pytest.mark.parametrize("parametrisation", ["standard", "ntk"])
@pytest.mark.parametrize("name", NAMES)
def test_what_each_activation_has(name, parametrisation):
    found = weight_symmetries(perceptron(name, parametrisation))
    assert [units.size for units in found.permutations] == [4, 3]
    assert [units.size for units in found.flips] == ([4, 3] if name in FLIPPING else [])
    assert [units.size for units in found.scalings] == ([4, 3] if name in SCALING else [])
    assert not found.lost


def test_a_flip_is_its_own_inverse(rng, x64):
    network = tied_to_itself("sigmoid")
    params = draw(rng, network)
    (units,) = weight_symmetries(network).flips
    signs = jnp.asarray([-1.0, 1.0, -1.0, -1.0])
    twice, _ = flip_units(flip_units(params, units, signs)[0], units, signs)
    np.testing.assert_allclose(ravel_pytree(twice)[0], ravel_pytree(params)[0], atol=1e-12)


def test_callables_with_a_name_are_known():
    assert weight_symmetries(mlp((2, 3, 1), jnp.tanh)).flips
    assert weight_symmetries(mlp((2, 3, 1), jax.nn.sigmoid)).flips[0].absorptions
    unknown = weight_symmetries(mlp((2, 3, 1), jnp.sin))
    assert unknown.permutations
    assert not unknown.flips
    assert not unknown.scalings


def test_conv_channels_carry_their_flatten_block():
    first, second, third = weight_symmetries(image_network("tanh")).permutations
    assert (first.size, second.size, third.size) == (3, 2, 3)
    assert second.outgoing[0].blocks == 2 * 2


def test_units_tied_by_a_residual_are_one_group():
    outer, inner = weight_symmetries(residual_network("tanh")).permutations
    assert (outer.size, inner.size) == (4, 2)
    assert len(outer.incoming) == 4  # weights and bias of two layers
    assert len(outer.outgoing) == 2


@pytest.mark.parametrize(
    ("network", "reason"),
    [
        (mlp((2, 3, 1), "sigmoid", bias=False), "no bias"),
        (
            Network((Dense(3, bias=False), Activation("heaviside"), Dense(1)), (2,)),
            "without a bias just before it",
        ),
        (
            Network((Dense(3), Activation("sigmoid"), Activation("tanh"), Dense(1)), (2,)),
            "another activation",
        ),
        (residual_network("sigmoid"), "a Residual adds"),
    ],
)
def test_lost_flips_are_named(network, reason):
    (sentence, *_) = weight_symmetries(network).lost
    assert "layer 0 (Dense)" in sentence
    assert reason in sentence


@pytest.mark.parametrize(
    ("between", "name"),
    [(Flatten(), "layer 1"), (Residual((Flatten(),)), r"layer 1 \(Residual\), inner layer 0")],
)
def test_a_layer_that_the_symmetries_do_not_know_is_refused(between, name, monkeypatch):
    """No sign flip passes through x -> x + 1, say."""
    monkeypatch.setattr(segments, "Flatten", type("OfAnotherName", (), {}))
    network = Network((Dense(3), between, Activation("tanh"), Dense(1)), (2,))
    with pytest.raises(TypeError, match=rf"no weight symmetries are known of {name} \(Flatten\);"):
        weight_symmetries(network)


def test_input_and_output_are_held():
    wide = Network((Residual((Dense(3), Activation("tanh"))), Dense(3)), (3,))
    assert weight_symmetries(wide)[:3] == ((), (), ())
    out = Network((Dense(3), Activation("tanh"), Residual((Dense(3),))), (2,))
    assert weight_symmetries(out)[:3] == ((), (), ())


@pytest.mark.parametrize("bias", [True, False])
def test_class_shift_moves_all_classes_alike(bias, rng, x64):
    network = mlp((3, 4, 3), "sigmoid", bias=bias)
    params, x = draw(rng, network), data(rng, network)
    shift = weight_symmetries(network).class_shift
    moved, log_jacobian = shift_classes(params, shift, jnp.asarray(rng.normal(size=shift.size)))
    difference = np.asarray(network.apply(moved, x) - network.apply(params, x))
    np.testing.assert_allclose(difference, difference[:, :1] * np.ones(3), atol=1e-12)
    assert np.abs(difference).min() > 1e-3
    assert log_jacobian == 0
    assert weight_symmetries(mlp((3, 4, 1))).class_shift is None


CANONICAL = [
    perceptron("relu", "ntk"),
    image_network("identity"),
    flattened_residual("relu"),
    tied_to_itself("abs"),
    *(
        pytest.param(network, marks=pytest.mark.long)
        for network in (
            perceptron("abs", "ntk"),
            perceptron("sigmoid", "ntk"),
            residual_network("tanh"),
            tied_to_itself("sigmoid"),
        )
    ),
]


@pytest.mark.short("network1", "network2")
@pytest.mark.parametrize("network", CANONICAL)
def test_canonicalize_undoes_every_transformation(network, rng, x64):
    draws = jax.tree.map(lambda *leaves: jnp.stack(leaves), *(draw(rng, network) for _ in range(4)))
    x = data(rng, network)
    moves = [*random_transformations(rng, network), *random_transformations(rng, network)]

    @jax.jit
    @jax.vmap
    def both(params):
        moved = params
        for _, f in moves:
            moved, _ = f(moved)
        one, other = canonicalize(network, params), canonicalize(network, moved)
        return one, other, network.apply(params, x), network.apply(one, x)

    of_draws, of_moved, expected, got = both(draws)
    for a, b in zip(jax.tree.leaves(of_draws), jax.tree.leaves(of_moved), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-9, rtol=1e-9)
    np.testing.assert_allclose(got, expected, atol=1e-11 * (1 + np.abs(expected).max()))


@pytest.mark.parametrize(
    "network", [mlp((1, 4, 1), "relu"), mlp((1, 1, 3, 1), "abs")], ids=["one input", "one unit"]
)
def test_scaled_units_of_one_incoming_weight_are_sorted_by_their_biases(network, rng):
    """All their weights are 1 or -1 then, up to rounding, which may not sort them."""
    params = draw(rng, network)
    layer = len(network.layers) - 3
    order = rng.permutation(params[layer]["w"].shape[1])
    moved = list(params)
    moved[layer] = {"w": params[layer]["w"][:, order] * 1.7, "b": params[layer]["b"][order] * 1.7}
    moved[layer + 2] = params[layer + 2] | {"w": params[layer + 2]["w"][order] / 1.7}
    one, other = canonicalize(network, params), canonicalize(network, tuple(moved))
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6), one, other)


def test_canonicalize_can_remove_the_class_mean(rng, x64):
    network = mlp((3, 4, 3), "tanh")
    params = draw(rng, network)
    shift = weight_symmetries(network).class_shift
    moved, _ = shift_classes(params, shift, jnp.asarray(rng.normal(size=shift.size)))
    first = ravel_pytree(canonicalize(network, params, softmax=True))[0]
    second = ravel_pytree(canonicalize(network, moved, softmax=True))[0]
    np.testing.assert_allclose(first, second, atol=1e-12)
    with pytest.raises(ValueError, match="softmax=True needs"):
        canonicalize(mlp((3, 4, 1)), draw(rng, mlp((3, 4, 1))), softmax=True)


def test_canonicalize_can_keep_the_scales(rng, x64):
    network = mlp((3, 4, 2), "relu")
    params = draw(rng, network)
    kept = canonicalize(network, params, scalings=False)
    np.testing.assert_allclose(
        sorted(np.linalg.norm(kept[0]["w"], axis=0)),
        sorted(np.linalg.norm(params[0]["w"], axis=0)),
    )


def test_transformations_hold_in_float32(rng):
    network = perceptron("sigmoid", "ntk")
    params = jax.tree.map(lambda leaf: leaf.astype(jnp.float32), draw(rng, network))
    x = data(rng, network).astype(np.float32)
    expected = network.apply(params, x)
    for _, f in random_transformations(rng, network):
        moved, log_jacobian = jax.jit(f)(params)
        assert all(leaf.dtype == jnp.float32 for leaf in jax.tree.leaves((moved, log_jacobian)))
        np.testing.assert_allclose(network.apply(moved, x), expected, atol=1e-5, rtol=1e-5)


def test_whole_numbers_are_refused_where_factors_would_be_cut():
    network = mlp((1, 2, 1), "relu")
    params = (
        {"w": jnp.array([[3, -4]]), "b": jnp.zeros(2, int)},
        (),
        {"w": jnp.array([[1], [2]]), "b": jnp.zeros(1, int)},
    )
    with pytest.raises(TypeError, match="the position must be floating point"):
        canonicalize(network, params)
    (units,) = weight_symmetries(network).scalings
    with pytest.raises(TypeError, match="the position must be floating point"):
        scale_units(params, units, jnp.array([0.5, 2.0]))
