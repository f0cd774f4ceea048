"""One measurement of `benchmark scale`, in a process with its own number of devices.

Times are the difference between a long call and a short one of the same program, so that what a
call costs once (transfers, the kernel's init, the result's way back) is not taken for steps.

python -m experiments.benchmarks.scale.program DEVICES gibbs ROWS SWEEPS
python -m experiments.benchmarks.scale.program DEVICES throughput STEPS CHAINS...
python -m experiments.benchmarks.scale.program DEVICES ensemble STEPS CHAINS [FIRST_CORE]
python -m experiments.benchmarks.scale.program DEVICES devices
"""

import json
import os
import resource
import sys
import time
from collections.abc import Callable
from typing import Any

import blackjax
import jax
import jax.numpy as jnp
import numpy as np
from blackjax.base import SamplingAlgorithm
from jax.sharding import Mesh

from experiments.datasets import standardised, tabular
from experiments.study import all_draws
from jaxbnn import (
    Draws,
    Gaussian,
    IntermediateNoise,
    Posterior,
    gibbs_sampler,
    mlp,
    normal_prior,
    pcn,
)
from jaxbnn.networks import init
from jaxbnn.targets import SoftplusScaleGaussian

WIDTHS = (10, 4, 1)


def gibbs(devices: int, rows: int, sweeps: int) -> dict[str, Any]:
    """Run the Gibbs sampler with its data axis spread, and hold its memory against the model.

    The model: a device holds its share of the rows of the state, of x and of y.
    """
    rng = np.random.default_rng(0)
    x = rng.normal(size=(rows, WIDTHS[0])).astype(np.float32)
    y = np.sin(x.sum(axis=1, keepdims=True))
    model = IntermediateNoise(mlp(WIDTHS), 0.1)
    shapes = jax.eval_shape(model.zero_position, x, y)
    starts = jax.tree.map(lambda leaf: np.zeros((1, *leaf.shape), leaf.dtype), shapes)

    def make_kernel(_: Any, data: Any) -> Any:
        return gibbs_sampler(model, *data)

    options: dict[str, Any] = {
        "data": (x, y),
        "mesh": _mesh(1, devices),
        "collect": lambda state, info: state.position.params,
        "chunk_size": sweeps,
        "progress": False,
    }

    def run(key: jax.Array, num_sweeps: int) -> Draws:
        return all_draws(key, make_kernel, starts, num_sweeps, **options)

    draws = run(jax.random.key(0), sweeps)
    seconds = _seconds_a_step(run, sweeps)
    if not all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(draws.positions)):
        raise RuntimeError("draws that are not finite")

    # One sweep of the same shapes and places, compiled by itself, says what it needs at most.
    spread = jax.tree.leaves(draws.final_state)
    data = [jax.device_put(part, _rows_of(options["mesh"])) for part in (x, y)]

    @jax.jit
    def sweep(key: jax.Array, state: Any, data: Any) -> Any:
        return jax.vmap(lambda s: make_kernel(None, data).step(key, s)[0])(state)

    compiled = sweep.lower(jax.random.key(0), draws.final_state, tuple(data)).compile()
    analysis: Any = compiled.memory_analysis()
    peak = analysis.argument_size_in_bytes + analysis.output_size_in_bytes
    state_bytes = sum(leaf.nbytes for leaf in spread)
    return {
        "devices": devices,
        "seconds_a_sweep": seconds,
        "model_bytes": (state_bytes + x.nbytes + y.nbytes) / devices,
        "held_bytes": sum(_on_first_device(leaf) for leaf in [*spread, *data]),
        "peak_bytes": peak + analysis.temp_size_in_bytes,
        "resident_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        * (1 if sys.platform == "darwin" else 1024),
    }


