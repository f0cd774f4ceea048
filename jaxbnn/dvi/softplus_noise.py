"""A likelihood that only this reading adds: noise variances from the network by a softplus."""

import dataclasses

import jax
from jaxtyping import Array, Float

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
