"""The Crank-Nicolson proposal that pCN and pCNL share, and its step sizes beta and delta.

    v = u + (1 - c) (m - u + C g) + beta w,    w ~ N(0, C),    c = sqrt(1 - beta^2),

with g = 0 for pCN: an autoregression that leaves N(m, C) invariant. The increment is
computed from 1 - c = 2 delta / (2 + delta), since rounding c itself to float32 changes 1 - c
by 5 % at beta = 0.001.
"""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Float, PyTree

from jaxbnn.kernels.covariance_operator import like_position
from jaxbnn.kernels.trees import widened
from jaxbnn.numerics import check_real, is_concrete


def delta_from_beta(beta: ArrayLike) -> Float[Array, "..."]:
    """Return delta in (0, 2] that means beta: 2 beta^2 / (1 + c)^2, c = sqrt(1 - beta^2).

    This form has no cancellation at small beta (erratum B7); the other root is 4 / delta.

    Parameters
    ----------
    beta
        In (0, 1]; where a traced value is larger, it counts as 1.

    Raises
    ------
    ValueError
        beta outside (0, 1].

    Examples
    --------
    >>> print(f"{delta_from_beta(0.1):.6g} {delta_from_beta(0.01):.6g}")
    0.00502516 5.00025e-05
    """
    check_beta("beta", beta)
    beta = jnp.minimum(jnp.asarray(beta, jnp.result_type(float)), 1.0)
    return 2 * jnp.square(beta / (1 + jnp.sqrt((1 - beta) * (1 + beta))))


def beta_from_delta(delta: ArrayLike) -> Float[Array, "..."]:
    """Return the step size beta that delta means: sqrt(8 delta) / (2 + delta).

    Parameters
    ----------
    delta
        In (0, 2).

    Raises
    ------
    ValueError
        delta outside (0, 2).

    Examples
    --------
    >>> print(f"{beta_from_delta(0.01):.4g}")
    0.1407
    """
    check_delta(delta)
    delta = jnp.asarray(delta, jnp.result_type(float))
    return jnp.sqrt(8 * delta) / (2 + delta)


def crank_nicolson(
    position: PyTree,
    noise: PyTree,
    delta: Float[Array, ""],
    *,
    drift: PyTree | None = None,
    mean: PyTree | None = None,
) -> PyTree:
    """Return the proposal v from u, pCN's without a drift and pCNL's with it.

    Parameters
    ----------
    position
        u, a PyTree.
    noise
        w ~ N(0, C), like the position.
    delta
        From `delta_from_beta`.
    drift
        C g, or None for zero.
    mean
        m: a PyTree like the position or one number; None for zero.

    Examples
    --------
    >>> u, w = jnp.array([1.0]), jnp.array([0.5])
    >>> v = crank_nicolson(u, w, delta_from_beta(0.6))
    >>> print(f"{v[0]:.4f} = {0.8 * 1.0 + 0.6 * 0.5:.4f}")
    1.1000 = 1.1000
    """
    wide = widened(position)
    target = jax.tree.map(jnp.negative, from_mean(wide, mean))
    if drift is not None:
        target = jax.tree.map(jnp.add, target, widened(drift))

    def move(u, pull, w, like):
        d = jnp.asarray(delta, u.dtype)
        return (u + (2 * d / (2 + d)) * pull + jnp.sqrt(8 * d) / (2 + d) * w).astype(like.dtype)

    return jax.tree.map(move, wide, target, widened(noise), position)


def from_mean(position: PyTree, mean: PyTree | None) -> PyTree:
    """Return u - m."""
    if mean is None:
        return position
    return jax.tree.map(jnp.subtract, position, like_position("mean", mean, position))


def check_beta(name: str, beta: ArrayLike) -> None:
    """Raise ValueError unless every concrete beta is in (0, 1]."""
    for value in _entries(name, beta):
        if 0 < value <= 1:
            continue
        advice = "1 proposes from the reference measure and small values move little"
        if 1 < value < 2:
            advice = f"as the delta of pCNL it means {_meaning(value)}"
        raise ValueError(f"{name} must lie in (0, 1], but is {value:g}; {advice}.")


def check_delta(delta: ArrayLike) -> None:
    """Raise ValueError unless every concrete delta is in (0, 2)."""
    for value in _entries("delta", delta):
        if 0 < value < 2:
            continue
        advice = "it means no beta at all; give step_size=beta with beta in (0, 1]"
        if np.isfinite(value) and value >= 2:
            same = "" if value == 2 else f", as delta = {4 / value:g} does"
            advice = f"it means {_meaning(value)}{same}; give that"
        raise ValueError(f"delta must lie in (0, 2), but is {value:g}; {advice}.")


def _entries(name: str, value: ArrayLike) -> np.ndarray:
    """Return what can be looked at of a number or an array of numbers: nothing of a traced one."""
    check_real(name, value)
    if np.size(value) == 0:
        raise ValueError(f"{name} is empty; give a number.")
    return np.ravel(np.asarray(value, np.float64)) if is_concrete(value) else np.empty(0)


def _meaning(delta: float) -> str:
    return f"step_size beta = {np.sqrt(8 * delta) / (2 + delta):.6g}"
