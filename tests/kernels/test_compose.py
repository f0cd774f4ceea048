"""Composed kernels: caches are current after every step, and the target stays what it was."""

from typing import NamedTuple

import blackjax
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from blackjax.base import SamplingAlgorithm

import jaxbnn
from jaxbnn.kernels import BlockState, CycleState
from jaxbnn.kernels.compose import _thresholds
from tests.kit import both_sizes, check_exact_start, for_mutants
from tests.kit.targets import skew_banana
from tests.sampling.tiny import walk

BANANA = skew_banana()
STEPS = 3
THIRD_PARTY = pytest.mark.third_party(reason="BlackJAX's momentum kernels promote dtypes")


def log_density(position):
    """The skew target on a position of two blocks."""
    return BANANA.log_density(jnp.stack([position["a"], position["b"]]))


def sample_blocks(key):
    x, _ = BANANA.sample(key)
    return {"a": x[0], "b": x[1]}, None


BLOCKS = BANANA._replace(
    sample=sample_blocks,
    log_density=lambda position, data=None: log_density(position),
    test_functions=lambda position, data: BANANA.test_functions(
        jnp.stack([position["a"], position["b"]]), data
    ),
)


def walk_on(block, step_size=1.5):
    return jaxbnn.on_block(
        lambda whole: walk(lambda value: log_density(whole(value)), step_size), block
    )


def mala_on(block, step_size=0.4):
    return jaxbnn.on_block(
        lambda whole: blackjax.mala(lambda value: log_density(whole(value)), step_size), block
    )


def stale_cycle(*kernels):
    """`cycle` without refresh: each component trusts what it knew about the old position."""

    def init(position, rng_key=None):
        return CycleState(position, tuple(kernel.init(position) for kernel in kernels))

    def step(rng_key, state):
        position, states = state.position, []
        for i, kernel in enumerate(kernels):
            own = state.states[i]
            own = own._replace(position=position)
            if isinstance(own, BlockState):
                block = own.block._replace(position=position["ab"[i]])
                own = own._replace(block=block)
            own, _ = kernel.step(jax.random.fold_in(rng_key, i), own)
            position = own.position
            states.append(own)
        return CycleState(position, tuple(states)), None

    return SamplingAlgorithm(init, step)


@pytest.mark.short("cycle-short")
@both_sizes()
@pytest.mark.parametrize(
    "kernel",
    [
        jaxbnn.cycle(walk_on("a"), mala_on("b")),
        jaxbnn.mix([walk_on("a"), mala_on("b"), jaxbnn.repeat(walk_on("b"), 2)], [2, 1, 1]),
    ],
    ids=["cycle", "mix of repeat"],
)
def test_blocks_keep_the_target(kernel, num_chains):
    result = check_exact_start(kernel, BLOCKS, steps=STEPS, num_chains=num_chains)
    assert result.passes, str(result)


@for_mutants()
def test_a_stale_cache_is_found(num_chains):
    kernel = stale_cycle(walk_on("a"), walk_on("b"))
    result = check_exact_start(kernel, BLOCKS, steps=STEPS, num_chains=num_chains)
    assert not result.passes, str(result)


def own_init(kernel, state):
    """What the kernel would cache about where the state is."""
    return kernel.init(state.position, jax.random.key(99))


def caches(state):
    """The fields that are functions of the position."""
    skip = {"momentum", "slice", "random_generator_arg"}
    return {name: v for name, v in state._asdict().items() if name not in skip}


def close(actual, expected):
    jax.tree.map(
        lambda a, e: np.testing.assert_allclose(a, e, rtol=1e-4, atol=1e-5), actual, expected
    )


def test_caches_are_current_after_every_step():
    a, b = walk_on("a"), mala_on("b")
    kernel = jaxbnn.cycle(a, b)
    step = jax.jit(kernel.step)
    state = kernel.init({"a": jnp.float32(0.3), "b": jnp.float32(1.0)})
    for t in range(20):
        state, info = step(jax.random.key(t), state)
        # The last component's state is current as it is; any other's is, once refreshed.
        close(state.states[-1], own_init(b, state))
        close(jaxbnn.refresh(a, state.states[0], state.position), own_init(a, state))
        close(state.position, state.states[-1].position)
        rates = [float(i.acceptance_rate) for i in info.infos]
        np.testing.assert_allclose(info.acceptance_rate, np.mean(rates), rtol=1e-5)
    assert len(state.states) == 2


