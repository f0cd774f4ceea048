"""What an ensemble gains by a metric that knows the posterior's narrowest directions.

From the same trained networks, unadjusted chains go in and the adjusted microcanonical kernel draws
with the diagonal metric of the prior alone, and with directions from the likelihood's scores
(`ensembles.likelihood_metric`). Compared are what the exact kernel's warm-up found for the step
size, how far the predictions go in so many integration steps, R-hat of the predictions over the
chains, and how well they predict.
"""

import functools
from collections.abc import Mapping
from typing import Any

import jax
import numpy as np
from jaxtyping import Float
from pydantic import Field

from experiments.studies.ensembles.clock import Clock
from experiments.studies.ensembles.densities import at_targets, lppd_of_mixture, predictive_means
from experiments.studies.ensembles.pictures import metric_picture
from experiments.studies.ensembles.problems import (
    Problem,
    ProblemSettings,
    as_arrays,
    ensemble_draws,
    positions_of,
)
from experiments.studies.ensembles.tables import by_setting
from experiments.study import Context, Row
from jaxbnn.ensembles import optimised_starts

_CONVERGED = 1.01
_COLUMNS = {
    "step_size": "step size",
    "acceptance_rate": "acceptance",
    "squared_jump": "squared jump of predictions",
    "median_rhat": "R-hat, median",
    "share_rhat_below_1.01": "share of R-hat < 1.01",
    "lppd": "LPPD",
    "cpu_seconds": "CPU s",
}


class MetricSettings(ProblemSettings):
    """The posteriors, the numbers of directions, and how long each run is."""

    num_directions: tuple[int, ...] = Field((0, 100), min_length=2)
    num_seeds: int = Field(3, ge=2)
    num_chains: int = Field(10, ge=2)
    num_tuning: int = Field(1000, ge=100)
    most_steps: int = Field(20_000, ge=100)
    num_warmup: int = Field(200, ge=10)
    num_samples: int = Field(400, ge=4)
    trajectory_steps: int = Field(50, ge=1)
    # Integration steps over which jumps of predictions are measured.
    jump_steps: int = Field(500, ge=1)


def run_metric(settings: MetricSettings, context: Context) -> list[Row]:
    """Run every number of directions on every posterior and seed, a stage each, and compare."""
    rows: list[Row] = []
    for number, name in enumerate(settings.problems):
        posed = settings.posed(name)
        found: dict[int, list[Mapping[str, np.ndarray]]] = {k: [] for k in settings.num_directions}
        for seed in range(settings.num_seeds):
            key = jax.random.fold_in(jax.random.fold_in(context.key, number), seed)
            networks = context.stage(
                f"{name}_{seed}_networks", functools.partial(_networks, key, posed, settings)
            )
            for k in settings.num_directions:
                stage = f"{name}_{seed}_{k}_directions"
                compute = functools.partial(
                    _sampled, key, k, stage, posed, networks, settings, context
                )
                found[k].append(context.stage(stage, compute))
        rows += _rows(name, found)
    context.save_figure("metric", metric_picture(rows, settings.num_directions), dpi=100)
    context.save_table("metric", *by_setting(rows, "posterior, metric", _COLUMNS))
    return rows


def _networks(key: jax.Array, posed: Problem, settings: MetricSettings) -> dict[str, Any]:
    key_start, _ = jax.random.split(key)
    starts = optimised_starts(key_start, posed.posterior, settings.num_chains, progress=False)
    return as_arrays(starts.positions)


def _sampled(
    key: jax.Array,
    num_directions: int,
    stage: str,
    posed: Problem,
    networks: Mapping[str, np.ndarray],
    settings: MetricSettings,
    context: Context,
) -> dict[str, np.ndarray]:
    _, key_run = jax.random.split(key)
    folder = context.checkpoint(stage)
    clock = Clock(folder)
    run = ensemble_draws(
        key_run, posed.posterior, positions_of(posed, networks), settings.num_samples,
        num_directions=num_directions, num_tuning=settings.num_tuning,
        most_steps=settings.most_steps, num_warmup=settings.num_warmup,
        trajectory_steps=settings.trajectory_steps, checkpoint=folder,
    )  # fmt: skip
    seconds = clock.seconds()
    predicted = at_targets(posed, run.draws.positions)
    means = predictive_means(posed, run.draws.positions)
    lag = min(max(settings.jump_steps // settings.trajectory_steps, 1), means.shape[1] - 1)
    return {
        "step_size": np.asarray(run.draws.parameters["step_size"]).mean(),
        "acceptance_rate": np.asarray(run.draws.infos.acceptance_rate).mean(),
        "squared_jump": squared_jump(means, lag),
        "median_rhat": np.median(predicted["rhat"]),
        "share_rhat_below_1.01": (predicted["rhat"] < _CONVERGED).mean(),
        "lppd": np.asarray(lppd_of_mixture(predicted["log_density"])),
        "cpu_seconds": np.asarray(seconds),
        "is_settled": run.way_in.is_settled.mean(),
        "way_in_log_density": run.way_in.log_density[:, -1],
    }


def squared_jump(means: Float[np.ndarray, "chain draw row"], lag: int) -> np.ndarray:
    """Return the mean squared change of predictions from one draw to the one `lag` later.

    Examples
    --------
    >>> float(squared_jump(np.arange(6.0).reshape(1, 6, 1), 2))
    4.0
    """
    return np.square(means[:, lag:] - means[:, :-lag]).mean()


def _rows(name: str, found: Mapping[int, list[Mapping[str, np.ndarray]]]) -> list[Row]:
    """Return means over seeds, and what more directions change, each seed against itself."""
    first, *others = found
    rows = []
    for quantity in _COLUMNS:
        values = {k: np.array([float(run[quantity]) for run in runs]) for k, runs in found.items()}
        rows += [_mean(quantity, f"{name}, {k} directions", values[k]) for k in found]
        is_ratio = quantity in ("step_size", "squared_jump", "cpu_seconds")
        for k in others:
            with np.errstate(divide="ignore", invalid="ignore"):  # of no seconds but compiling
                changed = values[k] / values[first] if is_ratio else values[k] - values[first]
            where = f"{name}, {k} directions {'over' if is_ratio else 'less'} {first}"
            rows.append(_mean(quantity, where, changed))
    return rows


def _mean(quantity: str, where: str, values: Float[np.ndarray, " seed"]) -> Row:
    return Row(quantity, where, values.mean(), values.std(ddof=1) / np.sqrt(len(values)))
