"""Every kernel keeps the contract. A new kernel is one row of KERNELS."""

import inspect
from typing import NamedTuple

import blackjax
import jax
import jax.numpy as jnp
import numpyro.distributions as dist
import pytest
from blackjax.base import SamplingAlgorithm
from blackjax.mcmc.random_walk import normal
from jaxtyping import PyTree

import jaxbnn
from jaxbnn import wide
from jaxbnn.gibbs import (
    IntermediateNoise,
    gibbs_sampler,
    gibbs_with_moves,
    interweave,
    interwoven_gibbs,
    logit_scale_moves,
    noncentred_scale_moves,
    redraw_noisy_units,
    scale_moves,
    turn_units,
)
from jaxbnn.kernels import (
    cycle,
    in_turn,
    jittered,
    mix,
    on_block,
    on_vector,
    pcn,
    pcnl,
    power_posterior,
    prior_precisions,
    redraw_units,
    repeat,
    smmala,
    symmetry_moves,
    truncated_mala,
    underdamped_langevin,
)
from jaxbnn.networks import Activation, Dense, Network
from jaxbnn.targets import Gaussian, Posterior, hierarchical_prior
from tests.kit.conformance import KernelCase, conformance_params, start


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


def rwm_in_turn(log_density, step_size):
    return in_turn(rwm(log_density, step_size))


def first_layer(log_density, step_size):
    return on_block(lambda whole: rwm(lambda block: log_density(whole(block)), step_size), 0)


def rwm_of_the_vector(log_density, step_size):
    return on_vector(lambda whole: rwm(lambda vector: log_density(whole(vector)), step_size))


def rwm_of_random_size(log_density, step_size):
    return jittered(lambda size: rwm(log_density, size), step_size)


def underdamped(log_density, step_size):
    return underdamped_langevin(log_density, step_size, refreshment=0.5)


def mala_in_a_box(log_density, step_size):
    return truncated_mala(log_density, step_size, lower=-2.0, upper=({"w": 1.0, "b": 3.0}, (), 2.0))


def three_rungs(log_density, step_size):
    def make_kernel(temperature, parameters):
        return rwm(lambda x: temperature * log_density(x), step_size)

    return power_posterior(
        make_kernel, lambda x: 0.0, log_density, (0.3, 0.6, 1.0), tempered="posterior", swap_every=2
    )


class OfWeights(NamedTuple):
    position: PyTree
    whole: PyTree


def of_weights(make, output="regression"):
    """A kernel of weights and latents of its own model, seen as one of the weights alone.

    make(model, x, y, step_size) is that kernel.
    """

    def make_kernel(log_density, step_size):
        return _of_weights(make, step_size, output)

    return make_kernel


def _of_weights(make, step_size, output):
    network = Network((Dense(1), Activation("relu"), Dense(1, bias=False)), (2,))
    model = IntermediateNoise(network, step_size, output=output)
    dtype = jnp.result_type(step_size)
    x = jnp.asarray([[0.3, -1.0], [1.2, 0.4], [-0.7, 0.9]], dtype)
    y = jnp.asarray([[0.5], [-0.2], [1.0]], dtype)
    if output == "binary_probit":
        y = jnp.asarray([1, 0, 1])
    kernel = make(model, x, y, step_size)

    def init(position, rng_key=None):
        whole = kernel.init(model.position_from_weights(None, position, x, y))
        return OfWeights(position, whole)

    def step(rng_key, state):
        whole, info = kernel.step(rng_key, state.whole)
        return OfWeights(whole.position.params, whole), info

    return SamplingAlgorithm(init, step)