def test_the_first_component_starts_from_where_the_last_one_stopped():
    class Info(NamedTuple):
        seen: jax.Array

    def looking():
        init = lambda x, rng_key=None: BlockState(x, jnp.sum(x))  # noqa: E731
        return SamplingAlgorithm(init, lambda key, s: (init(s.position), Info(s.block)))

    def moving():
        init = lambda x, rng_key=None: BlockState(x, ())  # noqa: E731
        return SamplingAlgorithm(init, lambda key, s: (init(s.position + 1), Info(jnp.zeros(()))))

    kernel = jaxbnn.cycle(looking(), moving(), looking())
    state = kernel.init(jnp.zeros(2))
    for t in range(3):
        state, info = kernel.step(jax.random.key(t), state)
        assert (float(info.infos[0].seen), float(info.infos[2].seen)) == (2 * t, 2 * t + 2)
        assert info.acceptance_rate is None


def identity():
    class State(NamedTuple):
        position: jax.Array
        auxiliary = ()

    init = lambda position, rng_key=None: State(position)  # noqa: E731
    return SamplingAlgorithm(init, lambda rng_key, state: (state, ()))


def gaussian(x):
    return -0.5 * jnp.sum(x**2 * jnp.array([1.0, 3.0], x.dtype))


MOMENTUM = {
    "ghmc": lambda: blackjax.ghmc(gaussian, 0.7, jnp.ones(2), alpha=0.3, delta=0.2),
    "mclmc": lambda: blackjax.mclmc(gaussian, L=1.0, step_size=0.3),
    "dynamic_hmc": lambda: blackjax.dynamic_hmc(gaussian, 0.5, jnp.ones(2)),
}


@pytest.mark.long
@THIRD_PARTY
@pytest.mark.parametrize("name", MOMENTUM)
def test_a_cycle_with_the_identity_is_the_kernel_itself(name):
    kernel = MOMENTUM[name]()
    with_identity = jaxbnn.cycle(kernel, identity())
    start = jnp.array([0.5, -1.0])
    state = kernel.init(start, jax.random.key(7))
    cycled = CycleState(start, (state, identity().init(start)))
    step, cycle_step = jax.jit(kernel.step), jax.jit(with_identity.step)
    for t in range(15):
        key = jax.random.key(t)
        cycled, _ = cycle_step(key, cycled)
        state, _ = step(jax.random.split(key, 2)[0], state)
        key_data = lambda x: (  # noqa: E731
            jax.random.key_data(x) if jnp.issubdtype(x.dtype, jax.dtypes.prng_key) else x
        )
        close(jax.tree.map(key_data, cycled.states[0]), jax.tree.map(key_data, state))
    assert np.abs(np.asarray(cycled.position) - np.asarray(start)).max() > 0.1


class Counted(NamedTuple):
    position: jax.Array
    twice: jax.Array
    counter: jax.Array
    auxiliary = ("counter",)


def counted():
    def init(position, rng_key=None):
        return Counted(position, 2 * position["b"], jnp.zeros((), jnp.int32))

    def step(rng_key, state):
        return state._replace(counter=state.counter + 1), ()

    return SamplingAlgorithm(init, step)


