"""Data as they are given, and as the floats that JAX holds have them."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Bool, PyTree, Shaped

from jaxbnn.numerics.arrays import as_array
from jaxbnn.numerics.checks import check_finite, check_real, is_concrete
from jaxbnn.numerics.warn import warn

# Spacing of floats beside a standard deviation, from which on what varies is told to be rounded.
_COARSE = 1e-3
# What varies less beside its size, if at all, does so by the rounding of who computed it.
_CONSTANT = 1e-12


def finite_array(name: str, values: Shaped[ArrayLike, "..."]) -> Shaped[Array, "..."]:
    """Return data by `as_array`; raise where a number is not finite, as given or as JAX holds it.

    Parameters
    ----------
    name
        What the data are called in the caller's signature.
    values
        Data. Traced values are not looked at.

    Raises
    ------
    ValueError
        A NaN or an infinity, or a number beyond the floats that JAX holds.
    TypeError
        What are no real numbers.

    Examples
    --------
    >>> finite_array("x", np.array([1.0, 1e39]))
    Traceback (most recent call last):
    ValueError: x, as float32, holds inf at index (1,); give it in smaller units, or ...
    """
    check_real(name, values)
    check_finite(name, values)
    with np.errstate(over="ignore"):
        kept = as_array(values)
    if is_concrete(values) and jnp.issubdtype(kept.dtype, jnp.floating):
        given = values.dtype if hasattr(values, "dtype") else np.asarray(values).dtype
        if given != kept.dtype:
            advice = "give it in smaller units, or as float64 with jax_enable_x64"
            check_finite(f"{name}, as {kept.dtype},", kept, advice)
    return kept


def coarse_columns(values: Shaped[ArrayLike, "n ..."], dtype: Any) -> Bool[np.ndarray, "..."]:
    """Return which columns vary so little beside their size that floats of a dtype round them.

    Those where the spacing of floats at the largest number is more than a thousandth of the
    standard deviation, but no column that is constant.

    Examples
    --------
    >>> seconds = 1.6e9 + np.arange(100.0)
    >>> coarse_columns(np.stack([seconds, seconds - 1.6e9], axis=1), np.float32).tolist()
    [True, False]
    """
    values = np.asarray(values)
    if values.size == 0:
        return np.zeros(values.shape[1:], bool)
    columns = values.reshape(len(values), -1)
    low, high = columns.min(axis=0).astype(float), columns.max(axis=0).astype(float)
    size = np.maximum(np.abs(low), np.abs(high))
    spacing = float(jnp.finfo(dtype).eps) * size
    with np.errstate(over="ignore", invalid="ignore"):
        # No deviation is below its range over (2 n)^(1/2): most data need no second look.
        least = (high - low) / (2 * len(values)) ** 0.5
        coarse = (spacing > _COARSE * least) & (high - low > _CONSTANT * size)
        if coarse.any():
            sd = np.std(columns[:, coarse].astype(float), axis=0)
            coarse[coarse] = spacing[coarse] > _COARSE * sd
    return coarse.reshape(values.shape[1:])


def warn_of_rounded_inputs(x: Shaped[ArrayLike, "..."], dtype: np.dtype, name: str = "x") -> None:
    """Warn where inputs were given in more precision than floats of a dtype have, and need it.

    `name` is what they are called in the caller's signature.

    Examples
    --------
    >>> warn_of_rounded_inputs(np.array([[1.0], [2.0]]), np.dtype(np.float32))
    """
    if not is_concrete(x):
        return
    given = x.dtype if hasattr(x, "dtype") else np.asarray(x).dtype
    if given.kind not in "iuf" or np.can_cast(given, dtype):
        return
    values = np.asarray(x)
    coarse = coarse_columns(values, dtype)
    if not coarse.any():
        return
    place = tuple(int(i) for i in np.argwhere(coarse)[0])
    column = values.reshape(len(values), -1)[:, int(np.argmax(coarse))].astype(float)
    size = np.max(np.abs(column))
    named = f"{name}[:, {', '.join(map(str, place))}]" if place else name
    warn(
        f"{named}, of numbers up to {size:.3g} with standard deviation {np.std(column):.3g}, is "
        f"rounded to {dtype}, which steps by {spacing(size, dtype):.2g} there, so that "
        f"{len(np.unique(column.astype(dtype))):,} of {len(np.unique(column)):,} inputs are told "
        "apart; subtract the mean, or use float64 with jax_enable_x64."
    )


def warn_of_rounded_data(data: PyTree, name: str = "data") -> None:
    """Warn where leaves of floats are wider than JAX's, which round what varies in them.

    `name` is what they are called in the caller's signature; the path of a leaf is put after it.

    Examples
    --------
    >>> warn_of_rounded_data((np.array([[1.0], [2.0]]), np.array([1.0, 2.0])))
    """
    for path, leaf in jax.tree_util.tree_leaves_with_path(data):
        if isinstance(leaf, np.ndarray) and leaf.dtype.kind == "f" and leaf.ndim:
            warn_of_rounded_inputs(leaf, held(leaf), name + jax.tree_util.keystr(path))


def held(values: np.ndarray) -> np.dtype:
    """Return the dtype in which JAX holds an array of NumPy's.

    Examples
    --------
    >>> held(np.zeros(2)).name
    'float32'
    """
    return np.dtype(jax.dtypes.canonicalize_dtype(values.dtype))


def as_held(values: Shaped[ArrayLike, "..."]) -> Shaped[ArrayLike, "..."]:
    """Return floats of NumPy's in the dtype in which JAX holds them, all else as it is.

    Examples
    --------
    >>> as_held(np.zeros(2)).dtype.name
    'float32'
    """
    if not isinstance(values, np.ndarray) or values.dtype.kind != "f":
        return values
    return values.astype(held(values))


def spacing(size: float, dtype: np.dtype) -> float:
    """Return the distance of a number of this size to the next one of a dtype."""
    return float(np.spacing(np.asarray(size, dtype)))
