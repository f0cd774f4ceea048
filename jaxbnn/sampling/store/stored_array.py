"""Arrays of draws that stay in a checkpoint's files and are read where they are indexed."""

import math
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np

from jaxbnn.sampling.store import files
from jaxbnn.sampling.store.shards import ChunkFiles, chunks_upto


def open_leaves(folder: Path, header: dict) -> list["StoredArray"]:
    """Return the leaves of (positions, infos) of all draws that a state with this header counts."""
    num_kept = header["progressed"][2]
    chunks = chunks_upto(folder, num_kept, header["run"], header["num_chains"])
    return [
        StoredArray(chunks, name, (shape[0], num_kept, *shape[1:]), jnp.dtype(dtype))
        for name, (dtype, shape) in header["draws_leaves"].items()
    ]


class StoredArray:
    """An array (chain, draw, ...) in files, as of `open_draws`, read where it is indexed.

    It has `shape`, `dtype`, `ndim`, `size` and `len`, takes NumPy's indices but those that add an
    axis (None, True, False), and becomes an array by `np.asarray`. Indexing the draws reads those
    alone: `x[:, 1000:2000]`.

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
        if any(part is None or _mask_axes(part) == 0 for part in index):
            raise IndexError(
                "draws that lie in files take no new axes; index first, then add them."
            )
        places = [place for place, part in enumerate(index) if part is Ellipsis]
        if places:
            given = sum(_mask_axes(part) or 1 for part in index) - len(places)
            missing = (slice(None),) * (self.ndim - given)
            index = index[: places[0]] + missing + index[places[0] + 1 :]
        index = _one_an_axis(index, self.shape)
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


def _mask_axes(part: Any) -> int | None:
    """Return how many axes a boolean index covers, 0 for True or False; None for another index."""
    if part is Ellipsis or isinstance(part, slice):
        return None
    part = np.asarray(part)
    return part.ndim if part.dtype == bool else None


def _one_an_axis(index: tuple, shape: tuple[int, ...]) -> tuple:
    """Return the index with each mask over several axes as the places where it is True."""
    parts: list[Any] = []
    for part in index:
        num_axes = _mask_axes(part) or 1
        if num_axes == 1:
            parts.append(part)
            continue
        mask, axes = np.asarray(part), shape[len(parts) : len(parts) + num_axes]
        if mask.shape != axes:
            raise IndexError(
                f"a boolean index of shape {mask.shape} cannot index axes of lengths {axes}; "
                "give one entry for each number."
            )
        parts.extend(mask.nonzero())
    return tuple(parts)


def _check_same(path: Path, written: int) -> None:
    """Refuse a file that was written after these draws were opened: it holds another run's."""
    if path.stat().st_mtime_ns != written:
        raise files.BadCheckpoint(
            f"{path} was written anew since these draws were opened; open the folder again by "
            "open_draws for what it holds now."
        )
