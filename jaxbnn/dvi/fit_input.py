"""What `fit` is given: checks of its numbers, its starts, its keys and its data."""

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Key, PyTree

from jaxbnn.numerics import check_count
from jaxbnn.numerics.arguments import a_or_an, check_flag, check_key, typed_key
from jaxbnn.numerics.arrays import widest_float
from jaxbnn.numerics.checks import check_positive_number
from jaxbnn.numerics.data import finite_array, warn_of_rounded_inputs
from jaxbnn.targets.rounding import as_computed

# How many values of the ELBO there must be before a run is said to stand still.
CHUNKS_TO_JUDGE = 10


def check_numbers(num_updates, chunk_size, min_updates, stop_tolerance) -> None:
    """Raise unless the counts are whole and the tolerance is positive."""
    check_count("num_updates", num_updates, 0)
    check_count("min_updates", min_updates, 0)
    if chunk_size is not None:
        check_count("chunk_size", chunk_size)
    if stop_tolerance is not None:
        check_positive_number("stop_tolerance", stop_tolerance, "give nats a datum, or None")


def check_chunks(num_updates: int, size: int, stop_tolerance: Any) -> None:
    """Raise where a fit ends before its first look at whether it may stop."""
    chunks = -(-num_updates // size)
    if stop_tolerance is not None and 0 < chunks < CHUNKS_TO_JUDGE:
        raise ValueError(
            f"stop_tolerance is first used after {CHUNKS_TO_JUDGE} chunks, but {num_updates} "
            f"updates are {chunks} of {size}; give a smaller chunk_size or larger batches, or "
            "stop_tolerance=None."
        )


def stacked_runs(positions: PyTree) -> tuple[int, Any]:
    """Return the number of runs and the dtype of positions stacked along a leading axis."""
    leaves = jax.tree.leaves(positions)
    lengths = {jnp.shape(leaf)[:1] for leaf in leaves}
    if len(lengths) != 1 or lengths == {()}:
        raise ValueError(
            "positions must be stacked, with one leading axis of runs on every leaf, but these are "
            f"{sorted(lengths)}; use initial_position(..., shape=(runs,)), or x[None] for one."
        )
    return lengths.pop()[0], widest_float(positions)


def one_key_a_run(rng_key: Array, runs: int) -> Key[Array, " run"]:
    """Return the keys that were given, or one folded in for each run."""
    is_typed = isinstance(rng_key, jax.Array) and jnp.issubdtype(rng_key.dtype, jax.dtypes.prng_key)
    is_many = np.ndim(rng_key) == (1 if is_typed else 2)
    check_key("rng_key", rng_key[0] if is_many and len(rng_key) else rng_key)
    rng_key = typed_key(rng_key)
    if rng_key.ndim == 0:
        return jax.vmap(lambda run: jax.random.fold_in(rng_key, run))(jnp.arange(runs))
    if len(rng_key) != runs:
        raise ValueError(f"there are {len(rng_key)} keys for {runs} runs; give one, or as many.")
    return rng_key


def checked_data(algorithm, x, y, own_data, runs, dtype) -> tuple[Array, Array, int]:
    """Return x and y in the dtype of q, and how many data a run has; raise if they do not fit."""
    if not (hasattr(algorithm, "check") and hasattr(algorithm, "step")):
        raise TypeError(
            f"algorithm must be what deterministic_vi returns, but is {a_or_an(algorithm)}."
        )
    check_flag("own_data", own_data)
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
    kept_x, kept_y = finite_array("x", x), finite_array("y", y)
    count = kept_x.shape[lead]
    if count == 0:
        raise ValueError("x and y have no rows; give at least one datum.")
    # As they were given: large numbers that were rounded do not say so.
    flat = math.prod(kept_x.shape[: lead + 1])
    x, y = (
        jnp.reshape(data, (flat, *data.shape[lead + 1 :]))
        if isinstance(data, jax.Array)
        else np.reshape(data, (flat, *np.shape(data)[lead + 1 :]))
        for data in (x, y)
    )
    algorithm.check(x, as_computed(y, dtype))
    warn_of_rounded_inputs(x, np.dtype(dtype))
    is_real = jnp.issubdtype(kept_y.dtype, jnp.floating)
    return kept_x.astype(dtype), kept_y.astype(dtype) if is_real else kept_y, count


def whole_batches(batch_size: int, count: int) -> int:
    """Return how many batches an epoch has."""
    check_count("batch_size", batch_size)
    if batch_size > count:
        raise ValueError(
            f"batch_size must be at most the number of data, {count}, but is {batch_size}; "
            "give a smaller one, or None for all data."
        )
    return count // batch_size