def precisions_of_weights(log_density, step_size):
    """Standardised weights, which follow their precisions; the data are never looked at."""
    dtype = jnp.result_type(step_size)
    x, y = jnp.ones((2, 2), dtype), jnp.zeros((2, 1), dtype)
    prior = hierarchical_prior(NETWORK, rate=step_size, is_centred=False)
    kernel = prior_precisions(Posterior(NETWORK, prior, Gaussian(1.0), x, y))

    def init(position, rng_key=None):
        log_precision = jax.tree.map(lambda leaf: jnp.zeros((), leaf.dtype), position)
        whole = {"network": position, "log_precision": log_precision}
        return OfWeights(position, kernel.init(whole))

    def step(rng_key, state):
        whole, info = kernel.step(rng_key, state.whole)
        return OfWeights(whole.position["network"], whole), info

    return SamplingAlgorithm(init, step)


NETWORK = Network((Dense(1), Activation("tanh"), Dense(1, bias=False)), (2,))


def normal_of(step_size):
    """A prior in the dtype of the step size."""
    return dist.Normal(jnp.zeros((), jnp.result_type(step_size)), jnp.ones_like(step_size))


def scaled_units(log_density, step_size):
    """The symmetry moves of a network with one unit, which scales and flips."""
    network = Network((Dense(1), Activation("abs"), Dense(1, bias=False)), (2,))
    return symmetry_moves(network, normal_of(step_size), scaling_step=step_size)


def redrawn_unit(log_density, step_size):
    return redraw_units(NETWORK, normal_of(step_size), log_density)


def reduction(step_size):
    """Five inputs seen through two data, and a third that only predictions see."""
    network = Network((Dense(1), Activation("tanh"), Dense(1, bias=False)), (5,), "ntk")
    with jax.ensure_compile_time_eval():  # its factorisation is no part of the kernel's program
        data = jnp.arange(15, dtype=jnp.result_type(step_size)).reshape(3, 5) % 4
        return wide.reduce_inputs(network, data[:2], also=data[2:])


def on_reduced_inputs(log_density, step_size):
    return wide.reduced_langevin(log_density, step_size, 0.5, reduction(step_size))


def with_carried(log_density, step_size):
    return wide.carry_complement(pcn(log_density, step_size), step_size, reduction(step_size))


def counted(log_density, step_size):
    return wide.count_accepted(pcn(log_density, step_size))


def with_drawn_read_out(log_density, step_size):
    """The inner weights by pCN; their density does not look at the read-out that is drawn."""
    network = Network(NETWORK.layers, (2,), "ntk")
    dtype = jnp.result_type(step_size)
    x = jnp.asarray([[0.3, -1.0], [1.2, 0.4], [-0.7, 0.9]], dtype)
    y = jnp.asarray([0.5, -0.2, 1.0], dtype)
    marginal = wide.marginal_conditional(network, x, y, jnp.asarray(0.5, dtype))
    read_out = start(dtype)[-1]
    return wide.with_read_out(
        pcn(lambda inner: log_density((*inner, read_out)), step_size), marginal
    )


OWN_MODEL = {"check_nan_is_never_accepted": "it samples its own model, whatever the log density"}
NO_FLOAT32_BESIDE_FLOAT64 = {
    "check_float32_in_a_float64_session": "BlackJAX scales its noise by 1.0 in the default dtype"
}

