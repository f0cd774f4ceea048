"""A kernel's own state outlives the moves of others, and a State class says what is its own."""

import dataclasses
import importlib
import inspect
import pkgutil
from typing import Any, NamedTuple

import blackjax
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from blackjax.base import SamplingAlgorithm

import jaxbnn
from jaxbnn.kernels import metropolis
from jaxbnn.kernels.refresh import BLACKJAX_STATES
from tests.sampling.tiny import walk


class Adaptive(NamedTuple):
    position: Any
    log_density: Any
    log_scale: Any
    auxiliary = ("log_scale",)


class Forgetful(NamedTuple):
    """The same without `auxiliary`."""

    position: Any
    log_density: Any
    log_scale: Any


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class AdaptiveData:
    position: Any
    log_density: Any
    log_scale: Any
    auxiliary = ("log_scale",)


def adaptive(log_density, make_state=Adaptive):
    """A random walk that learns its scale from what it accepts."""

    def init(position, rng_key=None):
        return make_state(position, log_density(position), jnp.float32(-4.0))

    def step(rng_key, state):
        key_proposal, key_accept = jax.random.split(rng_key)
        x = state.position
        new = x + jnp.exp(state.log_scale) * jax.random.normal(key_proposal, x.shape)
        values = (state.position, state.log_density), (new, log_density(new))
        (x, value), info = metropolis(key_accept, values[1][1] - values[0][1], *values)
        return make_state(x, value, state.log_scale + 0.1 * (info.acceptance_rate - 0.44)), info

    return SamplingAlgorithm(init, step)


def normal(x):
    return -0.5 * jnp.sum(x**2)


def whole_of(position):
    return normal(jnp.concatenate([jnp.ravel(leaf) for leaf in jax.tree.leaves(position)]))


def ladder(kernel):
    return jaxbnn.power_posterior(
        lambda t, _: kernel, lambda x: 0.0, lambda x: 0.0 * jnp.sum(x), [0.0, 1.0]
    )


NESTS = {
    "cycle": lambda k: jaxbnn.cycle(k, walk(normal)),
    "mix": lambda k: jaxbnn.mix([k, walk(normal)], [1.0, 0.0]),
    "repeat": lambda k: jaxbnn.cycle(jaxbnn.repeat(k, 1), walk(normal)),
    "in_turn": lambda k: jaxbnn.cycle(jaxbnn.in_turn(k), walk(normal)),
    "cycle of mix of cycle": lambda k: jaxbnn.cycle(
        jaxbnn.mix([jaxbnn.cycle(k, walk(normal))]), walk(normal)
    ),
    "jittered": lambda k: jaxbnn.cycle(jaxbnn.jittered(lambda _: k, 0.1), walk(normal)),
    "power_posterior": ladder,
    "cycle of power_posterior": lambda k: jaxbnn.cycle(ladder(k), walk(normal)),
    "counted": lambda k: jaxbnn.cycle(jaxbnn.wide.count_accepted(k), walk(normal)),
}


def scales(state):
    """The adaptive kernels' scales anywhere in a state."""
    kinds = (Adaptive, AdaptiveData)
    leaves = jax.tree.leaves(state, is_leaf=lambda s: isinstance(s, kinds))
    return np.concatenate([np.ravel(s.log_scale) for s in leaves if isinstance(s, kinds)])


@pytest.mark.short("repeat-AdaptiveData")
@pytest.mark.parametrize(
    ("name", "make_state"),
    [*((name, Adaptive) for name in NESTS), ("cycle", AdaptiveData), ("repeat", AdaptiveData)],
)
def test_an_adaptive_kernel_adapts_in_every_composition(name, make_state):
    kernel = NESTS[name](adaptive(normal, make_state))
    steps, step = 5, jax.jit(kernel.step)
    state = jax.jit(kernel.init)(jnp.zeros(2))
    for t in range(steps):
        state, _ = step(jax.random.key(t), state)
    # It accepts almost all, and so grows by almost .1 (1 - .44) a step.
    np.testing.assert_allclose(scales(state), -4 + 0.056 * steps, atol=0.02 * steps)


