"""What every kernel owes the contract, in a table: one `KernelCase` a kernel.

Each check takes a case and asserts one thing. `conformance_params(KERNELS)` is the
product of the cases with all checks, for `pytest.mark.parametrize("check, case", ...)`.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import blackjax
import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from blackjax.base import SamplingAlgorithm

from tests.kit.sizes import QUICK


class KernelCase(NamedTuple):
    """A kernel to check.

    Attributes
    ----------
    name
        Name of the row.
    make
        make(log_density_fn, step_size) -> SamplingAlgorithm; log_density_fn takes a position (a
        tuple of layers with "w" and "b") and returns a scalar. Kernels that take a log
        likelihood take the same function.
    step_size
        A step size that accepts some of the proposals.
    metropolis
        Whether its Info reports `acceptance_rate` and `is_accepted`.
    needs_key
        Whether `init` draws something (a momentum, a slice).
    third_party
        Reason why it doesn't run under strict dtypes, rank promotion or key-reuse checks.
    wraps
        Whether it only calls kernels that have rows of their own; the checks that compile it whole
        are then long tests.
    known
        {name of a check: reason} for checks known to fail; they must fail.
    """

    name: str
    make: Callable[[Callable, object], SamplingAlgorithm]
    step_size: float = 0.3
    metropolis: bool = True
    needs_key: bool = False
    third_party: str | None = None
    wraps: bool = False
    known: Mapping[str, str] = {}


def start(dtype=jnp.float32):
    """Return a position shaped like a network's parameters; its first entry is negative."""
    return (
        {"w": jnp.asarray([[-0.3], [0.4]], dtype), "b": jnp.asarray([0.2], dtype)},
        (),
        {"w": jnp.asarray([[0.5]], dtype)},
    )


def log_density(position):
    """Return a skew log density, finite everywhere."""
    x = jnp.concatenate([jnp.ravel(leaf) for leaf in jax.tree.leaves(position)])
    return jnp.sum(x - jnp.exp(x)) - 0.5 * jnp.sum((x[1:] - x[:-1]) ** 2)


def check_interface(case: KernelCase):
    """A SamplingAlgorithm with init(position, rng_key=None) and step(rng_key, state)."""
    kernel = case.make(log_density, case.step_size)
    assert isinstance(kernel, SamplingAlgorithm)
    position, key = start(), jax.random.key(0)
    states = [jax.eval_shape(lambda p, k: kernel.init(p, k), position, key)]
    if not case.needs_key:
        states.append(jax.eval_shape(lambda p: kernel.init(p), position))
        chex.assert_trees_all_equal_structs(*states)
        chex.assert_trees_all_equal_shapes_and_dtypes(*states)
    state: Any = states[0]
    is_named = isinstance(state, tuple) and hasattr(state, "_fields")
    assert is_named, "the state must be a NamedTuple"
    chex.assert_trees_all_equal_shapes_and_dtypes(state.position, position)
    result = jax.eval_shape(lambda k, s: kernel.step(k, s), key, state)
    assert len(result) == 2, "step must return (state, info)"
    if case.metropolis:
        info = result[1]
        assert info.acceptance_rate.shape == ()
        assert info.is_accepted.shape == ()
        assert info.is_accepted.dtype == bool


def check_state_keeps_its_type(case: KernelCase):
    """Structure, shapes, dtypes and weak types of the state are the same after a step."""
    for dtype, wide in ((jnp.float32, False), (jnp.float64, True)):
        with jax.enable_x64(wide):
            _assert_stable(case, dtype)


def check_float32_in_a_float64_session(case: KernelCase):
    """A float32 position gives a float32 state even where float64 is allowed."""
    with jax.enable_x64(True):
        _assert_stable(case, jnp.float32)


def _assert_stable(case, dtype):
    key = jax.random.key(0)
    kernel = case.make(log_density, jnp.asarray(case.step_size, dtype))
    before = jax.eval_shape(lambda p, k: kernel.init(p, k), start(dtype), key)
    after, info = jax.eval_shape(lambda k, s: kernel.step(k, s), key, before)
    chex.assert_trees_all_equal_structs(before, after)
    for old, new in zip(jax.tree.leaves(before), jax.tree.leaves(after), strict=True):
        kinds = [(leaf.shape, leaf.dtype, leaf.weak_type) for leaf in (old, new)]
        assert kinds[0] == kinds[1], f"a leaf of the state turns from {kinds[0]} to {kinds[1]}"
    for leaf in jax.tree.leaves((before, after, info)):
        if jnp.issubdtype(leaf.dtype, jnp.floating):
            assert leaf.dtype == dtype, f"{leaf.dtype} appears with a position of {dtype}"


NUM_CHAINS = 64
# Which log density a chain of `_run` has.
PLAIN, NAN_BEYOND, NAN_ELSEWHERE = range(3)


def _nan_where(which, position):
    """Return the log density; NaN on a half-space, or everywhere but at the start, if asked."""
    first, second = position[0]["w"][0, 0], position[0]["w"][1, 0]
    origin = start()[0]["w"]
    at_start = (first == origin[0, 0]) & (second == origin[1, 0])
    is_number = (which == PLAIN) | jnp.where(which == NAN_BEYOND, first < 0, at_start)
    return jnp.where(is_number, log_density(position), jnp.nan)


