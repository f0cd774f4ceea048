"""The bias of unadjusted microcanonical draws, as a function of their energy error a dimension.

Chains do not join the modes of a network, exact ones neither. So all kernels begin at the same
places, where a long exact run has come to, and each chain's draws are compared with the exact draws
of the same chain. A second exact run, with another key, shows what is Monte Carlo error: only what
an unadjusted kernel is off beyond that is bias. Chains that have not mixed spread as they go on, so
that all go equally far, in step sizes times steps; moments are compared where the exact chains have
a hundred effective draws. Of the Gaussian, exact draws are independent ones.

Compared are, over the test rows, predictive densities of all chains together (total variation,
half the integral of |p - q|), mean log predictive densities of the observed targets, and over the
outputs at these rows the first two moments of each chain.
"""

from collections.abc import Mapping
from typing import Any

import jax
import numpy as np
from jaxtyping import PyTree
from pydantic import Field

from experiments.studies.ensembles.densities import (
    grid_around,
    lppd,
    middle_and_spread,
    predictive_densities,
    predictive_means,
    steps_of,
    total_variation,
)
from experiments.studies.ensembles.pictures import bias_picture
from experiments.studies.ensembles.problems import (
    Problem,
    ProblemSettings,
    as_arrays,
    ensemble_draws,
    parameters_as_arrays,
    parameters_of,
    positions_of,
    trained,
)
from experiments.studies.ensembles.tables import by_setting
from experiments.study import Context, Row, all_draws
from jaxbnn import dual_averaging, ensembles
from jaxbnn.diagnostics import ess_bulk

_COLUMNS = {
    "energy_error": "energy error a dimension",
    "total_variation": "total variation of predictive densities",
    "lppd_difference": "LPPD less that of exact draws",
    "mean_shift": "shift of an output's mean (sd)",
    "variance_ratio": "variance of an output / exact",
    "blow_ups": "blow-ups",
}
# Of a chain's output, for its moments to be compared.
_FEWEST_EFFECTIVE = 100


class BiasSettings(ProblemSettings):
    """The posteriors, the energy errors, and how long everything is run."""

    energy_errors: tuple[float, ...]
    condition: float = Field(1e4, gt=1)
    num_test: int = Field(50, ge=2)
    num_updates: int = Field(2000, ge=1)
    num_tuning: int = Field(2000, ge=100)
    most_steps: int = Field(20_000, ge=100)
    trajectory_steps: int = Field(40, ge=1)
    num_exact: int = Field(2000, ge=20)
    num_exact_warmup: int = Field(500, ge=10)
    gaussian_thinning: int = Field(40, ge=1)


def run_bias(settings: BiasSettings, context: Context) -> list[Row]:
    """Sample exactly twice, then unadjusted at each energy error; a stage each."""
    rows: list[Row] = []
    for number, name in enumerate(settings.problems):
        posed = settings.posed(name)
        rows += _of_problem(name, posed, jax.random.fold_in(context.key, number), settings, context)
    context.save_figure("bias", bias_picture(rows, settings.problems), dpi=100)
    context.save_table("bias", *by_setting(rows, "posterior, draws", _COLUMNS))
    return rows


def _of_problem(name, posed, key, settings, context) -> list[Row]:
    keys = jax.random.split(key, 4)
    start = context.stage(f"{name}_start", lambda: _start(name, posed, keys[0], settings, context))
    grid = grid_around(start["middle"], start["spread"])
    found = {}
    for run in (0, 1):
        found[run] = context.stage(
            f"{name}_exact_{run}",
            lambda run=run: _exact(
                f"{name}_exact_{run}", posed, keys[1 + run], start, grid, settings, context
            ),
        )
    rows = _of_exact(name, found[0])
    rows += _rows(name, "a second exact run", found[0], found[1], posed, start)
    for number, energy_error in enumerate(settings.energy_errors):
        stage = f"{name}_{energy_error:g}"
        unadjusted = context.stage(
            stage,
            lambda number=number, energy_error=energy_error, stage=stage: _unadjusted(
                stage, posed, jax.random.fold_in(keys[3], number), energy_error, start, grid,
                settings, context,
            ),
        )  # fmt: skip
        rows += _rows(name, f"energy error {energy_error:g}", found[0], unadjusted, posed, start)
    return rows


