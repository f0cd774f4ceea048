"""Pictures of the ensembles' studies."""

from collections.abc import Sequence

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
            bars = [2 * row.standard_error for _, row in here]
            axes.errorbar(errors, values, bars, color=color, marker="o", markersize=3, label=name)
            again = found[quantity, f"{name}, a second exact run"]
            axes.axhline(again.value, color=color, linestyle="--", linewidth=0.8)
        axes.set_xscale("log")
        axes.set_xlabel("energy error a dimension")
        axes.set_title(label, fontsize=9)
    figure.axes[0].legend(fontsize=8)
    return figure
