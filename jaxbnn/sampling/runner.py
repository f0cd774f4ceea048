"""The runner: any kernel, many chains, in chunks, with draws that leave the device.

Inside, one chunk is a compiled loop over steps of all chains. Keys are counter based (the
key of chain c at step t is folded from key, c and t, warm-up steps first), so that no draw
depends on how the run was cut into chunks.
"""

import math
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import numpy as np
from blackjax.base import SamplingAlgorithm
from jaxtyping import PRNGKeyArray, PyTree

from jaxbnn.numerics import check_finite
from jaxbnn.sampling.adaptation import Adaptation
from jaxbnn.sampling.door import (
    check_counts,
    check_positions,
    check_start,
    record_steps,
    stack_parameters,
)
from jaxbnn.sampling.draws import Draws, Reduced
from jaxbnn.sampling.keys import MOST_STEPS, chain_keys
from jaxbnn.sampling.loops import Options, as_arrays
from jaxbnn.sampling.programs import Programs, programs_for
from jaxbnn.sampling.progress import Clock, Reporter, choose_reporter
from jaxbnn.sampling.reducers import Reducer

# A chunk holds at most this many records, and about this many bytes of kept draws.
_MOST_RECORDS = 16_384
_CHUNK_BYTES = 64 * 2**20
# Unless the caller chose the chunk, it is cut to about this long: progress, and Ctrl-C.
_SECONDS_A_CHUNK = 1.0
# A gap of a thinning schedule longer than this is walked in several records, not all kept.
_LONGEST_GAP = 10_000


def collect_position(state: Any, info: Any) -> PyTree:
    """Keep the position; the default of `sample`."""
    return state.position


