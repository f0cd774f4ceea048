"""Stirling's formula for log Gamma, and what it leaves."""

import jax.numpy as jnp
from jaxtyping import Array, Float

# In powers x^-1, x^-3, ...: to the last digit of float32 from 3 on, of float64 from 10.
_STIRLING = (1 / 12, -1 / 360, 1 / 1260, -1 / 1680, 1 / 1188, -691 / 360360, 1 / 156)


def stirling_rest(x: Float[Array, "..."]) -> Float[Array, "..."]:
    """Return what Stirling's formula leaves of log Gamma(x), x > 0.

    That is log Gamma(x) - (x - 1/2) log(x) + x - log(2 pi) / 2, by its series, and for small x from
    that of x + 1, x + 2, ...
    """
    num_steps = 3 if jnp.finfo(x.dtype).eps > 1e-10 else 10
    is_far = x > num_steps
    far = jnp.where(is_far, x, x + num_steps)
    series = jnp.polyval(jnp.asarray(_STIRLING[::-1], x.dtype), 1 / far**2) / far
    near = jnp.where(is_far, 1, x)
    steps = sum((near + k + 0.5) * jnp.log1p(1 / (near + k)) - 1 for k in range(num_steps))
    return series + jnp.where(is_far, 0, steps)
