"""Chains that thermalize where plain Gibbs is trapped: each move alone, all together, annealed.

On data sets with noisy labels the informed chain is an exact draw of the posterior. Whether a chain
from zero, from the prior or from an optimised network has joined it is judged as in figure 2, by
the logarithm of the test error; and beside the published criterion, by R-hat of numbers that see
no symmetry. Iterations count the warm-up, whose length is the least that an adapted arm can have;
those of optimised starts do not count the training.

Steps of the arms may be compared; seconds of different arms may not. Arms were timed on machines of
different speeds, partly beside other work: the recorded run has 4.3 ms an iteration of the arm
"interweave" and 2.6 of "all", which makes the same moves and more.
"""

import functools
import math
from collections.abc import Callable, Mapping

import numpy as np
from matplotlib.figure import Figure
from scipy.stats import binom, binomtest

from experiments.studies.thermalization.common import (
    in_scientific,
    late_levels,
    mean_and_error,
)
from experiments.studies.thermalization.faster_chains import (
    DataSets,
    Recorded,
    draw_data,
    run_chains,
    stage_name,
)
from experiments.studies.thermalization.faster_settings import Arm, Case, FasterSettings
from experiments.studies.thermalization.traps import HEADER, traps
from experiments.study import Context, Row
from jaxbnn.diagnostics import ess_bulk, merge_time, split_rhat

COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#999999")


def run_faster(settings: FasterSettings, context: Context) -> list[Row]:
    """Run the arms of every case and judge which chains have joined the informed ones."""
    rows: list[Row] = []
    table: list[list] = []
    curves: list[dict] = []
    held: list[list] = []
    by_name = {arm.name: arm for arm in settings.arms}
    for case in settings.cases:
        if settings.only_deltas and case.delta not in settings.only_deltas:
            continue
        arms = [by_name[n] for n in case.arms if n in (settings.only_arms or case.arms)]
        # Drawn when the first stage needs them, and not where all of them are read back.
        draw = functools.cache(functools.partial(draw_data, settings, case, context))
        reference = None
        if arms and settings.reference in case.arms:
            arm = by_name[settings.reference]
            reference = _stage(settings, case, arm, "informed", context, draw)
        for arm in arms:
            starts = [s for s in case.starts if s in (settings.only_starts or case.starts)]
            found = {
                start: _stage(settings, case, arm, start, context, draw)
                for start in ("informed", *starts)
            }
            _judge(found, reference, settings, case, arm, rows, table, curves, held)
    header = ["arm", "start", "Delta", "labels", "thermalized", "95 % interval",
              "median iterations (at least the warm-up)", "95 % interval", "median seconds",
              "judged by the reference", "informed MSE", "error", "R-hat"]  # fmt: skip
    context.save_table("arms", header, table)
    if held:
        context.save_table("traps", ["arm", "start", "Delta", "labels", *HEADER], held)
    _print(header, table)
    if curves:
        _figure(curves, context)
    return rows


def _stage(
    settings: FasterSettings,
    case: Case,
    arm: Arm,
    start: str,
    context: Context,
    draw: Callable[[], DataSets],
) -> dict[str, np.ndarray]:
    """Return the series of an arm from one start, a stage of its own."""
    slices = {"only_arms", "only_deltas", "only_starts", "arms", "cases", "false_alarm_rate"}
    shared = settings.model_dump(mode="json", exclude={*slices, "reference"})
    whose = {"name", "is_annealed"} if start == "informed" else set()
    of = {
        "arm": arm.model_dump(mode="json", exclude_defaults=True, exclude=whose),
        "case": case.model_dump(mode="json", exclude={"arms", "starts"}),
        "start": start,
        **shared,
    }
    compute = functools.partial(run_chains, settings, case, arm, start, context, draw)
    return context.stage(stage_name(case, arm, start), compute, of=of)


