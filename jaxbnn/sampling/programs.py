"""The compiled programs of a run, each traced once for a kernel and a set of shapes.

The number of steps to run and the counters are arguments, so that chunks of any length run
the same program. Programs are kept beside their kernel for later calls and die with it: they
hold it by weak reference. They hold the options of a run themselves: a kernel that `collect`, a
reducer or an adaptation refers to stays alive, with its programs.
"""

import functools
import inspect
import weakref
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from blackjax.base import SamplingAlgorithm

from jaxbnn.numerics.outside import functions_in, taken
from jaxbnn.sampling.contract import check_made
from jaxbnn.sampling.keys import INIT_COUNTER, REFRESH_COUNTER, step_key
from jaxbnn.sampling.loops import (
    Options,
    Warmed,
    Warming,
    as_arrays,
    sample_chain,
)
from jaxbnn.sampling.order import in_order
from jaxbnn.sampling.warm_up_loops import adapt_chains, burn_in_chain

# Sets of options remembered a kernel; beyond that the oldest compiles anew.
_MOST_REMEMBERED = 16

_remembered: "weakref.WeakKeyDictionary[Callable, dict]" = weakref.WeakKeyDictionary()


class Programs(NamedTuple):
    """Jitted functions on all chains, of ordered PyTrees; see `_build` for their arguments."""

    init: Any
    init_adaptation: Any
    warm_up: Any
    final_parameters: Any
    refresh: Any
    init_reducers: Any
    sampling: Any
    finalise: Any


def programs_for(kernel: Any, options: Options, data: Any = None) -> Programs:
    """Return the programs of `kernel`, a SamplingAlgorithm or a make_kernel function.

    They are traced anew where what the kernel, an option or a function that the data hold takes
    from outside itself has changed.
    """
    parts = (kernel.init, kernel.step) if hasattr(kernel, "step") else (kernel,)
    try:
        if any(inspect.ismethod(part) for part in parts):
            raise TypeError("a bound method is made anew at each access and dies at once")
        alive = tuple(weakref.ref(part) for part in parts)
        remembered = _remembered.setdefault(parts[-1], {})
    except TypeError:  # nothing to hang the programs on: compiled for each call
        return _build(lambda: kernel, options)

    def get_kernel():
        # Called while tracing only, when the caller of `sample` holds the kernel.
        return SamplingAlgorithm(*(part() for part in alive)) if len(alive) == 2 else alive[0]()

    functions = functions_in(data)
    key = (alive, options, functions)
    of_kernel, of_others = taken(parts), taken((options, functions))
    # JAX keeps an array of NumPy's as a constant while any program that was traced with it lives.
    old = [one for one, held in remembered.items() if one[0] == alive and held[0] != of_kernel]
    for one in old:
        del remembered[one]
    _, known, programs = remembered.get(key, (None, None, None))
    if programs is None or known != of_others:
        remembered.pop(key, None)
        while len(remembered) >= _MOST_REMEMBERED:
            remembered.pop(next(iter(remembered)))
        programs = _build(get_kernel, options)
        remembered[key] = of_kernel, of_others, programs
    return programs


def _build(get_kernel: Callable[[], Any], options: Options) -> Programs:
    adapt, reduce = options.adapt, options.reduce

    def make(parameters, data):
        kernel = get_kernel()
        return kernel if hasattr(kernel, "step") else check_made(kernel(parameters, data))

    def init(chain_key, position, parameters, data):
        rng_key = step_key(chain_key, jnp.uint32(INIT_COUNTER))
        return as_arrays(make(parameters, data).init(position, rng_key))

    def init_adaptation(parameters):
        start = adapt.init if adapt.is_pooled else jax.vmap(adapt.init)
        return as_arrays(start(parameters))

    def final_parameters(adaptation):
        return (adapt.final if adapt.is_pooled else jax.vmap(adapt.final))(adaptation)

    def refresh(chain_key, state, parameters, data):
        rng_key = step_key(chain_key, jnp.uint32(REFRESH_COUNTER))
        return adapt.refresh(make(parameters, data), state, state.position, rng_key)

    def warm_up(keys, warming, data, span):
        if adapt is not None:
            return adapt_chains(options, make, keys, warming, data, span)
        burn_in = functools.partial(burn_in_chain, options, make)
        axes = Warming(0, None, 0)
        return jax.vmap(burn_in, (0, axes, None, None), Warmed(axes, 0, (0,) * len(reduce)))(
            keys, warming, data, span
        )

    def init_reducers(example):
        return tuple(jax.vmap(reducer.init)(x) for reducer, x in zip(reduce, example, strict=True))

    def finalise(reducers):
        """Results (per chain, of all chains merged), one pair a reducer."""
        results = []
        for reducer, r in zip(reduce, reducers, strict=True):
            first, rest = jax.tree.map(lambda x: x[0], r), jax.tree.map(lambda x: x[1:], r)
            merged, _ = jax.lax.scan(functools.partial(fold, reducer), first, rest)
            results.append((jax.vmap(reducer.finalise)(r), reducer.finalise(merged)))
        return results

    def fold(reducer, merged, r):
        return reducer.merge(merged, r), None

    return Programs(
        init=jax.jit(jax.vmap(in_order(init), (0, 0, 0, None))),
        init_adaptation=jax.jit(in_order(init_adaptation)),
        warm_up=jax.jit(in_order(warm_up)),
        final_parameters=jax.jit(in_order(final_parameters)),
        refresh=jax.jit(jax.vmap(in_order(refresh), (0, 0, 0, None))),
        init_reducers=jax.jit(in_order(init_reducers)),
        # Not wrapped by `in_order`: as few calls as can be lie above the kernel's step.
        sampling=jax.jit(
            jax.vmap(functools.partial(sample_chain, options, make), (0, 0, None, None))
        ),
        finalise=jax.jit(in_order(finalise)),
    )
