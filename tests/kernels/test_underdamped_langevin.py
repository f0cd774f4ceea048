"""Underdamped Langevin keeps its target and momentum; refreshment 1 is MALA."""

import blackjax
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from blackjax.base import SamplingAlgorithm
from scipy import stats

import jaxbnn
from jaxbnn.kernels.underdamped_langevin import (
    UnderdampedLangevinState,
    leapfrog_step,
    refresh_momentum,
    underdamped_langevin,
    underdamped_langevin_log_ratio,
)
from tests.kernels.reference_measure import module_of, stale
from tests.kit import (
    both_sizes,
    check_deterministic_map,
    check_exact_start,
    check_flux_identity,
    counting,
    random_pairs,
)
from tests.kit.sizes import QUICK
from tests.kit.targets import BEND, WIDTH, skew_banana, skew_banana_log_density

TARGET = skew_banana()
STEP_SIZE = 0.7


def kernel(refreshment=0.3):
    return underdamped_langevin(TARGET.log_density, STEP_SIZE, refreshment)


def start(position, momentum):
    density, gradient = jax.value_and_grad(TARGET.log_density)(position)
    return UnderdampedLangevinState(position, momentum, density, gradient)


def numpy_gradient(x):
    bend = (x[1] - BEND * x[0] ** 2) / WIDTH**2
    return np.array([1 - np.exp(x[0]) + 2 * BEND * x[0] * bend, -bend])


def kinetic_sign(state, proposal):
    return 2 * (proposal.log_density - state.log_density) - underdamped_langevin_log_ratio(
        state, proposal
    )


def kinetic_missing(state, proposal):
    return proposal.log_density - state.log_density


def accept_all(state, proposal):
    return jnp.zeros_like(state.log_density)


RATIO_MUTANTS = [kinetic_sign, kinetic_missing, accept_all]


def mala_flux(log_ratio, rng):
    """At refreshment 1 the move u -> v has the momentum that leads there, and q is MALA's."""

    def ratio(x, y):
        gradient = jax.grad(TARGET.log_density)(x)
        state = start(x, (y - x) / STEP_SIZE - STEP_SIZE / 2 * gradient)
        return log_ratio(state, leapfrog_step(TARGET.log_density, state, STEP_SIZE))

    def log_proposal(x, y):
        return stats.norm.logpdf(y, x + STEP_SIZE**2 / 2 * numpy_gradient(x), STEP_SIZE).sum()

    pairs = random_pairs(rng, 200, 2)
    return check_flux_identity(skew_banana_log_density, log_proposal, ratio, pairs)


def test_flux_identity_of_mala(rng):
    result = mala_flux(underdamped_langevin_log_ratio, rng)
    assert result.passes, result


@pytest.mark.parametrize("log_ratio", RATIO_MUTANTS)
def test_wrong_ratios_break_the_flux_identity(log_ratio, rng):
    assert mala_flux(log_ratio, rng).largest > 0.1


def numpy_turned_leapfrog(z):
    """Return the deterministic proposal (v, -m') from (u, m), in NumPy."""
    half = z[2:] + STEP_SIZE / 2 * numpy_gradient(z[:2])
    v = z[:2] + STEP_SIZE * half
    return np.concatenate([v, -(half + STEP_SIZE / 2 * numpy_gradient(v))])


def test_flux_identity_in_phase_space(rng):
    """The turned leapfrog is an involution of unit Jacobian: it balances with q = 1."""
    x = rng.standard_normal((200, 4))
    y = np.stack([numpy_turned_leapfrog(z) for z in x])

    def log_pi(z):
        return skew_banana_log_density(z[:2]) + stats.norm.logpdf(z[2:]).sum()

    def ratio(x, y):
        return underdamped_langevin_log_ratio(start(x[:2], x[2:]), start(y[:2], y[2:]))

    result = check_flux_identity(log_pi, lambda x, y: 0.0, ratio, (x, y))
    assert result.passes, result


def test_leapfrog_is_turned_back_by_itself_and_keeps_volume(rng):
    def flow(direction):
        def move(z):
            state = leapfrog_step(TARGET.log_density, start(z[:2], direction * z[2:]), STEP_SIZE)
            return jnp.concatenate([state.position, direction * state.momentum])

        return move

    points = rng.standard_normal((50, 4))
    assert check_deterministic_map(flow(1.0), flow(-1.0), lambda z: 0.0, points).passes


