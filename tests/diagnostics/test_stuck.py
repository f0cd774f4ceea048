"""Tests of diagnostics.findings, diagnostics.levels and diagnostics.movement: what R-hat does not
see, `summary` says: frozen replicas, stands, levels of the log density.

Healthy runs must stay without these warnings.
"""

import itertools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxbnn.diagnostics import by_replica, rank_rhat, summary
from jaxbnn.diagnostics import movement as movement_module
from jaxbnn.diagnostics.levels import on_both_sides, separate_levels
from jaxbnn.diagnostics.movement import long_stands, movement, returns
from tests.diagnostics.chains import autoregressive

# Summaries here have this shape, and the log density, so that they are compiled once.
CHAINS, DRAWS, REPLICAS = 4, 2000, 10
WARM_UP = 200


def tempered_run(rng, frozen):
    """Swaps of replicas at one temperature, a random walk each; `frozen` of them never move.

    Returns positions and log density at the first rung, and every replica's acceptance.
    """
    x = rng.normal(size=(CHAINS, REPLICAS, 3))
    x[:, 0] = [25.0, 30.0, -20.0]
    is_stuck = np.zeros((CHAINS, REPLICAS), bool)
    is_stuck[frozen] = True
    kept = np.empty((CHAINS, DRAWS, 3), np.float32)
    accepted = np.full((CHAINS, DRAWS, REPLICAS), 1e-20)  # a probability is never quite 0
    cold = np.zeros(CHAINS, int)
    chain = np.arange(CHAINS)
    for t in range(-WARM_UP, DRAWS):
        proposal = 0.6 * x + 0.8 * rng.normal(size=x.shape)
        moves = (rng.random((CHAINS, REPLICAS)) < 0.57) & ~is_stuck
        x = np.where(moves[..., None], proposal, x)
        if t % 3 == 0:
            cold = rng.integers(REPLICAS, size=CHAINS)
        if t >= 0:
            kept[:, t], accepted[:, t] = x[chain, cold], accepted[:, t] + moves
    return kept, normal_log_density(kept), accepted


def normal_log_density(x):
    return (-0.5 * (x**2).sum(axis=2)).astype(np.float32)


def normal(rng):
    return rng.normal(size=(CHAINS, DRAWS, 3)).astype(np.float32)


@pytest.fixture(scope="module")
def trap():
    # The replica that starts far away is stuck in every chain: all chains agree, and are wrong.
    return tempered_run(np.random.default_rng(3), (slice(None), 0))


@pytest.mark.long
def test_a_frozen_replica_passed_round_is_told(trap):
    positions, log_density, accepted = trap
    assert rank_rhat(log_density) < 1.01
    assert abs(log_density.mean() + 1.5) > 50  # tens of nats off
    table = summary(positions, log_density=log_density, acceptance_rate=accepted)
    assert table.rhat.max() < 1.015
    words = "\n".join(table.warnings)
    assert "Chains 0, 1, 2, 3 returned again and again to exactly the same positions (" in words
    assert "The log density has two levels with nothing between -962.5 and " in words
    share = (log_density[0] < -900).mean()
    assert f"the lower holds {share:.1%} of chain 0, " in words
    assert "Replicas 0 of chain 0, 0 of chain 1, 0 of chain 2, 0 of chain 3 accepted next" in words
    assert table.acceptance_rate.shape == (CHAINS, REPLICAS)
    # Positions alone tell it too.
    assert [hit.chain for hit in returns(movement(positions, ()))] == [0, 1, 2, 3]


def test_one_frozen_replica_in_one_chain(rng):
    positions, _, _ = tempered_run(rng, (2, 0))
    positions[[0, 1, 3]] = normal(rng)[:3]
    log_density = normal_log_density(positions)
    words = "\n".join(summary(positions, log_density=log_density).warnings)
    assert "Chain 2 returned again and again" in words
    assert "% of chain 2. A replica" in words
    assert "chain 1" not in words.lower()


def test_healthy_populations_have_no_warning(rng):
    positions, log_density, accepted = tempered_run(rng, np.zeros((CHAINS, REPLICAS), bool))
    found = summary(positions, log_density=log_density, acceptance_rate=accepted)
    assert found.warnings == ()


def test_a_chain_that_stops_is_told(rng):
    draws = normal(rng)
    draws[3, 1620:] = draws[3, 1620]
    words = summary(draws, log_density=normal_log_density(draws)).warnings
    assert any(w.startswith("Chain 3 stood still from draw 1620 to 1999") for w in words)


def metropolis_chain(rng, acceptance, chains, draws):
    fresh = rng.random((chains, draws)) < acceptance
    fresh[:, 0] = True
    last = np.maximum.accumulate(np.where(fresh, np.arange(draws), 0), axis=1)
    values = rng.normal(size=(chains, draws, 2))
    return np.take_along_axis(values, last[..., None], axis=1).astype(np.float32)


