"""The matrix product at full precision."""

import jax.numpy as jnp
from jaxtyping import Array, Float


def product(a: Float[Array, "..."], b: Float[Array, "..."]) -> Array:
    """Return a @ b in the precision of its arguments.

    By default a recent GPU multiplies float32 in TF32, with 10 bits of mantissa, and a TPU in
    bfloat16: too coarse for Gram matrices, which are factored afterwards, and for log densities,
    whose small differences decide what is accepted.

    Examples
    --------
    >>> product(jnp.ones((2, 3)), jnp.ones((3, 1))).tolist()
    [[3.0], [3.0]]
    """
    return jnp.matmul(a, b, precision="highest")
