"""What functions take from outside themselves: numbers and arrays of closures and globals.

A program is traced with what its functions found there. In a notebook a global that a kernel reads
is bound anew by another cell, and an array of NumPy's can be changed in place: the program would go
on with what it was traced with. What was found is compared before a program is used again.
"""

import functools
import hashlib
import sys
import types
from collections.abc import Iterator
from typing import Any

import jax
import numpy as np

# Their globals do not change; what a user gave them is in their closures. So of what is installed.
_LIBRARIES = frozenset({"jaxbnn"}) | frozenset(sys.stdlib_module_names)
_NUMBERS = (bool, int, float, complex, str, np.generic)


class _Same:
    """One array of JAX's, equal to itself alone: it does not change, and is kept alive."""

    def __init__(self, array: jax.Array):
        self.array = array

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and other.array is self.array

    __hash__ = None  # type: ignore[assignment]


def taken(functions: Any) -> list[Any]:
    """Return what the functions in a tuple, however nested, take from outside, to be compared.

    Functions that they take are followed. Numbers and arrays in lists, dicts and other PyTrees
    count; what is reached through a module or an object of an unknown class does not.

    Examples
    --------
    >>> def normal(scale):
    ...     return lambda x: -np.sum((x / scale) ** 2) / 2
    >>> scale = np.ones(2)
    >>> log_density = normal(scale)
    >>> before = taken((log_density,))
    >>> before == taken((log_density,))
    True
    >>> scale[0] = 3.0
    >>> before == taken((log_density,))
    False
    """
    found: list[Any] = []
    _look_at(functions, found, set())
    return found


def _look_at(value: Any, found: list[Any], seen: set[int]) -> None:
    if isinstance(value, _NUMBERS):
        found.append((type(value).__name__, repr(value)))
    elif isinstance(value, jax.Array | np.ndarray):
        found.append(_array(value))
    elif isinstance(value, types.ModuleType | type) or id(value) in seen:
        return
    elif callable(value):
        seen.add(id(value))
        for part in _parts(value):
            _look_at(part, found, seen)
    elif isinstance(value, tuple):
        for part in value:
            _look_at(part, found, seen)
    elif value is not None:
        for leaf in _leaves(value):
            if isinstance(leaf, (*_NUMBERS, jax.Array, np.ndarray)):
                _look_at(leaf, found, seen)


def _leaves(tree: Any) -> list[Any]:
    try:
        return jax.tree.leaves(tree)
    except Exception:  # a dict whose keys have no order, a node that will not be taken apart
        return []


def _array(array: jax.Array | np.ndarray) -> Any:
    if isinstance(array, jax.Array):
        return _Same(array)
    if array.dtype.hasobject:
        return None
    content = np.ascontiguousarray(array).reshape(-1).view(np.uint8).data
    return array.dtype.str, array.shape, hashlib.blake2b(content).hexdigest()


def _parts(function: Any) -> Iterator[Any]:
    """Yield what a function holds, and what it finds by name where it was written."""
    if isinstance(function, functools.partial):
        yield from (function.func, function.args, tuple(function.keywords.values()))
        return
    if isinstance(function, types.MethodType):
        yield from (function.__func__, function.__self__)
        return
    try:
        wrapped = getattr(function, "__wrapped__", None)
    except Exception:  # an object that answers to names of its own
        wrapped = None
    yield wrapped
    if not isinstance(function, types.FunctionType):
        return
    yield function.__defaults__
    yield tuple((function.__kwdefaults__ or {}).values())
    for cell in function.__closure__ or ():
        try:
            yield cell.cell_contents
        except ValueError:  # a name that is not bound yet
            continue
    if _is_of_a_library(function):
        return
    for name in sorted(set(_names(function.__code__))):
        if name in function.__globals__:
            yield function.__globals__[name]


def _is_of_a_library(function: types.FunctionType) -> bool:
    file = function.__code__.co_filename
    if function.__module__ is None or "site-packages" in file or "dist-packages" in file:
        return True
    return function.__module__.partition(".")[0] in _LIBRARIES


def _names(code: types.CodeType) -> Iterator[str]:
    """Yield the names that a function, and those written inside it, look up."""
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _names(constant)
