"""A run's folder: draws a chunk a file, and the state from which the run goes on.

    lock                     held by the run that writes here
    draws-000000000000.nc    the chunk that begins with that draw; see `shards.py`
    state.nc                 all else: kernel, adaptation, reducers, counters, fingerprint

Each file is written whole. A chunk's draws come first, the state that counts them after; draws
that no state counts are made once more. Keys are counter based, so that nothing else is needed
to draw the same numbers. A file of draws has the coordinates `chain`, `draw` and `step`: readers
such as xarray put the files together by them, also files that hold some of the chains each. The
state has the same form as the draws, so that one reader and one digest serve both.
"""

import hashlib
import json
import time
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jaxtyping import PyTree

from jaxbnn.sampling.loops import RateSum
from jaxbnn.sampling.run import Run
from jaxbnn.sampling.store import files
from jaxbnn.sampling.store.fingerprint import Shapes, differences
from jaxbnn.sampling.store.progressed import FINISHED, SAMPLING, START, Progressed
from jaxbnn.sampling.store.shards import Shard, chunks_upto, every_file, rows_of, shard_of
from jaxbnn.sampling.store.state import pack, read_state, write_state
from jaxbnn.sampling.store.stored_array import open_leaves
from jaxbnn.sampling.trees import describe, leaf_names

Kept = slice | np.ndarray


