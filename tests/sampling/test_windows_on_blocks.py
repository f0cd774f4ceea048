"""Of a kernel on a block or on a vector, the windows follow what that kernel moves itself."""

import blackjax
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from blackjax.adaptation.window_adaptation import build_schedule

import jaxbnn
from jaxbnn.kernels import BlockState, CycleState, VectorState
from jaxbnn.kernels.compose import ComposedInfo
from tests.sampling.test_windows import JumpInfo, JumpState, Pushed
from tests.sampling.tiny import walk

pytestmark = pytest.mark.third_party(reason="BlackJAX's adaptation promotes dtypes")

NUM_WARMUP, NUM_CHAINS, SIZE = 40, 3, 4
METRIC = pytest.mark.parametrize("metric", ["draws", "gradients"])
DENSE = pytest.mark.parametrize("is_dense", [False, True], ids=["diagonal", "dense"])
POOLED = pytest.mark.parametrize("is_pooled", [False, True], ids=["per chain", "pooled"])


def block(state):
    """A position that has two numbers more, which never move."""
    rest = jnp.zeros((*jax.tree.leaves(state.position)[0].shape[:-1], 2))
    return BlockState({"moved": state.position, "rest": rest}, state)


def vector(state):
    return VectorState({"b": state.position[..., :1], "w": state.position[..., 1:]}, state)


WRAPS = {
    "block": block,
    "block of a block": lambda state: block(block(state)),
    "vector": vector,
    "vector on a block": lambda state: block(vector(state)),
    "block of a vector": lambda state: VectorState(block(state).position, block(state)),
}


def in_a_cycle(state):
    return CycleState(state.position, (state, JumpState(state.position)))


def learnt(adapt, states, *, is_dense=False, size=SIZE):
    """Return the matrix after one window of these states; step by step, so that little compiles."""
    matrix = jnp.eye(size) if is_dense else jnp.ones(size)
    parameters = {"step_size": jnp.array(0.1), "inverse_mass_matrix": matrix}
    info = JumpInfo(jnp.array(0.7))
    if adapt.is_pooled:
        stack = lambda x: jnp.stack([x] * NUM_CHAINS)  # noqa: E731
        parameters, info = jax.tree.map(stack, (parameters, info))
    is_slow, is_end = np.asarray(build_schedule(NUM_WARMUP), bool).T
    steps = [*np.flatnonzero(is_slow)[: len(states) - 1], *np.flatnonzero(is_end)]
    infos = ComposedInfo(info.acceptance_rate, (info, info), None)
    with jax.disable_jit():
        a = adapt.init(parameters)
        for step, state in zip(steps, states, strict=True):
            a, _ = adapt.update(
                a, jnp.int32(step), state, infos if isinstance(state, CycleState) else info
            )
        return adapt.final(a)["inverse_mass_matrix"]


def pushed(rng, is_pooled, size=SIZE):
    shape = (6, NUM_CHAINS, size) if is_pooled else (6, size)
    numbers = jnp.asarray(rng.standard_normal((2, *shape)) * np.arange(1, size + 1), jnp.float32)
    return [Pushed(position, gradient) for position, gradient in zip(*numbers, strict=True)]


@METRIC
@DENSE
@POOLED
@pytest.mark.parametrize("wrap", WRAPS.values(), ids=WRAPS)
def test_what_the_kernel_itself_moves_is_followed(rng, wrap, metric, is_dense, is_pooled):
    states = pushed(rng, is_pooled)
    options = {"metric": metric, "is_pooled": is_pooled}
    alone = jaxbnn.window_adaptation(NUM_WARMUP, **options)
    expected = learnt(alone, states, is_dense=is_dense)
    assert not np.allclose(expected, np.eye(SIZE) if is_dense else 1)
    wrapped = [wrap(state) for state in states]
    np.testing.assert_array_equal(learnt(alone, wrapped, is_dense=is_dense), expected)
    first = jaxbnn.window_adaptation(NUM_WARMUP, component=0, **options)
    cycled = [in_a_cycle(state) for state in wrapped]
    np.testing.assert_array_equal(learnt(first, cycled, is_dense=is_dense), expected)


def test_several_blocks_are_followed_in_the_kernel_s_order(rng):
    """All of the position is moved, but the kernel has its parts the other way round."""
    states = pushed(rng, is_pooled=False)
    adapt = jaxbnn.window_adaptation(NUM_WARMUP)
    split = [Pushed((state.position[:3], state.position[3:]), None) for state in states]
    wrapped = [BlockState({"a": s.position[1], "b": s.position[0]}, s) for s in split]
    np.testing.assert_array_equal(learnt(adapt, wrapped), learnt(adapt, states))


