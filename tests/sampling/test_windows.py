"""The metric from gradients is that of the modes' insides; pooled chains share what they learn."""

import functools
from typing import NamedTuple

import blackjax
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from blackjax.adaptation.window_adaptation import build_schedule
from blackjax.base import SamplingAlgorithm

import jaxbnn

pytestmark = pytest.mark.third_party(reason="BlackJAX's adaptation promotes dtypes")

COVARIANCE = np.array([[1.0, 0.9 * 5.0], [0.9 * 5.0, 25.0]], np.float32)
PRECISION = np.linalg.inv(COVARIANCE)
FAR = 40.0


class JumpState(NamedTuple):
    position: jax.Array
    auxiliary = ()


def jump_between_modes():
    """x -> -x, a symmetry of the target: always accepted."""

    def step(rng_key, state):
        sign = jnp.where(jax.random.bernoulli(rng_key), 1.0, -1.0)
        return JumpState(sign * state.position), JumpInfo(jnp.ones(()))

    return SamplingAlgorithm(lambda position, rng_key=None: JumpState(position), step)


class JumpInfo(NamedTuple):
    acceptance_rate: jax.Array


def make_kernel(parameters, data):
    """HMC on two normals that are far apart, and a jump between them."""

    def log_density(x):
        near = jnp.stack([x - FAR, x + FAR])
        return jax.nn.logsumexp(-0.5 * jnp.sum((near @ data) * near, axis=1))

    hmc = blackjax.hmc(log_density, parameters["step_size"], parameters["inverse_mass_matrix"], 5)
    return jaxbnn.cycle(hmc, jump_between_modes())


@functools.cache
def adapted(metric, is_pooled, is_diagonal=False, num_warmup=300):
    inverse_mass = np.ones((4, 2)) if is_diagonal else np.stack([np.eye(2)] * 4)
    return jaxbnn.sample(
        jax.random.key(5),
        make_kernel,
        np.full((4, 2), FAR, np.float32),
        200,
        parameters={"step_size": 0.3, "inverse_mass_matrix": inverse_mass.astype(np.float32)},
        data=PRECISION,
        num_warmup=num_warmup,
        adapt=jaxbnn.window_adaptation(
            num_warmup, target_acceptance_rate=0.8, metric=metric, is_pooled=is_pooled, component=0
        ),
        progress=False,
    )


@pytest.mark.long
@pytest.mark.parametrize(
    "is_pooled",
    [True, pytest.param(False, marks=pytest.mark.long)],
    ids=["pooled", "per chain"],
)
def test_gradients_see_the_inside_of_the_modes(is_pooled):
    draws = adapted("gradients", is_pooled, num_warmup=3000)
    learnt, step_sizes = draws.parameters["inverse_mass_matrix"], draws.parameters["step_size"]
    assert learnt.shape == (4, 2, 2)
    # After 300 steps the logarithms of these ratios have, over 48 chains, a standard deviation of
    # 0.3 about 0: one of eight was beyond 1.6. After ten times as many they are five from there.
    ratios = np.linalg.eigvals(np.linalg.solve(COVARIANCE[None], learnt))
    assert (ratios > 0.6).all(), ratios
    assert (ratios < 1.6).all(), ratios
    assert len(set(step_sizes.tolist())) == (1 if is_pooled else 4)
    shared = (learnt == learnt[:1]).all()
    assert shared == is_pooled
    # The cycle's mean counts the jumps, which always succeed; HMC alone was to reach 0.8.
    np.testing.assert_allclose(2 * draws.acceptance_rate.mean() - 1, 0.8, atol=0.15)


@pytest.mark.long
def test_draws_see_the_distance_between_the_modes():
    learnt = adapted("draws", True).parameters["inverse_mass_matrix"]
    assert (learnt == learnt[:1]).all()
    np.testing.assert_allclose(learnt[0], COVARIANCE + FAR**2, rtol=0.1)


@pytest.mark.long  # the docstring's example is one too
def test_a_diagonal_metric_from_gradients():
    learnt = adapted("gradients", True, is_diagonal=True).parameters["inverse_mass_matrix"]
    assert learnt.shape == (4, 2)
    np.testing.assert_allclose(learnt[0], 1 / np.diag(PRECISION), rtol=0.35)


class Pushed(NamedTuple):
    position: jax.Array
    logdensity_grad: jax.Array