class Folder:
    """The folder of one run, which must hold the folder's lock.

    Of several processes each writes its chains, and the first one the state.
    """

    is_on_disk = True

    def __init__(self, folder: Path, run: Run, fingerprint: dict[str, str], shapes: Shapes):
        self._shapes, hosts = shapes, run.hosts
        self._chunk = {"capacity": run.options.capacity, "asked": run.asked}
        self._hosts, self._num_chains = hosts, run.num_chains
        self._by_chain = run.place.by_chain if hosts.num_processes > 1 else lambda tree: tree
        self._shard = shard_of(self._by_chain, self._num_chains)
        self._folder, self._fingerprint = folder, fingerprint
        self._run = hashlib.sha256(json.dumps(fingerprint).encode()).hexdigest()
        self._began, self._seconds = time.perf_counter(), 0.0
        self.progressed = Progressed(START, 0, 0)
        self._found: dict[str, Any] = {}
        with hosts.together():
            is_new = not (folder / "state.nc").exists()
            if not is_new:
                header, self._found = read_state(folder)
                _check_same(
                    folder / "state.nc", header["fingerprint"], fingerprint, run.schedule.steps
                )
                self.progressed = Progressed(*header["progressed"])
                self._run, self._seconds = header["run"], header["seconds"]
            if hosts.is_first:
                self._clean(is_new)
        if is_new:
            self.publish(self.progressed, {})

    def _clean(self, is_new: bool) -> None:
        """Remove what no state counts."""
        found = every_file(self._folder)
        if is_new and found:
            raise files.BadCheckpoint(
                f"{self._folder / 'state.nc'} is missing beside finished draws; restore it from a "
                "copy or start anew in an empty folder."
            )
        known = chunks_upto(self._folder, self.progressed.num_kept, self._run, self._num_chains)
        counted = {path for chunk in known for path in chunk.paths}
        for path in [*self._folder.glob("state.nc.part"), *self._folder.glob("draws-*.nc.part")]:
            path.unlink()
        for path in {path for paths in found.values() for path in paths} - counted:
            path.unlink()

    @property
    def seconds(self) -> float:
        """Seconds that the run took so far, all its parts together."""
        return self._seconds + time.perf_counter() - self._began

    def restore(self, name: str) -> PyTree:
        """Return a PyTree of the state found here, as arrays and keys.

        "warm_up" and "sampling" are what `publish` was given under these names; "rate_sum" too, but
        None where it was.
        """
        if name == "rate_sum":
            return self._rate_sum()
        shapes, leaves = getattr(self._shapes, name), []
        for where, shape in zip(leaf_names(name, shapes), jax.tree.leaves(shapes), strict=True):
            leaf = self._found.get(where)
            if leaf is None or leaf.shape != shape.shape or leaf.dtype != shape.dtype:
                raise files.BadCheckpoint(
                    f"{self._folder / 'state.nc'} does not hold {where} as this run has it; "
                    "start anew in an empty folder."
                )
            leaves.append(leaf)
        return jax.tree.unflatten(jax.tree.structure(shapes), leaves)

    def _rate_sum(self) -> Any:
        names = [f"rate_sum.{name}" for name in RateSum._fields]
        is_carried = names[0] in self._found
        return RateSum(*map(self._found.get, names)) if is_carried else self._found.get("rate_sum")  # type: ignore[arg-type]

    def publish(self, progressed: Progressed, trees: dict[str, PyTree]) -> None:
        """Write the state, which counts all draws written before; `trees` are restored by name."""
        leaves = {
            where: leaf
            for name, tree in trees.items()
            for where, leaf in zip(leaf_names(name, tree), jax.tree.leaves(tree), strict=True)
        }
        packed, about = pack(leaves)
        header = {
            "fingerprint": self._fingerprint,
            "run": self._run,
            "num_chains": self._num_chains,
            "chunk": self._chunk,
            "progressed": progressed,
            "seconds": self.seconds,
            "trees": {name: describe(tree) for name, tree in trees.items()},
            "leaves": about,
            "draws": describe(self._shapes.draws),
            "draws_leaves": {
                where: [leaf.dtype.name, (leaf.shape[0], *leaf.shape[2:])]
                for where, leaf in zip(
                    draws_names(self._shapes.draws),
                    jax.tree.leaves(self._shapes.draws),
                    strict=True,
                )
            },
        }
        with self._hosts.together():
            if self._hosts.is_first:
                write_state(self._folder, header, packed)
        self.progressed = progressed

    def add_draws(self, first: int, steps: np.ndarray, draws: PyTree, keep: Kept) -> None:
        """Write those of a chunk's draws (positions, infos) that are kept, from draw `first` on.

        Their leaves are (chain, record, ...), and `keep` has the records.
        """
        if not len(steps):
            return
        draws = self._by_chain(draws)
        with self._hosts.together():
            if self._shard is not None:
                self._write_draws(self._shard, first, steps, draws, keep)

    def _write_draws(
        self, shard: Shard, first: int, steps: np.ndarray, draws: PyTree, keep: Kept
    ) -> None:
        chains = shard.chains
        leaves = [rows_of(leaf)[:, keep] for leaf in jax.tree.leaves(draws)]
        arrays = dict(zip(draws_names(draws), leaves, strict=True))
        arrays = {name: array for name, array in arrays.items() if array.size}
        dims: dict[str, tuple[str, ...]] = {name: ("chain", "draw") for name in arrays}
        arrays |= {"chain": chains, "draw": np.arange(first, first + len(steps)), "step": steps}
        dims |= {"chain": ("chain",), "draw": ("draw",), "step": ("draw",)}
        content = files.encode(arrays, dims, {"format": files.FORMAT, "run": self._run})
        files.write_whole(shard.path(self._folder, first), content)

    def read_draws(self, num_kept: int, *, is_lazy: bool = False) -> tuple[PyTree, PyTree]:
        """Return positions and infos of the first draws: NumPy arrays, or lazily as they lie."""
        if self.progressed.phase not in (SAMPLING, FINISHED):
            return None, None
        if is_lazy:
            if not num_kept:
                return None, None
            leaves = open_leaves(self._folder, read_state(self._folder)[0])
            return jax.tree.unflatten(jax.tree.structure(self._shapes.draws), leaves)
        shapes = self._shapes.draws
        names, leaves = draws_names(shapes), jax.tree.leaves(shapes)
        stores = [np.empty((s.shape[0], num_kept, *s.shape[2:]), s.dtype) for s in leaves]
        for chunk in chunks_upto(self._folder, num_kept, self._run, self._num_chains):
            for path, chains in zip(chunk.paths, chunk.chains, strict=True):
                with files.opened(path) as file:
                    end = chunk.begin + len(file.variables["step"])
                    for name, store in zip(names, stores, strict=True):
                        if store.size:
                            store[chains, chunk.begin : end] = files.read(file, name)
        return jax.tree.unflatten(jax.tree.structure(shapes), stores)


def draws_names(draws: PyTree) -> list[str]:
    """Return the names in a file of draws of the leaves of (positions, infos)."""
    return leaf_names("positions", draws[0]) + leaf_names("infos", draws[1])


def _check_same(
    path: Path, stored: dict[str, str], ours: dict[str, str], steps: np.ndarray
) -> None:
    different = differences(stored, ours, steps)
    if different == ["num_samples"]:
        raise files.BadCheckpoint(
            f"{path} belongs to a run of {stored['num_samples']} draws, but num_samples is "
            f"{len(steps)}; ask for as many or more, or read those that are there by open_draws."
        )
    if different:
        raise files.BadCheckpoint(
            f"{path} belongs to a run with another {' and another '.join(different)}; call with "
            "what it was made with, or give this run a folder of its own."
        )


def chunk_capacity(folder: Path, asked: int, num_records: int) -> int:
    """Return the most records of a chunk: of a run that goes on, as many as it had.

    A run shorter than the chunk that it was asked for had chunks of its own length, and made longer
    it keeps them: compiled for others, its numbers might differ in their last bits.
    """
    if (folder / "state.nc").exists():
        stored = read_state(folder)[0].get("chunk", {})
        if asked in stored.values():
            return stored["capacity"]
    return min(asked, num_records)