def _run(case: KernelCase) -> Callable:
    """Return one chain of five steps, (key, step size, which log density) -> position, rates."""

    def run(key, step_size, which):
        kernel = case.make(lambda position: _nan_where(which, position), step_size)
        key_init, key_steps = jax.random.split(key)

        def step(state, i):
            state, info = kernel.step(jax.random.fold_in(key_steps, i), state)
            return state, info.acceptance_rate if case.metropolis else jnp.zeros(())

        state, rates = jax.lax.scan(step, kernel.init(start(), key_init), jnp.arange(5))
        return state.position, rates

    return run


_PROGRAMS: dict[str, Callable] = {}


def _program(case: KernelCase) -> Callable:
    """Return the chains of a kernel as one program, compiled once for all checks of it."""
    if case.name not in _PROGRAMS:
        chains = jax.vmap(_run(case), in_axes=(0, 0, None))
        _PROGRAMS[case.name] = jax.jit(chains, compiler_options=QUICK)
    return _PROGRAMS[case.name]


def check_vmap_equals_one_chain(case: KernelCase):
    """Under jit and vmap over keys and traced step sizes, each chain is as if alone.

    The same program, run twice, gives the same numbers; positions stay finite; some chain moves.
    """
    keys = jax.random.split(jax.random.key(1), NUM_CHAINS)
    step_sizes = case.step_size * jnp.linspace(0.5, 1.0, NUM_CHAINS, dtype=jnp.float32)
    chains = _program(case)
    positions, rates = chains(keys, step_sizes, PLAIN)
    again, _ = chains(jax.random.clone(keys), step_sizes, PLAIN)
    chex.assert_trees_all_equal(positions, again)
    chex.assert_tree_all_finite(positions)
    assert np.all((np.asarray(rates) >= 0) & (np.asarray(rates) <= 1))
    alone, _ = jax.jit(_run(case), compiler_options=QUICK)(
        jax.random.clone(keys)[2], step_sizes[2], PLAIN
    )
    chex.assert_trees_all_close(alone, jax.tree.map(lambda x: x[2], positions), rtol=1e-4)
    assert any(
        np.any(np.asarray(new) != np.asarray(old)[None])
        for new, old in zip(jax.tree.leaves(positions), jax.tree.leaves(start()), strict=True)
    )


def check_nan_is_never_accepted(case: KernelCase):
    """With a log density that is NaN on a half-space, chains stay in the other half and move.

    With one that is NaN everywhere but at the start, they stay at the start.
    """
    keys = jax.random.split(jax.random.key(2), NUM_CHAINS)
    step_sizes = jnp.full(NUM_CHAINS, case.step_size, jnp.float32)
    chains = _program(case)
    half, _ = chains(keys, step_sizes, NAN_BEYOND)
    chex.assert_tree_all_finite(half)
    first = np.asarray(half[0]["w"])[:, 0, 0]
    assert np.all(first < 0), "a proposal whose log density is NaN was accepted"
    assert np.any(first != first[0]), "no chain moved"
    stuck, _ = chains(jax.random.clone(keys), step_sizes, NAN_ELSEWHERE)
    assert np.all(np.asarray(stuck[0]["w"]) == np.asarray(start()[0]["w"])), (
        "a proposal whose log density is NaN was accepted"
    )


def check_lowers_everywhere(case: KernelCase):
    """The step lowers for cpu, cuda and tpu in float32, without calls to the host."""
    kernel = case.make(log_density, jnp.asarray(case.step_size, jnp.float32))
    key = jax.random.key(0)
    state = jax.eval_shape(lambda p, k: kernel.init(p, k), start(), key)
    exported = jax.export.export(
        jax.jit(lambda k, s: kernel.step(k, s)), platforms=("cpu", "cuda", "tpu")
    )(key, state)
    program = exported.mlir_module()
    assert "callback" not in program, "the step calls the host"
    assert "xf64>" not in program, "the step computes in float64"
    assert "tensor<f64>" not in program, "the step computes in float64"


def check_blackjax_loop(case: KernelCase):
    """It runs in blackjax.util.run_inference_algorithm (traced, not compiled)."""
    kernel = case.make(log_density, case.step_size)

    def loop(key_init, key):
        if case.needs_key:
            begin = {"initial_state": kernel.init(start(), key_init)}
        else:
            begin = {"initial_position": start()}
        _, history = blackjax.util.run_inference_algorithm(
            key, kernel, num_steps=3, transform=lambda state, info: state.position, **begin
        )
        return history

    history = jax.eval_shape(loop, jax.random.key(3), jax.random.key(4))
    assert all(leaf.shape[0] == 3 for leaf in jax.tree.leaves(history))


CHECKS = (
    check_interface,
    check_state_keeps_its_type,
    check_float32_in_a_float64_session,
    check_vmap_equals_one_chain,
    check_nan_is_never_accepted,
    check_lowers_everywhere,
    check_blackjax_loop,
)


def conformance_params(cases: Sequence[KernelCase]) -> list:
    """Return pytest parameters (check, case): all checks of all kernels."""
    params = []
    for case in cases:
        unknown = set(case.known) - {check.__name__ for check in CHECKS}
        if unknown:
            raise ValueError(f"{case.name}: no check is called {sorted(unknown)}.")
        for check in CHECKS:
            marks = []
            if case.third_party:
                marks.append(pytest.mark.third_party(reason=case.third_party))
            if case.wraps and check in (check_vmap_equals_one_chain, check_nan_is_never_accepted):
                marks.append(pytest.mark.long)
            if check.__name__ in case.known:
                marks.append(pytest.mark.xfail(strict=True, reason=case.known[check.__name__]))
            params.append(
                pytest.param(check, case, id=f"{case.name}-{check.__name__[6:]}", marks=marks)
            )
    return params
