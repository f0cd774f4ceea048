"""Tests of diagnostics.blockwise, diagnostics.merge, diagnostics.score, diagnostics.stationarity
and diagnostics.settling: merge, stationarity and score times, and blockwise R-hat, on series with
known answers.
"""

import numpy as np
import pytest
from scipy import stats

from jaxbnn.diagnostics import (
    blockwise_rhat,
    merge_time,
    rhat_brooks_gelman,
    score_time,
    settling,
    stationarity_time,
)

STEPS = np.unique(np.geomspace(1, 200_000, 1000).astype(int))
JUDGED = 100_000


def equilibrium(rng, correlation_time, *shape):
    """Stationary Gaussian AR(1) series of unit variance, seen at STEPS only."""
    noise = rng.normal(size=(*shape, len(STEPS)))
    keep = np.exp(-np.diff(STEPS, prepend=-np.inf) / correlation_time)
    series = np.empty_like(noise)
    state = np.zeros(shape)
    for i, a in enumerate(keep):
        state = series[..., i] = a * state + np.sqrt(1 - a**2) * noise[..., i]
    return series


def test_the_level_is_its_definition(rng):
    """Of ten batches of four; the first three of 43 records are left over."""
    judged = np.cumsum(rng.normal(size=(5, 43)), axis=1)
    found = settling.level_of(judged)
    kept = judged[:, 3:]
    means = kept.reshape(5, 10, 4).mean(axis=2)
    error, spread = means.std(axis=1, ddof=1) / np.sqrt(10), kept.std(axis=1, ddof=1)
    worth = np.maximum((spread / error) ** 2, 5)
    assert (worth > 5).any()
    slopes = [stats.linregress(np.arange(10), row) for row in means]
    expected = {
        "mean": kept.mean(axis=1),
        "error": error,
        "spread": spread * np.sqrt(worth / (worth - 1)),
        "worth": worth,
        "slope_t": [line.slope / line.stderr for line in slopes],
    }
    for name, values in expected.items():
        np.testing.assert_allclose(getattr(found, name), values, rtol=1e-9, err_msg=name)


@pytest.mark.parametrize("power", [660, -660])
def test_units_do_not_matter_however_large(power, rng):
    """Squares of these records are no floats; powers of two do not round."""
    informed, noise = equilibrium(rng, 100.0, 2, 20)
    noise[:, :100] += 30.0
    times = [(stationarity_time, noise), (score_time, noise), (merge_time, noise, informed)]
    for judge, *series in times:
        expected = judge(*series, STEPS)
        assert expected.is_passed.any()
        found = judge(*(np.ldexp(values, power) for values in series), STEPS)
        np.testing.assert_array_equal(found.lower_bound, expected.lower_bound)
        np.testing.assert_array_equal(found.band, np.ldexp(expected.band, power))
        np.testing.assert_array_equal(found.level_error, np.ldexp(expected.level_error, power))


@pytest.mark.parametrize("correlation_time", [1e-9, 0.01 * JUDGED])
def test_false_alarms_are_as_rare_as_stated(correlation_time, rng):
    count, rate = 4000, 0.02
    a, b = equilibrium(rng, correlation_time, 2, count)
    alarms = {
        "merge": merge_time(a, b, STEPS, false_alarm_rate=rate).lower_bound > 0,
        "stationarity": stationarity_time(a, STEPS, false_alarm_rate=rate).lower_bound > 0,
        "score": score_time(a, STEPS, false_alarm_rate=rate).lower_bound > 0,
    }
    most = stats.binom.isf(1e-6, count, rate)
    # Not hollow either: a rule that never rejects would pass the bound above.
    least = stats.binom.isf(1 - 1e-6, count, rate / 10)
    for name, alarm in alarms.items():
        assert least <= alarm.sum() <= most, name


def test_a_plateau_does_not_merge_but_is_stationary(rng):
    informed, noise = equilibrium(rng, 100.0, 2, 200)
    plateau = 3.0 + noise
    merged = merge_time(plateau, informed, STEPS)
    assert not merged.is_passed.any()
    assert (merged.lower_bound == STEPS[-1]).all()
    assert stationarity_time(plateau, STEPS).is_passed.mean() > 0.9
    np.testing.assert_allclose(merged.difference, 3.0, atol=6 * merged.difference_error.max())


@pytest.mark.parametrize("time", [10.0, 1000.0, 5000.0])
def test_the_time_is_that_of_the_descent(time, rng):
    informed, noise = equilibrium(rng, 50.0, 2, 100)
    # 40 exp(-t / time) passes through the band, a few units wide, between 1.5 and 5 times `time`.
    descent = noise + 40 * np.exp(-STEPS / time)
    for found in (
        merge_time(descent, informed, STEPS),
        stationarity_time(descent, STEPS),
        score_time(descent, STEPS),
    ):
        passed = found.lower_bound[found.is_passed]
        assert len(passed) > 90
        # An excursion of the noise later on is a false alarm.
        assert ((passed > 1.5 * time) & (passed < 5 * time)).sum() > 90


def test_a_shorter_informed_run_serves_many_uninformed_ones(rng):
    informed, *noise = equilibrium(rng, 50.0, 4)
    own = STEPS <= 50_000
    series = np.stack(noise) + 40 * np.exp(-STEPS / 1000)
    found = merge_time(series, informed[own], STEPS, informed_steps=STEPS[own])
    assert found.is_passed.all()
    assert found.lower_bound.shape == (3,)
    assert ((found.lower_bound > 1500) & (found.lower_bound < 5000)).all()
    np.testing.assert_allclose(found.level, informed[own & (STEPS > 25_000)].mean(), atol=0.05)


