"""The samplers of figures 2 and 3 as `make_kernel(parameters, data)`.

Learning rates are as the paper's tables print them: eps of HMC, eta of MALA (erratum A15), both
of which are BlackJAX's step size. HMC and NUTS have unit mass.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import blackjax
import jax
import jax.numpy as jnp
from blackjax.base import SamplingAlgorithm
from jaxtyping import Array, Float, PyTree

from jaxbnn import Posterior
from jaxbnn.gibbs import GibbsPosition, IntermediateNoise, gibbs_sampler
from jaxbnn.thermalization import classical_posterior


class Tracked(NamedTuple):
    """A kernel's state with the teacher of its data set beside it, for what is recorded."""

    state: Any
    teacher: PyTree

    @property
    def params(self) -> PyTree:
        """The network's parameters, under either posterior."""
        position = self.state.position
        return position.params if isinstance(position, GibbsPosition) else position


def tracked(kernel: SamplingAlgorithm, teacher: PyTree) -> SamplingAlgorithm:
    """Return the kernel with `teacher` carried along in its state."""

    def init(position, rng_key=None):
        return Tracked(kernel.init(position, rng_key), teacher)

    def step(rng_key, tracked_state):
        state, info = kernel.step(rng_key, tracked_state.state)
        return Tracked(state, tracked_state.teacher), info

    return SamplingAlgorithm(init, step)


def gradient_sampler(
    sampler: str,
    log_density: Callable[[PyTree], Float[Array, ""]],
    position: PyTree,
    learning_rate: Any,
    leapfrog_steps: int | None,
) -> SamplingAlgorithm:
    """Return HMC, NUTS or MALA on a log density of positions like `position`."""
    if sampler == "MALA":
        return blackjax.mala(log_density, learning_rate)
    leaves = jax.tree.leaves(position)
    unit_mass = jnp.ones(sum(leaf.size for leaf in leaves), leaves[0].dtype)
    if sampler == "NUTS":
        return blackjax.nuts(log_density, learning_rate, unit_mass)
    return blackjax.hmc(log_density, learning_rate, unit_mass, leapfrog_steps)


def kernel_on_data_sets(
    sampler: str,
    posterior: str,
    leapfrog_steps: int | None,
    model_of: Callable[[Any], IntermediateNoise],
) -> Callable[[PyTree, PyTree], SamplingAlgorithm]:
    """Return `make_kernel` for chains on stacked data sets.

    `parameters`: "dataset" (its number), "delta", "step_size". `data`: x, y and the informed
    starts, stacked over data sets. Densities are differences from the teacher's, where float32
    keeps its digits once the chain is near equilibrium.
    """

    def make_kernel(parameters, data):
        x, y, informed = jax.tree.map(lambda leaf: leaf[parameters["dataset"]], data)
        model = model_of(parameters["delta"])
        if sampler == "Gibbs":
            return tracked(gibbs_sampler(model, x, y), informed.params)
        if posterior == "intermediate":
            log_density = model.log_density_from(informed, x, y)
            reference = informed
        else:
            log_density = classical_posterior(model, x, y).log_density_from(informed.params)
            reference = informed.params
        rate = parameters["step_size"]
        kernel = gradient_sampler(sampler, log_density, reference, rate, leapfrog_steps)
        return tracked(kernel, informed.params)

    return make_kernel


def kernel_on_labels(
    sampler: str,
    leapfrog_steps: int | None,
    model: IntermediateNoise,
    reference: PyTree,
    order: str = "sequential",
) -> Callable[[PyTree, PyTree], SamplingAlgorithm]:
    """Return `make_kernel` for one data set of labels, `data` = (x, y).

    `parameters`: "step_size"; `reference`: parameters like the network's, from whose log
    density others are differences. Gibbs runs on the intermediate-noise posterior, in `order`,
    the others on the classical one.
    """

    def make_kernel(parameters, data):
        x, y = data
        if sampler == "Gibbs":
            return gibbs_sampler(model, x, y, order)
        posterior: Posterior = classical_posterior(model, x, y)
        log_density = posterior.log_density_from(reference)
        return gradient_sampler(
            sampler, log_density, reference, parameters["step_size"], leapfrog_steps
        )

    return make_kernel
