"""Steps per second of `jaxbnn.sample` against a hand-written scan of the same kernel.

XOR MALA with 1 and 10 chains, Iris MALA with 1 and 4, and microcanonical chains, ten of a network
of four hidden layers on airfoil, storing positions. The hand-written program is `jax.lax.scan` over
`vmap(kernel.step)`, jitted once, its keys split ahead; what it returns is copied to the host, as
`sample` does. Both are compiled first; then pairs of runs alternate, in alternating order, and the
median ratio over the pairs counts.
"""

import os
import statistics
import time
from pathlib import Path
from typing import Any

import blackjax
import jax
import numpy as np

from experiments.benchmarks.scale.program import airfoil_posterior, microcanonical
from experiments.datasets import iris, xor
from experiments.results import Row
from experiments.study import all_draws
from jaxbnn import Bernoulli, Categorical, Posterior, mlp, normal_prior

_COMPILED: list[str] = []  # each program that this process compiled


def _heard(event: str, duration_secs: float, **_: str | int) -> None:
    if event == "/jax/core/compile/backend_compile_duration":
        _COMPILED.append(event)


jax.monitoring.register_event_duration_secs_listener(_heard)


def _xor_density():
    network = mlp((2, 2, 1), activation="sigmoid")
    prior = normal_prior(network, weight_precision=1 / 3, bias_precision=1 / 3)
    return Posterior(network, prior, Bernoulli(), *xor()), 1.74 / 2


def _iris_density():
    network = mlp((4, 3, 3), activation="sigmoid")
    prior = normal_prior(network, weight_precision=1 / 3, bias_precision=1 / 3)
    return Posterior(network, prior, Categorical(), *iris()), 0.003 / 2


def xor_mala(num_chains: int):
    """Return XOR MALA with the paper's step and starts for `num_chains` chains."""
    posterior, step_size = _xor_density()
    starts = posterior.sample_prior(jax.random.key(0), (num_chains,))
    return blackjax.mala(posterior.log_density, step_size), starts


def run(
    out_dir: Path,
    *,
    num_pairs: int = 31,
    xor_steps: int = 100_000,
    iris_steps: int = 30_000,
    airfoil_steps: int = 20_000,
) -> list[Row]:
    """Measure; one row a number: steps a second of both, their ratio, compile times, compilations.

    Parameters
    ----------
    out_dir
        Where the command writes the table.
    num_pairs
        Pairs of runs a case.
    xor_steps, iris_steps, airfoil_steps
        Steps of all chains together in a run; of none a data set is left out. A run of the network
        on airfoil takes several of the runner's chunks, of a second each, as real ones do.
    """
    rows = []
    mala = blackjax.mala
    cases: list[tuple[str, Any, Any, int, int]] = [
        *(("XOR MALA", _xor_density, mala, chains, xor_steps) for chains in (1, 10)),
        *(("Iris MALA", _iris_density, mala, chains, iris_steps) for chains in (1, 4)),
        ("airfoil microcanonical", airfoil_posterior, microcanonical, 10, airfoil_steps),
    ]
    for name, density, make, chains, total in cases:
        if not total:
            continue
        setting = f"{name}, {chains} chain{'s' * (chains > 1)}"
        posterior, step_size = density()
        rows += _compare(setting, posterior, make, step_size, chains, total // chains, num_pairs)
    print(f"{os.cpu_count()} cores, {jax.devices()[0].device_kind}, float32")
    return rows


def _compare(setting, posterior, make, step_size, chains, num_steps, num_pairs) -> list[Row]:
    # No counter inside the density: what a kernel reads outside and finds changed is compiled anew.
    kernel = make(posterior.log_density, step_size)
    starts = jax.tree.map(
        lambda leaf: 0.3 * leaf, posterior.sample_prior(jax.random.key(0), (chains,))
    )

    def by_runner(seed):
        return all_draws(jax.random.key(seed), kernel, starts, num_steps, progress=False)

    begin = jax.jit(jax.vmap(kernel.init))

    @jax.jit
    def scan(states, keys):
        def step(states, step_keys):
            states, _ = jax.vmap(kernel.step)(step_keys, states)
            return states, states.position

        return jax.lax.scan(step, states, keys)

    def by_hand(seed):
        keys = jax.random.split(jax.random.key(seed), (num_steps, chains))
        states = begin(starts, jax.random.split(jax.random.key(seed), chains))
        _, positions = scan(states, keys)
        return jax.tree.map(np.asarray, positions)

    first = _seconds(lambda: all_draws(jax.random.key(0), kernel, starts, 1, progress=False))
    _seconds(lambda: by_runner(0))
    compiled = len(_COMPILED)
    _seconds(lambda: by_runner(1))
    in_a_second = len(_COMPILED) - compiled
    _seconds(lambda: by_hand(0))
    ratios, ours, theirs = [], [], []
    for pair in range(num_pairs):
        order = (by_runner, by_hand) if pair % 2 else (by_hand, by_runner)
        seconds = {run: _seconds(lambda run=run, pair=pair: run(pair)) for run in order}
        ours.append(chains * num_steps / seconds[by_runner])
        theirs.append(chains * num_steps / seconds[by_hand])
        ratios.append(seconds[by_hand] / seconds[by_runner])
    print(
        f"{setting}: {statistics.median(ours):,.0f} steps/s, by hand "
        f"{statistics.median(theirs):,.0f}, ratio {statistics.median(ratios):.3f} "
        f"({min(ratios):.3f} to {max(ratios):.3f}), first sample after {first:.2f} s"
    )
    return [
        Row("steps_per_second", setting, statistics.median(ours)),
        Row("steps_per_second_by_hand", setting, statistics.median(theirs)),
        Row("ratio", setting, statistics.median(ratios)),
        Row("ratio_min", setting, min(ratios)),
        Row("ratio_max", setting, max(ratios)),
        Row("seconds_to_first_sample", setting, first),
        Row("compilations_in_a_second_run", setting, in_a_second),
    ]


def _seconds(function) -> float:
    start = time.perf_counter()
    function()  # both return arrays on the host: nothing is left running
    return time.perf_counter() - start