def _judge(found, reference, settings, case, arm, rows, table, curves, held) -> None:
    informed = found["informed"]
    labels = "noiseless" if case.is_noiseless else "noisy"
    where = f"Delta = {in_scientific(case.delta)}, {labels} labels"
    if case.num_copies > 1:
        where += f", {case.num_copies} chains a start"
    level = mean_and_error(_by_dataset(late_levels(informed), case.num_copies).mean(axis=1))
    rows.append(Row("equilibrium_test_mse", f"{arm.name}, {where}", *level))
    rows += [
        Row("ess_per_1000_iterations", f"{arm.name}, {where}: {name}", *value)
        for name, value in effective_sizes(informed).items()
    ]
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
        by_reference = "-"
        if reference is not None:
            other = merged(series, reference, settings.false_alarm_rate)
            passed, bound = of_data_sets(other, case.num_copies)
            middle = median_time(np.where(passed, bound, np.inf))[0]
            numbers["share_thermalized_by_reference"] = (float(passed.mean()),)
            numbers["iterations_by_reference"] = (middle,)
            by_reference = f"{int(passed.sum())}/{len(passed)}, {_short(middle)}"
        rows += [Row(name, setting, *value) for name, value in numbers.items()]
        low, high = (numbers[f"share_thermalized_{end}"][0] for end in ("low", "high"))
        times = [numbers[f"iterations_to_thermalize{end}"][0] for end in ("", "_low", "_high")]
        passed, bound = of_data_sets(joined, case.num_copies)
        table.append(
            [arm.name, start, in_scientific(case.delta), labels]
            + [f"{int(passed.sum())}/{len(passed)}", f"{low:.2f} to {high:.2f}"]
            + [_short(times[0]), f"{_short(times[1])} to {_short(times[2])}"]
            + [_short(numbers["seconds_to_thermalize"][0]), by_reference]
            + [_short(number) for number in level]
            + [f"{max(values.max() for values in worst.values()):.3f}"]
        )
        away = traps(settings.widths, series, informed, joined.is_passed, case.num_copies)
        held += [[arm.name, start, in_scientific(case.delta), labels, *line] for line in away]
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

    Times are medians over all data sets, those that did not thermalize counted as never: means over
    the others would be of the easy ones.
    """
    passed, bound = of_data_sets(joined, num_copies)
    interval = binomtest(int(passed.sum()), len(passed)).proportion_ci(method="exact")
    times = median_time(np.where(passed, bound, np.inf))
    return {
        "share_thermalized": (float(passed.mean()),),
        "share_thermalized_low": (float(interval.low),),
        "share_thermalized_high": (float(interval.high),),
        "iterations_to_thermalize": (times[0],),
        "iterations_to_thermalize_low": (times[1],),
        "iterations_to_thermalize_high": (times[2],),
        "seconds_to_thermalize": (times[0] * float(series["seconds_per_step"]),),
        "seconds_per_iteration": (float(series["seconds_per_step"]),),
    }


def median_time(times: np.ndarray) -> tuple[float, float, float]:
    """Return the median and the ends of a 95 % interval of it; NaN for those that are infinite.

    The ends are order statistics: so many of n independent times lie below their law's median as
    heads come up in n throws of a coin. Of fewer than six times even the least and the largest
    have the median between them less often than that, and the ends are NaN.

    Examples
    --------
    >>> median_time(np.arange(1.0, 33.0))
    (16.5, 10.0, 23.0)
    """
    ordered = np.sort(times)
    number = len(ordered)
    below = int(binom.ppf(0.025, number, 0.5))
    ends = [ordered[below - 1], ordered[-below]] if below else [math.nan, math.nan]
    found = [float(np.median(ordered)), *ends]
    return tuple(float(value) if np.isfinite(value) else math.nan for value in found)  # type: ignore[return-value]


def effective_sizes(informed: Mapping) -> dict[str, tuple]:
    """Return effective draws in 1,000 iterations of each invariant, with errors over the chains.

    Of the equally spaced records in the last half of the steps; of vectors the smallest.
    """
    steps = informed["steps"]
    gap = np.diff(steps).max()
    late = (steps > steps[-1] / 2) & (steps % gap == 0)
    scale = 1000 / (late.sum() * gap)
    found = {}
    for name in Recorded._fields:
        draws = informed[name][:, late]
        draws = draws.reshape(*draws.shape[:2], -1)
        draws = np.log(draws) if name == "mse" else draws
        sizes = [np.min(ess_bulk(one[None])) * scale for one in draws]
        found[name] = mean_and_error(sizes)
    return found


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
        "\nthermalized by the teacher-student criterion: by the arm's own informed chains, and by "
        "those of the reference;\nin medians what has not thermalized counts as never; R-hat is "
        "the worst of all invariants"
    )
    print(" | ".join(header))
    for line in table:
        print(" | ".join(str(entry) for entry in line))


def _figure(curves: list[dict], context: Context) -> None:
    """Draw the share of data sets thermalized, a column for each Delta.

    Above after so many iterations, below after so many seconds of a chain as they were measured:
    compare arms by the panels above, since those below mix machines of different speeds.
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
