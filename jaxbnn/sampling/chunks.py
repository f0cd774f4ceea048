"""The host's side of a run: chunk after chunk, draws copied out after each.

A chunk is the unit of everything that the host does: progress, Ctrl-C, keeping draws.
"""

import math
import time

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from jaxbnn.sampling.devices.hosts import Interrupt, gather
from jaxbnn.sampling.devices.placement import Placer
from jaxbnn.sampling.loops import RateSum, as_arrays
from jaxbnn.sampling.programs import Programs
from jaxbnn.sampling.progress import Clock
from jaxbnn.sampling.store.folder import FINISHED, SAMPLING, WARM_UP, Checkpoint, Progressed

# Unless the caller chose the chunk, it is cut to about this long: progress, and Ctrl-C.
_SECONDS_A_CHUNK = 1.0
# Each chunk of a checkpoint is a file: they grow with the run, of which a kill costs this much.
_SHARE_A_CHUNK = 0.01


def warm_up(
    programs,
    options,
    keys,
    states,
    parameters,
    data,
    num_warmup,
    report,
    interrupt: Interrupt,
    store: Checkpoint | None = None,
):
    """Run the warm-up; returns states, parameters, the reducers' example, interrupted."""
    needs_example = bool(options.reduce)
    if num_warmup == 0 and not needs_example:
        return states, parameters, (), False
    adaptation = None if options.adapt is None else programs.init_adaptation(parameters)
    clock = Clock("warm-up", num_warmup, len(keys), report)
    rate_sum, done, pace = 0.0, 0, Pace(num_warmup, is_stored=store is not None)
    example: tuple = ()
    if store is not None and store.progressed.phase == WARM_UP:
        done = store.progressed.done
        restored = store.restore("warm_up", store.shapes.warm_up)
        states, adaptation, parameters = as_arrays(restored)
        # An adaptation need not have a chain axis: the compiler sees where it goes.
        states, parameters = store.spread((states, parameters))
    begun = done
    try:
        while done < num_warmup or (needs_example and not example):
            count = interrupt.next_chunk(pace.next(num_warmup - done))
            counters = (np.uint32(done), np.int32(count))
            if adaptation is None:
                states, added, example = programs.burn_in(keys, states, parameters, data, *counters)
            else:
                states, adaptation, parameters, added, example = programs.adapt(
                    keys, states, adaptation, parameters, data, *counters
                )
            jax.block_until_ready(states)
            done += count
            if store is not None:
                trees = {"warm_up": (states, adaptation, parameters)}
                store.publish(Progressed(WARM_UP, done, 0), trees)
            if num_warmup:
                pace.tick(count)
                rate_sum += 0.0 if added is None else float(np.mean(gather(added)))
                clock.tick(done, None if added is None else rate_sum / max(done - begun, 1))
    except KeyboardInterrupt:
        return states, parameters, example, True
    if adaptation is not None:
        parameters = programs.final_parameters(adaptation)
        if options.adapt.refresh is not None:
            states = programs.refresh(keys, states, parameters, data)
    return states, parameters, example, False


