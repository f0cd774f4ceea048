"""The loop of sampling, as a traced function, and what it shares with those of warm-up.

Sampling is written for one chain and mapped over the chains outside, so that whatever
`make_kernel(parameters, data)` computes from its arguments is computed once a chunk and not
once a step.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.extend
import jax.numpy as jnp
from jaxtyping import Array, ArrayLike, PyTree

from jaxbnn.sampling import records
from jaxbnn.sampling.contract import check_kept, check_step, position_of
from jaxbnn.sampling.keys import step_key
from jaxbnn.sampling.order import in_order, ordered, restored


class Options(NamedTuple):
    """What the loops depend on besides the kernel and the shapes.

    `reduce` is a tuple of reducers, `capacity` the most records that a chunk can hold,
    `chunk_bytes` the most bytes of records it should hold a chain (None: as many as there
    are), and `is_thinned` says whether more than one step may lie between two records.
    """

    collect: Callable | None
    reduce: tuple
    adapt: Any
    capacity: int
    chunk_bytes: int | None
    is_thinned: bool


class Chunk(NamedTuple):
    """What one sampling loop returns; leaves (chain, ...).

    `num_records` were made, those asked for or fewer if there was no room for more; the first
    `num_records` of `positions` and `infos` are filled. `rate_sum` is the sum of acceptance rates
    so far; None where the kernel reports none, or where `infos` has that of every step.
    """

    num_records: Array
    states: Any
    reducers: tuple
    rate_sum: Any
    positions: PyTree
    infos: PyTree


class Chains(NamedTuple):
    """What a chunk of sampling begins with; leaves (chain, ...)."""

    states: Any
    reducers: tuple
    rate_sum: "RateSum"
    parameters: PyTree


class Warming(NamedTuple):
    """What a chunk of warm-up begins with; an adaptation may be one a chain or one of all."""

    states: Any
    adaptation: Any
    parameters: PyTree


class Warmed(NamedTuple):
    """What a chunk of warm-up returns.

    `rate_sum` is the sum of its acceptance rates; `example` is shaped like what reducers see.
    """

    warming: Warming
    rate_sum: Any
    example: tuple


class Span(NamedTuple):
    """Which steps to run: `count` of them, or of records, from step counter `start` on.

    Thinned, `gaps[i]` steps lead to record i, and reducers see it where `is_record[i]`.
    """

    start: Any
    count: Any
    gaps: Any = None
    is_record: Any = None


class _Seen(NamedTuple):
    """What is looked at after a step."""

    collected: PyTree
    info: PyTree
    rate: Any
    reduced: tuple


def as_arrays(tree: PyTree) -> PyTree:
    """Fix all dtypes: a weak one, as of `jnp.full(3, 1.0)`, would change and compile anew."""
    return jax.tree.map(
        lambda x: x if _is_key(x) else jax.lax.convert_element_type(x, jnp.asarray(x).dtype), tree
    )


def scalars(info: PyTree) -> PyTree:
    """Keep the entries of an Info that are one number a step; the others become None."""
    return jax.tree.map(
        lambda leaf: None if jnp.ndim(leaf) or _is_key(leaf) else jnp.asarray(leaf), info
    )


def rate_of(info: Any) -> Array | None:
    """Return the acceptance rate as a float; None for a kernel without one a step."""
    rate = getattr(info, "acceptance_rate", None)
    if rate is None or jnp.ndim(rate):
        return None
    rate = jnp.asarray(rate)
    is_float = jnp.issubdtype(rate.dtype, jnp.inexact)
    return rate if is_float else rate.astype(jnp.result_type(float))


def look(options: Options, state: Any, info: Any) -> _Seen:
    """Collect what the run keeps and what its reducers want to see."""
    collect = options.collect
    collected = position_of(state) if collect is None else collect(state, info)
    reduced = tuple(
        collected if reducer.collect is None else reducer.collect(state, info)
        for reducer in options.reduce
    )
    for leaf in jax.tree.leaves(collected):
        if not hasattr(leaf, "dtype") and not isinstance(leaf, int | float | complex):
            raise ValueError(f"collect must return arrays, but returns {leaf!r:.80}.")
        if collect is not None and _is_key(leaf):
            raise ValueError("collect returns a PRNG key, which NumPy cannot hold; leave it out.")
    as_array = lambda tree: jax.tree.map(jnp.asarray, tree)  # noqa: E731
    if collect is None:
        return _Seen(None, None, rate_of(info), as_array(reduced))
    return _Seen(as_array(collected), scalars(info), rate_of(info), as_array(reduced))


def _is_key(leaf: Any) -> bool:
    return jnp.issubdtype(jnp.result_type(leaf), jax.dtypes.prng_key)


def trace_once(function: Callable, *example: PyTree) -> tuple[Callable, PyTree]:
    """Trace `function` here and now: a callable that never calls it again, and its shapes."""
    jaxpr, shapes = jax.make_jaxpr(function, return_shape=True)(*example)
    flat = jax.extend.core.jaxpr_as_fun(jaxpr)

    def call(*args):
        # Outputs that do not depend on the arguments come back as Python numbers.
        leaves = [
            leaf if isinstance(leaf, jax.Array) else jnp.asarray(leaf, shape.dtype)
            for leaf, shape in zip(
                flat(*jax.tree.leaves(args)), jax.tree.leaves(shapes), strict=True
            )
        ]
        return jax.tree.unflatten(jax.tree.structure(shapes), leaves)

    return call, shapes


def run_loop(count: Any, body: Callable, start: PyTree) -> PyTree:
    """Call `body(i, carry) -> carry` for i below `count`; the carry is compiled in its order."""
    return restored(jax.lax.fori_loop(0, count, in_order(body), ordered(start)))


def zeros(shapes: PyTree) -> PyTree:
    """Return zeros of these shapes and dtypes."""
    return jax.tree.map(lambda s: jnp.zeros(s.shape, s.dtype), shapes)


def add_rate(total: Any, rate: Any) -> Any:
    """Add a rate, NaN as a rejection, to a sum that is told and not kept."""
    return None if rate is None else total + jnp.where(jnp.isnan(rate), jnp.zeros_like(rate), rate)


class RateSum(NamedTuple):
    """A sum of acceptance rates and what its roundings lost, of the opposite sign.

    Steps are added one after the other, over all chunks, so that the sum does not depend on how a
    run was cut into chunks; a plain float32 sum would stand still after 2^24 of them.
    """

    total: Array
    lost: Array

    def add(self, rate: Array | None) -> "RateSum":
        """Add one step's rate (Neumaier 1974); NaN counts as a rejection."""
        if rate is None:
            return self
        rate = jnp.where(jnp.isnan(rate), jnp.zeros_like(rate), rate).astype(self.total.dtype)
        total = self.total + rate
        is_large = jnp.abs(self.total) >= jnp.abs(rate)
        large, small = jnp.where(is_large, self.total, rate), jnp.where(is_large, rate, self.total)
        return RateSum(total, self.lost + ((large - total) + small))


