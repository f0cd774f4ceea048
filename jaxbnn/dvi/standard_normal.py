"""Moments of step and ramp functions of one standardised Gaussian, z ~ N(mu, 1).

All of them rest on the excess hazard D(t) = phi(t) / Phi(-t) - t of `jaxbnn.numerics`: with
t = |mu| the tail is Phi(-t) = phi(t) / (t + D), and nothing that must be positive is a difference
of large numbers, so that in float32 E[h] >= 0 and Var h >= 0 hold at any mu.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxbnn.numerics.tails import excess_hazard, normal_density

Values = Float[Array, "..."]


@jax.custom_jvp
def normal_cdf(mu: Values) -> Values:
    """Return Phi(mu), which is also E[heaviside(z)], to full relative precision in both tails.

    Examples
    --------
    >>> float(normal_cdf(jnp.array(0.0)))
    0.5
    """
    tail, _ = _tail(mu)
    return jnp.where(mu > 0, 1 - tail, tail)


@normal_cdf.defjvp
def _normal_cdf_jvp(primals, tangents):
    (mu,), (d_mu,) = primals, tangents
    return normal_cdf(mu), normal_density(mu) * d_mu


@jax.custom_jvp
def relu_moments(mu: Values) -> tuple[Values, Values]:
    """Return E[relu(z)] = SR(mu) = phi + mu Phi and Var[relu(z)] = Phi + mu SR - SR^2.

    With t = |mu| and P = Phi(-t): SR = max(mu, 0) + P D, and the variance is
    q = P [(1 - t D) - P D^2] for mu < 0, 1 - 2 P + q for mu > 0. Derivatives: Phi, 2 SR Phi(-mu).

    Source: Wu et al., appendix A, and erratum C1.

    Examples
    --------
    >>> mean, variance = relu_moments(jnp.array([-30.0, 0.0, 30.0]))
    >>> [round(float(v), 4) for v in (*mean, *variance)]
    [0.0, 0.3989, 30.0, 0.0, 0.3408, 1.0]
    """
    tail, excess = _tail(mu)
    mean = jnp.maximum(mu, 0) + tail * excess
    # Far out 1 - t D ~ 2 / t^2 is lost to rounding, but the tail in front of it is long gone.
    lower = tail * jnp.maximum((1 - jnp.abs(mu) * excess) - tail * jnp.square(excess), 0)
    return mean, jnp.where(mu > 0, 1 - 2 * tail + lower, lower)


@relu_moments.defjvp
def _relu_moments_jvp(primals, tangents):
    (mu,), (d_mu,) = primals, tangents
    mean, variance = relu_moments(mu)
    return (mean, variance), (normal_cdf(mu) * d_mu, 2 * mean * normal_cdf(-mu) * d_mu)


def _tail(mu: Values) -> tuple[Values, Values]:
    """Return Phi(-|mu|) and D(|mu|)."""
    t = jnp.abs(mu)
    excess = excess_hazard(t)
    return normal_density(t) / (t + excess), excess
