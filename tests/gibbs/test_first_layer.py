"""Tests of gibbs.first_layer and gibbs.spectrum: inputs that are decomposed once, and when not."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from jaxbnn.gibbs import IntermediateNoise, gibbs_sampler
from jaxbnn.gibbs.first_layer import can_be_kept
from jaxbnn.networks import Activation, Conv, Dense, Flatten, Network, mlp

VARIANCE = 1e-2


def salary_and_flags(rng, share, num_flags=99):
    """A column of tens of thousands beside columns of zeros and ones."""
    salary, flags = rng.lognormal(11, 0.5, (1000, 1)), rng.random((1000, num_flags)) < share
    return np.concatenate([salary, flags], axis=1).astype(np.float32)


def whitened_draws(x, rng, sweeps):
    """Return 40 chains' weights in coordinates in which their exact law is the standard normal."""
    model = IntermediateNoise(mlp((x.shape[1], 1)), VARIANCE)
    w = np.append(rng.normal(size=x.shape[1]), 0.3)
    w[0] *= 1e-5
    design = np.concatenate([x, np.ones((len(x), 1))], axis=1, dtype=float)
    y = (design @ w + VARIANCE**0.5 * rng.normal(size=len(x))).astype(np.float32)
    kernel = gibbs_sampler(model, x, y[:, None])
    start = kernel.init(model.zero_position(x, y[:, None]))

    def chain(key):
        state, flags = jax.lax.scan(
            lambda state, key: (lambda s, info: (s, info.is_divergent))(*kernel.step(key, state)),
            start,
            jax.random.split(key, sweeps),
        )
        return state.position.params[0], jnp.any(flags)

    params, divergent = jax.jit(jax.vmap(chain))(jax.random.split(jax.random.key(0), 40))
    assert not np.any(divergent)
    precision = design.T @ design / VARIANCE + np.eye(len(w))
    mean = np.linalg.solve(precision, design.T @ y.astype(float) / VARIANCE)
    found = np.concatenate([params["w"][..., 0], params["b"]], axis=1).astype(float)
    return (found - mean) @ np.linalg.cholesky(precision)


@pytest.mark.parametrize("share", [0.1, 0.9])
def test_an_input_in_other_units_hides_none_of_the_others(share, rng):
    """In float32 the flags are lost beside it in second moments, and kept their prior once.

    With .9 of them ones, it is what they tell beyond the constant feature that is lost.
    """
    x = salary_and_flags(rng, share)
    draws = whitened_draws(x, rng, sweeps=3)
    squares, means = np.sum(draws**2), 40 * np.sum(np.mean(draws, axis=0) ** 2)
    for value, degrees in ((squares, draws.size), (means, draws.shape[1])):
        low, high = stats.chi2(degrees).ppf([2.5e-7, 1 - 2.5e-7])  # 1e-6 in all
        assert low < value < high


def test_traced_inputs_that_would_be_lost_are_told_of():
    x = salary_and_flags(np.random.default_rng(0), 0.1)
    y = np.zeros((len(x), 1), np.float32)
    model = IntermediateNoise(mlp((x.shape[1], 1)), VARIANCE)

    @jax.jit
    def sweep(x):
        kernel = gibbs_sampler(model, x, y)
        return kernel.step(jax.random.key(0), kernel.init(model.zero_position(x, y)))

    state, info = sweep(x)
    assert info.is_divergent
    assert not np.any(state.position.params[0]["w"])  # nothing was drawn
    assert not sweep(x / x.max(axis=0))[1].is_divergent


@pytest.mark.parametrize("kind", ["normal", "repeated", "constant", "far", "pixels"])
def test_inputs_of_like_sizes_are_decomposed_once(kind, rng):
    x = rng.normal(size=(500, 30))
    x = {
        "normal": x,
        "repeated": np.repeat(x, 4, axis=1),
        "constant": np.concatenate([x, np.full((500, 60), -0.42)], axis=1),
        "far": x + 2000.0,  # years
        "pixels": np.where(rng.random((500, 30)) < rng.random(30) ** 3, rng.random((500, 30)), 0),
    }[kind].astype(np.float32)
    model = IntermediateNoise(mlp((x.shape[1], 3, 1)), 1e-4, (x.shape[1], 3.0))
    assert can_be_kept(model, jnp.asarray(x.T), "joint")
    y = np.zeros((500, 1), np.float32)
    kernel = gibbs_sampler(model, x, y)
    state = kernel.init(model.zero_position(x, y))
    assert state.first_layer is not None
    assert not kernel.step(jax.random.key(0), state)[1].is_divergent


@pytest.mark.short("sequential")
@pytest.mark.parametrize("order", ["sequential", "parallel", "backward"])
def test_inputs_may_be_flattened_first(order, rng):
    """The same chain as of inputs that are flat."""
    x = rng.normal(size=(6, 2, 2)).astype(np.float32)
    layers = (Dense(3), Activation("relu"), Dense(1))
    flat = IntermediateNoise(Network(layers, (4,)), 0.1)
    model = IntermediateNoise(Network((Flatten(), *layers), (2, 2)), 0.1)
    y = rng.normal(size=(6, 1)).astype(np.float32)

    def chain(model, x):
        kernel = gibbs_sampler(model, x, y, order)
        state = kernel.init(model.zero_position(x, y))
        for key in jax.random.split(jax.random.key(0), 3):
            state, _ = jax.jit(kernel.step)(key, state)
        return jax.tree.leaves(state.position)

    for one, other in zip(chain(model, x), chain(flat, x.reshape(6, 4)), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)


def test_filters_see_what_one_channel_hides(rng):
    """Of images with a channel in other units, the filters' weights of the others are drawn."""
    x = rng.normal(size=(200, 4, 4, 2)).astype(np.float32)
    x[..., 0] = 1e6 * (1 + 0.1 * x[..., 0])
    network = Network((Conv(2, (2, 2)), Flatten(), Dense(1)), (4, 4, 2))
    model = IntermediateNoise(network, VARIANCE)
    images = jnp.moveaxis(jnp.asarray(x), 0, -1)
    assert not can_be_kept(model, images, "joint")
    assert can_be_kept(model, images.at[..., 0, :].multiply(1e-6), "joint")


def test_inputs_far_beyond_their_spread_are_decomposed_anew(rng):
    """Seconds since a distant day: what float32 keeps of them is lost in products of them."""
    x = (rng.normal(size=(500, 5)) + 2e6).astype(np.float32)
    model = IntermediateNoise(mlp((5, 3, 1)), 1e-4)
    assert not can_be_kept(model, jnp.asarray(x.T), "joint")
    y = np.zeros((500, 1), np.float32)
    kernel = gibbs_sampler(model, x, y)
    state = kernel.init(model.zero_position(x, y))
    assert not kernel.step(jax.random.key(0), state)[1].is_divergent
