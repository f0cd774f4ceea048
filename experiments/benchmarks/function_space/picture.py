"""The picture of the cost of a step, with its floor."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from experiments.results import written_whole

COLORS = {"pCN": "#0072B2", "pCNL": "#D55E00", "LMC": "#009E73"}
NAMES = {"width": "width", "n": "number of data n", "d_in": "number of inputs"}


def draw_costs(
    curves: Mapping[str, Sequence[dict[str, Any]]], base: Mapping[str, int], path: Path
) -> Path:
    """Draw milliseconds a step against width, n and d_in: steps solid, their floors dashed."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(4.4 * len(curves), 3.8), layout="constrained")
    axes = figure.subplots(1, len(curves), sharey=True, squeeze=False)[0]
    for panel, (axis, lines) in zip(axes, curves.items(), strict=True):
        for sampler in dict.fromkeys(line["sampler"] for line in lines):
            own = [line for line in lines if line["sampler"] == sampler]
            x = [line["size"][axis] for line in own]
            color, times = COLORS[sampler], [line["step"] for line in own]
            panel.plot(x, times, "o-", color=color, markersize=4, label=sampler)
            floors = [line["floor"] for line in own]
            panel.plot(x, floors, "--", color=color, label=f"{sampler}, floor")
        others = ", ".join(f"{name} = {value}" for name, value in base.items() if name != axis)
        panel.set(xscale="log", yscale="log", xlabel=NAMES[axis], title=others)
        panel.set_xticks(x, [str(value) for value in x], minor=False)
        panel.minorticks_off()
        panel.grid(alpha=0.3)
    axes[0].set_ylabel("milliseconds a step, one core")
    axes[0].legend(frameon=False, fontsize="small")
    with written_whole(path) as temporary:
        figure.savefig(temporary, format="png", dpi=150)
    return path
