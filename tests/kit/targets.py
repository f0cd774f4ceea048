"""Tiny targets with exact samplers, asymmetric: a symmetric one cannot see a sign error."""

from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
from scipy import special, stats

from tests.kit.exact_start import Target, model_target, position_functions

BEND, WIDTH = 0.4, 0.7


def skew_banana() -> Target:
    """Return a skew, bent target in two dimensions with four exact distribution functions.

    x0 is the log of an exponential variable (skew to the left, a steep right side), and
    x1 given x0 is normal around BEND x0^2 with standard deviation WIDTH.
    """

    def sample(key):
        key_log, key_normal = jax.random.split(key)
        x0 = jnp.log(jax.random.exponential(key_log))
        x1 = BEND * x0**2 + WIDTH * jax.random.normal(key_normal)
        return jnp.stack([x0, x1]), None

    def log_density(position, data=None):
        x0, x1 = position[0], position[1]
        return x0 - jnp.exp(x0) - 0.5 * ((x1 - BEND * x0**2) / WIDTH) ** 2

    def test_functions(position, data):
        return position_functions(position, log_density(position))

    names = ("x0", "x1", "x0 x1", "log density")
    return Target(
        sample,
        log_density,
        test_functions,
        {name: lambda values, name=name: _skew_banana_cdf(name, values) for name in names},
    )


def skew_banana_log_density(x: np.ndarray) -> float:
    """Return the log density of `skew_banana` a second time, from SciPy's distributions."""
    return float(
        stats.gumbel_l.logpdf(x[0]) + stats.norm.logpdf(x[1], loc=BEND * x[0] ** 2, scale=WIDTH)
    )


def half_line() -> Target:
    """Return Gamma(2, 1), whose log density, log x - x, is NaN at negative x."""

    def sample(key):
        return jnp.sum(jax.random.exponential(key, (2,)))[None], None

    def log_density(position, data=None):
        return jnp.log(position[0]) - position[0]

    def test_functions(position, data):
        return position_functions(position, log_density(position))

    def cdf_x0(x):
        return special.gammainc(2.0, np.maximum(x, 0.0))

    def cdf_log_density(values):
        # log x - x <= t outside the two solutions of x exp(-x) = exp(t), t <= -1.
        t = np.minimum(values, -1.0 - 1e-12)
        low, high = (-special.lambertw(-np.exp(t), branch).real for branch in (0, -1))
        return cdf_x0(low) + 1.0 - cdf_x0(high)

    return Target(
        sample, log_density, test_functions, {"x0": cdf_x0, "log density": cdf_log_density}
    )


def bent_regression(noise: float = 0.5) -> Target:
    """Return a joint target of two parameters and three data, nothing about it symmetric.

    theta ~ N(0, I), y_i ~ N(exp(theta_0 x_i / 2) + theta_1 x_i^2, noise^2).
    """

    def mean(theta):
        x = jnp.array([-0.5, 0.4, 1.0], theta.dtype)
        return jnp.exp(theta[0] * x / 2) + theta[1] * x**2

    return model_target(
        lambda key: jax.random.normal(key, (2,)),
        lambda key, theta: mean(theta) + noise * jax.random.normal(key, (3,)),
        lambda theta: -0.5 * jnp.sum(theta**2),
        lambda theta, y: -0.5 * ((y - mean(theta)) / noise) ** 2,
    )


def _skew_banana_cdf(name: str, values: np.ndarray) -> np.ndarray:
    if name == "x0":
        return -np.expm1(-np.exp(np.minimum(values, 100.0)))
    grid, exact = _skew_banana_table(name)
    return np.interp(values, grid, exact, left=0.0, right=1.0)


@cache
def _skew_banana_table(name: str) -> tuple[np.ndarray, np.ndarray]:
    """Distribution function on a grid by quadrature over x0 of the one of x1 given x0."""
    edges = np.concatenate([np.linspace(-25.0, 0.0, 6001), np.linspace(0.0, 4.0, 2001)[1:]])
    x0 = (edges[1:] + edges[:-1]) / 2  # 0, where the sign of x0 x1 turns, is an edge
    weight = np.diff(stats.gumbel_l.cdf(edges))
    middle = BEND * x0**2
    rng = np.random.default_rng(1)
    a = np.log(rng.exponential(size=100_000))
    b = BEND * a**2 + WIDTH * rng.standard_normal(100_000)
    # The grid is only a choice of points: quantiles of draws, closer in the tails, and beyond.
    # The values are exact.
    samples = {
        "x1": b,
        "x0 x1": a * b,
        "log density": a - np.exp(a) - 0.5 * ((b - BEND * a**2) / WIDTH) ** 2,
    }[name]
    spread = np.ptp(samples) * np.array([0.0, 0.05, 0.1, 0.2, 0.5, 1.0, 4.0])
    grid = np.unique(
        np.concatenate(
            [
                np.quantile(samples, special.expit(np.linspace(-11, 11, 1001))),
                samples.min() - spread,
                samples.max() + spread,
            ]
        )
    )
    exact = np.empty(len(grid))
    for i, t in enumerate(grid):
        if name == "x1":
            inside = special.ndtr((t - middle) / WIDTH)
        elif name == "x0 x1":
            inside = special.ndtr(np.sign(x0) * (t / x0 - middle) / WIDTH)
        else:
            room = np.maximum(x0 - np.exp(x0) - t, 0.0)
            inside = special.erfc(np.sqrt(room))
        exact[i] = np.sum(weight * inside)
    return grid, exact