@pytest.mark.parametrize(
    "nest",
    [
        lambda kernel: kernel,
        jaxbnn.cycle,
        lambda kernel: jaxbnn.mix([kernel]),
        lambda kernel: jaxbnn.repeat(kernel, 1),
        lambda kernel: jaxbnn.cycle(jaxbnn.cycle(kernel, kernel), kernel),
    ],
    ids=["itself", "cycle", "mix", "repeat", "cycles"],
)
def test_a_named_auxiliary_field_survives_in_nested_states(nest):
    kernel = jaxbnn.cycle(nest(counted()), walk_on("b"))
    state = kernel.init({"a": jnp.float32(0.0), "b": jnp.float32(1.0)})
    step = jax.jit(kernel.step)
    for t in range(3):
        before = state.position["b"]
        state, _ = step(jax.random.key(t), state)
    inner = jax.tree.leaves(state.states[0], is_leaf=lambda s: isinstance(s, Counted))
    inner = [s for s in inner if isinstance(s, Counted)]
    assert all(int(s.counter) == 3 for s in inner)
    assert all(float(s.twice) == 2 * float(before) for s in inner)


def test_on_block_inside_a_cycle_keeps_the_blocks_auxiliary():
    class Pair(NamedTuple):
        x: jax.Array
        y: dict

    block = jaxbnn.on_block(lambda whole: counted(), "y")
    whole = Pair(jnp.zeros(2), {"a": jnp.zeros(()), "b": jnp.ones(())})
    kernel = jaxbnn.cycle(block, identity())
    state = kernel.init(whole)
    for t in range(2):
        state, _ = kernel.step(jax.random.key(t), state)
    assert int(state.states[0].block.counter) == 2
    assert isinstance(state.position, Pair)


def test_repeat_is_the_kernel_step_by_step():
    kernel = walk(lambda x: -0.5 * jnp.sum(x**2))
    start, key = jnp.ones(2), jax.random.key(3)
    state, info = jax.jit(jaxbnn.repeat(kernel, 4).step)(key, kernel.init(start))
    expected = kernel.init(start)
    rates = []
    for i in range(4):
        expected, one = kernel.step(jax.random.fold_in(jax.random.key(3), i), expected)
        rates.append(one.acceptance_rate)
    close(state, expected)
    close(info.infos.acceptance_rate, np.array(rates))
    np.testing.assert_allclose(info.acceptance_rate, np.mean(rates), rtol=1e-5)


def moves(amount, log_rate=None):
    """Add a constant: shows which kernel of a mixture ran."""
    init = lambda x, rng_key=None: BlockState(x, jnp.sum(x))  # noqa: E731
    return SamplingAlgorithm(init, lambda key, s: (init(s.position + amount), ()))


@pytest.mark.parametrize("weights", [None, [0.0, 3.0, 1.0], [1, 0, 0], [0, 0, 5]])
def test_mix_draws_kernels_by_weight(weights):
    kernel = jaxbnn.mix([moves(1.0), moves(10.0), moves(100.0)], weights)
    n = 40_000
    keys = jax.vmap(jax.random.key)(jnp.arange(n))

    @jax.jit
    def run(keys):
        start = kernel.init(jnp.zeros(()))
        return jax.vmap(lambda key: kernel.step(key, start))(keys)

    state, info = run(keys)
    shares = np.bincount(np.asarray(info.component), minlength=3) / n
    expected = np.ones(3) / 3 if weights is None else np.array(weights) / np.sum(weights)
    # Hoeffding: a share is off by more than 0.0143 with probability below 1e-6 (three of them).
    np.testing.assert_allclose(shares, expected, atol=0.0143)
    assert (shares[expected == 0] == 0).all()
    np.testing.assert_array_equal(state.position, 10.0 ** np.asarray(info.component))
    assert info.acceptance_rate is None
    assert np.isnan(info.component_rate).all()


