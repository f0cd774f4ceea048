"""All thermalization criteria on one teacher's data (figures 1 and 4; other activations, depths).

Four Gibbs chains on one data set: informed, zero, and two random ones. The state's test error
and score are recorded at geometrically spaced sweeps, outputs on test inputs at equal ones.
"""

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from pydantic import Field, model_validator

from experiments.studies.thermalization import pictures
from experiments.studies.thermalization.common import geometric_steps, student
from experiments.study import Context, Row, Settings
from jaxbnn.diagnostics import stationarity_time
from jaxbnn.gibbs import gibbs_sampler
from jaxbnn.thermalization import (
    Comparison,
    compare,
    mean_squared_error,
    score_statistic,
    teacher_student,
)

PAIRS = (("zero", "informed"), ("random 1", "random 2"))
SECTION = "000 Section V.1"
APPENDIX = "000 Appendix B.1"


class CriteriaSettings(Settings):
    """Settings; precisions are the layers' fan-in.

    `num_outputs` test inputs have their outputs recorded every `output_every` sweeps, for R-hat of
    blocks of `block_length` records. `paper_figure` says which of the paper's numbers the rows
    stand beside.
    """

    widths: tuple[int, ...] = (50, 10, 1)
    activations: tuple[str, ...] = ("relu",)
    delta: float = Field(gt=0)
    num_train: int = Field(gt=0)
    num_test: int = Field(gt=0)
    num_sweeps: int = Field(gt=0)
    num_records: int = Field(gt=0)
    num_outputs: int = Field(gt=0)
    output_every: int = Field(default=100, gt=0)
    block_length: int = Field(default=50, gt=1)
    rhat_threshold: float = Field(default=1.44, gt=1)
    false_alarm_rate: float = Field(default=0.01, gt=0, lt=1)
    paper_figure: int | None = None

    @model_validator(mode="after")
    def _leaves_blocks_to_judge(self):
        if self.num_sweeps // self.output_every // self.block_length < 40:
            raise ValueError("num_sweeps must hold 40 blocks of block_length * output_every sweeps")
        if self.num_outputs > self.num_test:
            raise ValueError("num_outputs must be at most num_test")
        return self


class Recorded(NamedTuple):
    """What is kept of a sweep."""

    mse: Any
    score: Any
    outputs: Any


def run_criteria(settings: CriteriaSettings, context: Context) -> list[Row]:
    """Run the chains for each activation, compare the criteria, draw the figures."""
    rows: list[Row] = []
    for index, activation in enumerate(settings.activations):
        key = jax.random.fold_in(context.key, index)
        stage = f"chains_{activation}"
        compute = functools.partial(_sample, settings, activation, context, stage, key)
        found = context.stage(stage, compute)
        series = _series(found, settings)
        comparison = compare(
            **series,
            pairs=PAIRS,
            false_alarm_rate=settings.false_alarm_rate,
            block_length=settings.block_length,
            threshold=settings.rhat_threshold,
        )
        name = "Gibbs" if settings.paper_figure else f"Gibbs, {activation} network"
        print(f"\n{name}: thermalization criteria (R-hat by formula 16)\n{comparison}")
        rows += _rows(name, comparison, series, settings) + _informed_rows(name, found, settings)
        suffix = "" if len(settings.activations) == 1 else f"_{activation}"
        pictures.criteria_figures(comparison, series, suffix, context)
    return rows


