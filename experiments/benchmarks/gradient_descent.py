"""Seconds until 10,000 gradient-descent solutions of XOR are found, by prior of the starts.

The paper's settings (`configs/challenges/figure1.toml`): 2,000 epochs, every start followed to the
end, accepted if all four points are right. A search ends with a batch of 8,192 descents, so that it
finds more than it was asked for: how many says a row, and seconds a solution are of what it found.
Compiled first; then medians of a few searches.
"""

import statistics
import time
from pathlib import Path

import jax

from experiments.results import Row
from experiments.studies.challenges.gradient_descent import GradientDescentSettings, Start, search


def run(
    out_dir: Path, *, num_solutions: int = 10_000, num_epochs: int = 2000, num_runs: int = 3
) -> list[Row]:
    """Measure wall seconds and processor seconds of a search.

    Parameters
    ----------
    out_dir
        Where the command writes the table.
    num_solutions, num_epochs
        The search's size.
    num_runs
        How many are timed.
    """
    starts = (Start(prior_variance=10.0), Start(prior_bound=20.0))
    settings = GradientDescentSettings(
        num_solutions=num_solutions,
        num_epochs=num_epochs,
        learning_rate=1.0,
        threshold=0.9,
        batch_size=8192,
        num_plotted=1,
        starts=starts,
    )
    rows = []
    for start in starts:
        find = search(start, settings)
        find(jax.random.key(0))
        wall, processor, descents, solutions = [], [], [], []
        for seed in range(num_runs):
            began, busy = time.perf_counter(), time.process_time()
            found, num_starts = find(jax.random.key(seed))
            wall.append(time.perf_counter() - began)
            processor.append(time.process_time() - busy)
            descents.append(num_starts)
            solutions.append(len(found))
        setting = f"search for {num_solutions} solutions of XOR from {start.prior}"
        each = statistics.median(w / n for w, n in zip(wall, solutions, strict=True))
        print(
            f"{setting}: {statistics.median(wall):.1f} s for {statistics.median(solutions):.0f} "
            f"of {statistics.median(descents):.0f} descents, {1e3 * each:.2f} ms a solution"
        )
        rows += [
            Row("wall_seconds", setting, statistics.median(wall)),
            Row("wall_seconds_max", setting, max(wall)),
            Row("processor_seconds", setting, statistics.median(processor)),
            Row("milliseconds_a_solution", setting, 1e3 * each),
            Row("num_solutions_found", setting, statistics.median(solutions)),
            Row("num_descents", setting, statistics.median(descents)),
        ]
    return rows
