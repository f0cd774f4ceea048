"""Tests of gibbs.noncentred_scales: the scale of every unit, with the noise of its stages fixed.

The log ratio is that of the definition: the map of weights and latents with its automatic Jacobian,
and the model's log density. Geweke's joint test catches a lost Jacobian, noise that is scaled with
the weights, a residual that the next unit does not see, and a lost prior.
"""

import importlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxbnn.gibbs import (
    IntermediateNoise,
    gibbs_with_moves,
    noncentred_scale_moves,
    scale_moves,
)
from jaxbnn.gibbs.chain import GibbsPosition, chain_values
from jaxbnn.gibbs.hidden_units import hidden_groups, times_unit
from jaxbnn.gibbs.interweave import noise_of
from jaxbnn.gibbs.stages import split
from jaxbnn.networks import mlp
from tests.gibbs.cases import MODELS, data, drawn, patched
from tests.gibbs.test_sweeps import geweke
from tests.kit import both_sizes, for_mutants

module = importlib.import_module("jaxbnn.gibbs.noncentred_scales")
WITH_UNITS = [name for name in MODELS if name != "linear"]
NAMES = [
    name if name in ("regression", "conv") else pytest.param(name, marks=pytest.mark.long)
    for name in WITH_UNITS
]
LOG_C = 0.37


def by_definition(model, x, y, position, group, unit):
    """The position with one unit's weights scaled, and its latents at the same noise."""
    before = jnp.moveaxis(x, 0, -1)
    values = chain_values(model, position, y, x.dtype)
    errors = noise_of(model, position.params, before, values)
    factor = jnp.ones(group.size).at[unit].set(jnp.exp(LOG_C))
    params = list(position.params)
    first, last = model.stages[group.first].index, model.stages[group.following].index
    with jax.numpy_rank_promotion("allow"):
        params[first] = jax.tree.map(lambda leaf: leaf * factor, params[first])
    params[last] = params[last] | {"w": times_unit(params[last]["w"], 1 / factor)}
    befores = [before, *values]
    for j in group.own:
        values[j] = model.stages[j].mean(params, befores[j]) + errors[j]
        befores[j + 1] = values[j]
    latents = values[: len(model.latent_stages)]
    return GibbsPosition(tuple(params), *split(model.latent_stages, latents))


@pytest.mark.short("regression")
@pytest.mark.parametrize("name", NAMES)
def test_the_ratio_is_that_of_the_density_and_of_the_map(name, x64):
    model, x, position, y = drawn(name, 2)
    before = jnp.moveaxis(x, 0, -1)
    values = chain_values(model, position, y, x.dtype)
    flat, whole = jax.flatten_util.ravel_pytree(position)
    for group in hidden_groups(model):
        units = module.units_of(model, before, position.params, values, group)
        following = model.stages[group.following]
        inputs = values[group.following - 1]
        residual = values[group.following] - following.mean(position.params, inputs)
        for k in range(min(group.size, 3)):

            def moved(flat, group=group, k=k):
                return by_definition(model, x, y, whole(flat), group, k)

            new = moved(flat)
            unit = jax.tree.map(lambda leaf, k=k: leaf[k], units)
            own, change = module.proposed(model, group, unit, jnp.array(LOG_C))
            after = chain_values(model, new, y, x.dtype)
            for j, value in zip(group.own, own, strict=True):
                exact = after[j].reshape(-1, group.size, x.shape[0])[:, k]
                np.testing.assert_allclose(value, exact, rtol=1e-9, atol=1e-12)
            exact = after[group.following] - following.mean(new.params, after[group.following - 1])
            np.testing.assert_allclose(residual + change, exact, rtol=1e-9, atol=1e-9)
            jacobian = jax.jacobian(lambda v: jax.flatten_util.ravel_pytree(moved(v))[0])(flat)
            exact = model.log_density(new, x, y) - model.log_density(position, x, y)
            exact = exact + np.linalg.slogdet(np.asarray(jacobian))[1]
            ratio = module.log_ratio(model, group, unit, jnp.array(LOG_C), residual, change)
            assert float(ratio) == pytest.approx(float(exact), rel=1e-9, abs=1e-9)


@pytest.mark.short("regression")
@pytest.mark.parametrize("name", NAMES)
def test_the_noise_stays_and_what_is_rejected_too(name, x64):
    model, x, position, y = drawn(name)
    before = jnp.moveaxis(x, 0, -1)
    kernel = noncentred_scale_moves(model, x, y)
    state, info = jax.jit(kernel.step)(jax.random.key(2), kernel.init(position))
    assert info.is_accepted
    assert 0 < info.acceptance_rate <= 1
    (group, *_) = hidden_groups(model)  # of others the inputs have moved with the layer below
    pair = [(chain_values(model, p, y, x.dtype), p.params) for p in (position, state.position)]
    for j in group.own:
        old, new = (noise_of(model, params, before, values)[j] for values, params in pair)
        np.testing.assert_allclose(new, old, rtol=1e-9, atol=1e-9)
    # A unit that did not move has the very numbers it had.
    index = model.stages[group.first].index
    old, new = (np.asarray(params[index]["w"]) for _, params in pair)
    is_kept = np.all(old == new, axis=tuple(range(old.ndim - 1)))
    old, new = (
        np.asarray(values[group.first]).reshape(-1, group.size, x.shape[0])[:, is_kept]
        for values, _ in pair
    )
    np.testing.assert_array_equal(new, old)


def alone(model, x, y, order, bias):
    return noncentred_scale_moves(model, x, y, 1.5)


def after_gibbs(model, x, y, order, bias):
    move = noncentred_scale_moves(model, x, y, 1.5)
    return gibbs_with_moves(model, x, y, [move], order)


