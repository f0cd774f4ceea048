"""Chains that thermalize where plain Gibbs is trapped: each move alone, all together, annealed.

On data sets with noisy labels the informed chain is an exact draw of the posterior. Whether a chain
from zero, from the prior or from an optimised network has joined it is judged as in figure 2, by
the logarithm of the test error; and beside the published criterion, by R-hat of numbers that see
no symmetry. Iterations count the warm-up, whose length is the least that an adapted arm can have.
"""

import functools
from collections.abc import Mapping

import numpy as np
from matplotlib.figure import Figure
from scipy.stats import binomtest

from experiments.studies.thermalization.common import in_scientific, mean_and_error
from experiments.studies.thermalization.faster_chains import (
    Arm,
    Case,
    DataSets,
    FasterSettings,
    Recorded,
    draw_data,
    run_chains,
    stage_name,
)
from experiments.study import Context, Row
from jaxbnn.diagnostics import merge_time, split_rhat

COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#999999")


def run_faster(settings: FasterSettings, context: Context) -> list[Row]:
    """Run the arms of every case and judge which chains have joined the informed ones."""
    rows: list[Row] = []
    table: list[list] = []
    curves: list[dict] = []
    for case in settings.cases:
        if settings.only_deltas and case.delta not in settings.only_deltas:
            continue
        data = draw_data(settings, case, context)
        for arm in settings.arms:
            if arm.name in case.arms and arm.name in (settings.only_arms or case.arms):
                found = _chains(settings, case, arm, context, data)
                _judge(found, settings, case, arm, rows, table, curves)
    header = ["arm", "start", "Delta", "labels", "thermalized", "95 % interval", "iterations",
              "error", "seconds", "error", "informed MSE", "error", "R-hat"]  # fmt: skip
    context.save_table("arms", header, table)
    _print(header, table)
    if curves:
        _figure(curves, context)
    return rows


def _chains(
    settings: FasterSettings, case: Case, arm: Arm, context: Context, data: DataSets
) -> dict[str, dict]:
    """Return the series from each start; each start is a stage of its own."""
    found = {}
    slices = {"only_arms", "only_deltas", "only_starts", "arms", "cases", "false_alarm_rate"}
    shared = settings.model_dump(mode="json", exclude=slices)
    for start in ("informed", *case.starts):
        if start != "informed" and settings.only_starts and start not in settings.only_starts:
            continue
        of = {
            "arm": arm.model_dump(mode="json", exclude_defaults=True),
            "case": case.model_dump(mode="json", exclude={"arms", "starts"}),
            "start": start,
            **shared,
        }
        name = stage_name(case, arm, start)
        compute = functools.partial(run_chains, settings, case, arm, start, context, data)
        found[start] = context.stage(name, compute, of=of)
    return found


def _judge(found, settings, case, arm, rows, table, curves) -> None:
    informed = found["informed"]
    labels = "noiseless" if case.is_noiseless else "noisy"
    where = f"Delta = {in_scientific(case.delta)}, {labels} labels"
    if case.num_copies > 1:
        where += f", {case.num_copies} chains a start"
    level = mean_and_error(_by_dataset(late_levels(informed), case.num_copies).mean(axis=1))
    rows.append(Row("equilibrium_test_mse", f"{arm.name}, {where}", *level))
    worst = {}
    if len(found) > 1:
        worst = worst_rhat(found, case.num_copies)
        value = float(np.max(list(worst.values())))
        rows.append(Row("rhat_worst", f"{arm.name}, {where}", value))
        agree = np.max(np.stack(list(worst.values())), axis=0) < 1.01
        rows.append(Row("share_rhat_below_1.01", f"{arm.name}, {where}", float(agree.mean())))
        rows += [
            Row("rhat_worst", f"{arm.name}, {where}: {name}", float(values.max()))
            for name, values in worst.items()
        ]
    for start, series in found.items():
        if start == "informed":
            continue
        joined = merged(series, informed, settings.false_alarm_rate)
        numbers = summary(joined, series, case.num_copies)
        setting = f"{arm.name}, {start} start, {where}"
        rows += [Row(name, setting, *value) for name, value in numbers.items()]
        shown = [numbers[name] for name in ("iterations_to_thermalize", "seconds_to_thermalize")]
        low, high = (numbers[f"share_thermalized_{end}"][0] for end in ("low", "high"))
        passed, bound = of_data_sets(joined, case.num_copies)
        count = f"{int(passed.sum())}/{len(passed)}"
        table.append(
            [arm.name, start, in_scientific(case.delta), labels, count, f"{low:.2f} to {high:.2f}"]
            + [_short(number) for pair in (*shown, level) for number in pair]
            + [f"{max(values.max() for values in worst.values()):.3f}"]
        )
        curves.append(
            {"arm": arm.name, "start": start, "where": where,
             "times": np.where(passed, bound, np.inf), "num_steps": int(series["steps"][-1]),
             "seconds_per_step": float(series["seconds_per_step"])}
        )  # fmt: skip