@DENSE
@POOLED
@pytest.mark.parametrize("component", [0, None])
def test_a_matrix_of_the_whole_position_is_learnt_whole(rng, component, is_dense, is_pooled):
    """As it always was: kernels on two blocks may each be given their part of one matrix."""
    states = pushed(rng, is_pooled)
    whole = [state._replace(position=block(state).position) for state in states]
    cycled = [in_a_cycle(block(state)) for state in states]
    found, expected = (
        learnt(
            jaxbnn.window_adaptation(NUM_WARMUP, component=number, is_pooled=is_pooled),
            seen, is_dense=is_dense, size=SIZE + 2,
        )
        for number, seen in ((component, cycled), (None, whole))
    )  # fmt: skip
    np.testing.assert_array_equal(found, expected)


ADVICE = "; of a cycle, say by component which kernel it is for"


@POOLED
@pytest.mark.parametrize(
    ("metric", "component", "is_dense", "size", "message"),
    [
        ("draws", 0, False, 5, "5 numbers a chain, but .* position has 4; make them equal[.]"),
        ("draws", 0, True, 5, "5 rows a chain, but .* position has 4; make them equal[.]"),
        ("gradients", 0, True, 5, "5 rows a chain, but .* position has 4; make them equal[.]"),
        ("draws", None, False, 4, f"4 numbers a chain, but .* position has 6; .*{ADVICE}"),
        ("draws", None, True, 4, f"4 rows a chain, but .* position has 6; .*{ADVICE}"),
    ],
)
def test_a_matrix_that_does_not_fit_gets_one_sentence(
    rng, is_pooled, metric, component, is_dense, size, message
):
    states = [in_a_cycle(block(state)) for state in pushed(rng, is_pooled)]
    adapt = jaxbnn.window_adaptation(
        NUM_WARMUP, metric=metric, component=component, is_pooled=is_pooled
    )
    with pytest.raises(ValueError, match=message):
        learnt(adapt, states, is_dense=is_dense, size=size)


def test_a_kernel_on_a_block_without_gradient_is_named(rng):
    states = [block(JumpState(state.position)) for state in pushed(rng, is_pooled=False)]
    adapt = jaxbnn.window_adaptation(NUM_WARMUP, metric="gradients")
    with pytest.raises(ValueError, match=r"keeps the gradient, but .*JumpState"):
        learnt(adapt, states)


SCALES = jnp.array([1.0, 10.0, 3.0])
STARTS = {
    "moved": {"b": np.ones((4, 1), np.float32), "w": np.ones((4, 2), np.float32)},
    "rest": np.ones((4, 2), np.float32),
}


def log_density(position):
    moved = jnp.concatenate([position["moved"]["b"], position["moved"]["w"]])
    return -0.5 * jnp.sum((moved / SCALES) ** 2) - 0.5 * jnp.sum(position["rest"] ** 2)


def hmc_in_a_cycle(parameters, data):
    step_size, matrix = parameters["step_size"], parameters["inverse_mass_matrix"]

    def hmc(whole):
        return blackjax.hmc(lambda moved: log_density(whole(moved)), step_size, matrix, 5)

    def random_walk(whole):
        return walk(lambda rest: log_density(whole(rest)), 1.0)

    return jaxbnn.cycle(jaxbnn.on_block(hmc, "moved"), jaxbnn.on_block(random_walk, "rest"))


def nuts_on_a_vector(parameters, data):
    step_size, matrix = parameters["step_size"], parameters["inverse_mass_matrix"]

    def nuts(whole):
        def on_numbers(moved):
            density = lambda numbers: log_density(whole(moved(numbers)))  # noqa: E731
            return blackjax.nuts(density, step_size, matrix, max_num_doublings=4)

        return jaxbnn.on_vector(on_numbers)

    return jaxbnn.on_block(nuts, "moved")


@pytest.mark.parametrize(
    ("make_kernel", "options", "is_dense"),
    [
        (hmc_in_a_cycle, {"component": 0}, False),
        (hmc_in_a_cycle, {"component": 0, "metric": "gradients"}, True),
        (nuts_on_a_vector, {"metric": "gradients"}, False),
        (nuts_on_a_vector, {}, True),
    ],
)
def test_a_block_s_scales_are_learnt(make_kernel, options, is_dense):
    matrix = jnp.stack([jnp.eye(3) if is_dense else jnp.ones(3)] * 4)
    draws = jaxbnn.sample(
        jax.random.key(3), make_kernel, STARTS, 1, num_warmup=300, progress=False,
        parameters={"step_size": 0.3, "inverse_mass_matrix": matrix},
        adapt=jaxbnn.window_adaptation(300, is_pooled=True, **options),
    )  # fmt: skip
    found = draws.parameters["inverse_mass_matrix"][0]
    variances = np.diag(found) if is_dense else found
    np.testing.assert_allclose(variances, SCALES**2, rtol=0.5)
