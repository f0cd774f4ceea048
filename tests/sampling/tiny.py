"""Kernels that compile in no time, whose every draw can be computed a second time by hand."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from blackjax.base import SamplingAlgorithm

from jaxbnn.kernels.metropolis import metropolis


class WalkState(NamedTuple):
    position: jax.Array
    log_density: jax.Array
    auxiliary = ()


class ArInfo(NamedTuple):
    acceptance_rate: jax.Array
    is_large: jax.Array
    noise: jax.Array  # not one number a step
    nothing: None = None


def ar(shrink=0.5) -> SamplingAlgorithm:
    """x <- shrink x + noise, its noise the key's; some acceptance rates are NaN."""

    def init(position, rng_key=None):
        return WalkState(position, -0.5 * jnp.sum(position**2))

    def step(rng_key, state):
        noise = jax.random.normal(rng_key, state.position.shape, state.position.dtype)
        new = init(jnp.asarray(shrink, noise.dtype) * state.position + noise)
        return new, ArInfo(*_ar_info(jnp, jax.nn.sigmoid, new.position), noise)

    return SamplingAlgorithm(init, step)


def _ar_info(xp, sigmoid, position):
    first = position[..., 0]
    return xp.where(first > 1.5, xp.nan, sigmoid(first)), first > 1


def ar_by_hand(key, starts, num_steps, first_step=0, shrink=0.5) -> np.ndarray:
    """Positions after each step, (chain, step, ...), from the keys as documented."""

    @jax.jit
    def noise(c, t):
        rng_key = jax.random.fold_in(jax.random.fold_in(key, c), t)
        return jax.random.normal(rng_key, starts.shape[1:], starts.dtype)

    chains = []
    for c, start in enumerate(np.asarray(starts)):
        x, draws = start, []
        for t in range(first_step, first_step + num_steps):
            x = np.asarray(shrink, start.dtype) * x + np.asarray(noise(np.uint32(c), np.uint32(t)))
            draws.append(x)
        chains.append(np.stack(draws))
    return np.stack(chains)


def rates_by_hand(positions) -> np.ndarray:
    with np.errstate(over="ignore"):
        return _ar_info(np, lambda x: 1 / (1 + np.exp(-x)), positions)[0]


def walk(log_density, step_size=1.0) -> SamplingAlgorithm:
    """Random-walk Metropolis on an array position."""

    def init(position, rng_key=None):
        return WalkState(position, jnp.asarray(log_density(position)))

    def step(rng_key, state):
        key_proposal, key_accept = jax.random.split(rng_key)
        x = state.position
        noise = jax.random.normal(key_proposal, x.shape, x.dtype)
        proposal = init(x + jnp.asarray(step_size, x.dtype) * noise)
        log_ratio = proposal.log_density - state.log_density
        return metropolis(key_accept, log_ratio, state, proposal)

    return SamplingAlgorithm(init, step)


def normal_log_density(x):
    return -0.5 * jnp.sum(x**2)
