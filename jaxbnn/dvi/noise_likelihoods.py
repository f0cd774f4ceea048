"""Likelihoods that only this reading adds: noise variances from the network."""

import dataclasses
import math

import jax
import jax.numpy as jnp
import numpyro.distributions as dist
from jaxtyping import Array, ArrayLike, Float

from jaxbnn.targets import NoiseFromOutputs
from jaxbnn.targets.gaussian_noise import check_floor
from jaxbnn.targets.likelihoods import Outputs, Targets, Terms, lay_out, per_datum


@dataclasses.dataclass(frozen=True)
class SoftplusGaussian(NoiseFromOutputs):
    """Gaussian noise from the network: outputs (n, 2k) are k means, then k values l.

    The noise variances are softplus(l) where `HeteroscedasticGaussian` has exp(l); the
    "softplus" rows of table 3.

    Source: Wu et al., table 3.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> outputs = jnp.array([[1.0, 0.0]])
    >>> round(float(SoftplusGaussian().log_prob(outputs, jnp.array([[1.0]]))[0]), 4)
    -0.7357
    """

    def variance(self, raw: Float[Array, "..."]) -> Float[Array, "..."]:
        """Return softplus(l)."""
        return jax.nn.softplus(raw)


@dataclasses.dataclass(frozen=True)
class FlooredGaussian(NoiseFromOutputs):
    """Gaussian noise from the network, with a floor: outputs (n, 2k) are k means, then k values l.

    The noise variances are exp(l) + floor^2. For targets without noise, a simulator's, say: without
    a floor their ELBO rises for as long as l may fall.

    Parameters
    ----------
    floor
        The least standard deviation, a positive number, in the units of y: s / sqrt(12) is that of
        what lies between targets on a grid of steps s. A leaf; may be traced.

    Raises
    ------
    ValueError
        If the floor is not one positive number.

    Examples
    --------
    >>> outputs = jnp.array([[1.0, -100.0]])
    >>> round(float(FlooredGaussian(1.0).log_prob(outputs, jnp.array([[1.0]]))[0]), 4)
    -0.9189
    """

    floor: ArrayLike

    def __post_init__(self) -> None:
        """Check the floor."""
        check_floor(self.floor)

    def log_variance(self, raw: Float[Array, "..."]) -> Float[Array, "..."]:
        """Return log(exp(l) + floor^2), of any l and floor."""
        return jnp.logaddexp(raw, 2 * jnp.log(jnp.asarray(self.floor, raw.dtype)))

    def variance(self, raw: Float[Array, "..."]) -> Float[Array, "..."]:
        """Return exp(l) + floor^2."""
        return jnp.exp(self.log_variance(raw))

    def log_prob(self, outputs: Outputs, y: Targets) -> Terms:
        """Return one log-likelihood term a datum."""
        mean, raw = (lay_out(half, y.ndim) for half in jnp.split(outputs, 2, axis=-1))
        log_variance = self.log_variance(raw)
        # The quotient is squared: the square of a small floor underflows in float32.
        squares = jnp.square((y.astype(mean.dtype) - mean) * jnp.exp(-0.5 * log_variance))
        return -0.5 * per_datum(squares + log_variance + math.log(2 * math.pi))

    def predictive(self, outputs: Outputs, rank: int) -> dist.Distribution:
        """Return N(means, exp(l) + floor^2)."""
        mean, raw = (lay_out(half, rank) for half in jnp.split(outputs, 2, axis=-1))
        return dist.Normal(mean, jnp.exp(0.5 * self.log_variance(raw))).to_event(rank - 1)
