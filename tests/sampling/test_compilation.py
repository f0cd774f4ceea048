"""Tests of sampling.programs: what is traced and how often, and what the cache of programs keeps
alive.
"""

import dataclasses
import gc
import weakref

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from blackjax.base import SamplingAlgorithm

import jaxbnn
from tests.kit import counting
from tests.sampling.tiny import normal_log_density, walk

KEY = jax.random.key(1)
STARTS = np.array([[0.0, 1.0], [-1.0, 2.0]], np.float32)


def counted_kernel(log_density=normal_log_density):
    """A kernel with counters of its log density and of its step."""
    density = counting(log_density)
    kernel = walk(density)
    return SamplingAlgorithm(kernel.init, counting(kernel.step)), density


def run(kernel, num_samples=30, starts=STARTS, **options):
    options = {"progress": False, "chunk_size": 7} | options
    return jaxbnn.sample(KEY, kernel, starts, num_samples, **options)


def test_one_trace_for_sampling_whatever_the_chunks():
    kernel, density = counted_kernel()
    first = run(kernel)
    assert kernel.step.calls == 1
    assert density.calls == 2  # init, and the step
    second = run(kernel)
    jaxbnn.sample(jax.random.key(9), kernel, STARTS + 1, 30, chunk_size=7, progress=False)
    assert (kernel.step.calls, density.calls) == (1, 2)
    np.testing.assert_array_equal(first.positions, second.positions)


@pytest.mark.parametrize("adapts", [False, True])
def test_one_trace_more_for_warm_up(adapts):
    density = counting(normal_log_density)
    made = []

    def make_kernel(parameters, data):
        kernel = walk(density, parameters["step_size"])
        made.append(counting(kernel.step))
        return SamplingAlgorithm(kernel.init, made[-1])

    options = {
        "parameters": {"step_size": 1.0},  # a Python number, whose dtype is weak
        "num_warmup": 200,  # several visits to the host
        "reduce": {"m": jaxbnn.moments()},
        "adapt": jaxbnn.dual_averaging(0.3) if adapts else None,
    }
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        run(make_kernel, **options)
        assert sum(step.calls for step in made) == 2
        assert density.calls == 3
        run(make_kernel, **options | {"parameters": {"step_size": np.full(2, 0.5, np.float32)}})
        run(make_kernel, **options | {"num_warmup": 300})
    assert sum(step.calls for step in made) == 2
    assert density.calls == 3


@pytest.mark.parametrize("what", ["starts", "caches"])
def test_weak_types_are_not_compiled_twice(what):
    flat = lambda x: 0.0  # noqa: E731 - a flat target, its value a Python number
    kernel, density = counted_kernel(flat if what == "caches" else normal_log_density)
    starts = jnp.full((2, 2), 1.0)
    assert starts.weak_type
    run(kernel, starts=starts)
    assert (kernel.step.calls, density.calls) == (1, 2)


def test_a_schedule_is_one_trace_too():
    kernel, density = counted_kernel()
    run(kernel, 4, thinning=[1, 3, 12_000, 25_001], chunk_size=2)
    assert (kernel.step.calls, density.calls) == (1, 2)


def test_adaptations_made_anew_find_their_program():
    values = lambda t: {"step_size": 0.5}  # noqa: E731
    assert jaxbnn.schedule(values) is jaxbnn.schedule(values)
    assert jaxbnn.dual_averaging(0.3) is jaxbnn.dual_averaging(0.3)


def test_data_are_an_argument_and_not_a_constant():
    traces = counting(lambda: None)

    def make_kernel(parameters, data):
        traces()
        return walk(lambda x: -0.5 * jnp.sum((x - data["mean"]) ** 2))

    def fresh(parameters, data):
        return make_kernel(parameters, data)

    def options(mean):
        return {"data": {"mean": np.full(2, mean, np.float32)}}

    run(make_kernel, **options(0.0))
    calls = traces.calls
    moved = run(make_kernel, **options(1000.0))
    assert traces.calls == calls
    np.testing.assert_array_equal(moved.positions, run(fresh, **options(1000.0)).positions)
    assert moved.positions[:, -1].min() > 1


