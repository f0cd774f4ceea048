"""Moments of any elementwise function of Gaussians, by Gauss-Hermite and the Hermite expansion.

With the normalised Hermite polynomials He_k and z = m + s u, u ~ N(0, 1), let

    a_k = E[f(m + s u) He_k(u)]

by a rule of K nodes, k < K. Then E f = a_0, Var f = sum_{k>0} a_k^2 (which is the rule's own
variance, by discrete orthogonality), E f' = a_1 / s, and by Mehler's formula

    Cov(f(z_i), f(z_j)) = sum_{k>0} rho_ij^k a_ik a_jk.

The last replaces a tensor rule: it needs K evaluations of f a unit in place of K^2 a pair, and is a
sum of positive semi-definite matrices. Kinks make it converge slowly: for them there are exact
moments.

As sum_k w_k He_k(u_k) = 0, the coefficients are made of f(z) - f(m). Of a small s that difference
has no digits left, and two terms of Taylor's series stand in its place.
"""

import math

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

# From 372 nodes on the weights overflow in float64.
MOST_NODES = 300


def hermite_coefficients(
    function, mean: Float[Array, "n d"], scale: Float[Array, "n d"], num_nodes: int
) -> Float[Array, "n d k"]:
    """Return a_0, ..., a_{K-1} of each unit, K = num_nodes.

    Parameters
    ----------
    function
        Elementwise, from an array to an array of the same shape.
    mean, scale
        Means and standard deviations of the units.
    num_nodes
        K, at most 300.

    Examples
    --------
    >>> a = hermite_coefficients(jnp.square, jnp.ones((1, 1)), jnp.full((1, 1), 2.0), 4)
    >>> [round(float(v), 4) + 0.0 for v in a[0, 0]]  # (1 + 2 u)^2 = 5 + 4 u + 4 (u^2 - 1)
    [5.0, 4.0, 5.6569, 0.0]
    """
    nodes, weights = gauss_hermite(num_nodes)
    step = scale[..., None] * jnp.asarray(nodes, mean.dtype)[None, None]
    to_coefficients = weights[:, None] * _normalised_hermite(nodes)
    at_mean, rise = _rise(function, mean, step, scale)
    found = jnp.matmul(
        rise, jnp.asarray(to_coefficients, mean.dtype), precision=jax.lax.Precision.HIGHEST
    )
    return found.at[..., 0].add(at_mean)


def _rise(
    function, mean: Float[Array, "n d"], step: Float[Array, "n d k"], scale: Float[Array, "n d"]
) -> tuple[Float[Array, "n d"], Float[Array, "n d k"]]:
    """Return f(m) and f(m + step) - f(m), of steps that a float does not see beside m too."""

    def of(z: Array) -> Array:
        return function(z).astype(z.dtype)

    slope_of = jax.grad(lambda z: jnp.sum(of(z)))
    bend_of = jax.grad(lambda z: jnp.sum(slope_of(z)))
    at_mean, slope, bend = (
        values[..., None] for values in (of(mean), slope_of(mean), bend_of(mean))
    )
    rise = of(mean[..., None] + step) - at_mean
    # Where the error of Taylor's series, step^2, is less than that of the difference, eps / step.
    # A function that steps or turns within the step has a difference with digits, and keeps it.
    small = math.cbrt(jnp.finfo(mean.dtype).eps)
    size = jnp.abs(at_mean) + jnp.abs(mean[..., None] * slope)
    is_lost = (scale[..., None] < small) & (jnp.abs(rise) <= small * size)
    rise = jnp.where(is_lost, step * (slope + 0.5 * step * bend), rise)
    return at_mean[..., 0], rise


def mehler_covariance(
    coefficients: Float[Array, "n d k"], rho: Float[Array, "n d d"]
) -> Float[Array, "n d d"]:
    """Return sum_{k>0} rho^k a_k a_k^T.

    Examples
    --------
    >>> a = jnp.array([[[5.0, 4.0, 1.0], [5.0, 4.0, 1.0]]])
    >>> mehler_covariance(a, jnp.full((1, 2, 2), 0.5))[0, 0].tolist()  # 16 / 2 + 1 / 4
    [8.25, 8.25]
    """

    def add(total, a):
        return rho * (total + a[:, :, None] * a[:, None, :]), None

    # Recomputed in the backward pass: K matrices a datum would be kept otherwise.
    orders = jnp.moveaxis(coefficients[..., 1:], -1, 0)[::-1]
    total, _ = jax.lax.scan(jax.checkpoint(add), jnp.zeros_like(rho), orders)
    return total


def gauss_hermite(num_nodes: int) -> tuple[np.ndarray, np.ndarray]:
    """Return nodes and weights of the expectation over N(0, 1).

    Examples
    --------
    >>> nodes, weights = gauss_hermite(3)
    >>> float(np.sum(weights * nodes**4).round(6))
    3.0
    """
    nodes, weights = np.polynomial.hermite_e.hermegauss(num_nodes)
    return nodes, weights / math.sqrt(2 * math.pi)


def _normalised_hermite(nodes: np.ndarray) -> np.ndarray:
    """Return He_k(node) / sqrt(k!), rows for nodes, columns for k."""
    count = len(nodes)
    table = np.ones((count, count))
    for k in range(1, count):
        before = table[:, k - 2] * math.sqrt(k - 1) if k > 1 else 0.0
        table[:, k] = (nodes * table[:, k - 1] - before) / math.sqrt(k)
    return table
