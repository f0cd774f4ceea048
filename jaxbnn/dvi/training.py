"""Running variational inference: several seeds and data splits as one program, with stopping."""

import functools
import math
import sys
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Key, PRNGKeyArray, PyTree, Shaped

from jaxbnn.dvi.algorithm import DeterministicVI
from jaxbnn.numerics import check_finite

_RUNNING, _CONVERGED, _DIVERGED = 0, 1, 2
_CHUNKS_TO_JUDGE = 10


class Fit(NamedTuple):
    """The result of `fit`; leading axes are the runs.

    Attributes
    ----------
    positions
        q of each run, leaves (run, ...).
    states
        The algorithm's states, for `sample` under `jax.vmap` or to go on from.
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
        Since the start.
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
        tenth of the updates made (means over chunks); 1e-3 nats, say. Test data are never seen.
        A stopped run stays as it is while others go on, so that it equals a run of its own.
    min_updates
        No stop before: put the end of a warm-up of the divergence here.
    chunk_size
        Updates between two looks at the ELBO, a hundredth of all by default; rounded up to whole
        epochs.
    progress
        Whether to write a line on standard error, or a function that is called with a
        `FitProgress` after each chunk (for learning curves).

    Returns
    -------
    A `Fit`.

    Raises
    ------
    ValueError
        If the data hold NaN, do not fit the network or the likelihood, or are fewer than a batch;
        if the positions are not stacked, or their number is not that of the data sets.

    Examples
    --------
    >>> from jaxbnn.dvi import deterministic_vi, empirical_bayes, initial_position
    >>> from jaxbnn.networks import mlp
    >>> from jaxbnn.targets import heteroscedastic_gaussian
    >>> network = mlp((1, 2))
    >>> vi = deterministic_vi(network, heteroscedastic_gaussian(), empirical_bayes())
    >>> starts = initial_position(jax.random.key(0), network, shape=(3,))
    >>> x = np.linspace(-1, 1, 20)[:, None]
    >>> result = fit(jax.random.key(1), vi, starts, x, np.sin(x[:, 0]), 20, progress=False)
    >>> result.elbo.shape, result.num_updates.tolist()
    ((3, 20), [20, 20, 20])
    """
    runs, dtype = _runs(positions)
    x, y, count = _checked_data(algorithm, x, y, own_data, runs, dtype)
    batches = 1 if batch_size is None else _batches(batch_size, count)
    epochs = -(-(chunk_size or max(1, num_updates // 100)) // batches)
    size = epochs * batches

    keys = _one_key_a_run(rng_key, runs)
    states = jax.vmap(algorithm.init)(positions)
    status = jnp.zeros(runs, jnp.int32)
    report = _line if progress is True else progress or None
    start, done, history, updates = time.perf_counter(), 0, [], []
    while done < num_updates and (np.asarray(status) == _RUNNING).any():
        states, status, elbo = _chunk(
            keys, states, status, x, y, done, num_updates,
            step=algorithm.step, epochs=epochs, batches=batches, batch_size=batch_size,
            own_data=own_data,
        )  # fmt: skip
        done = min(done + size, num_updates)
        history.append(np.asarray(elbo))
        updates.append(done)
        if stop_tolerance is not None and done >= min_updates:
            status = _stop(status, history, updates, stop_tolerance * count)
        if report is not None:
            seconds = time.perf_counter() - start
            report(FitProgress(done, num_updates, seconds, history[-1], states.position))
    final = np.asarray(status)
    return Fit(
        states.position,
        states,
        np.asarray(updates, int),
        np.stack(history, axis=1) if history else np.zeros((runs, 0)),
        np.asarray(states.num_updates),
        final == _CONVERGED,
        final == _DIVERGED,
    )


@functools.partial(jax.jit, static_argnames=("step", "epochs", "batches", "batch_size", "own_data"))
def _chunk(
    keys, states, status, x, y, done, num_updates, *, step, epochs, batches, batch_size, own_data
):
    """Make epochs * batches updates of every run that is still running."""

    def one_run(key, state, status, x, y):
        key_data, key_step = jax.random.split(key)

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
            made = made + (moving & finite)
            return (state, status, total, made), None

        def epoch(carry, first):
            steps = first + jnp.arange(batches)
            rows = None
            if batch_size is not None:
                key_epoch = jax.random.fold_in(key_data, first)
                order = jax.random.permutation(key_epoch, x.shape[0])
                rows = order[: batches * batch_size].reshape(batches, batch_size)
            return jax.lax.scan(update, carry, (steps, rows))

        zero = jnp.zeros((), jax.tree.leaves(state.position)[0].dtype)
        carry = (state, status, zero, jnp.zeros((), jnp.int32))
        firsts = done + batches * jnp.arange(epochs)
        (state, status, total, made), _ = jax.lax.scan(epoch, carry, firsts)
        return state, status, jnp.where(made > 0, total / made.astype(zero.dtype), jnp.nan)

    axis = 0 if own_data else None
    return jax.vmap(one_run, in_axes=(0, 0, 0, axis, axis))(keys, states, status, x, y)


def _stop(status: Array, history: list, updates: list, tolerance: float) -> Array:
    """Mark the runs whose ELBO moved by less than `tolerance` over the last tenth."""
    before = int(np.searchsorted(updates, 0.9 * updates[-1], side="right")) - 1
    if len(history) < _CHUNKS_TO_JUDGE or before < 0:
        return status
    still = np.abs(history[-1] - history[before]) < tolerance
    running = np.asarray(status) == _RUNNING
    return jnp.asarray(np.where(running & still, _CONVERGED, np.asarray(status)), jnp.int32)


def _line(progress: FitProgress) -> None:
    """Write one line on standard error: redrawn on a terminal, else the last one only."""
    is_last = progress.done == progress.total
    rate = progress.done / max(progress.seconds, 1e-9)
    text = f"{progress.done:,}/{progress.total:,} updates | {rate:,.0f}/s | ELBO "
    text += ", ".join(f"{value:,.1f}" for value in progress.elbo[:4])
    text += ", ..." if len(progress.elbo) > 4 else ""
    if sys.stderr.isatty():
        print(f"\r{text:<100}", end="\n" if is_last else "", file=sys.stderr, flush=True)
    elif is_last:
        print(text, file=sys.stderr, flush=True)


def _runs(positions: PyTree) -> tuple[int, Any]:
    leaves = jax.tree.leaves(positions)
    lengths = {jnp.shape(leaf)[:1] for leaf in leaves}
    if len(lengths) != 1 or lengths == {()}:
        raise ValueError(
            "positions must be stacked, with one leading axis of runs on every leaf, but these are "
            f"{sorted(lengths)}; use initial_position(..., shape=(runs,)), or x[None] for one."
        )
    return lengths.pop()[0], leaves[0].dtype


def _one_key_a_run(rng_key: Array, runs: int) -> Key[Array, " run"]:
    if not jnp.issubdtype(rng_key.dtype, jax.dtypes.prng_key):
        rng_key = jax.random.wrap_key_data(rng_key)
    if rng_key.ndim == 0:
        return jax.vmap(lambda run: jax.random.fold_in(rng_key, run))(jnp.arange(runs))
    if len(rng_key) != runs:
        raise ValueError(f"there are {len(rng_key)} keys for {runs} runs; give one, or as many.")
    return rng_key


def _checked_data(algorithm, x, y, own_data, runs, dtype) -> tuple[Array, Array, int]:
    lead = 1 if own_data else 0
    if (
        np.ndim(x) <= lead
        or np.ndim(y) <= lead
        or np.shape(x)[: lead + 1] != np.shape(y)[: lead + 1]
    ):
        axes = "(run, n, ...)" if own_data else "(n, ...)"
        raise ValueError(
            f"x and y must have shapes {axes} with the same leading axes, but have {np.shape(x)} "
            f"and {np.shape(y)}; give one target per datum."
        )
    if own_data and np.shape(x)[0] != runs:
        raise ValueError(
            f"there are {np.shape(x)[0]} data sets for {runs} runs; give one position a data set."
        )
    check_finite("x", x)
    check_finite("y", y)
    x, y = jnp.asarray(x), jnp.asarray(y)
    count = x.shape[lead]
    flat = math.prod(x.shape[: lead + 1])
    algorithm.check(x.reshape(flat, *x.shape[lead + 1 :]), y.reshape(flat, *y.shape[lead + 1 :]))
    y = y.astype(dtype) if jnp.issubdtype(y.dtype, jnp.floating) else y
    return x.astype(dtype), y, count


def _batches(batch_size: int, count: int) -> int:
    if not 1 <= batch_size <= count:
        raise ValueError(
            f"batch_size must be between 1 and the number of data, {count}, but is {batch_size}; "
            "give a smaller one, or None for all data."
        )
    return count // batch_size