def test_data_are_not_in_the_program():
    from jaxbnn.sampling.loops import Chains, Options, RateSum, Span
    from jaxbnn.sampling.programs import programs_for

    def make_kernel(parameters, data):
        return walk(lambda x: -jnp.sum(data) * jnp.sum(x**2))

    programs = programs_for(make_kernel, Options(None, (), None, 3, None, False))
    data = jnp.ones(12_345)
    keys = jax.vmap(lambda c: jax.random.fold_in(KEY, c))(jnp.arange(2))
    states = jax.eval_shape(programs.init, keys, STARTS, None, data)
    chains = Chains(states, (), RateSum(jnp.zeros(2), jnp.zeros(2)), None)
    span = Span(np.uint32(0), np.int32(3), np.ones(3, np.int32), np.ones(3, bool))
    traced = programs.sampling.trace(keys, chains, data, span)
    assert traced.jaxpr.consts == []
    assert any(v.aval.shape == (12_345,) for v in traced.jaxpr.jaxpr.invars)


@pytest.mark.parametrize("kind", ["kernel", "make_kernel"])
def test_dead_kernels_are_let_go(kind):
    big = jnp.ones(1000)

    def build():
        kernel = walk(lambda x: -jnp.sum(x**2) * big[0])
        return kernel if kind == "kernel" else lambda parameters, data: kernel

    kernel = build()
    alive = weakref.ref(kernel.step if kind == "kernel" else kernel)
    run(kernel, num_warmup=3, reduce={"m": jaxbnn.moments()})
    run(kernel, thinning=2)
    del kernel
    gc.collect()
    assert alive() is None


def test_two_kernels_of_one_step_function_are_two():
    kernel = walk(normal_log_density)
    shifted = SamplingAlgorithm(lambda x, rng_key=None: kernel.init(x + 100), kernel.step)
    run(kernel)
    assert run(shifted).positions.min() > 80


@dataclasses.dataclass(eq=False)
class Factory:
    """A kernel's factory that is an object, with a method too."""

    scale: float

    def __call__(self, parameters, data):
        return walk(lambda x: -jnp.sum((x / self.scale) ** 2))

    def make(self, parameters, data):
        return self(parameters, data)


@dataclasses.dataclass
class UnhashableFactory(Factory):
    """Nothing to hang programs on."""


class Methods:
    """A kernel whose init and step are bound methods."""

    def __init__(self):
        self.kernel = walk(lambda x: -jnp.sum(x**2))

    def init(self, position, rng_key=None):
        return self.kernel.init(position, rng_key)

    def step(self, rng_key, state):
        return self.kernel.step(rng_key, state)


def test_objects_and_methods_are_kernels():
    methods = Methods()
    kernels = {
        "function": lambda parameters, data: walk(lambda x: -jnp.sum(x**2)),
        "object": Factory(1.0),
        "unhashable object": UnhashableFactory(1.0),
        "bound method": Factory(1.0).make,
        "bound init and step": SamplingAlgorithm(methods.init, methods.step),
    }
    positions = {
        name: jaxbnn.sample(KEY, kernel, STARTS, 5, progress=False).positions
        for name, kernel in kernels.items()
    }
    for name in positions:
        np.testing.assert_allclose(positions[name], positions["function"], rtol=1e-6, err_msg=name)


def test_factories_may_be_called_inside():
    scales = jnp.array([0.5, 2.0])

    @jax.jit
    def acceptance(scale):
        kernel = walk(normal_log_density, scale)
        return kernel.step(jax.random.key(2), kernel.init(jnp.zeros(2)))[1].acceptance_rate

    assert (jax.vmap(acceptance)(scales) > 0).all()


def test_a_function_that_completes_draws_is_traced_once_until_what_it_reads_changes():
    scale, calls = np.ones(2, np.float32), []

    def function(rng_key, position):
        calls.append(None)
        return jnp.asarray(scale) * position + jax.random.normal(rng_key, (2,))

    draws = run(walk(normal_log_density), 6)
    first = jaxbnn.complete(KEY, draws, function)
    np.testing.assert_array_equal(first, jaxbnn.complete(KEY, draws, function))
    jaxbnn.complete(jax.random.key(4), draws._replace(steps=draws.steps + 3), function)
    assert len(calls) == 1
    scale[0] = 3.0
    second = jaxbnn.complete(KEY, draws, function)
    np.testing.assert_allclose(second - first, draws.positions * [2.0, 0.0], atol=1e-5)
    seen = weakref.ref(function)
    del function
    gc.collect()
    assert seen() is None


def test_objects_that_complete_draws_are_read_in_each_call():
    @dataclasses.dataclass
    class Scaled:
        scale: float

        def __call__(self, rng_key, position):
            return self.scale * position

    draws, scaled = run(walk(normal_log_density), 6), Scaled(1.0)
    for function in (scaled, scaled.__call__):
        for scale in (2.0, 3.0):
            scaled.scale = scale
            np.testing.assert_allclose(
                jaxbnn.complete(KEY, draws, function), scale * draws.positions, rtol=1e-6
            )
