"""Families of calls in which one argument, drawn by chance, is bad and the others are good."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
from hypothesis import strategies as st

from tests.kit.bad_arrays import BAD_NUMBERS, EXTREME, EXTREME_NUMBERS, KINDS, bad_array
from tests.kit.hostile import Call

BAD_COUNTS = (0, -1, 1.5, "3", None, float("nan"), (), 1j, np.float32(2))
BAD_WORDS = ("nonsense", "", None, 3, b"mean")
BAD_FRACTIONS = (-0.1, 1.5, float("nan"), float("inf"), "0.5", None, 1j, ())
LABEL_KINDS = (
    "constant labels",
    "labels out of range",
    "negative labels",
    "fractional labels",
    "labels of another length",
    "one row",
    "no rows",
    "NaN",
    "strings",
    "complex",
    "no array",
    "rank too large",
)


class Slot(NamedTuple):
    """One argument: the kinds of bad values it has, how one is made, and a good one."""

    kinds: tuple[str, ...]
    bad: Callable[[str, np.random.Generator], Any]
    good: Callable[[np.random.Generator], Any]


def array(*shape: int, kinds: tuple[str, ...] = KINDS) -> Slot:
    """Real numbers of a shape."""
    return Slot(
        kinds,
        lambda kind, rng: bad_array(kind, shape, rng),
        lambda rng: rng.normal(size=shape).astype(np.float32),
    )


def fixed(value: Any, kinds: tuple[str, ...] = KINDS) -> Slot:
    """An array whose good value is given: steps, temperatures, matrices, probabilities."""
    value = np.asarray(value)
    return Slot(kinds, lambda kind, rng: bad_array(kind, value.shape, rng), lambda rng: value)


def labels(length: int, classes: int) -> Slot:
    """Classes 0..classes-1."""

    def good(rng):
        return rng.integers(0, classes, length).astype(np.int32)

    def bad(kind, rng):
        y = good(rng)
        if kind == "constant labels":
            return np.zeros_like(y)
        if kind == "labels of another length":
            return y[:-1]
        if kind in _SPOILED_LABELS:
            y = y.astype(np.float32) if kind == "fractional labels" else y
            y[rng.integers(length)] = _SPOILED_LABELS[kind] + (classes if "out" in kind else 0)
            return y
        return bad_array(kind, (length,), rng)

    return Slot(LABEL_KINDS, bad, good)


_SPOILED_LABELS = {"labels out of range": 0, "negative labels": -1, "fractional labels": 0.5}


def number(value: Any, extremes: Sequence = EXTREME_NUMBERS, bad: Sequence = BAD_NUMBERS) -> Slot:
    """A positive finite number."""
    return _one_of({"bad number": bad, "extreme number": extremes}, value)


def fraction(value: float) -> Slot:
    """A number between 0 and 1."""
    return _one_of({"bad number": BAD_FRACTIONS}, value)


def count(value: int) -> Slot:
    """A whole number."""
    return _one_of({"bad count": BAD_COUNTS}, value)


def word(value: str) -> Slot:
    """A word out of a few."""
    return _one_of({"unknown word": BAD_WORDS}, value)


def _one_of(values: dict[str, Sequence], good: Any) -> Slot:
    return Slot(
        tuple(kind for kind, some in values.items() if len(some)),
        lambda kind, rng: values[kind][rng.integers(len(values[kind]))],
        lambda rng: good,
    )


class Tried(NamedTuple):
    """A function and what may be put into it.

    Attributes
    ----------
    function
        Takes one value a slot.
    slots
        Its arguments.
    is_checked
        Whether it refuses NaN and infinity; else NaN may come of them.
    undefined
        Kinds of input for which the documented answer is NaN.
    """

    function: Callable[..., Any]
    slots: tuple[Slot, ...]
    is_checked: bool = True
    undefined: tuple[str, ...] = ()


def family(tried: dict[str, Tried]) -> st.SearchStrategy:
    """Return the strategy that spoils one argument of one function a time."""
    choices = [
        (name, at, kind)
        for name in sorted(tried)
        for at, slot in enumerate(tried[name].slots)
        for kind in slot.kinds
    ]

    def make(choice):
        (name, at, kind), seed = choice
        one, rng = tried[name], np.random.default_rng(seed)
        values = [slot.good(rng) for slot in one.slots]
        values[at] = one.slots[at].bad(kind, rng)
        label = name if len(values) == 1 else f"{name}, argument {at}"
        return seed, Call(
            label, kind, lambda: plain(one.function(*values)), None, _allows(one, kind)
        )

    return st.tuples(st.sampled_from(choices), st.integers(0, 2**32 - 1)).map(make)


def _allows(one: Tried, kind: str) -> str:
    if kind in ("strings", "complex", "unknown word") or kind in _SPOILED_LABELS:
        return "nothing"
    if kind in one.undefined or (kind in ("NaN", "infinity") and not one.is_checked):
        return "nan"
    # Overflow is the answer of arithmetic where a number has no finite one in its type.
    return "infinite" if kind in (*EXTREME, "half precision", "extreme number") else "finite"


def plain(answer: Any) -> Any:
    """Open the dataclasses that are no PyTrees."""
    if dataclasses.is_dataclass(answer) and not isinstance(answer, type):
        return [plain(value) for value in vars(answer).values()]
    return answer


def tree(good: Callable[[], Any], but: tuple[str, ...] = ()) -> Slot:
    """A PyTree of arrays, such as parameters, of which one leaf goes bad."""

    def bad(kind, rng):
        leaves, structure = jax.tree.flatten(good())
        if kind == "another structure":
            return list(leaves) if rng.integers(2) else None
        at = rng.integers(len(leaves))
        leaves[at] = bad_array(kind, np.shape(leaves[at]), rng)
        return jax.tree.unflatten(structure, leaves)

    kinds = tuple(kind for kind in (*KINDS, "another structure") if kind not in but)
    return Slot(kinds, bad, lambda rng: good())
