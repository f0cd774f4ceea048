"""Whether two exact kernels that start differently agree about a posterior's predictions.

"trained" is what `sample_ensemble` does: chains from trained networks, an adjusted microcanonical
kernel for the kept draws. "annealed" has seen no optimiser: each chain begins at a draw of the
prior, made smaller, and goes by unadjusted chains through powers of the likelihood, from nearly
none to all of it; its kept draws are of HMC.

Both are exact, so that they agree once both have converged, and R-hat of the predictions says
whether they have. They are compared by their predictive densities at test rows: the total variation
between the mixtures of all chains, beside what it would be if chains were dealt to the two sides at
random. That holds modes that some chains are in and others are not: two sets of chains in the same
law of modes differ by no more than this.
"""

import functools
import itertools
from collections.abc import Mapping
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, PyTree
from pydantic import Field

from experiments.studies.ensembles.clock import Clock
from experiments.studies.ensembles.densities import (
    grid_around,
    lppd,
    middle_and_spread,
    predictive_densities,
    predictive_means,
    steps_of,
    total_variation,
)
from experiments.studies.ensembles.pictures import exactness_picture
from experiments.studies.ensembles.problems import (
    Problem,
    ProblemSettings,
    ensemble_draws,
)
from experiments.studies.ensembles.tables import by_setting
from experiments.study import Context, Row
from jaxbnn.diagnostics import rank_rhat
from jaxbnn.ensembles import optimised_starts

# Ways to deal chains to two sides, at most.
_DEALS = 400
_CONVERGED = 1.01
_TUNING_A_POWER = 200
# Of draws of the prior, where annealing begins. At those themselves the noise that a network gives
# is nearly nothing at some rows, and at no power worth beginning with is a step small enough.
_START_SHARE = 0.3
_SIDES = ("trained", "annealed")
_OF_POSTERIORS = {
    "total_variation": "total variation of the two sides",
    "total_variation_by_chance": "of chains dealt at random, mean",
    "total_variation_by_chance_rms": "root mean square",
    "p_value": "p",
}
Kernel = Literal["adjusted_microcanonical", "hmc"]
_OF_SIDES = {
    "share_rhat_below_1.01": "share of predictions with R-hat < 1.01",
    "median_rhat": "R-hat, median",
    "largest_rhat": "R-hat, largest",
    "lppd": "LPPD",
    "cpu_seconds": "CPU s",
}


class ExactnessSettings(ProblemSettings):
    """The posteriors, and how long each side is run."""

    num_samples: int = Field(1000, ge=4)
    num_tuning: int = Field(2000, ge=100)
    most_steps: int = Field(20_000, ge=100)
    trajectory_steps: int = Field(50, ge=1)
    num_warmup: int = Field(500, ge=10)
    thinning: int = Field(5, ge=1)
    # Of "annealed": powers, evenly spaced in logarithms, and the unadjusted steps at each.
    num_powers: int = Field(30, ge=2)
    lowest_power: float = Field(1e-3, gt=0, lt=1)
    steps_a_power: int = Field(1500, ge=280)


def run_exactness(settings: ExactnessSettings, context: Context) -> list[Row]:
    """Sample each posterior from both sides, a stage each, and compare."""
    rows: list[Row] = []
    pictured: dict[str, Mapping[str, np.ndarray]] = {}
    for number, name in enumerate(settings.problems):
        posed = settings.posed(name)
        key = jax.random.fold_in(context.key, number)
        found: dict[str, Mapping[str, np.ndarray]] = {}
        for index, (side, sampled) in enumerate(zip(_SIDES, (_trained, _annealed), strict=True)):
            compute = functools.partial(
                _side, f"{name}_{side}", sampled, posed, jax.random.fold_in(key, index),
                found.get(_SIDES[0]), settings, context,
            )  # fmt: skip
            found[side] = context.stage(f"{name}_{side}", compute)
        rows += _rows(name, found, context)
        pictured[name] = {side: found[side]["rhat"] for side in _SIDES}
    context.save_figure("rhat", exactness_picture(pictured), dpi=100)
    context.save_table("agreement", *by_setting(rows, "posterior", _OF_POSTERIORS))
    context.save_table("sides", *by_setting(rows, "posterior, chains", _OF_SIDES))
    return rows


def _side(stage, sampled, posed, key, first, settings, context) -> dict[str, Any]:
    """Sample from one side; densities lie on the grid of the first one."""
    clock = Clock(context.checkpoint(stage))
    positions = sampled(stage, posed, key, settings, context)
    seconds = clock.seconds()
    means = predictive_means(posed, positions)
    if first is None:
        last = jax.tree.map(lambda leaf: jnp.asarray(leaf[:, -1]), positions)
        middle, spread = middle_and_spread(posed, means, last)
    else:
        middle, spread = first["middle"], first["spread"]
    return predictive_densities(posed, positions, grid_around(middle, spread)) | {
        "middle": middle,
        "spread": spread,
        "rhat": np.asarray(rank_rhat(means)),
        "means": means.astype(np.float32),
        "cpu_seconds": np.asarray(seconds),
    }