@both_sizes(20_000)
def test_the_joint_law_is_left_invariant(num_chains):
    result = geweke("conv", "sequential", "joint", num_chains, make=alone)
    assert result.passes, str(result)


@pytest.mark.long
@pytest.mark.parametrize(
    ("name", "make"),
    [(name, alone) for name in WITH_UNITS if name != "conv"]
    + [("regression", after_gibbs), ("deep conv", after_gibbs)],
)
def test_more_joint_laws_are_left_invariant(name, make):
    result = geweke(name, "sequential", "joint", 400_000, make=make)
    assert result.passes, str(result)


def lost_jacobian(log_ratio, model, group, unit, log_c, residual, change):
    found = log_ratio(model, group, unit, log_c, residual, change)
    power = module._num_incoming(model.stages[group.first]) - unit.outgoing.size
    return found - power * log_c


def lost_prior(log_ratio, model, group, unit, log_c, residual, change):
    unit = unit._replace(incoming_energy=0.0 * unit.incoming_energy)
    return log_ratio(model, group, unit, log_c, residual, change)


def lost_outgoing_prior(log_ratio, model, group, unit, log_c, residual, change):
    unit = unit._replace(outgoing_energy=0.0 * unit.outgoing_energy)
    return log_ratio(model, group, unit, log_c, residual, change)


def lost_fit(log_ratio, model, group, unit, log_c, residual, change):
    return log_ratio(model, group, unit, log_c, residual, 0 * change)


def stale_residual(proposed, *arguments):
    """The next unit does not see what this one has changed, nor does the ratio."""
    new, change = proposed(*arguments)
    return new, 0 * change


def scaled_noise(proposed, model, group, unit, log_c):
    """Latents are scaled with their noise, as in the other move, at this one's ratio."""
    _, change = proposed(model, group, unit, log_c)
    return [jnp.exp(log_c) * value for value in unit.values], change


def mutated(mutant):
    name = "proposed" if mutant in (stale_residual, scaled_noise) else "log_ratio"
    right = getattr(module, name)

    def make(model, x, y, order, bias):
        kernel = noncentred_scale_moves(model, x, y, 1.5)
        return patched(kernel, module, name, lambda *arguments: mutant(right, *arguments))

    return make


@for_mutants(20_000)
@pytest.mark.parametrize(
    "mutant",
    [lost_jacobian, lost_prior, lost_outgoing_prior, lost_fit, stale_residual, scaled_noise],
)
def test_mutants_are_found(mutant, num_chains):
    result = geweke("regression", "sequential", "joint", num_chains, make=mutated(mutant))
    assert not result.passes, str(result)


def test_steps_have_widths_of_a_tenth_to_one():
    keys = jax.random.split(jax.random.key(0), 200_000)
    steps = jax.vmap(lambda key: module.draw_log_scale(key, 0.4, np.float32))(keys)
    # E s^2 for log s uniform over a decade: (1 - 1/100) / (2 log 10) of the square of the longest.
    assert float(jnp.mean(steps**2)) == pytest.approx(0.16 * 0.99 / (2 * np.log(10)), rel=0.03)
    assert float(jnp.mean(steps)) == pytest.approx(0, abs=2e-3)


def test_bad_input():
    x = data("linear", 3, np.float32)
    model, x, _, y = drawn("linear", dtype=np.float32)
    with pytest.raises(ValueError, match="the network has no hidden layer"):
        noncentred_scale_moves(model, x, y)
    model, x, _, y = drawn("regression", dtype=np.float32)
    with pytest.raises(ValueError, match="step_size must be positive"):
        noncentred_scale_moves(model, x, y, 0.0)
    with pytest.raises(ValueError, match="x holds nan"):
        noncentred_scale_moves(model, x.at[0, 0].set(jnp.nan), y)


def test_a_first_layer_that_is_kept_is_brought_up_to_date():
    """A step depends on the position alone, whatever the sampler has cached."""
    model, x, position, y = drawn("regression", 6, np.float32)
    # This order keeps residuals of the first layer, and scales change them.
    moves = [noncentred_scale_moves(model, x, y), scale_moves(model, x)]
    kernel = gibbs_with_moves(model, x, y, moves, "sequential")
    init, step = jax.jit(kernel.init), jax.jit(kernel.step)
    state, _ = step(jax.random.key(3), init(position))
    one, _ = step(jax.random.key(4), state)
    fresh, _ = step(jax.random.key(4), init(state.position))
    for a, b in zip(jax.tree.leaves(one.position), jax.tree.leaves(fresh.position), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-4)


def test_a_uniform_of_zero_accepts_no_bad_move():
    """Once in 2^23 draws a uniform is 0, of which no log ratio is smaller; this key has one."""
    model = IntermediateNoise(mlp((1, 1, 1)), 1e-4)
    x = jax.random.normal(jax.random.key(1), (500, 1))
    params = model.sample_prior(jax.random.key(2))
    position, y = model.simulate(jax.random.key(3), params, x)
    key = jax.random.key(18997749)
    kernel = noncentred_scale_moves(model, x, y, 4.0)
    key_accept = jax.random.split(jax.random.fold_in(jax.random.fold_in(key, 0), 0))[1]
    assert float(jax.random.uniform(key_accept)) == 0
    state, info = jax.jit(kernel.step)(key, kernel.init(position))
    assert float(info.acceptance_rate) < 1e-6
    assert not bool(jnp.any(info.is_accepted))
    for new, old in zip(jax.tree.leaves(state.position), jax.tree.leaves(position), strict=True):
        np.testing.assert_array_equal(new, old)