def test_on_block_keeps_what_its_kernel_has_learnt():
    def on(name, make):
        return jaxbnn.on_block(lambda whole: make(lambda x: whole_of(whole(x))), name)

    kernel = jaxbnn.cycle(on(("a", 0), adaptive), on("b", walk))
    state = kernel.init({"a": [jnp.zeros(2)], "b": jnp.zeros(1)})
    for t in range(5):
        state, _ = kernel.step(jax.random.key(t), state)
    assert -3.8 < float(state.states[0].block.log_scale) < -3.6


@pytest.mark.parametrize(
    "compose",
    [
        lambda k: jaxbnn.cycle(k, walk(normal)),
        lambda k: jaxbnn.mix([walk(normal), k]),
        lambda k: jaxbnn.cycle(jaxbnn.repeat(k, 2), walk(normal)),
        lambda k: jaxbnn.cycle(jaxbnn.wide.count_accepted(k), walk(normal)),
        ladder,
    ],
    ids=["cycle", "mix", "repeat", "inside another state", "power_posterior"],
)
def test_a_state_that_says_nothing_is_refused(compose):
    kernel = compose(adaptive(normal, Forgetful))
    with pytest.raises(TypeError, match=r"^Forgetful, .*write `auxiliary = \(\)` into the class"):
        kernel.init(jnp.zeros(2))


@pytest.mark.long
def test_alone_it_needs_to_say_nothing():
    kernel = jaxbnn.repeat(adaptive(normal, Forgetful), 2)
    state, _ = kernel.step(jax.random.key(0), kernel.init(jnp.zeros(2)))
    assert float(state.log_scale) > -4


def state_class(**body):
    class Made(NamedTuple):
        position: Any
        log_density: Any
        log_scale: Any

    for name, value in body.items():
        setattr(Made, name, value)
    return Made


class Annotated(NamedTuple):
    position: Any
    log_density: Any
    log_scale: Any
    auxiliary: tuple = ()


class Homeless(NamedTuple):
    where: Any
    log_density: Any
    log_scale: Any
    auxiliary = ()


@pytest.mark.parametrize(
    ("make_state", "words"),
    [
        (state_class(auxiliary=("log_scales",)), "a tuple of names among its fields"),
        (state_class(auxiliary=("log_scale")), r"but is 'log_scale'; .*auxiliary = \("),
        (state_class(auxiliary=("position",)), "`position` not among them"),
        (Annotated, "auxiliary of Annotated is a field; write it without an annotation"),
        (Homeless, r"must have a field `position`, but Homeless has \['where'"),
        (
            lambda *values: dict(zip("abc", values, strict=True)),
            "NamedTuple or a dataclass",
        ),
        (lambda *values: values[0], "NamedTuple or a dataclass"),
    ],
    ids=["a typo", "no comma", "the position", "a field", "no position", "a dict", "an array"],
)
def test_what_is_wrong_with_a_state_is_said(make_state, words):
    with pytest.raises(TypeError, match=words):
        jaxbnn.cycle(adaptive(normal, make_state)).init(jnp.zeros(2))


def test_a_state_of_another_kernel_is_refused():
    kernel = walk(normal)
    foreign = blackjax.mala(normal, 0.1).init(jnp.zeros(2))
    with pytest.raises(TypeError, match="was given a MALAState, but the kernel makes a WalkState"):
        jaxbnn.refresh(kernel, foreign, jnp.zeros(2))


