"""Arrays for JAX: whole numbers that its integers do not hold, and what lies in files."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Bool, PyTree, Shaped

from jaxbnn.numerics.checks import is_concrete


def as_array(values: Shaped[ArrayLike, "..."]) -> Shaped[Array, "..."]:
    """Return `jnp.asarray(values)`, but whole numbers that JAX's integers do not hold as floats.

    Without jax_enable_x64 they have 32 bits, and of larger ones JAX keeps the last 32 bits without
    a word. Traced values, and arrays of JAX, are what they are.

    Examples
    --------
    >>> large = np.array([3_000_000_000])
    >>> jnp.asarray(large).tolist(), as_array(large).tolist()
    ([-1294967296], [3000000000.0])
    """
    return jnp.asarray(without_wrapping(values))


def without_wrapping(values: Any) -> Any:
    """Return values as they are, but whole numbers that JAX's integers do not hold as floats.

    Examples
    --------
    >>> without_wrapping(np.array([1])).dtype.kind, without_wrapping([2**32]).dtype.kind
    ('i', 'f')
    """
    if isinstance(values, jax.Array) or not is_concrete(values):
        return values
    given = np.asarray(values)
    is_whole = given.dtype.kind in "iu"
    return given.astype(float) if is_whole and _beyond(given).any() else values


def float_dtype(dtype: Any) -> Any:
    """Return the floating-point type in which numbers of type `dtype` are computed with.

    It is their own if it has 32 bits or more, else float32; of whole numbers JAX's default.

    Examples
    --------
    >>> [jnp.dtype(float_dtype(name)).name for name in ("float32", "bfloat16", "uint8")]
    ['float32', 'float32', 'float32']
    """
    if not jnp.issubdtype(dtype, jnp.floating):
        return jnp.zeros(()).dtype
    return jnp.float32 if jnp.finfo(dtype).bits < 32 else dtype


def widened(values: Shaped[ArrayLike, "..."]) -> Shaped[Array, "..."]:
    """Return an array in the type in which its numbers are computed with, see `float_dtype`.

    Examples
    --------
    >>> widened(jnp.array([1, 2])).dtype.name, widened(jnp.ones(2, jnp.float16)).dtype.name
    ('float32', 'float32')
    """
    array = as_array(values)
    return array.astype(float_dtype(array.dtype))


def widest_float(tree: PyTree) -> Any:
    """Return the widest floating-point type of a PyTree's arrays; JAX's default if there is none.

    Examples
    --------
    >>> widest_float({"a": jnp.array(True), "b": jnp.ones(2, jnp.float16)}).name
    'float16'
    """
    dtypes = [jnp.result_type(leaf) for leaf in jax.tree.leaves(tree)]
    floating = [dtype for dtype in dtypes if jnp.issubdtype(dtype, jnp.floating)]
    with jax.numpy_dtype_promotion("standard"):
        return jnp.result_type(*floating) if floating else jnp.zeros(()).dtype


def check_held(name: str, tree: PyTree) -> None:
    """Raise where numbers lie beyond those that JAX holds: it would wrap them, or make them inf.

    Parameters
    ----------
    name
        What they are called in the caller's signature.
    tree
        Anything; what does not come from NumPy, or is traced, is not looked at.

    Raises
    ------
    ValueError
        Whole numbers beyond JAX's integers, or finite ones beyond its floats.

    Examples
    --------
    >>> check_held("data", {"count": np.array([3_000_000_000])})
    Traceback (most recent call last):
    ValueError: data['count'] holds 3e+09, which int32 does not; ...
    """
    for path, leaf in jax.tree_util.tree_leaves_with_path(tree):
        if not isinstance(leaf, np.ndarray | np.generic) or leaf.dtype.kind not in "iuf":
            continue
        values = np.asarray(leaf)
        beyond = _beyond(values)
        if beyond.any():
            held = jax.dtypes.canonicalize_dtype(leaf.dtype)
            raise ValueError(
                f"{name}{jax.tree_util.keystr(path)} holds {values[beyond][0]:g}, which "
                f"{held} does not; give smaller numbers or floats, or set jax_enable_x64."
            )


def _beyond(values: Shaped[np.ndarray, "..."]) -> Bool[np.ndarray, "..."]:
    """Return which numbers, whole or floats, lie beyond those that JAX holds of their dtype."""
    held = jax.dtypes.canonicalize_dtype(values.dtype)
    if held == values.dtype:
        return np.zeros(values.shape, bool)
    limits: Any = np.finfo(held) if values.dtype.kind == "f" else np.iinfo(held)
    return np.isfinite(values) & ((values < limits.min) | (values > limits.max))


def in_memory(tree: PyTree) -> PyTree:
    """Return the tree with every leaf in memory; arrays of JAX and NumPy are left as they are.

    Compiled functions refuse objects that only can be converted to arrays, such as those of
    `jaxbnn.sampling.open_draws`.

    Examples
    --------
    >>> in_memory({"a": [1.0, 2.0]})["a"][0].shape
    ()
    """
    is_read = (jax.Array, np.ndarray)
    return jax.tree.map(lambda leaf: leaf if isinstance(leaf, is_read) else np.asarray(leaf), tree)
