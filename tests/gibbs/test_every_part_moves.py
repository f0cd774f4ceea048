"""No unit, layer or latent is left out of the moves that are for it."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxbnn.gibbs import (
    IntermediateNoise,
    gibbs_sampler,
    noncentred_scale_moves,
    redraw_noisy_units,
    scale_moves,
)
from jaxbnn.gibbs.turns import random_turn
from jaxbnn.networks import mlp
from tests.gibbs.cases import drawn


def has_moved(kernel, position, num_steps):
    """Return where each weight matrix is another one, after one step with as many keys."""

    @jax.jit
    def params_after(rng_key):
        keys = jax.random.split(rng_key, num_steps)
        return jax.vmap(kernel.step, (0, None))(keys, kernel.init(position))[0].position.params

    old = [np.asarray(layer["w"]) for layer in position.params if layer]
    new = [np.asarray(layer["w"]) for layer in params_after(jax.random.key(9)) if layer]
    return [after != before for after, before in zip(new, old, strict=True)]


def test_turns_mix_two_units_in_three_eighths_of_all():
    """Half of them rotate or reflect, by 0 or 180 degrees in a quarter of these.

    Five standard errors of 500 turns, two-sided 6e-7.
    """
    keys = jax.random.split(jax.random.key(0), (2, 500))
    turns = jax.jit(jax.vmap(random_turn, (0, 0, None)))(*keys, jnp.array([0.5, 1.0, 1.5]))
    is_mixed = [np.any(np.abs(turn - np.diag(np.diag(turn))) > 1e-3) for turn in np.asarray(turns)]
    assert abs(np.mean(is_mixed) - 3 / 8) < 5 * (3 / 8 * 5 / 8 / 500) ** 0.5


def test_every_unit_is_redrawn_in_some_steps_and_one_in_each():
    """A third of 300 steps each: 5.4 standard errors, two-sided, 2e-7 in all."""
    model, x, position, y = drawn("regression", 6, np.float32)
    outgoing = has_moved(redraw_noisy_units(model, x, y, 3), position, 300)[1]
    had_its_turn = outgoing.any(axis=2)
    assert np.all(had_its_turn.sum(axis=1) == 1)
    assert np.all(np.abs(had_its_turn.mean(axis=0) - 1 / 3) < 5.4 * (2 / 9 / 300) ** 0.5)


TWO_HIDDEN_LAYERS = IntermediateNoise(mlp((2, 3, 3, 1)), 0.1)
MOVES = {
    "redraws": lambda x, y: redraw_noisy_units(TWO_HIDDEN_LAYERS, x, y, 3),
    "scales": lambda x, y: scale_moves(TWO_HIDDEN_LAYERS, x),
    "scales at fixed noise": lambda x, y: noncentred_scale_moves(TWO_HIDDEN_LAYERS, x, y),
}


@pytest.mark.parametrize("name", MOVES)
def test_the_units_of_every_hidden_layer_are_moved(name):
    """Outgoing weights of the second one are those of the last layer.

    The rarest are incoming weights that are redrawn, by 0.155 of all steps: of 100 none by 5e-8.
    """
    model, x = TWO_HIDDEN_LAYERS, jax.random.normal(jax.random.key(3), (5, 2))
    params = jax.jit(model.sample_prior)(jax.random.key(1))
    position, y = jax.jit(model.simulate)(jax.random.key(0), params, x)
    first, second, last = has_moved(MOVES[name](x, y), position, 100)
    assert first.any()
    assert second.any()
    assert last.any()


@pytest.mark.short("sequential", "parallel")
@pytest.mark.parametrize("order", ["sequential", "parallel", "backward"])
def test_a_sweep_draws_every_weight_and_latent(order):
    """Also those of a pooling between two layers of weights."""
    model, x, position, y = drawn("conv", 4, np.float32)
    kernel = gibbs_sampler(model, x, y, order)
    state, _ = jax.jit(kernel.step)(jax.random.key(1), jax.jit(kernel.init)(position))
    for new, old in zip(jax.tree.leaves(state.position), jax.tree.leaves(position), strict=True):
        assert np.all(new != old)
