"""The flux identity, and deterministic maps against their inverse and Jacobian.

A Metropolis rule with log ratio r leaves pi invariant, reversibly, when for all x, y

    log pi(x) + log q(x, y) + min(0, r(x, y)) = log pi(y) + log q(y, x) + min(0, r(y, x)).

pi and q are written a second time in the test, from the definition of the proposal, with
NumPy or SciPy, and never from the kernel's code: antisymmetry of r alone proves nothing, since
wrong signs and lost determinants are antisymmetric too.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree

from tests.kit.sizes import QUICK

TOLERANCE = 1e-9


class Difference(NamedTuple):
    """The largest difference found, and where.

    Attributes
    ----------
    largest
        Largest absolute difference; infinite where a side is NaN.
    worst
        Index of the pair or point at which it was found.
    passes
        Whether it is within the tolerance.
    """

    largest: float
    worst: int
    passes: bool


def check_flux_identity(
    log_pi: Callable,
    log_q: Callable,
    log_ratio_fn: Callable,
    pairs: tuple,
    *,
    tolerance: float = TOLERANCE,
) -> Difference:
    """Check the flux identity on pairs of positions, in float64.

    Parameters
    ----------
    log_pi
        NumPy/SciPy: log_pi(x) -> log density of the target at one position.
    log_q
        NumPy/SciPy: log_q(x, y) -> log density of proposing y from x.
    log_ratio_fn
        JAX: the kernel's own log ratio of the move x -> y, log_ratio_fn(x, y) -> scalar.
        Constants that it closes over must be float64 too.
    pairs
        (x, y), PyTrees of arrays with a leading axis over the pairs; see `random_pairs`.
    tolerance
        Largest difference of the two sides allowed.
    """
    x, y = (jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), side) for side in pairs)
    with jax.enable_x64(True):
        ratio = jax.jit(jax.vmap(log_ratio_fn), compiler_options=QUICK)
        forward, backward = np.asarray(ratio(x, y)), np.asarray(ratio(y, x))
    if forward.dtype != np.float64:
        raise ValueError(f"log_ratio_fn returned {forward.dtype}; it must compute in float64.")
    differences = []
    for i in range(len(forward)):
        here, there = (jax.tree.map(lambda leaf, i=i: leaf[i], side) for side in (x, y))
        left = log_pi(here) + log_q(here, there) + np.minimum(0.0, forward[i])
        right = log_pi(there) + log_q(there, here) + np.minimum(0.0, backward[i])
        # No flow at all in both directions is a balance too.
        differences.append(0.0 if left == right == -np.inf else abs(float(left - right)))
    return _judge(np.asarray(differences), tolerance)


def check_deterministic_map(
    map_fn: Callable,
    inverse_fn: Callable,
    log_abs_jacobian_fn: Callable,
    points,
    *,
    tolerance: float = TOLERANCE,
) -> Difference:
    """Check that a map has the inverse and the Jacobian that it claims, in float64.

    inverse(map(x)) = x, map(inverse(x)) = x, and log |det d map(x) / dx| equals the one by
    automatic differentiation.

    Parameters
    ----------
    map_fn, inverse_fn
        JAX functions of one point (an array or PyTree) to a point of the same structure.
    log_abs_jacobian_fn
        log_abs_jacobian_fn(x) -> scalar, as the kernel computes it.
    points
        PyTree of arrays with a leading axis over the points, at which both the map and the inverse
        are defined.
    """
    points = jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), points)

    def differences(point):
        vector, unravel = ravel_pytree(point)
        there_and_back = ravel_pytree(inverse_fn(map_fn(point)))[0]
        back_and_there = ravel_pytree(map_fn(inverse_fn(point)))[0]
        matrix = jax.jacfwd(lambda v: ravel_pytree(map_fn(unravel(v)))[0])(vector)
        automatic = jnp.linalg.slogdet(matrix)[1]
        named = jnp.asarray(log_abs_jacobian_fn(point), automatic.dtype)
        worst = jnp.stack(
            [
                jnp.max(jnp.abs(there_and_back - vector)),
                jnp.max(jnp.abs(back_and_there - vector)),
                jnp.abs(named - automatic),
            ]
        )
        return jnp.max(worst)  # NaN where any is NaN

    with jax.enable_x64(True):
        found = np.asarray(jax.jit(jax.vmap(differences), compiler_options=QUICK)(points))
    return _judge(found, tolerance)


def random_pairs(rng: np.random.Generator, num_pairs: int, dimension: int, scale: float = 1.0):
    """Return (x, y), near and far from each other: y = x + a step of a size of its own.

    >>> x, y = random_pairs(np.random.default_rng(0), 500, 2)
    >>> x.shape, y.shape
    ((500, 2), (500, 2))
    """
    x = scale * rng.standard_normal((num_pairs, dimension))
    sizes = scale * 10.0 ** rng.uniform(-2.0, 0.5, (num_pairs, 1))
    return x, x + sizes * rng.standard_normal((num_pairs, dimension))


def _judge(differences: np.ndarray, tolerance: float) -> Difference:
    differences = np.where(np.isnan(differences), np.inf, differences)
    worst = int(np.argmax(differences))
    largest = float(differences[worst])
    return Difference(largest, worst, largest <= tolerance)
