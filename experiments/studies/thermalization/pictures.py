"""The figures of the study, numbered as in the paper."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from experiments.study import Context
from jaxbnn import plots
from jaxbnn.thermalization import Comparison

# Okabe and Ito's colours, as in jaxbnn.plots, and a marker each.
STYLES = {
    "Gibbs, intermediate": ("#0072B2", "o"),
    "HMC, intermediate": ("#D55E00", "s"),
    "HMC, classical": ("#009E73", "D"),
    "MALA, classical": ("#CC79A7", "^"),
    "NUTS, classical": ("#E69F00", "v"),
    "NUTS, intermediate": ("#56B4E9", "P"),
}
PANELS = {
    "left": (("informed", "zero"), ("zero", "informed")),
    "right": (("informed", "random 1", "random 2"), ("random 1", "random 2")),
}


def criteria_figures(
    comparison: Comparison, series: Mapping[str, Any], suffix: str, context: Context
) -> None:
    """Figure 1, its left and its right panel, and figure 4."""
    for side, (chains, pair) in PANELS.items():
        bounds = {
            f"{one.criterion} ({', '.join(one.chains)})": (one.lower_bound, one.is_passed)
            for one in comparison.estimates
            if set(one.chains) <= {*chains} and one.chains != ("informed",)
        }
        rhat = comparison.rhat[pair]
        axes = plots.thermalization_criteria(
            series["steps"],
            {name: series["mse"][name] for name in chains},
            rhat={", ".join(pair): (rhat.steps, rhat.mean)},
            score={name: series["score"][name] for name in chains if name in series["score"]},
            lower_bounds=bounds,
        )
        context.save_figure(f"figure_1_{side}{suffix}", axes[0].figure)
    figure = Figure(figsize=(11, 3.4), layout="constrained")
    for axes, pair in zip(figure.subplots(1, 2, sharey=True), comparison.rhat, strict=True):
        rhat = comparison.rhat[pair]
        plots.rhat_percentiles(rhat.steps, rhat.percentiles, [25, 50, 75, 95], axes)
        axes.set_title(", ".join(pair))
    context.save_figure(f"figure_4{suffix}", figure)


def share_merged(points: Sequence[Mapping[str, Any]], context: Context) -> None:
    """Figure 2, left: share of data sets that merge against the equilibrium test error."""
    figure = Figure(figsize=(7.5, 4), layout="constrained")
    axes = figure.subplots()
    for label in dict.fromkeys(point["label"] for point in points):
        color, marker = STYLES[label]
        mine = sorted((p for p in points if p["label"] == label), key=lambda p: p["level"])
        share = np.array([p["share"] for p in mine])
        bars = np.abs(np.array([p["interval"] for p in mine]).T - share)
        axes.errorbar(
            [p["level"] for p in mine],
            share,
            bars,
            color=color,
            marker=marker,
            capsize=3,
            label=label,
        )
    axes.set(
        xscale="log",
        ylim=(-0.05, 1.05),
        xlabel="equilibrium test mean squared error",
        ylabel="share of data sets merged",
    )
    axes.legend()
    context.save_figure("figure_2_left", figure)


def dynamics(curves: Sequence[Mapping[str, Any]], name: str, ylabel: str, context: Context) -> None:
    """Figure 2, right, and figure 3: a series against seconds; faint from the informed start."""
    figure = Figure(figsize=(7.5, 4), layout="constrained")
    axes = figure.subplots()
    for curve in curves:
        color, _ = STYLES[curve["label"]]
        faint = curve.get("is_faint", False)
        label = "_informed" if faint else curve["label"] + curve.get("note", "")
        axes.plot(
            curve["seconds"], curve["values"], color=color, alpha=0.4 if faint else 1.0,
            linewidth=1.2, linestyle="--" if faint else "-", label=label,
        )  # fmt: skip
    axes.set(xscale="log", yscale="log", xlabel="seconds", ylabel=ylabel)
    axes.legend()
    context.save_figure(name, figure)
