"""Running variational inference: several seeds and data splits as one program, with stopping."""

import functools
import hashlib
import os
import sys
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Key, PRNGKeyArray, PyTree, Shaped

from jaxbnn.dvi.algorithm import DeterministicVI
from jaxbnn.dvi.fit_input import (
    CHUNKS_TO_JUDGE,
    check_chunks,
    check_numbers,
    checked_data,
    one_key_a_run,
    stacked_runs,
    whole_batches,
)
from jaxbnn.numerics.arguments import check_progress
from jaxbnn.numerics.arrays import widest_float
from jaxbnn.numerics.checks import check_outside
from jaxbnn.numerics.outside import reading_anew
from jaxbnn.sampling.store.fingerprint import digest
from jaxbnn.sampling.store.training import stored_training
from jaxbnn.sampling.validation import check_checkpoint

_RUNNING, _CONVERGED, _DIVERGED = 0, 1, 2


class Fit(NamedTuple):
    """The result of `fit`; leading axes are the runs.

    Attributes
    ----------
    positions
        q of each run, leaves (run, ...).
    states
        The algorithm's states, for `sample` under `jax.vmap`, or for `step`. (`fit` starts from
        positions: another call begins schedules and the optimiser's memory anew.)
    updates
        (chunk,): the number of updates at the end of each chunk.
    elbo
        (run, chunk): its mean over the updates of the chunk, in nats; NaN once a run stopped.
    num_updates
        (run,): updates made.
    converged
        (run,): whether the run met `stop_tolerance`.
    diverged
        (run,): whether the ELBO or q became infinite or NaN; such a run holds its last finite q.
    """

    positions: PyTree
    states: Any
    updates: Int[np.ndarray, " chunk"]
    elbo: Float[np.ndarray, "run chunk"]
    num_updates: Int[np.ndarray, " run"]
    converged: Shaped[np.ndarray, " run"]
    diverged: Shaped[np.ndarray, " run"]


class FitProgress(NamedTuple):
    """How far `fit` has come.

    Attributes
    ----------
    done, total
        Updates made, and asked for.
    seconds
        Since this call began.
    elbo
        (run,) of the last chunk, in nats.
    positions
        q, leaves (run, ...).
    """

    done: int
    total: int
    seconds: float
    elbo: Float[np.ndarray, " run"]
    positions: PyTree


class _Runs(NamedTuple):
    """All that goes on from chunk to chunk; curves are (run, chunk)."""

    states: Any
    status: Int[Array, " run"]
    elbo: Float[np.ndarray | Array, "run chunk"]
    judged: Float[np.ndarray | Array, "run chunk"]


