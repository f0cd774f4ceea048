"""Log densities to a power, as tempered posteriors have them."""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, PyTree

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
        # By NumPy: within `jit` a comparison of JAX's is traced, of a number that is known, too.
        return powered(power, value) if np.asarray(power) != 0 else jnp.zeros_like(value)
    return jnp.where(jnp.asarray(power) == 0, 0, powered(power, value))


def still_at_zero(power: ArrayLike | None, params: PyTree) -> PyTree:
    """Return parameters through which no derivative goes where a traced power is 0.

    A likelihood that overflows has infinite derivatives, which 0 times them would make NaN: the
    prior's rung, with a kernel of gradients, never went there.

    Examples
    --------
    >>> likelihood = lambda t, x: powered_likelihood(t, -jnp.exp(still_at_zero(t, x)))
    >>> [float(jax.jit(jax.grad(likelihood, 1))(t, 1000.0)) for t in (0.0, 1.0)]
    [0.0, -inf]
    """
    if power is None or is_concrete(power):
        return params
    is_zero = jnp.asarray(power) == 0
    return jax.tree.map(lambda leaf: jnp.where(is_zero, jax.lax.stop_gradient(leaf), leaf), params)