def counter_at(start: ArrayLike, i: ArrayLike) -> Array:
    """Return the counter of the i-th step from `start` on; under `disable_jit`, i is a number."""
    return jnp.asarray(start, jnp.uint32) + jnp.asarray(i, jnp.uint32)


def _pick_key(rng_keys: Array) -> Callable[[Array], Array]:
    """Return `i -> rng_keys[i]` as each used once: keys that a loop closes over count as reused."""
    if not _is_key(rng_keys):  # old-style keys are plain numbers
        return lambda i: rng_keys[i]
    impl, words = jax.random.key_impl(rng_keys), jax.random.key_data(rng_keys)
    return lambda i: jax.random.wrap_key_data(words[i], impl=impl)


def sample_chain(
    options: Options, make: Callable, chain_key: Array, chains: Chains, data: PyTree, span: Span
) -> Chunk:
    """Make the records of one chain that are asked for, or as many as a chunk has room for.

    What is collected is known here only, so that here it is decided how much a chunk can hold.
    """
    (state, reducers, rate_sum, parameters), data = restored((chains, data))
    kernel, (start, count, gaps, is_record) = make(parameters, data), span

    def step_and_look(rng_key, state):
        result = kernel.step(rng_key, state)
        check_step(state, result)
        return result[0], look(options, *result)

    step, (_, shapes) = trace_once(step_and_look, chain_key, state)
    kept = ordered((shapes.collected, shapes.info))
    capacity = options.capacity
    if options.chunk_bytes is not None:
        capacity = max(1, min(capacity, options.chunk_bytes // records.bytes_of(kept)))
    count = jnp.minimum(count, jnp.int32(capacity))
    # Where the Info of every step is kept, the host adds them up: a sum here costs a write a step.
    sums_rates = options.is_thinned or options.collect is None

    def updated(reducer, r, x):
        new = reducer.update(r, x)
        check_kept("the update of a reducer", "r", r, new)
        return new

    def advance(rng_key, state, reducers, rate_sum):
        state, seen = step(rng_key, state)
        reducers = tuple(
            updated(reducer, r, x) if reducer.every_step else r
            for reducer, r, x in zip(options.reduce, reducers, seen.reduced, strict=True)
        )
        if sums_rates:
            rate_sum = rate_sum.add(seen.rate)
        return (state, reducers, rate_sum), seen

    if options.is_thinned:
        nothing_seen = zeros(shapes)

        def to_record(i, counter, carry):
            def body(j, loop):
                return advance(step_key(chain_key, counter_at(counter, j)), *loop[0])

            carry, seen = run_loop(gaps[i], body, (carry, nothing_seen))
            return counter_at(counter, gaps[i]), carry, seen
    else:
        # All keys of the chunk at once: one vectorised pass instead of one small hash a step.
        counters = counter_at(start, jnp.arange(capacity))
        key_at = _pick_key(jax.vmap(step_key, (None, 0))(chain_key, counters))

        def to_record(i, counter, carry):
            return counter, *advance(key_at(i), *carry)

    def update(reducer, r, x, i):
        if reducer.every_step:
            return r
        new = updated(reducer, r, x)
        if not options.is_thinned:
            return new
        return jax.tree.map(lambda n, o: jnp.where(is_record[i], n, o), new, r)

    def record(i, loop):
        counter, carry, buffers = loop
        counter, (state, reducers, rate_sum), seen = to_record(i, counter, carry)
        buffers = records.write(buffers, ordered((seen.collected, seen.info)), i)
        reducers = tuple(
            update(reducer, r, x, i)
            for reducer, r, x in zip(options.reduce, reducers, seen.reduced, strict=True)
        )
        return counter, (state, reducers, rate_sum), buffers

    carry = (state, reducers, rate_sum if sums_rates else None)
    loop = (start, carry, records.make_buffers(kept, capacity))
    _, (state, reducers, rate_sum), buffers = run_loop(count, record, loop)
    positions, infos = restored(records.read(buffers, kept))
    has_sum = sums_rates and shapes.rate is not None
    rate_sum = rate_sum if has_sum else None
    return ordered(Chunk(count, state, reducers, rate_sum, positions, infos))
