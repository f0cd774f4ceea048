"""Draws that stay in a checkpoint's files and are read where they are indexed."""

import math
import os
from pathlib import Path

import numpy as np

from jaxbnn.sampling.draws import Draws, Reduced
from jaxbnn.sampling.store import files
from jaxbnn.sampling.store.progressed import FINISHED
from jaxbnn.sampling.store.shards import ChunkFiles, chunks_upto
from jaxbnn.sampling.store.state import read_state
from jaxbnn.sampling.store.stored_array import open_leaves
from jaxbnn.sampling.trees import rebuild


def open_draws(folder: str | os.PathLike) -> Draws:
    """Open what a run with `checkpoint=folder` has drawn, also while it goes on.

    Parameters
    ----------
    folder
        The run's checkpoint folder.

    Returns
    -------
    Draws
        Leaves of `positions` and `infos` are `StoredArray`s, read from the files where they are
        indexed (`np.asarray` reads all). The folder does not hold the code that made them: named
        tuples are made anew with the same fields, keys of dicts are strings ("0" for 0), by which
        leaves are in order ("10" before "9", whatever the order was), and containers of your own,
        NumPyro's distributions among them, are lists of their leaves.
        `sample(..., lazy=True)` returns them as they were. Until the run is finished,
        `interrupted` is True and `reduced` is empty.

    Raises
    ------
    ValueError
        No checkpoint there, or one that is torn.

    Examples
    --------
    >>> import tempfile, jax, jax.numpy as jnp, blackjax, jaxbnn
    >>> kernel = blackjax.mala(lambda x: -jnp.sum(x**2) / 2, 0.5)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = jaxbnn.sample(jax.random.key(0), kernel, jnp.zeros((2, 3)), 100,
    ...                       checkpoint=folder, progress=False)
    ...     draws = open_draws(folder)
    ...     draws.positions.shape, draws.positions[:, 50:].shape
    ((2, 100, 3), (2, 50, 3))
    """
    folder = Path(folder)
    header, found = read_state(folder)
    phase, _, num_kept = header["progressed"]
    trees = {
        name: rebuild(description, [found[where] for where in _names(name, header)])
        for name, description in header["trees"].items()
    }
    chunks = chunks_upto(folder, num_kept, header["run"], header["num_chains"])
    positions, infos = None, None
    if num_kept:
        positions, infos = rebuild(header["draws"], open_leaves(folder, header))
    states, parameters = None, None
    if "sampling" in trees:
        states, _, parameters = trees["sampling"]
    elif "warm_up" in trees:
        states, _, parameters = trees["warm_up"]
    reduced = trees.get("reduced", {})
    return Draws(
        positions=positions,
        infos=infos,
        reduced={name: Reduced(*pair) for name, pair in reduced.items()},
        final_state=states,
        parameters=parameters,
        steps=np.concatenate([np.empty(0, np.int64), *map(_steps, chunks)]),
        acceptance_rate=trees.get("acceptance_rate", np.full(header["num_chains"], math.nan)),
        interrupted=phase != FINISHED,
        seconds=header["seconds"],
    )


def _names(name: str, header: dict) -> list[str]:
    return [where for where in header["leaves"] if where == name or where.startswith(f"{name}.")]


def _steps(chunk: ChunkFiles) -> np.ndarray:
    with files.opened(chunk.paths[0]) as file:
        return files.read(file, "step")