def test_each_window_learns_from_its_own_slow_steps_and_restarts_the_step_size(rng):
    """Windows of 25 and 50 steps; the fast steps before and after have gradients of 1000."""
    is_slow, is_end = np.asarray(build_schedule(200), bool).T
    gradients = rng.standard_normal((200, 3)) * np.where(is_slow, 1, 1e3)[:, None]
    gradients[100:] *= 10
    rates = rng.uniform(0.4, 1, 200)
    adapt = jaxbnn.window_adaptation(200, target_acceptance_rate=0.6, metric="gradients")
    averaging = jaxbnn.dual_averaging(0.6)

    def step(a, seen):
        number, gradient, rate = seen
        return adapt.update(a, number, Pushed(gradient, gradient), JumpInfo(rate))

    def reference(a, seen):
        ended, rate = seen
        a, learnt = averaging.update(a, None, None, JumpInfo(rate))
        final = averaging.final(a)
        return jax.lax.cond(ended, lambda: (averaging.init(final), final), lambda: (a, learnt))

    start = {"step_size": jnp.array(0.1), "inverse_mass_matrix": jnp.full(3, 2.0)}
    seen = jnp.arange(200, dtype=jnp.uint32), jnp.float32(gradients), jnp.float32(rates)
    last, found = jax.lax.scan(step, adapt.init(start), seen)
    _, expected = jax.lax.scan(reference, averaging.init(start), (is_end, seen[2]))
    np.testing.assert_allclose(found["step_size"], expected["step_size"], rtol=1e-4)

    inverse_mass = np.full((200, 3), 2.0)
    ends = np.flatnonzero(is_end)
    assert ends.tolist() == [99, 149]
    for begin, end in ((75, 99), (100, 149)):
        inverse_mass[end:] = 1 / np.mean(gradients[begin : end + 1] ** 2, axis=0)
    np.testing.assert_allclose(found["inverse_mass_matrix"], inverse_mass, rtol=1e-4)
    np.testing.assert_allclose(adapt.final(last)["inverse_mass_matrix"], inverse_mass[-1], 1e-4)


@pytest.mark.parametrize("is_diagonal", [False, True])
@pytest.mark.parametrize("large", [np.nan, 1e25])  # whose square is inf, and its inverse 0
def test_gradients_that_are_not_finite_leave_the_metric_alone(large, is_diagonal):
    def kernel(parameters, data):
        def step(rng_key, state):
            return Pushed(state.position, jnp.array([large, 1.0])), JumpInfo(jnp.ones(()))

        return SamplingAlgorithm(lambda x, rng_key=None: Pushed(x, jnp.zeros(2)), step)

    start = np.stack([2 * np.eye(2, dtype=np.float32)] * 2)
    start = np.diagonal(start, axis1=1, axis2=2) if is_diagonal else start
    draws = jaxbnn.sample(
        jax.random.key(0), kernel, np.zeros((2, 2), np.float32), 1, num_warmup=60, progress=False,
        parameters={"step_size": 0.1, "inverse_mass_matrix": start},
        adapt=jaxbnn.window_adaptation(60, metric="gradients"),
    )  # fmt: skip
    np.testing.assert_array_equal(draws.parameters["inverse_mass_matrix"], start)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"metric": "gradients"}, "keeps the gradient, but .*CycleState"),
        ({"component": 2}, "follows component 2 of a cycle, but .* has 2 of them"),
    ],
)
def test_what_cannot_be_followed_gets_one_sentence(options, message):
    with pytest.raises(ValueError, match=message):
        jaxbnn.sample(
            jax.random.key(5), make_kernel, np.zeros((2, 2), np.float32), 1, data=PRECISION,
            parameters={"step_size": 0.3, "inverse_mass_matrix": np.ones((2, 2), np.float32)},
            num_warmup=5, adapt=jaxbnn.window_adaptation(5, **options), progress=False,
        )  # fmt: skip


def test_no_component_where_there_is_no_cycle():
    def kernel(parameters, data):
        log_density = lambda x: -0.5 * jnp.sum(x**2)  # noqa: E731
        return blackjax.mala(log_density, parameters["step_size"])

    with pytest.raises(ValueError, match="MALAInfo has none; leave it out"):
        jaxbnn.sample(
            jax.random.key(5), kernel, np.zeros((2, 2), np.float32), 1, num_warmup=5,
            parameters={"step_size": 0.3}, adapt=jaxbnn.dual_averaging(0.5, component=0),
            progress=False,
        )  # fmt: skip


@pytest.mark.parametrize("is_cycle", [False, True], ids=["alone", "in a cycle"])
def test_a_chain_that_is_stuck_among_many_shortens_the_steps_of_all(is_cycle):
    """Where one of sixteen starts, steps are far too long that are right for the others."""

    def quartic(parameters, data):
        log_density = lambda x: -jnp.sum(x**4) / 4  # noqa: E731
        step_size, metric = parameters["step_size"], parameters["inverse_mass_matrix"]
        hmc = blackjax.hmc(log_density, step_size, metric, 3)
        return jaxbnn.cycle(hmc, jump_between_modes()) if is_cycle else hmc

    draws = jaxbnn.sample(
        jax.random.key(0), quartic, np.array([[60.0]] + [[0.5]] * 15, np.float32), 50,
        parameters={"step_size": 0.3, "inverse_mass_matrix": np.ones((16, 1), np.float32)},
        num_warmup=400, progress=False,
        adapt=jaxbnn.window_adaptation(
            400, is_pooled=True, component=0 if is_cycle else None
        ),
    )  # fmt: skip
    last = np.abs(np.asarray(draws.positions)[..., 0])
    assert last[0].max() < 10, last[0]
    assert (last.std(axis=1) > 0.05).all()
    # And they are long again where it has come to the others.
    assert draws.parameters["step_size"][0] > 0.3