class Sampling:
    """The host's side of sampling: chunk after chunk, draws copied out after each."""

    def __init__(
        self,
        programs: Programs,
        options,
        keys,
        data,
        offset,
        steps,
        gaps,
        is_record,
        report,
        interrupt: Interrupt,
        spread: Placer,
        store: Checkpoint | None = None,
    ):
        self._interrupt, self._spread = interrupt, spread
        self._programs, self._options, self._steps, self._store = programs, options, steps, store
        self._keys, self._data, self._offset = keys, data, offset
        self._gaps, self._is_record, self._report = gaps, is_record, report
        self.done = 0  # records, kept or not
        # Of each chain: on the host, float64; or as the compiled loop carries it along.
        self.rate_sum: np.ndarray | RateSum | None = None
        self.states = self.reducers = self.parameters = self.positions = self.infos = None

    def go(self, states, reducers, parameters, *, is_paced: bool) -> bool:
        """Run all chunks; returns whether Ctrl-C ended them early."""
        self.states, self.reducers, self.parameters = states, reducers, parameters
        capacity, num_records = self._options.capacity, len(self._gaps)
        pace = Pace(capacity, is_stored=self._store is not None)
        clock = Clock("sampling", int(self._gaps.sum()), len(self._keys), self._report)
        try:
            while self.done < num_records:
                left = min(capacity, num_records - self.done)
                count = self._interrupt.next_chunk(pace.next(left) if is_paced else left)
                pace.tick(self._run_chunk(count))
                done = int(self._gaps[: self.done].sum())
                rate = None if self.rate_sum is None else float(np.mean(self.acceptance_rate()))
                clock.tick(done, rate)
        except KeyboardInterrupt:
            return True
        return False

    def take_up(self) -> tuple:
        """Go back to the stored state: returns it with the reducers and the parameters."""
        assert self._store is not None
        self.done = self._store.progressed.done
        self.rate_sum = self._store.stored_array("rate_sum")
        if self.rate_sum is None and self._store.stored_array("rate_sum.total") is not None:
            parts = (self._store.stored_array(f"rate_sum.{name}") for name in RateSum._fields)
            self.rate_sum = self._store.spread(RateSum(*parts))
        restored = self._store.restore("sampling", self._store.shapes.sampling)
        return as_arrays(self._store.spread(restored))

    def _run_chunk(self, count: int) -> int:
        """Make `count` records, or fewer where a chunk has no room for them; says how many."""
        begin, end = self.done, self.done + count
        start = np.uint32(self._offset + int(self._gaps[:begin].sum()))
        padding = (0, self._options.capacity - count)
        chunk = self._programs.sampling(
            self._keys,
            self.states,
            self.reducers,
            self._carried_sum(),
            self.parameters,
            self._data,
            start,
            np.int32(count),
            np.pad(self._gaps[begin:end], padding),
            np.pad(self._is_record[begin:end], padding),
        )
        chunk = jax.block_until_ready(chunk)
        made = int(np.asarray(chunk.num_records.addressable_data(0)).flat[0])  # the same of all
        end = begin + made
        rate_sum = self._add_rates(chunk, made)
        self._keep(chunk, begin, end)
        self.states, self.reducers, self.rate_sum = chunk.states, chunk.reducers, rate_sum
        self.done = end
        if self._store is not None:
            self._publish(self._store, SAMPLING)
        return made

    def _carried_sum(self) -> RateSum:
        if isinstance(self.rate_sum, RateSum):
            return self.rate_sum
        zeros = jnp.zeros(len(self._keys))
        return self._spread(RateSum(zeros, zeros))

    def _add_rates(self, chunk, made: int) -> np.ndarray | RateSum | None:
        """Add a chunk's acceptance rates one after the other, as if all were one chunk."""
        rates = getattr(chunk.infos, "acceptance_rate", None)
        if chunk.rate_sum is not None or rates is None:
            return chunk.rate_sum
        rates = np.asarray(gather(rates), np.float64)[:, :made]
        rates = np.where(np.isnan(rates), 0.0, rates)
        if self.rate_sum is not None:
            rates[:, 0] += self.rate_sum
        return np.cumsum(rates, axis=1)[:, -1]  # np.sum would add in pairs

    def _keep(self, chunk, begin: int, end: int) -> None:
        """Copy the kept draws of a chunk to the host: to files, or behind those before."""
        kept = self._is_record[begin:end]
        first, number = int(self._is_record[:begin].sum()), int(kept.sum())

        if self._store is not None:
            if number:
                keep = slice(0, end - begin) if kept.all() else np.flatnonzero(kept)
                steps = self._steps[first : first + number]
                self._store.add_draws(first, steps, (chunk.positions, chunk.infos), keep)
            return
        draws = gather((chunk.positions, chunk.infos))
        if self.done == 0:
            total = int(self._is_record.sum())
            self.positions, self.infos = jax.tree.map(
                lambda x: np.empty((x.shape[0], total, *x.shape[2:]), x.dtype), draws
            )

        def copy(store, new):
            new = np.asarray(new)[:, : end - begin]
            store[:, first : first + number] = new if kept.all() else new[:, kept]

        jax.tree.map(copy, (self.positions, self.infos), draws)

    def kept(self) -> tuple[PyTree, PyTree]:
        """Return positions and infos of the draws that were made; None where there are none."""
        num_kept = int(self._is_record[: self.done].sum())
        if self._store is not None and self.done:
            return self._store.read_draws(num_kept)
        return jax.tree.map(lambda x: x[:, :num_kept], (self.positions, self.infos))

    def acceptance_rate(self) -> np.ndarray:
        """Mean acceptance a chain over all sampling steps so far; NaN where there is none."""
        done = int(self._gaps[: self.done].sum())
        if self.rate_sum is None or done == 0:
            return np.full(len(self._keys), math.nan)
        if isinstance(self.rate_sum, RateSum):
            total, lost = (np.asarray(part, np.float64) for part in gather(self.rate_sum))
            return (total + lost) / done
        return self.rate_sum / done

    def finish(self, reduced: dict) -> None:
        """Publish the results of the reducers with the last state."""
        if self._store is not None and self._store.progressed.phase != FINISHED:
            self._publish(self._store, FINISHED, reduced=reduced)

    def _publish(self, store: Checkpoint, phase: str, **trees: PyTree) -> None:
        trees["sampling"] = (self.states, self.reducers, self.parameters)
        trees |= {"rate_sum": self.rate_sum, "acceptance_rate": self.acceptance_rate()}
        num_kept = int(self._is_record[: self.done].sum())
        store.publish(Progressed(phase, self.done, num_kept), trees)


class Pace:
    """How many steps or records to run next so that a chunk lasts about a second.

    Where chunks are files, they grow with the time that the run took: else a run of days would
    leave a hundred thousand of them.
    """

    def __init__(self, most: int, *, is_stored: bool = False):
        self._most, self._count, self._is_stored = most, 64, is_stored
        self._began = self._start = time.perf_counter()
        self._is_compiled = False

    def next(self, left: int) -> int:
        """Return how many to run now, of `left` that remain."""
        self._start = time.perf_counter()
        return min(left, self._count, self._most)

    def tick(self, count: int) -> None:
        """Learn from the time since `next` that `count` took."""
        now = time.perf_counter()
        if not self._is_compiled:  # the first chunk may have compiled: its time says nothing
            self._is_compiled = True
            return
        per_step = max((now - self._start) / max(count, 1), 1e-9)
        seconds = _SECONDS_A_CHUNK
        if self._is_stored:
            seconds = max(seconds, _SHARE_A_CHUNK * (now - self._began))
        self._count = int(np.clip(seconds / per_step, 1, 8 * self._count))
