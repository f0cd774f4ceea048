"""Tests of experiments.studies.thermalization: the informed start's rows, shares merged."""

import numpy as np
import pytest
from scipy import stats

from experiments.studies.thermalization import criteria, samplers
from experiments.studies.thermalization.common import mean_and_error, wilson_interval
from experiments.studies.thermalization.criteria import CriteriaSettings
from experiments.studies.thermalization.tables import Point, Run

_STEPS = 100 * np.arange(1, 401)
_BLIND = "informed start, observables without explicit dependence on the teacher"


@pytest.fixture
def found(rng):
    """What the chains of figure 1 leave: an informed start whose test error alone drifts."""
    noise = rng.normal(size=(2, 400, 5))
    risen = 1 - np.exp(-_STEPS / 2000)
    return {
        "names": np.array(["zero", "informed"]),
        "steps": _STEPS,
        "mse": np.stack([np.ones(400), risen * (1 + 0.05 * noise[0, :, 0])]),
        "score": noise[:, :, 1],
        "outputs": noise,
        "mse_at_start": np.array([1.0, 0.0]),
        "score_at_start": np.zeros(2),
        "outputs_at_start": np.ones((2, 5)),
    }


def _settings(figure):
    return CriteriaSettings(
        delta=1e-4, num_train=4, num_test=9, num_sweeps=40_000, num_records=400, num_outputs=5,
        block_length=10, paper_figure=figure,
    )  # fmt: skip


def test_an_informed_start_is_stationary_but_for_what_sees_the_teacher(found):
    rows = {row.setting: row for row in criteria._informed_rows("Gibbs", found, _settings(1))}
    assert rows["informed start, test error"].value > 1000
    assert rows[_BLIND].value == 0
    assert rows[_BLIND].source == "000 Appendix B.1"
    assert rows["informed start, most observables"].value == 0
    assert rows["informed start, at initialization"].value == 0


def test_an_observable_that_drifts_is_told(found):
    found["outputs"] = found["outputs"] * np.exp(-_STEPS / 2000)[:, None] + found["outputs"]
    rows = {row.setting: row for row in criteria._informed_rows("Gibbs", found, _settings(4))}
    assert rows[_BLIND].value > 0
    assert rows["informed start, most observables"].value > 0
    assert {row.source for row in rows.values()} == {None}  # figure 1 has the printed ones


@pytest.mark.parametrize("merged", [0, 3, 8])
def test_a_share_of_few_data_sets_always_has_an_error(merged):
    variance = samplers._variance({"merged": merged, "num_datasets": 8})
    assert 0.09**2 < variance < 0.16**2
    assert samplers._variance({"merged": 10 * merged, "num_datasets": 80}) < variance / 4


def _numbers(is_merged):
    is_merged = np.array(is_merged)
    return {
        "merged": int(is_merged.sum()), "is_merged": is_merged, "share": is_merged.mean(),
        "interval": (0.0, 1.0), "level": 1.0, "level_error": 0.1, "time": (100.0, 9.0),
        "seconds": (10.0, 0.9), "num_steps": 660, "num_datasets": len(is_merged),
        "acceptance": (0.9, 0.01), "informed_acceptance": (0.9, 0.01),
    }  # fmt: skip


@pytest.mark.parametrize("is_merged", [[True] * 4, [True, False, True, True], [False] * 4])
def test_a_mean_time_stands_beside_the_paper_s_which_is_of_those_that_merged(is_merged):
    point = Point(delta=1e-3, num_steps=660)
    run = Run(sampler="HMC", posterior="classical", table=(point,))
    rows = {row.quantity: row for row in samplers._rows(run, point, _numbers(is_merged))}
    assert rows["time_to_merge_seconds"].source == "000 Section V.2"
    assert rows["share_merged"].value == np.mean(is_merged)


def test_the_error_of_a_deficit_is_that_of_paired_data_sets(rng):
    """Shares of the same data sets: on each of them HMC merges only where Gibbs does."""
    merged = rng.random((500, 2, 72)) < np.array([0.8, 0.6])[:, None]
    merged[:, 1] &= merged[:, 0]
    rows = []
    for gibbs, hmc in merged:
        points = [
            {"label": "Gibbs, intermediate", "delta": 4.64e-4, **_numbers(gibbs)},
            {"label": "HMC, classical", "delta": 1e-3, **_numbers(hmc)},
        ]
        rows += samplers._deficit(points)
    spread = np.std([row.value for row in rows])
    assert np.mean([row.standard_error for row in rows]) == pytest.approx(spread, rel=0.1)
    nothing = np.zeros(8, bool)
    assert samplers._paired_variance(nothing, nothing) == pytest.approx(0.1**2)


def test_an_interval_of_a_share_is_wilson_s():
    """SciPy's is of the same probability."""
    whole = stats.binomtest(3, 8).proportion_ci(0.95, method="wilson")
    found = wilson_interval(3, 8, z=stats.norm.ppf(0.975))
    np.testing.assert_allclose(found, [whole.low, whole.high])


def test_the_error_of_a_mean_is_the_deviation_over_the_root():
    mean, error = mean_and_error([1.0, 2.0, 6.0])
    np.testing.assert_allclose([mean, error], [3.0, np.sqrt(7) / np.sqrt(3)])
