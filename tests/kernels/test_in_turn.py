"""Tests of jaxbnn.in_turn: one after another, chains take the steps they take at once."""

import blackjax
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxbnn
from jaxbnn import in_turn

CENTRES = np.arange(12.0, dtype=np.float32).reshape(4, 3) / 4


def mala(parameters, centres):
    """Each chain has a target of its own."""
    centre = centres[parameters["which"]]
    return blackjax.mala(lambda x: -jnp.sum((x - centre) ** 2) / 2, parameters["step_size"])


def test_chains_are_those_of_the_kernel_given():
    """Warm-up included, for steps that close over what differs from chain to chain."""
    drawn = [
        jaxbnn.sample(
            jax.random.key(0),
            lambda parameters, data, wrap=wrap: wrap(jaxbnn.repeat(mala(parameters, data), 3)),
            np.zeros((4, 3), np.float32),
            200,
            parameters={"step_size": 0.1, "which": np.arange(4)},
            data=CENTRES,
            num_warmup=100,
            adapt=jaxbnn.dual_averaging(0.6),
            progress=False,
        )
        for wrap in (lambda kernel: kernel, in_turn)
    ]
    np.testing.assert_allclose(drawn[0].positions, drawn[1].positions, atol=1e-4)
    np.testing.assert_array_equal(drawn[0].infos.is_divergent, drawn[1].infos.is_divergent)


@pytest.mark.parametrize("shape", [(6,), (2, 3)], ids=["chains", "chains of chains"])
def test_a_step_is_taken_for_each_of_the_chains(shape):
    kernel = in_turn(jaxbnn.pcn(lambda u: -jnp.sum(u**4), 0.5))
    init, step = kernel.init, kernel.step
    for _ in shape:
        init, step = jax.vmap(init), jax.vmap(step)
    starts = jnp.linspace(-1, 1, 12).reshape(*shape, 2)
    keys = jax.random.split(jax.random.key(1), shape)
    with jax.debug_key_reuse(False):  # which takes a loop over rows of keys for reuse
        states, infos = jax.jit(step)(keys, init(starts))
    plain = jaxbnn.pcn(lambda u: -jnp.sum(u**4), 0.5)
    for index in np.ndindex(shape):
        key = jax.random.split(jax.random.key(1), shape)[index]
        state, info = plain.step(key, plain.init(starts[index]))
        np.testing.assert_allclose(states.position[index], state.position, rtol=1e-6)
        assert infos.is_accepted[index] == info.is_accepted


def test_trees_do_not_wait_for_each_other():
    """The program has a loop over chains, in which a tree grows for one chain alone."""
    kernel = blackjax.nuts(lambda x: -jnp.sum(x**2) / 2, 0.3, jnp.ones(2))
    states = jax.vmap(kernel.init)(jnp.zeros((5, 2)))
    keys = jax.random.split(jax.random.key(2), 5)
    for wrap, num_chains in [(lambda kernel: kernel, 5), (in_turn, 1)]:
        with jax.debug_key_reuse(False):  # which takes NUTS's branches for reuse
            program = str(jax.make_jaxpr(jax.vmap(wrap(kernel).step))(keys, states))
        trees = program[program.index("while[") :]
        assert ("f32[5,2] = mul" in trees) == (num_chains == 5)


def test_what_is_no_kernel_is_refused():
    with pytest.raises(TypeError, match="kernel"):
        in_turn(lambda key, state: state)
    kernel = in_turn(jaxbnn.pcn(lambda u: -u[0], 0.5))
    with pytest.raises(TypeError, match=r"start with kernel\.init"):
        kernel.step(jax.random.key(0), jnp.zeros(2))