def throughput(devices: int, steps: int, *chains: int) -> dict[str, Any]:
    """Count steps of all chains a second, of pCN on a small regression, by number of chains."""
    network = mlp((2, 8, 1), "tanh")
    rng = np.random.default_rng(0)
    x = rng.normal(size=(100, 2)).astype(np.float32)
    y = np.sin(x.sum(axis=1, keepdims=True))
    posterior = Posterior(network, normal_prior(network), Gaussian(0.5), x, y)
    kernel = pcn(posterior.log_likelihood, 0.1)
    rates = []
    for number in chains:
        starts = jax.vmap(lambda key: init(key, network))(
            jax.random.split(jax.random.key(1), number)
        )
        options: dict[str, Any] = {
            "mesh": _mesh(devices, 1),
            "collect": None,
            "chunk_size": steps,
            "progress": False,
        }

        def run(key: jax.Array, num_steps: int, starts=starts, options=options) -> Draws:
            return all_draws(key, kernel, starts, num_steps, **options)

        rates.append(number / _seconds_a_step(run, steps))
    return {"chain_steps_a_second": rates}


def airfoil_posterior() -> tuple[Posterior, float]:
    """Return that of four hidden layers of 16 units on airfoil, and a microcanonical step size."""
    network = mlp((5, 16, 16, 16, 16, 2), "relu")
    split = standardised(tabular("airfoil"))
    x, y = (np.asarray(part, np.float32) for part in (split.x_train, split.y_train))
    likelihood = SoftplusScaleGaussian()
    return Posterior(network, normal_prior(network), likelihood, x, y), 0.02


def microcanonical(log_density: Callable[[Any], jax.Array], step_size: float) -> SamplingAlgorithm:
    """Return BlackJAX's kernel with the decoherence length that both benchmarks use."""
    return blackjax.mclmc(log_density, L=30.0, step_size=step_size)


def ensemble(devices: int, steps: int, chains: int, first_core: int = 0) -> dict[str, Any]:
    """Count steps of all microcanonical chains on airfoil a second, a core a device."""
    if hasattr(os, "sched_setaffinity"):
        cores = sorted(os.sched_getaffinity(0))[first_core:]
        os.sched_setaffinity(0, cores[:devices])
    posterior, step_size = airfoil_posterior()
    kernel = microcanonical(posterior.log_density, step_size)
    starts = posterior.sample_prior(jax.random.key(0), (chains,))
    options: dict[str, Any] = {
        "mesh": _mesh(devices, 1),
        "chunk_size": steps,
        "progress": False,
    }

    def run(key: jax.Array, num_steps: int) -> Draws:
        return all_draws(key, kernel, starts, num_steps, **options)

    return {"chain_steps_a_second": chains / _seconds_a_step(run, steps)}


def found_devices(_: int) -> dict[str, Any]:
    """Return how many devices there are, and how many cores this process may use."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return {"devices": len(jax.devices()), "cores": cores}


def _seconds_a_step(run: Callable[[jax.Array, int], Draws], steps: int) -> float:
    """Return the seconds of a step: of three calls' chunks more than one call's, over two."""
    run(jax.random.key(0), steps)  # compiles
    least = []
    for chunks in (1, 3):
        seconds = []
        for seed in range(2):
            begin = time.perf_counter()
            run(jax.random.key(seed), chunks * steps)
            seconds.append(time.perf_counter() - begin)
        least.append(min(seconds))
    return (least[1] - least[0]) / (2 * steps)


def _mesh(chain: int, data: int) -> Mesh:
    found = jax.devices()
    if len(found) < chain * data:
        sys.exit(f"{chain * data} devices were asked for, but there are {len(found)}.")
    return Mesh(np.asarray(found[: chain * data]).reshape(chain, data), ("chain", "data"))


def _rows_of(mesh: Mesh) -> jax.sharding.NamedSharding:
    return jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("data"))


def _on_first_device(array: jnp.ndarray) -> int:
    return array.addressable_shards[0].data.nbytes


if __name__ == "__main__":
    measure: Any = {
        "gibbs": gibbs,
        "throughput": throughput,
        "ensemble": ensemble,
        "devices": found_devices,
    }[sys.argv[2]]
    print(json.dumps(measure(int(sys.argv[1]), *map(int, sys.argv[3:]))))
