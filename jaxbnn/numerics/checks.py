"""Validation of arguments: one sentence that says what was wrong and what to do.

Values are checked only where they are concrete; inside `jit` or `vmap` a traced
hyper-parameter passes unchecked, as it must.
"""

import operator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import ArrayLike, PyTree

from jaxbnn.numerics.arguments import short


def is_concrete(value: PyTree) -> bool:
    """Whether no leaf of `value` is a tracer, so that its numbers can be looked at.

    Parameters
    ----------
    value
        Any PyTree.

    Examples
    --------
    >>> is_concrete({"w": jnp.ones(2)})
    True
    >>> jax.eval_shape(lambda w: print(is_concrete(w)), 1.0)
    False
    """
    return not any(isinstance(leaf, jax.core.Tracer) for leaf in jax.tree.leaves(value))


def check_outside(name: str, why: str, *trees: PyTree) -> None:
    """Refuse to run inside a traced function what looks at numbers on the host.

    Parameters
    ----------
    name
        Of the function that is called.
    why
        Why not, and what to do.
    trees
        Its arguments.

    Raises
    ------
    ValueError
        Inside `jit`, `vmap` or `grad`.

    Examples
    --------
    >>> def call(x):
    ...     try:
    ...         check_outside("sample", "it stores draws; call it outside", x)
    ...     except ValueError as error:
    ...         print(error)
    >>> call(1.0)
    >>> jax.eval_shape(call, 1.0)
    sample cannot be called inside jax.jit, jax.vmap or jax.grad, since it stores draws; ...
    """
    # Within `jit` even an operation on constants is traced.
    if not is_concrete((jax.lax.add(1, 1), trees)):
        raise ValueError(
            f"{name} cannot be called inside jax.jit, jax.vmap or jax.grad, since {why}."
        )


def broadcasts_to(given: tuple[int, ...], shape: tuple[int, ...]) -> bool:
    """Whether an array of one shape broadcasts to the other as it is, without enlarging it.

    Examples
    --------
    >>> broadcasts_to((3,), (2, 3)), broadcasts_to((2, 1), (3,))
    (True, False)
    """
    fits = all(a in (1, b) for a, b in zip(given[::-1], shape[::-1], strict=False))
    return len(given) <= len(shape) and fits


def check_one_number(name: str, value: Any, advice: str = "give a single number") -> None:
    """Raise unless `value` is a single real number; a traced one may be any number.

    Raises
    ------
    ValueError
        An array of several numbers, or of one.
    TypeError
        What is no real number.

    Examples
    --------
    >>> check_one_number("variance", [1.0, 2.0])
    Traceback (most recent call last):
    ValueError: variance must be one number, but has shape (2,); give a single number.
    """
    check_real(name, value)
    if np.ndim(value):
        raise ValueError(f"{name} must be one number, but has shape {np.shape(value)}; {advice}.")


def check_positive(name: str, value: ArrayLike, advice: str = "give a positive number") -> None:
    """Raise ValueError unless every entry of `value` is positive and finite.

    Parameters
    ----------
    name
        What the number is called in the caller's signature.
    value
        A number or an array of any shape. Traced values are not looked at.
    advice
        What to do instead; it ends the sentence.

    Raises
    ------
    ValueError
        An entry that is not positive or not finite, or none at all.
    TypeError
        Values that are not real numbers.

    Examples
    --------
    >>> check_positive("step_size", -0.1)
    Traceback (most recent call last):
    ValueError: step_size must be positive and finite, but is -0.1; give a positive number.
    """
    check_real(name, value)
    if not is_concrete(value):
        return
    flat = np.atleast_1d(np.asarray(value)).ravel()
    if flat.size == 0:
        raise ValueError(f"{name} is empty; {advice}.")
    with np.errstate(invalid="ignore"):  # comparisons of bfloat16 warn of NaN
        bad = ~(np.isfinite(flat) & (flat > 0))
    if bad.any():
        where = "" if flat.size == 1 else f" at entry {int(np.argmax(bad))} of {flat.size}"
        raise ValueError(
            f"{name} must be positive and finite, but is {float(flat[bad][0]):g}{where}; {advice}."
        )


