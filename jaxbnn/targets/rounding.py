"""Warnings of targets so large beside what varies in them that their floats round it."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import ArrayLike, Shaped

from jaxbnn.numerics import is_concrete
from jaxbnn.numerics.data import coarse_columns, spacing
from jaxbnn.numerics.warn import warn

# Nats by which an error of the log density hardly changes what is accepted.
_BEARABLE = 0.1


def warn_of_rounded_targets(y: Shaped[ArrayLike, "..."], noise_scale: ArrayLike | None) -> None:
    """Warn where targets are so many spacings of their floats away from 0 that sampling is wrong.

    A residual is off by about a quarter of eps |y|, and its term by as much over the noise scale;
    these errors add up at random. Of noise that is not known, None, nothing is said unless the
    spacing is more than a thousandth of the targets' standard deviation: noise of a hundredth of it
    is then off by some percent.

    Examples
    --------
    >>> warn_of_rounded_targets(np.array([1.0, 2.0]), None)
    """
    if not is_concrete((y, noise_scale)):
        return
    values = np.asarray(y)
    held = values.dtype if jnp.issubdtype(values.dtype, jnp.floating) else np.dtype(float)
    dtype = jax.dtypes.canonicalize_dtype(held)
    if noise_scale is None:
        _warn_of_coarse(values, dtype)
        return
    with np.errstate(over="ignore"):
        whole = np.linalg.norm(np.asarray(y, float) / np.asarray(noise_scale, float))
    nats = float(jnp.finfo(dtype).eps) / 8 * whole
    if nats > _BEARABLE:
        warn(
            f"targets up to {np.max(np.abs(np.asarray(y, float))):.3g} with noise of scale "
            f"{np.min(np.asarray(noise_scale)):.3g} are too much for {dtype}: rounding moves "
            f"differences of the log likelihood by about {nats:.2g} nats; subtract the targets' "
            "mean, or give x and y as float64 with jax_enable_x64."
        )


def as_computed(y: Shaped[ArrayLike, "..."], dtype: Any) -> Shaped[ArrayLike, "..."]:
    """Return targets in the type of the outputs, if it is narrower than that which JAX holds.

    Otherwise they are what was given.

    Examples
    --------
    >>> as_computed(np.array([1.0, 2.0]), np.dtype(np.float32)).dtype.name
    'float64'
    """
    given = y.dtype if hasattr(y, "dtype") else np.asarray(y).dtype
    held = jax.dtypes.canonicalize_dtype(given)
    if not jnp.issubdtype(held, jnp.floating) or jnp.finfo(held).bits <= jnp.finfo(dtype).bits:
        return y
    return jnp.asarray(y).astype(dtype)


def _warn_of_coarse(y: np.ndarray, dtype: np.dtype) -> None:
    coarse = coarse_columns(y, dtype)
    if not coarse.any():
        return
    column = y.reshape(len(y), -1)[:, int(np.argmax(coarse))].astype(float)
    size = np.max(np.abs(column))
    warn(
        f"targets up to {size:.3g} that vary by a standard deviation of {np.std(column):.3g} are "
        f"too much for {dtype}, which steps by {spacing(size, dtype):.2g} there: rounding hides "
        "what noise they have; subtract the targets' mean, or give x and y as float64 with "
        "jax_enable_x64."
    )
