"""Checks of arguments that take one of a few words, or one number."""

from typing import Any, get_args

import numpy as np


def check_choice(name: str, value: Any, literal: Any) -> None:
    """Raise ValueError unless `value` is one of the words of a Literal type.

    Examples
    --------
    >>> from typing import Literal
    >>> check_choice("method", "vdi", Literal["dvi", "ddvi"])
    Traceback (most recent call last):
    ValueError: method must be one of dvi, ddvi, but is 'vdi'.
    """
    words = get_args(literal)
    if value not in words:
        raise ValueError(f"{name} must be one of {', '.join(words)}, but is {value!r}.")


def check_one_number(name: str, value: Any) -> None:
    """Raise ValueError unless `value` is one number and no array of them.

    Examples
    --------
    >>> check_one_number("variance", [1.0, 2.0])
    Traceback (most recent call last):
    ValueError: variance must be one number, but has shape (2,).
    """
    if np.ndim(value):
        raise ValueError(f"{name} must be one number, but has shape {np.shape(value)}.")
