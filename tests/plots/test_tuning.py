"""Tests of plots.predictions: curves over a parameter: means, medians and bars against NumPy."""

import numpy as np
import pytest
from scipy import stats

from jaxbnn import plots
from jaxbnn.plots import predictions

STEP_SIZES = np.array([0.3, 0.1, 0.2])
ORDER = [1, 2, 0]


def bars(axes):
    (collection,) = axes.collections
    return np.array([segment[:, 1] for segment in collection.get_segments()])


def test_acceptance_is_the_mean_with_the_standard_error_between_chains(rng):
    rates = rng.uniform(0.3, 0.9, size=(3, 4, 50))
    axes = plots.acceptance_against(
        STEP_SIZES, rates, target=0.574, parameter_name="step size", label="MALA"
    )
    per_chain = rates.mean(axis=2)[ORDER]
    mean, error = per_chain.mean(axis=1), per_chain.std(axis=1, ddof=1) / 2
    line = axes.get_lines()[0]
    np.testing.assert_array_equal(line.get_xdata(), [0.1, 0.2, 0.3])
    np.testing.assert_allclose(line.get_ydata(), mean)
    np.testing.assert_allclose(bars(axes), np.stack([mean - error, mean + error], axis=1))
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("step size", "acceptance rate")
    texts = [text.get_text() for text in axes.get_legend().get_texts()]
    assert sorted(texts) == ["MALA", "target 0.574"]
    plots.acceptance_against(STEP_SIZES, rates, axes, target=0.574, label="RWM")
    assert len(axes.get_legend().get_texts()) == 3  # the target only once


def test_means_over_draws_given_beforehand_are_the_same(rng):
    rates = rng.uniform(size=(3, 4, 50))
    full = plots.acceptance_against(STEP_SIZES, rates)
    chains = plots.acceptance_against(STEP_SIZES, rates.mean(axis=2))
    np.testing.assert_allclose(bars(full), bars(chains))
    plain = plots.acceptance_against(
        STEP_SIZES, rates.mean(axis=(1, 2)), standard_error=np.array([0.01, 0.02, 0.03])
    )
    np.testing.assert_allclose(np.diff(bars(plain))[:, 0], 2 * np.array([0.02, 0.03, 0.01]))


def test_one_chain_has_no_bars():
    assert not plots.acceptance_against([0.1], np.array([[0.5]])).collections


def test_ess_is_the_median_from_least_to_largest(rng):
    ess = rng.uniform(10, 1000, size=(3, 9))
    axes = plots.ess_against(STEP_SIZES, ess, log_x=True, log_y=True)
    np.testing.assert_allclose(axes.get_lines()[0].get_ydata(), np.median(ess, axis=1)[ORDER])
    expected = np.stack([ess.min(axis=1), ess.max(axis=1)], axis=1)[ORDER]
    np.testing.assert_allclose(bars(axes), expected)
    assert (axes.get_xscale(), axes.get_yscale()) == ("log", "log")


def test_a_setting_that_is_not_finite_is_named(rng):
    ess = np.array([[10.0, 20.0], [np.nan, 30.0], [40.0, 50.0]])
    axes = plots.ess_against(STEP_SIZES, ess, parameter_name="step size", label="MALA")
    assert axes.get_title() == "MALA: not finite at step size 0.1"
    np.testing.assert_array_equal(axes.get_lines()[0].get_ydata(), [np.nan, 45.0, 15.0])


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: plots.acceptance_against(STEP_SIZES, np.ones(2)), r"rates must have 3 settings"),
        (
            lambda: plots.acceptance_against(np.ones((1, 1)), np.ones(1)),
            r"shape \(settings,\), but has",
        ),
        (lambda: plots.acceptance_against([0.1], np.array([1.2])), r"between 0 and 1"),
        (lambda: plots.acceptance_against([0.1], np.ones(1), target=57.4), r"target must lie"),
        (lambda: plots.acceptance_against([np.nan], np.ones(1)), r"parameter must be finite"),
        (lambda: plots.ess_against([0.0], np.ones(1), log_x=True), r"must be positive and finite"),
        (lambda: plots.ess_against([0.1], np.zeros(1)), r"ess must be positive, but is 0"),
        (lambda: plots.ess_against([0.1], np.ones((1, 2, 3))), r"first of 1 to 2 axes"),
    ],
)
def test_errors_are_sentences(call, sentence):
    with pytest.raises(ValueError, match=sentence):
        call()


@pytest.mark.parametrize("number", [10, 50, 500])
@pytest.mark.parametrize("chance", [0.5, 0.9, 0.98])
def test_bars_of_calibration_hold_the_chance_as_often_as_two_standard_errors_do(number, chance):
    """Exactly, by the binomial law: bars without length at 0 of 10 and 10 of 10 held nothing."""
    counts = np.arange(number + 1)
    axes = plots.calibration(
        np.full(number + 1, chance), counts / number, counts=np.full(number + 1, number)
    )
    low, high = bars(axes).T
    holds = (low <= chance) & (chance <= high)
    assert 0.91 < stats.binom.pmf(counts, number, chance)[holds].sum() < 0.995


def test_a_scatter_picture_says_how_many_rows_it_shows():
    y = np.linspace(0, 1, 500)
    few = plots.observed_against_predicted(*[y[:40]] * 4)
    many = plots.observed_against_predicted(*[y] * 4)
    assert few.get_title() == "40 rows"
    assert many.get_title() == "400 of 500 rows"
    assert sum(len(line.get_xdata()) for line in many.get_lines()[:-1]) == 400


def test_a_confusion_matrix_has_its_counts_and_shades_by_class():
    counts = np.array([[3, 1, 0], [0, 90, 10], [0, 0, 0]])
    axes = predictions.confusion_matrix(counts, ["a", "b", "c"])
    assert [text.get_text() for text in axes.texts] == list(map(str, counts.ravel()))
    shades = axes.images[0].get_array()
    np.testing.assert_allclose(shades, [[0.75, 0.25, 0], [0, 0.9, 0.1], [0, 0, 0]])
    assert [text.get_text() for text in axes.get_yticklabels()] == ["a", "b", "c"]
    many = predictions.confusion_matrix(np.eye(21), [str(i) for i in range(21)])
    assert not many.texts
    with pytest.raises(ValueError, match=r"\(2, 2\), but has shape \(3, 3\)"):
        predictions.confusion_matrix(counts, ["a", "b"])


def test_rows_that_are_not_finite_are_left_out_and_counted(rng):
    y = rng.normal(size=50)
    spoiled = y.copy()
    spoiled[7], spoiled[9] = np.nan, np.inf
    axes = plots.observed_against_predicted(spoiled, y, y - 1, y + 1)
    assert axes.get_title() == "48 rows, 2 not finite"
    (line,) = [a for a in axes.get_lines() if a.get_label() == "observed = predicted"]
    assert np.isfinite(line.get_ydata()).all()
    with pytest.raises(ValueError, match="no row is finite"):
        plots.observed_against_predicted(y * np.nan, y, y, y)


def test_percentages_are_no_probabilities():
    for pair in (([50, 90], [0.4, 0.95]), ([0.5, 0.9], [40, 95]), ([-0.1], [0.0])):
        with pytest.raises(ValueError, match="must lie between 0 and 1, but holds"):
            plots.calibration(*pair)
    plots.calibration([0.5, np.nan, np.float32(1 + 1e-6)], [0.4, np.nan, 1.0])
