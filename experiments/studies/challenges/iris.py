"""Iris by MLP(4, 3, 3): the samplers of Table 2, and NUTS (Papamarkou et al., section 6.2).

No sampler here converges in parameter space, as the paper finds: hidden units can
be exchanged and reflected without any change of the output, and chains stay in different
copies. What can be compared between chains are functions that do not see the copies, the
predicted probabilities first.
"""

import dataclasses
import functools
import itertools
import math
from typing import Literal

import jax
import jax.numpy as jnp
import numpy as np
from pydantic import Field, model_validator

from experiments.datasets import iris
from experiments.studies.challenges import pictures
from experiments.studies.challenges.common import (
    diagnostics_of,
    other_rhats,
    over_seeds,
    paper_order,
    parameter_names,
    table_rows,
)
from experiments.studies.challenges.iris_kernels import (
    NETWORK,
    NUM_PARAMETERS,
    kernel_factory,
    posterior,
)
from experiments.study import Context, Row, Settings, all_draws
from jaxbnn import (
    Adaptation,
    diagnostics,
    dual_averaging,
    window_adaptation,
)

SOURCE = "004 Table 2"
# Numbers of the table that the text repeats, by quantity and sampler.
IN_THE_TEXT = {
    *((quantity, "P-SMMALA") for quantity in ("psrf_split", "psrf_folded_split")),
    *itertools.product(("ess_min", "ess_median"), ("MALA", "SMMALA", "P-MALA", "P-SMMALA")),
}
START_STEP_SIZE = 0.05


class IrisRun(Settings):
    """One sampler; its step size eps is tuned to `target_acceptance_rate`, or given.

    The power posteriors (P-) have `num_replicas` replicas, all at temperature 1, which propose
    to swap every `swap_every` iterations. They start in one place, as the authors' do.
    """

    sampler: Literal["MALA", "NUTS", "SMMALA", "P-MALA", "P-SMMALA"]
    num_iterations: int = Field(ge=200)
    num_burn_in: int = Field(ge=100)
    target_acceptance_rate: float | None = Field(default=None, gt=0, lt=1)
    step_size: float | None = Field(default=None, gt=0)
    num_replicas: int = Field(default=10, ge=2)
    swap_every: int = Field(default=10, ge=1)

    @model_validator(mode="after")
    def _leaves_draws_and_has_a_step(self):
        if (self.target_acceptance_rate is None) == (self.step_size is None):
            raise ValueError("give either target_acceptance_rate or step_size")
        if self.num_burn_in > self.num_iterations - 100:
            raise ValueError("num_burn_in must leave at least 100 of num_iterations")
        return self


class IrisSettings(Settings):
    """Settings of the Iris experiment.

    `start_scale` is the standard deviation of the chains' starts. (From draws of the prior
    itself about one MALA chain in 140 is stuck: its units are saturated.) `num_seeds` runs of
    each sampler, each with its own chains, say by how much a single run varies.
    """

    num_chains: int = Field(ge=3)  # the errors leave out one chain at a time
    prior_variance: float = Field(gt=0)
    start_scale: float = Field(gt=0)
    num_seeds: int = Field(default=1, ge=1)
    runs: tuple[IrisRun, ...] = Field(min_length=1)


def run_iris(settings: IrisSettings, context: Context) -> list[Row]:
    """Run each sampler, draw the figures, return the numbers."""
    x, y = iris()
    data = {"x": jnp.asarray(x), "y": jnp.asarray(y)}
    rows: list[Row] = []
    kept: dict[str, np.ndarray] = {}
    series: dict[str, np.ndarray] = {}
    for index, run in enumerate(settings.runs):
        seeds = []
        for seed in range(settings.num_seeds):
            key = jax.random.fold_in(jax.random.fold_in(context.key, index), seed)
            # Pictures show the first seed; of the others fewer draws are kept.
            every = 10 if seed else 1
            compute = functools.partial(_sample, run, settings, data, context, key, every)
            name = f"run_{index}_{run.sampler}" + (f"_seed_{seed + 1}" if seed else "")
            seeds.append(context.stage(name, compute))
            _print_summary(run, seeds[-1], in_full=seed == 0)
        rows += _rows(run, seeds) + _runtime_rows(run, seeds)
        kept[run.sampler], series[run.sampler] = seeds[0]["draws"], seeds[0]["log_density"]
    pictures.iris_figures(kept, series, context)
    return rows


def _print_summary(run: IrisRun, found: dict, *, in_full: bool) -> None:
    summary = diagnostics.summary(
        found["draws"],
        log_density=found["log_density"],
        names=parameter_names(NUM_PARAMETERS),
    )
    rates = ", ".join(f"{100 * rate:.1f}" for rate in found["acceptance_rates"])
    print(f"\n{run.sampler}, step size {float(found['step_size']):.4g}, acceptance {rates} %")
    print(summary if in_full else "\n".join(summary.warnings))


