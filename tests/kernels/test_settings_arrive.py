"""Keys, schedules, parameters and options reach the kernels inside other kernels."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from blackjax.base import SamplingAlgorithm

import jaxbnn
from jaxbnn.kernels import (
    Replicas,
    cycle,
    jittered,
    on_block,
    pcn,
    power_posterior,
    smmala,
    underdamped_langevin,
)


def log_normal(x):
    return -0.5 * jnp.sum(x**2)


def no_terms(x):
    return jnp.zeros(1)


def langevin(log_density, step_size=0.1):
    """Its init draws momenta, which are zero without a key."""
    return underdamped_langevin(log_density, step_size, 0.5)


def anywhere(temperature, _):
    """A kernel that accepts everything."""
    return pcn(lambda x: temperature * jnp.zeros(1), 0.3)


def test_a_block_begins_with_momenta():
    kernel = on_block(lambda whole: langevin(lambda block: log_normal(whole(block)["a"])), "a")
    state = kernel.init({"a": jnp.zeros(3), "b": jnp.zeros(1)}, jax.random.key(0))
    assert np.all(state.block.momentum != 0)


def test_a_jittered_kernel_begins_with_momenta():
    kernel = jittered(lambda step_size: langevin(log_normal, step_size), 0.1)
    assert np.all(kernel.init(jnp.zeros(3), jax.random.key(0)).momentum != 0)


def test_every_rung_begins_with_momenta_of_its_own():
    kernel = power_posterior(
        lambda temperature, _: langevin(lambda x: temperature * log_normal(x)),
        log_normal, log_normal, [0.5, 1.0],
    )  # fmt: skip
    momenta = kernel.init(jnp.zeros(3), jax.random.key(0)).inner.momentum
    assert len(np.unique(momenta)) == 6


class Drawn(NamedTuple):
    position: Any
    number: Any
    auxiliary = ()


def test_each_refresh_in_a_cycle_has_a_key_of_its_own():
    """As a kernel needs whose init draws something."""

    def init(position, rng_key=None):
        assert rng_key is not None
        return Drawn(position, jax.random.normal(rng_key))

    draws = SamplingAlgorithm(init, lambda rng_key, state: (state, ()))
    kernel = cycle(draws, draws)
    state, _ = kernel.step(jax.random.key(1), kernel.init(jnp.zeros(2), jax.random.key(0)))
    first, second = state.states
    assert first.number != second.number


@pytest.mark.parametrize("swap_every", [1, 2])
def test_even_and_odd_pairs_take_turns(swap_every):
    """Whatever the interval of the rounds is."""
    kernel = power_posterior(
        anywhere, log_normal, no_terms, [0.2, 0.6, 1.0], swap="even_odd", swap_every=swap_every
    )
    state, rounds, step = kernel.init(jnp.zeros(1)), [], jax.jit(kernel.step)
    for key in jax.random.split(jax.random.key(0), 4 * swap_every):
        state, info = step(key, state)
        rounds.append((int(info.swaps.proposals[0, 1]), int(info.swaps.proposals[1, 2])))
    assert [pair for pair in rounds if pair != (0, 0)] == [(1, 0), (0, 1)] * 2


def test_rungs_of_one_temperature_and_other_parameters_keep_their_own_caches():
    """Replicas are swapped, and what is cached of them depends on the rung's parameter."""

    def make_kernel(temperature, softabs):
        return smmala(lambda x: -0.05 * temperature * jnp.sum(x**2), 0.1, softabs=softabs)

    kernel = power_posterior(
        make_kernel, log_normal, log_normal, [1.0, 1.0],
        parameters=jnp.array([1.0, 100.0]), swap="even_odd",
    )  # fmt: skip
    state = kernel.init(Replicas(jnp.array([[0.0], [3.0]])))
    step = jax.jit(kernel.step)
    for key in jax.random.split(jax.random.key(0), 3):
        state, _ = step(key, state)
    fresh = kernel.init(Replicas(state.replicas)).inner.metric.eigenvalues
    np.testing.assert_allclose(state.inner.metric.eigenvalues, fresh, rtol=1e-5)


def test_at_a_large_beta_neighbours_alone_are_partners():
    kernel = power_posterior(anywhere, log_normal, no_terms, [0.1, 0.3, 0.6, 1.0], beta=50.0)
    step = jax.jit(jax.vmap(kernel.step, (0, None)))
    _, info = step(jax.random.split(jax.random.key(0), 200), kernel.init(jnp.zeros(1)))
    proposals = np.sum(info.swaps.proposals, axis=0)
    assert proposals[0, 1] > 0
    assert proposals[0, 2] == proposals[0, 3] == proposals[1, 3] == 0


def test_a_temperature_that_is_no_number_is_refused():
    with pytest.raises(ValueError, match="temperatures must be finite"):
        power_posterior(anywhere, log_normal, log_normal, [0.1, np.nan, 1.0])


class Inner(NamedTuple):
    position: Any
    scale: Any
    auxiliary = ("scale",)


class Outer(NamedTuple):
    position: Any
    parts: dict
    auxiliary = ()


def test_what_states_in_a_dict_have_learnt_is_kept():
    def init(position, rng_key=None):
        return Outer(position, {"a": Inner(position, jnp.zeros(()))})

    kernel = SamplingAlgorithm(init, lambda rng_key, state: (state, ()))
    learnt = Outer(jnp.zeros(1), {"a": Inner(jnp.zeros(1), jnp.full((), 5.0))})
    part = jaxbnn.refresh(kernel, learnt, jnp.ones(1)).parts["a"]
    assert float(part.scale) == 5
    assert float(part.position[0]) == 1
