"""The host's side of a run: chunk after chunk, draws copied out after each.

A chunk is the unit of everything that the host does: progress, Ctrl-C, keeping draws.
"""

import math
from typing import Any

import jax
import numpy as np
from jaxtyping import PyTree

from jaxbnn.sampling.contract import check_kept
from jaxbnn.sampling.devices.hosts import gather
from jaxbnn.sampling.draws import Draws, Reduced
from jaxbnn.sampling.loops import Chains, Chunk, RateSum, Span, Warming, as_arrays
from jaxbnn.sampling.order import restored
from jaxbnn.sampling.pace import Pace
from jaxbnn.sampling.progress import Clock
from jaxbnn.sampling.session import Session, first_reducers
from jaxbnn.sampling.store.progressed import FINISHED, SAMPLING, WARM_UP, Progressed
from jaxbnn.sampling.validation import warn_of_lost


def warm_up(work: Session) -> tuple[Chains, bool]:
    """Run what is left of the warm-up; returns the chains, and whether Ctrl-C ended it early."""
    run, programs, store, start = work.run, work.programs, work.store, work.start
    adapt = run.options.adapt
    adaptation = None if adapt is None else programs.init_adaptation(start.parameters)
    warming, done = Warming(start.states, adaptation, start.parameters), 0
    if store.progressed.phase == WARM_UP:
        states, adaptation, parameters = as_arrays(store.restore("warm_up"))
        # An adaptation need not have a chain axis: the compiler sees where it goes.
        states, parameters = run.place.spread((states, parameters))
        warming, done = Warming(states, adaptation, parameters), store.progressed.done
    reducers: tuple = ()
    if run.options.reduce:  # from shapes alone: nothing is compiled, or run, for them
        span = Span(np.uint32(0), np.int32(0))
        shapes = programs.warm_up.eval_shape(work.keys, warming, work.data, span)
        reducers = first_reducers(work, shapes.example)
        programs.finalise.eval_shape(reducers)  # a merge that fails must not lose a whole run
    clock = Clock("warm-up", run.num_warmup, run.num_chains, work.report, done)
    rate_sum, begun, pace = 0.0, done, Pace(is_stored=store.is_on_disk)
    try:
        while done < run.num_warmup:
            count = work.interrupt.next_chunk(pace.next_steps(run.num_warmup - done))
            span = Span(np.uint32(done), np.int32(count))
            warmed = jax.block_until_ready(programs.warm_up(work.keys, warming, work.data, span))
            warming, done = warmed.warming, done + count
            store.publish(Progressed(WARM_UP, done, 0), {"warm_up": tuple(warming)})
            pace.tick(count)
            rate_sum += 0.0 if warmed.rate_sum is None else float(np.mean(gather(warmed.rate_sum)))
            clock.tick(done, None if warmed.rate_sum is None else rate_sum / (done - begun))
    except KeyboardInterrupt:
        return Chains(warming.states, reducers, start.rate_sum, warming.parameters), True
    states, adaptation, parameters = warming
    if adapt is not None:
        parameters = programs.final_parameters(adaptation)
        check_kept("adapt.final", "parameters", warming.parameters, parameters)
        warn_of_lost(parameters)
        if adapt.refresh is not None:
            states = programs.refresh(work.keys, states, parameters, work.data)
    return Chains(states, reducers, start.rate_sum, parameters), False