def _start(name, posed, key, settings, context) -> dict[str, Any]:
    """Find where the chains begin, their metric, and where the predictive densities lie."""
    key_train, key_run, key_means = jax.random.split(key, 3)
    if posed.draw is not None:
        places = posed.draw(key_train, settings.num_chains)
    else:
        places = trained(key_train, posed.posterior, settings.num_chains, settings.num_updates)
    folder = context.checkpoint(f"{name}_start")
    run = ensemble_draws(
        key_run, posed.posterior, places, settings.num_exact, num_tuning=settings.num_tuning,
        most_steps=settings.most_steps, num_warmup=settings.num_exact_warmup,
        trajectory_steps=settings.trajectory_steps, checkpoint=folder,
    )  # fmt: skip
    for sentence in run.warnings:
        context.say(f"{name}: {sentence}")
    if posed.draw is None:
        places = run.draws.final_state.position
        means = predictive_means(posed, run.draws.positions)
    else:
        means = predictive_means(
            posed, jax.tree.map(lambda x: x[None], posed.draw(key_means, 2000))
        )
    parameters = run.draws.parameters
    names = ("step_size", "decoherence_length", *run.way_in.metric)
    middle, spread = middle_and_spread(posed, means, places)
    return {
        **as_arrays(places),
        **parameters_as_arrays({name: parameters[name] for name in names}),
        "decoherence_length_in": run.way_in.parameters["decoherence_length"],
        "step_size_in": run.way_in.parameters["step_size"],
        "middle": middle,
        "spread": spread,
    }


def _exact(stage, posed, key, start, grid, settings, context) -> dict[str, Any]:
    if posed.draw is not None:
        number = settings.num_chains * settings.num_exact
        drawn = posed.draw(key, number)
        shape = (settings.num_chains, settings.num_exact)
        positions = jax.tree.map(lambda x: x.reshape(*shape, *x.shape[1:]), drawn)
        return _summary(posed, positions, grid)
    places = positions_of(posed, start)
    draws = context.sample(
        stage, key, ensembles.adjusted_microcanonical, places, settings.num_exact,
        parameters=parameters_of(start) | {"reference": places},
        data=posed.posterior, num_warmup=settings.num_exact_warmup,
        adapt=dual_averaging(0.9, is_pooled=False), progress=False,
    )  # fmt: skip
    return _summary(posed, draws.positions, grid) | {"acceptance": draws.acceptance_rate}


def _unadjusted(stage, posed, key, energy_error, start, grid, settings, context) -> dict[str, Any]:
    places = positions_of(posed, start)
    parameters = (
        ensembles.microcanonical_parameters(places)
        | parameters_of(start)
        | {
            "step_size": start["step_size_in"],
            "decoherence_length": start["decoherence_length_in"],
        }
    )
    # Only the step size differs from one energy error to the next.
    adapt = ensembles.microcanonical_adaptation(
        settings.num_tuning, energy_error=energy_error, start_energy_error=energy_error,
        is_preconditioned=False, is_length_tuned=False,
    )  # fmt: skip
    key_tuning, key_run = jax.random.split(key)
    tuned = all_draws(
        key_tuning, ensembles.microcanonical, places, 1, parameters=parameters,
        data=posed.posterior, num_warmup=settings.num_tuning, adapt=adapt, progress=False,
    )  # fmt: skip
    # As far as an exact run goes from one draw to the next.
    length = np.mean(parameters_of(start)["decoherence_length"])
    thinning = max(1, round(float(length / np.mean(tuned.parameters["step_size"]))))
    num_draws = settings.num_exact
    # The exact chains' warm-up is as far on from where all began.
    dropped = max(settings.num_exact_warmup * thinning - settings.num_tuning, 0)
    if posed.draw is not None:  # exact draws are independent, and of no length
        thinning, dropped = settings.gaussian_thinning, 0
    draws = context.sample(
        stage, key_run, ensembles.microcanonical, tuned.final_state.position, num_draws,
        parameters=tuned.parameters, data=posed.posterior, progress=False,
        thinning=dropped + thinning * np.arange(1, num_draws + 1),
        reduce={"energy": ensembles.energy_errors()},
    )  # fmt: skip
    energy = draws.reduced["energy"].per_chain
    return _summary(posed, draws.positions, grid) | {
        "energy_error": energy.energy_error,
        "num_blow_ups": energy.num_blow_ups,
        "step_size": draws.parameters["step_size"],
        "steps": np.asarray(draws.steps[-1]),
    }


