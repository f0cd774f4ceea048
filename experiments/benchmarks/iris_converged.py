"""Effective draws a second of the Iris posterior: HMC with moves against NUTS.

The same posterior, four chains, float32, starts and warm-up steps for all: jaxbnn's HMC in a cycle
with unit redraws and symmetry moves, tuned by `window_adaptation`; NumPyro's NUTS, vectorised and
one chain after another; BlackJAX's NUTS with its window adaptation. Each program is compiled first;
the warm-up is in the time. What counts is the smallest bulk ESS over the log density, all 450
predicted probabilities and the units' sorted norms.
"""

import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import blackjax
import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import PyTree

from experiments.datasets import iris
from experiments.results import Row
from experiments.studies.challenges.moves import (
    iris_posterior,
    kernel_on,
    measured,
    start_parameters,
    starts_of,
    tuning_of,
)
from experiments.study import all_draws
from jaxbnn import diagnostics

HIDDEN, PRIOR_VARIANCE, START_SCALE, NUM_CHAINS = 3, 3.0, 0.5, 4
OURS = "jaxbnn HMC with moves"


class Measured(NamedTuple):
    """One run: seconds, smallest bulk ESS and largest R-hat of the invariants and the raw ones."""

    seconds: float
    ess: float
    rhat: float
    raw_ess: float
    raw_rhat: float
    raw_split_rhat: float


def run(
    out_dir: Path, *, num_seeds: int = 5, num_warmup: int = 1000, num_samples: int = 2000
) -> list[Row]:
    """Measure all samplers on the same seeds, in turn.

    Parameters
    ----------
    out_dir
        Where the command writes the table.
    num_seeds
        Seeds; the median of each number over them counts.
    num_warmup, num_samples
        Steps of each chain, of all samplers.
    """
    x, y = iris()
    data = {"x": jnp.asarray(x), "y": jnp.asarray(y)}
    target = iris_posterior(HIDDEN, PRIOR_VARIANCE, data)
    samplers = {
        OURS: _ours(data, num_warmup, num_samples),
        "NumPyro NUTS, vectorised": _numpyro(target, "vectorized", num_warmup, num_samples),
        "NumPyro NUTS, sequential": _numpyro(target, "sequential", num_warmup, num_samples),
        "BlackJAX NUTS, window adaptation": _blackjax(target, num_warmup, num_samples),
    }
    found: dict[str, list[Measured]] = {name: [] for name in samplers}
    for seed in range(num_seeds + 1):  # the first compiles
        key_start, key_run = jax.random.split(jax.random.key(seed))
        starts = starts_of(target, key_start, (NUM_CHAINS,), START_SCALE)
        for name, sampler in samplers.items():
            begin = time.perf_counter()
            positions = jax.tree.map(np.asarray, sampler(key_run, starts))
            seconds = time.perf_counter() - begin
            if seed == 0:
                continue
            result = _measure(target, positions, seconds)
            found[name].append(result)
            print(
                f"{name}, seed {seed}: {seconds:.1f} s, ESS {result.ess:.0f}, "
                f"{result.ess / seconds:.1f} a second, R-hat {result.rhat:.3f}; raw ESS "
                f"{result.raw_ess:.0f}, R-hat {result.raw_rhat:.3f} "
                f"(split {result.raw_split_rhat:.3f})",
                flush=True,
            )
    return _rows(found)


def _ours(data, num_warmup: int, num_samples: int) -> Callable:
    def make_kernel(parameters, data):
        target = iris_posterior(HIDDEN, PRIOR_VARIANCE, data)
        return kernel_on(target, "HMC", parameters, with_moves=True)

    parameters = jax.tree.map(
        lambda leaf: np.broadcast_to(leaf, (NUM_CHAINS, *leaf.shape)),
        start_parameters("HMC", HIDDEN, with_moves=True),
    )
    adapt = tuning_of("HMC", num_warmup, with_moves=True)

    def go(key, starts) -> PyTree:
        return all_draws(
            key,
            make_kernel,
            starts,
            num_samples,
            parameters=parameters,
            data=data,
            num_warmup=num_warmup,
            adapt=adapt,
            progress=False,
        ).positions

    return go


