"""Tests of sampling.chunks, sampling.keys, sampling.loops, sampling.run and sampling.runner: which
numbers a run draws: by key, chain and step alone, however it is cut or thinned.
"""

import functools
from typing import NamedTuple

import blackjax
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from blackjax.base import SamplingAlgorithm

import jaxbnn
from jaxbnn.sampling.loops import Chains, Options, RateSum, Span
from jaxbnn.sampling.pace import Pace
from jaxbnn.sampling.programs import programs_for
from jaxbnn.sampling.run import Schedule
from tests.sampling.tiny import ar, ar_by_hand, normal_log_density, rates_by_hand

KEY = jax.random.key(3)
STARTS = np.array([[0.0, 1.0], [-4.0, 2.0], [7.0, 0.5]], np.float32)
KERNEL = ar()


class Words(NamedTuple):
    position: jax.Array


@functools.cache
def long_run():
    """25,005 steps of one short-named run, nothing left out."""
    return jaxbnn.sample(KEY, KERNEL, STARTS, 25_005, progress=False)


def test_the_key_of_a_step_is_folded_from_key_chain_and_step():
    draws = jaxbnn.sample(KEY, KERNEL, STARTS, 12, num_warmup=5, progress=False)
    by_hand = ar_by_hand(KEY, STARTS, 17)
    np.testing.assert_allclose(draws.positions, by_hand[:, 5:], rtol=1e-5, atol=1e-6)
    rates = rates_by_hand(by_hand[:, 5:])
    np.testing.assert_allclose(draws.infos.acceptance_rate, rates, rtol=1e-5)
    assert draws.infos.noise is None  # not one number a step
    np.testing.assert_array_equal(draws.infos.is_large, draws.positions[..., 0] > 1)
    assert draws.steps.tolist() == list(range(1, 13))
    mean = np.where(np.isnan(rates), 0, rates).mean(1)
    np.testing.assert_allclose(draws.acceptance_rate, mean, rtol=1e-5)
    assert not draws.interrupted


def test_another_key_draws_other_numbers():
    other = jaxbnn.sample(jax.random.key(4), KERNEL, STARTS, 12, num_warmup=5, progress=False)
    by_hand = ar_by_hand(KEY, STARTS, 17)
    assert np.abs(other.positions - by_hand[:, 5:]).min() > 0


def test_more_chains_leave_the_first_ones_alone():
    more = jaxbnn.sample(KEY, KERNEL, np.concatenate([STARTS, STARTS]), 50, progress=False)
    fewer = jaxbnn.sample(KEY, KERNEL, STARTS[:1], 50, progress=False)
    np.testing.assert_allclose(more.positions[:3], long_run().positions[:, :50], rtol=1e-5)
    np.testing.assert_allclose(more.positions[:1], fewer.positions, rtol=1e-5, atol=1e-6)
    assert np.abs(more.positions[3:] - more.positions[:3])[:, -1].min() > 1e-3


def test_a_run_goes_on_from_its_final_state():
    draws = jaxbnn.sample(KEY, KERNEL, STARTS, 30, chunk_size=7, progress=False)
    np.testing.assert_array_equal(draws.final_state.position, draws.positions[:, -1])


@pytest.mark.parametrize("chunk_size", [1, 7])
def test_chunks_do_not_change_the_draws(x64, chunk_size):
    starts = STARTS.astype(np.float64)
    options = {"progress": False, "reduce": {"m": jaxbnn.moments()}, "num_warmup": 4}
    draws = jaxbnn.sample(KEY, KERNEL, starts, 25, chunk_size=chunk_size, **options)
    by_hand = ar_by_hand(KEY, starts, 29)[:, 4:]
    assert draws.positions.dtype == np.float64
    np.testing.assert_allclose(draws.positions, by_hand, rtol=0, atol=1e-10)
    moments = draws.reduced["m"].per_chain
    np.testing.assert_allclose(moments.mean, by_hand.mean(1), rtol=0, atol=1e-10)
    np.testing.assert_allclose(moments.variance, by_hand.var(1, ddof=1), rtol=0, atol=1e-10)


def test_chunks_do_not_change_a_metropolis_chain(x64):
    kernel = blackjax.mala(normal_log_density, 0.8)
    starts = STARTS.astype(np.float64)
    whole = jaxbnn.sample(KEY, kernel, starts, 50, progress=False)
    cut = jaxbnn.sample(KEY, kernel, starts, 50, progress=False, chunk_size=7)
    assert 0.2 < whole.infos.is_accepted.mean() < 0.95
    np.testing.assert_allclose(cut.positions, whole.positions, rtol=0, atol=1e-10)
    np.testing.assert_array_equal(cut.infos.is_accepted, whole.infos.is_accepted)
    np.testing.assert_allclose(cut.acceptance_rate, whole.acceptance_rate, rtol=0, atol=1e-10)


