"""Gibbs, HMC, MALA and NUTS from informed and uninformed starts (figure 2, tables 1 to 4).

Data sets with noiseless labels, shared by all samplers. All data sets, all values of Delta and
both starts that have the same number of steps are chains of one program. Recorded is the test
error of the current weights, at geometrically spaced steps. Seconds are those of a chain: of the
whole run, compilation included, by the number of its chains.
"""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from experiments.studies.thermalization import pictures
from experiments.studies.thermalization.common import (
    geometric_steps,
    in_scientific,
    mean_and_error,
    student,
    wilson_interval,
)
from experiments.studies.thermalization.kernels import kernel_on_data_sets
from experiments.studies.thermalization.tables import Point, Run, SamplersSettings, kept_points
from experiments.study import Context, Row
from jaxbnn.diagnostics import merge_time
from jaxbnn.thermalization import mean_squared_error, near_zero_position, teacher_student

SECTION = "000 Section V.2"


class Series(NamedTuple):
    """Test errors (dataset, record) and acceptance (dataset,) at one Delta from one start."""

    steps: np.ndarray
    mse: np.ndarray
    seconds_per_step: float
    acceptance: np.ndarray


def run_samplers(settings: SamplersSettings, context: Context) -> list[Row]:
    """Run every sampler from both starts, judge whether they merge, draw the figure."""
    data = _data(settings, context)
    rows: list[Row] = []
    points: list[dict] = []
    curves: list[dict] = []
    for index, run in enumerate(settings.runs):
        if settings.budgets and run.label not in settings.budgets:
            continue
        key = jax.random.fold_in(context.key, 1 + index)
        found = _run(run, settings, context, data, key)
        for point in kept_points(run, run.table, settings):
            informed, uninformed = found["informed", point.delta], found["uninformed", point.delta]
            numbers = _judge(informed, uninformed, settings.false_alarm_rate)
            points.append({"label": run.label, "delta": point.delta, **numbers})
            rows += _rows(run, point, numbers)
            curves += _curves(run, point, informed, uninformed)
    rows += _deficit(points)
    _print(points)
    if settings.figure == "left":
        pictures.share_merged(points, context)
    else:
        name, label = "figure_2_right", "test mean squared error, first data set"
        pictures.dynamics(curves, name, label, context)
    return rows


def _data(settings: SamplersSettings, context: Context):
    """Draw all data sets: (x, y, informed starts), stacked, and one set of test inputs for all."""

    @jax.jit
    def draw(keys):
        def one(key):
            # The noise variance plays no part in noiseless data.
            model = student(settings.widths, settings.activation, 1.0)
            found = teacher_student(
                key, model, settings.num_train, 1, num_random=0, is_noiseless=True
            )
            return found.x, found.y, found.positions["informed"]

        return jax.vmap(one)(keys)

    key_data, key_test = jax.random.split(jax.random.fold_in(context.key, 0))
    x_test = jax.random.normal(key_test, (settings.num_test, settings.widths[0]))
    return draw(jax.random.split(key_data, settings.num_datasets)), x_test


def _run(run: Run, settings: SamplersSettings, context: Context, data, key) -> dict:
    """Run all points from both starts; those of equal length and leapfrog steps are one program."""
    jobs = [("uninformed", point) for point in kept_points(run, run.table, settings)]
    informed_table = (run.uses_informed_table and run.informed_table) or run.table
    jobs += [("informed", point) for point in kept_points(run, informed_table, settings)]
    groups: dict[tuple, list] = {}
    for start, point in jobs:
        groups.setdefault((point.num_steps, point.leapfrog_steps), []).append((start, point))
    found = {}
    for index, (shape, group) in enumerate(groups.items()):
        name = f"{run.sampler}_{run.posterior}_{shape[0]}_{shape[1]}"
        group_key = jax.random.fold_in(key, index)
        compute = functools.partial(_sample, run, group, settings, context, name, data, group_key)
        arrays = context.stage(name, compute)
        seconds = float(arrays["seconds_per_step"])
        pairs = zip(group, arrays["mse"], arrays["acceptance"], strict=True)
        for (start, point), mse, acceptance in pairs:
            found[start, point.delta] = Series(arrays["steps"], mse, seconds, acceptance)
    return found


