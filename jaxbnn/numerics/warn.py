"""Warnings at the user's own line, however deep in the library they are raised."""

import sys
import warnings

# Beside the library, what stands between its functions: wrappers that check annotations, and JAX.
_NOT_THE_USER = ("jaxbnn", "jaxtyping", "beartype", "jax", "contextlib", "functools")


def warn(sentence: str) -> None:
    """Warn at the innermost line that is not the library's.

    Python shows a warning once a line: of several kernels made by one call it is shown once.

    Examples
    --------
    >>> import warnings
    >>> with warnings.catch_warnings(record=True) as seen:
    ...     warnings.simplefilter("always")
    ...     warn("The data are rounded.")
    >>> str(seen[0].message)
    'The data are rounded.'
    """
    level = 2
    frame = sys._getframe(1)
    while frame.f_back is not None and _is_ours(frame.f_globals.get("__name__")):
        frame = frame.f_back
        level += 1
    warnings.warn(sentence, stacklevel=level)


def _is_ours(module: object) -> bool:
    return isinstance(module, str) and module.partition(".")[0] in _NOT_THE_USER