@pytest.mark.parametrize("is_thinned", [False, True])
def test_one_program_cut_anywhere_agrees_to_the_last_bit(is_thinned):
    reduce = (jaxbnn.moments(), jaxbnn.acceptance())
    collect = lambda state, info: state.position  # noqa: E731
    programs = programs_for(KERNEL, Options(collect, reduce, None, 10, None, is_thinned))
    keys = jax.vmap(lambda c: jax.random.fold_in(KEY, c))(jnp.arange(3))
    gap = 2 if is_thinned else 1

    def run(*counts):
        states = programs.init(keys, jnp.asarray(STARTS), None, None)
        reducers = programs.init_reducers((jnp.asarray(STARTS), jnp.zeros(3)))
        positions, start, rates = [], 0, RateSum(jnp.zeros(3), jnp.zeros(3))
        for count in counts:
            gaps, is_record = np.full(10, gap, np.int32), np.ones(10, bool)
            chunk = programs.sampling(
                keys,
                Chains(states, reducers, rates, None),
                None,
                Span(np.uint32(start), np.int32(count), gaps, is_record),
            )
            assert chunk.num_records.tolist() == [min(count, 10)] * 3
            states, reducers, start = chunk.states, chunk.reducers, start + gap * count
            rates = rates if chunk.rate_sum is None else chunk.rate_sum
            positions.append(np.asarray(chunk.positions)[:, :count])
        return np.concatenate(positions, 1), reducers, rates

    whole, cut = run(10), run(1, 4, 0, 5)
    jax.tree.map(np.testing.assert_array_equal, whole, cut)


def test_a_chunk_holds_only_what_fits(monkeypatch):
    # 3 chains, 10 records of 2 floats, 2 scalars (8 + 4 + 1 bytes) each.
    monkeypatch.setattr(jaxbnn.sampling.run, "CHUNK_BYTES", 3 * 10 * 13)
    monkeypatch.setattr(Pace, "next_records", lambda self, gaps: len(gaps))  # not by the clock
    seen = []
    draws = jaxbnn.sample(
        KEY,
        KERNEL,
        STARTS,
        64,
        progress=lambda p: seen.append(p.done),
        reduce={"m": jaxbnn.moments()},
    )
    assert seen == [10, 20, 30, 40, 50, 60, 64]
    np.testing.assert_allclose(draws.positions, long_run().positions[:, :64], rtol=1e-5, atol=1e-6)
    assert draws.reduced["m"].pooled.num_draws == 3 * 64


def test_large_collected_values_shrink_the_chunk(monkeypatch):
    monkeypatch.setattr(jaxbnn.sampling.run, "CHUNK_BYTES", 3 * 20_000)
    seen = []
    draws = jaxbnn.sample(
        KEY,
        KERNEL,
        STARTS,
        12,
        collect=lambda state, info: jnp.full(2000, state.position[0]),
        progress=lambda p: seen.append(p.done),
    )
    assert max(np.diff(seen, prepend=0)) <= 2
    assert draws.positions.shape == (3, 12, 2000)
    np.testing.assert_allclose(
        draws.positions[:, :, 7], long_run().positions[:, :12, 0], rtol=1e-5, atol=1e-6
    )


