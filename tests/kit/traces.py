"""Counts how often a function is traced."""

from collections.abc import Callable
from typing import Any


class counting:
    """Wrap a function so that `.calls` counts its Python calls: under jit, its traces.

    >>> import jax
    >>> double = counting(lambda x: 2 * x)
    >>> traced = jax.jit(double)
    >>> int(traced(1)), int(traced(2)), double.calls
    (2, 4, 1)
    """

    def __init__(self, function: Callable):
        self.function = function
        self.calls = 0

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        self.calls += 1
        return self.function(*args, **kwargs)