def sample(
    key: PRNGKeyArray,
    kernel: SamplingAlgorithm | Callable[[PyTree, PyTree], SamplingAlgorithm],
    positions: PyTree,
    num_samples: int,
    *,
    parameters: PyTree = None,
    data: PyTree = None,
    num_warmup: int = 0,
    thinning: int | np.integer | Sequence[int] | np.ndarray = 1,
    collect: Callable[[Any, Any], PyTree] | None = collect_position,
    reduce: Mapping[str, Reducer] | None = None,
    adapt: Adaptation | None = None,
    chunk_size: int | None = None,
    progress: bool | Reporter = True,
) -> Draws:
    """Run a kernel on several chains and return what was drawn.

    Parameters
    ----------
    key
        The run's key. The key of chain c at step t is folded from (key, c, t).
    kernel
        A `SamplingAlgorithm` (ours or BlackJAX's), or a function `make_kernel(parameters,
        data)` that returns one; it is called inside the traced program.
    positions
        The chains' starts stacked: every leaf has the chain as its leading axis.
    num_samples
        Draws kept of each chain.
    parameters
        PyTree for `make_kernel`; its leaves have the chain axis first (a single number
        serves all chains): step sizes, noise variances, a data set a chain.
    data
        PyTree for `make_kernel` that all chains share; an argument of the compiled program.
    num_warmup
        Steps before the first kept draw, during which `adapt` may change `parameters`.
    thinning
        Steps from one kept draw to the next; or an increasing schedule, the numbers of
        sampling steps after which a draw is kept (its length is `num_samples`).
    collect
        `collect(state, info)`, deterministic: what is kept of a draw, and what reducers see.
        None keeps nothing, no Info either; reducers then see the position.
    reduce
        Streaming reducers by name (`jaxbnn.sampling.moments()`, ...), updated with each kept
        draw (`acceptance` with every step).
    adapt
        How `parameters` follow the chain in warm-up, e.g. `jaxbnn.dual_averaging(0.574)`.
    chunk_size
        Records computed between two visits to the host; chosen by memory and time if None.
        Compiled and drawn numbers depend on it only to rounding.
    progress
        True writes to standard error; a function receives `Progress`; False is silent.

    Returns
    -------
    Draws
        Leaves (chain, draw, ...). After Ctrl-C: what was drawn so far.

    Raises
    ------
    ValueError
        Positions without a chain axis or with unequal ones, not finite, or where the log
        density is not; zero chains or samples; thinning < 1; step sizes that are not
        positive; data that are not finite; adaptation without warm-up.

    Examples
    --------
    >>> import jax, jax.numpy as jnp, blackjax, jaxbnn
    >>> def make_kernel(parameters, data):
    ...     log_density = lambda x: -0.5 * jnp.sum((x - data) ** 2)
    ...     return blackjax.mala(log_density, parameters["step_size"])
    >>> draws = jaxbnn.sample(jax.random.key(0), make_kernel, jnp.zeros((4, 2)), 500,
    ...                       parameters={"step_size": 0.1}, data=jnp.array([1.0, 2.0]),
    ...                       num_warmup=500, adapt=jaxbnn.dual_averaging(0.574), progress=False)
    >>> draws.positions.shape
    (4, 500, 2)
    """
    check_counts(num_samples, num_warmup, chunk_size)
    if adapt is not None and num_warmup == 0:
        raise ValueError("adapt changes parameters in warm-up only; give num_warmup steps to it.")
    if hasattr(kernel, "step") and not (parameters is None and data is None and adapt is None):
        raise ValueError(
            "parameters, data and adapt need a function make_kernel(parameters, data), but kernel "
            "is a SamplingAlgorithm already, which takes none; pass the function that makes it."
        )
    if adapt is not None and adapt.num_warmup not in (None, num_warmup):
        raise ValueError(
            f"adapt was laid out over {adapt.num_warmup} warm-up steps, but num_warmup is "
            f"{num_warmup}; make them equal."
        )
    num_chains = check_positions(positions)
    check_finite("data", data)
    parameters = stack_parameters(parameters, num_chains)
    steps = record_steps(thinning, num_samples)
    if num_warmup + int(steps[-1]) > MOST_STEPS:
        raise ValueError(
            f"a run has at most {MOST_STEPS:,} steps, the counter of its keys; split it in two."
        )
    gaps, is_record = _segments(steps)
    reduce = dict(reduce or {})
    options = Options(
        collect,
        tuple(reduce.values()),
        adapt,
        min(_MOST_RECORDS if chunk_size is None else chunk_size, len(gaps)),
        max(1, _CHUNK_BYTES // num_chains) if chunk_size is None else None,
        bool((gaps > 1).any()),
    )
    programs = programs_for(kernel, options)
    report = choose_reporter(progress)

    keys = chain_keys(key, num_chains)
    positions = as_arrays(positions)
    states = programs.init(keys, positions, parameters, data)
    check_start(states)
    states, parameters, example, interrupted = _warm_up(
        programs, options, keys, states, parameters, data, num_warmup, report
    )
    run = _Sampling(programs, options, keys, data, num_warmup, gaps, is_record, report)
    if not interrupted:
        reducers = programs.init_reducers(example) if reduce else ()
        interrupted = run.go(states, reducers, parameters, is_paced=chunk_size is None)
        states = run.states
    num_kept = int(is_record[: run.done].sum())
    return Draws(
        positions=run.kept(run.positions),
        infos=run.kept(run.infos),
        reduced=_results(programs, reduce, run.reducers),
        final_state=states,
        parameters=parameters,
        steps=steps[:num_kept],
        acceptance_rate=run.acceptance_rate(num_chains),
        interrupted=interrupted,
    )


def _segments(steps: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Cut the way to each kept draw into gaps: (gaps, whether the gap's end is kept)."""
    gaps = np.diff(steps, prepend=0)
    num_pieces = -(-gaps // _LONGEST_GAP)
    last = np.cumsum(num_pieces) - 1  # where the last piece of each gap ends up
    pieces = np.full(num_pieces.sum(), _LONGEST_GAP, np.int32)
    pieces[last] = gaps - (num_pieces - 1) * _LONGEST_GAP
    is_record = np.zeros(len(pieces), bool)
    is_record[last] = True
    return pieces, is_record


def _warm_up(programs, options, keys, states, parameters, data, num_warmup, report):
    """Run the warm-up; returns states, parameters, the reducers' example, interrupted."""
    needs_example = bool(options.reduce)
    if num_warmup == 0 and not needs_example:
        return states, parameters, (), False
    adaptation = None if options.adapt is None else programs.init_adaptation(parameters)
    clock = Clock("warm-up", num_warmup, len(keys), report)
    rate_sum, done, pace = 0.0, 0, _Pace(num_warmup)
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


class _Pace:
    """How many steps or records to run next so that a chunk lasts about a second."""

    def __init__(self, most: int):
        self._most, self._count, self._start = most, 64, time.perf_counter()
        self._is_compiled = False

    def next(self, left: int) -> int:
        self._start = time.perf_counter()
        return min(left, self._count, self._most)

    def tick(self, count: int) -> None:
        seconds = time.perf_counter() - self._start
        if not self._is_compiled:  # the first chunk may have compiled: its time says nothing
            self._is_compiled = True
            return
        per_step = seconds / max(count, 1)
        self._count = int(np.clip(_SECONDS_A_CHUNK / max(per_step, 1e-9), 1, 8 * self._count))


class _Sampling:
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
        pace = _Pace(capacity)
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


def _results(programs: Programs, reduce: dict, reducers: Any) -> dict[str, Reduced]:
    if not reduce or reducers is None:
        return {}
    results = jax.tree.map(np.asarray, programs.finalise(reducers))
    return {name: Reduced(*pair) for name, pair in zip(reduce, results, strict=True)}