@pytest.mark.parametrize("is_compiled", [True, False])
def test_a_mix_with_a_component_that_reports_no_rate_has_none(is_compiled):
    """A step of that component is no rejection: a step size tuned by it would go to nothing."""
    walks = walk_on("a")
    start = {"a": jnp.zeros(()), "b": jnp.ones(())}
    silent = SamplingAlgorithm(
        lambda x, rng_key=None: BlockState(x, jnp.zeros(())), lambda key, s: (s, ())
    )
    with jax.disable_jit(not is_compiled):
        for weights, reports in (([1.0, 0.0], True), ([0.0, 1.0], False)):
            mixed = jaxbnn.mix([walks, silent], weights)
            _, info = mixed.step(jax.random.key(0), mixed.init(start))
            assert info.acceptance_rate is None
            assert np.isnan(info.component_rate) != reports
            whole = jaxbnn.cycle(walks, mixed)
            _, info = whole.step(jax.random.key(0), whole.init(start))
            np.testing.assert_array_equal(info.acceptance_rate, info.infos[0].acceptance_rate)
        _, info = (both := jaxbnn.mix([walks, walks])).step(jax.random.key(0), both.init(start))
        np.testing.assert_array_equal(info.acceptance_rate, info.component_rate)
    starts = jax.tree.map(lambda leaf: jnp.stack([leaf, leaf]), start)
    draws = jaxbnn.sample(jax.random.key(0), mixed, starts, 5, progress=False)
    assert np.isnan(draws.acceptance_rate).all()
    with pytest.raises(ValueError, match=r"follows the acceptance rate, but .*MixInfo.* has none"):
        jaxbnn.sample(
            jax.random.key(0),
            lambda parameters, _: jaxbnn.mix([walk_on("a", parameters["step_size"]), silent]),
            starts,
            5,
            num_warmup=5,
            data=jnp.zeros(1),
            parameters={"step_size": 0.5},
            adapt=jaxbnn.dual_averaging(0.574),
            progress=False,
        )


def test_weights_may_be_traced():
    def component(weights):
        kernel = jaxbnn.mix([moves(1.0), moves(10.0)], weights)
        return kernel.step(jax.random.key(1), kernel.init(jnp.zeros(())))[1].component

    assert jax.jit(jax.vmap(component))(jnp.eye(2)).tolist() == [0, 1]
    with pytest.raises(ValueError, match="2 finite weights"):
        jax.jit(component)(jnp.ones(3))


@pytest.mark.parametrize(
    "weights", [[1.0], [1.0, -1.0], [0.0, 0.0], [np.inf, 1.0], [np.nan, 1.0], np.ones((1, 2))]
)
def test_bad_weights(weights):
    with pytest.raises(ValueError, match="mix needs 2 finite weights"):
        jaxbnn.mix([moves(1.0), moves(2.0)], weights)


def test_no_kernels_and_no_steps():
    for make in (jaxbnn.cycle, lambda: jaxbnn.mix([])):
        with pytest.raises(ValueError, match="needs at least one kernel"):
            make()
    with pytest.raises(ValueError, match="num_steps must be at least 1, but is 0"):
        jaxbnn.repeat(moves(1.0), 0)


def test_combinators_run_under_vmap_and_scan_without_reusing_keys():
    kernel = jaxbnn.cycle(
        jaxbnn.mix([walk_on("a"), mala_on("b")]), jaxbnn.repeat(jaxbnn.cycle(mala_on("a")), 2)
    )
    starts = {"a": np.zeros(2, np.float32), "b": np.ones(2, np.float32)}
    draws = jaxbnn.sample(jax.random.key(0), kernel, starts, 5, progress=False)
    assert np.isfinite(draws.positions["a"]).all()
    assert draws.infos.acceptance_rate.shape == (2, 5)
    assert draws.infos.infos[0].component.shape == (2, 5)
    # Every step's log density is the target's at its position.
    own = draws.final_state.states[1].states[0].block.logdensity
    close(own, jax.vmap(log_density)(draws.final_state.position))


def test_weights_of_few_bits_are_summed_in_float32():
    """Thousand weights of one half each: in float16, their sums end 10 % away."""
    weights = np.full(1000, 0.5, np.float16)
    found = np.asarray(_thresholds(weights, 1000))
    np.testing.assert_allclose(found, np.arange(1, 1000) / 1000, rtol=1e-4)


def test_each_component_of_a_mix_starts_where_the_last_one_stopped():
    """Each that went on from a place of its own would keep the target, too."""
    kernel = jaxbnn.mix([moves(1.0), moves(100.0)])
    state, total = kernel.init(jnp.zeros(())), 0.0
    for t in range(12):
        state, info = kernel.step(jax.random.key(t), state)
        total += 100.0 ** int(info.component)
        assert float(state.position) == total
    assert 12 < total < 1200