def _sample(settings: CriteriaSettings, activation: str, context: Context, stage: str, key) -> dict:
    key_data, key_run = jax.random.split(key)
    model = student(settings.widths, activation, settings.delta)
    draw = jax.jit(
        functools.partial(
            teacher_student, model=model, num_train=settings.num_train, num_test=settings.num_test
        )
    )
    experiment = draw(key_data)
    names = list(experiment.positions)
    starts = jax.tree.map(lambda *leaves: jnp.stack(leaves), *experiment.positions.values())
    x_outputs = experiment.x_test[: settings.num_outputs]

    def make_kernel(parameters, data):
        return gibbs_sampler(model, *data)

    def look(position):
        network = model.network
        return Recorded(
            mean_squared_error(network, position.params, experiment.x_test, experiment.f_test),
            score_statistic(model, position, experiment.x, experiment.y),
            network.apply(position.params, x_outputs)[:, 0],
        )

    spaced = np.arange(1, settings.num_sweeps // settings.output_every + 1) * settings.output_every
    steps = np.union1d(geometric_steps(settings.num_sweeps, settings.num_records), spaced)
    draws = context.sample(
        stage,
        key_run,
        make_kernel,
        starts,
        len(steps),
        data=(experiment.x, experiment.y),
        thinning=steps,
        collect=lambda state, info: look(state.position),
    )
    at_start = jax.jit(jax.vmap(look))(starts)
    num_sweeps = len(names) * settings.num_sweeps
    context.record_speed(f"Gibbs, {activation}", num_sweeps, draws.seconds)
    return {
        "names": np.array(names),
        "steps": draws.steps,
        "mse": draws.positions.mse,
        "score": draws.positions.score,
        "outputs": draws.positions.outputs[:, np.isin(steps, spaced)],
        **{f"{name}_at_start": np.asarray(x) for name, x in at_start._asdict().items()},
    }


def _series(found: dict, settings: CriteriaSettings) -> dict:
    """Return the arguments of `compare`; series only at the geometric steps."""
    is_kept = np.isin(found["steps"], geometric_steps(settings.num_sweeps, settings.num_records))
    names = [str(name) for name in found["names"]]
    num_spaced = found["outputs"].shape[1]
    return {
        "steps": found["steps"][is_kept],
        "mse": dict(zip(names, found["mse"][:, is_kept], strict=True)),
        "score": {"zero": found["score"][names.index("zero"), is_kept]},
        "output_steps": settings.output_every * np.arange(1, num_spaced + 1),
        "outputs": dict(zip(names, found["outputs"], strict=True)),
    }


def _rows(name: str, comparison: Comparison, series: dict, settings: CriteriaSettings) -> list[Row]:
    source = SECTION if settings.paper_figure == 1 else None
    of = comparison.of
    merged, stationary = of("teacher-student", "zero", "informed"), of("stationarity", "zero")
    score, rhat = of("score", "zero"), of("R-hat", *PAIRS[0])
    plateau = of("R-hat", *PAIRS[1])
    prefix = "" if settings.paper_figure else f"{name}: "
    rows = [
        Row("thermalization_steps", f"{prefix}{setting}", one.lower_bound, None, source)
        for setting, one in (
            ("score method, zero start", score),
            ("R-hat statistic, zero and informed start", rhat),
            ("teacher-student method, zero start", merged),
        )
    ]
    rows += [
        Row("thermalization_steps", f"{name}, stationarity, zero start", stationary.lower_bound),
        Row(
            "rescaled_score",
            f"{name} sampler, zero start, after 20 sweeps",
            score.level,
            score.level_error,
            source,
        ),
        Row(
            "rhat",
            f"{name} sampler, zero and informed start, when stationary",
            rhat.level,
            rhat.level_error,
            source,
        ),
        Row(
            "rhat",
            f"{name} sampler, two random starts, on the plateau",
            plateau.level,
            plateau.level_error,
            source,
        ),
    ]
    if source:
        rows.append(
            Row(
                "rhat",
                "Gibbs sampler, two random starts, on the plateau",
                plateau.level,
                plateau.level_error,
                "000 Figure 1",
            )
        )
    for estimate in comparison.estimates:
        setting = f"{name}, {estimate.criterion} ({', '.join(estimate.chains)})"
        rows.append(Row("is_passed", setting, float(estimate.is_passed)))
    levels = {}
    for chain in series["mse"]:
        one = of("stationarity", chain)
        # The level is that of the logarithm.
        levels[chain] = float(np.exp(one.level)), float(np.exp(one.level) * one.level_error)
        setting = f"{name} sampler, {chain} start, last half of the sweeps"
        rows.append(Row("test_mse", setting, *levels[chain]))
    randoms = np.array([levels[chain][0] for chain in PAIRS[1]])
    error = float(randoms.std(ddof=1) / np.sqrt(2))
    rows.append(
        Row(
            "test_mse",
            f"{name} sampler, random start, plateau",
            float(randoms.mean()),
            error,
            source,
        )
    )
    rows.append(Row("num_sweeps", name, float(settings.num_sweeps)))
    return rows


def _informed_rows(name: str, found: dict, settings: CriteriaSettings) -> list[Row]:
    """Rows on the informed chain, from the teacher itself on: when its observables are stationary.

    Of three: the test error, which sees the teacher and begins at nothing, and two that do not see
    it, the score and the mean square of the outputs.
    """
    informed = [str(chain) for chain in found["names"]].index("informed")
    spaced = settings.output_every * np.arange(1, found["outputs"].shape[1] + 1)
    observables = {
        "test error": (found["steps"], found["mse"], found["mse_at_start"]),
        "score": (found["steps"], found["score"], found["score_at_start"]),
        "mean square of the outputs": (
            spaced,
            np.mean(np.square(found["outputs"]), axis=-1),
            np.mean(np.square(found["outputs_at_start"]), axis=-1),
        ),
    }
    prefix = "" if settings.paper_figure else f"{name}: "
    bounds = {}
    rows = []
    for observable, (steps, series, start) in observables.items():
        bounds[observable] = float(
            stationarity_time(
                np.append(start[informed], series[informed]),
                np.append(0, steps),
                false_alarm_rate=settings.false_alarm_rate,
            ).lower_bound
        )
        setting = f"{prefix}informed start, {observable}"
        rows.append(Row("thermalization_steps", setting, bounds[observable]))
    without = max(bounds[one] for one in bounds if one != "test error")
    is_printed = settings.paper_figure == 1
    blind = "informed start, observables without explicit dependence on the teacher"
    rows += [
        Row(
            "thermalization_steps",
            f"{prefix}{setting}",
            value,
            None,
            source if is_printed else None,
        )
        for setting, value, source in (
            (
                "informed start, most observables",
                float(np.median([*bounds.values()])),
                "000 Section II",
            ),
            (blind, without, APPENDIX),
        )
    ]
    at_start = float(found["mse_at_start"][informed])
    setting = f"{prefix}informed start, at initialization"
    # The same in all data sets: the teacher's own error.
    rows.append(Row("test_mse", setting, at_start, 0.0, APPENDIX if is_printed else None))
    return rows
