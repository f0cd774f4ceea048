"""Likelihoods that only this reading adds: noise variances from the network."""

import dataclasses

import jax
import jax.numpy as jnp
from jaxtyping import Array, ArrayLike, Float

from jaxbnn.numerics import check_positive
from jaxbnn.targets import NoiseFromOutputs


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

    The noise variances are exp(l) + floor^2. For targets without noise, those of a simulator, say,
    of which the recorded digits are all that is not known: without a floor their ELBO rises for as
    long as l may fall.

    Parameters
    ----------
    floor
        The least standard deviation, a positive number, in the units of y: targets rounded to
        steps of s have s / sqrt(12). A leaf; may be traced.

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
        check_positive("floor", self.floor)
        if jnp.ndim(self.floor):
            raise ValueError(f"floor must be one number, but has shape {jnp.shape(self.floor)}.")

    def variance(self, raw: Float[Array, "..."]) -> Float[Array, "..."]:
        """Return exp(l) + floor^2."""
        return jnp.exp(raw) + jnp.square(jnp.asarray(self.floor, raw.dtype))
