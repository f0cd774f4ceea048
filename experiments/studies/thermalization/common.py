"""What the experiments of this study share: networks, priors, schedules, intervals, names."""

import math
from collections.abc import Mapping, Sequence

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Float, Int, PyTree

from jaxbnn import Network, mlp, networks
from jaxbnn.gibbs import IntermediateNoise


def student(widths: tuple[int, ...], activation: str, delta: ArrayLike) -> IntermediateNoise:
    """Return the model of teacher and student: all noise variances Delta, precisions the fan-in."""
    precisions = tuple(float(width) for width in widths[:-1])
    return IntermediateNoise(mlp(widths, activation), delta, precisions, precisions)


def geometric_steps(num_steps: int, num_records: int) -> Int[np.ndarray, " records"]:
    """Return about `num_records` steps from 1 to `num_steps` in geometric progression."""
    return np.unique(np.round(np.geomspace(1, num_steps, num_records)).astype(np.int64))


def wilson_interval(successes: int, trials: int, z: float = 1.96) -> tuple[float, float]:
    """Return Wilson's 95 % interval of a binomial probability.

    Examples
    --------
    >>> [round(bound, 3) for bound in wilson_interval(0, 8)]
    [0.0, 0.324]
    """
    share, shrink = successes / trials, 1 + z**2 / trials
    middle = (share + z**2 / (2 * trials)) / shrink
    half = z / shrink * math.sqrt(share * (1 - share) / trials + z**2 / (4 * trials**2))
    return max(0.0, middle - half), min(1.0, middle + half)


def mean_and_error(values: np.ndarray | Sequence) -> tuple[float, float | None]:
    """Return the mean of independent values and its standard error, None for a single one."""
    array = np.asarray(values, float).ravel()
    if len(array) == 0:
        return math.nan, None
    error = array.std(ddof=1) / math.sqrt(len(array)) if len(array) > 1 else None
    return float(array.mean()), error


def in_scientific(value: float) -> str:
    """Return a noise variance as the paper's tables have it.

    Examples
    --------
    >>> in_scientific(4.64e-4), in_scientific(0.1), in_scientific(1.0)
    ('4.64e-4', '1e-1', '1')
    """
    mantissa, exponent = f"{value:.2e}".split("e")
    digits = mantissa.rstrip("0").rstrip(".")
    return digits if int(exponent) == 0 else f"{digits}e{int(exponent)}"


def weight_norms(params: PyTree) -> list[Float[Array, ""]]:
    """Return the Frobenius norm of every layer's weights."""
    return [jnp.sqrt(jnp.sum(jnp.square(layer["w"]))) for layer in params if layer]


def cnn() -> Network:
    """Return the paper's MNIST CNN: 4x4 filters with stride 2, pooling from 13x13 to 6x6, ReLU."""
    layers = (
        networks.Conv(2, (4, 4), (2, 2)),
        networks.AvgPool((2, 2)),
        networks.Activation("relu"),
        networks.Flatten(),
        networks.Dense(10),
    )
    return Network(layers, (28, 28, 1))


def late_levels(series: Mapping) -> np.ndarray:
    """Return the mean test error of each chain in the last half of its steps."""
    return series["mse"][:, series["steps"] > series["steps"][-1] / 2].mean(axis=1)
