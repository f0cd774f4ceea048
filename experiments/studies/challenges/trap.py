"""The trap: started from prior draws, about one MALA chain in 140 is stuck (.0070 +- .0015).

It moves in none of its second 1,000 steps: its hidden units are saturated and the step, right
elsewhere, is far too long. Inside a population whose replicas swap, one such replica is passed
round, and every chain spends the same share of its draws on it. So split R-hat of the log density
passes (1.018, below 1.05), and so do the paper's ESS and the kernel Stein discrepancy; R-hats of
the raw parameters (1.06 and more) and of ranks (1.019 of the log density, above 1.01) warn.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PyTree
from pydantic import Field

from experiments.studies.challenges.iris_kernels import kernel_factory, posterior
from experiments.studies.challenges.moves import starts_of
from experiments.study import Settings, all_draws
from jaxbnn import diagnostics, kernels

PAPER_STEP_SIZE = 0.0547723  # eps^2 is 0.003


class Trap(Settings):
    """How many prior draws are tried, for how long; and the runs with the frozen ones.

    `num_replicas` are in each chain of the population, one of them frozen.
    """

    num_tried: int = Field(ge=40)
    num_steps: int = Field(ge=50)
    num_replicas: int = Field(ge=2)
    num_burn_in: int = Field(ge=10)
    num_samples: int = Field(ge=100)
    thinning: int = Field(ge=1)


class Trapped(NamedTuple):
    """Draws (chain, draw, ...) and acceptance (chain, draw) or (chain, draw, replica)."""

    positions: PyTree
    acceptance: np.ndarray


def frozen_starts(key: Array, prior_variance: float, trap: Trap, data: PyTree) -> PyTree:
    """Return where MALA from prior draws ended, of those chains that do not move any more.

    `num_steps` to get there, and as many in which it would have moved.
    """
    target = posterior(prior_variance, data)
    key_start, key_run = jax.random.split(key)
    draws = all_draws(
        key_run,
        kernel_factory("MALA", prior_variance, 1, 1),
        target.sample_prior(key_start, (trap.num_tried,)),
        2,
        parameters={"step_size": PAPER_STEP_SIZE},
        data=data,
        thinning=trap.num_steps,
        progress=False,
    )
    leaves = [np.asarray(leaf) for leaf in jax.tree.leaves(draws.positions)]
    same = [(leaf[:, 0] == leaf[:, 1]).reshape(len(leaf), -1).all(axis=1) for leaf in leaves]
    is_frozen = np.logical_and.reduce(same)
    return jax.tree.map(lambda leaf: leaf[is_frozen, -1], draws.positions)


def run_trapped(
    key: Array,
    sampler: str,
    frozen: PyTree,
    prior_variance: float,
    trap: Trap,
    data: PyTree,
    num_chains: int,
) -> Trapped:
    """Run MALA with one frozen chain, or P-MALA with one frozen replica in every chain."""
    key_start, key_run = jax.random.split(key)
    target = posterior(prior_variance, data)
    is_population = sampler == "P-MALA"
    shape = (num_chains, trap.num_replicas) if is_population else (num_chains,)
    starts = starts_of(target, key_start, shape, 0.5)
    if is_population:

        def put(leaf, bad):
            which = np.arange(num_chains) % len(bad)
            return leaf.at[:, 0].set(bad[which])
    else:

        def put(leaf, bad):
            return leaf.at[0].set(bad[0])

    starts = jax.tree.map(put, starts, frozen)
    draws = all_draws(
        key_run,
        kernel_factory(sampler, prior_variance, trap.num_replicas, 10),
        kernels.Replicas(starts) if is_population else starts,
        trap.num_samples,
        parameters={"step_size": PAPER_STEP_SIZE},
        data=data,
        num_warmup=trap.num_burn_in,
        thinning=trap.thinning,
        collect=_collect_replicas if is_population else _collect,
        progress=False,
    )
    return Trapped(draws.positions["position"], np.asarray(draws.positions["acceptance"]))


def _collect(state, info):
    return {"position": state.position, "acceptance": jnp.asarray(info.acceptance_rate)}


def _collect_replicas(state, info):
    rates = diagnostics.by_replica(
        info.inner.acceptance_rate, state.trips.replica, info.swaps.order
    )
    return {"position": state.position, "acceptance": rates}
