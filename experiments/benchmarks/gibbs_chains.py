"""Microseconds of a Gibbs sweep of many chains together, as on a GPU, by the clock.

The synthetic regression (n = 2,084, 50-10-1) with 1, 72 and 576 chains on the same data under one
`vmap`, plain and with all moves that free it; the perceptron and the convolutional network on
MNIST with one chain. Programs are compiled side by side, then timed one after another in rounds,
and medians count. `benchmark gibbs` has processor time, of one chain on a CPU.
"""

import statistics
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp

from experiments.benchmarks import check_known
from experiments.benchmarks.gibbs import WITH_MOVES
from experiments.benchmarks.gibbs.models import MODELS, Case
from experiments.benchmarks.gibbs.timing import Loop
from experiments.errors import InputError
from experiments.results import Row
from jaxbnn.gibbs import gibbs_sampler

KERNELS = {"plain": gibbs_sampler, "all moves": WITH_MOVES["all moves"]}


def run(
    out_dir: Path,
    *,
    models: Sequence[str] = tuple(MODELS),
    chains: Sequence[int] = (1, 72, 576),
    num_sweeps: int = 300,
    num_rounds: int = 5,
) -> list[Row]:
    """Measure; rows are microseconds of a sweep of all chains together, and megabytes.

    Parameters
    ----------
    out_dir
        Where the command writes the table.
    models
        Which of "synthetic", "mnist_mlp", "mnist_cnn", "mnist_cnn_collapsed".
    chains
        Numbers of chains of the synthetic model; the others have one.
    num_sweeps
        Sweeps of a measurement; a tenth of them on MNIST.
    num_rounds
        How often all programs of a model are timed in turn.
    """
    check_known(models, MODELS)
    if min(chains, default=0) < 1:
        raise InputError(f"chains must be numbers of chains, at least 1, not {list(chains)}.")
    print(f"{jax.devices()[0].device_kind}, jax {jax.__version__}", flush=True)
    cases = {name: MODELS[name]() for name in models}
    wanted = [
        (name, kernel, count)
        for name in models
        for kernel in KERNELS
        for count in (chains if name == "synthetic" else (1,))
    ]

    def compiled(of: tuple[str, str, int]) -> Loop:
        name, kernel, count = of
        sweeps = num_sweeps if name == "synthetic" else max(num_sweeps // 10, 1)
        return _loop(cases[name], KERNELS[kernel], count, sweeps)

    with ThreadPoolExecutor() as pool:
        loops = dict(zip(wanted, pool.map(compiled, wanted), strict=True))
    taken: dict[tuple[str, str, int], list[float]] = {of: [] for of in wanted}
    for _ in range(num_rounds):
        for of, loop in loops.items():
            taken[of].append(_microseconds(loop))
    rows: list[Row] = []
    for (name, kernel, count), times in taken.items():
        chains_told = f"{count} chain{'s' if count > 1 else ''}"
        setting = f"{cases[name].setting}, {kernel}, {chains_told}"
        rows += [
            Row("microseconds_a_sweep", setting, statistics.median(times)),
            Row("program_megabytes", setting, loops[name, kernel, count].megabytes),
        ]
        print(f"{setting}: {statistics.median(times):.0f} us", flush=True)
    return rows


def _loop(case: Case, make_kernel: Callable, num_chains: int, num_sweeps: int) -> Loop:
    """Compile sweeps of `num_chains` chains from zero, which share the data."""

    def start(x: Any, y: Any) -> Any:
        state = make_kernel(case.model, x, y).init(case.model.zero_position(x, y))
        return jax.tree.map(lambda leaf: jnp.repeat(leaf[None], num_chains, axis=0), state)

    def loop(num_steps: Any, states: Any, x: Any, y: Any) -> Any:
        kernel = make_kernel(case.model, x, y)

        def step(i, states):
            keys = jax.random.split(jax.random.fold_in(jax.random.key(0), i), num_chains)
            return jax.vmap(kernel.step)(keys, states)[0]

        return jax.lax.fori_loop(0, num_steps, step, states)

    return Loop.of(loop, num_sweeps, (jax.jit(start)(case.x, case.y), case.x, case.y))


def _microseconds(loop: Loop) -> float:
    start = time.perf_counter()
    jax.block_until_ready(loop.program(jnp.int32(loop.num_steps), *loop.arguments))
    return 1e6 * (time.perf_counter() - start) / loop.num_steps
