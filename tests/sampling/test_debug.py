"""Planted NaNs: counted in summaries, never accepted, found by chain, step and term."""

from typing import NamedTuple

import blackjax
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from blackjax.base import SamplingAlgorithm

import jaxbnn
from jaxbnn.sampling import Adaptation, acceptance
from tests.kit.sizes import QUICK

KEY = jax.random.key(3)


class Counter(NamedTuple):
    position: jax.Array
    terms: jax.Array
    count: jax.Array


class Info(NamedTuple):
    acceptance_rate: jax.Array


def planted(parameters, data):
    """Counts its steps; at step `bad_step`, chain by chain, term 2 of its state becomes NaN.

    Term 0 is -inf throughout, which it may be: only of a position every number must be finite.
    """

    def init(position, rng_key=None):
        return Counter(position, jnp.zeros(4), jnp.zeros((), jnp.int32))

    def step(rng_key, state):
        is_bad = state.count == parameters["bad_step"]
        terms = jnp.zeros(4).at[0].set(-jnp.inf).at[2].set(jnp.where(is_bad, jnp.nan, 0.0))
        return Counter(state.position + 1, terms, state.count + 1), Info(jnp.ones(()))

    return SamplingAlgorithm(init, step)


def run(bad_steps, **options):
    parameters = {"bad_step": jnp.asarray(bad_steps, jnp.int32)}
    starts = jnp.zeros((len(bad_steps), 3))
    return jaxbnn.sample(
        KEY, planted, starts, 6, parameters=parameters, progress=False, debug=True, **options
    )


def test_it_stops_at_the_first_and_says_chain_step_and_term():
    found = r"chain 1 met a NaN or an infinity at sampling step 2: terms\[2\] is nan; the first was"
    with pytest.raises(FloatingPointError, match=found):
        run([-1, 5, 7], num_warmup=3)
    with pytest.raises(FloatingPointError, match=r"chain 2 .* at warm-up step 1: terms"):
        run([2, 4, 1], num_warmup=3)


def test_an_infinity_in_a_position_stops_it():
    def step(rng_key, state):
        count = state.count + 1
        position = jnp.where(count == 2, state.position.at[1].set(jnp.inf), state.position)
        return Counter(position, state.terms, count), Info(jnp.ones(()))

    kernel = SamplingAlgorithm(planted(None, None).init, step)
    found = r"chain 0 met a NaN or an infinity at sampling step 1: position\[1\] is inf"
    with pytest.raises(FloatingPointError, match=found):
        jaxbnn.sample(KEY, kernel, jnp.zeros((1, 3)), 4, progress=False, debug=True)


def identity_adaptation(seen):
    def update(a, step, state, info):
        seen.append(state)
        return a, a

    def refresh(kernel, state, position, rng_key):
        return kernel.init(position, rng_key)._replace(count=state.count)

    return Adaptation(lambda p: p, update, lambda a: a, refresh=refresh)


def test_it_stops_in_an_adapting_warm_up():
    seen = []
    adapt = identity_adaptation(seen)
    with pytest.raises(FloatingPointError, match=r"chain 0 .* at warm-up step 2: terms"):
        run([2, 9], num_warmup=3, adapt=adapt)
    assert all(isinstance(state, Counter) for state in seen)


@pytest.mark.long
def test_a_healthy_run_is_the_same_run():
    kernel = jaxbnn.pcn(lambda x: -jnp.sum(x**2), 0.5)
    arguments = (KEY, kernel, jnp.zeros((2, 3)), 5)
    options = {"num_warmup": 2, "thinning": 2, "reduce": {"a": acceptance()}, "progress": False}
    plain, watched = (jaxbnn.sample(*arguments, **options, debug=d) for d in (False, True))
    np.testing.assert_array_equal(plain.positions, watched.positions)
    assert jax.tree.structure(plain) == jax.tree.structure(watched)
    np.testing.assert_array_equal(plain.final_state.position, watched.final_state.position)
    np.testing.assert_array_equal(plain.acceptance_rate, watched.acceptance_rate)


def log_density(x):
    """Not a number beyond 1: the logarithm of a negative one."""
    return jnp.log(1 - x[0]) * 1.0


