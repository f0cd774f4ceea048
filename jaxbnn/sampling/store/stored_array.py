"""Arrays of draws that stay in a checkpoint's files and are read where they are indexed."""

import math
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from jaxbnn.sampling.store import files
from jaxbnn.sampling.store.shards import ChunkFiles, chunks_upto
from jaxbnn.sampling.trees import rebuild


def open_leaves(folder: Path, header: dict) -> PyTree:
    """Return positions and infos of all draws that a state counts, `header` being its header."""
    num_kept = header["progressed"][2]
    chunks = chunks_upto(folder, num_kept, header["run"], header["num_chains"])
    leaves = [
        StoredArray(chunks, name, (shape[0], num_kept, *shape[1:]), jnp.dtype(dtype))
        for name, (dtype, shape) in header["draws_leaves"].items()
    ]
    return rebuild(header["draws"], leaves)


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
                for path, chains, written in zip(*chunk[1:], strict=True):
                    with files.opened(path) as file:
                        _check_same(path, written)
                        part = files.read(file, self._name, (slice(None), span))
                    array[chains, first:last] = part[:, inside - inside[0]]
        return array


def _check_same(path: Path, written: int) -> None:
    """Refuse a file that was written after these draws were opened: it holds another run's."""
    if path.stat().st_mtime_ns != written:
        raise files.BadCheckpoint(
            f"{path} was written anew since these draws were opened; open the folder again by "
            "open_draws for what it holds now."
        )
