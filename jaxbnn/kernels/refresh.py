"""Update a kernel's state after another kernel has moved the position.

Most fields of a state are functions of the position (log densities, gradients, factors) and are
computed again. Others are not: a momentum, a counter, the scale that an adaptive kernel has
learnt. The arrays themselves do not show the difference, so a State class names these fields in
its tuple `auxiliary`.
"""

import dataclasses
from collections.abc import Callable
from typing import Any, TypeVar

from blackjax.base import SamplingAlgorithm
from jaxtyping import PRNGKeyArray, PyTree

from jaxbnn.kernels.arguments import check_kernel
from jaxbnn.numerics.arguments import short

# Of BlackJAX's State classes, by name: what `init` does not compute from the position.
BLACKJAX_STATES: dict[str, tuple[str, ...]] = {
    "BarkerState": (),
    "ContourSGLDState": ("energy_pdf", "energy_idx"),
    "DiffusionState": (),
    "DynamicHMCState": ("random_generator_arg",),
    "EllipSliceState": (),
    "GHMCState": ("momentum", "slice"),
    "GISTState": (),
    "HMCState": (),
    "IntegratorState": ("momentum",),  # the microcanonical samplers
    "LaplaceDynamicHMCState": ("random_generator_arg",),
    "LaplaceHMCState": (),
    "MALAState": (),
    "MarginalState": (),
    "RWState": (),
    "SGNHTState": ("momentum", "xi"),
    "SliceState": (),
}


Kind = TypeVar("Kind", bound=type)


def auxiliary_fields(*names: str) -> Callable[[Kind], Kind]:
    """Return a class decorator that sets `auxiliary`, the fields that `refresh` carries over.

    A NamedTuple may have `auxiliary = (...)` in its body too, but type checkers refuse that.
    """

    def declare(state_type: Kind) -> Kind:
        state_type.auxiliary = names  # type: ignore[attr-defined]
        return state_type

    return declare


def refresh(
    kernel: SamplingAlgorithm, state: Any, position: PyTree, rng_key: PRNGKeyArray | None = None
) -> Any:
    """Return `state` moved to `position`, with everything cached about it computed again.

    It is `kernel.init(position, rng_key)` with the fields carried over from `state` that are
    not functions of the position: those named in the State class's `auxiliary` tuple
    (momentum, slice, counters), in nested states too. For BlackJAX's states the names are kept
    here. A state of several positions has a method `start_with(position)`, which returns what
    `kernel.init` starts all of them by.

    Parameters
    ----------
    kernel
        The kernel that `state` belongs to.
    state
        Its state at another position.
    position
        Where it should be.
    rng_key
        For kernels whose `init` draws something.

    Raises
    ------
    TypeError
        A State class without `auxiliary`, or whose `auxiliary` names no field; a state that has
        no `position`, is neither a NamedTuple nor a dataclass, or belongs to another kernel.

    Examples
    --------
    >>> import jax.numpy as jnp, blackjax
    >>> kernel = blackjax.mala(lambda x: -jnp.sum(x**2) / 2, 0.5)
    >>> state = refresh(kernel, kernel.init(jnp.zeros(1)), jnp.ones(1))
    >>> float(state.logdensity), state.logdensity_grad.tolist()
    (-0.5, [-1.0])
    """
    check_kernel("kernel", kernel)
    # Of several positions, whose states are computed anew as well: the target may have changed.
    has_more = hasattr(state, "start_with")
    new = kernel.init(state.start_with(position) if has_more else position, rng_key)
    check_state(new)
    return _carry_over(state, new, is_whole=not has_more)


def check_state(state: Any) -> tuple[str, ...]:
    """Return which fields of a component's state, and of states in it, outlive another's move.

    Raises
    ------
    TypeError
        A state that does not say so, or has no `position`.
    """
    if _field_names(type(state)) is None:
        raise TypeError(
            "the state of a kernel in a composition must be a NamedTuple or a dataclass with a "
            f"field `position`, but is a {type(state).__name__}."
        )
    if not hasattr(state, "position"):
        raise TypeError(
            f"the state of a kernel in a composition must have a field `position`, but "
            f"{type(state).__name__} has {list(_field_names(type(state)) or ())}."
        )
    return _declared(state)


def _declared(value: Any) -> tuple[str, ...]:
    """Return what the class of every state in `value` names in its `auxiliary`."""
    names = _field_names(type(value))
    own: tuple[str, ...] = ()
    parts: list[Any] = []
    if names is not None:
        own = _auxiliary(type(value), is_needed=hasattr(value, "position"))
        # Fields that are carried over are never computed again, whatever they hold.
        passed = {"position", *own}
        parts = [getattr(value, name) for name in names if name not in passed]
    elif isinstance(value, dict | list | tuple):
        parts = list(value.values()) if isinstance(value, dict) else list(value)
    return (*own, *(name for part in parts for name in _declared(part)))


def _auxiliary(state_type: type, *, is_needed: bool = True) -> tuple[str, ...]:
    """Return the names of the fields that are not functions of the position."""
    name, fields = state_type.__name__, _field_names(state_type) or ()
    if state_type.__module__.startswith("blackjax.") and name in BLACKJAX_STATES:
        return BLACKJAX_STATES[name]
    advice = (
        "write `auxiliary = ()` into the class if all are functions of the position, else the "
        'names of those that are not, as in `auxiliary = ("momentum",)`'
    )
    if "auxiliary" in fields:
        raise TypeError(f"auxiliary of {name} is a field; write it without an annotation.")
    if not hasattr(state_type, "auxiliary"):
        if not is_needed:
            return ()
        raise TypeError(
            f"{name}, the state of a kernel in a composition, does not say which of its fields "
            f"{list(fields)} outlive a move by another kernel; {advice}."
        )
    auxiliary: Any = getattr(state_type, "auxiliary", ())
    unknown = (
        not isinstance(auxiliary, tuple)
        or "position" in auxiliary
        or not set(auxiliary) <= set(fields)
    )
    if unknown:
        raise TypeError(
            f"auxiliary of {name} must be a tuple of names among its fields {list(fields)}, "
            f"`position` not among them, but is {short(auxiliary)}; {advice}."
        )
    return auxiliary


def _field_names(kind: type) -> tuple[str, ...] | None:
    if issubclass(kind, tuple) and hasattr(kind, "_fields"):
        return kind._fields
    if dataclasses.is_dataclass(kind):
        return tuple(field.name for field in dataclasses.fields(kind))
    return None


def _carry_over(old: Any, new: Any, *, is_whole: bool = True) -> Any:
    """Return `new` with the fields of its states, and of states in them, that are their own.

    Unless `is_whole`, of states in these fields, too, only what is their own.
    """
    names = _field_names(type(new))
    if names is not None:
        if _field_names(type(old)) != names:
            raise TypeError(
                f"refresh was given a {type(old).__name__}, but the kernel makes a "
                f"{type(new).__name__}; give a state of that kernel."
            )
        auxiliary = _auxiliary(type(new), is_needed=False)
        changes = {
            name: getattr(old, name)
            if name in auxiliary and (is_whole or not hasattr(getattr(old, name), "position"))
            else _carry_over(getattr(old, name), getattr(new, name))
            for name in names
            if name != "position"
        }
        is_tuple = isinstance(new, tuple)
        return new._replace(**changes) if is_tuple else dataclasses.replace(new, **changes)
    if isinstance(new, dict):
        return {name: _carry_over(old[name], value) for name, value in new.items()}
    if isinstance(new, list | tuple):
        return type(new)(_carry_over(o, n) for o, n in zip(old, new, strict=True))
    return new