def check_positive_number(name: str, value: Any, advice: str = "give a positive number") -> None:
    """Raise unless `value` is a single number, positive and finite; a traced one may be any.

    Raises
    ------
    ValueError
        Several numbers, or one that is not positive or not finite.
    TypeError
        What is no real number.

    Examples
    --------
    >>> check_positive_number("scale", [1.0, 2.0])
    Traceback (most recent call last):
    ValueError: scale must be one number, but has shape (2,); give a positive number.
    """
    check_one_number(name, value, advice)
    check_positive(name, value, advice)


def check_finite(name: str, tree: PyTree, advice: str = "remove or impute such rows") -> None:
    """Raise ValueError if any leaf of `tree` holds a NaN or an infinity.

    Parameters
    ----------
    name
        What the data are called in the caller's signature.
    tree
        A PyTree of arrays; integer leaves pass. Traced values are not looked at.
    advice
        What to do; it ends the sentence.

    Raises
    ------
    ValueError
        A NaN or an infinity.
    TypeError
        A leaf that does not hold real numbers: strings, complex numbers, objects.

    Examples
    --------
    >>> check_finite("x", np.array([1.0, np.nan]))
    Traceback (most recent call last):
    ValueError: x holds nan at index (1,); remove or impute such rows.
    """
    if not is_concrete(tree):
        return
    for path, leaf in jax.tree_util.tree_leaves_with_path(tree):
        if hasattr(leaf, "dtype") and jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
            continue
        check_real(f"{name}{jax.tree_util.keystr(path)}", leaf)
        values = np.asarray(leaf)
        # By JAX's notion of a float: NumPy does not count bfloat16 and those of 8 bits.
        if not jnp.issubdtype(values.dtype, jnp.inexact) or np.isfinite(values).all():
            continue
        index = tuple(int(i) for i in np.argwhere(~np.isfinite(values))[0])
        where = f"{name}{jax.tree_util.keystr(path)}"
        raise ValueError(f"{where} holds {float(values[index]):g} at index {index}; {advice}.")


def check_real(name: str, value: Any) -> None:
    """Raise TypeError unless `value` is a real number or an array of them, by its dtype.

    Parameters
    ----------
    name
        What it is called in the caller's signature.
    value
        Anything; traced values have a dtype too.

    Raises
    ------
    TypeError
        Strings, complex numbers, objects, ragged rows.
    ValueError
        An array of NumPy some of whose values are masked.

    Examples
    --------
    >>> check_real("x", np.array(["1.5"]))
    Traceback (most recent call last):
    TypeError: x must hold real numbers, but has dtype <U3; convert it to floats.
    """
    check_unmasked(name, value)
    dtype = getattr(value, "dtype", None)
    if dtype is None:
        try:
            dtype = np.asarray(value).dtype
        except ValueError:  # rows of unequal lengths
            dtype = np.dtype(object)
    # Keys have dtypes without a kind, and bfloat16 has one that NumPy does not count as a float.
    if getattr(dtype, "kind", "") in tuple("biuf"):
        return
    if not (jnp.issubdtype(dtype, jnp.floating) or jnp.issubdtype(dtype, jnp.integer)):
        is_one = dtype == np.dtype(object) or np.ndim(value) == 0
        what = f"is {short(value)}" if is_one else f"has dtype {dtype}"
        raise TypeError(f"{name} must hold real numbers, but {what}; convert it to floats.")


def check_unmasked(name: str, value: Any) -> None:
    """Raise ValueError if a value of a masked array of NumPy is masked: others do not see masks.

    Parameters
    ----------
    name
        What it is called in the caller's signature.
    value
        Anything.

    Raises
    ------
    ValueError
        With the first row of one that is.

    Examples
    --------
    >>> check_unmasked("y", np.ma.masked_array([0.5, -999.0], [False, True]))
    Traceback (most recent call last):
    ValueError: y is masked at row 1; leave out rows that are masked.
    """
    if not isinstance(value, np.ma.MaskedArray):
        return
    places = np.argwhere(np.atleast_1d(np.ma.getmaskarray(value)))
    if len(places):
        raise ValueError(f"{name} is masked at row {places[0, 0]}; leave out rows that are masked.")


