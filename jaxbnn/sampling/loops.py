"""The loops of a run, as traced functions: adapting, burning in, sampling.

Sampling is written for one chain and mapped over the chains outside, so that whatever
`make_kernel(parameters, data)` computes from its arguments is computed once a chunk and not
once a step. An adapting warm-up changes the parameters after each step and may pool the
chains; it is written for all chains at once.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.extend
import jax.numpy as jnp
from jaxtyping import Array, PyTree

from jaxbnn.sampling import records
from jaxbnn.sampling.keys import REFRESH_COUNTER, step_key


class Options(NamedTuple):
    """What the loops depend on besides the kernel and the shapes.

    `reduce` is a tuple of reducers, `capacity` the most records that a chunk can hold, and
    `is_thinned` says whether more than one step may lie between two records.
    """

    collect: Callable | None
    reduce: tuple
    adapt: Any
    capacity: int
    is_thinned: bool


class Chunk(NamedTuple):
    """What one sampling loop returns; leaves (chain, ...).

    `positions` and `infos` have `capacity` records, of which the first `count` are filled;
    `rate_sum` is the sum of acceptance rates, None for a kernel that reports none.
    """

    states: Any
    reducers: tuple
    rate_sum: Any
    positions: PyTree
    infos: PyTree


class _Seen(NamedTuple):
    """What is looked at after a step."""

    collected: PyTree
    info: PyTree
    rate: Any
    reduced: tuple


def scalars(info: PyTree) -> PyTree:
    """Keep the entries of an Info that are one number a step; the others become None."""
    return jax.tree.map(lambda leaf: leaf if jnp.ndim(leaf) == 0 else None, info)


def look(options: Options, state: Any, info: Any) -> _Seen:
    """Collect what the run keeps and what its reducers want to see."""
    collected = None if options.collect is None else options.collect(state, info)
    reduced = tuple(
        collected if reducer.collect is None else reducer.collect(state, info)
        for reducer in options.reduce
    )
    return _Seen(collected, scalars(info), getattr(info, "acceptance_rate", None), reduced)


def _trace_once(function: Callable, *example: PyTree) -> tuple[Callable, PyTree]:
    """Trace `function` here and now: a callable that never calls it again, and its shapes."""
    jaxpr, shapes = jax.make_jaxpr(function, return_shape=True)(*example)
    structure = jax.tree.structure(shapes)
    flat = jax.extend.core.jaxpr_as_fun(jaxpr)
    return lambda *args: jax.tree.unflatten(structure, flat(*jax.tree.leaves(args))), shapes


def _zeros(shapes: PyTree) -> PyTree:
    return jax.tree.map(lambda s: jnp.zeros(s.shape, s.dtype), shapes)


def _add_rate(total: Any, rate: Any) -> Any:
    return None if rate is None else total + jnp.where(jnp.isnan(rate), jnp.zeros_like(rate), rate)


def _counter(start: Array, i: Array) -> Array:
    return start + i.astype(jnp.uint32)


def sample_chain(
    options: Options, kernel, chain_key, state, reducers, start, count, gaps, is_record
) -> Chunk:
    """Make `count` records of one chain from step counter `start`.

    Thinned, `gaps[i]` steps lead to record i, and reducers see it where `is_record[i]`.
    """

    def step_and_look(rng_key, state):
        state, info = kernel.step(rng_key, state)
        return state, look(options, state, info)

    step, (_, shapes) = _trace_once(step_and_look, chain_key, state)

    def advance(rng_key, state, reducers, rate_sum):
        state, seen = step(rng_key, state)
        reducers = tuple(
            reducer.update(r, x) if reducer.every_step else r
            for reducer, r, x in zip(options.reduce, reducers, seen.reduced, strict=True)
        )
        if options.is_thinned:
            rate_sum = _add_rate(rate_sum, seen.rate)
        return (state, reducers, rate_sum), seen

    if options.is_thinned:
        nothing_seen = _zeros(shapes)

        def to_record(i, counter, carry):
            def body(j, loop):
                return advance(step_key(chain_key, _counter(counter, j)), *loop[0])

            carry, seen = jax.lax.fori_loop(0, gaps[i], body, (carry, nothing_seen))
            return _counter(counter, gaps[i]), carry, seen
    else:
        # All keys of the chunk at once: one vectorised pass instead of one small hash a step.
        counters = _counter(start, jnp.arange(options.capacity))
        rng_keys = jax.vmap(step_key, (None, 0))(chain_key, counters)

        def to_record(i, counter, carry):
            return counter, *advance(rng_keys[i], *carry)

    def update(reducer, r, x, i):
        if reducer.every_step:
            return r
        new = reducer.update(r, x)
        if not options.is_thinned:
            return new
        return jax.tree.map(lambda n, o: jnp.where(is_record[i], n, o), new, r)

    def record(i, loop):
        counter, carry, buffers = loop
        counter, (state, reducers, rate_sum), seen = to_record(i, counter, carry)
        buffers = records.write(buffers, (seen.collected, seen.info), i)
        reducers = tuple(
            update(reducer, r, x, i)
            for reducer, r, x in zip(options.reduce, reducers, seen.reduced, strict=True)
        )
        return counter, (state, reducers, rate_sum), buffers

    kept = (shapes.collected, shapes.info)
    rate_sum = _zeros(shapes.rate) if options.is_thinned else None
    loop = (start, (state, reducers, rate_sum), records.make_buffers(kept, options.capacity))
    _, (state, reducers, rate_sum), buffers = jax.lax.fori_loop(0, count, record, loop)
    positions, infos = records.read(buffers, kept)
    rates = getattr(infos, "acceptance_rate", None)
    if rates is not None and not options.is_thinned:
        # Every step is a record: summed here in one pass instead of step by step.
        is_filled = jnp.arange(options.capacity) < count
        rate_sum = jnp.sum(jnp.where(is_filled & ~jnp.isnan(rates), rates, 0))
    return Chunk(state, reducers, rate_sum, positions, infos)


def burn_in_chain(options: Options, kernel, chain_key, state, start, count) -> tuple:
    """Run `count` steps of one chain and keep nothing.

    Returns the state, the sum of acceptance rates and an example of what reducers look at.
    """
    step, (_, info_shape) = _trace_once(kernel.step, chain_key, state)
    example = jax.eval_shape(lambda s, i: look(options, s, i), state, info_shape).reduced

    def body(i, carry):
        state, rate_sum = carry
        state, info = step(step_key(chain_key, _counter(start, i)), state)
        return state, _add_rate(rate_sum, getattr(info, "acceptance_rate", None))

    rate_sum = _zeros(getattr(info_shape, "acceptance_rate", None))
    state, rate_sum = jax.lax.fori_loop(0, count, body, (state, rate_sum))
    return state, rate_sum, _zeros(example)


def adapt_chains(
    options: Options, make, keys, states, adaptation, parameters, data, start, count
) -> tuple:
    """Run `count` steps of all chains and adapt the parameters after each.

    Returns states, adaptation, parameters, sums of acceptance rates, and an example of what
    reducers look at.
    """
    adapt = options.adapt
    update = adapt.update if adapt.is_pooled else jax.vmap(adapt.update, (0, None, 0, 0))

    def step_chain(rng_key, state, parameters):
        return make(parameters, data).step(rng_key, state)

    def refresh_chain(rng_key, state, parameters):
        kernel = make(parameters, data)
        return adapt.refresh(kernel, state, state.position, rng_key)

    step, (_, info_shape) = _trace_once(jax.vmap(step_chain), keys, states, parameters)
    example = jax.eval_shape(jax.vmap(lambda s, i: look(options, s, i)), states, info_shape).reduced

    def body(i, carry):
        states, adaptation, parameters, rate_sum = carry
        counter = _counter(start, i)
        rng_keys = jax.vmap(step_key, (0, None))(keys, counter)
        states, infos = step(rng_keys, states, parameters)
        adaptation, parameters = update(adaptation, counter, states, infos)
        if adapt.refresh is not None:
            refresh_keys = jax.vmap(step_key, (0, None))(rng_keys, jnp.uint32(REFRESH_COUNTER))
            states = jax.vmap(refresh_chain)(refresh_keys, states, parameters)
        rate_sum = _add_rate(rate_sum, getattr(infos, "acceptance_rate", None))
        return states, adaptation, parameters, rate_sum

    rate_sum = _zeros(getattr(info_shape, "acceptance_rate", None))
    carry = (states, adaptation, parameters, rate_sum)
    return (*jax.lax.fori_loop(0, count, body, carry), _zeros(example))
