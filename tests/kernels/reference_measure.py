"""The skew banana as a likelihood relative to N(MEAN, COVARIANCE), in JAX and again in NumPy."""

import sys

import jax.numpy as jnp
import numpy as np
from blackjax.base import SamplingAlgorithm
from scipy import stats

from tests.kit.targets import BEND, WIDTH, skew_banana

TARGET = skew_banana()
MEAN = np.array([0.3, -0.4])
COVARIANCE = np.array([[1.5, 0.6], [0.6, 0.8]])
PRECISION = np.linalg.inv(COVARIANCE)


def log_likelihood(x):
    """Return l(x) in two terms: log pi(x) and -log N(x; m, C), up to constants."""
    away = x - jnp.asarray(MEAN, x.dtype)
    squared = jnp.sum(away * (jnp.asarray(PRECISION, x.dtype) @ away))
    return jnp.stack([TARGET.log_density(x), squared / 2])


def gradient(x: np.ndarray) -> np.ndarray:
    """Return D l(x), differentiated by hand."""
    bend = (x[1] - BEND * x[0] ** 2) / WIDTH**2
    of_target = np.array([1 - np.exp(x[0]) + 2 * BEND * x[0] * bend, -bend])
    return of_target + PRECISION @ (x - MEAN)


def log_normal(y, mean, covariance) -> float:
    return float(stats.multivariate_normal.logpdf(y, mean, covariance))


def module_of(function):
    """Return the module of a kernel; by attributes, the kernel of the same name hides it."""
    return sys.modules[function.__module__]


def stale(kernel: SamplingAlgorithm, *fields: str) -> SamplingAlgorithm:
    """Return the defect that cached fields stay behind when the position moves."""

    def step(key, state):
        new, info = kernel.step(key, state)
        return new._replace(**{field: getattr(state, field) for field in fields}), info

    return SamplingAlgorithm(kernel.init, step)
