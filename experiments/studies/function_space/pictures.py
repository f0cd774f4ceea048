"""The figures of the study, numbered as in the paper."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import LogFormatter, NullLocator

from experiments.studies.function_space.cells import Cell, Found, GridSettings
from experiments.studies.function_space.samplers import INNER, Sampler
from experiments.studies.function_space.summaries import Estimate, ess_of, rhats_at
from jaxbnn import plots

# Okabe and Ito's colours, and a marker each.
STYLES: dict[Sampler, tuple[str, str]] = {
    "pCN": ("#0072B2", "o"),
    "pCNL": ("#D55E00", "s"),
    "LMC": ("#009E73", "^"),
    "MALA": ("#CC79A7", "D"),
    INNER: ("#E69F00", "v"),
}
NAMES: dict[Sampler, str] = {"LMC": "LMC, underdamped", "MALA": "LMC, overdamped (MALA)"}


def acceptance_figure(
    rates: Mapping[tuple[int, Sampler, float], Mapping[int, Estimate]], step_sizes: Sequence[float]
) -> Figure:
    """Figures 1 and 2: acceptance against width, a panel a step size (and number of layers)."""
    depths = sorted({layers for layers, _, _ in rates})
    panels = [(layers, size) for layers in depths for size in step_sizes]
    figure, axes = _panels(1, len(panels), (4.3, 3.6), sharey=True)
    for axis, (layers, size) in zip(axes[0], panels, strict=True):
        widths: list[int] = []
        for (own_layers, sampler, own_size), by_width in rates.items():
            if (own_layers, own_size) != (layers, size):
                continue
            widths = sorted(by_width)
            plots.acceptance_against(
                widths,
                [by_width[width].value for width in widths],
                axis,
                standard_error=[by_width[width].error for width in widths],
                parameter_name="width",
                label=NAMES.get(sampler, sampler),
                color=STYLES[sampler][0],
                log_x=True,
            )
        _width_axis(axis, widths)
        axis.set_title(_title(size, layers, len(depths)))
        drawn = axis.get_legend()
        if drawn is not None:
            drawn.remove()
    # One for all panels, where it hides no curve.
    axes[0, -1].legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), frameon=False)
    return figure


def ess_figure(found: Mapping[Cell, Found], settings: GridSettings) -> Figure:
    """Figure 3: ESS against width, mean and range over directions; a row a step size."""
    depths = sorted({cell.hidden_layers for cell in found})
    lines = [(layers, size) for layers in depths for size in settings.step_sizes]
    figure, axes = _panels(len(lines), 2, (4.8, 3.2))
    for row, (layers, size) in zip(axes, lines, strict=True):
        for axis, series in zip(row, ("weights", "predictions"), strict=True):
            for sampler in settings.samplers:
                widths = sorted(settings.widths)
                index = settings.step_sizes.index(size)
                all_ess = [
                    ess_of(found[Cell(layers, width, sampler)][series][index]) for width in widths
                ]
                color, marker = STYLES[sampler]
                label = NAMES.get(sampler, sampler)
                means = [ess.mean.value for ess in all_ess]
                axis.plot(widths, means, color=color, marker=marker, markersize=4, label=label)
                low, high = [ess.low for ess in all_ess], [ess.high for ess in all_ess]
                axis.fill_between(widths, low, high, color=color, alpha=0.15, linewidth=0)
            axis.set_xscale("log")
            axis.set_ylim(bottom=0)
            _width_axis(axis, settings.widths)
            title = f"ESS of {series}, {_title(size, layers, len(depths))}"
            axis.set(xlabel="width", title=title)
            axis.set_ylabel(f"ESS a stored draw ({settings.thinning} steps)")
            _add_ess_a_step(axis, settings.thinning)
    axes[0, 0].legend(frameon=False, fontsize="small")
    return figure


def rhat_figure(found: Mapping[Cell, Found], settings: Any, draws: Sequence[int]) -> Figure:
    """Figure 4: R-hat against the number of steps; mean of directions, and four fifths of them."""
    rows = [(series, size) for series in ("weights", "predictions") for size in settings.step_sizes]
    figure, axes = _panels(len(rows), len(settings.samplers), (4.2, 3.2))
    for row, (series, size) in zip(axes, rows, strict=True):
        for axis, sampler in zip(row, settings.samplers, strict=True):
            index = settings.step_sizes.index(size)
            for number, width in enumerate(sorted(settings.widths)):
                arrays = found[Cell(settings.hidden_layers[0], width, sampler)]
                values = rhats_at(arrays[series][index], draws)
                mean, band = values.mean(axis=1), np.quantile(values, [0.1, 0.9], axis=1)
                color = plots.COLORS[number % len(plots.COLORS)]
                axis.plot(settings.checkpoints, mean, "o-", color=color, label=f"width {width}")
                axis.fill_between(settings.checkpoints, *band, color=color, alpha=0.15)
            axis.axhline(1.44, color="black", linestyle="--", linewidth=1, label="1.44, root 1.2")
            name = NAMES.get(sampler, sampler)
            axis.set(xlabel="steps", title=f"{name}, {series}, step size {size:g}", yscale="log")
            axis.yaxis.set_major_formatter(LogFormatter())
            axis.yaxis.set_minor_formatter(LogFormatter(minor_thresholds=(1.2, 0.5)))
    for row in axes:
        row[0].set_ylabel("R-hat (variance scale)")
    axes[0, 0].legend(frameon=False, fontsize="small")
    return figure


def limit_figure(
    widths: Sequence[int], differences: Mapping[str, Sequence[Estimate]], activation: str
) -> Figure:
    """Squared differences from the Gaussian process against width, with the slope of a theory."""
    figure, axes = _panels(1, 1, (5.4, 4.0))
    axis = axes[0, 0]
    for number, (name, estimates) in enumerate(differences.items()):
        values = np.array([estimate.value for estimate in estimates])
        errors = np.array([estimate.error for estimate in estimates])
        shown = values > 0
        low = np.minimum(errors, 0.9 * values)[shown]
        axis.errorbar(
            np.array(widths)[shown],
            values[shown],
            yerr=np.stack([low, errors[shown]]),
            color=plots.COLORS[number],
            marker="os^"[number % 3],
            capsize=3,
            label=name,
        )
        if shown.any() and shown[0]:
            reference = values[0] * (np.array(widths) / widths[0]) ** -2.0
            axis.plot(widths, reference, color=plots.COLORS[number], linestyle=":", linewidth=1)
    axis.set(xscale="log", yscale="log", xlabel="width")
    axis.set_ylabel("squared difference / posterior variance")
    axis.set_title(f"{activation}: distance from the infinitely wide network\n(dotted: width^-2)")
    _width_axis(axis, widths)
    axis.legend(frameon=False, fontsize="small")
    return figure


def _panels(rows: int, columns: int, size: tuple[float, float], **options) -> tuple[Figure, Any]:
    figure = Figure(figsize=(size[0] * columns, size[1] * rows), layout="constrained")
    axes = figure.subplots(rows, columns, squeeze=False, **options)
    for axis in axes.ravel():
        axis.spines[["top", "right"]].set_visible(False)
        axis.grid(alpha=0.25)
    return figure, axes


def _add_ess_a_step(axis: Any, thinning: int) -> None:
    right = axis.secondary_yaxis(
        "right", functions=(lambda y: y / thinning, lambda y: y * thinning)
    )
    right.set_ylabel("ESS a step")


def _width_axis(axis: Any, widths: Sequence[int]) -> None:
    axis.set_xticks(sorted(widths), [str(width) for width in sorted(widths)])
    axis.xaxis.set_minor_locator(NullLocator())


def _title(size: float, layers: int, num_depths: int) -> str:
    depth = f", {layers} hidden layers" if num_depths > 1 or layers > 1 else ""
    return f"step size {size:g}{depth}"
