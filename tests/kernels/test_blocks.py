"""Kernels on parts of the position: every kind of block, paths to it, and several at once."""

import dataclasses
from typing import NamedTuple

import blackjax
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from blackjax.base import SamplingAlgorithm

import jaxbnn
from jaxbnn.kernels import BlockState
from tests.sampling.tiny import walk


class Two(NamedTuple):
    first: jax.Array
    second: jax.Array


@jax.tree_util.register_dataclass
@dataclasses.dataclass
class Layer:
    w: jax.Array
    b: jax.Array


@jax.tree_util.register_pytree_with_keys_class
class Registered:
    """A class of a user's own, with named children."""

    def __init__(self, inner, scale):
        self.inner, self.scale = inner, scale

    def tree_flatten_with_keys(self):
        key = jax.tree_util.GetAttrKey
        return ((key("inner"), self.inner), (key("scale"), self.scale)), None

    @classmethod
    def tree_unflatten(cls, _, children):
        return cls(*children)


def plus_one(whole):
    """Add one to every number of the block, and keep in the state what the whole then sums to."""

    def init(x, rng_key=None):
        total = sum(jnp.sum(leaf) for leaf in jax.tree.leaves(whole(x)))
        return BlockState(x, total)

    def step(rng_key, state):
        return init(jax.tree.map(lambda leaf: leaf + 1, state.position)), ()

    return SamplingAlgorithm(init, step)


ENCODER = {"encoder": {"w": 0.0, "b": 1.0}, "decoder": [2.0, (3.0, 4.0)]}
CASES = [
    # A position, a block, and which of its leaves move.
    ({"first": 0.0, "second": 1.0}, "second", [1]),
    ({1: 0.0, 0: 1.0}, 1, [1]),
    ({("a", "b"): 0.0, ("a", "c"): 1.0}, ("a", "b"), [0]),
    ((0.0, 1.0), 1, [1]),
    ((0.0, 1.0), -1, [1]),
    ([0.0, 1.0], 1, [1]),
    (Two(0.0, 1.0), "second", [1]),
    (Two(0.0, 1.0), 1, [1]),
    (({}, (), 0.0, 1.0), 3, [1]),
    (Layer(0.0, 1.0), "b", [1]),
    (Registered({"x": 0.0}, 1.0), "scale", [1]),
    (ENCODER, ("encoder", "w"), [4]),
    (ENCODER, ("decoder", 1, -1), [2]),
    (ENCODER, "decoder", [0, 1, 2]),
    (Registered({"x": Layer(0.0, 1.0)}, 1.0), ("inner", "x", "w"), [0]),
    (ENCODER, [("encoder", "b"), "decoder"], [0, 1, 2, 3]),
    (ENCODER, ["encoder"], [3, 4]),
    ((Layer(0.0, 1.0), Layer(2.0, 3.0)), [(1, "w"), (0, "b")], [1, 2]),
]


@pytest.mark.parametrize(("position", "block", "moved"), CASES, ids=lambda v: str(v)[:30])
def test_every_kind_of_block_moves_and_nothing_else(position, block, moved):
    position = jax.tree.map(jnp.float32, position)
    kernel = jaxbnn.on_block(plus_one, block)
    state, _ = kernel.step(jax.random.key(0), kernel.init(position))
    assert jax.tree.structure(state.position) == jax.tree.structure(position)
    expected = np.array(jax.tree.leaves(position))
    expected[moved] += 1
    np.testing.assert_array_equal(jax.tree.leaves(state.position), expected)
    # What the kernel saw while it moved is the whole as it is now.
    assert float(state.block.block) == expected.sum()


def test_several_blocks_come_as_a_tuple_in_the_order_given():
    seen = []

    def make_kernel(whole):
        def init(x, rng_key=None):
            seen.append(x)
            return BlockState(x, ())

        return SamplingAlgorithm(init, lambda key, state: (state, ()))

    jaxbnn.on_block(make_kernel, ["second", ("first", 0)]).init({"first": (1, 2), "second": 3})
    assert seen == [(3, 1)]


@pytest.mark.parametrize(
    ("position", "block", "sentence"),
    [
        ({"a": 0.0}, "b", r"the position has no block 'b'; it has \['a'\]"),
        (({}, {"w": 0.0, "b": 1.0}), 2, r"no block 2; it has \[0, 1\]"),
        (Two(0.0, 1.0), "third", r"no block 'third'; it has \['first', 'second'\]"),
        (Layer(0.0, 1.0), "c", r"no block 'c'; it has \['w', 'b'\]"),
        (jnp.zeros(3), 0, "the position is a single array; put it into a dict"),
        (
            ENCODER,
            ("encoder", "v"),
            "the position at 'encoder' has no block 'v'",
        ),
        (ENCODER, ("encoder", "w", 0), r"the position at \('encoder', 'w'\) is a single array\."),
        (ENCODER, (), "on_block needs the name of a block"),
        (ENCODER, [], "on_block needs the name of a block"),
        (ENCODER, ["encoder", ("encoder", "w")], r"\('encoder', 'w'\) is 'encoder' or lies in it"),
        (((0.0,), 1.0), [1, -1], "-1 is 1 or lies in it"),
    ],
)
def test_a_block_that_is_not_there(position, block, sentence):
    with pytest.raises(ValueError, match=sentence):
        jaxbnn.on_block(plus_one, block).init(position)


def test_what_is_made_for_a_block_must_be_a_kernel():
    with pytest.raises(
        TypeError, match=r"what make_kernel returns must be a kernel, .* is a function"
    ):
        jaxbnn.on_block(lambda whole: plus_one, "a").init({"a": 0.0})


def test_a_path_is_the_block_that_it_leads_to_step_by_step():
    """The chain on nested blocks is, number by number, that on the same blocks side by side."""

    def on(block, value_of):
        def log_density(p):
            a, b = value_of(p)
            return -0.5 * (a**2 + b**2 - 1.2 * a * b) / 0.64

        return jaxbnn.on_block(lambda whole: walk(lambda v: log_density(whole(v)), 1.5), block)

    nested = lambda p: (p["inner"].w, p["scale"])  # noqa: E731
    flat = lambda p: (p["a"], p["b"])  # noqa: E731
    one = jaxbnn.cycle(on(("inner", "w"), nested), on("scale", nested))
    other = jaxbnn.cycle(on("a", flat), on("b", flat))
    start = {"inner": Layer(jnp.zeros(()), jnp.ones(())), "scale": jnp.ones(())}
    state, expected = one.init(start), other.init({"a": jnp.zeros(()), "b": jnp.ones(())})
    for t in range(6):
        state, _ = one.step(jax.random.key(t), state)
        expected, _ = other.step(jax.random.key(t), expected)
        assert nested(state.position) == flat(expected.position)
    assert float(state.position["inner"].w) != 0
    assert float(state.position["inner"].b) == 1


def test_flax_like_parameters_of_a_path():
    """A gradient kernel on one leaf of nested dicts, as Flax makes them."""
    position = {"params": {"Dense_0": {"kernel": jnp.ones((2, 1)), "bias": jnp.zeros(1)}}}
    total = lambda p: -sum(jnp.sum(x**2) for x in jax.tree.leaves(p))  # noqa: E731
    kernel = jaxbnn.on_block(
        lambda whole: blackjax.mala(lambda w: total(whole(w)), 0.1), ("params", "Dense_0", "kernel")
    )
    state, _ = jax.jit(kernel.step)(jax.random.key(0), kernel.init(position))
    assert state.position["params"]["Dense_0"]["kernel"].shape == (2, 1)
    assert float(state.position["params"]["Dense_0"]["bias"][0]) == 0
