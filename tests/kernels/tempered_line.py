"""A ladder on a line: a lopsided likelihood of two modes, with exact draws at every temperature."""

from functools import cache, partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from blackjax.base import SamplingAlgorithm

from jaxbnn.kernels.power_posterior import Replicas
from tests.kit import Target

LADDER = (0.1, 0.4, 1.0)
PRIOR_MEAN, PRIOR_SD = 0.5, 2.0


def log_prior(x, xp=jnp):
    return -0.5 * ((x - PRIOR_MEAN) / PRIOR_SD) ** 2


def log_likelihood(x, xp=jnp):
    """Two terms."""
    modes = xp.logaddexp(-0.5 * ((x + 1.2) / 0.35) ** 2, -1.2 - 0.5 * ((x - 1.8) / 0.6) ** 2)
    return xp.stack([modes, -0.3 * x])


def log_target(temperature, tempered, x, xp=jnp):
    """Return the log density of a rung, up to a constant."""
    likelihood = temperature * xp.sum(log_likelihood(x, xp), axis=0)
    power = temperature if tempered == "posterior" else 1.0
    return likelihood + power * log_prior(x, xp)


@cache
def table(temperature: float, tempered: str) -> tuple[np.ndarray, np.ndarray]:
    """Return a grid and the distribution function on it; Simpson's rule in float64."""
    grid = np.linspace(-30.0, 30.0, 60_001)
    middle = (grid[1:] + grid[:-1]) / 2
    at, between = (np.exp(log_target(temperature, tempered, x, np)) for x in (grid, middle))
    mass = (at[1:] + at[:-1] + 4 * between) / 6
    cdf = np.append(0.0, np.cumsum(mass))
    return grid, cdf / cdf[-1]


def ladder_target(tempered: str) -> Target:
    """Return the joint target of all rungs: the position is one number a rung."""
    tables = [table(t, tempered) for t in LADDER]

    def sample(key):
        uniform = jax.random.uniform(key, (len(LADDER),))
        # Inside the bulk of the table, where it can be inverted.
        return jnp.stack(
            [jnp.interp(u, *_inverse(*t)) for u, t in zip(uniform, tables, strict=True)]
        ), None

    def log_density(x, data=None):
        return sum(log_target(t, tempered, x[i]) for i, t in enumerate(LADDER))

    def test_functions(x, data):
        return {f"x{i}": x[i] for i in range(3)} | {
            f"x{i} x{i + 1}": x[i] * x[i + 1] for i in (0, 1)
        }

    cdfs = {f"x{i}": partial(np.interp, xp=t[0], fp=t[1]) for i, t in enumerate(tables)}
    return Target(sample, log_density, test_functions, cdfs)


def _inverse(grid, cdf):
    keep = np.append(True, np.diff(cdf) > 1e-9)
    return jnp.asarray(cdf[keep], jnp.float32), jnp.asarray(grid[keep], jnp.float32)


class JointState(NamedTuple):
    position: Any
    ladder: Any
    auxiliary = ()


def all_rungs(kernel: SamplingAlgorithm) -> SamplingAlgorithm:
    """Return the same kernel with the replicas of all rungs as its position."""

    def init(position, rng_key=None):
        return JointState(position, kernel.init(Replicas(position)))

    def step(key, state):
        ladder, info = kernel.step(key, state.ladder)
        return JointState(ladder.replicas, ladder), info

    return SamplingAlgorithm(init, step)
