"""Nanoseconds a standard normal, by the library and by `jax.random`: the same numbers.

    python -m experiments benchmark random_numbers

Each draws many arrays of one size within one program; runs of both alternate, and medians count.
Time is the processor time of all threads.
"""

import statistics
import time
from collections.abc import Callable
from pathlib import Path

import jax
import jax.numpy as jnp

from experiments.results import Row
from jaxbnn.numerics import standard_normal

SIZES = (2048, 20_840, 166_720, 1_333_760, 10_670_080)


def run(out_dir: Path, *, num_pairs: int = 7, work: int = 30_000_000) -> list[Row]:
    """Measure; rows are nanoseconds a number of each, how many times faster, and compile seconds.

    Parameters
    ----------
    out_dir
        Where the command writes the table.
    num_pairs
        Pairs of runs a size.
    work
        Numbers of a run, about.
    """
    found = []
    for size in SIZES:
        number = max(work // size, 1)
        programs, setting = [], f"{size:,} numbers at once"
        for way, draw in {"jaxbnn": standard_normal, "jax.random": jax.random.normal}.items():
            begun = time.process_time()
            programs.append(_many(draw, size))
            found.append(
                Row("seconds_to_compile", f"{setting}, {way}", time.process_time() - begun)
            )
        times: list[list[float]] = [[], []]
        for pair in range(num_pairs):
            for i in (0, 1) if pair % 2 else (1, 0):
                begun = time.process_time()
                jax.block_until_ready(programs[i](number))
                times[i].append((time.process_time() - begun) / (number * size) * 1e9)
        ours, theirs = (statistics.median(one) for one in times)
        print(f"{setting}: {ours:.1f} ns, jax.random {theirs:.1f} ns, {theirs / ours:.1f} times")
        found += [
            Row("nanoseconds_a_number", f"{setting}, jaxbnn", ours),
            Row("nanoseconds_a_number", f"{setting}, jax.random", theirs),
            Row("ratio", setting, statistics.median(b / a for a, b in zip(*times, strict=True))),
        ]
    return found


def _many(draw: Callable, size: int) -> Callable:
    """Return a compiled program that draws so many arrays and keeps the largest of each place."""

    def loop(number):
        def step(i, largest):
            key = jax.random.fold_in(jax.random.key(0), i)
            return jnp.maximum(largest, draw(key, (size,), jnp.float32))

        return jax.lax.fori_loop(0, number, step, jnp.zeros(size, jnp.float32))

    return jax.jit(loop).lower(1).compile()
