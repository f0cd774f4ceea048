"""Tests of experiments.studies.thermalization.faster, faster_chains and faster_settings: what is
judged, and which steps are recorded; the study itself runs in test_studies.py.
"""

from types import SimpleNamespace

import numpy as np
import pytest
from pydantic import ValidationError
from scipy.stats import binom

from experiments.studies.thermalization import faster
from experiments.studies.thermalization.faster_chains import recorded_steps, stage_name
from experiments.studies.thermalization.faster_settings import FasterSettings, lengths, warmup_of

SETTINGS = {
    "num_train": 10,
    "num_test": 10,
    "num_steps": 1000,
    "num_warmup": 100,
    "num_records": 400,
    "record_every": 10,
    "arms": ({"name": "plain"}, {"name": "all", "moves": ("scales",), "is_annealed": True}),
    "cases": ({"delta": 1e-3, "num_datasets": 3, "arms": ("plain", "all")},),
}


def settings(**changes):
    return FasterSettings(**(SETTINGS | changes))


def series(offset=0.0, decay=0.0, seed=0, num_warmup=100, spread=0.1):
    """Three data sets with log errors around -7 and a drift that is gone after some steps."""
    steps = recorded_steps(1000, num_warmup, settings())
    noise = spread * np.random.default_rng(seed).normal(size=(3, len(steps)))
    log_mse = -7 + noise + offset + decay * np.exp(-steps / 40)
    values = np.random.default_rng(seed + 1).normal(size=(3, len(steps), 2))
    return {
        "steps": steps,
        "mse": np.exp(log_mse),
        "norms": values + offset,
        "unit_norms": values,
        "log_density": values[..., 0],
        "num_warmup": np.asarray(num_warmup),
        "seconds_per_step": np.asarray(0.002),
    }


def test_time_counts_the_warm_up_and_what_follows():
    informed = series(seed=5)
    at_once = faster.merged(series(seed=6), informed, 0.01)
    assert at_once.is_passed.all()
    np.testing.assert_array_equal(at_once.lower_bound, 100)
    later = faster.merged(series(seed=7, decay=400.0), informed, 0.01)
    assert later.is_passed.all()
    assert np.all((later.lower_bound > 150) & (later.lower_bound < 500))
    numbers = faster.summary(later, series())
    seconds, iterations = (
        numbers[f"{unit}_to_thermalize"][0] for unit in ("seconds", "iterations")
    )
    assert seconds == pytest.approx(0.002 * iterations)


def test_chains_elsewhere_have_not_thermalized():
    away = faster.merged(series(offset=1.0, seed=3), series(seed=5), 0.01)
    assert not away.is_passed.any()
    numbers = faster.summary(away, series())
    assert numbers["share_thermalized"][0] == 0
    # Clopper and Pearson's interval of 0 of 3: up to 1 - 0.025^(1/3).
    assert numbers["share_thermalized_high"][0] == pytest.approx(1 - 0.025 ** (1 / 3))
    assert np.isnan(numbers["iterations_to_thermalize"][0])


def test_copies_on_a_data_set_are_one_trial():
    """Which passes when all of them do, and when the last of them does."""
    later = SimpleNamespace(
        is_passed=np.array([True, True, True, False]), lower_bound=np.array([10, 30, 20, 40])
    )
    passed, bound = faster.of_data_sets(later, 2)
    np.testing.assert_array_equal(passed, [True, False])
    np.testing.assert_array_equal(bound, [30, 40])
    numbers = faster.summary(later, {"seconds_per_step": 0.5}, 2)
    assert numbers["share_thermalized"] == (0.5,)
    assert np.isnan(numbers["iterations_to_thermalize"][0])  # half of them never did
    assert np.isnan(numbers["iterations_to_thermalize_low"][0])  # two of them tell no interval
    low, high = numbers["share_thermalized_low"][0], numbers["share_thermalized_high"][0]
    assert (low, high) == pytest.approx((0.0126, 0.9874), abs=1e-4)


