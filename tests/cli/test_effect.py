"""Effects are judged by their size and interval: cases, and the interval's coverage by summing."""

from types import SimpleNamespace

import numpy as np
import pytest
import scipy.stats

from jaxbnn.cli.effect import weigh
from jaxbnn.cli.verdict import (
    confidence_sentence,
    coverage_sentence,
    judge_classes,
    judge_gain,
    judge_numbers,
)
from jaxbnn.prediction import ClassPrediction, ClassScores, NumberScores


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
        (0.50, 1, 0.90, "open"),
    ],
)
def test_cases(fraction, num_rows, claimed, judgement):
    assert weigh(fraction, num_rows, claimed).judgement == judgement


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


def test_sentences_say_effect_interval_and_what_it_means():
    few = coverage_sentence(0.70, 0.9, 20)
    assert "too narrow by 20 points" in few
    assert "95 % interval 46% to 88%" in few
    assert "too little to matter" in coverage_sentence(0.895, 0.9, 60_000)
    assert "20 rows are too few to judge" in coverage_sentence(0.85, 0.9, 20)
    assert "as they should" in coverage_sentence(0.9, 0.9, 1000)
    assert "wider than they need be, by 9 points" in coverage_sentence(0.99, 0.9, 500)
    assert "too sure of itself" in confidence_sentence(0.95, 0.7, 200)
    assert "too unsure of itself" in confidence_sentence(0.5, 0.9, 200)
    assert "30 rows are too few to judge" in confidence_sentence(0.9, 0.83, 30)
    assert "fits that" in confidence_sentence(0.83, 0.83, 2000)
    assert "too little to matter" in confidence_sentence(0.86, 0.83, 5000)


def test_a_few_rows_that_lose_thousands_of_nats_spoil_the_verdict(rng, annotations_unchecked):
    """The error and the coverage say nothing of it, and the interval of such a mean is wide."""
    n = 320
    y = rng.normal(1.0, 2.0, n)
    error = rng.normal(0, 0.5, n)
    pit = scipy.stats.norm.cdf(error / 0.5)
    score = scipy.stats.norm.logpdf(error, scale=0.5)

    def judged(score, error=error, rows=n):
        found = NumberScores(score[:rows], np.abs(error)[:rows], pit[:rows], error[:rows])
        units = SimpleNamespace(y_sd=10.0)
        prediction = SimpleNamespace(level=0.9)
        return judge_numbers(units, y[:rows], prediction, found, 1.0, 2.0)

    good = judged(score)
    assert good.is_good
    assert "too sure" not in str(good)
    assert not good.is_too_sure
    sure = score.copy()
    sure[:2] = -3e5
    found = judged(sure)
    assert not found.is_good
    assert found.is_too_sure
    guess = scipy.stats.norm.logpdf(y, 1.0, 2.0).mean() - np.log(10)
    assert f"its log score, {sure.mean() - np.log(10):.4g}, is no better" in str(found)
    assert f"the training rows, {guess:.4g}." in str(found)
    # So are many rows that lose a little each; of few rows nothing is said.
    narrow = scipy.stats.norm.logpdf(error, scale=0.1)
    assert "far too sure" in str(judged(narrow))
    assert "far too sure" not in str(judged(narrow, rows=9))
    # What has learnt nothing is told so, and not that it is too sure.
    away = judged(sure, error=y)
    assert "learnt next to nothing" in str(away)
    assert "far too sure" not in str(away)


def judged_counts(y, rate, rng, rows=None):
    """Judge the true law's predictions of Poisson counts, as the command would."""
    y, rate = y[:rows], rate[:rows]
    law = scipy.stats.poisson(rate)
    pit = law.cdf(y) - rng.uniform(size=len(y)) * law.pmf(y)
    found = NumberScores(law.logpmf(y), np.abs(y - rate), pit, y - rate)
    lower, upper = law.ppf(0.05), law.ppf(0.95)
    prediction = SimpleNamespace(level=0.9, lower=lower, upper=upper)
    units = SimpleNamespace(y_sd=1.0)
    return judge_numbers(units, y, prediction, found, y.mean(), y.std(), are_counts=True), np.mean(
        (y >= lower) & (y <= upper)
    )


def test_the_true_law_of_rare_counts_is_not_called_too_sure(rng, annotations_unchecked):
    rate = np.where(rng.uniform(size=20_000) < 0.01, 1.0, 1e-4)
    verdict, held = judged_counts(rng.poisson(rate).astype(float), rate, rng)
    assert verdict.is_good
    assert not verdict.is_too_sure
    # The intervals are those that are written, and the judgement does not blame whole counts.
    assert verdict.numbers["coverage"] == held > 0.99
    assert f"from count to count, hold {held:.1%}" in str(verdict)
    assert "wider than they need be" not in str(verdict)