def check_floating(name: str, value: Any) -> None:
    """Raise TypeError unless `value` is a floating-point number or an array of them, of any width.

    Parameters
    ----------
    name
        What it is called in the caller's signature.
    value
        Anything; traced values have a dtype too.

    Raises
    ------
    TypeError
        Whole numbers, and what `check_real` refuses.

    Examples
    --------
    >>> check_floating("x", np.array([1, 2], np.int32))
    Traceback (most recent call last):
    TypeError: x must be floating point, but has dtype int32; use x.astype(float).
    """
    check_real(name, value)
    dtype = jnp.result_type(value)
    if not jnp.issubdtype(dtype, jnp.floating):
        raise TypeError(f"{name} must be floating point, but has dtype {dtype}; use {_cast(name)}.")


def _cast(name: str) -> str:
    return f"{name}.astype(float)" if name.isidentifier() else "floats"


def check_fraction(name: str, value: Any, advice: str = "") -> None:
    """Raise unless `value` is one number inside (0, 1).

    Parameters
    ----------
    name
        What the number is called in the caller's signature.
    value
        Anything; a traced number is not looked at.
    advice
        Ends the sentence.

    Raises
    ------
    ValueError
        A number outside (0, 1), or an array.
    TypeError
        Not a real number.

    Examples
    --------
    >>> check_fraction("level", 90, "; 0.9 is usual")
    Traceback (most recent call last):
    ValueError: level must lie between 0 and 1, but is 90; 0.9 is usual.
    """
    check_real(name, value)
    if np.ndim(value) != 0:
        raise ValueError(f"{name} must be one number, but has shape {np.shape(value)}{advice}.")
    if is_concrete(value) and not 0 < np.asarray(value) < 1:
        raise ValueError(f"{name} must lie between 0 and 1, but is {value}{advice}.")


def check_float(name: str, value: Any, like: Any = None) -> None:
    """Raise TypeError unless `value` is float32 or float64, and of the dtype of `like` if given."""
    check_real(name, value)
    dtype = jnp.result_type(value)
    if not jnp.issubdtype(dtype, jnp.floating) or jnp.finfo(dtype).bits < 32:
        raise TypeError(f"{name} must be float32 or float64, but is {dtype}; convert it.")
    if like is not None and dtype != jnp.result_type(like):
        raise TypeError(f"{name} is {dtype} where {jnp.result_type(like)} is needed; convert it.")


def check_count(name: str, value: Any, least: int = 1) -> None:
    """Raise unless `value` is a whole number of at least `least`.

    Parameters
    ----------
    name
        What the number is called in the caller's signature.
    value
        Anything.
    least
        The smallest number allowed.

    Raises
    ------
    TypeError
        Not a whole number.
    ValueError
        One below `least`.

    Examples
    --------
    >>> check_count("num_samples", 1e3)
    Traceback (most recent call last):
    TypeError: num_samples must be a whole number, but is 1000.0; give an int.
    >>> check_count("num_samples", True)
    Traceback (most recent call last):
    TypeError: num_samples must be a whole number, but is True; give an int.
    >>> check_count("num_samples", 0)
    Traceback (most recent call last):
    ValueError: num_samples must be at least 1, but is 0.
    """
    try:
        operator.index(value)
        is_whole = not isinstance(value, bool)  # which Python counts among the integers
    except TypeError:
        is_whole = False
    if not is_whole:
        raise TypeError(f"{name} must be a whole number, but is {short(value)}; give an int.")
    if value < least:
        raise ValueError(f"{name} must be at least {least}, but is {value}.")


def check_shape(name: str, value: Any) -> None:
    """Raise TypeError unless `value` is a tuple or a list of whole numbers, none negative.

    Parameters
    ----------
    name
        What the shape is called in the caller's signature.
    value
        Anything.

    Examples
    --------
    >>> check_shape("shape", ("3", 2))
    Traceback (most recent call last):
    TypeError: shape must be a tuple of whole numbers, such as (3, 2), but is ('3', 2).
    """
    is_shape = isinstance(value, tuple | list)
    # NumPy's words and complex numbers have an `__index__` too, and so have its rows of numbers.
    is_shape = is_shape and not any(isinstance(n, str | np.inexact) or np.ndim(n) for n in value)
    if not is_shape or not all(hasattr(n, "__index__") and n >= 0 for n in value):
        raise TypeError(
            f"{name} must be a tuple of whole numbers, such as (3, 2), but is {short(value)}."
        )
