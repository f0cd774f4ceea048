"""Curves over a parameter: means, medians and bars against NumPy."""

import numpy as np
import pytest

from jaxbnn import plots

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


def test_a_rate_that_is_not_finite_is_named():
    axes = plots.acceptance_against([0.3, 0.1], np.array([[0.5, 0.6], [np.nan, 0.5]]), label="MALA")
    assert axes.get_title() == "MALA: not finite at parameter 0.1"
    axes = plots.acceptance_against(np.arange(8), np.full(8, np.nan))
    assert axes.get_title() == "not finite at parameter 0, 1, 2, 3, 4 and 3 more"


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
