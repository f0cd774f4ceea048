"""The samplers of the study on reduced inputs, each watched through a few projections.

No weights are kept: after every `thinning` steps the state holds the projections of all weights
and of the outputs at the test inputs, and nothing else of it is collected.
"""

import functools
from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
from blackjax.base import SamplingAlgorithm
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from experiments.studies.function_space.problem import NOISE_SCALE
from jaxbnn import pcn, pcnl, repeat, wide
from jaxbnn.networks import init
from jaxbnn.wide import (
    InputReduction,
    WeightProjections,
    carry_complement,
    marginal_conditional,
    reparametrise,
)

Sampler = Literal["pCN", "pCNL", "LMC", "MALA", "pCN, inner weights"]
INNER: Sampler = "pCN, inner weights"


class Data(NamedTuple):
    """What the chains of one network share; an argument of the compiled program."""

    reduction: InputReduction
    projections: WeightProjections
    output_directions: Float[Array, "k outputs"]
    y: Float[Array, "n 10"]


class Observed(NamedTuple):
    """Projections of the weights theta and of the outputs at the test inputs."""

    weights: Float[Array, " k"]
    predictions: Float[Array, " k"]


class ObservedState(NamedTuple):
    """A kernel's state and what is seen of it."""

    inner: Any
    observed: Any

    @property
    def position(self) -> PyTree:
        """The kernel's position."""
        return self.inner.position


ObservedState.auxiliary = ()  # type: ignore[attr-defined]


def observe(
    kernel: SamplingAlgorithm, function: Callable[[PRNGKeyArray, Any], PyTree]
) -> SamplingAlgorithm:
    """Compute `function(rng_key, state)` after each step of a kernel, and keep it in its state."""

    def init(position, rng_key=None):
        key_inner, key_observed = jax.random.split(rng_key)
        inner = kernel.init(position, key_inner)
        return ObservedState(inner, function(key_observed, inner))

    def step(rng_key, state):
        key_inner, key_observed = jax.random.split(rng_key)
        inner, info = kernel.step(key_inner, state.inner)
        return ObservedState(inner, function(key_observed, inner)), info

    return SamplingAlgorithm(init, step)


@functools.cache  # one object for the same sampler: a second run does not compile anew
def kernel_maker(sampler: Sampler, thinning: int, burn_in_step_size: float | None) -> Callable:
    """Return `make_kernel(parameters, data)`; each of its steps is `thinning` steps of the sampler.

    Parameters are `step_size` (beta, or eps of LMC and MALA), `refreshment` (of LMC; MALA's is 1)
    and `is_burn_in`: where it is 1, the step size is `burn_in_step_size`.
    """

    def make_kernel(parameters, data):
        size = parameters["step_size"]
        if burn_in_step_size is not None:
            burn_in = jnp.asarray(burn_in_step_size, size.dtype)
            size = jnp.where(parameters["is_burn_in"] > 0, burn_in, size)
        reduction, projections = data.reduction, data.projections
        problem = (reduction.network, reduction.x, data.y, NOISE_SCALE)
        if sampler == INNER:
            marginal = marginal_conditional(*problem)
            kernel = pcn(marginal.log_likelihood, size)
            weights = lambda key, state: marginal.draw_read_out(key, state.position)  # noqa: E731
        else:
            posterior = reparametrise(*problem)
            weights = lambda key, state: posterior.to_weights(state.position)  # noqa: E731
        if sampler in ("LMC", "MALA"):
            b = parameters["refreshment"] if sampler == "LMC" else 1.0
            density = posterior.log_density_terms
            kernel = repeat(
                wide.reduced_langevin(density, size, b, reduction, projections), thinning
            )
        else:
            if sampler == "pCN":
                kernel = pcn(posterior.log_likelihood, size)
            elif sampler == "pCNL":
                kernel = pcnl(posterior.log_likelihood, size)
            kernel = carry_complement(repeat(kernel, thinning), size, reduction, projections)

        def see(rng_key, state):
            params = weights(rng_key, state)
            outputs = reduction.outputs(params, state.carried.inputs).ravel()
            seen = jnp.matmul(data.output_directions, outputs, precision="highest")
            return Observed(projections.of(params, state.carried), seen)

        return observe(kernel, see)

    return make_kernel


def starts(key: PRNGKeyArray, sampler: Sampler, reduction: InputReduction, num: int) -> PyTree:
    """Return draws of phi from the prior; of its inner part for a chain on inner weights."""
    network = reduction.network
    phi = jax.jit(jax.vmap(lambda key: init(key, network)))(jax.random.split(key, num))
    return phi[:-1] if sampler == INNER else phi
