"""The law of the logarithm of a Gamma variable, or of a multiple of it: conjugate in log scales."""

import math
import numbers
from typing import Any

import jax
import jax.numpy as jnp
import numpyro.distributions as dist
from jaxtyping import Array, ArrayLike, Float, PRNGKeyArray
from numpyro.distributions import constraints

from jaxbnn.numerics import check_positive
from jaxbnn.numerics.arguments import short
from jaxbnn.targets.stirling import stirling_rest


class LogGamma(dist.Distribution):
    """The law of u = exponent log(tau), tau ~ Gamma(concentration a, rate b).

    With l = u / exponent = log(tau), the density of u, in which the Jacobian of the logarithm has
    made a of Gamma's a - 1, is

        p(u) = b^a / Gamma(a) exp(a l - b e^l) / |exponent|.

    The prior of `log_precision` (exponent 1) and, with exponent -1/2, of the `log_noise_scale` of
    a noise whose precision is Gamma; both then have conditionals that `prior_precisions` draws.

    Parameters
    ----------
    concentration, rate
        a > 0 and b > 0; the precision has mean a / b. May be traced.
    exponent
        A number, not zero. Static: kernels look at it.

    Raises
    ------
    ValueError
        If the concentration or the rate is not positive, or the exponent is zero or not finite.

    Examples
    --------
    >>> log_scale = LogGamma(2.0, 3.0, exponent=-0.5)
    >>> round(float(log_scale.log_prob(0.0)), 4)  # log(9) - 3 + log(2)
    -0.1096
    """

    arg_constraints = {  # noqa: RUF012 - NumPyro's own form
        "concentration": constraints.positive,
        "rate": constraints.positive,
    }
    support = constraints.real
    reparametrized_params = ["rate"]  # noqa: RUF012
    pytree_aux_fields = ("exponent",)

    def __init__(
        self,
        concentration: ArrayLike = 1.0,
        rate: ArrayLike = 1.0,
        exponent: float = 1.0,
        *,
        validate_args: bool | None = None,
    ):
        check_positive("concentration", concentration)
        check_positive("rate", rate)
        if not (isinstance(exponent, numbers.Real) and math.isfinite(exponent) and exponent != 0):
            raise ValueError(
                f"exponent must be a finite number, not zero, but is {short(exponent)}; "
                "-0.5 makes a scale of a precision."
            )
        self.exponent: float = float(exponent)
        self.concentration, self.rate = dist.util.promote_shapes(concentration, rate)
        shape = jnp.broadcast_shapes(jnp.shape(concentration), jnp.shape(rate))
        super().__init__(batch_shape=shape, validate_args=validate_args)

    def sample(self, key: PRNGKeyArray, sample_shape: tuple[int, ...] = ()) -> Array:
        """Return draws, also where Gamma's own would underflow to zero."""
        shape = sample_shape + self.batch_shape
        a, b = numbers_of(self, jnp.result_type(float))
        return self.exponent * (jax.random.loggamma(key, jnp.broadcast_to(a, shape)) - jnp.log(b))

    def log_prob(self, value: ArrayLike, intermediates: None = None) -> Float[Array, "..."]:
        """Return the log density."""
        value = jnp.asarray(value)
        value = value if jnp.issubdtype(value.dtype, jnp.floating) else value.astype(float)
        a, b = numbers_of(self, value.dtype)
        # From the mode at log(a / b): at large a the terms of the usual formula cancel.
        away = value / self.exponent + jnp.log(b) - jnp.log(a)
        height = jnp.log(a / (2 * math.pi)) / 2 - stirling_rest(a) - math.log(abs(self.exponent))
        return a * (away - jnp.expm1(away)) + height

    @property
    def mean(self) -> Array:
        """Return exponent (digamma(a) - log b)."""
        a, b = numbers_of(self, jnp.result_type(float))
        mean = self.exponent * (jax.scipy.special.digamma(a) - jnp.log(b))
        return jnp.broadcast_to(mean, self.batch_shape)

    @property
    def variance(self) -> Array:
        """Return exponent^2 trigamma(a)."""
        a, _ = numbers_of(self, jnp.result_type(float))
        return jnp.broadcast_to(
            self.exponent**2 * jax.scipy.special.polygamma(1, a), self.batch_shape
        )


def numbers_of(law: Any, dtype: Any) -> tuple[Array, Array]:
    """Return the concentration and the rate of a law, or of the law that it repeats."""
    while isinstance(law, dist.Independent | dist.ExpandedDistribution):
        law = law.base_dist
    return jnp.asarray(law.concentration, dtype), jnp.asarray(law.rate, dtype)