class Sampling:
    """The sampling of one run: how far it is, and where the chains are."""

    def __init__(self, work: Session):
        self._work, self._schedule = work, work.run.schedule
        self.chains, self.done, self.is_interrupted = work.start, 0, False
        # Of each chain: on the host, in float64, where the Info of every step comes there.
        self._host_sum: np.ndarray | None = None
        self._has_rates = False

    def begin(self) -> None:
        """Warm up, or go back to where the run was stopped."""
        if self._work.store.progressed.phase in (SAMPLING, FINISHED):
            self._resume()
        else:
            self.chains, self.is_interrupted = warm_up(self._work)

    def _resume(self) -> None:
        store, spread = self._work.store, self._work.run.place.spread
        self.done = store.progressed.done
        rates, carried = store.restore("rate_sum"), self.chains.rate_sum
        if isinstance(rates, RateSum):
            carried, self._has_rates = spread(rates), True
        else:
            self._host_sum = rates
        states, reducers, parameters = as_arrays(spread(store.restore("sampling")))
        self.chains = Chains(states, reducers, carried, parameters)

    def go_on(self) -> None:
        """Make all chunks that are left, unless Ctrl-C ends the run early."""
        work, schedule, options = self._work, self._schedule, self._work.run.options
        pace = Pace(is_stored=work.store.is_on_disk)
        num_steps = schedule.num_steps(schedule.num_records)
        begun = schedule.num_steps(self.done)
        clock = Clock("sampling", num_steps, work.run.num_chains, work.report, begun)
        try:
            while self.done < schedule.num_records and not self.is_interrupted:
                begin, left = self.done, min(options.capacity, schedule.num_records - self.done)
                gaps = schedule.gaps[begin : begin + left]
                count = pace.next_records(gaps) if work.run.is_paced else left
                count = work.interrupt.next_chunk(count)
                span = self._span(begin, count)
                chunk = work.programs.sampling(work.keys, self.chains, work.data, span)
                chunk = jax.block_until_ready(chunk)
                with work.interrupt.held():
                    self._add(chunk)
                pace.tick(int(schedule.gaps[begin : self.done].sum()))
                rate = float(np.mean(self._acceptance_rate()))
                clock.tick(schedule.num_steps(self.done), None if math.isnan(rate) else rate)
        except KeyboardInterrupt:
            self.is_interrupted = True

    def _span(self, begin: int, count: int) -> Span:
        schedule, end = self._schedule, begin + count
        start = np.uint32(self._work.run.num_warmup + schedule.num_steps(begin))
        padding = (0, self._work.run.options.capacity - count)
        gaps, is_record = (np.pad(x[begin:end], padding) for x in schedule[1:])
        return Span(start, np.int32(count), gaps, is_record)

    def _add(self, chunk: Chunk) -> None:
        """Keep the draws of a chunk, and publish the state that counts them."""
        begin = self.done
        # As many as were asked for, or as there was room for: the same of all chains.
        made = int(np.asarray(chunk.num_records.addressable_data(0)).flat[0])
        kept = self._schedule.is_record[begin : begin + made]
        keep = slice(0, made) if kept.all() else np.flatnonzero(kept)
        first = self._schedule.num_kept(begin)
        steps = self._schedule.steps[first : first + int(kept.sum())]
        self._add_rates(chunk, made)
        self._work.store.add_draws(first, steps, (chunk.positions, chunk.infos), keep)
        carried = self.chains.rate_sum if chunk.rate_sum is None else chunk.rate_sum
        self.chains = Chains(chunk.states, chunk.reducers, carried, self.chains.parameters)
        self.done = begin + made
        self._publish(SAMPLING)

    def _add_rates(self, chunk: Chunk, made: int) -> None:
        """Add a chunk's acceptance rates one after the other, as if all were one chunk."""
        rates = getattr(chunk.infos, "acceptance_rate", None)
        if chunk.rate_sum is not None:
            self._has_rates = True
        elif rates is not None:
            rates = np.asarray(gather(rates), np.float64)[:, :made]
            rates = np.where(np.isnan(rates), 0.0, rates)
            if self._host_sum is not None:
                rates[:, 0] += self._host_sum
            self._host_sum = np.cumsum(rates, axis=1)[:, -1]  # np.sum would add in pairs

    def _acceptance_rate(self) -> np.ndarray:
        """Mean acceptance a chain over all sampling steps so far; NaN without one."""
        total, done = self._host_sum, self._schedule.num_steps(self.done)
        if self._has_rates:
            carried, lost = (np.asarray(x, np.float64) for x in gather(self.chains.rate_sum))
            total = carried + lost
        if total is None or done == 0:
            return np.full(self._work.run.num_chains, math.nan)
        return np.asarray(total / done)

    def _publish(self, phase: str, **trees: PyTree) -> None:
        states, reducers, carried, parameters = self.chains
        trees["sampling"] = (states, reducers, parameters)
        trees["rate_sum"] = carried if self._has_rates else self._host_sum
        trees["acceptance_rate"] = self._acceptance_rate()
        progressed = Progressed(phase, self.done, self._schedule.num_kept(self.done))
        self._work.store.publish(progressed, trees)

    def draws(self) -> Draws:
        """Publish the end of the run, and return what it has drawn."""
        run, store, num_kept = self._work.run, self._work.store, self._schedule.num_kept(self.done)
        is_reduced = bool(run.reducers) and (self.done > 0 or not self.is_interrupted)
        reduced = self._reduced() if is_reduced else {}
        if not self.is_interrupted and store.progressed.phase != FINISHED:
            self._publish(FINISHED, reduced=reduced)
        states, parameters = gather((self.chains.states, self.chains.parameters))
        positions, infos = store.read_draws(num_kept, is_lazy=run.is_lazy)
        states = restored(states)
        return Draws(
            positions=restored(positions),
            infos=restored(infos),
            reduced=restored(reduced),
            final_state=states.inner if run.is_debug else states,
            parameters=restored(parameters),
            steps=self._schedule.steps[:num_kept],
            acceptance_rate=self._acceptance_rate(),
            interrupted=self.is_interrupted,
            seconds=store.seconds,
        )

    def _reduced(self) -> dict[str, Reduced]:
        # A result may be NaN on purpose, as the variance of one draw is: no reason to lose the run.
        with jax.debug_nans(False):
            results: Any = gather(self._work.programs.finalise(self.chains.reducers))
        pairs = jax.tree.map(np.asarray, results)
        return {
            name: Reduced(*pair) for name, pair in zip(self._work.run.reducers, pairs, strict=True)
        }
