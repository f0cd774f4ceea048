"""Pictures of predictions: rows, shares and counts against NumPy, and the texts beside them."""

import numpy as np
import pytest
from scipy import stats

from jaxbnn import plots
from jaxbnn.plots import predictions


def test_a_scatter_picture_shows_its_rows():
    """One inside its interval, and one to either side."""
    y, mean = np.array([5.0, -5.0, 2.0]), np.array([1.0, 2.0, 3.0])
    axes = plots.observed_against_predicted(y, mean, mean - 2, mean + 3, level=0.8, name="price")
    shown = {line.get_label(): line.get_xydata().tolist() for line in axes.get_lines()}
    assert shown["inside its 80% interval"] == [[3.0, 2.0]]
    assert shown["outside"] == [[1.0, 5.0], [2.0, -5.0]]
    assert shown["observed = predicted"] == [[-5.0, -5.0], [5.0, 5.0]]
    inside, outside = (np.array(bars.get_segments()) for bars in axes.collections)
    assert inside.tolist() == [[[3.0, 1.0], [3.0, 6.0]]]
    assert outside.tolist() == [[[1.0, -1.0], [1.0, 4.0]], [[2.0, 0.0], [2.0, 5.0]]]
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("predicted price", "observed price")


def test_a_scatter_picture_says_its_level_as_it_is():
    y = np.array([1.0, 2.0])
    axes = plots.observed_against_predicted(y, y, y - 1, y + 1, level=0.975)
    assert axes.get_lines()[0].get_label() == "inside its 97.5% interval"


@pytest.mark.parametrize("counts", [None, [10, 20]])
def test_calibration_has_what_was_predicted_from_left_to_right(counts):
    axes = plots.calibration([0.5, 0.9], [0.4, 0.95], counts=counts)
    diagonal, line = axes.get_lines()[:2]
    assert diagonal.get_xydata().tolist() == [[0.0, 0.0], [1.0, 1.0]]
    assert line.get_xydata().tolist() == [[0.5, 0.4], [0.9, 0.95]]


@pytest.mark.parametrize("number", [10, 50, 500])
@pytest.mark.parametrize("chance", [0.5, 0.9, 0.98])
def test_bars_of_calibration_hold_the_chance_as_often_as_two_standard_errors_do(number, chance):
    """Exactly, by the binomial law: bars without length at 0 of 10 and 10 of 10 held nothing."""
    counts = np.arange(number + 1)
    axes = plots.calibration(
        np.full(number + 1, chance), counts / number, counts=np.full(number + 1, number)
    )
    (bars,) = axes.collections
    low, high = np.array([segment[:, 1] for segment in bars.get_segments()]).T
    holds = (low <= chance) & (chance <= high)
    assert 0.91 < stats.binom.pmf(counts, number, chance)[holds].sum() < 0.995


def test_a_scatter_picture_says_how_many_rows_it_shows():
    y = np.linspace(0, 1, 500)
    few = plots.observed_against_predicted(*[y[:40]] * 4)
    many = plots.observed_against_predicted(*[y] * 4)
    assert few.get_title() == "40 rows"
    assert plots.observed_against_predicted(*[y[:1]] * 4).get_title() == "1 row"
    assert many.get_title() == "400 of 500 rows"
    assert sum(len(line.get_xdata()) for line in many.get_lines()[:-1]) == 400
    with pytest.raises(ValueError, match="upper must not be below lower"):
        plots.observed_against_predicted(y, y, y + 1, y)
    with pytest.raises(ValueError, match="level must lie between 0 and 1, but is 90"):
        plots.observed_against_predicted(*[y] * 4, level=90)


def test_a_confusion_matrix_has_its_counts_and_shades_by_class():
    counts = np.array([[3, 1, 0], [0, 90, 10], [0, 0, 0]])
    axes = predictions.confusion_matrix(counts, ["a", "b", "c"])
    assert {text.get_position(): text.get_text() for text in axes.texts} == {
        (taken, true): str(counts[true, taken]) for true in range(3) for taken in range(3)
    }
    shades = axes.images[0].get_array()
    np.testing.assert_allclose(shades, [[0.75, 0.25, 0], [0, 0.9, 0.1], [0, 0, 0]])
    for labels in (axes.get_xticklabels(), axes.get_yticklabels()):
        assert [text.get_text() for text in labels] == ["a", "b", "c"]
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("was taken for", "is")
    many = predictions.confusion_matrix(np.eye(21), [str(i) for i in range(21)])
    assert not many.texts
    with pytest.raises(ValueError, match=r"\(2, 2\), but has shape \(3, 3\)"):
        predictions.confusion_matrix(counts, ["a", "b"])
    with pytest.raises(ValueError, match="counts must be whole numbers"):
        predictions.confusion_matrix(counts / 100, ["a", "b", "c"])


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


def test_counts_of_calibration_are_one_a_point():
    for counts in ([1, 2, 3], 7):
        with pytest.raises(
            ValueError, match=r"counts must have the shape of predicted, \(2,\), but"
        ):
            plots.calibration([0.5, 0.9], [0.4, 0.95], counts=counts)
