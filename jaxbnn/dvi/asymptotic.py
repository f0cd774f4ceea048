"""The paper's approximation of the same two integrals as in `pairs`: a Gaussian in (mu1, mu2).

Matched to value and curvature at mu = 0, it is an expansion for small correlations: its largest
errors are 1.3e-5 (relu) and 1.4e-4 (heaviside) at |rho| = 0.3, 0.01 and 0.07 at 0.99.
"""

import math

import jax.numpy as jnp
from jaxtyping import Array, Float

Values = Float[Array, "*shape"]


def heaviside_covariance_asymptotic(mu1: Values, mu2: Values, rho: Values) -> Values:
    """Return asin(rho) / (2 pi) exp(-b (mu1^2 + mu2^2) + c mu1 mu2), the approximation of RH.

    b = rho / (2 rb asin rho), c = (1 - rb) / (rb asin rho), rb = sqrt(1 - rho^2).

    Source: Wu et al., table 1, read as in erratum C1: the sign of rho
    stays outside the logarithm.

    Examples
    --------
    >>> zero, rho = jnp.zeros(1), jnp.array([-0.5])
    >>> round(float(heaviside_covariance_asymptotic(zero, zero, rho)[0]), 6)
    -0.083333
    """
    rest = jnp.sqrt((1 - rho) * (1 + rho))
    ratio, _ = _arcsine(rho)
    b = 1 / (2 * rest * ratio)
    c = rho / ((1 + rest) * rest * ratio)
    exponent = c * mu1 * mu2 - b * (jnp.square(mu1) + jnp.square(mu2))
    return rho * ratio / (2 * math.pi) * jnp.exp(exponent)


def relu_remainder_asymptotic(mu1: Values, mu2: Values, rho: Values) -> Values:
    """Return rho g / (2 pi) exp(-b (mu1^2 + mu2^2) + c mu1 mu2), the approximation of RR.

    g = asin rho - rho / (1 + rb), b = rho / (2 g (1 + rb)), c = (asin rho - rho) / (rho g).

    Source: Wu et al., table 1, read as in erratum C1: minus in g, rho in front.

    Examples
    --------
    >>> zero, rho = jnp.zeros(1), jnp.array([0.5])
    >>> round(float(relu_remainder_asymptotic(zero, zero, rho)[0]), 6)
    0.020344
    """
    rest = jnp.sqrt((1 - rho) * (1 + rho))
    ratio, excess = _arcsine(rho)
    g = ratio - 1 / (1 + rest)  # g / rho, which goes to 1/2
    b = 1 / (2 * g * (1 + rest))
    c = excess / g
    exponent = c * mu1 * mu2 - b * (jnp.square(mu1) + jnp.square(mu2))
    return jnp.square(rho) * g / (2 * math.pi) * jnp.exp(exponent)


def _arcsine(rho: Values) -> tuple[Values, Values]:
    """Return asin(rho) / rho and (asin(rho) / rho - 1) / rho, by series near zero."""
    small = jnp.abs(rho) < 0.1
    square = jnp.square(jnp.where(small, rho, 0))
    by_rho = 1 / 6 + square * (3 / 40 + square * (5 / 112 + square * (35 / 1152 + square / 44.7)))
    series = jnp.where(small, rho, 0) * by_rho
    away = jnp.where(small, 0.5, rho)
    ratio = jnp.where(small, 1 + square * by_rho, jnp.arcsin(away) / away)
    return ratio, jnp.where(small, series, (jnp.arcsin(away) / away - 1) / away)
