"""How long a kernel's program compiles, and a step takes, with and without `on_vector`.

    python -m experiments benchmark vectors

Four chains of a network of four hidden layers on airfoil, with learnt noise and precisions: twenty
arrays. Each kernel is BlackJAX's own on the position, and the same on the vector of its numbers;
their programs are compiled, then runs of both alternate, and medians count.
"""

import os
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import blackjax
import jax
import jax.numpy as jnp
from blackjax.base import SamplingAlgorithm

from experiments.datasets import standardised, tabular
from experiments.results import Row
from jaxbnn import Posterior, mlp
from jaxbnn.kernels import on_vector
from jaxbnn.targets import SoftplusScaleGaussian, hierarchical_prior

_CHAINS, _STEP_SIZE = 4, 1e-3


def posterior_of_airfoil() -> Posterior:
    """Return the posterior of 5-16-16-16-16-2, whose prior's precisions are learnt."""
    split = standardised(tabular("airfoil", 0))
    network = mlp((5, 16, 16, 16, 16, 2), activation="relu")
    prior = hierarchical_prior(network)
    return Posterior(network, prior, SoftplusScaleGaussian(), split.x_train, split.y_train)


def kernels(size: int) -> dict[str, Callable[[Callable], SamplingAlgorithm]]:
    """Return functions of a log density that make a kernel on positions of `size` numbers."""
    ones = jnp.ones(size)
    return {
        "HMC": lambda log_density: blackjax.hmc(log_density, _STEP_SIZE, ones, 8),
        "NUTS": lambda log_density: blackjax.nuts(
            log_density, _STEP_SIZE, ones, max_num_doublings=3
        ),
        "microcanonical": lambda log_density: blackjax.mclmc(
            log_density, L=10.0, step_size=_STEP_SIZE, inverse_mass_matrix=ones
        ),
    }


def run(out_dir: Path, *, num_steps: int = 1500, num_pairs: int = 7) -> list[Row]:
    """Measure; one row a number: seconds to compile, milliseconds a step, and their ratios.

    Parameters
    ----------
    out_dir
        Where the command writes the table.
    num_steps
        Steps of a run; NUTS and HMC take a tenth, since theirs are trajectories.
    num_pairs
        Pairs of runs a kernel.
    """
    posterior = posterior_of_airfoil()
    starts = posterior.sample_prior(jax.random.key(0), (_CHAINS,))
    starts = jax.tree.map(lambda leaf: 0.1 * leaf, starts)
    size = sum(leaf.size for leaf in jax.tree.leaves(starts)) // _CHAINS
    rows = []
    for name, make in kernels(size).items():
        plain = make(posterior.log_density)
        vector = _on_vector(make, posterior.log_density)
        steps = num_steps if name == "microcanonical" else max(num_steps // 10, 1)
        programs = [_compiled(kernel, starts, steps) for kernel in (plain, vector)]
        times: list[list[float]] = [[], []]
        for pair in range(num_pairs):
            for i in (0, 1) if pair % 2 else (1, 0):
                times[i].append(_timed(programs[i][0]) / steps * 1e3)
        compiling = [seconds for _, seconds in programs]
        step = [statistics.median(found) for found in times]
        for i, setting in enumerate((name, f"{name}, on_vector")):
            rows.append(Row("compile_seconds", setting, compiling[i]))
            rows.append(Row("milliseconds_a_step", setting, step[i]))
        rows.append(Row("compile_ratio", name, compiling[1] / compiling[0]))
        rows.append(Row("step_ratio", name, step[1] / step[0]))
    print(f"{os.cpu_count()} cores, {jax.devices()[0].device_kind}, float32")
    return rows


def _on_vector(
    make: Callable[[Callable], SamplingAlgorithm], log_density: Callable
) -> SamplingAlgorithm:
    return on_vector(lambda whole: make(lambda vector: log_density(whole(vector))))


def _compiled(
    kernel: SamplingAlgorithm, starts: Any, num_steps: int
) -> tuple[Callable[[], Any], float]:
    """Return a function that runs all chains, compiled, and the seconds that compiling took."""
    keys = jax.random.split(jax.random.key(1), _CHAINS)
    states = jax.vmap(kernel.init)(starts, keys)

    def scan(state: Any, key: jax.Array) -> Any:
        keys = jax.random.split(key, num_steps)
        return jax.lax.scan(lambda s, k: (kernel.step(k, s)[0], None), state, keys)[0].position

    keys = jax.random.split(jax.random.key(2), _CHAINS)
    begin = time.perf_counter()
    program = jax.jit(jax.vmap(scan)).lower(states, keys).compile()
    return lambda: program(states, keys), time.perf_counter() - begin


def _timed(program: Callable[[], Any]) -> float:
    begin = time.perf_counter()
    jax.block_until_ready(program())
    return time.perf_counter() - begin
