"""A training's folder: one file with the chains, the curves so far, and what it was called with.

    lock            held by the training that writes here
    training.nc     written whole at the end of each chunk of epochs, and published by a rename

Keys are counter based, so that nothing else is needed to go on with the same numbers.
"""

import contextlib
import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxbnn.ensembles.arguments import Arguments
from jaxbnn.ensembles.epochs import Chain, Curves, train
from jaxbnn.sampling import BadCheckpoint
from jaxbnn.sampling.store.files import locked
from jaxbnn.sampling.store.fingerprint import digest, named, versions
from jaxbnn.sampling.store.state import pack, read_state, write_state
from jaxbnn.sampling.trees import leaf_names

_FILE = "training.nc"
_PROGRAM = "program (network, likelihood or optimiser)"


class Memory:
    """The store of a training without a checkpoint: nothing outlasts it."""

    def __init__(self, chains: Chain):
        self._chains = chains

    def restored(self) -> tuple[Chain, Curves, int]:
        """Return the chains before the first epoch."""
        return self._chains, _no_curves(self._chains), 0

    def publish(self, chains: Chain, curves: Curves, done: int) -> None:
        """Do nothing."""


class Stored:
    """The folder of one training, which must hold the folder's lock."""

    def __init__(self, folder: Path, asked: Arguments, fingerprint: dict[str, str], chains: Chain):
        self._folder, self._asked, self._fingerprint = folder, asked, fingerprint
        self._chains = chains

    def restored(self) -> tuple[Chain, Curves, int]:
        """Return the chains and curves that were stored last, and the number of epochs."""
        path = self._folder / _FILE
        if not path.exists():
            return self._chains, _no_curves(self._chains), 0
        header, found = read_state(self._folder, _FILE)
        stored = header.get("fingerprint", {})
        different = named(p for p in self._fingerprint if stored.get(p) != self._fingerprint[p])
        if different:
            raise BadCheckpoint(
                f"{path} belongs to a training with another {' and another '.join(different)}; "
                "call with what it was made with, or give this one a folder of its own."
            )
        if header["epochs"] > self._asked.max_epochs:
            raise BadCheckpoint(
                f"{path} holds {header['epochs']} epochs, but max_epochs is "
                f"{self._asked.max_epochs}; ask for as many or more."
            )
        like = (self._chains, _no_curves(self._chains))
        leaves = [jnp.asarray(found[name]) for name in leaf_names("training", like)]
        chains, curves = jax.tree.unflatten(jax.tree.structure(like), leaves)
        return chains, jax.tree.map(np.asarray, curves), header["epochs"]

    def publish(self, chains: Chain, curves: Curves, done: int) -> None:
        """Write all that the next epoch needs."""
        names = leaf_names("training", (chains, curves))
        leaves = dict(zip(names, jax.tree.leaves((chains, curves)), strict=True))
        packed, about = pack(leaves)
        header = {"fingerprint": self._fingerprint, "epochs": done, "leaves": about}
        write_state(self._folder, header, packed, _FILE)


@contextlib.contextmanager
def stored_in(
    checkpoint: Any, asked: Arguments, data: tuple, chains: Chain
) -> Iterator[Stored | Memory]:
    """Hold the folder of a training to its end; None: nothing is stored."""
    if checkpoint is None:
        yield Memory(chains)
        return
    folder = Path(checkpoint)
    with locked(folder):
        yield Stored(folder, asked, _fingerprint(asked, data, chains), chains)


def _fingerprint(asked: Arguments, data: tuple, chains: Chain) -> dict[str, str]:
    """Return what a training was called with, as one text a part; its length is no part of it."""
    members, posterior = data
    numbers = [jnp.zeros((), jnp.int32)] * 3
    text = train.lower(*data, chains, *numbers, plan=asked.plan).as_text()
    parts = {
        "num_chains": f"{asked.num_chains}",
        "key": digest(members.order_key),
        "set of positions": digest(chains.position),
        "posterior or data set": digest(posterior),
        "validation": f"{asked.num_held_out}",
        "batch_size": f"{asked.plan.batch_size}",
        "patience": f"{asked.patience}",
        _PROGRAM: hashlib.sha256(text.encode()).hexdigest(),
    }
    return parts | versions()


def _no_curves(chains: Chain) -> Curves:
    empty = jnp.zeros((0, *chains.best_loss.shape), chains.best_loss.dtype)
    return Curves(empty, empty)
