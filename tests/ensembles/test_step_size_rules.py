"""Blow-ups always shrink the step, energy errors come to their target, and nothing runs away."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxbnn.ensembles.step_size_rules import Followed, energy_rule, is_energy_blow_up
from tests.kit.sizes import QUICK

DIM = 50
TARGET = 0.1
BEST = 0.02  # the step size at which the energy error is the target


class Info(NamedTuple):
    energy_change: jax.Array
    nonans: jax.Array


RULE = energy_rule()


def follow(energy_change, start, num_steps, num_chains=1, power=6):
    """Run the rule; `energy_change(key, step_size)` is what a step of that size gives."""

    def step(i, carry):
        r, size, sizes, blown = carry
        keys = jax.random.split(jax.random.fold_in(jax.random.key(2), i), num_chains)
        change, is_whole = jax.vmap(energy_change, (0, None))(keys, size)
        followed = Followed(Info(change, is_whole), jnp.ones(num_chains, bool))
        r, size, is_blow_up = RULE.update(r, size, TARGET, followed, DIM)
        return r, size, sizes.at[i].set(size), blown + jnp.sum(is_blow_up, dtype=jnp.int32)

    def run(size):
        start = (RULE.init(size), size, jnp.zeros(num_steps), jnp.zeros((), jnp.int32))
        return jax.lax.fori_loop(0, num_steps, step, start)

    run = jax.jit(run, compiler_options=QUICK)
    _, size, sizes, blown = run(jnp.asarray(start, jnp.float32))
    return float(size), np.asarray(sizes), int(blown)


def by_power(power):
    def change(key, size):
        scale = (TARGET * DIM) ** 0.5 * (size / BEST) ** (power / 2)
        return scale * jax.random.normal(key), jnp.array(True)

    return change


@pytest.mark.parametrize(("power", "start"), [(6, 1e-7), (10, 1e-7), (6, 1.0), (2, 0.7 * BEST)])
def test_the_step_comes_to_its_target_whatever_the_power(power, start):
    size, _, _ = follow(by_power(power), start, 3000)
    error = TARGET * (size / BEST) ** power
    # A mean over about 900 chi-squared numbers: 5 % of error, times power / 6.
    np.testing.assert_allclose(error, TARGET, rtol=0.35)


def blows_up_above(limit):
    """BlackJAX's way to tell: the step is undone, and its energy change is 0."""

    def change(key, size):
        sound, is_whole = by_power(6)(key, size)[0], size <= limit
        return jnp.where(is_whole, sound, 0.0), is_whole

    return change


def test_a_blow_up_shrinks_the_step_at_once_and_is_counted():
    _, sizes, blown = follow(blows_up_above(1e-3), 1.0, 100)
    # 0.8 a step: from 1 to 0.001 in 31 steps, none of which may raise it.
    assert (np.diff(sizes[:30]) < 0).all()
    assert blown >= 31
    assert sizes[30] <= 1e-3


def test_an_undone_step_with_no_energy_change_does_not_raise_the_step():
    """What ran away elsewhere: the undone step's energy change of 0 called for a larger step."""
    size, sizes, blown = follow(blows_up_above(BEST / 4), BEST / 5, 5000)
    assert sizes.max() <= BEST / 2  # one doubling beyond what is sound, at the most
    assert size < BEST / 3
    assert 0 < blown < 1000


@pytest.mark.parametrize("energy", [np.nan, np.inf, -np.inf, 1e30])
def test_an_energy_that_is_nothing_to_learn_from_still_shrinks(energy):
    """Weights that vanish for numbers far off would leave the step as it was."""
    size, _, blown = follow(lambda key, size: (jnp.float32(energy), jnp.array(True)), 0.02, 50)
    assert blown == 50
    np.testing.assert_allclose(size, 0.02 * 0.8**50, rtol=1e-3)


def test_one_chain_that_blows_up_shrinks_the_step_of_all():
    def step(num_blown, num_chains=8):
        r, size = RULE.init(jnp.float32(BEST)), jnp.float32(BEST)
        whole = jnp.arange(num_chains) >= num_blown
        followed = Followed(Info(jnp.zeros(num_chains), whole), jnp.ones(num_chains, bool))
        return RULE.update(r, size, TARGET, followed, DIM)

    assert float(step(0)[1]) > BEST  # no error at all: larger
    assert float(step(1)[1]) < BEST
    assert float(step(8)[1]) < float(step(1)[1])
    assert step(3)[2].tolist() == [True] * 3 + [False] * 5


def test_a_chain_that_stood_still_has_blown_up():
    """Whatever a kernel reports of a step that it undid, the chain is where it was."""
    r, size = RULE.init(jnp.float32(BEST)), jnp.float32(BEST)
    followed = Followed(Info(jnp.zeros(1), jnp.array([True])), jnp.zeros(1, bool))
    _, smaller, is_blow_up = RULE.update(r, size, TARGET, followed, DIM)
    assert float(smaller) < BEST
    assert is_blow_up.all()


def test_a_step_never_vanishes():
    size, _, _ = follow(lambda key, size: (jnp.float32(np.nan), jnp.array(False)), 1.0, 2000)
    assert 0 < size < 1e-19


def test_blow_ups_of_an_info():
    info = Info(jnp.array([0.0, np.nan, 1.0, np.inf]), jnp.array([False, True, True, True]))
    assert is_energy_blow_up(info).tolist() == [True, True, False, True]
