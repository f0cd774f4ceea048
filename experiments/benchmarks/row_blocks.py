"""A gradient of the log density of chains side by side, all rows at once and in blocks of rows.

    python -m experiments benchmark row_blocks

`sample_ensemble` takes blocks where chains times rows times the widest layer are many numbers. Both
programs are compiled, then runs of both alternate, and medians count.
"""

import os
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np

from experiments.results import Row
from jaxbnn import Posterior, mlp, normal_prior
from jaxbnn.ensembles.row_blocks import in_row_blocks
from jaxbnn.targets import SoftplusScaleGaussian

# (rows, hidden layers, chains): those of bikesharing, power plant, airfoil and others.
SIZES = (
    (13_903, (16, 16, 16, 16), 10),
    (13_903, (16, 16, 16, 16), 1),
    (9568, (50,), 10),
    (9568, (50,), 4),
    (40_000, (100, 100), 4),
    (3000, (50,), 10),
    (4000, (16, 16, 16, 16), 10),
    (1202, (16, 16, 16, 16), 10),
    (20_000, (8,), 4),
)
_INPUTS = 10
# With so many there are always blocks.
_MANY_CHAINS = 10**9


def run(out_dir: Path, *, num_steps: int = 20, num_pairs: int = 7) -> list[Row]:
    """Measure; rows of milliseconds a gradient of all chains, their ratio, and whether it is taken.

    Parameters
    ----------
    out_dir
        Where the command writes the table.
    num_steps
        Gradients of a run, one after the other.
    num_pairs
        Pairs of runs a size.
    """
    rows = []
    for num_rows, hidden, num_chains in SIZES:
        posterior = _posterior(num_rows, hidden)
        starts = posterior.sample_prior(jax.random.key(0), (num_chains,))
        starts = jax.tree.map(lambda leaf: 0.1 * leaf, starts)
        blocked = in_row_blocks(posterior, _MANY_CHAINS)
        programs = [_compiled(which, starts, num_steps) for which in (posterior, blocked)]
        times: list[list[float]] = [[], []]
        for pair in range(num_pairs):
            for i in (0, 1) if pair % 2 else (1, 0):
                times[i].append(_timed(programs[i]) / num_steps * 1e3)
        whole, parts = map(statistics.median, times)
        taken = in_row_blocks(posterior, num_chains) is not posterior
        layers = "-".join(map(str, hidden))
        setting = f"{num_rows} rows, {layers}, {num_chains} chain{'s' * (num_chains > 1)}"
        rows += [
            Row("milliseconds", f"{setting}, all rows", whole),
            Row("milliseconds", f"{setting}, blocks", parts),
            Row("ratio", setting, parts / whole),
            Row("is_taken", setting, float(taken)),
        ]
    print(f"{os.cpu_count()} cores, {jax.devices()[0].device_kind}, float32")
    return rows


def _posterior(num_rows: int, hidden: tuple[int, ...]) -> Posterior:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(num_rows, _INPUTS)).astype(np.float32)
    network = mlp((_INPUTS, *hidden, 2), activation="relu")
    return Posterior(network, normal_prior(network), SoftplusScaleGaussian(), x, x[:, 0])


def _compiled(posterior: Posterior, starts: Any, num_steps: int) -> Callable[[], Any]:
    gradient = jax.vmap(jax.grad(posterior.log_density))

    @jax.jit
    def walk(positions: Any) -> Any:
        def step(positions: Any, _: None) -> tuple[Any, None]:
            return jax.tree.map(lambda p, g: p + 1e-9 * g, positions, gradient(positions)), None

        return jax.lax.scan(step, positions, None, length=num_steps)[0]

    jax.block_until_ready(walk(starts))
    return lambda: walk(starts)


def _timed(program: Callable[[], Any]) -> float:
    begin = time.perf_counter()
    jax.block_until_ready(program())
    return time.perf_counter() - begin
