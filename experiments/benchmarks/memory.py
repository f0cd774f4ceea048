"""Resident memory of a million steps of ten XOR MALA chains that keep reducers only."""

import resource
import sys
from pathlib import Path

import jax

from experiments.benchmarks.runner import xor_mala
from experiments.results import Row
from experiments.study import all_draws
from jaxbnn import batch_means, moments


def run(out_dir: Path, *, num_steps: int = 1_000_000, num_chains: int = 10) -> list[Row]:
    """Measure the largest resident memory of this process; it includes JAX's own.

    Parameters
    ----------
    out_dir
        Where the command writes the table.
    num_steps, num_chains
        The run's size.
    """
    kernel, starts = xor_mala(num_chains)
    draws = all_draws(
        jax.random.key(0),
        kernel,
        starts,
        num_steps,
        collect=None,
        reduce={"moments": moments(), "batch_means": batch_means(1000)},
    )
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    megabytes = peak / (2**20 if sys.platform == "darwin" else 2**10)
    setting = f"XOR MALA, {num_chains} chains of {num_steps} steps, reducers only"
    print(f"{setting}: at most {megabytes:.0f} MB resident")
    return [
        Row("resident_megabytes", setting, megabytes),
        Row("acceptance_rate", setting, 100 * float(draws.acceptance_rate.mean())),
    ]
