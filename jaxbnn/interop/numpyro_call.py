"""What a NumPyro model is called with: arrays that may be traced, and all else, which is static."""

import inspect
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxbnn.numerics.arguments import short
from jaxbnn.numerics.arrays import check_held
from jaxbnn.numerics.data import warn_of_rounded_data


@dataclass(frozen=True)
class Call:
    """What of a model's arguments is not traced: their structure, and all that is no array."""

    structure: Any
    static: tuple

    @classmethod
    def split(cls, args: tuple, kwargs: dict) -> tuple[tuple, "Call"]:
        """Return the arrays among the arguments, and the rest."""
        leaves, structure = jax.tree.flatten((args, kwargs))
        arrays, static = [], []
        for leaf in leaves:
            is_array = isinstance(leaf, jax.Array | jax.ShapeDtypeStruct) or (
                isinstance(leaf, np.ndarray)
                and (leaf.dtype.kind in "biufc" or jnp.issubdtype(leaf.dtype, jnp.floating))
            )
            if not is_array:
                _check_hashable(leaf)
            elif isinstance(leaf, np.ndarray):
                leaf = _as_jax(leaf)  # which traced indices can index
            arrays += [leaf] if is_array else []
            # In the place of an array nothing, which no argument is: None is no leaf.
            static.append(None if is_array else (leaf,))
        return tuple(arrays), cls(structure, tuple(static))

    def join(self, arrays: tuple) -> tuple[tuple, dict]:
        """Return the arguments again."""
        rest = iter(arrays)
        leaves = [next(rest) if leaf is None else leaf[0] for leaf in self.static]
        return jax.tree.unflatten(self.structure, leaves)


def check_call(model: Any, args: tuple, kwargs: dict) -> None:
    """Raise TypeError unless the model can be called with these arguments."""
    if not callable(model):
        raise TypeError(
            f"model must be a NumPyro model, a function, but is {short(model)}; its arguments "
            "follow it."
        )
    try:
        signature = inspect.signature(model)
    except (TypeError, ValueError):
        return
    try:
        signature.bind(*args, **kwargs)
    except TypeError as error:
        raise TypeError(
            f"the model is called with arguments that it does not take ({error}); give those of "
            "its signature after the model."
        ) from None


def _as_jax(given: np.ndarray) -> jax.Array:
    """Return an array of JAX; refuse numbers that it would wrap, and warn of those it rounds."""
    check_held("an argument of the model", given)
    warn_of_rounded_data(given, "an argument of the model")
    return jnp.asarray(given)


def _check_hashable(value: Any) -> None:
    try:
        hash(value)
    except TypeError:
        raise TypeError(
            f"an argument of the model is of type {type(value).__name__}, which is neither an "
            "array nor hashable; make it an array, or let the model close over it."
        ) from None
