"""Ladders of power posteriors on Iris: tuned rung by rung, then run with swaps."""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PyTree
from pydantic import Field

from experiments.studies.challenges.moves import (
    Sampler,
    iris_posterior,
    kernel_on,
    start_parameters,
    starts_of,
    tuning_of,
)
from experiments.study import Settings, all_draws
from jaxbnn import diagnostics, kernels, power_posterior


class Ladder(Settings):
    """A ladder: its length, and how long it is tuned and run.

    The temperatures start as (i / m)^4 and are moved `num_rounds` times, after a run of one chain a
    rung, until neighbours reject swaps equally often.
    """

    num_rungs: int = Field(ge=3)
    num_rounds: int = Field(ge=1)
    num_tuning: int = Field(ge=50)
    swap_every: int = Field(ge=1)


class LadderRun(NamedTuple):
    """Draws at temperature 1, log likelihoods of all rungs (chain, draw, rung), the ladder.

    `round_trips` (chain,) are those completed after the first draw, without burn-in.
    """

    positions: PyTree
    log_likelihoods: np.ndarray
    temperatures: np.ndarray
    swap_acceptance: np.ndarray
    round_trips: np.ndarray


@functools.lru_cache(maxsize=32)
def _rung_kernel(sampler: Sampler, hidden: int, prior_variance: float):
    """Return `make_kernel` of one rung: a chain whose temperature is a parameter."""

    def make_kernel(parameters, data):
        target = iris_posterior(hidden, prior_variance, data)
        tempered = target.tempered(parameters["temperature"])
        return kernel_on(tempered, sampler, parameters, with_moves=True)

    return make_kernel


@functools.lru_cache(maxsize=32)
def _ladder_kernel(sampler: Sampler, hidden: int, prior_variance: float, swap_every: int):
    def make_kernel(parameters, data):
        target = iris_posterior(hidden, prior_variance, data)

        def make_kernel(temperature, rung):
            return kernel_on(target.tempered(temperature), sampler, rung, with_moves=True)

        return power_posterior(
            make_kernel,
            target.log_prior,
            target.log_likelihood,
            data["temperatures"],
            parameters=parameters,
            swap="even_odd",
            swap_every=swap_every,
        )

    return make_kernel


def _collect(state, info):
    return {
        "position": state.position,
        "log_likelihood": info.log_likelihood,
        "round_trips": state.trips.completed,
    }


def tune_ladder(
    key: Array, sampler: Sampler, hidden: int, prior_variance: float, ladder: Ladder, data: PyTree
) -> tuple[np.ndarray, dict, PyTree]:
    """Return temperatures, each rung's tuned parameters, and where its chain ended."""
    rungs = ladder.num_rungs
    target = iris_posterior(hidden, prior_variance, data)
    temperatures = (np.arange(rungs) / (rungs - 1)) ** 4
    one = start_parameters(sampler, hidden, with_moves=True)
    tuned = jax.tree.map(lambda leaf: np.broadcast_to(leaf, (rungs, *np.shape(leaf))), one)
    key, key_start = jax.random.split(key)
    ends = starts_of(target, key_start, (rungs,), 0.5)
    log_likelihood = jax.jit(jax.vmap(jax.vmap(lambda p: jnp.sum(target.log_likelihood(p)))))
    for round_number in range(ladder.num_rounds + 1):
        draws = all_draws(
            jax.random.fold_in(key, round_number),
            _rung_kernel(sampler, hidden, prior_variance),
            ends,
            ladder.num_tuning,
            parameters=tuned | {"temperature": temperatures.astype(np.float32)},
            data=data,
            num_warmup=ladder.num_tuning,
            adapt=tuning_of(sampler, ladder.num_tuning, with_moves=True, is_pooled=False),
            progress=False,
        )
        tuned = {name: np.asarray(draws.parameters[name]) for name in tuned}
        ends = jax.tree.map(lambda leaf: leaf[:, -1], draws.positions)
        if round_number < ladder.num_rounds:
            found = np.asarray(log_likelihood(draws.positions)).T[None]
            rates = diagnostics.swap_acceptance(found, temperatures)
            temperatures = np.asarray(
                diagnostics.equalise_rejections(temperatures, rates), np.float64
            )
    return temperatures, tuned, ends


def run_ladder(
    key: Array,
    sampler: Sampler,
    hidden: int,
    prior_variance: float,
    ladder: Ladder,
    data: PyTree,
    *,
    num_chains: int,
    num_burn_in: int,
    num_samples: int,
) -> LadderRun:
    """Tune a ladder, run it with swaps, and return what was drawn."""
    key_tune, key_start, key_run = jax.random.split(key, 3)
    temperatures, tuned, _ = tune_ladder(key_tune, sampler, hidden, prior_variance, ladder, data)
    target = iris_posterior(hidden, prior_variance, data)
    starts = starts_of(target, key_start, (num_chains, ladder.num_rungs), 0.5)
    draws = all_draws(
        key_run,
        _ladder_kernel(sampler, hidden, prior_variance, ladder.swap_every),
        kernels.Replicas(starts),
        num_samples,
        parameters=jax.tree.map(
            lambda leaf: np.broadcast_to(leaf, (num_chains, *leaf.shape)), tuned
        ),
        data=data | {"temperatures": jnp.asarray(temperatures, jnp.float32)},
        num_warmup=num_burn_in,
        collect=_collect,
        progress=False,
    )
    log_likelihoods = np.asarray(draws.positions["log_likelihood"])
    trips = np.asarray(draws.positions["round_trips"])  # burn-in counts in all of them
    return LadderRun(
        draws.positions["position"],
        log_likelihoods,
        temperatures,
        np.asarray(diagnostics.swap_acceptance(log_likelihoods, temperatures)),
        trips[:, -1] - trips[:, 0],
    )