def _sample(
    run: Run, group: list, settings: SamplersSettings, context: Context, name: str, data, key
) -> dict:
    (x, y, informed), x_test = data
    num_datasets, num_steps = settings.num_datasets, group[0][1].num_steps
    model_of = functools.partial(student, settings.widths, settings.activation)
    network = model_of(1.0).network
    key_starts, key_run = jax.random.split(key)

    def uninformed(key, x, y):
        model = model_of(1.0)
        if run.sampler == "Gibbs":
            return model.zero_position(x, y)
        return near_zero_position(key, model, x, y, settings.uninformed_scale)

    keys = jax.random.split(key_starts, num_datasets)
    starts = {"informed": informed, "uninformed": jax.jit(jax.vmap(uninformed))(keys, x, y)}
    positions = jax.tree.map(
        lambda *leaves: jnp.concatenate(leaves), *(starts[s] for s, _ in group)
    )
    if run.posterior == "classical":
        positions = positions.params

    def each(numbers):
        return np.repeat(np.asarray(numbers, np.float32), num_datasets)

    parameters = {
        "dataset": np.tile(np.arange(num_datasets, dtype=np.int32), len(group)),
        "delta": each([point.delta for _, point in group]),
        "step_size": each([point.learning_rate or 1.0 for _, point in group]),
    }

    def record(state, info):
        f_test = network.apply(state.teacher, x_test)
        return mean_squared_error(network, state.params, x_test, f_test)

    steps = geometric_steps(num_steps, settings.num_records)
    draws = context.sample(
        name,
        key_run,
        kernel_on_data_sets(run.sampler, run.posterior, group[0][1].leapfrog_steps, model_of),
        positions,
        len(steps),
        parameters=parameters,
        data=(x, y, informed),
        thinning=steps,
        collect=record,
    )
    seconds = draws.seconds
    chain_steps = num_steps * num_datasets * len(group)
    context.record_speed(f"{run.label}, {num_steps} steps", chain_steps, seconds)
    return {
        "steps": steps,
        "mse": draws.positions.reshape(len(group), num_datasets, -1),
        "seconds_per_step": np.asarray(seconds / chain_steps),
        "acceptance": np.asarray(draws.acceptance_rate, float).reshape(len(group), -1),
    }


def _judge(informed: Series, uninformed: Series, rate: float) -> dict:
    with np.errstate(divide="ignore"):
        found = merge_time(
            np.log(uninformed.mse),
            np.log(informed.mse),
            uninformed.steps,
            informed_steps=informed.steps,
            false_alarm_rate=rate,
        )
    merged = np.asarray(found.is_passed)
    late = informed.steps > informed.steps[-1] / 2
    levels = informed.mse[:, late].mean(axis=1)
    level, level_error = mean_and_error(levels)
    times = np.asarray(found.lower_bound)[merged]
    return {
        "merged": int(merged.sum()),
        "is_merged": merged,
        "share": merged.mean(),
        "interval": wilson_interval(int(merged.sum()), len(merged)),
        "level": level,
        "level_error": level_error,
        "time": mean_and_error(times),
        "seconds": mean_and_error(times * uninformed.seconds_per_step),
        "num_steps": int(uninformed.steps[-1]),
        "num_datasets": len(merged),
        "acceptance": mean_and_error(uninformed.acceptance),
        "informed_acceptance": mean_and_error(informed.acceptance),
    }


