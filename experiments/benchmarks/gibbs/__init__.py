"""Milliseconds of a Gibbs sweep, against the summed cost of the parts that it cannot do without.

A synthetic regression (n = 2,084, 50-10-1), the MLP and the CNN on MNIST, and the CNN with the
outputs of its convolution integrated out. The sweep, each part alone, and a sweep with all moves
that free it run in a compiled loop; all are measured in turn, and medians count. Time is the
processor time of all threads. For one core, start the command as

    OMP_NUM_THREADS=1 XLA_FLAGS=--xla_cpu_multi_thread_eigen=false taskset -c 0 python -m ...
"""

import os
import platform
import statistics
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import jax
from blackjax.base import SamplingAlgorithm

from experiments.benchmarks.gibbs.models import MODELS, Case
from experiments.benchmarks.gibbs.parts import parts_of
from experiments.benchmarks.gibbs.scaling import draw_scaling
from experiments.benchmarks.gibbs.timing import Loop, compile_loop, milliseconds
from experiments.results import Row
from jaxbnn import gibbs
from jaxbnn.gibbs import IntermediateNoise, gibbs_sampler, gibbs_with_moves, interwoven_gibbs


def run(
    out_dir: Path,
    *,
    models: Sequence[str] = tuple(MODELS),
    num_rounds: int = 5,
    scaling: bool = True,
) -> list[Row]:
    """Measure; rows are milliseconds of the sweep and its parts, their ratio, and megabytes.

    Parameters
    ----------
    out_dir
        Where the command writes the table, and this the picture of cost against size.
    models
        Which of "synthetic", "mnist_mlp", "mnist_cnn", "mnist_cnn_collapsed".
    num_rounds
        How often all loops of a model are timed in turn.
    scaling
        Whether to measure and draw cost against n, d, K and depth.
    """
    print(_machine())
    rows: list[Row] = []
    for name in models:
        rows += _measure(MODELS[name](), num_rounds)
    if scaling:
        rows += draw_scaling(out_dir / "scaling.png", num_rounds)
    return rows


def _measure(case: Case, num_rounds: int) -> list[Row]:
    loops = {"sweep": sweep_loop(case)}
    loops |= {name: sweep_loop(case, make) for name, make in WITH_MOVES.items()}
    loops |= {name: compile_loop(*part) for name, part in parts_of(case).items()}
    taken: dict[str, list[float]] = {name: [] for name in loops}
    for _ in range(num_rounds):
        for name, loop in loops.items():
            taken[name].append(milliseconds(loop))
    medians = {name: statistics.median(times) for name, times in taken.items()}
    sweep = medians.pop("sweep")
    with_moves = {name: medians.pop(name) for name in WITH_MOVES}
    of_sweeps = {
        name: statistics.median(b / a for a, b in zip(taken["sweep"], taken[name], strict=True))
        for name in WITH_MOVES
    }
    total = sum(medians.values())
    ratios = [
        taken["sweep"][i] / sum(taken[name][i] for name in medians) for i in range(num_rounds)
    ]
    print(f"\n{case.setting}: {sweep:.2f} ms a sweep, {sweep / total:.2f} times its parts")
    for name, value in medians.items():
        print(f"    {value:8.2f} ms  {name}")
    for name, value in with_moves.items():
        print(f"    {value:8.2f} ms  a sweep with {name}, {of_sweeps[name]:.2f} sweeps")
    program = loops["sweep"].megabytes
    print(f"    {program:8.0f} MB  program: arguments, results and temporaries")
    found = [
        Row("milliseconds_a_sweep", case.setting, sweep),
        Row("milliseconds_of_parts", case.setting, total),
        Row("ratio", case.setting, statistics.median(ratios)),
        Row("program_megabytes", case.setting, program),
    ]
    for name, value in with_moves.items():
        found += [
            Row("milliseconds_with_moves", f"{case.setting}: {name}", value),
            Row("ratio_with_moves", f"{case.setting}: {name}", of_sweeps[name]),
        ]
    found += [
        Row("milliseconds", f"{case.setting}: {name}", value) for name, value in medians.items()
    ]
    return found


def sweep_loop(case: Case, make_kernel: Callable[..., SamplingAlgorithm] = gibbs_sampler) -> Loop:
    """Compile steps of a case from its zero start, sweeps or those of another kernel."""

    def start(x, y):
        return make_kernel(case.model, x, y).init(case.model.zero_position(x, y))

    def loop(num_steps: Any, state: Any, x: Any, y: Any) -> Any:
        kernel = make_kernel(case.model, x, y)

        def step(i, state):
            return kernel.step(jax.random.fold_in(jax.random.key(0), i), state)[0]

        return jax.lax.fori_loop(0, num_steps, step, state)

    state = jax.jit(start)(case.x, case.y)
    return Loop.of(loop, case.num_steps, (state, case.x, case.y))


def _interwoven(model: IntermediateNoise, x: Any, y: Any) -> SamplingAlgorithm:
    moves = [gibbs.interweave(model, x, y, _STEP_SIZE), gibbs.scale_moves(model, x)]
    return gibbs_with_moves(model, x, y, moves)


def _with_all_moves(model: IntermediateNoise, x: Any, y: Any) -> SamplingAlgorithm:
    return interwoven_gibbs(model, x, y, _STEP_SIZE)


_STEP_SIZE = 0.3  # a step takes as long whatever its size
WITH_MOVES = {"interweaving and scale moves": _interwoven, "all moves": _with_all_moves}


def _machine() -> str:
    model = platform.processor() or platform.machine()
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        model = next(line.split(":")[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        pass
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return (
        f"{model}, {jax.devices()[0].device_kind}, {usable} of {os.cpu_count()} cores usable, "
        f"XLA_FLAGS={os.environ.get('XLA_FLAGS', '')!r}, float32, jax {jax.__version__}"
    )
