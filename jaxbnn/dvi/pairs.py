"""What two correlated Gaussians add to the product of their means: exact, smooth, without branches.

Let z1, z2 have means mu1, mu2, variances 1 and correlation rho, and phi2(r) be their density at
the origin if their correlation were r. By Plackett's and Price's theorems

    Cov(H(z1), H(z2))       = int_0^rho phi2(r) dr                                      =: RH
    Cov(relu z1, relu z2)   = rho Phi(mu1) Phi(mu2) + int_0^rho (rho - r) phi2(r) dr    =: ... + RR

(erratum C2, which substitutes r = sin t). Here r = 2 s / (1 + s^2), that is s = tan(t / 2), with s
from 0 to S = rho / (1 + sqrt(1 - rho^2)), which takes out the same singularity at |rho| = 1:

    phi2 dr = (1 / pi) exp(-(1 + s^2)/4 [((mu1 - mu2)/(1 - s))^2 + ((mu1 + mu2)/(1 + s))^2])
              / (1 + s^2) ds,
    rho - r = 2 (S - s)(1 - S s) / ((1 + S^2)(1 + s^2)).

There is no trigonometric function, no difference that cancels, and Gauss-Legendre needs fewer
nodes than in t. Derivatives are closed forms (erratum C2): the derivative of a sum of few nodes is
much less accurate than the sum.
"""

import math
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxbnn.dvi.standard_normal import normal_cdf
from jaxbnn.numerics.arguments import check_word
from jaxbnn.numerics.checks import check_one_number
from jaxbnn.numerics.tails import normal_density

Values = Float[Array, "*shape"]

# Closer to one, float32 cannot tell a correlation from one. It changes covariances of relu by less
# than 1e-6, those of heaviside by up to 2e-4.
MAX_CORRELATION = 1 - 1e-6


@partial(jax.custom_jvp, nondiff_argnums=(3,))
def heaviside_covariance(mu1: Values, mu2: Values, rho: Values, num_nodes: int) -> Values:
    """Return RH = Cov(H(z1), H(z2)) for z of unit variances; see the module.

    Parameters
    ----------
    mu1, mu2, rho
        Means and correlation, of one shape; |rho| <= `MAX_CORRELATION`.
    num_nodes
        Gauss-Legendre nodes; `nodes_for` says how many a tolerance takes.

    Examples
    --------
    >>> zero, rho = jnp.zeros(1), jnp.array([0.5])
    >>> round(float(heaviside_covariance(zero, zero, rho, 8)[0]), 6)  # asin(1/2) / (2 pi)
    0.083333
    """
    end, total = _integrate(mu1, mu2, rho, num_nodes, lambda end, s, x: 1.0)
    return end / math.pi * total


@heaviside_covariance.defjvp
def _heaviside_covariance_jvp(num_nodes, primals, tangents):
    mu1, mu2, rho = primals
    d_mu1, d_mu2, d_rho = tangents
    rest = jnp.sqrt((1 - rho) * (1 + rho))
    by_mu1 = normal_density(mu1) * (normal_cdf((mu2 - rho * mu1) / rest) - normal_cdf(mu2))
    by_mu2 = normal_density(mu2) * (normal_cdf((mu1 - rho * mu2) / rest) - normal_cdf(mu1))
    exponent = jnp.square(mu1 - mu2) / (1 - rho) + jnp.square(mu1 + mu2) / (1 + rho)
    by_rho = jnp.exp(-exponent / 4) / (2 * math.pi * rest)
    tangent = by_mu1 * d_mu1 + by_mu2 * d_mu2 + by_rho * d_rho
    return heaviside_covariance(mu1, mu2, rho, num_nodes), tangent


@partial(jax.custom_jvp, nondiff_argnums=(3,))
def relu_remainder(mu1: Values, mu2: Values, rho: Values, num_nodes: int) -> Values:
    """Return RR = Cov(relu z1, relu z2) - rho Phi(mu1) Phi(mu2), never negative; see the module.

    Parameters
    ----------
    mu1, mu2, rho, num_nodes
        As in `heaviside_covariance`.

    Examples
    --------
    >>> zero, rho = jnp.zeros(1), jnp.array([0.5])
    >>> round(float(relu_remainder(zero, zero, rho, 8)[0]), 6)
    0.020344
    """

    def weight(end, s, x):
        return (1 - x) * (1 - end * s) / (1 + jnp.square(s))

    end, total = _integrate(mu1, mu2, rho, num_nodes, weight)
    return (2 / math.pi) * jnp.square(end) / (1 + jnp.square(end)) * total


