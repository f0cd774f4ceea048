"""Tests of kernels.arguments and kernels.trees: every kernel keeps the contract. A new kernel is
one row of KERNELS.
"""

from typing import NamedTuple

import blackjax
import jax.numpy as jnp
import pytest
from blackjax.base import SamplingAlgorithm
from blackjax.mcmc.random_walk import normal
from jaxtyping import PyTree

from jaxbnn.gibbs import IntermediateNoise, gibbs_sampler
from jaxbnn.kernels import (
    cycle,
    jittered,
    mix,
    on_block,
    pcn,
    pcnl,
    power_posterior,
    repeat,
    smmala,
    truncated_mala,
    underdamped_langevin,
)
from jaxbnn.networks import Activation, Dense, Network
from tests.kit.conformance import KernelCase, conformance_params


def rwm(log_density, step_size):
    return blackjax.additive_step_random_walk(log_density, normal(jnp.asarray(step_size)))


def hmc(log_density, step_size):
    return blackjax.hmc(log_density, step_size, jnp.ones(4), num_integration_steps=3)


def rwm_then_mala(log_density, step_size):
    return cycle(rwm(log_density, step_size), blackjax.mala(log_density, step_size**2 / 2))


def rwm_or_mala(log_density, step_size):
    return mix([rwm(log_density, step_size), blackjax.mala(log_density, step_size**2 / 2)])


def rwm_twice(log_density, step_size):
    return repeat(rwm(log_density, step_size), 2)


def first_layer(log_density, step_size):
    return on_block(lambda whole: rwm(lambda block: log_density(whole(block)), step_size), 0)


def rwm_of_random_size(log_density, step_size):
    return jittered(lambda size: rwm(log_density, size), step_size)


def underdamped(log_density, step_size):
    return underdamped_langevin(log_density, step_size, refreshment=0.5)


def mala_in_a_box(log_density, step_size):
    return truncated_mala(log_density, step_size, lower=-2.0, upper=({"w": 1.0, "b": 3.0}, (), 2.0))


def three_rungs(log_density, step_size):
    def kernel_at(temperature, parameters):
        return rwm(lambda x: temperature * log_density(x), step_size)

    return power_posterior(
        kernel_at, lambda x: 0.0, log_density, (0.3, 0.6, 1.0), tempered="posterior", swap_every=2
    )


class OfWeights(NamedTuple):
    position: PyTree
    whole: PyTree


def gibbs_of_weights(log_density, step_size):
    """The Gibbs sampler of its own model, seen as a kernel of the weights alone."""
    network = Network((Dense(1), Activation("relu"), Dense(1, bias=False)), (2,))
    model = IntermediateNoise(network, step_size)
    dtype = jnp.result_type(step_size)
    x = jnp.asarray([[0.3, -1.0], [1.2, 0.4], [-0.7, 0.9]], dtype)
    y = jnp.asarray([[0.5], [-0.2], [1.0]], dtype)
    kernel = gibbs_sampler(model, x, y)

    def init(position, rng_key=None):
        whole = kernel.init(model.position_from_weights(None, position, x, y))
        return OfWeights(position, whole)

    def step(rng_key, state):
        whole, info = kernel.step(rng_key, state.whole)
        return OfWeights(whole.position.params, whole), info

    return SamplingAlgorithm(init, step)


NO_FLOAT32_BESIDE_FLOAT64 = {
    "check_float32_in_a_float64_session": "BlackJAX scales its noise by 1.0 in the default dtype"
}

KERNELS = [
    KernelCase("blackjax rwm", rwm),
    KernelCase("blackjax mala", blackjax.mala, step_size=0.1, known=NO_FLOAT32_BESIDE_FLOAT64),
    KernelCase("blackjax hmc", hmc, known=NO_FLOAT32_BESIDE_FLOAT64),
    KernelCase("cycle", rwm_then_mala, metropolis=False, known=NO_FLOAT32_BESIDE_FLOAT64),
    KernelCase(
        "mix",
        rwm_or_mala,
        metropolis=False,
        third_party="JAX's key-reuse check takes the branches of a vmapped switch for a sequence",
        known=NO_FLOAT32_BESIDE_FLOAT64,
    ),
    KernelCase(
        "repeat",
        rwm_twice,
        metropolis=False,
        third_party="JAX's key-reuse check takes a vmapped scan over split keys for reuse",
    ),
    KernelCase("on_block", first_layer),
    KernelCase("jittered", rwm_of_random_size),
    KernelCase("pcn", pcn),
    KernelCase("pcnl", pcnl),
    KernelCase("underdamped_langevin", underdamped),
    KernelCase("power_posterior", three_rungs),
    KernelCase("smmala", smmala),
    KernelCase("truncated_mala", mala_in_a_box),
    KernelCase(
        "gibbs_sampler",
        gibbs_of_weights,
        known={"check_nan_is_never_accepted": "it samples its own model, whatever the log density"},
    ),
]


@pytest.mark.parametrize(("check", "case"), conformance_params(KERNELS))
def test_kernel_keeps_the_contract(check, case):
    check(case)
