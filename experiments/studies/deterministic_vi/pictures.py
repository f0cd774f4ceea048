"""The figures of the study."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullLocator

from jaxbnn import plots

COLORS = (*plots.COLORS, "#000000", "#999999")


def methods_figure(
    means: Mapping[tuple[str, str], tuple[float, float]], methods: Sequence[str]
) -> Figure:
    """Mean test log likelihood with its standard error, a panel a data set."""
    names = list(dict.fromkeys(name for name, _ in means))
    figure, axes = _panels(len(names), 2.8, 3.2)
    for axis, name in zip(axes, names, strict=True):
        own = [method for method in methods if (name, method) in means]
        for place, method in enumerate(own):
            value, error = means[name, method]
            axis.errorbar(place, value, error, fmt="o", color=_color(methods.index(method)))
        axis.set_xticks(range(len(own)), own, rotation=90, fontsize="small")
        axis.set_title(name)
        axis.margins(x=0.2)
    figure.supylabel("test log likelihood")
    return figure


def elbo_figure(found: Mapping[Any, Mapping[str, np.ndarray]]) -> Figure:
    """ELBO a datum against updates, mean over splits, a panel a data set."""
    names = list(dict.fromkeys(key[0] for key in found))
    methods = list(dict.fromkeys(key[1] for key in found))
    figure, axes = _panels(len(names), 3.2, 2.8)
    for axis, name in zip(axes, names, strict=True):
        own = {key[1]: arrays for key, arrays in found.items() if key[0] == name}
        means = {method: arrays["elbo"].mean(axis=0) for method, arrays in own.items()}
        for method, mean in means.items():
            number = methods.index(method)
            style = "-" if number < len(COLORS) else "--"
            updates = own[method]["updates"]
            axis.plot(updates, mean, style, color=_color(number), label=method, linewidth=1)
        # The first updates are far below, and would flatten the rest.
        low = min(np.quantile(mean, 0.1) for mean in means.values())
        high = max(mean.max() for mean in means.values())
        axis.set_ylim(low, high + 0.05 * (high - low))
        axis.set_title(name)
        axis.locator_params(axis="x", nbins=4)
    figure.supxlabel("updates")
    figure.supylabel("ELBO a datum")
    lines = {str(line.get_label()): line for axis in axes for line in axis.get_lines()}
    figure.legend(lines.values(), lines.keys(), loc="outside right upper", frameon=False)
    return figure


def variations_figure(
    found: Mapping[tuple[str, str, str], Mapping[str, np.ndarray]],
    fixed_variances: Mapping[str, float | None],
    data: str,
    against: str,
) -> Figure:
    """Log likelihood of every variation, a panel a data set.

    With `against`, the variations of a fixed prior are points on an axis of its variance, and the
    others horizontal bands (figure 5).
    """
    names = list(dict.fromkeys(name for name, _, _ in found))
    figure = Figure(figsize=(3.4 * len(names), 3.8), layout="constrained")
    axes = figure.subplots(1, len(names), squeeze=False)[0]
    for axis, name in zip(axes, names, strict=True):
        labels, place = [], 0
        own = [(m, label, a) for (n, m, label), a in found.items() if n == name]
        methods = list(dict.fromkeys(method for method, _, _ in own))
        for method, label, arrays in own:
            value, error = _mean(arrays["normal"])
            color = COLORS[methods.index(method) % len(COLORS)]
            fixed = fixed_variances.get(label) if against else None
            if against and fixed is None:
                axis.axhline(value, color=color, label=f"{method}, {label}")
                axis.axhspan(value - error, value + error, color=color, alpha=0.2)
            elif fixed is not None:
                axis.errorbar(fixed, value, error, fmt="o", color=color)
            else:
                axis.errorbar(place, value, error, fmt="o", color=color)
                labels.append(f"{method}, {label}" if len(methods) > 1 else label)
                place += 1
        if against:
            axis.set(xscale="log", xlabel=against)
            axis.legend(frameon=False, fontsize="x-small")
        else:
            axis.set_xticks(range(len(labels)), labels, rotation=90, fontsize="x-small")
        axis.set_title(name)
    axes[0].set_ylabel(f"{data} log likelihood")
    return figure


def _mean(values: np.ndarray) -> tuple[float, float]:
    error = values.std(ddof=1) / np.sqrt(len(values)) if len(values) > 1 else 0.0
    return float(values.mean()), float(error)


def toy_figure(
    found: Mapping[str, np.ndarray], x: np.ndarray, y: np.ndarray, x_test: np.ndarray, at: float
) -> Figure:
    """Figure 3: data and predictive, and the law of m and l at one input, before and after."""
    figure = Figure(figsize=(13, 3.6), layout="constrained")
    axes = figure.subplots(1, 5, width_ratios=(2, 1, 1, 1, 1))
    order = np.argsort(x_test[:, 0])
    line, mean = x_test[order, 0], found["mean"][order]
    scale = np.sqrt(found["variance"][order])
    axes[0].scatter(x[:, 0], y, s=5, color="black", alpha=0.5)
    axes[0].plot(line, mean, color=COLORS[0])
    axes[0].fill_between(line, mean - 2 * scale, mean + 2 * scale, color=COLORS[0], alpha=0.2)
    axes[0].axvline(at, color="black", linestyle=":", linewidth=1)
    axes[0].set(xlabel="x", ylabel="y", title="mean and two standard deviations")
    for number, (when, index) in enumerate((w, i) for w in ("before", "after") for i in (0, 1)):
        axis, draws = axes[1 + number], found[f"draws_{when}"][:, index]
        axis.hist(draws, bins=60, density=True, color=COLORS[4], alpha=0.6, label="Monte Carlo")
        centre = found[f"mean_{when}"][index]
        deviation = np.sqrt(found[f"covariance_{when}"][index, index])
        grid = centre + deviation * np.linspace(-4, 4, 200)
        density = np.exp(-0.5 * ((grid - centre) / deviation) ** 2) / (
            deviation * np.sqrt(2 * np.pi)
        )
        axis.plot(grid, density, color=COLORS[0], label="propagated")
        axis.set(title=f"{'ml'[index]} at {at:g}, {when}", yticks=[])
        axis.set_ylim(top=1.25 * axis.get_ylim()[1])  # room for the legend
    axes[1].legend(frameon=False, fontsize="x-small")
    return figure


def moments_figure(found: Mapping[str, np.ndarray], rho: float) -> Figure:
    """Figure 2: covariance of two activations, its asymptote's error and the approximation's."""
    grid = found["mu"]
    figure = Figure(figsize=(12, 6), layout="constrained")
    axes = figure.subplots(2, 3)
    for row, name in zip(axes, ("heaviside", "relu"), strict=True):
        panels = (
            (f"E[h h'], {name}, rho = {rho:g}", found[f"product_{name}"]),
            ("less the asymptote", found[f"residual_{name}"]),
            ("less the corrected table 1 too", found[f"error_{name}"]),
        )
        for axis, (title, values) in zip(row, panels, strict=True):
            image = axis.pcolormesh(grid, grid, values, shading="auto")
            figure.colorbar(image, ax=axis)
            axis.set(title=title, xlabel="mu 1", ylabel="mu 2")
    return figure


def runtime_figure(seconds: Mapping[str, Mapping[int, float]]) -> Figure:
    """Figure 4: seconds to propagate a batch through a d x d layer, with guides to the eye."""
    figure = Figure(figsize=(5.4, 4.2), layout="constrained")
    axis = figure.subplots()
    # A colour a method, a marker a number of samples.
    methods = [name.split(", S =")[0] for name in seconds]
    colors = dict(zip(dict.fromkeys(methods), COLORS, strict=False))
    for number, (name, times) in enumerate(seconds.items()):
        color = colors[methods[number]]
        style = "os^Dv"[methods[:number].count(methods[number]) % 5] + "-"
        axis.plot(list(times), list(times.values()), style, color=color, markersize=4, label=name)
    sizes = np.array(sorted({size for times in seconds.values() for size in times}), float)
    low = min(min(times.values()) for times in seconds.values())
    for power, style in ((2, ":"), (3, "--")):
        guide = low * (sizes / sizes[0]) ** power
        axis.plot(sizes, guide, style, color="black", linewidth=1, label=f"d^{power}")
    axis.set(xscale="log", yscale="log", xlabel="d", ylabel="seconds")
    axis.legend(frameon=False, fontsize="x-small")
    return figure


def comparison_figure(found: Mapping[str, Mapping[str, np.ndarray]]) -> Figure:
    """Draw standard deviations of m and l at the test inputs, by each method against NUTS."""
    names = list(found)
    figure = Figure(figsize=(3.6 * len(names), 6.4), layout="constrained")
    axes = figure.subplots(2, len(names), squeeze=False)
    for column, name in zip(axes.T, names, strict=True):
        reference = found[name]
        for axis, output in zip(column, "ml", strict=True):
            against = reference[f"NUTS_sd_{output}"]
            for number, method in enumerate(("DVI", "dDVI", "MCVI")):
                if f"{method}_sd_{output}" in reference:
                    own = reference[f"{method}_sd_{output}"]
                    axis.plot(against, own, ".", color=COLORS[number], label=method)
            low, high = against.min(), against.max()
            axis.plot([low, high], [low, high], color="black", linewidth=1)
            axis.set(xscale="log", yscale="log", title=f"{name}: sd of {output}", xlabel="by NUTS")
            axis.set_ylabel("by inference")
            for side in (axis.xaxis, axis.yaxis):
                first, last = side.get_view_interval()
                side.set_major_locator(LogLocator(subs=(1, 2, 5) if last < 30 * first else (1,)))
                side.set_major_formatter("{x:g}")
                side.set_minor_locator(NullLocator())
    axes[0, 0].legend(frameon=False, fontsize="small")
    return figure


def gradients_figure(curves: Mapping[str, Mapping[int, float]]) -> Figure:
    """Figure 7a: variance of the gradient against the number of draws."""
    figure = Figure(figsize=(4.6, 3.6), layout="constrained")
    axis = figure.subplots()
    for number, (name, values) in enumerate(curves.items()):
        color = COLORS[number]
        axis.plot(list(values), list(values.values()), "o-", color=color, label=name)
    axis.set(xscale="log", yscale="log", xlabel="samples", ylabel="relative gradient variance")
    samples = sorted({count for values in curves.values() for count in values})
    axis.set_xticks(samples, [str(count) for count in samples])
    axis.minorticks_off()
    axis.legend(frameon=False)
    return figure


def curves_figure(found: Mapping[tuple[str, str], Mapping[str, np.ndarray]]) -> Figure:
    """Figure 8: mean test log likelihood during training, a panel a data set."""
    names = list(dict.fromkeys(name for name, _ in found))
    figure = Figure(figsize=(3.2 * len(names), 3.2), layout="constrained")
    axes = figure.subplots(1, len(names), squeeze=False)[0]
    for axis, name in zip(axes, names, strict=True):
        own = {method: arrays for (n, method), arrays in found.items() if n == name}
        ends = [arrays["scores"][-1].mean() for arrays in own.values()]
        for number, (method, arrays) in enumerate(own.items()):
            mean = arrays["scores"].mean(axis=1)
            axis.plot(arrays["updates"], mean, color=COLORS[number], label=method)
        # The first updates are far below, and would flatten the rest.
        low = min(np.quantile(arrays["scores"].mean(axis=1), 0.1) for arrays in own.values())
        axis.set_ylim(low, max(ends) + 0.3 * abs(max(ends) - low) + 1e-3)
        axis.set(title=name, xlabel="updates")
    axes[0].set_ylabel("test log likelihood")
    axes[0].legend(frameon=False, fontsize="x-small")
    return figure


def _panels(count: int, width: float, height: float, columns: int = 5) -> tuple[Figure, list[Axes]]:
    """Return a figure and its panels, row by row."""
    columns = min(count, columns)
    rows = -(-count // columns)
    figure = Figure(figsize=(width * columns, height * rows), layout="constrained")
    axes = list(figure.subplots(rows, columns, squeeze=False).ravel())
    for axis in axes[count:]:
        axis.remove()
    return figure, axes[:count]


def _color(number: int) -> str:
    return COLORS[number % len(COLORS)]