def test_drifts_are_not_equilibrium(rng):
    informed, noise = equilibrium(rng, 50.0, 2, 100)
    drift = 20 * STEPS / STEPS[-1]
    assert not stationarity_time(noise + drift, STEPS).is_passed.any()
    # An informed series that still moves away from the teacher gives no level to merge with,
    # even for a series that moves with it.
    assert not merge_time(noise + drift, informed + drift, STEPS).is_passed.any()


def test_a_run_cut_short_has_not_merged(rng):
    informed, series = equilibrium(rng, 50.0, 2)
    series[-3:] = np.nan
    found = merge_time(series, informed, STEPS)
    assert not found.is_passed
    assert found.lower_bound == STEPS[-1]
    assert not stationarity_time(series, STEPS).is_passed
    assert not score_time(series, STEPS).is_passed
    assert not merge_time(informed, series, STEPS).is_passed


@pytest.mark.parametrize("value", [1.0, 0.1])
def test_constant_series_merge_with_their_equals_only(value):
    """Also where a mean of means, as of .1, is off by rounding."""
    one = np.full(len(STEPS), value)
    assert merge_time(one, one, STEPS)[:2] == (0.0, True)
    assert stationarity_time(one, STEPS)[:2] == (0.0, True)
    assert settling.level_of(one).mean == value
    assert not merge_time(one, one + 1e-6, STEPS).is_passed


def test_a_series_of_infinities_is_no_equilibrium():
    found = stationarity_time(np.full(len(STEPS), np.inf), STEPS)
    assert found[:2] == (STEPS[-1], False)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"steps": STEPS[::-1]}, "increase"),
        ({"steps": STEPS[:-1]}, "one step a record"),
        ({"false_alarm_rate": 1.0}, "between 0 and 1"),
        ({"judged_fraction": 0.0}, "between 0 and 1"),
        ({"judged_fraction": 0.01}, "record more often"),
    ],
)
def test_bad_input_is_named(change, message):
    arguments = {"steps": STEPS, **change}
    with pytest.raises(ValueError, match=message):
        stationarity_time(np.zeros(len(STEPS)), **arguments)


def test_blocks_that_are_too_few_are_told_of():
    with pytest.raises(ValueError, match=r"judges the blocks .* smaller block_length"):
        blockwise_rhat(np.zeros((2, 600, 3)), np.arange(1, 601))


def test_blockwise_rhat_is_formula_16_block_by_block(rng):
    draws = rng.normal(size=(3, 1003, 4)) + rng.normal(size=(3, 1, 1))
    found = blockwise_rhat(draws, 10 * np.arange(1, 1004), block_length=25, threshold=100.0)
    for block in (0, 17, 39):
        expected = np.asarray(rhat_brooks_gelman(draws[:, 25 * block : 25 * (block + 1)]))
        np.testing.assert_allclose(found.mean[block], expected.mean(), rtol=1e-5)
        np.testing.assert_allclose(
            found.percentiles[:, block], np.percentile(expected, [25, 50, 75, 95]), rtol=1e-5
        )
    assert found.steps[1] == 10 * np.mean(np.arange(26, 51))
    assert found.is_passed
    logs = np.log(found.mean[20:])
    np.testing.assert_allclose(found.level, np.exp(logs.mean()))
    error = logs.reshape(10, 2).mean(axis=1).std(ddof=1) / np.sqrt(10)
    np.testing.assert_allclose(found.level_error, found.level * error)
    strict = blockwise_rhat(draws, 10 * np.arange(1, 1004), block_length=25, threshold=1.2)
    assert not strict.is_passed
    assert strict.lower_bound == 10_030


def test_chains_that_meet_pass_where_they_meet_and_fooled_ones_too(rng):
    steps = 100 * np.arange(1, 2001)
    noise = rng.normal(size=(2, 2000, 30))
    apart = np.array([8.0, -8.0])[:, None, None] * (steps < 50_000)[:, None]
    found = blockwise_rhat(noise + apart, steps)
    assert found.is_passed
    assert found.lower_bound == 50_000
    assert blockwise_rhat(noise + 1000.0, steps)[-2:] == (0.0, True)


@pytest.mark.short("1")
@pytest.mark.parametrize("outputs", [1, 10])
def test_blockwise_rhat_of_chains_in_equilibrium_gives_time_0(rng, outputs):
    """Its false alarm rate is .01: of 300 runs 17 may miss it by chance 1e-6."""
    runs = 300
    draws = rng.normal(size=(runs, 2, 2000, outputs)).astype(np.float32)
    steps = np.arange(1, 2001)
    found = [blockwise_rhat(one, steps, threshold=10.0) for one in draws]
    alarms = sum(one.lower_bound > 0 for one in found)
    assert alarms <= stats.binom.isf(1e-6, runs, 0.01)


def test_blockwise_rhat_wants_equal_spacing_and_room():
    draws = np.zeros((2, len(STEPS), 3))
    with pytest.raises(ValueError, match="equally spaced"):
        blockwise_rhat(draws, STEPS)
    with pytest.raises(ValueError, match="block_length"):
        blockwise_rhat(draws, np.arange(len(STEPS)), block_length=1)


def test_informed_series_must_be_as_many(rng):
    many = rng.normal(size=(3, len(STEPS)))
    assert np.shape(merge_time(many, many[0], STEPS).is_passed) == (3,)
    with pytest.raises(ValueError, match="as many informed series as uninformed ones, or one"):
        merge_time(many, many[:2], STEPS)
