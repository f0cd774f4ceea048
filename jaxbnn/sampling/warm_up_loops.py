"""The loops of warm-up, as traced functions: burning in, and adapting.

Burning in is written for one chain and mapped over the chains outside, as sampling is. An adapting
warm-up changes the parameters after each step and may pool the chains; it is written for all chains
at once.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import Array, PyTree

from jaxbnn.sampling.contract import check_kept, check_step
from jaxbnn.sampling.keys import REFRESH_COUNTER, step_key
from jaxbnn.sampling.loops import (
    Options,
    Span,
    Warmed,
    Warming,
    add_rate,
    counter_at,
    look,
    rate_of,
    run_loop,
    trace_once,
    zeros,
)


def burn_in_chain(
    options: Options, make: Callable, chain_key: Array, warming: Warming, data: PyTree, span: Span
) -> Warmed:
    """Run steps of one chain and keep nothing."""
    state, _, parameters = warming
    kernel = make(parameters, data)
    step, result = trace_once(kernel.step, chain_key, state)
    check_step(state, result)
    info_shape = result[1]
    example = jax.eval_shape(lambda s, i: look(options, s, i), state, info_shape).reduced

    def body(i, carry):
        state, rate_sum = carry
        state, info = step(step_key(chain_key, counter_at(span.start, i)), state)
        return state, add_rate(rate_sum, rate_of(info))

    rate_sum = zeros(jax.eval_shape(rate_of, info_shape))
    state, rate_sum = run_loop(span.count, body, (state, rate_sum))
    return Warmed(warming._replace(states=state), rate_sum, zeros(example))


def adapt_chains(
    options: Options, make: Callable, keys: Array, warming: Warming, data: PyTree, span: Span
) -> Warmed:
    """Run steps of all chains and adapt the parameters after each."""
    states, adaptation, parameters = warming
    adapt = options.adapt
    update = adapt.update if adapt.is_pooled else jax.vmap(adapt.update, (0, None, 0, 0))

    def step_chain(rng_key, state, parameters):
        result = make(parameters, data).step(rng_key, state)
        check_step(state, result)
        return *result, rate_of(result[1])

    def refresh_chain(rng_key, state, parameters):
        kernel = make(parameters, data)
        return adapt.refresh(kernel, state, state.position, rng_key)

    step, (_, info_shape, rate_shape) = trace_once(jax.vmap(step_chain), keys, states, parameters)
    example = jax.eval_shape(jax.vmap(lambda s, i: look(options, s, i)), states, info_shape).reduced

    def body(i, carry):
        states, adaptation, parameters, rate_sum = carry
        counter = counter_at(span.start, i)
        rng_keys = jax.vmap(step_key, (0, None))(keys, counter)
        states, infos, rates = step(rng_keys, states, parameters)
        # Signed: a schedule that counts down, or negates, must not wrap around.
        adapted = update(adaptation, counter.astype(jnp.int32), states, infos)
        check_kept("adapt.update", "(a, parameters)", (adaptation, parameters), adapted)
        adaptation, parameters = adapted
        if adapt.refresh is not None:
            refresh_keys = jax.vmap(step_key, (0, None))(rng_keys, jnp.uint32(REFRESH_COUNTER))
            states = jax.vmap(refresh_chain)(refresh_keys, states, parameters)
        rate_sum = add_rate(rate_sum, rates)
        return states, adaptation, parameters, rate_sum

    rate_sum = zeros(rate_shape)
    *warmed, rate_sum = run_loop(span.count, body, (states, adaptation, parameters, rate_sum))
    return Warmed(Warming(*warmed), rate_sum, zeros(example))
