"""Optimised starts: units to spare are merged without a change of what the network does."""

import dataclasses
from importlib import import_module

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from jaxbnn.gibbs import IntermediateNoise
from jaxbnn.networks import apply, mlp
from jaxbnn.targets import Gaussian, Posterior, normal_prior
from jaxbnn.thermalization import classical_posterior, optimised_start, teacher_student
from jaxbnn.thermalization.optimised_starts import _merged, _widened, merge_cost, merge_pair

MODEL = IntermediateNoise(mlp((3, 2, 1)), 1e-4, (3.0, 2.0), (3.0, 2.0))


def parallel_units(angle):
    """A network of two outputs whose units 1 and 3 are apart by this angle, unequal otherwise."""
    rng = np.random.default_rng(0)
    w, b, v = rng.normal(size=(2, 4)), rng.normal(size=4), rng.normal(size=(4, 2))
    v[3] = 0.7 * v[1]  # what they contribute points the same way
    turn = np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
    w[:, 3], b[3] = 1.7 * turn @ w[:, 1], 1.7 * b[1]
    return {"w": jnp.asarray(w), "b": jnp.asarray(b)}, (), {"w": jnp.asarray(v), "b": jnp.ones(2)}


@pytest.mark.short("leaky_relu")
@pytest.mark.parametrize("activation", ["relu", "leaky_relu", "abs", "identity"])
def test_parallel_units_are_merged_without_a_change(activation, x64):
    network, params = mlp((2, 4, 2), activation), parallel_units(0.0)
    x = jax.random.normal(jax.random.key(0), (50, 2))
    cost = merge_cost(params)
    assert float(cost[1, 3]) == pytest.approx(0, abs=1e-12)
    assert float(jnp.sort(cost.ravel())[2]) > 1e-3
    merged = merge_pair(params, 1, 3)
    np.testing.assert_allclose(
        apply(network, merged, x), apply(network, params, x), rtol=1e-6, atol=1e-6
    )
    np.testing.assert_array_equal(merged[2]["w"][3], 0)


@pytest.mark.third_party(reason="Optax adds whole numbers to floats")
def test_what_is_taken_out_is_the_merged_unit_and_nothing_else():
    network = mlp((2, 4, 2))
    params = jax.tree.map(lambda leaf: leaf.astype(np.float32), parallel_units(0.0))
    x = jax.random.normal(jax.random.key(0), (50, 2))
    posterior = Posterior(network, normal_prior(network), Gaussian(1.0), x, jnp.zeros((50, 2)))
    fewer = _merged(posterior, params, 1, optax.sgd(0.0), 1)
    assert fewer[0]["w"].shape == (2, 3)
    np.testing.assert_allclose(
        apply(mlp((2, 3, 2)), fewer, x), apply(network, params, x), rtol=1e-4, atol=1e-5
    )


def test_units_that_are_out_are_neither_merged_again_nor_trained():
    seen = []
    with pytest.MonkeyPatch.context() as patch:
        room = import_module("jaxbnn.thermalization.optimised_starts")
        patch.setattr(room, "_trained", lambda _, params, *more: seen.append(more[-1]) or params)
        params = jax.tree.map(lambda leaf: leaf.astype(np.float32), parallel_units(0.0))
        with jax.disable_jit():
            fewer = _merged(None, params, 2, None, 1)
    assert fewer[0]["w"].shape == (2, 2)
    once, twice = (np.asarray(mask[0]["b"]) for mask in seen)
    assert once.tolist() in ([1, 0, 1, 1], [1, 1, 1, 0])
    assert twice.sum() == 2
    assert np.all(twice <= once)


def test_the_cost_follows_the_change_of_the_outputs(x64):
    """Of nearly parallel units: both of fourth order in the angle."""
    network, x = mlp((2, 4, 2)), jax.random.normal(jax.random.key(0), (4000, 2))

    def cost_and_change(angle):
        params = parallel_units(angle)
        change = apply(network, merge_pair(params, 1, 3), x) - apply(network, params, x)
        return float(merge_cost(params)[1, 3]), float(jnp.mean(change**2))

    near, far = cost_and_change(0.01), cost_and_change(0.02)
    assert far[0] / near[0] == pytest.approx(16, rel=0.01)
    assert far[1] / near[1] == pytest.approx(16, rel=0.2)


@pytest.mark.long
@pytest.mark.third_party(reason="Optax adds whole numbers to floats")
def test_the_start_finds_the_teacher():
    """On two of four data sets with noisy labels, which is no promise; latents have noise."""
    keys = jax.random.split(jax.random.key(1), 4)
    found = jax.vmap(lambda key: teacher_student(key, MODEL, 200, 200, num_random=0))(keys)

    def start(key, x, y):
        return optimised_start(key, MODEL, x, y, num_updates=1500, num_refits=150)

    starts = jax.jit(jax.vmap(start))(keys, found.x, found.y)
    outputs = jax.vmap(MODEL.network.apply)(starts.params, found.x_test)
    errors = jnp.mean((outputs - found.f_test) ** 2, axis=(1, 2))
    assert np.sum(np.asarray(errors) < 2e-5) >= 2
    mean = jax.vmap(lambda first, x: (x @ first["w"] + first["b"][None]).T)
    noise = starts.pre[0] - mean(starts.params[0], found.x)
    assert float(jnp.var(noise)) == pytest.approx(1e-4, rel=0.2)


@pytest.mark.third_party(reason="Optax adds whole numbers to floats")
def test_any_optimizer_and_networks_that_cannot_be_merged():
    deep = IntermediateNoise(mlp((3, 4, 3, 2), "sign"), 0.5, output="probit")
    x = jax.random.normal(jax.random.key(0), (20, 3))
    _, y = deep.simulate(jax.random.key(1), deep.sample_prior(jax.random.key(2)), x)
    start = optimised_start(jax.random.key(3), deep, x, y, optimizer=optax.sgd(0.1), num_updates=20)
    density = classical_posterior(deep, x, y).log_density
    first = deep.sample_prior(jax.random.split(jax.random.key(3))[0])
    assert float(density(start.params)) > float(density(first))
    with pytest.raises(ValueError, match="give num_extra=0 for this one"):
        optimised_start(jax.random.key(3), deep, x, y, num_extra=2)
    with pytest.raises(ValueError, match="num_updates"):
        optimised_start(jax.random.key(3), deep, x, y, num_updates=0)
    with pytest.raises(TypeError, match="optimizer must do with gradients"):
        optimised_start(jax.random.key(3), deep, x, y, optimizer=optax.lbfgs())


@pytest.mark.third_party(reason="Optax adds whole numbers to floats")
def test_one_output_of_two_classes():
    model = IntermediateNoise(mlp((2, 3, 1)), 0.5, output="binary_probit")
    x = jax.random.normal(jax.random.key(0), (20, 2))
    y = (x[:, 0] > 0).astype(int)
    start = optimised_start(jax.random.key(1), model, x, y, num_updates=200, num_refits=20)
    density = classical_posterior(model, x, y).log_density
    at_zero = density(jax.tree.map(jnp.zeros_like, start.params))
    assert float(density(start.params)) > float(at_zero) + 2


def test_units_to_spare_change_the_network_alone():
    wide = dataclasses.replace(MODEL, network=_widened(MODEL.network, 3))
    assert wide.sample_prior(jax.random.key(0))[0]["w"].shape == (3, 5)
    assert wide.network.layers[1:] == MODEL.network.layers[1:]