def _flat_density(target) -> tuple[Callable, Callable]:
    example = target.sample_prior(jax.random.key(0))
    _, unravel = ravel_pytree(example)
    return lambda flat: target.log_density(unravel(flat)), unravel


def _numpyro(target, chain_method: str, num_warmup: int, num_samples: int) -> Callable:
    from numpyro.infer import MCMC, NUTS

    log_density, unravel = _flat_density(target)

    @jax.jit  # by itself, MCMC.run compiles its loop anew in every call
    def chains(key, starts):
        mcmc = MCMC(
            NUTS(potential_fn=lambda flat: -log_density(flat)),
            num_warmup=num_warmup,
            num_samples=num_samples,
            num_chains=NUM_CHAINS,
            chain_method=chain_method,
            progress_bar=False,
        )
        mcmc.run(key, init_params=starts)
        return mcmc.get_samples(group_by_chain=True)

    def go(key, starts) -> PyTree:
        flat = jax.vmap(lambda p: ravel_pytree(p)[0])(starts)
        return jax.vmap(jax.vmap(unravel))(chains(key, flat))

    return go


def _blackjax(target, num_warmup: int, num_samples: int) -> Callable:
    log_density, unravel = _flat_density(target)

    @jax.jit
    def chains(key, starts):
        def chain(key, start):
            key_warmup, key_run = jax.random.split(key)
            warmup = blackjax.window_adaptation(blackjax.nuts, log_density)
            (state, parameters), _ = warmup.run(key_warmup, start, num_warmup)
            kernel = blackjax.nuts(log_density, **parameters)

            def step(state, key):
                state, _ = kernel.step(key, state)
                return state, state.position

            return jax.lax.scan(step, state, jax.random.split(key_run, num_samples))[1]

        return jax.vmap(chain)(jax.random.split(key, NUM_CHAINS), starts)

    def go(key, starts) -> PyTree:
        flat = jax.vmap(lambda p: ravel_pytree(p)[0])(starts)
        return jax.vmap(jax.vmap(unravel))(chains(key, flat))

    return go


def _measure(target, positions: PyTree, seconds: float) -> Measured:
    found = measured(target, positions, 10**9)
    raw = found.pop("raw parameters")
    return Measured(
        seconds,
        min(float(np.min(diagnostics.ess_bulk(values))) for values in found.values()),
        max(float(np.max(diagnostics.rank_rhat(values))) for values in found.values()),
        float(np.min(diagnostics.ess_bulk(raw))),
        float(np.max(diagnostics.rank_rhat(raw))),
        float(np.max(diagnostics.split_rhat(raw))),
    )


def _rows(found: dict[str, list[Measured]]) -> list[Row]:
    rows = []
    rates = {name: [one.ess / one.seconds for one in runs] for name, runs in found.items()}
    for name, runs in found.items():
        rows += [
            Row("ess_per_second", name, statistics.median(rates[name])),
            Row("ess_per_second_min", name, min(rates[name])),
            Row("ess_per_second_max", name, max(rates[name])),
            Row(
                "raw_ess_per_second",
                name,
                statistics.median(one.raw_ess / one.seconds for one in runs),
            ),
        ]
        rows += [
            Row(field, name, statistics.median(getattr(one, field) for one in runs))
            for field in Measured._fields
        ]
    others = [name for name in found if name != OURS]
    best = max(others, key=lambda name: statistics.median(rates[name]))
    ratios = [ours / theirs for ours, theirs in zip(rates[OURS], rates[best], strict=True)]
    rows += [
        Row("ratio_to_the_best", best, statistics.median(ratios)),
        Row("ratio_to_the_best_min", best, min(ratios)),
        Row("ratio_to_the_best_max", best, max(ratios)),
    ]
    print(
        f"{OURS}: {statistics.median(ratios):.1f} times ({min(ratios):.1f} to {max(ratios):.1f}) "
        f"the best, {best}"
    )
    return rows