def test_auxiliary_fields_are_carried_over_and_the_rest_is_not():
    kernel = blackjax.ghmc(
        lambda x: -0.5 * jnp.sum(x**2 * jnp.array([1.0, 3.0])), 0.7, jnp.ones(2), 0.3, 0.2
    )
    state = kernel.init(jnp.zeros(2), jax.random.key(1))
    moved = jaxbnn.refresh(kernel, state, jnp.ones(2), jax.random.key(2))
    np.testing.assert_array_equal(moved.momentum, state.momentum)
    np.testing.assert_array_equal(moved.slice, state.slice)
    np.testing.assert_allclose(moved.logdensity, -2.0)
    np.testing.assert_allclose(moved.logdensity_grad, [-1.0, -3.0])


# Not the state of a kernel with `init` and `step`: particles of nested sampling.
NO_KERNELS = {"StateWithLogLikelihood"}


def test_every_state_of_blackjax_is_known():
    found = {}
    for module in pkgutil.walk_packages(blackjax.__path__, "blackjax."):
        if module.name.startswith(("blackjax.mcmc", "blackjax.sgmcmc", "blackjax.ns")):
            members = inspect.getmembers(importlib.import_module(module.name), inspect.isclass)
            found |= {name: kind for name, kind in members if name.endswith("State")}
    with_position = {
        name: kind._fields
        for name, kind in found.items()
        if "position" in getattr(kind, "_fields", ())
    }
    assert set(BLACKJAX_STATES) == set(with_position) - NO_KERNELS
    for name, fields in with_position.items():
        # Whatever is neither a log density, its gradient nor made of the position is its own.
        cached = ("position", "log", "theta_star", "U_")
        own = [field for field in fields if not field.startswith(cached)]
        assert name in NO_KERNELS or set(BLACKJAX_STATES[name]) == set(own), name


def states_of(package):
    for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
        for name, kind in vars(importlib.import_module(module.name)).items():
            is_state = inspect.isclass(kind) and name.endswith("State") and not name.startswith("_")
            if is_state and kind.__module__ == module.name and hasattr(kind, "_fields"):
                yield kind


# Of the optimiser, and of the loop of another library.
OTHER_STATES = {"VIState", "NumPyroState"}


def test_every_state_of_ours_says_what_is_its_own():
    kinds = {kind.__name__: kind for kind in states_of(jaxbnn)}
    assert {"PCNState", "GibbsState", "ReadOutState", "CycleState", "BlockState"} <= set(kinds)
    silent = [name for name, kind in kinds.items() if not hasattr(kind, "auxiliary")]
    assert set(silent) <= OTHER_STATES
    for name in set(kinds) - OTHER_STATES:
        assert set(kinds[name].auxiliary) <= set(kinds[name]._fields), name


def test_divergences_of_the_components_are_reported():
    def diverging(threshold):
        def init(position, rng_key=None):
            return Adaptive(position, jnp.zeros(()), jnp.zeros(()))

        def step(rng_key, state):
            ratio = jnp.where(state.position > threshold, jnp.nan, 0.0)
            new = state._replace(position=state.position + 1)
            return metropolis(rng_key, ratio, state, new)

        return SamplingAlgorithm(init, step)

    silent = SamplingAlgorithm(
        lambda x, rng_key=None: Adaptive(x, x, x), lambda key, state: (state, ())
    )
    at = jnp.zeros(())
    for kernel, expected in (
        (jaxbnn.cycle(silent, diverging(-1.0)), True),
        (jaxbnn.cycle(diverging(5.0), diverging(5.0)), False),
        (jaxbnn.repeat(diverging(0.0), 2), True),
        (jaxbnn.mix([diverging(-1.0), silent], [1.0, 0.0]), True),
        (jaxbnn.mix([diverging(-1.0), silent], [0.0, 1.0]), False),
    ):
        _, info = kernel.step(jax.random.key(0), kernel.init(at))
        assert bool(info.is_divergent) == expected
    _, info = jaxbnn.cycle(silent).step(jax.random.key(0), jaxbnn.cycle(silent).init(at))
    assert info.is_divergent is None