def _rows(run: IrisRun, seeds: list[dict]) -> list[Row]:
    """Return the means over the seeds, then, if there are several, each seed's own numbers.

    What the paper prints twice is a row twice.
    """
    source = None if run.sampler == "NUTS" else SOURCE
    by_seed = [_rows_of_seed(run.sampler, found, source) for found in seeds]
    rows = _as_printed(over_seeds(by_seed))
    if len(seeds) == 1:
        return rows
    return rows + [
        dataclasses.replace(row, setting=f"{row.setting}, seed {i + 1}", source=None)
        for i, own in enumerate(by_seed)
        for row in own
    ]


def _as_printed(rows: list[Row]) -> list[Row]:
    again = [row for row in rows if row.source and (row.quantity, row.setting) in IN_THE_TEXT]
    return rows + [dataclasses.replace(row, source="004 Section 6.2.1") for row in again]


def _runtime_rows(run: IrisRun, seeds: list[dict]) -> list[Row]:
    """Return the median over the seeds of what a chain takes, beside what the paper's took.

    Chains run side by side, and the time of all is shared evenly; the first seed compiles.
    """
    seconds = np.array([float(found["seconds_a_chain"]) for found in seeds])
    median, error = float(np.median(seconds)), None
    if len(seeds) > 1:
        low, high = np.quantile(seconds, [0.25, 0.75])
        # Of a normal law: its quartiles are 1.349 standard deviations apart, and a median varies
        # 1.253 times as much as a mean.
        error = float(1.253 * (high - low) / 1.349 / math.sqrt(len(seeds)))
    is_printed = run.sampler != "NUTS"
    source = "004 Section 6.4" if is_printed else None
    rows = [Row("median_runtime_seconds", run.sampler, median, error, source)]
    if run.sampler == "P-SMMALA":
        days = median / 86400, None if error is None else error / 86400
        rows.append(Row("runtime_days", "P-SMMALA, one simulation", *days, "004 Section 6.2.1"))
    return rows


def _rows_of_seed(setting: str, found: dict, source: str | None) -> list[Row]:
    pairs = {name: value for name, value in found.items() if np.shape(value) == (2,)}
    numbers = {
        name: value
        for name, value in found.items()
        if (name.startswith("psrf_") and name not in pairs)
        or name.endswith(("_log_density", "_predictions"))
        or name in ("step_size", "frozen_chains")
    }
    return table_rows(pairs, setting, source) + [
        Row(name, setting, float(value)) for name, value in numbers.items()
    ]


def _sample(run: IrisRun, settings: IrisSettings, data, context: Context, key, every: int) -> dict:
    key_start, key_run = jax.random.split(key)
    num_chains = settings.num_chains
    target = posterior(settings.prior_variance, data)
    shrink = settings.start_scale / math.sqrt(settings.prior_variance)
    starts = jax.tree.map(lambda x: x * shrink, target.sample_prior(key_start, (num_chains,)))
    parameters: dict = {"step_size": run.step_size or START_STEP_SIZE}
    if run.sampler == "NUTS":
        parameters["inverse_mass_matrix"] = np.ones((num_chains, NUM_PARAMETERS), np.float32)
    with context.timed(run.sampler, num_chains * run.num_iterations):
        draws = all_draws(
            key_run,
            kernel_factory(run.sampler, settings.prior_variance, run.num_replicas, run.swap_every),
            starts,
            run.num_iterations - run.num_burn_in,
            parameters=parameters,
            data=data,
            num_warmup=run.num_burn_in,
            adapt=_adaptation(run),
        )
    matrix = paper_order(draws.positions)
    log_density = np.asarray(diagnostics.evaluate(target.log_density, draws.positions))
    probabilities = diagnostics.evaluate(
        lambda p: jax.nn.softmax(NETWORK.apply(p, data["x"]), axis=-1)[::15],
        jax.tree.map(lambda leaf: leaf[:, :: max(1, leaf.shape[1] // 5000)], draws.positions),
    )
    return {
        "draws": matrix[:, ::every],
        "log_density": log_density[:, ::every],
        "acceptance_rates": draws.acceptance_rate,
        "frozen_chains": np.sum(np.asarray(draws.acceptance_rate) < 0.01),
        "step_size": np.asarray(draws.parameters["step_size"]).mean(),
        "seconds_a_chain": np.asarray(draws.seconds / num_chains),
        **diagnostics_of(matrix, draws.acceptance_rate),
        **other_rhats(matrix),
        **invariants_of(log_density, np.asarray(probabilities)),
    }


def _adaptation(run: IrisRun) -> Adaptation | None:
    if run.target_acceptance_rate is None:
        return None
    if run.sampler == "NUTS":
        rate = run.target_acceptance_rate
        return window_adaptation(run.num_burn_in, target_acceptance_rate=rate)
    return dual_averaging(run.target_acceptance_rate)


def invariants_of(log_density: np.ndarray, probabilities: np.ndarray) -> dict:
    """Diagnose what does not see the symmetries: log density and predicted probabilities."""
    return {
        "psrf_split_log_density": diagnostics.split_rhat(log_density),
        "psrf_split_predictions": np.max(diagnostics.split_rhat(probabilities)),
        "ess_bulk_log_density": diagnostics.ess_bulk(log_density),
        "ess_bulk_predictions": np.min(diagnostics.ess_bulk(probabilities)),
    }
