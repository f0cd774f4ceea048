"""Effects are judged by their size and interval: cases, and the interval's coverage by summing."""

import numpy as np
import pytest
import scipy.stats

from jaxbnn.cli.effect import Effect, weigh


@pytest.mark.parametrize(
    ("fraction", "num_rows", "claimed", "judgement"),
    [
        (0.70, 20, 0.90, "below"),  # twenty points on twenty rows are no fit
        (0.895, 60_000, 0.90, "little"),  # half a point on sixty thousand matters to nobody
        (0.90, 1000, 0.90, "fits"),
        (0.90, 10, 0.90, "open"),
        (1.00, 10, 0.90, "open"),
        (0.99, 500, 0.90, "above"),
        (0.80, 500, 0.90, "below"),
        (0.84, 9000, 0.90, "below"),
        (0.86, 9000, 0.90, "little"),
        (0.90, 50, 0.90, "open"),
        (0.90, 100, 0.90, "fits"),
        (0.50, 1, 0.90, "open"),
        (1.00, 22, 0.90, "open"),  # all of so few rows are no fit, though none is less likely
        (1.00, 30, 0.90, "open"),
        (0.94, 100, 0.90, "fits"),
    ],
)
def test_cases(fraction, num_rows, claimed, judgement):
    assert weigh(fraction, num_rows, claimed).judgement == judgement


def test_an_interval_is_not_rounded_to_nothing_or_all():
    assert str(Effect("fits", 0.996, 1.0)) == "95 % interval 99.6% to 100%"
    assert str(Effect("fits", 0.0, 0.004)) == "95 % interval 0% to 0.4%"
    assert str(Effect("fits", 0.004, 0.994)) == "95 % interval 0.4% to 99%"


@pytest.mark.parametrize("probability", [0.5, 0.9, 0.97])
def test_the_interval_holds_the_truth_in_95_of_100_or_more(probability):
    for num_rows in (20, 100, 1000):
        counts = np.arange(num_rows + 1)
        holds = [
            (found := weigh(k / num_rows, num_rows, 0.5)).lower <= probability <= found.upper
            for k in counts
        ]
        chance = scipy.stats.binom.pmf(counts, num_rows, probability)[holds].sum()
        assert 0.95 <= chance < 0.99


@pytest.mark.parametrize("rows", [5, 10, 30, 1000])
@pytest.mark.parametrize("claimed", [0.5, 0.9, 0.98])
def test_calibrated_predictions_are_rarely_said_to_be_wrong(rows, claimed):
    counts = np.arange(rows + 1)
    found = [weigh(count / rows, rows, claimed).judgement for count in counts]
    wrong = np.isin(found, ["below", "above"])
    assert scipy.stats.binom.pmf(counts, rows, claimed)[wrong].sum() <= 0.05
    assert found[0] == ("below" if rows > 5 or claimed > 0.5 else "open")
    assert rows < 100 or found[-1] in ("above", "little")