@pytest.mark.short("0.1")
@pytest.mark.parametrize("acceptance", [0.02, 0.1, 0.57, 1.0])
def test_rejections_alone_are_no_stand_and_no_return(acceptance, rng):
    """2,000 chains each; the stated chance of a false alarm is 1e-6 a chain, 2e-3 in all."""
    draws = metropolis_chain(rng, acceptance, 2000, 1000)
    found = movement(draws, ())
    stays = [movement_module._stays(code) for code in movement_module._codes(found)[:3]]
    assert [s.lengths.max() for s in stays] == [longest_run(chain) for chain in draws[:3]]
    assert long_stands(found, 1000) == []
    assert returns(found) == []


@pytest.mark.short("0.003")
@pytest.mark.parametrize("chance", [0.1, 0.03, 0.01, 0.003])
def test_rare_indicators_and_atoms_are_no_stand(chance, rng):
    """They stay long where they are often; 2,000 chains of each, a chance of 4e-3 in all."""
    slab = np.where(rng.random((2, 2000, 1000)) < chance, rng.normal(size=(2000, 1000)), 0.0)
    for draws in (slab[0] != 0, slab[1]):
        found = movement(draws[..., None].astype(np.float32), ())
        assert long_stands(found, 1000) == []


@pytest.mark.parametrize("chance", [0.01, 0.3])
def test_stands_are_as_rare_as_stated(chance, rng, monkeypatch):
    """At a chance that can be counted, and is nearly reached where no position comes back."""
    monkeypatch.setattr(movement_module, "_LOG_RARE", math.log(0.2))
    coins = (rng.random((4000, 1000, 1)) < chance).astype(np.float32)
    chains = metropolis_chain(rng, chance, 4000, 1000)
    for draws, fewest in ((coins, 0.3), (chains, 0.7)):
        alarms = len(long_stands(movement(draws, ()), 1000))
        assert fewest < alarms / (4000 * 0.2) < 1.1


def test_what_turned_nan_did_not_stand_still(rng):
    """A stand before is told of the draws before, and one of zeros of both signs whole."""
    draws = metropolis_chain(rng, 0.5, 4, 1000)
    draws[0, 600:] = np.nan
    draws[1, 500:] = np.inf
    draws[1, 200:380] = 0.25
    draws[2, 400:580] = [0.0, -0.0]
    draws[2, 400:580:2] = [-0.0, 0.0]
    draws[3] = np.nan
    for given in (draws, np.asarray(draws, np.float16)):
        found = long_stands(movement(given, ()), 1000)
        assert [tuple(stand) for stand in found] == [(1, 200, 180, False), (2, 400, 180, False)]
    # Nor did it come back to where it is NaN.
    draws[0, ::2] = np.nan
    draws[0, :100] = 1 + np.arange(100)[:, None]
    assert returns(movement(draws[:1], ())) == []


def sticky_atom(rng, chains, draws):
    """Left more rarely than other positions, and seldom visited."""
    x = np.zeros((chains, draws, 1), np.float32)
    is_there = rng.random(chains) < 1 / 6
    for t in range(draws):
        u = rng.random(chains)
        is_there = np.where(is_there, u > 0.01, u < 0.002)
        x[~is_there, t, 0] = rng.normal(size=np.count_nonzero(~is_there))
    return x


def test_a_stand_where_other_chains_are_may_be_at_an_atom(rng):
    atoms = sticky_atom(rng, 8, 1000)
    stuck = normal(rng)[:, :1000]
    stuck[2, 400:] = stuck[2, 400]
    either = "either the law has an atom there"
    for given, may_be in ((atoms, True), (stuck, False), (stuck[2:3], True)):
        stands = long_stands(movement(given, ()), 1000)
        assert stands
        assert {stand.may_be_atom for stand in stands} == {may_be}
        (sentence,) = [w for w in summary(given).warnings if "stood still" in w]
        assert (either in sentence) == may_be


def test_a_stand_at_an_atom_is_told(rng):
    for chance in (0.5, 0.1):
        draws = (rng.random((2, 2000, 1)) < chance).astype(np.float32)
        draws[1, 1200:] = 0
        (stand,) = long_stands(movement(draws, ()), 2000)
        assert (stand.chain, stand.may_be_atom) == (1, False)


def test_a_shared_place_may_be_an_atom(rng):
    """So may that of a single chain; what one of several chains holds may not."""
    draws = np.maximum(rng.normal(size=(4, 1000, 2)) - 0.5, 0).astype(np.float32)
    stuck = normal(rng)[:, :1000]
    stuck[2, ::10] = 0.5
    either = "either the law has an atom there"
    for given, atoms in ((draws, True), (draws[:1], True), (stuck, False), (stuck[2:3], True)):
        hits = returns(movement(given, ()))
        assert hits
        assert {hit.may_be_atoms for hit in hits} == {atoms}
        (sentence,) = [w for w in summary(given).warnings if "again and again" in w]
        assert (either in sentence) == atoms
        assert "a replica that never moves is passed round by swaps" in sentence


