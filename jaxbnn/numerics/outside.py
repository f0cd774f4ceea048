"""What functions take from outside themselves: numbers, arrays and functions behind their names.

A program is traced with what its functions found there. In a notebook a global that a kernel reads
is bound anew by another cell, a function is written anew, and an array of NumPy's can be changed in
place: the program would go on with what it was traced with. What was found is compared before a
program is used again.
"""

import contextlib
import dataclasses
import functools
import hashlib
import inspect
import sys
import types
import weakref
from collections.abc import Callable, Iterator, Sequence
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


class _Equal:
    """A value that knows what it equals, as a tree's structure, with all that is static in it."""

    def __init__(self, value: Any):
        self.value = value

    def __eq__(self, other: object) -> bool:
        try:
            return isinstance(other, _Equal) and bool(self.value == other.value)
        except Exception:  # static arrays, whose comparison is one of each number
            return False

    __hash__ = None  # type: ignore[assignment]


def taken(functions: Any) -> list[Any]:
    """Return what the functions in a tuple, however nested, take from outside, to be compared.

    Functions that they take are followed, and their code counts. So do numbers and arrays in lists,
    dicts and other PyTrees, what is static in the latter, objects that are compared by their parts,
    as networks are, and the functions that tuples and dataclasses hold, as a posterior's network or
    an activation; what is reached through a module or another object does not.

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


def functions_in(data: Any) -> tuple[Callable, ...]:
    """Return the functions that data hold, and the methods of the user's classes in them.

    Those are a network that is a function, the model of another library, a likelihood's methods:
    they are static where data are an argument, and read globals as kernels do.
    """
    return tuple(dict.fromkeys(_functions_in(data, set())))


def _functions_in(data: Any, seen: set[int]) -> Iterator[Callable]:
    if isinstance(data, list | tuple):
        for part in data:
            yield from _functions_in(part, seen)
    elif isinstance(data, dict):
        yield from _functions_in(tuple(data.values()), seen)
    elif isinstance(data, type):
        return
    elif dataclasses.is_dataclass(data):
        if id(data) in seen:
            return
        seen.add(id(data))
        for kind in inspect.getmro(type(data)):
            methods = [one for one in vars(kind).values() if isinstance(one, types.FunctionType)]
            yield from (one for one in methods if not _is_of_a_library(one))
        for field in dataclasses.fields(data):
            yield from _functions_in(getattr(data, field.name, None), seen)
    elif callable(data) and type(data).__hash__ is not None:
        yield data


def _look_at(value: Any, found: list[Any], seen: set[int]) -> None:
    if isinstance(value, _NUMBERS):
        found.append((type(value).__name__, repr(value)))
    elif isinstance(value, jax.Array | np.ndarray):
        found.append(_array(value))
    elif isinstance(value, types.ModuleType | type) or id(value) in seen:
        return
    elif callable(value):
        seen.add(id(value))
        if isinstance(value, types.FunctionType):
            found.append(value.__code__)
        for part in _parts(value):
            _look_at(part, found, seen)
        if dataclasses.is_dataclass(value):
            _look_into(value, found, seen)
    elif isinstance(value, tuple):
        for part in value:
            _look_at(part, found, seen)
    elif value is not None:
        try:
            leaves, structure = jax.tree.flatten(value)
        except Exception:  # a dict whose keys have no order, a node that will not be taken apart
            return
        if not isinstance(value, list | dict):  # tracing may fill these
            found.append(_Equal(structure))
        for leaf in leaves:
            if isinstance(leaf, (*_NUMBERS, jax.Array, np.ndarray)):
                _look_at(leaf, found, seen)
            elif _is_of_value(leaf):
                found.append(_Equal(leaf))
        # Not into lists and dicts: tracing may fill these with functions.
        if dataclasses.is_dataclass(value):
            _look_into(value, found, seen)


def _look_into(value: Any, found: list[Any], seen: set[int]) -> None:
    """Look at the functions that data hold: a posterior's network, a likelihood's methods."""
    with contextlib.suppress(Exception):  # of fields that cannot be read, functions without a hash
        for function in functions_in(value):
            _look_at(function, found, seen)


def _is_of_value(value: Any) -> bool:
    """Whether an object is what its parts are, and stays so, as a network: hashable, with ==."""
    kind = type(value)
    return kind.__eq__ is not object.__eq__ and kind.__hash__ is not None


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


_taken: "weakref.WeakKeyDictionary[Callable, list[Any]]" = weakref.WeakKeyDictionary()


@contextlib.contextmanager
def reading_anew(programs: Sequence[Any], *held: Any) -> Iterator[None]:
    """Clear jitted functions if what the functions that are held take has changed since last time.

    What changes inside the `with` does not count: tracing itself may, as it counts its calls.

    Parameters
    ----------
    programs
        What `jax.jit` returned, where these functions are static, or in what is.
    held
        Functions, or data that hold them, as `functions_in` finds them.

    Examples
    --------
    >>> def scaled(scale):
    ...     return lambda x: scale[0] * x
    >>> scale = np.ones(1)
    >>> function = scaled(scale)
    >>> program = jax.jit(lambda f, x: f(x), static_argnums=0)
    >>> for scale[0] in (1.0, 2.0):
    ...     with reading_anew([program], function):
    ...         print(program(function, 3.0))
    3.0
    6.0
    """
    functions = functions_in(held)
    if any(_has_changed(function) for function in functions):
        for program in programs:  # all of it: JAX keeps constants while a program with them lives
            program.clear_cache()
    yield
    for function in functions:
        with contextlib.suppress(TypeError):  # no weak reference to it: a program in C
            _taken[function] = taken((function,))


def _has_changed(function: Callable) -> bool:
    try:
        before = _taken.get(function)
    except TypeError:
        return False
    return before is not None and before != taken((function,))
