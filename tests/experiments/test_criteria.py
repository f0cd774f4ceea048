"""Tests of experiments.studies.thermalization: the informed start's rows, shares merged."""

import numpy as np
import pytest

from experiments.studies.thermalization import criteria, samplers
from experiments.studies.thermalization.criteria import CriteriaSettings

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
