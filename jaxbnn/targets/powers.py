"""Log densities to a power, as tempered posteriors have them."""

import jax.numpy as jnp
from jaxtyping import Array, ArrayLike

from jaxbnn.numerics import is_concrete


def powered(power: ArrayLike | None, value: Array) -> Array:
    """Return a log density to a power; None stands for 1."""
    return value if power is None else jnp.asarray(power, value.dtype) * value


def powered_likelihood(power: ArrayLike | None, value: Array) -> Array:
    """Return a log likelihood to a power; to the power 0 it is 0 where it is -inf, too.

    Where 0 * -inf was NaN, the prior's rung of a ladder never went where the likelihood is zero.

    Examples
    --------
    >>> log_likelihood = jnp.array([-jnp.inf, -2.0])
    >>> [powered_likelihood(power, log_likelihood).tolist() for power in (0.0, 0.5)]
    [[0.0, 0.0], [-inf, -1.0]]
    """
    if power is None:
        return value
    if is_concrete(power):
        return powered(power, value) if power != 0 else jnp.zeros_like(value)
    return jnp.where(jnp.asarray(power) == 0, 0, powered(power, value))