def _trained(
    stage: str, posed: Problem, key: jax.Array, settings: ExactnessSettings, context: Context
) -> PyTree:
    key_start, key_run = jax.random.split(key)
    folder = context.checkpoint(stage)
    starts = optimised_starts(
        key_start, posed.posterior, settings.num_chains, progress=False,
        checkpoint=None if folder is None else folder / "starts",
    )  # fmt: skip
    return _exact(
        stage, posed, key_run, starts.positions, "adjusted_microcanonical", settings, context
    )


def _annealed(
    stage: str, posed: Problem, key: jax.Array, settings: ExactnessSettings, context: Context
) -> PyTree:
    key_start, key_run = jax.random.split(key)
    folder = context.checkpoint(stage)
    positions = posed.posterior.sample_prior(key_start, (settings.num_chains,))
    positions = jax.tree.map(lambda leaf: _START_SHARE * leaf, positions)
    powers = np.geomspace(settings.lowest_power, 1, settings.num_powers)[:-1]
    for number, power in enumerate(powers):
        hot = ensemble_draws(
            jax.random.fold_in(key_run, number), posed.posterior.tempered(jnp.float32(power)),
            positions, 1, kernel="microcanonical", num_tuning=_TUNING_A_POWER,
            most_steps=settings.steps_a_power, trajectory_steps=1,
            checkpoint=None if folder is None else folder / f"power_{number}",
        )  # fmt: skip
        positions = hot.draws.final_state.position
    key_exact = jax.random.fold_in(key_run, len(powers))
    return _exact(stage, posed, key_exact, positions, "hmc", settings, context)


def _exact(
    stage: str, posed: Problem, key: jax.Array, positions: PyTree, kernel: Kernel,
    settings: ExactnessSettings, context: Context,
) -> PyTree:  # fmt: skip
    """Return draws of an exact kernel from these starts, and say what went wrong."""
    run = ensemble_draws(
        key, posed.posterior, positions, settings.num_samples, kernel=kernel,
        num_tuning=settings.num_tuning, most_steps=settings.most_steps,
        num_warmup=settings.num_warmup, trajectory_steps=settings.trajectory_steps,
        thinning=settings.thinning, checkpoint=context.checkpoint(stage),
    )  # fmt: skip
    for sentence in run.warnings:
        context.say(f"{stage}: {sentence}")
    return run.draws.positions


def _rows(name: str, found: Mapping[str, Mapping[str, np.ndarray]], context: Context) -> list[Row]:
    one, other = (found[side] for side in _SIDES)
    steps = steps_of(one["spread"])
    apart = total_variation(one["densities"], other["densities"], steps)
    by_chance = dealt(one["densities"], other["densities"], steps)
    together = np.asarray(rank_rhat(np.concatenate([one["means"], other["means"]])))
    rows = [
        # Of one law the distance is not 0 but what dealing gives: that is what can be told apart.
        Row("total_variation", name, apart),
        Row("total_variation_by_chance", name, float(by_chance.mean())),
        Row("total_variation_by_chance_rms", name, float(np.sqrt(np.mean(by_chance**2)))),
        Row("p_value", name, float((1 + (by_chance >= apart).sum()) / (1 + len(by_chance)))),
    ]
    for side, rhat in (*((side, found[side]["rhat"]) for side in _SIDES), ("both", together)):
        where = f"{name}, {side}"
        rows += [
            Row("share_rhat_below_1.01", where, float((rhat < _CONVERGED).mean())),
            Row("median_rhat", where, float(np.median(rhat))),
            Row("largest_rhat", where, float(rhat.max())),
        ]
    rows += [Row("lppd", f"{name}, {side}", lppd(found[side])) for side in _SIDES]
    rows += [
        Row("cpu_seconds", f"{name}, {side}", float(found[side]["cpu_seconds"])) for side in _SIDES
    ]
    share = float((together < _CONVERGED).mean())
    context.say(
        f"{name}: total variation {apart:.3f}, where dealing the chains at random gives "
        f"{by_chance.mean():.3f} +- {by_chance.std(ddof=1):.3f}; R-hat of both sides together is "
        f"below {_CONVERGED} for {share:.0%} of the test predictions."
    )
    return rows


def dealt(
    one: Float[np.ndarray, "chain point row"],
    other: Float[np.ndarray, "other point row"],
    steps: Float[np.ndarray, " row"],
) -> Float[np.ndarray, " deal"]:
    """Return the total variation for ways to deal all chains to two sides of the sizes given.

    All other ways where they are few, else so many at random.
    """
    every = np.concatenate([one, other])
    num_one, count = len(one), len(every)
    ways = list(itertools.islice(itertools.combinations(range(count), num_one), 1, _DEALS + 2))
    if len(ways) > _DEALS:
        rng = np.random.default_rng(0)
        ways = [tuple(rng.permutation(count)[:num_one]) for _ in range(_DEALS)]
    found = []
    for chosen in ways:
        is_one = np.isin(np.arange(count), chosen)
        found.append(total_variation(every[is_one], every[~is_one], steps))
    return np.asarray(found)
