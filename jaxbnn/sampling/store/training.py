"""The folder of a training, whose loop keeps no draws: one file with all that goes on.

    lock            held by the training that writes here
    training.nc     written whole at the end of each chunk, and published by a rename

Keys are counter based, so that nothing else is needed to go on with the same numbers.
"""

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import jax
import jax.numpy as jnp

from jaxbnn.sampling.store.files import BadCheckpoint, locked
from jaxbnn.sampling.store.fingerprint import named, versions
from jaxbnn.sampling.store.state import pack, read_state, write_state
from jaxbnn.sampling.trees import leaf_names

TRAINING_FILE = "training.nc"
Tree = TypeVar("Tree")


class Forgotten:
    """The store of a training without a checkpoint: nothing outlasts it."""

    def restored(self, start: Tree) -> tuple[Tree, int]:
        """Return the start, and that nothing is done."""
        return start, 0

    def publish(self, tree: Any, done: int) -> None:
        """Do nothing."""


class Stored:
    """The folder of one training, which must hold the folder's lock."""

    def __init__(self, folder: Path, fingerprint: dict[str, str]):
        self._folder, self._fingerprint = folder, fingerprint

    def restored(self, start: Tree) -> tuple[Tree, int]:
        """Return what was stored last and how much was done; `start`, whose kind it has, and 0."""
        path = self._folder / TRAINING_FILE
        if not path.exists():
            return start, 0
        header, found = read_state(self._folder, TRAINING_FILE)
        stored = header.get("fingerprint", {})
        different = named(p for p in self._fingerprint if stored.get(p) != self._fingerprint[p])
        if different:
            raise BadCheckpoint(
                f"{path} belongs to a training with another {' and another '.join(different)}; "
                "call with what it was made with, or give this one a folder of its own."
            )
        leaves = [jnp.asarray(found[name]) for name in leaf_names("training", start)]
        return jax.tree.unflatten(jax.tree.structure(start), leaves), header["done"]

    def publish(self, tree: Any, done: int) -> None:
        """Write all that the next chunk needs."""
        leaves = dict(zip(leaf_names("training", tree), jax.tree.leaves(tree), strict=True))
        packed, about = pack(leaves)
        header = {"fingerprint": self._fingerprint, "done": done, "leaves": about}
        write_state(self._folder, header, packed, TRAINING_FILE)


@contextlib.contextmanager
def stored_training(
    checkpoint: Any, fingerprint: Callable[[], dict[str, str]]
) -> Iterator[Stored | Forgotten]:
    """Hold the folder of a training to its end; None: nothing is stored.

    `fingerprint()` says what the training was called with, one text a part; it may take long, for
    programs are traced for it.
    """
    if checkpoint is None:
        yield Forgotten()
        return
    folder = Path(checkpoint)
    with locked(folder):
        yield Stored(folder, fingerprint() | versions())
