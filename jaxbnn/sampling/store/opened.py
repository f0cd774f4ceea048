"""Draws that stay in a checkpoint's files and are read where they are indexed."""

import math
import os
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from jaxbnn.sampling.draws import Draws, Reduced
from jaxbnn.sampling.store import files
from jaxbnn.sampling.store.folder import FINISHED, read_state
from jaxbnn.sampling.store.shards import ChunkFiles, chunks_upto
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
        indexed (`np.asarray` reads all). Named tuples are made anew with the same fields. Until
        the run is finished, `interrupted` is True and `reduced` is empty.

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
    positions, infos = _open_leaves(header, chunks, num_kept) if num_kept else (None, None)
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


class StoredArray:
    """An array (chain, draw, ...) in files, as of `open_draws`, read where it is indexed.

    It has `shape`, `dtype`, `ndim`, `size` and `len`, takes NumPy's indices, and becomes an array
    by `np.asarray`. Indexing the draws reads those alone: `x[:, 1000:2000]`.

    Attributes
    ----------
    shape, dtype, ndim, size
        As of a NumPy array.
    """

    def __init__(self, chunks: list[ChunkFiles], name: str, shape: tuple, dtype: Any):
        self._chunks, self._name = chunks, name
        self.shape, self.dtype = tuple(shape), np.dtype(dtype)

    @property
    def ndim(self) -> int:
        """The number of axes."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """The number of entries."""
        return math.prod(self.shape)

    def __len__(self) -> int:
        return self.shape[0]

    def __repr__(self) -> str:
        return f"StoredArray({self._name}, shape={self.shape}, dtype={self.dtype})"

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        if copy is False:
            raise ValueError("draws that lie in files cannot become an array without a copy.")
        array = self[...]
        return array if dtype is None else array.astype(dtype)

    def __getitem__(self, index: Any) -> Any:
        index = index if isinstance(index, tuple) else (index,)
        if any(part is None for part in index):
            raise IndexError(
                "draws that lie in files take no new axes; index first, then add them."
            )
        places = [place for place, part in enumerate(index) if part is Ellipsis]
        if places:
            missing = (slice(None),) * (self.ndim - len(index) + 1)
            index = index[: places[0]] + missing + index[places[0] + 1 :]
        chain, draw, *rest = list(index) + [slice(None)] * (2 - len(index))
        numbers = np.arange(self.shape[1])[draw]
        wanted, where = np.unique(numbers, return_inverse=True)
        if isinstance(draw, slice):
            within: Any = slice(None, None, -1 if (draw.step or 1) < 0 else None)
        else:
            within = where.reshape(numbers.shape) if numbers.ndim else 0
        return self._read(wanted)[(chain, within, *rest)]

    def _read(self, draws: np.ndarray) -> np.ndarray:
        """Read these draws, which increase, of all chains."""
        array = np.empty((self.shape[0], len(draws), *self.shape[2:]), self.dtype)
        if not array.size:
            return array
        ends = [chunk.begin for chunk in self._chunks[1:]] + [self.shape[1]]
        for chunk, end in zip(self._chunks, ends, strict=True):
            first, last = np.searchsorted(draws, [chunk.begin, end])
            if first < last:
                inside = draws[first:last] - chunk.begin
                span = slice(int(inside[0]), int(inside[-1]) + 1)
                for path, chains in zip(chunk.paths, chunk.chains, strict=True):
                    with files.opened(path) as file:
                        part = files.read(file, self._name, (slice(None), span))
                    array[chains, first:last] = part[:, inside - inside[0]]
        return array


def _names(name: str, header: dict) -> list[str]:
    return [where for where in header["leaves"] if where == name or where.startswith(f"{name}.")]


def _open_leaves(header: dict, chunks: list[ChunkFiles], num_kept: int) -> PyTree:
    leaves = [
        StoredArray(chunks, name, (shape[0], num_kept, *shape[1:]), jnp.dtype(dtype))
        for name, (dtype, shape) in header["draws_leaves"].items()
    ]
    return rebuild(header["draws"], leaves)


def _steps(chunk: ChunkFiles) -> np.ndarray:
    with files.opened(chunk.paths[0]) as file:
        return files.read(file, "step")