def _rows(run: Run, point: Point, numbers: dict) -> list[Row]:
    """Return the rows of one sampler at one Delta.

    Times to merge are means over the data sets that merged, as the paper's are: what the others
    would have taken is in none of them, and where none merged there is no number.
    """
    setting = f"{run.paper_name}, Delta = {in_scientific(point.delta)}"
    share = float(numbers["share"])
    error = float(np.sqrt(_variance(numbers)))
    low, high = numbers["interval"]
    seconds, seconds_error = numbers["seconds"]
    in_paper = (run.sampler, run.posterior, point.delta) in {
        ("HMC", "classical", 1e-3),
        ("MALA", "classical", 1e-3),
        ("Gibbs", "intermediate", 4.64e-4),
        ("HMC", "intermediate", 4.64e-4),
    }
    return [
        Row("share_merged", setting, share, error),
        Row("share_merged_low", setting, low),
        Row("share_merged_high", setting, high),
        Row("equilibrium_test_mse", setting, numbers["level"], numbers["level_error"]),
        Row("steps_to_merge", setting, *numbers["time"]),
        Row(
            "time_to_merge_seconds", setting, seconds, seconds_error, SECTION if in_paper else None
        ),
        Row("num_steps", setting, float(numbers["num_steps"])),
        Row("acceptance", f"{setting}, uninformed start", *numbers["acceptance"]),
        Row("acceptance", f"{setting}, informed start", *numbers["informed_acceptance"]),
    ]


def _deficit(points: list[dict]) -> list[Row]:
    """How much less often classical HMC merges than Gibbs, at the Deltas of equal test error.

    Both ran on the same data sets, so that the error is that of paired differences.
    """
    by_key = {(point["label"], point["delta"]): point for point in points}
    hmc = by_key.get(("HMC, classical", 1e-3))
    gibbs = by_key.get(("Gibbs, intermediate", 4.64e-4))
    if hmc is None or gibbs is None:
        return []
    variance = _paired_variance(gibbs["is_merged"], hmc["is_merged"])
    value, error = 100 * (gibbs["share"] - hmc["share"]), 100 * float(np.sqrt(variance))
    name, setting = (
        "thermalized_proportion_deficit_percent",
        "HMC, classical posterior, below Gibbs",
    )
    return [Row(name, setting, float(value), error, SECTION)]


def _variance(numbers: dict) -> float:
    """Return the variance of a share merged, as if one more data set had merged and one not.

    Without them it would be nothing where none of a few merges.
    """
    count = numbers["num_datasets"] + 2
    share = (numbers["merged"] + 1) / count
    return share * (1 - share) / count


def _paired_variance(one: np.ndarray, other: np.ndarray) -> float:
    """Return the variance of the difference of two shares merged of the same data sets.

    As if each way in which both, one of the two or neither can merge had come up half a time more
    often (Agresti and Min, 2005): each of the shares is then that of `_variance`.
    """
    count = len(one) + 2
    only_one, only_other = (np.sum(a & ~b) + 0.5 for a, b in ((one, other), (other, one)))
    difference = (only_one - only_other) / count
    return float((only_one + only_other) / count - difference**2) / count


def _curves(run: Run, point: Point, informed: Series, uninformed: Series) -> list[dict]:
    note = f", Delta = {in_scientific(point.delta)}"
    return [
        {
            "label": run.label,
            "note": note,
            "seconds": one.steps * one.seconds_per_step,
            "values": one.mse[0],
            "is_faint": is_faint,
        }
        for one, is_faint in ((informed, True), (uninformed, False))
    ]


def _print(points: list[dict]) -> None:
    print("\nmerged by the teacher-student criterion, 95 % interval, equilibrium MSE")
    for p in points:
        low, high = p["interval"]
        print(
            f"{p['label']:<22} Delta {in_scientific(p['delta']):<8} "
            f"{p['merged']}/{p['num_datasets']} ({low:.2f} to {high:.2f}) "
            f"in {p['num_steps']:,} steps, MSE {p['level']:.3g}, "
            f"acceptance {p['acceptance'][0]:.2g}, informed {p['informed_acceptance'][0]:.2g}"
        )
