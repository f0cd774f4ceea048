"""What an Info says is what happened: rates, what is accepted, what is divergent."""

import importlib
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from blackjax.base import SamplingAlgorithm

from jaxbnn.gibbs import (
    IntermediateNoise,
    gibbs_with_moves,
    interweave,
    noncentred_scale_moves,
    redraw_noisy_units,
    scale_moves,
    turn_units,
)
from jaxbnn.kernels import cycle, mix
from jaxbnn.networks import mlp
from tests.gibbs.cases import drawn


def many(kernel, position, num_steps=600):
    """Return states and infos of one step from one position, with as many keys."""

    @jax.jit
    def steps(rng_key):
        keys = jax.random.split(rng_key, num_steps)
        return jax.vmap(kernel.step, (0, None))(keys, kernel.init(position))

    return steps(jax.random.key(9))


def simulated(model, x):
    """Return a position and labels that the model draws."""
    params = jax.jit(model.sample_prior)(jax.random.key(1))
    return jax.jit(model.simulate)(jax.random.key(0), params, x)


def check_rates(rates, happened):
    """Probabilities and what happened have one mean: six standard errors, two-sided 2e-9."""
    differences = np.asarray(rates, float) - np.asarray(happened, float)
    assert abs(np.mean(differences)) < 6 * np.std(differences) / len(differences) ** 0.5 + 1e-9


def test_units_are_redrawn_at_the_rate_that_is_told():
    model, x, position, y = drawn("regression", 6, np.float32)
    _, infos = many(redraw_noisy_units(model, x, y, 3), position)
    check_rates(infos.acceptance_rate, infos.is_accepted)


def test_units_are_turned_at_the_rate_that_is_told():
    model, x = IntermediateNoise(mlp((2, 3, 1)), 0.3), jax.random.normal(jax.random.key(3), (5, 2))
    position, y = simulated(model, x)
    _, infos = many(turn_units(model, x, y), position)
    check_rates(infos.acceptance_rate, infos.is_accepted)


def test_scales_at_fixed_noise_move_at_the_rate_that_is_told():
    """The mean over the units, each of which is accepted for itself."""
    model, x, position, y = drawn("regression", 6, np.float32)
    states, infos = many(noncentred_scale_moves(model, x, y, 3.0), position)
    has_moved = states.position.params[0]["b"] != position.params[0]["b"][None]
    check_rates(infos.acceptance_rate, np.mean(np.asarray(has_moved), axis=1))


class Rate(NamedTuple):
    acceptance_rate: Any
    is_accepted: Any
    is_divergent: Any


class Position(NamedTuple):
    position: Any


def test_the_rate_of_an_interweaving_is_the_mean_over_its_layers(monkeypatch):
    """With a step in each layer that stands still, and tells 1 in the first and 0 in the second."""
    rates = [1.0, 0.0]

    def stands_still(*_):
        def step(rng_key, state):
            return state, Rate(jnp.float32(rates.pop(0)), jnp.array(True), jnp.array(False))

        return SamplingAlgorithm(lambda position, rng_key=None: Position(position), step)

    monkeypatch.setattr(importlib.import_module("jaxbnn.gibbs.interweave"), "pcn", stands_still)
    model, x = IntermediateNoise(mlp((2, 3, 3, 1)), 0.1), jnp.ones((4, 2))
    position, y = simulated(model, x)
    kernel = interweave(model, x, y, 0.5, proposal="pcn")
    _, info = kernel.step(jax.random.key(2), kernel.init(position))
    assert not rates
    assert float(info.acceptance_rate) == 0.5


def test_a_sweep_with_moves_tells_whether_the_first_was_accepted():
    """With a step size of 100 it never is, and every sweep is."""
    model, x, position, y = drawn("regression", 6, np.float32)
    moves = [interweave(model, x, y, 100.0, 1)]
    _, infos = many(gibbs_with_moves(model, x, y, moves), position, 5)
    assert not np.any(infos.is_accepted)


@pytest.mark.long
def test_a_first_move_that_reports_nothing_has_no_rate_to_adapt_to():
    """The sweep's rate of 1 would drive any step size up, whatever the move does."""
    model, x, position, y = drawn("regression", 6, np.float32)
    silent = scale_moves(model, x)
    moves = [mix([silent, tells_nothing(silent)]), interweave(model, x, y, 0.1, 1)]
    kernel = gibbs_with_moves(model, x, y, moves)
    _, info = jax.jit(kernel.step)(jax.random.key(0), jax.jit(kernel.init)(position))
    assert info.acceptance_rate is None
    assert info.is_accepted is None
    assert not bool(info.is_divergent)
    kernel = gibbs_with_moves(model, x, y, [cycle(tells_nothing(silent), tells_nothing(silent))])
    _, info = jax.jit(kernel.step)(jax.random.key(0), jax.jit(kernel.init)(position))
    assert info.acceptance_rate is None
    assert not bool(info.is_divergent)


def tells_nothing(kernel):
    return kernel._replace(step=lambda rng_key, state: (kernel.step(rng_key, state)[0], ()))


def test_a_sweep_over_infinite_labels_is_divergent():
    model, x, position, y = drawn("regression", 6, np.float32)

    @jax.jit
    def is_divergent(y):
        kernel = gibbs_with_moves(model, x, y, [scale_moves(model, x)])
        return kernel.step(jax.random.key(3), kernel.init(position))[1].is_divergent

    assert not is_divergent(y)
    assert is_divergent(y.at[0, 0].set(jnp.inf))


def test_a_unit_with_infinite_latents_is_divergent_and_left_as_it_is():
    model, x, position, y = drawn("regression", 6, np.float32)
    kernel = redraw_noisy_units(model, x, y, 3)
    lost = position._replace(post=(jnp.full_like(position.post[0], jnp.inf),))
    state, info = jax.jit(kernel.step)(jax.random.key(0), kernel.init(lost))
    assert bool(info.is_divergent)
    assert not bool(info.is_accepted)
    jax.tree.map(np.testing.assert_array_equal, state.position, lost)
