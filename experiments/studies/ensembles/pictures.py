"""Pictures of the ensembles' studies."""

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.figure import Figure

from experiments.study import Row
from jaxbnn import plots

_PANELS = {
    "variance_ratio": "variance of predictive means / exact",
    "total_variation": "total variation of predictive densities",
    "lppd_difference": "mean log predictive density - exact (nats)",
}


def bias_picture(rows: Sequence[Row], problems: Sequence[str]) -> Figure:
    """Draw what unadjusted draws are off by against their energy error; a line each posterior.

    Dashed: a second exact run, which differs by Monte Carlo error only. Bars are two of their
    standard errors long on both sides.
    """
    found = {(row.quantity, row.setting): row for row in rows}
    figure = Figure(figsize=(4.2 * len(_PANELS), 3.4), layout="constrained")
    for axes, (quantity, label) in zip(
        figure.subplots(1, len(_PANELS)), _PANELS.items(), strict=True
    ):
        for name, color in zip(problems, plots.COLORS, strict=False):
            here = [
                (found["energy_error", where], row)
                for (q, where), row in found.items()
                if q == quantity
                and ("energy_error", where) in found
                and where.startswith(f"{name},")
            ]
            errors = [error.value for error, _ in here]
            values = [row.value for _, row in here]
            bars = [2 * (row.standard_error or 0.0) for _, row in here]
            axes.errorbar(errors, values, bars, color=color, marker="o", markersize=3, label=name)
            again = found.get((quantity, f"{name}, a second exact run"))
            if again is not None:  # moments are not compared of chains that have not mixed
                axes.axhline(again.value, color=color, linestyle="--", linewidth=0.8)
        axes.set_xscale("log")
        axes.set_xlabel("energy error a dimension")
        axes.set_title(label, fontsize=9)
    figure.axes[0].legend(fontsize=8)
    return figure


def exactness_picture(found: Mapping[str, Mapping[str, np.ndarray]]) -> Figure:
    """Draw the share of test predictions below each R-hat; a panel each posterior, a line a side.

    `found` maps a posterior to {side: R-hat of each prediction}.
    """
    figure = Figure(figsize=(3.8 * len(found), 3.2), layout="constrained")
    panels = figure.subplots(1, len(found), sharey=True, squeeze=False)[0]
    for axes, (name, sides) in zip(panels, found.items(), strict=True):
        for (side, rhat), color in zip(sides.items(), plots.COLORS, strict=False):
            excess = np.sort(np.maximum(rhat - 1, 1e-4))
            share = np.arange(1, len(excess) + 1) / len(excess)
            axes.step(excess, share, where="post", color=color, label=side)
        axes.axvline(0.01, color="grey", linestyle="--", linewidth=0.8)
        axes.set_xscale("log")
        axes.set_xlabel("R-hat - 1 of a test prediction")
        axes.set_title(name, fontsize=10)
    panels[0].set_ylabel("share of predictions below")
    panels[0].legend(fontsize=8)
    return figure


def modes_picture(curves: Mapping[str, tuple[Mapping[int, tuple[float, float]], float]]) -> Figure:
    """Draw LPPD against the number of chains, and against their CPU seconds; a line each arm.

    `curves` maps an arm to its {chains: (LPPD, deviation over sets of chains)} and to the CPU
    seconds of one chain. Bands are one such deviation wide on both sides.
    """
    figure = Figure(figsize=(9, 3.6), layout="constrained")
    left, right = figure.subplots(1, 2, sharey=True)
    for (name, (curve, seconds)), color in zip(curves.items(), plots.COLORS, strict=False):
        sizes = np.array(list(curve))
        values, deviations = np.transpose(list(curve.values()))
        for axes, at in ((left, sizes), (right, sizes * seconds)):
            axes.plot(at, values, color=color, marker="o", markersize=3, label=name)
            axes.fill_between(
                at, values - deviations, values + deviations, color=color, alpha=0.15, linewidth=0
            )
            axes.set_xscale("log")
    left.set_xlabel("chains")
    right.set_xlabel("CPU seconds, starts included")
    left.set_ylabel("LPPD (nats a row)")
    left.legend(fontsize=8)
    return figure


def between_modes_picture(
    curves: Mapping[str, Sequence[Sequence[tuple[float, float]]]],
) -> Figure:
    """Draw LPPD against CPU seconds, round after round; a colour each arm, a line each seed.

    `curves` maps an arm to its (CPU seconds, LPPD) after the way in and after each round, of each
    seed.
    """
    figure = Figure(figsize=(5, 3.6), layout="constrained")
    axes = figure.subplots()
    for (name, of_seeds), color in zip(curves.items(), plots.COLORS, strict=False):
        for number, curve in enumerate(of_seeds):
            seconds, values = np.transpose(curve)
            (line,) = axes.plot(seconds, values, color=color, marker="o", markersize=3)
            line.set_label("_" + name if number else name)
    axes.set_xlabel("CPU seconds, starts included")
    axes.set_ylabel("LPPD (nats a row)")
    axes.legend(fontsize=8)
    return figure


def metric_picture(rows: Sequence[Row], num_directions: Sequence[int]) -> Figure:
    """Draw step size, jumps and R-hat with each number of directions; a group each posterior.

    Bars are two standard errors over seeds long on both sides.
    """
    titles = {
        "step_size": "step size",
        "squared_jump": "mean squared jump of predictions",
        "median_rhat": "R-hat of predictions, median",
    }
    names = list(dict.fromkeys(row.setting.split(",")[0] for row in rows))
    figure = Figure(figsize=(4.0 * len(titles), 3.2), layout="constrained")
    for axes, (quantity, title) in zip(
        figure.subplots(1, len(titles)), titles.items(), strict=True
    ):
        for index, (k, color) in enumerate(zip(num_directions, plots.COLORS, strict=False)):
            found = {row.setting: row for row in rows if row.quantity == quantity}
            here = [found[f"{name}, {k} directions"] for name in names]
            at = np.arange(len(names)) + (index - (len(num_directions) - 1) / 2) * 0.15
            bars = [2 * (row.standard_error or 0.0) for row in here]
            axes.errorbar(
                at, [row.value for row in here], bars, color=color, marker="o", markersize=4,
                linestyle="none", label=f"{k} directions",
            )  # fmt: skip
        axes.set_xticks(range(len(names)), names)
        axes.set_title(title, fontsize=9)
        if quantity != "median_rhat":
            axes.set_yscale("log")
    figure.axes[0].legend(fontsize=8)
    return figure