def test_rhat_sees_chains_that_differ_in_one_invariant():
    same = {"informed": series(seed=1), "zero": series(seed=2)}
    worst = faster.worst_rhat(same, 1)
    assert set(worst) == {"mse", "norms", "unit_norms", "log_density"}
    assert all(values.shape == (3,) and np.all(values < 1.2) for values in worst.values())
    worst = faster.worst_rhat({**same, "zero": series(seed=2, offset=4.0)}, 1)
    assert np.all(worst["norms"] > 1.5)
    assert np.all(worst["unit_norms"] < 1.2)
    # Copies of a data set stand side by side: three data sets are one of three chains.
    assert faster.worst_rhat(same, 3)["mse"].shape == (1,)


def test_records_are_figure_twos_and_equally_spaced_ones():
    steps = recorded_steps(1000, 100, settings())
    assert steps[0] > 100
    assert steps[-1] == 1000
    assert set(range(110, 1001, 10)) <= set(steps.tolist())
    assert lengths(settings().cases[0], settings()) == (1000, 100)


def test_stages_have_names_of_their_own():
    case, arms = settings().cases[0], settings().arms
    copies = case.model_copy(update={"num_copies": 2})
    names = {stage_name(c, arm, "zero") for c in (case, copies) for arm in arms}
    assert len(names) == 4


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"only_arms": ("none",)}, "there is no arm 'none', only plain, all"),
        ({"num_warmup": 501}, "num_warmup must be at most half of num_steps"),
        ({"arms": ({"name": "plain"}, {"name": "plain"})}, "a name of its own"),
    ],
)
def test_settings_that_do_not_fit_get_one_sentence(changes, words):
    with pytest.raises(ValidationError, match=words):
        settings(**changes)


def test_arms_that_differ_in_their_warm_up_share_the_informed_chains():
    scales = {"name": "scales", "moves": ("scales",)}
    of = settings(arms=(*SETTINGS["arms"], scales))
    case, (plain, annealed, other) = of.cases[0], of.arms
    assert stage_name(case, annealed, "informed") == stage_name(case, other, "informed")
    assert stage_name(case, annealed, "zero") != stage_name(case, other, "zero")
    assert stage_name(case, plain, "informed") != stage_name(case, other, "informed")
    assert warmup_of(of, case, annealed, "zero") == (100, of.anneal_from)
    steps, first = warmup_of(of, case, annealed, "optimised")
    assert steps == 100
    assert case.delta < first < of.anneal_from
    assert warmup_of(of, case, annealed, "informed") == (0, 0.0)
    moving = annealed.model_copy(update={"moves": ("interweave",)})
    assert warmup_of(of, case, moving, "informed") == (of.num_tuning, 0.0)


def test_medians_count_what_never_thermalized():
    low_half = np.concatenate([np.arange(1.0, 21.0), np.full(12, np.inf)])
    assert faster.median_time(low_half)[:2] == (16.5, 10.0)
    assert np.isnan(faster.median_time(low_half)[2])
    assert np.isnan(faster.median_time(np.full(4, np.inf))).all()


@pytest.mark.parametrize("number", [4, 5, 6, 9, 32])
def test_an_interval_of_a_median_has_95_per_cent_or_no_ends(number):
    """The median lies below the k-th least as often as n tosses have fewer than k heads."""
    _, low, high = faster.median_time(np.arange(1.0, number + 1))
    if number < 6:
        assert np.isnan([low, high]).all()
    else:
        assert high == number + 1 - low
        assert 2 * binom.cdf(low - 1, number, 0.5) <= 0.05


def test_effective_sizes_are_of_a_thousand_iterations():
    """Independent records every 10 iterations: 100 in 1,000, or a few less of the worst of two."""
    found = faster.effective_sizes(series(seed=4))
    assert found["mse"][0] == pytest.approx(100, rel=0.5)
    assert found["norms"][0] < 110
    assert found["log_density"][1] > 0
