"""Iterations a second of the four samplers of table 2 of Papamarkou et al. on Iris, on one core.

Each sampler runs in `jaxbnn.sample` with the settings of `configs/challenges/iris_samplers.toml`,
positions kept; it is compiled first. Chains count each on its own: four chains that make a step
make four iterations. Times are the process's CPU time, which on one core is the wall time of a
machine with nothing else to do; the best of several repetitions counts.
"""

import multiprocessing
import os
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp

from experiments.datasets import iris
from experiments.results import Row
from experiments.studies.challenges.iris_kernels import kernel_factory, posterior
from experiments.study import all_draws

NUM_CHAINS, NUM_REPLICAS, PRIOR_VARIANCE = 4, 10, 3.0
TABLE_ITERATIONS = NUM_CHAINS * 110_000
TABLE_MINUTES = 6.0


class Case(NamedTuple):
    """A sampler, its eps, what it should reach, and its share of the steps of a repetition."""

    sampler: str
    step_size: float
    target: float
    share: float


CASES = (
    Case("MALA", 0.0479583, 200_000, 1.0),
    Case("SMMALA", 0.1, 16_000, 0.1),
    Case("P-MALA", 0.0479583, 40_000, 0.2),
    Case("P-SMMALA", 0.1, 2_000, 0.02),
)


def run(out_dir: Path, *, num_steps: int = 20_000, num_repetitions: int = 7) -> list[Row]:
    """Measure; one row a number: iterations a second, ratio to the target, seconds to compile.

    Parameters
    ----------
    out_dir
        Where the command writes the table.
    num_steps
        Steps of each MALA chain in a repetition; the slower samplers make fewer.
    num_repetitions
        Of each sampler.
    """
    # A process of its own: JAX's threads stay where they were when it was first imported.
    with _one_core(), ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as process:
        return process.submit(_measure_all, num_steps, num_repetitions).result()


def _measure_all(num_steps: int, num_repetitions: int) -> list[Row]:
    x, y = iris()
    data = {"x": jnp.asarray(x), "y": jnp.asarray(y)}
    rows, seconds = [], 0.0
    print(f"{'sampler':10} {'iterations/s':>12} {'target':>9} {'ratio':>6} {'compiled in':>12}")
    for case in CASES:
        rate, compilation = _measure(case, data, num_steps, num_repetitions)
        seconds += TABLE_ITERATIONS / rate
        print(
            f"{case.sampler:10} {rate:12,.0f} {case.target:9,.0f} {rate / case.target:6.2f} "
            f"{compilation:10.1f} s",
            flush=True,
        )
        rows += [
            Row("iterations_per_second", case.sampler, rate),
            Row("ratio_to_target", case.sampler, rate / case.target),
            Row("compile_seconds", case.sampler, compilation),
        ]
    print(
        f"Table 2 at paper size, one seed, compilation apart: {seconds / 60:.1f} minutes "
        f"(target {TABLE_MINUTES:g})",
        flush=True,
    )
    return [*rows, Row("table_2_minutes", "all four samplers, one seed", seconds / 60)]


def _measure(case: Case, data, num_steps: int, num_repetitions: int) -> tuple[float, float]:
    """Return iterations a second of all chains, and the seconds of the first, compiling run."""
    starts = jax.tree.map(
        lambda leaf: 0.3 * leaf,
        posterior(PRIOR_VARIANCE, data).sample_prior(jax.random.key(0), (NUM_CHAINS,)),
    )
    kernel = kernel_factory(case.sampler, PRIOR_VARIANCE, NUM_REPLICAS, 1)
    count = max(10, int(case.share * num_steps))

    def repetition(seed: int) -> float:
        start = time.process_time()
        all_draws(
            jax.random.key(seed),
            kernel,
            starts,
            count,
            parameters={"step_size": case.step_size},
            data=data,
            chunk_size=count,
            progress=False,
        )
        return time.process_time() - start

    compilation = repetition(0)
    best = min(repetition(seed) for seed in range(1, num_repetitions + 1))
    return NUM_CHAINS * count / best, compilation


@contextmanager
def _one_core() -> Iterator[None]:
    """Keep this process, and those that it starts meanwhile, on one core."""
    if not hasattr(os, "sched_setaffinity"):  # not on every system: there, JAX uses what it likes
        yield
        return
    cores = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(cores)})
    try:
        yield
    finally:
        os.sched_setaffinity(0, cores)
