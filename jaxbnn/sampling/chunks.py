"""The host's side of a run: chunk after chunk, draws copied out after each.

A chunk is the unit of everything that the host does: progress, Ctrl-C, keeping draws.
"""

import math
import time

import jax
import numpy as np
from jaxtyping import PyTree

from jaxbnn.sampling.programs import Programs
from jaxbnn.sampling.progress import Clock

# Unless the caller chose the chunk, it is cut to about this long: progress, and Ctrl-C.
_SECONDS_A_CHUNK = 1.0


def warm_up(programs, options, keys, states, parameters, data, num_warmup, report):
    """Run the warm-up; returns states, parameters, the reducers' example, interrupted."""
    needs_example = bool(options.reduce)
    if num_warmup == 0 and not needs_example:
        return states, parameters, (), False
    adaptation = None if options.adapt is None else programs.init_adaptation(parameters)
    clock = Clock("warm-up", num_warmup, len(keys), report)
    rate_sum, done, pace = 0.0, 0, Pace(num_warmup)
    example: tuple = ()
    try:
        while done < num_warmup or (needs_example and not example):
            count = pace.next(num_warmup - done)
            counters = (np.uint32(done), np.int32(count))
            if adaptation is None:
                states, added, example = programs.burn_in(keys, states, parameters, data, *counters)
            else:
                states, adaptation, parameters, added, example = programs.adapt(
                    keys, states, adaptation, parameters, data, *counters
                )
            jax.block_until_ready(states)
            done += count
            if num_warmup:
                pace.tick(count)
                rate_sum += 0.0 if added is None else float(np.mean(added))
                clock.tick(done, None if added is None else rate_sum / done)
    except KeyboardInterrupt:
        return states, parameters, example, True
    if adaptation is not None:
        parameters = programs.final_parameters(adaptation)
        if options.adapt.refresh is not None:
            states = programs.refresh(keys, states, parameters, data)
    return states, parameters, example, False


class Sampling:
    """The host's side of sampling: chunk after chunk, draws copied out after each."""

    def __init__(self, programs: Programs, options, keys, data, offset, gaps, is_record, report):
        self._programs, self._options = programs, options
        self._keys, self._data, self._offset = keys, data, offset
        self._gaps, self._is_record, self._report = gaps, is_record, report
        self.done = 0  # records, kept or not
        self.rate_sum: np.ndarray | None = None
        self.states = self.reducers = self.positions = self.infos = None

    def go(self, states, reducers, parameters, *, is_paced: bool) -> bool:
        """Run all chunks; returns whether Ctrl-C ended them early."""
        self.states, self.reducers = states, reducers
        capacity, num_records = self._options.capacity, len(self._gaps)
        pace = Pace(capacity)
        clock = Clock("sampling", int(self._gaps.sum()), len(self._keys), self._report)
        try:
            while self.done < num_records:
                left = min(capacity, num_records - self.done)
                count = pace.next(left) if is_paced else left
                pace.tick(self._run_chunk(parameters, count))
                done = int(self._gaps[: self.done].sum())
                rate = None if self.rate_sum is None else float(np.mean(self.rate_sum)) / done
                clock.tick(done, rate)
        except KeyboardInterrupt:
            return True
        return False

    def _run_chunk(self, parameters, count: int) -> int:
        """Make `count` records, or fewer where a chunk has no room for them; says how many."""
        begin, end = self.done, self.done + count
        start = np.uint32(self._offset + int(self._gaps[:begin].sum()))
        padding = (0, self._options.capacity - count)
        chunk = self._programs.sampling(
            self._keys,
            self.states,
            self.reducers,
            parameters,
            self._data,
            start,
            np.int32(count),
            np.pad(self._gaps[begin:end], padding),
            np.pad(self._is_record[begin:end], padding),
        )
        chunk = jax.block_until_ready(chunk)
        made = int(chunk.num_records[0])
        end = begin + made
        self._keep(chunk, begin, end)
        self.states, self.reducers = chunk.states, chunk.reducers
        if chunk.rate_sum is not None:
            added = np.asarray(chunk.rate_sum, np.float64)
            self.rate_sum = added if self.rate_sum is None else self.rate_sum + added
        self.done = end
        return made

    def _keep(self, chunk, begin: int, end: int) -> None:
        kept = self._is_record[begin:end]
        first = int(self._is_record[:begin].sum())
        total = int(self._is_record.sum())
        if self.done == 0:
            self.positions, self.infos = jax.tree.map(
                lambda x: np.empty((x.shape[0], total, *x.shape[2:]), x.dtype),
                (chunk.positions, chunk.infos),
            )

        def copy(store, new):
            new = np.asarray(new)[:, : end - begin]
            store[:, first : first + int(kept.sum())] = new if kept.all() else new[:, kept]

        jax.tree.map(copy, (self.positions, self.infos), (chunk.positions, chunk.infos))

    def kept(self, tree: PyTree) -> PyTree:
        """Cut stored arrays to the draws that were made."""
        num_kept = int(self._is_record[: self.done].sum())
        return jax.tree.map(lambda x: x[:, :num_kept], tree)

    def acceptance_rate(self, num_chains: int) -> np.ndarray:
        """Mean acceptance a chain over all sampling steps so far; NaN where there is none."""
        done = int(self._gaps[: self.done].sum())
        if self.rate_sum is None or done == 0:
            return np.full(num_chains, math.nan)
        return self.rate_sum / done


class Pace:
    """How many steps or records to run next so that a chunk lasts about a second."""

    def __init__(self, most: int):
        self._most, self._count, self._start = most, 64, time.perf_counter()
        self._is_compiled = False

    def next(self, left: int) -> int:
        """Return how many to run now, of `left` that remain."""
        self._start = time.perf_counter()
        return min(left, self._count, self._most)

    def tick(self, count: int) -> None:
        """Learn from the time since `next` that `count` took."""
        seconds = time.perf_counter() - self._start
        if not self._is_compiled:  # the first chunk may have compiled: its time says nothing
            self._is_compiled = True
            return
        per_step = seconds / max(count, 1)
        self._count = int(np.clip(_SECONDS_A_CHUNK / max(per_step, 1e-9), 1, 8 * self._count))