def fit(
    rng_key: PRNGKeyArray | Key[Array, " run"],
    algorithm: DeterministicVI,
    positions: PyTree,
    x: Shaped[Array | np.ndarray, "..."],
    y: Shaped[Array | np.ndarray, "..."],
    num_updates: int,
    *,
    own_data: bool = False,
    batch_size: int | None = None,
    stop_tolerance: float | None = None,
    min_updates: int = 0,
    chunk_size: int | None = None,
    progress: bool | Callable[[FitProgress], None] = True,
    checkpoint: str | os.PathLike | None = None,
) -> Fit:
    """Maximise the ELBO from several starts, or for several data sets, in one program.

    Parameters
    ----------
    rng_key
        A key, from which one a run is folded, or an array of keys, one a run.
    algorithm
        What `deterministic_vi` returns.
    positions
        Starts, stacked: the leading axis is the run. `initial_position(..., shape=(runs,))`.
    x, y
        Data (n, ...), the same for all runs; with `own_data` (run, n, ...).
    num_updates
        Updates of each run, at most.
    own_data
        Whether each run has data of its own: twenty splits are twenty runs.
    batch_size
        Data an update. Each epoch visits the data in a new random order, and leaves out what is
        no whole batch. None: all data.
    stop_tolerance
        Where given, a run stops when its ELBO a datum changed by less than this over the last
        tenth of the updates made; 1e-3 nats, say. It is computed after each chunk for this, from
        all whole batches in one order and of the same draws: what an update sees is too noisy to
        tell. No run stops before the tenth chunk, and a fit of fewer is refused. Test data are
        never seen. A stopped run stays as it is while others go on, so that it equals a run of its
        own.
    min_updates
        No stop before: put the end of a warm-up of the divergence here.
    chunk_size
        Updates between two looks at the ELBO, a hundredth of all by default; rounded up to whole
        epochs.
    progress
        Whether to write a line on standard error, or a function that is called with a
        `FitProgress` after each chunk (for learning curves).
    checkpoint
        A folder, written after each chunk: the same call goes on where it was stopped, and ends
        with the same numbers.

    Returns
    -------
    A `Fit`.

    Raises
    ------
    ValueError
        If the data hold NaN, do not fit the network or the likelihood, or are fewer than a batch;
        if the positions are not stacked, or their number is not that of the data sets; a number
        that is not positive, or a stop_tolerance with fewer than ten chunks; a checkpoint of
        another fit (`jaxbnn.sampling.BadCheckpoint`); inside `jit`, `vmap` or `grad`.

    Examples
    --------
    >>> from jaxbnn.dvi import deterministic_vi, empirical_bayes, initial_position
    >>> from jaxbnn.networks import mlp
    >>> from jaxbnn.targets import HeteroscedasticGaussian
    >>> network = mlp((1, 2))
    >>> vi = deterministic_vi(network, HeteroscedasticGaussian(), empirical_bayes())
    >>> starts = initial_position(jax.random.key(0), network, shape=(3,))
    >>> x = np.linspace(-1, 1, 20)[:, None]
    >>> result = fit(jax.random.key(1), vi, starts, x, np.sin(x[:, 0]), 20, progress=False)
    >>> result.elbo.shape, result.num_updates.tolist()
    ((3, 20), [20, 20, 20])
    """
    why = "it visits the host between chunks; call it outside: it compiles training itself"
    check_outside("fit", why, rng_key, positions, x, y)
    check_numbers(num_updates, chunk_size, min_updates, stop_tolerance)
    check_checkpoint(checkpoint)
    check_progress(progress)
    runs, dtype = stacked_runs(positions)
    x, y, count = checked_data(algorithm, x, y, own_data, runs, dtype)
    batches = 1 if batch_size is None else whole_batches(batch_size, count)
    epochs = -(-(chunk_size or max(1, num_updates // 100)) // batches)
    size = epochs * batches
    check_chunks(num_updates, size, stop_tolerance)

    keys = one_key_a_run(rng_key, runs)
    cuts = {"batches": batches, "batch_size": batch_size, "own_data": own_data}
    how = cuts | {"step": algorithm.step, "epochs": epochs}
    none = np.zeros((runs, 0), dtype)
    states = jax.vmap(algorithm.init)(positions)
    start = _Runs(states, jnp.zeros(runs, jnp.int32), none, none)

    def fingerprint() -> dict[str, str]:
        stopping = {"stop_tolerance": f"{stop_tolerance}", "min_updates": f"{min_updates}"}
        lengths = {"num_updates": f"{num_updates}", "chunk_size": f"{size}"}
        return _fingerprint(keys, start, x, y, num_updates, how) | lengths | stopping

    programs = [_chunk, _elbo_of_all]
    with (
        reading_anew(programs, algorithm.step, algorithm.elbo),
        stored_training(checkpoint, fingerprint) as store,
    ):
        now, done = store.restored(start)
        own = progress if callable(progress) else None
        report = _line_from(done) if own is None and progress else own
        began = time.perf_counter()
        while done < num_updates and (np.asarray(now.status) == _RUNNING).any():
            states, status, elbo = _chunk(keys, *now[:2], x, y, done, num_updates, **how)
            done = min(done + size, num_updates)
            judged = now.judged
            if stop_tolerance is not None:
                found = _elbo_of_all(keys, states.position, x, y, elbo=algorithm.elbo, **cuts)
                judged = _longer(judged, found)
                if done >= min_updates:
                    updates = _ends(judged.shape[1], size, num_updates)
                    status = _stop(status, judged, updates, stop_tolerance * count)
            now = _Runs(states, status, _longer(now.elbo, elbo), judged)
            store.publish(now, done)
            if report is not None:
                seconds = time.perf_counter() - began
                report(FitProgress(done, num_updates, seconds, np.asarray(elbo), states.position))
    if progress and own is None and 0 < done < num_updates:
        print(f"all runs stopped after {done:,} updates", file=sys.stderr, flush=True)
    final = np.asarray(now.status)
    return Fit(
        now.states.position,
        now.states,
        _ends(now.elbo.shape[1], size, num_updates),
        np.asarray(now.elbo),
        np.asarray(now.states.num_updates),
        final == _CONVERGED,
        final == _DIVERGED,
    )


def _fingerprint(keys, start: _Runs, x, y, num_updates: int, how: dict) -> dict[str, str]:
    """Return what a fit was called with, one text a part."""
    program = _chunk.lower(keys, *start[:2], x, y, 0, num_updates, **how).as_text()
    # Settings of an optimiser may be numbers of its state, which no program shows.
    beside = start.states._replace(position=())
    return {
        "key": digest(keys),
        "set of positions": digest(start.states.position),
        "first state of the optimiser": digest(beside),
        "data set": digest((x, y)),
        "batch_size": f"{how['batch_size']}",
        "program (algorithm, or shapes of the data)": hashlib.sha256(program.encode()).hexdigest(),
    }


def _longer(curve: np.ndarray | Array, values: Array) -> np.ndarray:
    return np.concatenate([curve, np.asarray(values)[:, None]], axis=1)


def _ends(num_chunks: int, size: int, num_updates: int) -> Int[np.ndarray, " chunk"]:
    """Return the number of updates at the end of each chunk."""
    return np.minimum(size * np.arange(1, num_chunks + 1), num_updates)


@functools.partial(jax.jit, static_argnames=("step", "epochs", "batches", "batch_size", "own_data"))
def _chunk(
    keys, states, status, x, y, done, num_updates, *, step, epochs, batches, batch_size, own_data
):
    """Make epochs * batches updates of every run that is still running."""

    def one_run(key, state, status, x, y):
        key_data, key_step = jax.random.split(jax.random.clone(key))  # each chunk folds its own

        def update(carry, inputs):
            state, status, total, made = carry
            t, rows = inputs
            data = (x, y) if rows is None else (x[rows], y[rows])
            scale = None if rows is None else x.shape[0]
            new, info = step(jax.random.fold_in(key_step, t), state, *data, scale)
            moving = (status == _RUNNING) & (t < num_updates)
            leaves = jax.tree.leaves(new.position)
            finite = functools.reduce(
                jnp.logical_and, [jnp.isfinite(leaf).all() for leaf in leaves]
            ) & jnp.isfinite(info.elbo)
            state = jax.tree.map(lambda a, b: jnp.where(moving & finite, a, b), new, state)
            status = jnp.where(moving & ~finite, _DIVERGED, status)
            total = total + jnp.where(moving & finite, info.elbo, 0)
            made = made + (moving & finite).astype(made.dtype)
            return (state, status, total, made), None

        def epoch(carry, first):
            steps = first + jnp.arange(batches)
            rows = None
            if batch_size is not None:
                key_epoch = jax.random.fold_in(key_data, first)
                order = jax.random.permutation(key_epoch, x.shape[0])
                rows = order[: batches * batch_size].reshape(batches, batch_size)
            return jax.lax.scan(update, carry, (steps, rows))

        zero = jnp.zeros((), widest_float(state.position))
        carry = (state, status, zero, jnp.zeros((), jnp.int32))
        firsts = done + batches * jnp.arange(epochs)
        (state, status, total, made), _ = jax.lax.scan(epoch, carry, firsts)
        return state, status, jnp.where(made > 0, total / made.astype(zero.dtype), jnp.nan)

    axis = 0 if own_data else None
    return jax.vmap(one_run, in_axes=(0, 0, 0, axis, axis))(keys, states, status, x, y)


@functools.partial(jax.jit, static_argnames=("elbo", "batches", "batch_size", "own_data"))
def _elbo_of_all(keys, positions, x, y, *, elbo, batches, batch_size, own_data):
    """Return the ELBO of each run from all its whole batches, with the same draws every time."""

    def one_run(key, position, x, y):
        key = jax.random.split(jax.random.clone(key), 3)[2]  # the updates have the first two
        if batch_size is None:
            return elbo(position, x, y, key).elbo
        rows = jnp.arange(batches * batch_size).reshape(batches, batch_size)

        def part(r):
            return elbo(position, x[r], y[r], jax.random.clone(key), x.shape[0]).elbo

        return jnp.mean(jax.lax.map(part, rows))

    axis = 0 if own_data else None
    return jax.vmap(one_run, in_axes=(0, 0, axis, axis))(keys, positions, x, y)


def _stop(
    status: Array,
    judged: Float[np.ndarray, "run chunk"],
    updates: Int[np.ndarray, " chunk"],
    tolerance: float,
) -> Array:
    """Mark the runs whose ELBO moved by less than `tolerance` over the last tenth."""
    before = int(np.searchsorted(updates, 0.9 * updates[-1], side="right")) - 1
    if len(updates) < CHUNKS_TO_JUDGE or before < 0:
        return status
    still = np.abs(judged[:, -1] - judged[:, before]) < tolerance
    running = np.asarray(status) == _RUNNING
    return jnp.asarray(np.where(running & still, _CONVERGED, np.asarray(status)), jnp.int32)


def _line_from(begun: int) -> Callable[[FitProgress], None]:
    """Return what writes a line on standard error: redrawn on a terminal, else the last one."""

    def line(progress: FitProgress) -> None:
        is_last = progress.done == progress.total
        rate = (progress.done - begun) / max(progress.seconds, 1e-9)
        text = f"{progress.done:,}/{progress.total:,} updates | {rate:,.0f}/s | ELBO "
        text += ", ".join(f"{value:,.1f}" for value in progress.elbo[:4])
        text += ", ..." if len(progress.elbo) > 4 else ""
        if sys.stderr.isatty():
            print(f"\r{text:<100}", end="\n" if is_last else "", file=sys.stderr, flush=True)
        elif is_last:
            print(text, file=sys.stderr, flush=True)

    return line
