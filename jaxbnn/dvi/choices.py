"""The check of arguments that take one of a few words."""

from typing import Any, get_args


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