def test_counts_are_still_called_too_sure_where_they_are(rng, annotations_unchecked):
    rate = rng.uniform(1, 30, 2000)
    y = rng.poisson(rate).astype(float)
    assert judged_counts(y, rate, rng)[0].is_good
    law = scipy.stats.nbinom(2, 2 / (2 + rate))
    assert judged_counts(law.rvs(random_state=rng).astype(float), rate, rng)[0].is_too_sure


def test_of_few_rows_errors_are_not_judged(rng, annotations_unchecked):
    def judged(error, y):
        n = len(y)
        found = NumberScores(np.zeros(n), np.abs(error), np.full(n, 0.5), error)
        return judge_numbers(
            SimpleNamespace(y_sd=1.0), y, SimpleNamespace(level=0.9), found, 0.0, 1.0
        )

    y = rng.normal(size=200)
    for rows in (2, 9):
        found = str(judged(1.1 * y[:rows], y[:rows]))
        assert f"{rows} rows are too few to judge whether its errors" in found
        assert "next to nothing" not in found
    assert "next to nothing" in str(judged(1.2 * y, y))
    assert "errors" not in str(judged(0.5 * y, y))
    # An error of 5 % less is what 200 rows cannot tell from none.
    assert "too few to judge whether its errors" in str(judged(rng.permutation(0.95 * y), y))


def test_of_a_rare_class_probabilities_are_judged_and_not_names_alone(rng, annotations_unchecked):
    """A twentieth of the rows is of class 1, which no model names; a good one tells where."""
    n = 2000
    chance = np.where(rng.uniform(size=n) < 0.1, 0.45, 0.006)
    y = (rng.uniform(size=n) < chance).astype(int)
    shares = np.array([0.95, 0.05])

    def judged(p, rows=n):
        probabilities = np.stack([1 - p, p], axis=1)[:rows]
        label = probabilities.argmax(axis=1)
        log_score = np.log(probabilities[np.arange(rows), y[:rows]])
        brier = np.square(probabilities - np.eye(2)[y[:rows]]).sum(axis=1)
        entropy = np.zeros(rows)
        prediction = ClassPrediction(
            probabilities, label, probabilities, probabilities, entropy, entropy, 0.9
        )
        found = ClassScores(log_score, brier, label == y[:rows], probabilities)
        return judge_classes(
            SimpleNamespace(classes=["a", "b"]), y[:rows], prediction, found, shares
        )

    good = judged(chance)
    assert good.numbers["accuracy"] == good.numbers["accuracy_of_the_commonest"]
    assert "no better than that" in str(good)
    assert "learnt" not in str(good)
    assert good.is_good
    assert good.numbers["log_score"] > good.numbers["log_score_of_the_shares"] + 0.03
    noise = judged(rng.permutation(chance))
    assert "it has learnt next to nothing" in str(noise)
    assert not noise.is_good
    few = judged(chance, 20)
    assert "20 rows are too few to judge whether its probabilities" in str(few)
    assert not few.is_good
    # Right on nine of ten, and as sure as if it were on all.
    y = rng.integers(0, 2, n)
    sure = np.where(rng.uniform(size=n) < 0.9, y, 1 - y) * 0.9998 + 0.0001
    shares = np.array([0.5, 0.5])
    sure = judged(sure)
    assert "too sure of itself where it is wrong" in str(sure)
    assert "learnt" not in str(sure)
    assert not sure.is_good


def test_a_gain_that_is_nothing_is_rarely_called_clear(rng):
    for rows in (1, 2, 10, 100):
        gains = rng.choice([np.log(1.4), np.log(0.6)], (1000, rows), p=[0.6, 0.4])
        found = [judge_gain(gain, names_better=True) for gain in gains]
        # Of mean .0023, next to nothing. A gain of two values is far from normal on ten rows.
        assert np.mean([judgement == "clear" for judgement, _ in found]) < 0.09
        judgements = {judgement for judgement, _ in found}
        assert judgements == {"open"} if rows < 10 else "open" in judgements
    learnt = [judge_gain(rng.normal(0.1, 0.5, 10), names_better=True)[0] for _ in range(1000)]
    assert np.mean([judgement == "none" for judgement in learnt]) < 0.06


@pytest.mark.parametrize("rows", [5, 10, 30, 1000])
@pytest.mark.parametrize("claimed", [0.5, 0.9, 0.98])
def test_calibrated_predictions_are_rarely_said_to_be_wrong(rows, claimed):
    counts = np.arange(rows + 1)
    found = [weigh(count / rows, rows, claimed).judgement for count in counts]
    wrong = np.isin(found, ["below", "above"])
    assert scipy.stats.binom.pmf(counts, rows, claimed)[wrong].sum() <= 0.05
    assert found[0] == ("below" if rows > 5 or claimed > 0.5 else "open")
    assert rows < 100 or found[-1] in ("above", "little")
