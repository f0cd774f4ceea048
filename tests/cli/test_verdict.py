"""Verdicts of held-out rows: what is said of effects, and what spoils the verdict."""

from types import SimpleNamespace

import numpy as np
import pytest
import scipy.stats

from jaxbnn.cli.verdict import (
    confidence_sentence,
    copies_sentences,
    coverage_sentence,
    judge_classes,
    judge_gain,
    judge_numbers,
)
from jaxbnn.prediction import ClassPrediction, ClassScores, NumberScores


def judged_classes(y, probabilities, shares=(0.5, 0.5)):
    """Judge probabilities of two classes, of which the training rows have these shares."""
    label, rows = probabilities.argmax(axis=1), np.arange(len(y))
    entropy = np.zeros(len(y))
    prediction = ClassPrediction(
        probabilities, label, probabilities, probabilities, entropy, entropy, 0.9
    )
    brier = np.square(probabilities - np.eye(2)[y]).sum(axis=1)
    found = ClassScores(np.log(probabilities[rows, y]), brier, label == y, probabilities)
    units = SimpleNamespace(classes=["a", "b"])
    return judge_classes(units, y, prediction, found, np.array(shares))


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


@pytest.mark.parametrize(
    ("level", "shown"),
    [(0.9, "90%"), (0.95, "95%"), (0.7, "70%"), (0.975, "97.5%"), (0.999, "99.9%")],
)
def test_a_level_is_said_as_it_was_asked_for(level, shown):
    for held in (None, 0.9):
        assert coverage_sentence(0.9, level, 50, held).startswith(f"The {shown} intervals")


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
    shares = (0.95, 0.05)

    def judged(p, rows=n):
        return judged_classes(y[:rows], np.stack([1 - p, p], axis=1)[:rows], shares)

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
    shares = (0.5, 0.5)
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


def judged_normals(y, error, scale):
    """Judge predictions by normal laws of this scale, of a target whose unit is a tenth."""
    score = scipy.stats.norm.logpdf(error, scale=scale)
    pit = scipy.stats.norm.cdf(error / scale)
    found = NumberScores(score, np.abs(error) / 2, pit, error)
    units, prediction = SimpleNamespace(y_sd=10.0), SimpleNamespace(level=0.9)
    return judge_numbers(units, y, prediction, found, 0.0, 1.0)


def test_narrow_intervals_spoil_the_verdict(rng, annotations_unchecked):
    y, error = rng.normal(size=(2, 400))
    error *= 0.3
    good = judged_normals(y, error, 0.3)
    assert good.is_good
    assert good.numbers["rmse"] == pytest.approx(10 * np.sqrt(np.mean(error**2)))
    assert good.numbers["rmse_of_the_mean"] == pytest.approx(10 * np.sqrt(np.mean(y**2)))
    assert good.numbers["crps"] == pytest.approx(10 * np.abs(error).mean() / 2)
    score = scipy.stats.norm.logpdf(error, scale=0.3)
    assert good.numbers["log_score_standard_error"] == pytest.approx(score.std() / 20)
    rmse, guess = good.numbers["rmse"], good.numbers["rmse_of_the_mean"]
    assert f"rows: {rmse:.4g}; always guessing the mean: {guess:.4g}." in str(good)
    narrow = judged_normals(y, error, 0.15)
    assert "they are too narrow" in str(narrow)
    assert not narrow.is_too_sure
    assert not narrow.is_good


def test_a_confidence_that_does_not_fit_spoils_the_verdict(rng, annotations_unchecked):
    y = rng.integers(0, 2, 1000)
    is_right = rng.uniform(size=1000) < 0.85
    for claimed, good in ((0.85, True), (0.95, False)):
        p = np.where(is_right, claimed, 1 - claimed)
        p = np.where(np.eye(2)[y] == 1, p[:, None], 1 - p[:, None])
        found = judged_classes(y, p)
        assert "learnt" not in str(found)
        assert found.is_good == good
        brier = np.square(p - np.eye(2)[y]).sum(axis=1).mean()
        assert found.numbers["brier"] == pytest.approx(brier)
        assert found.numbers["calibration_error"] == pytest.approx(abs(is_right.mean() - claimed))
    assert "too sure of itself, by" in str(found)


def test_the_commonest_class_is_that_of_the_training_rows(annotations_unchecked):
    y = np.array([0] * 3 + [1] * 13)
    p = np.full((16, 2), [0.75, 0.25])
    verdict = judged_classes(y, p, shares=(0.6, 0.4))
    assert verdict.numbers["accuracy_of_the_commonest"] == 3 / 16
    score = np.log(p[np.arange(16), y])
    assert verdict.numbers["log_score_standard_error"] == pytest.approx(score.std() / 4)


def test_a_twentieth_of_copies_is_told():
    rows = np.arange(40.0).reshape(20, 2)
    assert "1 of the 20 held-out rows is equal" in copies_sentences(rows[:1], rows)[0]
    assert copies_sentences(rows[:1], np.arange(42.0).reshape(21, 2)) == []
