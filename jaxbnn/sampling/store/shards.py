"""The files of draws in a checkpoint's folder: one a chunk, or one a chunk and process.

    draws-000000000000.nc                 the chunk that begins with that draw
    draws-000000000000.shard-0-of-2.nc    some chains of it, where two processes wrote

Each file says which chains it holds (its coordinate `chain`), so that chunks that were written by
any number of processes are put together again.
"""

import re
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from jaxbnn.sampling.devices.hosts import own_blocks, owners, slices
from jaxbnn.sampling.devices.placement import Placer
from jaxbnn.sampling.store import files

_NAME = re.compile(r"draws-(\d{12})(?:\.shard-(\d+)-of-(\d+))?\.nc")


class Shard(NamedTuple):
    """What one process writes of each chunk: its number among those that write, its chains."""

    number: int
    num_shards: int
    chains: np.ndarray

    def path(self, folder: Path, first: int) -> Path:
        """Return where the chunk that begins with draw `first` is written."""
        return folder / _name(first, self.number, self.num_shards)


class ChunkFiles(NamedTuple):
    """A chunk as it was written: its first draw, its files, and the chains of each file."""

    begin: int
    paths: list[Path]
    chains: list[np.ndarray]
    written: list[int]  # when each file was, as its time stamp says


def shard_of(by_chain: Placer, num_chains: int) -> Shard | None:
    """Return what this process writes; None: nothing, where others hold its chains too."""
    numbers = by_chain(np.arange(num_chains))
    if not isinstance(numbers, jax.Array) or numbers.is_fully_addressable:
        return Shard(0, 1, np.arange(num_chains))
    places = owners(numbers.sharding, numbers.shape)
    writers, process = sorted(set(places.values())), jax.process_index()
    if process not in writers:
        return None
    own = [np.arange(num_chains)[slices(block)] for block in places if places[block] == process]
    return Shard(writers.index(process), len(writers), np.concatenate(own))


def rows_of(leaf: Any) -> np.ndarray:
    """Return the chains of an array (chain, ...) that this process owns, in their order."""
    if not isinstance(leaf, jax.Array) or leaf.is_fully_addressable:
        return np.asarray(leaf)
    return np.concatenate(own_blocks(leaf))


def every_file(folder: Path) -> dict[int, list[Path]]:
    """Return the files of draws by the number of their first draw."""
    found: dict[int, list[Path]] = {}
    for path in sorted(folder.glob("draws-*.nc")):
        if match := _NAME.fullmatch(path.name):
            found.setdefault(int(match[1]), []).append(path)
    return found


def chunks_upto(folder: Path, num_kept: int, run: str, num_chains: int) -> list[ChunkFiles]:
    """Return the chunks that hold the first `num_kept` draws, each file looked at."""
    found = every_file(folder) if num_kept else {}
    begin, chunks = 0, []
    while begin < num_kept:
        paths, chains, length = _complete(folder, begin, found.get(begin, [])), [], 0
        for path in paths:
            with files.opened(path) as file:
                files.check_format(path, file)
                if file.attrs["run"] != run or files.read(file, "draw")[0] != begin:
                    raise files.BadCheckpoint(
                        f"{path} holds other draws than its name says; restore it from a copy or "
                        "start anew in an empty folder."
                    )
                length = len(file.variables["step"])
                chains.append(files.read(file, "chain"))
        if not np.array_equal(np.sort(np.concatenate(chains)), np.arange(num_chains)):
            raise files.BadCheckpoint(
                f"{paths[0]} and the files beside it do not hold every chain once; restore them "
                "from a copy or start anew in an empty folder."
            )
        written = [path.stat().st_mtime_ns for path in paths]
        chunks.append(ChunkFiles(begin, paths, chains, written))
        begin += length
    return chunks


def _name(first: int, number: int, count: int) -> str:
    return f"draws-{first:012d}{f'.shard-{number}-of-{count}' if count > 1 else ''}.nc"


def _complete(folder: Path, begin: int, found: list[Path]) -> list[Path]:
    """Return the files of a chunk, which is whole if all that its names speak of are there."""
    matches = [match for path in found if (match := _NAME.fullmatch(path.name))]
    counts = sorted({int(match[3] or 1) for match in matches}) or [1]
    wanted = [[folder / _name(begin, i, count) for i in range(count)] for count in counts]
    return next((paths for paths in wanted if set(paths) <= set(found)), wanted[0])
