"""What a streaming reduction is: the type that the runner takes."""

from collections.abc import Callable
from typing import Any, NamedTuple

from jaxtyping import PyTree


class Reducer(NamedTuple):
    """A streaming reduction; `moments` returns one, for instance.

    Attributes
    ----------
    init
        `init(example) -> r`, called with one collected value (its numbers mean nothing).
    update
        `update(r, collected) -> r`.
    merge
        `merge(r1, r2) -> r` of two chains.
    finalise
        `finalise(r)` -> the result, a PyTree.
    collect
        `collect(state, info)`, what this reducer looks at; None: what the run collects.
    every_step
        Whether it sees every step, not only the kept ones.
    """

    init: Callable[[PyTree], PyTree]
    update: Callable[[PyTree, PyTree], PyTree]
    merge: Callable[[PyTree, PyTree], PyTree]
    finalise: Callable[[PyTree], Any]
    collect: Callable[[Any, Any], PyTree] | None = None
    every_step: bool = False