KERNELS = [
    KernelCase("blackjax rwm", rwm),
    KernelCase("blackjax mala", blackjax.mala, step_size=0.1, known=NO_FLOAT32_BESIDE_FLOAT64),
    KernelCase("blackjax hmc", hmc, known=NO_FLOAT32_BESIDE_FLOAT64),
    KernelCase(
        "cycle", rwm_then_mala, metropolis=False, wraps=True, known=NO_FLOAT32_BESIDE_FLOAT64
    ),
    KernelCase(
        "mix",
        rwm_or_mala,
        metropolis=False,
        wraps=True,
        third_party="JAX's key-reuse check takes the branches of a vmapped switch for a sequence",
        known=NO_FLOAT32_BESIDE_FLOAT64,
    ),
    KernelCase(
        "repeat",
        rwm_twice,
        metropolis=False,
        wraps=True,
        third_party="JAX's key-reuse check takes a vmapped scan over split keys for reuse",
    ),
    KernelCase("in_turn", rwm_in_turn, wraps=True),
    KernelCase("on_block", first_layer, wraps=True),
    KernelCase("on_vector", rwm_of_the_vector, wraps=True),
    KernelCase("jittered", rwm_of_random_size, wraps=True),
    KernelCase("pcn", pcn),
    KernelCase("pcnl", pcnl),
    KernelCase("underdamped_langevin", underdamped),
    KernelCase("power_posterior", three_rungs),
    KernelCase("smmala", smmala),
    KernelCase("truncated_mala", mala_in_a_box),
    KernelCase(
        "symmetry_moves",
        scaled_units,
        metropolis=False,
        known={"check_nan_is_never_accepted": "it looks at the prior, whatever the log density"},
    ),
    KernelCase(
        "redraw_units",
        redrawn_unit,
        known={
            "check_float32_in_a_float64_session": "NumPyro draws its noise in the default dtype"
        },
    ),
    KernelCase(
        "prior_precisions",
        precisions_of_weights,
        metropolis=False,
        known={"check_nan_is_never_accepted": "it draws given the weights, whatever the density"},
    ),
    KernelCase("reduced_langevin", on_reduced_inputs, needs_key=True),
    KernelCase("carry_complement", with_carried, needs_key=True, wraps=True),
    KernelCase("count_accepted", counted, wraps=True),
    KernelCase("with_read_out", with_drawn_read_out, wraps=True),
    KernelCase(
        "gibbs_sampler",
        of_weights(lambda model, x, y, _: gibbs_sampler(model, x, y)),
        known=OWN_MODEL,
    ),
    KernelCase(
        "scale_moves",
        of_weights(lambda model, x, y, _: scale_moves(model, x)),
        known=OWN_MODEL,
    ),
    KernelCase(
        "logit_scale_moves",
        of_weights(lambda model, x, y, _: logit_scale_moves(model, x), "binary_probit"),
        known=OWN_MODEL,
    ),
    KernelCase(
        "noncentred_scale_moves",
        of_weights(lambda model, x, y, _: noncentred_scale_moves(model, x, y)),
        known=OWN_MODEL,
    ),
    KernelCase(
        "redraw_noisy_units",
        of_weights(lambda model, x, y, _: redraw_noisy_units(model, x, y, 2)),
        known=OWN_MODEL,
    ),
    KernelCase("interweave", of_weights(interweave), known=OWN_MODEL),
    KernelCase(
        "turn_units",
        of_weights(lambda model, x, y, _: turn_units(model, x, y)),
        known=OWN_MODEL,
    ),
    KernelCase(
        "gibbs_with_moves",
        of_weights(lambda model, x, y, _: gibbs_with_moves(model, x, y, [scale_moves(model, x)])),
        wraps=True,
        known=OWN_MODEL,
    ),
    KernelCase(
        "interwoven_gibbs",
        of_weights(interwoven_gibbs),
        wraps=True,
        known=OWN_MODEL,
    ),
]


# BlackJAX's own kernels, handed out as they are: their laws are tested in
# tests/ensembles/test_microcanonical.py, and that the runner takes them in
# tests/sampling/test_blackjax_kernels.py. They do not run under strict dtype promotion.
BLACKJAXS = {"microcanonical", "adjusted_microcanonical"}


@pytest.mark.parametrize(("check", "case"), conformance_params(KERNELS))
def test_kernel_keeps_the_contract(check, case):
    check(case)


def test_every_public_factory_of_a_kernel_is_in_the_table():
    rooms = [getattr(jaxbnn, name) for name in jaxbnn.__all__]
    rooms = [room for room in rooms if inspect.ismodule(room)]
    factories = {
        name
        for room in rooms
        for name in room.__all__
        if inspect.isfunction(function := inspect.unwrap(getattr(room, name)))
        and "SamplingAlgorithm" in str(function.__annotations__.get("return"))
    }
    assert {"pcn", "gibbs_sampler", "with_read_out"} <= factories
    missing = factories - {case.name for case in KERNELS} - BLACKJAXS
    assert not missing, f"give each a row of KERNELS: {sorted(missing)}"