def test_refreshed_momentum_stays_standard_normal(rng):
    m, xi = rng.standard_normal((2, 1000))
    found = refresh_momentum(jnp.asarray(m), jnp.asarray(xi), 0.3)
    np.testing.assert_allclose(found, np.sqrt(0.7) * m + np.sqrt(0.3) * xi, atol=1e-6)


@both_sizes()
def test_exact_draws_stay_exact(num_chains):
    result = check_exact_start(kernel(), TARGET, steps=4, num_chains=num_chains)
    assert result.passes, str(result)


def not_turned(one):
    """Defect: a rejection keeps the momentum."""

    def step(key, state):
        state, info = one.step(key, state)
        sign = jnp.where(info.is_accepted, 1.0, -1.0).astype(state.momentum.dtype)
        return state._replace(momentum=sign * state.momentum), info

    return SamplingAlgorithm(one.init, step)


MUTANTS = {
    "momentum not turned": not_turned,
    "stale gradient": lambda one: stale(one, "gradient"),
    "stale log density": lambda one: stale(one, "log_density"),
}


@pytest.mark.long
@pytest.mark.parametrize(
    ("name", "num_chains"),
    [
        ("momentum not turned", 100_000),
        *(pytest.param(name, None, marks=pytest.mark.long) for name in MUTANTS),
    ],
)
def test_mutants_are_found_from_exact_draws(name, num_chains):
    result = check_exact_start(MUTANTS[name](kernel()), TARGET, steps=4, num_chains=num_chains)
    assert not result.passes, str(result)


@pytest.mark.long
@pytest.mark.parametrize("log_ratio", RATIO_MUTANTS)
def test_wrong_ratios_are_found_from_exact_draws(monkeypatch, log_ratio):
    monkeypatch.setattr(
        module_of(underdamped_langevin), "underdamped_langevin_log_ratio", log_ratio
    )
    result = check_exact_start(kernel(), TARGET, steps=4)
    assert not result.passes, str(result)


def test_full_refreshment_is_mala():
    """Same law of position and acceptance as BlackJAX's MALA (step size eps^2 / 2)."""
    ours, theirs = kernel(1.0), blackjax.mala(TARGET.log_density, STEP_SIZE**2 / 2)
    position = jnp.array([0.6, -0.5])

    def run(key):
        samples = []
        for one, name in ((ours, "ours"), (theirs, "theirs")):
            state, info = one.init(position), None
            for i in range(2):
                state, info = one.step(jax.random.fold_in(key, 2 * i + (name == "ours")), state)
            samples.append(jnp.append(state.position, info.acceptance_rate))
        return jnp.stack(samples)

    ours, theirs = np.asarray(
        jax.jit(jax.vmap(run), compiler_options=QUICK)(jax.random.split(jax.random.key(3), 50_000))
    ).transpose(1, 2, 0)
    for mine, other in zip(ours, theirs, strict=True):
        assert stats.ks_2samp(mine, other).pvalue > 1e-6 / 3
    assert np.mean(ours[2] < 1) > 0.1


def test_full_refreshment_forgets_the_momentum():
    one = kernel(1.0)
    state = one.init(jnp.zeros(2))
    pushed = state._replace(momentum=jnp.array([3.0, -2.0]))
    ends = [one.step(jax.random.key(4), s)[0] for s in (state, pushed)]
    np.testing.assert_array_equal(ends[0].position, ends[1].position)


def test_a_rejection_turns_back_and_stays():
    # A wall that no proposal passes.
    def log_density(u):
        return jnp.where(jnp.all(u == 0), 0.0, -jnp.inf)

    one = underdamped_langevin(log_density, 0.5, refreshment=1e-6)
    state = one.init(jnp.zeros(2))._replace(momentum=jnp.array([2.0, -1.0]))
    new, info = one.step(jax.random.key(0), state)
    assert not info.is_accepted
    np.testing.assert_array_equal(new.position, state.position)
    np.testing.assert_allclose(new.momentum, -state.momentum, atol=0.01)