@pytest.mark.parametrize("chains", [1, 4])
def test_discrete_positions_come_back_by_themselves(chains, rng):
    few_bits = jnp.asarray(rng.normal(size=(chains, 1000)), jnp.bfloat16)
    coins = rng.integers(2, size=(chains, 1000)).astype(np.float32)
    dice = rng.integers(6, size=(chains, 1000, 2)).astype(np.float32)
    for draws in (few_bits, coins, dice):
        assert returns(movement(draws, ())) == []
    # One start for all chains, to which swaps bring a stuck replica back.
    stuck = rng.normal(size=(chains, 1000, 3)).astype(np.float32)
    stuck[:, ::10] = 0.5
    assert [hit.chain for hit in returns(movement(stuck, ()))] == list(range(chains))


def longest_run(chain):
    best = run = 1
    for before, after in itertools.pairwise(chain):
        run = run + 1 if (before == after).all() else 1
        best = max(best, run)
    return best


def heavy_tails(rng, shape):
    x = rng.standard_cauchy(size=(*shape, 2))
    return -np.log1p(x**2).sum(axis=2)


def chi_square(dimension):
    return lambda rng, shape: -0.5 * rng.chisquare(dimension, size=shape)


def slow(rng, shape):
    return -0.5 * sum(autoregressive(rng, 0.98, *shape) ** 2 for _ in range(3))


def flat(rng, shape):
    return np.where(rng.random(shape) < 0.9, -0.01, -3.0 * rng.random(shape))


@pytest.mark.parametrize(
    "law", [chi_square(1), chi_square(27), chi_square(10_000), heavy_tails, slow, flat]
)
@pytest.mark.parametrize("shape", [(400, 40), (400, 1000)])
def test_one_mode_has_one_level(law, shape, rng):
    """Of 400 chains none, taken one by one and all together: the stated chance is below 1e-8."""
    series = law(rng, shape)
    assert separate_levels(series) is None


def test_levels_and_who_is_where(rng):
    series = normal(rng)[..., 0] - 80
    series[2] -= 40
    found = separate_levels(series)
    np.testing.assert_allclose(found.shares, [0, 0, 1, 0])
    assert not on_both_sides(found).any()
    assert (found.below, found.above) == (series[2].max(), series[[0, 1, 3]].min())
    words = "\n".join(summary(normal(rng), log_density=series).warnings)
    assert "on the lower chain 2, on the upper chains 0, 1, 3" in words
    # A few stuck draws of one chain of many are a level of that chain.
    series = rng.normal(size=(100, 500)) - 80
    series[7, ::20] = -1100.0
    np.testing.assert_allclose(separate_levels(series).shares[7], 0.05)
    series[7, 40:] = np.nan
    assert separate_levels(series) is None


def test_nothing_lies_between_levels_of_one_chain_that_are_told_as_everybody_s(rng):
    series = normal(rng)[..., 0] - 80
    series[2, ::50] = -1100.0
    for other, both in ((-300.0, [2]), (-1090.0, [0, 2])):
        series[0, :5] = other
        found = separate_levels(series)
        assert found.chain is None
        assert not ((series > found.below) & (series < found.above)).any()
        assert np.flatnonzero(on_both_sides(found)).tolist() == both


def test_levels_that_other_chains_fill_are_told_as_one_chain_s_own(rng):
    """A chain that is still on its way passes all between them."""
    series = normal(rng)[..., 0] - 80
    series[2, ::50] = -1100.0
    series[0, :400] = np.linspace(-1200, -80, 400)
    found = separate_levels(series)
    assert found.chain == 2
    assert np.flatnonzero(on_both_sides(found)).tolist() == [2]
    words = "\n".join(summary(normal(rng), log_density=series).warnings)
    assert "The log density of chain 2 has two levels with nothing between -1100 and -8" in words
    assert "the lower holds 2.0% of chain 2. A replica" in words


def test_following_replicas(rng):
    """Values by rung, before and after swaps, against a simulation with labels."""
    rungs = np.arange(5)
    replica = rungs.copy()
    for _ in range(4):
        order = rng.permutation(5)
        before, replica = replica, replica[order]
        value = rng.normal(size=5).astype(np.float32)  # of each replica
        np.testing.assert_array_equal(by_replica(value[before], replica, order), value)
        np.testing.assert_array_equal(by_replica(value[replica], replica), value)
    stacked = by_replica(np.stack([value[replica]] * 3), np.stack([replica] * 3))
    np.testing.assert_array_equal(stacked, np.stack([value] * 3))


def test_positions_of_any_type_have_fingerprints(rng):
    draws = {
        "f16": np.repeat(rng.normal(size=(2, 10, 3)).astype(np.float16), 2, axis=1),
        "i": np.zeros((2, 20), np.int8),
        "b": np.zeros((2, 20, 0, 3), bool),
    }
    found = movement(draws, ())
    assert found.moves.tolist() == [9, 9]
    assert (found.fingerprints[:, ::2] == found.fingerprints[:, 1::2]).all()
    assert len(np.unique(found.fingerprints.reshape(-1, 2), axis=0)) == 20
    with jax.enable_x64(True):
        doubles = rng.normal(size=(1, 8, 2))
        doubles[0, 5] = doubles[0, 2]
        marks = movement(doubles, ()).fingerprints[0]
        assert (marks[5] == marks[2]).all()
        assert len(np.unique(marks, axis=0)) == 7
