"""Variances, precisions, proposals and counts reach the steps that they are for."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxbnn.gibbs import IntermediateNoise, interweave, interwoven_gibbs, turn_units
from jaxbnn.networks import mlp
from tests.gibbs.cases import drawn


def test_without_biases_nothing_depends_on_their_precision():
    network, x = mlp((2, 3, 1), bias=False), jax.random.normal(jax.random.key(3), (6, 2))
    model = IntermediateNoise(network, 0.1, 2.0)
    params = jax.jit(model.sample_prior)(jax.random.key(1))
    position, y = jax.jit(model.simulate)(jax.random.key(0), params, x)

    @jax.jit
    def rates(bias_precision):
        kernel = turn_units(IntermediateNoise(network, 0.1, 2.0, bias_precision), x, y)
        keys = jax.random.split(jax.random.key(9), 20)
        _, infos = jax.vmap(kernel.step, (0, None))(keys, kernel.init(position))
        return infos.acceptance_rate

    np.testing.assert_allclose(rates(1.0), rates(50.0), rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("output", ["regression", "probit"])
def test_one_row_is_not_compared_with_all(output, annotations_unchecked):
    """It was broadcast against the others."""
    model = IntermediateNoise(mlp((2, 3, 2)), 0.1, output=output)
    params = model.sample_prior(jax.random.key(1))
    position, y = model.simulate(jax.random.key(0), params, jnp.ones((6, 2)))
    alone, _ = model.simulate(jax.random.key(0), params, jnp.ones((1, 2)))
    with pytest.raises(ValueError, match="x has 6, y has 1 and the latents have"):
        model.log_density(position, jnp.ones((6, 2)), y[:1])
    with pytest.raises(ValueError, match="x has 1, y has 6"):
        model.log_density(position, jnp.ones((1, 2)), y)
    with pytest.raises(ValueError, match="the latents have 1"):
        model.log_terms(alone, jnp.ones((6, 2)), y)


def test_activations_with_steps_are_interwoven_by_pcn():
    """Sign has no slope that HMC could follow."""
    model, x, position, y = drawn("wide", 6, np.float32)

    @functools.partial(jax.jit, static_argnums=0)
    def after(proposal, rng_key):
        kernel = interweave(model, x, y, 0.05, proposal=proposal)
        return kernel.step(rng_key, kernel.init(position))

    auto, pcn = (after(proposal, jax.random.key(9)) for proposal in ("auto", "pcn"))
    jax.tree.map(np.testing.assert_array_equal, auto, pcn)
    assert float(auto[1].acceptance_rate) > 0.01


def test_no_candidates_leave_the_redraws_out():
    """The redraws themselves refuse to have none."""
    model, x, _, y = drawn("regression", 4, np.float32)
    interwoven_gibbs(model, x, y, 0.3, num_candidates=0)


def test_a_random_position_has_the_noise_of_the_model():
    """Of 1,500 pre-activations: 5.5 standard errors of a variance, two-sided 1e-7."""
    model, x, _, y = drawn("regression", 500, np.float32)
    start = jax.jit(model.random_position)(jax.random.key(3), x, y)
    noise = start.pre[0] - model.stages[0].mean(start.params, x.T)
    np.testing.assert_allclose(jnp.var(noise), 0.3, rtol=5.5 * (2 / 1500) ** 0.5)