def test_init_draws_the_momentum_only_with_a_key():
    position = {"w": jnp.ones((3, 2)), "b": jnp.ones(2)}
    one = underdamped_langevin(lambda p: -jnp.sum(p["w"] ** 2) - jnp.sum(p["b"] ** 2), 0.1, 0.5)
    at_rest, moving = one.init(position), one.init(position, jax.random.key(0))
    assert all(np.all(np.asarray(m) == 0) for m in jax.tree.leaves(at_rest.momentum))
    assert all(np.all(np.asarray(m) != 0) for m in jax.tree.leaves(moving.momentum))


@pytest.mark.usefixtures("x64")
def test_a_cycle_with_the_identity_is_the_kernel_itself():
    """Momentum is carried over by the refresh, step for step."""
    one = kernel()
    identity = SamplingAlgorithm(
        lambda position, rng_key=None: jaxbnn.kernels.CycleState(position, ()),
        lambda rng_key, state: (state, None),
    )
    both = jaxbnn.cycle(one, identity)

    def run(key):
        alone, together = (
            one.init(jnp.zeros(2), jax.random.split(key)[0]),
            both.init(jnp.zeros(2), jax.random.clone(key)),
        )

        def step(carry, i):
            alone, together = carry
            key_step = jax.random.fold_in(jax.random.clone(key), i)
            # A cycle splits its key among its components.
            alone, _ = one.step(jax.random.split(key_step)[0], alone)
            together, _ = both.step(jax.random.clone(key_step), together)
            own = together.states[0]
            return (alone, together), (
                alone.position,
                together.position,
                alone.momentum,
                own.momentum,
            )

        return jax.lax.scan(step, (alone, together), jnp.arange(20))[1]

    position, same_position, momentum, same_momentum = jax.jit(run, compiler_options=QUICK)(
        jax.random.key(1)
    )
    np.testing.assert_allclose(same_position, position, rtol=1e-10)
    np.testing.assert_allclose(same_momentum, momentum, rtol=1e-10)
    assert np.any(np.asarray(position[-1]) != 0)


def test_refresh_carries_the_momentum_and_nothing_stale():
    one = kernel()
    state = one.init(jnp.zeros(2), jax.random.key(0))
    moved = jaxbnn.refresh(one, state, jnp.ones(2), jax.random.key(1))
    np.testing.assert_array_equal(moved.momentum, state.momentum)
    np.testing.assert_allclose(moved.gradient, numpy_gradient(np.ones(2)), rtol=1e-5)
    np.testing.assert_array_equal(moved.log_density, TARGET.log_density(jnp.ones(2)))


def test_one_evaluation_a_step():
    log_density_fn = counting(TARGET.log_density)
    one = underdamped_langevin(log_density_fn, 0.5, 0.5)
    state = one.init(jnp.zeros(2))
    before = log_density_fn.calls
    jax.make_jaxpr(lambda key, state: one.step(key, state))(jax.random.key(0), state)
    assert log_density_fn.calls == before + 1


def test_float32_agrees_with_float64(rng):
    """Kinetic energies of 100,000 dimensions, where a difference of totals loses 0.01."""
    u, m = rng.standard_normal((2, 100_000))

    def log_density(x):
        return -jnp.square(x) / 2

    def log_ratio(u, m):
        state = underdamped_langevin(log_density, 0.05, 1.0).init(u)._replace(momentum=m)
        return underdamped_langevin_log_ratio(state, leapfrog_step(log_density, state, 0.05))

    def compute(dtype):
        arguments = (jnp.asarray(u, dtype), jnp.asarray(m, dtype))
        return jax.jit(log_ratio, compiler_options=QUICK)(*arguments)

    with jax.enable_x64(True):
        single, double = compute(jnp.float32), compute(jnp.float64)
    assert single.dtype == jnp.float32
    assert float(single) == pytest.approx(float(double), abs=1e-3)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((0.0, 0.5), "step_size must be positive"),
        ((0.1, 0.0), r"refreshment must lie in \(0, 1\], but is 0; 1 draws"),
        ((0.1, 1.1), "but is 1.1"),
        ((0.1, np.nan), "but is nan"),
    ],
)
def test_bad_arguments(arguments, message):
    with pytest.raises(ValueError, match=message):
        underdamped_langevin(TARGET.log_density, *arguments)