@pytest.mark.parametrize(("thinning", "chunk_size"), [(3, 4), (np.int64(7), None)])
def test_a_thinned_run_keeps_every_kth_draw(thinning, chunk_size):
    draws = jaxbnn.sample(
        KEY, KERNEL, STARTS, 10, thinning=thinning, chunk_size=chunk_size, progress=False
    )
    every = slice(int(thinning) - 1, 10 * int(thinning), int(thinning))
    full = long_run()
    np.testing.assert_allclose(draws.positions, full.positions[:, every], rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(
        draws.infos.acceptance_rate, full.infos.acceptance_rate[:, every], rtol=1e-5
    )
    np.testing.assert_array_equal(draws.steps, full.steps[every])
    rates = full.infos.acceptance_rate[:, : 10 * int(thinning)]  # steps between count too
    np.testing.assert_allclose(
        draws.acceptance_rate, np.where(np.isnan(rates), 0, rates).mean(1), rtol=1e-5
    )


SCHEDULE = [1, 2, 5, 9_999, 20_000, 25_004, 25_005]


@pytest.mark.parametrize("chunk_size", [3])
def test_a_schedule_keeps_the_steps_it_names(chunk_size):
    progress = []
    draws = jaxbnn.sample(
        KEY,
        KERNEL,
        STARTS,
        len(SCHEDULE),
        thinning=SCHEDULE,
        chunk_size=chunk_size,
        reduce={"m": jaxbnn.moments(), "a": jaxbnn.acceptance()},
        progress=progress.append,
    )
    kept = long_run().positions[:, np.array(SCHEDULE) - 1]
    np.testing.assert_allclose(draws.positions, kept, rtol=1e-5, atol=1e-6)
    assert draws.steps.tolist() == SCHEDULE
    assert progress[-1].done == progress[-1].total == 25_005
    # The kept draws only are reduced, acceptance apart.
    assert draws.reduced["m"].per_chain.num_draws.tolist() == [7, 7, 7]
    np.testing.assert_allclose(draws.reduced["m"].per_chain.mean, kept.mean(1), rtol=1e-4)
    acceptance = draws.reduced["a"].per_chain
    rates = long_run().infos.acceptance_rate
    assert acceptance.num_steps.tolist() == [25_005] * 3
    np.testing.assert_array_equal(acceptance.num_nan, np.isnan(rates).sum(1))
    np.testing.assert_allclose(acceptance.acceptance_rate, draws.acceptance_rate, rtol=1e-4)


def test_long_gaps_are_walked_in_pieces(rng):
    steps = np.cumsum(rng.integers(1, 45_000, 200))
    _, gaps, is_record = Schedule.of(steps)
    assert gaps.max() <= 10_000
    assert gaps.min() >= 1
    np.testing.assert_array_equal(np.cumsum(gaps)[is_record], steps)
    assert Schedule.of(np.array([10_000, 20_001])).num_records == 3


@pytest.mark.long
def test_completions_belong_to_the_draw_and_not_to_the_run():
    def function(rng_key, position):
        return {
            "noisy": position + jax.random.normal(rng_key, (2,)),
            "u": jax.random.uniform(rng_key),
        }

    key = jax.random.key(8)
    full = jaxbnn.sample(KEY, KERNEL, STARTS, 30, progress=False)
    thinned = jaxbnn.sample(KEY, KERNEL, STARTS, 10, thinning=3, progress=False)
    of_full = jaxbnn.complete(key, full, lambda k, x: jax.random.normal(k, (2,)), batch_size=4)
    of_thinned = jaxbnn.complete(key, thinned, lambda k, x: jax.random.normal(k, (2,)))
    np.testing.assert_array_equal(of_thinned, of_full[:, 2::3])
    flat = np.asarray(of_full).reshape(-1, 2)
    assert len(np.unique(flat, axis=0)) == len(flat)  # no two draws share a key
    first = jax.random.fold_in(jax.random.fold_in(key, 2), 6)
    np.testing.assert_array_equal(of_thinned[2, 1], jax.random.normal(first, (2,)))
    with jax.debug_key_reuse(False):  # this function draws twice from one key on purpose
        tree = jaxbnn.complete(key, thinned, function)
    assert tree["noisy"].shape == (3, 10, 2)
    assert tree["u"].shape == (3, 10)
    np.testing.assert_allclose(tree["noisy"] - of_thinned, thinned.positions, atol=1e-5)


def test_nothing_kept_cannot_be_completed():
    draws = jaxbnn.sample(KEY, KERNEL, STARTS, 10, collect=None, progress=False)
    assert draws.positions is None
    with pytest.raises(ValueError, match="no kept draws"):
        jaxbnn.complete(KEY, draws, lambda k, x: x)


def test_a_start_has_a_key_that_no_step_has():
    """That of a counter which no step reaches."""

    def words(key):
        return jax.random.key_data(key)

    def init(position, rng_key=None):
        return Words(words(rng_key))

    kernel = SamplingAlgorithm(init, lambda key, state: (state, ()))
    key, nothing = jax.random.key(3), np.zeros((2, 2), np.uint32)
    found = jaxbnn.sample(key, kernel, nothing, 1, progress=False).final_state.position
    for chain in range(2):
        expected = jax.random.fold_in(jax.random.fold_in(key, chain), 2**32 - 1)
        np.testing.assert_array_equal(found[chain], words(expected))