def merged(series: Mapping, informed: Mapping, rate: float):
    """Return `merge_time` of the log test errors; no time is below the warm-up.

    The criterion of figure 2: its judged part is the last half of all steps.
    """
    with np.errstate(divide="ignore"):
        found = merge_time(
            np.log(series["mse"]),
            np.log(informed["mse"]),
            series["steps"],
            informed_steps=informed["steps"],
            false_alarm_rate=rate,
        )
    is_passed = np.atleast_1d(found.is_passed)
    bound = np.maximum(np.atleast_1d(found.lower_bound), int(series["num_warmup"]))
    return found._replace(lower_bound=bound, is_passed=is_passed)


def of_data_sets(joined, num_copies: int = 1) -> tuple[np.ndarray, np.ndarray]:
    """Return of each data set whether all its copies passed, and when the last of them had.

    Chains on one data set share its traps: they are one trial of what the kernel can do.
    """
    passed = np.min(_by_dataset(joined.is_passed, num_copies), axis=1)
    return passed, np.max(_by_dataset(joined.lower_bound, num_copies), axis=1)


def summary(joined, series: Mapping, num_copies: int = 1) -> dict[str, tuple]:
    """Return the numbers of one arm and start; of a share its exact 95 % interval, too.

    Times are of the data sets that thermalized.
    """
    passed, bound = of_data_sets(joined, num_copies)
    interval = binomtest(int(passed.sum()), len(passed)).proportion_ci(method="exact")
    times = bound[passed]
    seconds = times * float(series["seconds_per_step"])
    return {
        "share_thermalized": (float(passed.mean()),),
        "share_thermalized_low": (float(interval.low),),
        "share_thermalized_high": (float(interval.high),),
        "iterations_to_thermalize": mean_and_error(times),
        "seconds_to_thermalize": mean_and_error(seconds),
        "seconds_per_iteration": (float(series["seconds_per_step"]),),
    }


def late_levels(series: Mapping) -> np.ndarray:
    """Return the mean test error of each chain in the last half of its steps."""
    return series["mse"][:, series["steps"] > series["steps"][-1] / 2].mean(axis=1)


def worst_rhat(found: Mapping[str, Mapping], num_copies: int) -> dict[str, np.ndarray]:
    """Return split R-hat by invariant and data set, over all starts and copies.

    Of the equally spaced records of the last half of the steps; of vectors the largest.
    """
    kept = []
    for series in found.values():
        steps = series["steps"]
        gap = np.diff(steps).max()
        kept.append((steps > steps[-1] / 2) & (steps % gap == 0))
    worst = {}
    for name in Recorded._fields:
        chains = [
            _by_dataset(series[name][:, late], num_copies)
            for series, late in zip(found.values(), kept, strict=True)
        ]
        draws = np.concatenate(chains, axis=1)  # (dataset, chain, record, ...)
        draws = draws.reshape(*draws.shape[:3], -1)
        draws = np.log(draws) if name == "mse" else draws
        worst[name] = np.array([np.max(split_rhat(one)) for one in draws])
    return worst


def _by_dataset(values: np.ndarray, num_copies: int) -> np.ndarray:
    return values.reshape(-1, num_copies, *values.shape[1:])


def _short(number: float | None) -> str:
    return "" if number is None or np.isnan(number) else f"{number:.3g}"


def _print(header: list[str], table: list[list]) -> None:
    print(
        "\nthermalized by the teacher-student criterion; times are of those that thermalized; "
        "R-hat is the worst of all invariants"
    )
    print(" | ".join(header))
    for line in table:
        print(" | ".join(str(entry) for entry in line))


def _figure(curves: list[dict], context: Context) -> None:
    """Draw the share of data sets thermalized, a column for each Delta.

    Above after so many iterations, below after so many seconds of a chain, since an iteration of
    one arm costs more than that of another.
    """
    places = list(dict.fromkeys(curve["where"] for curve in curves))
    arms = list(dict.fromkeys(curve["arm"] for curve in curves))
    figure = Figure(figsize=(5 * len(places), 8), layout="constrained")
    panels = figure.subplots(2, len(places), squeeze=False)
    for (row, column), axes in np.ndenumerate(panels):
        where, unit = places[column], ("iterations", "seconds")[row]
        for curve in (one for one in curves if one["where"] == where):
            scale = curve["seconds_per_step"] if unit == "seconds" else 1
            times = scale * np.sort(curve["times"])
            finite = times[np.isfinite(times)]
            steps = np.concatenate([[0], finite, [scale * curve["num_steps"]]])
            share = np.concatenate([np.arange(len(finite) + 1), [len(finite)]]) / len(times)
            axes.step(
                steps, share, where="post", label=f"{curve['arm']}, {curve['start']}",
                color=COLORS[arms.index(curve["arm"]) % len(COLORS)],
                linestyle="-" if curve["start"] == "zero" else "--",
            )  # fmt: skip
        axes.set(xlabel=unit, ylabel="share thermalized", ylim=(-0.05, 1.05), title=where)
    figure.axes[0].legend(fontsize="x-small")
    context.save_figure("share_thermalized", figure)
