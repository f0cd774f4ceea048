"""Checks at the door: one sentence that says what was wrong and what to do.

Values are checked only where they are concrete; inside `jit` or `vmap` a traced
hyper-parameter passes unchecked, as it must.
"""

import jax
import numpy as np
from jaxtyping import ArrayLike, PyTree


def is_concrete(value: PyTree) -> bool:
    """Whether no leaf of `value` is a tracer, so that its numbers can be looked at."""
    return not any(isinstance(leaf, jax.core.Tracer) for leaf in jax.tree.leaves(value))


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

    Examples
    --------
    >>> check_positive("step_size", -0.1)
    Traceback (most recent call last):
    ValueError: step_size must be positive and finite, but is -0.1; give a positive number.
    """
    if not is_concrete(value):
        return
    flat = np.atleast_1d(np.asarray(value)).ravel()
    bad = ~(np.isfinite(flat) & (flat > 0))
    if bad.any():
        where = "" if flat.size == 1 else f" at entry {int(np.argmax(bad))} of {flat.size}"
        raise ValueError(
            f"{name} must be positive and finite, but is {float(flat[bad][0]):g}{where}; {advice}."
        )


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

    Examples
    --------
    >>> check_finite("x", np.array([1.0, np.nan]))
    Traceback (most recent call last):
    ValueError: x holds nan at index (1,); remove or impute such rows.
    """
    if not is_concrete(tree):
        return
    for path, leaf in jax.tree_util.tree_leaves_with_path(tree):
        values = np.asarray(leaf)
        if not np.issubdtype(values.dtype, np.inexact) or np.isfinite(values).all():
            continue
        index = tuple(int(i) for i in np.argwhere(~np.isfinite(values))[0])
        where = f"{name}{jax.tree_util.keystr(path)}"
        raise ValueError(f"{where} holds {values[index]:g} at index {index}; {advice}.")
