"""Small kernels written a second time, each with room for one named defect.

`random_walk`, `mala` and `hmc` are right as they stand. A mutant is the same kernel with one
function replaced: its log ratio, its rule of acceptance, or what it caches. The tests of a
kernel must find each of its mutants.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from blackjax.base import SamplingAlgorithm


class CachedState(NamedTuple):
    position: Any
    logdensity: Any
    auxiliary = ()


class Info(NamedTuple):
    acceptance_rate: Any
    is_accepted: Any


def metropolis_rule(uniform, log_ratio):
    """Accept with probability min(1, exp(log_ratio)), never where it is NaN."""
    return jnp.log(uniform) < log_ratio


def nan_accepted(uniform, log_ratio):
    """Defect: not (log u >= r), which is true where r is NaN."""
    return ~(jnp.log(uniform) >= log_ratio)


def always_accepted(uniform, log_ratio):
    """Defect: no accept step at all."""
    return uniform >= 0


def take_new(new, old, is_accepted):
    """Move the cache with the position."""
    return jnp.where(is_accepted, new, old)


def stale(new, old, is_accepted):
    """Defect: the cached log density stays when the position moves."""
    return old


def _metropolis_kernel(log_density, propose, log_ratio, accept, cache) -> SamplingAlgorithm:
    def init(position, rng_key=None):
        return CachedState(position, log_density(position))

    def step(rng_key, state):
        key_propose, key_accept = jax.random.split(rng_key)
        proposal, other = propose(key_propose, state.position)
        new_density = log_density(proposal)
        difference = new_density - state.logdensity
        ratio = difference + log_ratio(state.position, proposal, other)
        uniform = jax.random.uniform(key_accept, dtype=ratio.dtype)
        is_accepted = accept(uniform, ratio)
        position = jnp.where(is_accepted, proposal, state.position)
        cached = cache(new_density, state.logdensity, is_accepted)
        info = Info(jnp.exp(jnp.minimum(ratio, 0.0)), is_accepted)
        return CachedState(position, cached), info

    return SamplingAlgorithm(init, step)


def random_walk(
    log_density: Callable, step_size, *, accept=metropolis_rule, cache=take_new
) -> SamplingAlgorithm:
    """Random-walk Metropolis on a vector, y = x + step_size xi."""

    def propose(key, x):
        return x + step_size * jax.random.normal(key, x.shape, x.dtype), None

    return _metropolis_kernel(
        log_density, propose, lambda x, y, other: jnp.zeros((), x.dtype), accept, cache
    )


def mala_proposal_ratio(log_density: Callable, step_size) -> Callable:
    """Return (x, y) -> log q(y, x) - log q(x, y) for y ~ N(x + step_size^2/2 grad, step_size^2)."""
    return _proposal_ratio(log_density, step_size, reverse_sign=1.0, reverse_drift=0.5)


def _proposal_ratio(log_density, step_size, reverse_sign, reverse_drift):
    gradient = jax.grad(log_density)

    def log_proposal(x, y, drift):
        mean = x + drift * step_size**2 * gradient(x)
        return -jnp.sum((y - mean) ** 2) / (2 * step_size**2)

    def ratio(x, y):
        return log_proposal(y, x, reverse_sign * reverse_drift) - log_proposal(x, y, 0.5)

    return ratio


def _reverse_drift_sign(log_density, step_size):
    return _proposal_ratio(log_density, step_size, reverse_sign=-1.0, reverse_drift=0.5)


def _reverse_drift_doubled(log_density, step_size):
    return _proposal_ratio(log_density, step_size, reverse_sign=1.0, reverse_drift=1.0)


def _ratio_inverted(log_density, step_size):
    right = mala_proposal_ratio(log_density, step_size)
    return lambda x, y: -right(x, y)


def _ratio_missing(log_density, step_size):
    return lambda x, y: jnp.zeros((), x.dtype)


def mala(
    log_density: Callable,
    step_size,
    *,
    proposal_ratio=mala_proposal_ratio,
    accept=metropolis_rule,
    cache=take_new,
) -> SamplingAlgorithm:
    """Metropolis-adjusted Langevin on a vector, step_size^2 / 2 before the gradient."""
    ratio = proposal_ratio(log_density, step_size)

    def propose(key, x):
        noise = jax.random.normal(key, x.shape, x.dtype)
        return x + 0.5 * step_size**2 * jax.grad(log_density)(x) + step_size * noise, None

    return _metropolis_kernel(log_density, propose, lambda x, y, other: ratio(x, y), accept, cache)


def leapfrog(log_density: Callable, step_size, num_steps: int, last_kick=0.5) -> Callable:
    """Return (x, p) -> (x', p'), leapfrog steps of unit mass without a flip of the momentum."""
    gradient = jax.grad(log_density)

    def trajectory(x, p):
        p = p + 0.5 * step_size * gradient(x)
        for i in range(num_steps):
            x = x + step_size * p
            p = p + (1.0 if i < num_steps - 1 else last_kick) * step_size * gradient(x)
        return x, p

    return trajectory


def hmc(
    log_density: Callable,
    step_size,
    num_steps: int = 3,
    *,
    kinetic_sign=1.0,
    last_kick=0.5,
    accept=metropolis_rule,
    cache=take_new,
) -> SamplingAlgorithm:
    """Hamiltonian Monte Carlo on a vector, unit mass."""
    trajectory = leapfrog(log_density, step_size, num_steps, last_kick)

    def propose(key, x):
        p = jax.random.normal(key, x.shape, x.dtype)
        y, end = trajectory(x, p)
        return y, (p, end)

    def kinetic_difference(x, y, momenta):
        start, end = momenta
        return kinetic_sign * 0.5 * (jnp.sum(start**2) - jnp.sum(end**2))

    return _metropolis_kernel(log_density, propose, kinetic_difference, accept, cache)


RANDOM_WALK_MUTANTS = {
    "always accepts": lambda f, eps: random_walk(f, eps, accept=always_accepted),
    "stale log density": lambda f, eps: random_walk(f, eps, cache=stale),
}

# Seen only where the log density can be NaN.
NAN_MUTANTS = {
    "accepts NaN": lambda f, eps: random_walk(f, eps, accept=nan_accepted),
}

MALA_PROPOSAL_RATIO_MUTANTS = {
    "reverse drift has the wrong sign": _reverse_drift_sign,
    "reverse drift is doubled": _reverse_drift_doubled,
    "proposal ratio upside down": _ratio_inverted,
    "proposal ratio missing": _ratio_missing,
}

MALA_MUTANTS = {
    name: lambda f, eps, ratio=ratio: mala(f, eps, proposal_ratio=ratio)
    for name, ratio in MALA_PROPOSAL_RATIO_MUTANTS.items()
} | {
    "always accepts": lambda f, eps: mala(f, eps, accept=always_accepted),
    "stale log density": lambda f, eps: mala(f, eps, cache=stale),
}

HMC_MUTANTS = {
    "kinetic energy has the wrong sign": lambda f, eps: hmc(f, eps, kinetic_sign=-1.0),
    "kinetic energy missing": lambda f, eps: hmc(f, eps, kinetic_sign=0.0),
    "last half step is a whole one": lambda f, eps: hmc(f, eps, last_kick=1.0),
    "always accepts": lambda f, eps: hmc(f, eps, accept=always_accepted),
    "stale log density": lambda f, eps: hmc(f, eps, cache=stale),
}