def _summary(posed: Problem, positions: PyTree, grid: np.ndarray) -> dict[str, np.ndarray]:
    """Return each chain's predictive densities on the grid and at the targets, and moments."""
    means = predictive_means(posed, positions)
    halves = np.split(means[:, : 2 * (means.shape[1] // 2)], 2, axis=1)
    sizes = [[ess_bulk(chain[None, :, row]) for row in range(means.shape[2])] for chain in means]
    return predictive_densities(posed, positions, grid) | {
        "mean": means.mean(axis=1),
        "variance": means.var(axis=1),
        "variance_of_half": np.stack([half.var(axis=1) for half in halves]),
        "ess": np.asarray(sizes, float),
    }


def _rows(name, setting, exact, other, posed, start) -> list[Row]:
    where = f"{name}, {setting}"
    steps = steps_of(start["spread"])
    numbers = {
        "total_variation": lambda a, b: total_variation(a["densities"], b["densities"], steps),
        "lppd_difference": lambda a, b: lppd(b) - lppd(a),
    }
    mixed = exact["ess"] > _FEWEST_EFFECTIVE
    if mixed.any(axis=1).all():  # of each chain some output, so that one may be left out
        numbers |= {
            "mean_shift": lambda a, b: (
                _typical((b["mean"] - a["mean"]) ** 2 / a["variance"], a) ** 0.5
            ),
            "variance_ratio": lambda a, b: _typical(b["variance"] / a["variance"], a),
        }
    rows = [Row(q, where, *_with_error(f, exact, other)) for q, f in numbers.items()]
    if "energy_error" in other:
        error = other["energy_error"]
        rows += [
            Row("energy_error", where, error.mean(), error.std(ddof=1) / len(error) ** 0.5),
            Row("blow_ups", where, other["num_blow_ups"].sum()),
            Row("step_size", where, float(other["step_size"].mean())),
        ]
    return rows


def _of_exact(name: str, exact: Mapping[str, np.ndarray]) -> list[Row]:
    """Say how well the exact chains know what others are compared by."""
    halves = exact["variance_of_half"]
    return [
        Row("ess_a_chain", f"{name}, exact, median of outputs", float(np.median(exact["ess"]))),
        Row("share_mixed", f"{name}, exact", float(np.mean(exact["ess"] > _FEWEST_EFFECTIVE))),
        Row("variance_ratio", f"{name}, exact, second half to first",
            float(np.median(halves[1] / halves[0]))),
    ]  # fmt: skip


def _typical(values: np.ndarray, exact: Mapping[str, np.ndarray]) -> float:
    """Return the median of (chain, output) where the exact chains have mixed."""
    return float(np.median(values[exact["ess"] > _FEWEST_EFFECTIVE]))


def _with_error(function, exact, other) -> tuple[float, float]:
    """Return the number and its jackknife error over the chains, which are paired by their start.

    Total variation is not smooth at 0: near the exact runs' own distance the error is a guide only.
    """
    num_chains = len(exact["mean"])
    is_a_chain_s = ("densities", "at_targets", "mean", "variance", "ess")

    def without(arrays, chain):
        return {key: np.delete(arrays[key], chain, axis=0) for key in is_a_chain_s}

    left = [function(without(exact, c), without(other, c)) for c in range(num_chains)]
    error = np.sqrt((num_chains - 1) * np.var(left))
    return function(exact, other), float(error)
