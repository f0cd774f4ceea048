import numpy as np
import pytest

from jaxbnn import plots

STEPS = np.unique(np.geomspace(1, 10_000, 200).astype(int))


def test_every_series_and_criterion_is_drawn_where_it_belongs(rng):
    mse = {"zero": np.exp(rng.normal(size=len(STEPS))), "informed": np.ones(len(STEPS))}
    score = {"zero": np.where(STEPS < 5, 1e3, rng.normal(size=len(STEPS)))}
    rhat = {"zero, informed": (STEPS, 1 + 1 / STEPS)}
    bounds = {"score (zero)": (0.0, True), "teacher-student (zero)": (1e4, False)}
    axes = plots.thermalization_criteria(STEPS, mse, rhat=rhat, score=score, lower_bounds=bounds)
    errors, ratios, scores = axes
    by_label = {line.get_label(): line for line in errors.get_lines()}
    np.testing.assert_array_equal(by_label["zero"].get_ydata(), mse["zero"])
    passed, failed = by_label["score (zero)"], by_label["teacher-student (zero): not passed"]
    assert passed.get_xdata()[0] == pytest.approx(
        1
    )  # 0 is not on a logarithmic axis: its beginning
    assert failed.get_xdata()[0] == pytest.approx(10_000)
    assert failed.get_markerfacecolor() == "white" != passed.get_markerfacecolor()
    np.testing.assert_array_equal(ratios.get_lines()[0].get_ydata(), rhat["zero, informed"][1])
    assert scores.get_ylim()[1] < 10  # the first scores do not set the scale
    assert scores.get_lines()[0].get_color() == by_label["zero"].get_color()
    assert {a.get_xscale() for a in axes} == {"log"}
    assert scores.get_xlabel() == "sweeps"


def test_only_errors_make_one_panel():
    assert len(plots.thermalization_criteria(STEPS, {"zero": np.ones(len(STEPS))})) == 1


def test_series_that_do_not_fit_are_named():
    with pytest.raises(ValueError, match="'zero' has shape"):
        plots.thermalization_criteria(STEPS, {"zero": np.ones(3)})
    with pytest.raises(ValueError, match="must be positive"):
        plots.thermalization_criteria([0, 1], {"zero": np.ones(2)})
    with pytest.raises(ValueError, match="one row a percentile"):
        plots.rhat_percentiles(STEPS, np.ones((2, len(STEPS))), [25, 50, 75])


def test_percentiles_are_drawn_with_a_line_at_one(rng):
    values = np.sort(1 + rng.uniform(size=(4, len(STEPS))), axis=0)
    axes = plots.rhat_percentiles(STEPS, values, [25, 50, 75, 95])
    lines = {line.get_label(): line for line in axes.get_lines()}
    np.testing.assert_array_equal(lines["95"].get_ydata(), values[3])
    assert lines["_one"].get_ydata()[0] == 1
    assert axes.get_legend() is not None