@relu_remainder.defjvp
def _relu_remainder_jvp(num_nodes, primals, tangents):
    mu1, mu2, rho = primals
    d_mu1, d_mu2, d_rho = tangents
    rest = jnp.sqrt((1 - rho) * (1 + rho))
    step = heaviside_covariance(mu1, mu2, rho, num_nodes)
    more1 = normal_density(mu2) * (normal_cdf((mu1 - rho * mu2) / rest) - normal_cdf(mu1))
    more2 = normal_density(mu1) * (normal_cdf((mu2 - rho * mu1) / rest) - normal_cdf(mu2))
    by_mu1 = mu2 * step + more1 + rho * more2
    by_mu2 = mu1 * step + more2 + rho * more1
    tangent = by_mu1 * d_mu1 + by_mu2 * d_mu2 + step * d_rho
    return relu_remainder(mu1, mu2, rho, num_nodes), tangent


def nodes_for(
    tolerance: float, *, max_correlation: float = 0.9999, activation: str = "relu"
) -> int:
    """Return the fewest Gauss-Legendre nodes that reach a tolerance in float64.

    Parameters
    ----------
    tolerance
        Largest error of the standardised covariance, for means in [-4, 4].
    max_correlation
        Largest |rho| for which it has to hold.
    activation
        "relu" (also right for leaky_relu and abs, up to their slopes), or "heaviside".

    Raises
    ------
    ValueError
        If no more than 64 nodes reach it, or an argument makes no sense.

    Examples
    --------
    >>> nodes_for(1e-6, max_correlation=0.9), nodes_for(1e-6, max_correlation=0.99)
    (5, 7)
    """
    check_word("activation", activation, ("relu", "heaviside"))
    check_one_number("tolerance", tolerance)
    check_one_number("max_correlation", max_correlation)
    if not (tolerance > 0 and 0 < max_correlation < 1):
        raise ValueError(
            "tolerance must be positive and max_correlation in (0, 1), but they are "
            f"{tolerance:g} and {max_correlation:g}."
        )
    grid = np.linspace(-4, 4, 33)
    mu1, mu2 = (np.concatenate([m.ravel(), grid]) for m in np.meshgrid(grid, grid))
    mu2[-33:] += 0.03  # nearly equal means, where nearly equal variables have a sharp edge
    rho = max_correlation * np.array([[1.0], [-1.0]])
    column = 1 if activation == "relu" else 0
    exact = _both_in_numpy(mu1, mu2, rho, 160)[column]
    for count in range(2, 65):
        if np.abs(_both_in_numpy(mu1, mu2, rho, count)[column] - exact).max() <= tolerance:
            return count
    raise ValueError(
        f"no 64 nodes reach tolerance {tolerance:g} at correlation {max_correlation:g}; allow more."
    )


def _integrate(mu1, mu2, rho, num_nodes, weight) -> tuple[Values, Values]:
    """Return S and sum_i w_i e(s_i) weight / (1 + s_i^2), at s_i = S x_i."""
    nodes, weights = (jnp.asarray(v, mu1.dtype) for v in _unit_legendre(num_nodes))
    # Not 1 - rho^2: near |rho| = 1 the square has rounded away what is left of it.
    end = rho / (1 + jnp.sqrt((1 - rho) * (1 + rho)))
    difference, total = jnp.square(mu1 - mu2), jnp.square(mu1 + mu2)

    def add(accumulated, node):
        x, w = node
        s = end * x
        # 1 - s is not zero: |s| < S < 1 as |rho| <= MAX_CORRELATION. Two terms, of which one is
        # large where the other is small, rather than the quadratic form, which cancels.
        norm = 1 + jnp.square(s)
        exponent = difference / jnp.square(1 - s) + total / jnp.square(1 + s)
        term = jnp.exp(-norm / 4 * exponent) / norm * weight(end, s, x)
        return accumulated + w * term, None

    # A loop keeps the memory at one array; unrolled by four it runs from cache.
    value, _ = jax.lax.scan(add, jnp.zeros_like(rho), (nodes, weights), unroll=min(4, num_nodes))
    return end, value


def _both_in_numpy(mu1, mu2, rho, num_nodes) -> tuple[np.ndarray, np.ndarray]:
    end = rho / (1 + np.sqrt((1 - rho) * (1 + rho)))
    step, ramp = np.zeros((2, len(mu1))), np.zeros((2, len(mu1)))
    for x, w in zip(*_unit_legendre(num_nodes), strict=True):
        s = end * x
        norm = 1 + s**2
        exponent = ((mu1 - mu2) / (1 - s)) ** 2 + ((mu1 + mu2) / (1 + s)) ** 2
        term = w * np.exp(-norm / 4 * exponent) / norm
        step += term
        ramp += term * (1 - x) * (1 - end * s) / norm
    return end / math.pi * step, 2 / math.pi * end**2 / (1 + end**2) * ramp


def _unit_legendre(num_nodes: int) -> tuple[np.ndarray, np.ndarray]:
    nodes, weights = np.polynomial.legendre.leggauss(num_nodes)
    return (nodes + 1) / 2, weights / 2