def test_a_proposal_that_is_no_number_is_rejected_counted_and_found():
    arguments = (KEY, jaxbnn.pcn(log_density, 0.9), jnp.zeros((2, 1)), 40)
    draws = jaxbnn.sample(*arguments, progress=False)
    counts = np.asarray(draws.infos.is_divergent).sum(axis=1)
    assert (counts > 0).all()
    assert not (draws.infos.is_divergent & draws.infos.is_accepted).any()
    assert (draws.positions[..., 0] < 1).all()
    table = jaxbnn.summary(draws.positions, is_divergent=draws.infos.is_divergent)
    np.testing.assert_array_equal(table.divergences, counts)
    listed = f"Chains 0, 1 diverged in {counts[0]}, {counts[1]} of 40 steps"
    assert any(sentence.startswith(listed) for sentence in table.warnings)
    assert f"{counts.sum()} divergent steps" in str(table)

    first = np.where(draws.infos.is_divergent.any(axis=1), draws.infos.is_divergent.argmax(1), 99)
    chain = int(first.argmin())
    found = (
        rf"chain {chain} met .* at sampling step {first[chain]}: the log ratio of its proposal "
        r"is NaN; the first was made at .*test_debug.py:\d+, 'return jnp.log\(1 - x\[0\]\) \* 1.0'"
    )
    with pytest.raises(FloatingPointError, match=found):
        jaxbnn.sample(*arguments, progress=False, debug=True)


def test_compositions_are_looked_into():
    """Theirs is None where no part tells, and a divergence of HMC's is no NaN."""
    finite = lambda x: -0.5 * jnp.sum(x**2)  # noqa: E731
    start = jnp.full((2, 1), 3.0)
    mala = blackjax.mala(finite, 0.3)
    options = {"progress": False, "debug": True}
    jaxbnn.sample(KEY, jaxbnn.cycle(mala, jaxbnn.repeat(mala, 2)), start, 2, **options)
    far = blackjax.hmc(finite, 100.0, jnp.ones(1), 3)  # its energy is off by 10^9
    kernel = jaxbnn.cycle(mala, far)
    draws = jaxbnn.sample(KEY, kernel, start, 3, progress=False)
    assert np.asarray(draws.infos.is_divergent).all()
    jaxbnn.sample(KEY, kernel, start, 3, **options)
    lost = jaxbnn.cycle(blackjax.mala(finite, 1e-6), jaxbnn.pcn(log_density, 0.9))
    with pytest.raises(FloatingPointError, match=r"its proposal \(kernel 1\) is NaN"):
        jaxbnn.sample(KEY, lost, jnp.zeros((2, 1)), 40, **options)


def test_a_step_that_was_undone_is_found():
    """BlackJAX's unadjusted microcanonical kernel keeps a finite state where it met a NaN."""
    kernel = blackjax.mclmc(lambda x: log_density(x) + log_density(-x), 1.0, 0.5)
    start = jnp.full((1, 2), 0.5)
    with pytest.raises(FloatingPointError, match="its step met one and was undone"):
        jaxbnn.sample(
            KEY, kernel, start, 50, progress=False, debug=True, collect=lambda s, i: s.position
        )


def test_no_divergence_no_warning():
    draws = np.random.default_rng(0).normal(size=(2, 20, 1))
    table = jaxbnn.summary(draws, is_divergent=np.zeros((2, 20), bool))
    assert not any("diverged" in sentence for sentence in table.warnings)
    with pytest.raises(ValueError, match="is_divergent needs the shape"):
        jaxbnn.summary(draws, is_divergent=np.zeros((2, 19), bool))


def test_a_debug_run_is_not_stored(tmp_path):
    kernel = jaxbnn.pcn(lambda x: jnp.zeros(()), 0.5)
    with pytest.raises(ValueError, match="a run in debug mode is not stored"):
        jaxbnn.sample(KEY, kernel, jnp.zeros((1, 1)), 1, debug=True, checkpoint=tmp_path / "run")


@pytest.mark.parametrize("bad", ["gradient", "factor", "moment"])
def test_nan_in_gradients_factors_and_moments_is_rejected(bad):
    """What is not a number inside a proposal makes its log ratio one, and is never accepted."""

    def step(key):
        if bad == "gradient":
            # Beyond 0 its value is a number, but its gradient is infinity times zero.
            edge = lambda x: -jnp.sqrt(jnp.maximum(x[0], 0) - x[0])  # noqa: E731
            kernel = jaxbnn.underdamped_langevin(edge, 0.5, refreshment=1.0)
        elif bad == "factor":
            log_density = lambda x: -jnp.sum(x**2) / 2  # noqa: E731
            metric = lambda x: jnp.eye(1) * jnp.where(x[0] > 0, jnp.nan, 1.0)  # noqa: E731
            kernel = jaxbnn.smmala(log_density, 0.5, softabs=None, metric=metric)
        else:
            kernel = jaxbnn.pcn(lambda x: jnp.where(x[0] > 0, jnp.nan, 0.0) + jnp.zeros(3), 0.5)
        state = kernel.init(jnp.full(1, -0.1))
        return kernel.step(key, state)

    states, infos = jax.jit(jax.vmap(step), compiler_options=QUICK)(
        jax.random.split(jax.random.key(1), 200)
    )
    assert infos.is_divergent.any()
    assert not (infos.is_divergent & infos.is_accepted).any()
    for leaf in jax.tree.leaves(states):
        assert np.isfinite(leaf).all()
