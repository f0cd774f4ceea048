"""The thresholds and distances of the kit against SciPy and against simulation."""

import numpy as np
import pytest
from scipy import stats

from tests.kit import chains_needed, detectable_distance, threshold
from tests.kit.dkw import compare, distance_of_samples, distance_to_cdf
from tests.kit.targets import half_line, skew_banana


def test_distances_equal_scipys(rng):
    x, y = rng.standard_normal(501).round(1), rng.standard_normal(501).round(1)
    z = rng.standard_normal(400)
    assert distance_of_samples(x, y) == pytest.approx(stats.ks_2samp(x, y).statistic, abs=1e-15)
    assert distance_to_cdf(z, stats.norm.cdf) == pytest.approx(stats.kstest(z, "norm").statistic)


def test_full_size_finds_half_a_percent_with_both_error_rates_1e_6():
    assert detectable_distance(1_200_000, 5) < 0.005
    assert detectable_distance(1_200_000, 1) < 0.005
    for two_sample in (False, True):
        n = chains_needed(12, two_sample=two_sample)
        assert detectable_distance(n, 12, two_sample=two_sample) <= 0.005
        assert detectable_distance(n - 100, 12, two_sample=two_sample) > 0.005


@pytest.mark.parametrize("two_sample", [False, True])
def test_error_rates_hold_in_simulation(rng, two_sample):
    # At rates of 5% the inequality is nearly sharp: 400 tests show both that it holds and that
    # it is not vacuous. Binomial(400, 0.05) exceeds 50 with probability below 1e-6.
    n, rates = 500, {"false_alarm": 0.05}
    alarm = threshold(n, two_sample=two_sample, **rates)
    power = detectable_distance(n, two_sample=two_sample, miss=0.05, **rates)
    false_alarms = misses = 0
    for _ in range(400):
        x, y = rng.uniform(size=n), rng.uniform(size=n)
        shifted = np.where(x < power, 0.999 + 0.001 * x, x)  # distance `power`, at one point
        if two_sample:
            false_alarms += distance_of_samples(x, y) > alarm
            misses += distance_of_samples(shifted, y) <= alarm
        else:
            false_alarms += distance_to_cdf(x, lambda u: u) > alarm
            misses += distance_to_cdf(shifted, lambda u: u) <= alarm
    assert 1 <= false_alarms <= 50
    assert misses <= 50


def test_nan_and_chains_that_stand_still_do_not_pass(rng):
    values = {"x": rng.uniform(size=1000)}
    uniform = {"x": lambda u: np.clip(u, 0, 1)}
    assert compare(values, {}, uniform, moved=1.0).passes
    assert not compare(values, {}, uniform, moved=0.0).passes
    values["x"][0] = np.nan
    result = compare(values, {}, uniform, moved=1.0)
    assert not result.passes
    assert result.num_nan == 1


def test_two_small_samples_are_refused(rng):
    values = {"x": rng.uniform(size=100)}
    with pytest.raises(ValueError, match="more chains"):
        compare(values, values, {}, moved=1.0)


@pytest.fixture(scope="module")
def skew_draws():
    rng = np.random.default_rng(3)
    x0, z = np.log(rng.exponential(size=4_000_000)), rng.standard_normal(4_000_000)
    x1 = 0.4 * x0**2 + 0.7 * z
    return {"x0": x0, "x1": x1, "x0 x1": x0 * x1, "log density": x0 - np.exp(x0) - z**2 / 2}


@pytest.mark.short("x1")
@pytest.mark.parametrize("name", ["x0", "x1", "x0 x1", "log density"])
def test_distribution_functions_of_the_skew_target(skew_draws, name):
    # Below 0.00135 with probability 1 - 1e-6: half of what the full-size test allows.
    distance = distance_to_cdf(skew_draws[name], skew_banana().cdfs[name])
    assert distance < threshold(len(skew_draws[name]))


@pytest.mark.parametrize("name", ["x0", "log density"])
def test_distribution_functions_of_the_half_line(rng, name):
    x = rng.gamma(2.0, size=1_000_000)
    values = {"x0": x, "log density": np.log(x) - x}[name]
    assert distance_to_cdf(values, half_line().cdfs[name]) < threshold(len(x))
