"""The cost of a sweep against the number of data, of inputs, of hidden units and of layers."""

import statistics
from pathlib import Path

from experiments.benchmarks.gibbs.models import synthetic
from experiments.results import Row, written_whole

SIZES = {
    "n": (500, 1000, 2000, 4000, 8000, 16000, 32000),
    "d": (12, 25, 50, 100, 200, 400, 800),
    "width": (2, 5, 10, 20, 40, 80, 160),
    "depth": (1, 2, 3, 4),
}
LABELS = {"n": "data n", "d": "inputs d", "width": "hidden units K", "depth": "hidden layers"}


def draw_scaling(path: Path, num_rounds: int) -> list[Row]:
    """Measure sweeps around the synthetic model, one size varied at a time; draw and return."""
    from matplotlib.figure import Figure

    from experiments.benchmarks.gibbs import sweep_loop
    from experiments.benchmarks.gibbs.timing import milliseconds

    rows = []
    figure = Figure(figsize=(13, 3.2), dpi=120, layout="constrained")
    for axes, (name, sizes) in zip(figure.subplots(1, 4, sharey=True), SIZES.items(), strict=True):
        times = []
        for size in sizes:
            case = synthetic(**{name: size}, num_steps=30)
            loop = sweep_loop(case)
            times.append(statistics.median(milliseconds(loop) for _ in range(num_rounds)))
            rows.append(Row("milliseconds_a_sweep", f"{LABELS[name]} = {size}", times[-1]))
        axes.plot(sizes, times, "o-")
        axes.set(xscale="log", yscale="log", xlabel=LABELS[name])
        axes.set_xticks(sizes, [str(size) for size in sizes], rotation=45, minor=False)
        axes.minorticks_off()
        axes.grid(alpha=0.3)
        axes.spines[["top", "right"]].set_visible(False)
    figure.axes[0].set_ylabel("milliseconds a sweep")
    figure.suptitle("A sweep around n = 2,084, d = 50, K = 10, one hidden layer", fontsize=10)
    with written_whole(path) as temporary:
        figure.savefig(temporary, format="png")
    return rows
