"""A run under way: its compiled programs, its arrays on their devices, and its store."""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, PyTree

from jaxbnn.sampling.debug import Watch
from jaxbnn.sampling.devices.hosts import Interrupt, translated
from jaxbnn.sampling.keys import chain_keys
from jaxbnn.sampling.loops import Chains, RateSum, as_arrays
from jaxbnn.sampling.programs import Programs, programs_for
from jaxbnn.sampling.progress import Reporter, choose_reporter
from jaxbnn.sampling.run import Run
from jaxbnn.sampling.store.files import locked
from jaxbnn.sampling.store.fingerprint import look_ahead, named, settings, versions
from jaxbnn.sampling.store.folder import Folder, chunk_capacity
from jaxbnn.sampling.store.memory import Memory
from jaxbnn.sampling.validation import check_start, is_one_number, one_number_explained


class Session(NamedTuple):
    """What warm-up and sampling work with; `start` is where the chains begin."""

    run: Run
    programs: Programs
    keys: Array
    data: PyTree
    start: Chains
    store: Folder | Memory
    interrupt: Interrupt
    report: Reporter | None


@contextlib.contextmanager
def session(run: Run, checkpoint: Any, progress: bool | Reporter) -> Iterator[Session]:
    """Start the chains of a run, find where it was stopped, and hold its folder to the end."""
    hosts, place = run.hosts, run.place
    with contextlib.ExitStack() as stack:
        interrupt = stack.enter_context(Interrupt(hosts))
        title = f"{run.num_chains} chains of one number" if is_one_number(run.positions) else ""
        report = interrupt.reporter(choose_reporter(progress, title))
        stack.enter_context(translated())
        store: Folder | Memory = Memory(len(run.schedule.steps))
        if checkpoint is not None:
            stack.enter_context(locked(Path(checkpoint), hosts))
            with hosts.together():
                run = run.with_capacity(
                    chunk_capacity(Path(checkpoint), run.asked, run.schedule.num_records)
                )
        programs, _watched = compiled(run)
        is_compared = checkpoint is not None or hosts.num_processes > 1
        called_with = settings(run) if is_compared else {}
        hosts.check_same(called_with)
        arrays = place.spread((chain_keys(run.key, run.num_chains), run.positions, run.parameters))
        keys, positions, parameters = arrays[0], as_arrays(arrays[1]), arrays[2]
        data = place.data(run.data)
        with one_number_explained(positions):
            if is_compared:
                shapes, of_programs = look_ahead(
                    programs, run.options, keys, positions, parameters, data
                )
                fingerprint = called_with | of_programs | versions()
                hosts.check_same(fingerprint, named)
            states = programs.init(keys, positions, parameters, data)
        with hosts.together():
            check_start(states.inner if run.is_debug else states)
        if checkpoint is not None:  # not before: where a run cannot start, only the lock is written
            store = Folder(Path(checkpoint), run, fingerprint, shapes)
        start = Chains(place.spread(states), (), no_rates(run), parameters)
        yield Session(run, programs, keys, data, start, store, interrupt, report)


def compiled(run: Run) -> tuple[Programs, Any]:
    """Return the programs of a run, in debug mode such as look at every step, and their kernel.

    Programs do not keep their kernel alive: the caller holds it for as long as they are called.
    """
    if not run.is_debug:
        return programs_for(run.kernel, run.options, run.data), run.kernel
    watch = Watch(run.kernel, run.num_warmup)
    watched = watch.kernel() if hasattr(run.kernel, "step") else watch.kernel
    return watch.programs(programs_for(watched, watch.options(run.options), run.data)), watched


def no_rates(run: Run) -> RateSum:
    """Return the sum of no acceptance rates, on the devices of the run."""
    zeros = jnp.zeros(run.num_chains)
    return run.place.spread(RateSum(zeros, zeros))


def first_reducers(work: Session, example: PyTree) -> tuple:
    """Return the reducers' states before the first draw; `example` is shaped like what they see."""
    if not work.run.options.reduce:
        return ()
    zeros = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), example)
    return work.programs.init_reducers(work.run.place.spread(zeros))
