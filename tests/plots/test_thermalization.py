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


def test_scores_that_lie_outside_are_counted():
    ones = {"zero": np.ones(200), "informed": np.ones(200)}
    steps = np.arange(1, 201)
    early = np.where(steps <= 20, 50.0, 0.1)
    early[3] = np.nan  # counted for itself
    scores = {"zero": early, "informed": np.full(200, -0.1)}
    panel = plots.thermalization_criteria(steps, ones, score=scores)[-1]
    assert panel.get_ylim() == pytest.approx((-0.12, 0.12))
    assert panel.get_title().splitlines() == [
        "zero: 1 of 200 values not finite",
        "19 of 399 scores lie outside what is shown",
    ]
    scores["zero"] = np.full(200, 0.1)
    assert plots.thermalization_criteria(steps, ones, score=scores)[-1].get_title() == ""


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


def test_infinite_rhats_are_seen():
    """Frozen chains at different places have infinite R-hats: the worst values there are."""
    values = np.full(len(STEPS), 1.5)
    values[:3], values[7] = np.inf, np.nan
    _, panel = plots.thermalization_criteria(
        STEPS, {"zero": np.ones(len(STEPS))}, rhat={"zero, informed": (STEPS, values)}
    )
    only = plots.rhat_percentiles(STEPS, values[None], [75])
    for axes, name in ((panel, "zero, informed"), (only, "75")):
        assert axes.get_title() == f"{name}: 4 of {len(STEPS)} values not finite"
        (marks,) = [line for line in axes.get_lines() if line.get_label() == "_infinite"]
        np.testing.assert_array_equal(marks.get_xdata(), STEPS[:3])
        assert marks.get_transform() == axes.get_xaxis_transform()
        assert "_infinite" not in [text.get_text() for text in axes.get_legend().get_texts()]


def test_what_a_logarithmic_axis_cannot_show_is_refused():
    for bad in (0.0, -1.0):
        series = np.append(np.ones(len(STEPS) - 1), bad)
        with pytest.raises(ValueError, match="'zero' must be positive for a logarithmic axis, but"):
            plots.thermalization_criteria(STEPS, {"zero": series})


def test_the_time_axis_holds_all_steps():
    ones = np.ones(len(STEPS))
    axes = plots.thermalization_criteria(STEPS, {"zero": ones}, rhat={"zero": (STEPS * 3, ones)})
    assert {a.get_xlim()[1] >= STEPS[-1] * 3 for a in axes} == {True}
    assert {a.get_xlim()[0] for a in axes} == {1.0}


def test_no_two_of_many_series_look_alike():
    ones = np.ones(len(STEPS))
    many = {str(i): ones for i in range(14)}
    axes = plots.thermalization_criteria(STEPS, many, rhat={i: (STEPS, ones) for i in many})
    for lines in (axes[0].get_lines(), axes[1].get_lines()[:-1]):
        assert len({(line.get_color(), line.get_linestyle()) for line in lines}) == 14
