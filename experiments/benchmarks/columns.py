"""How long a gradient takes with a network's data in columns, and in rows.

    python -m experiments benchmark columns

`jaxbnn.networks.apply` keeps the data axis last where layers are not wide; beside it stands the
same network written with rows of data. Value and gradient of a squared error, of several chains
under `vmap`, many times within one program; runs of both alternate, and medians count.
"""

import functools
import os
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import jax
import jax.numpy as jnp
from jaxtyping import Array, PyTree

from experiments.results import Row
from jaxbnn.networks import apply, init, mlp

# Chains, rows, and widths of the network.
SHAPES = (
    (10, 1200, (5, 16, 16, 16, 16, 2)),
    (10, 1000, (10, 32, 2)),
    (10, 1000, (10, 50, 2)),
    (4, 160, (60, 50, 2)),
    (1, 1000, (10, 50, 1)),
    (10, 1000, (10, 128, 2)),
    (1, 1000, (256, 256, 1)),
)
# Activations of a run, of all its gradients together.
_WORK = 3e7


def in_rows(params: PyTree, x: Array) -> Array:
    """Return the outputs of an MLP of tanh units, by products of (n, d) with (d, features)."""
    *hidden, last = [layer for layer in params if layer]
    for layer in hidden:
        x = jnp.tanh(jnp.dot(x, layer["w"], precision="highest") + layer["b"][None])
    return jnp.dot(x, last["w"], precision="highest") + last["b"][None]


def run(out_dir: Path, *, num_pairs: int = 7, work: float = _WORK) -> list[Row]:
    """Measure; one row a number: milliseconds a gradient of all chains, and their ratio.

    Parameters
    ----------
    out_dir
        Where the command writes the table.
    num_pairs
        Pairs of runs a shape.
    work
        Activations of a run, about.
    """
    found = []
    for chains, rows, widths in SHAPES:
        network = mlp(widths, "tanh")
        keys = jax.random.split(jax.random.key(0), chains)
        params = jax.vmap(functools.partial(init, network=network))(keys)
        x = jax.random.normal(jax.random.key(1), (rows, widths[0]))
        number = max(int(work / (chains * rows * sum(widths[1:-1]))), 1)
        ways: dict[str, Callable] = {"columns": functools.partial(apply, network), "rows": in_rows}
        programs = [_many(way, x, number) for way in ways.values()]
        for program in programs:
            jax.block_until_ready(program(params))
        times: list[list[float]] = [[], []]
        for pair in range(num_pairs):
            for i in (0, 1) if pair % 2 else (1, 0):
                begun = time.perf_counter()
                jax.block_until_ready(programs[i](params))
                times[i].append((time.perf_counter() - begun) / number * 1e3)
        medians = [statistics.median(one) for one in times]
        setting = f"{chains} x {'-'.join(map(str, widths))}, {rows} rows"
        for way, median in zip(ways, medians, strict=True):
            found.append(Row("milliseconds_a_gradient", f"{setting}, {way}", median))
        found.append(Row("ratio", setting, medians[1] / medians[0]))
    print(f"{os.cpu_count()} cores, {jax.devices()[0].device_kind}, float32")
    return found


def _many(way: Callable[[PyTree, Array], Array], x: Array, number: int) -> Callable:
    """Return a program that takes so many gradients, each where the one before led."""
    gradient = jax.vmap(jax.grad(lambda params: jnp.mean(way(params, x) ** 2)))

    def step(_: int, params: PyTree) -> PyTree:
        return jax.tree.map(lambda p, g: p - 1e-6 * g, params, gradient(params))

    return jax.jit(lambda params: jax.lax.fori_loop(0, number, step, params))
