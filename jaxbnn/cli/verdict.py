"""Whether to believe predictions, in plain words, from held-out data."""

from typing import Literal

import numpy as np
from jaxtyping import Float
from scipy.special import ndtr, stdtrit

from jaxbnn.cli.effect import weigh
from jaxbnn.cli.encoding import Encoding
from jaxbnn.prediction import (
    ClassPrediction,
    ClassScores,
    NumberPrediction,
    NumberScores,
    coverage,
    expected_calibration_error,
)
from jaxbnn.tabular.verdict import Verdict

_FINE = ("fits", "little", "open")
# So many nats a row more than nothing matter to nobody.
_SMALL_GAIN = 0.02
_FEWEST = 10
# Errors smaller than those of the mean by less than this are no gain.
_GAIN_OF_ERROR = 0.95
# Of the held-out rows: fewer copies change little.
_MANY_COPIES = 0.05
# So many nats a row less than nothing are no accident, however few rows make them up.
_FAR_BELOW = -1.0


def judge_numbers(
    encoding: Encoding,
    y: np.ndarray,
    prediction: NumberPrediction,
    found: NumberScores,
    mean: float = 0.0,
    spread: float = 1.0,
    *,
    are_counts: bool = False,
) -> Verdict:
    """Judge predictions of numbers, in the target's own units.

    `mean` and `spread`, a standard deviation, are those of the training rows: predictions should
    score better than a normal law with these; of counts, than what it gives from half below to half
    above. The ends of intervals of counts are counts, so that they hold more than their level: it
    is judged with each end counted for the part that the level takes of it.
    """
    n, sd = len(y), encoding.y_sd
    rmse = float(np.sqrt(np.mean(found.error**2))) * sd
    guess = float(np.sqrt(np.mean((y - mean) ** 2))) * sd
    inside = held = float(coverage(found.pit, [prediction.level])[0])
    if are_counts:
        held = float(np.mean((y >= prediction.lower) & (y <= prediction.upper)))
    numbers = {
        "rmse": rmse,
        "rmse_of_the_mean": guess,
        "log_score": float(found.log_score.mean() - np.log(sd)),
        "log_score_standard_error": float(found.log_score.std() / np.sqrt(n)),
        "crps": float(found.crps.mean()) * sd,
        "level": prediction.level,
        "coverage": held,
        "held_out": n,
    }
    density = _log_normal(y, mean, spread, are_counts=are_counts)
    learnt = _judge_errors(found.error, y - mean)
    has_learnt = learnt == "clear" or (learnt == "open" and rmse <= _GAIN_OF_ERROR * guess)
    judgement, _ = judge_gain(np.asarray(found.log_score) - density, names_better=has_learnt)
    is_too_sure = has_learnt and judgement == "none"
    sentences = [
        f"Typical error (RMSE) on {n} held-out rows: {plain(rmse)}; always guessing the "
        f"mean: {plain(guess)}."
    ]
    if learnt == "none":
        sentences.append("It has learnt next to nothing: the inputs hardly tell of the target.")
    elif learnt == "open":
        sentences.append(f"{n} rows are too few to judge whether its errors are the smaller ones.")
    sentences.append(coverage_sentence(inside, prediction.level, n, held if are_counts else None))
    if is_too_sure:
        own, other = plain(numbers["log_score"]), plain(float(density.mean() - np.log(sd)))
        sentences.append(
            f"Where it is wrong it is far too sure of itself: its log score, {own}, is no better "
            f"than that of a normal law with the mean and spread of the training rows, {other}."
        )
    covered = weigh(inside, n, prediction.level).judgement
    is_right = has_learnt and not is_too_sure
    is_good = is_right and covered in _FINE
    is_too_wide = is_right and covered == "above"
    return Verdict(sentences, numbers, is_good, is_too_sure, is_too_wide=is_too_wide)


def _log_normal(
    y: Float[np.ndarray, " n"], mean: float, spread: float, *, are_counts: bool
) -> Float[np.ndarray, " n"]:
    """Return a normal law's log density; of counts the log probability of half to either side."""
    z = np.abs((y - mean) / spread)
    density = -0.5 * z**2 - np.log(spread) - 0.5 * np.log(2 * np.pi)
    if not are_counts:
        return density
    # Far out the difference of two tails is 0, and the density all the same.
    share = ndtr(-z + 0.5 / spread) - ndtr(-z - 0.5 / spread)
    return np.where(share > 1e-12, np.log(np.maximum(share, 1e-12)), density)


def _judge_errors(
    errors: Float[np.ndarray, " n"], of_mean: Float[np.ndarray, " n"]
) -> Literal["clear", "open", "none"]:
    """Judge whether the typical error is smaller than always guessing the mean, by 5 % at least.

    By the 95 % interval (Student's t, of ten rows or more) of the mean difference of squares:
    "clear" above 0, "none" below it, else "open".
    """
    gain = (_GAIN_OF_ERROR * np.asarray(of_mean, float)) ** 2 - np.asarray(errors, float) ** 2
    mean, width = _mean_and_width(gain)
    if abs(mean) <= width:
        return "open"
    return "clear" if mean > 0 else "none"


def judge_classes(
    encoding: Encoding,
    y: np.ndarray,
    prediction: ClassPrediction,
    found: ClassScores,
    shares: Float[np.ndarray, " class"],
) -> Verdict:
    """Judge predicted probabilities of classes; `shares` are those of the training rows."""
    n = len(y)
    accuracy = float(found.is_correct.mean())
    majority = float(np.mean(y == np.argmax(shares)))
    guess = np.log(shares)[y]
    gain = np.asarray(found.log_score) - guess
    claimed = float(prediction.probabilities.max(axis=-1).mean())
    numbers = {
        "accuracy": accuracy,
        "accuracy_of_the_commonest": majority,
        "log_score": float(found.log_score.mean()),
        "log_score_standard_error": float(found.log_score.std() / np.sqrt(n)),
        "log_score_of_the_shares": float(guess.mean()),
        "brier": float(found.brier.mean()),
        "calibration_error": expected_calibration_error(prediction.probabilities, y),
        "mean_confidence": claimed,
        "held_out": n,
        "classes": encoding.classes or [],
        "confusion": confusion(y, prediction.label, len(encoding.classes or [])),
    }
    sentences = [
        f"Right on {accuracy:.1%} of {n} held-out rows; always naming the commonest class: "
        f"{majority:.1%}."
    ]
    if accuracy <= majority:
        sentences.append("It names classes no better than that.")
    judgement, told = judge_gain(gain, names_better=accuracy > majority)
    if told:
        sentences.append(told)
    sentences.append(confidence_sentence(claimed, accuracy, n))
    is_learnt = judgement == "clear" or (judgement == "open" and accuracy > majority)
    return Verdict(sentences, numbers, is_learnt and weigh(accuracy, n, claimed).judgement in _FINE)


def judge_gain(
    gain: Float[np.ndarray, " row"], *, names_better: bool
) -> tuple[Literal["clear", "open", "none"], str]:
    """Judge by how many nats, row by row, probabilities score better than the classes' shares.

    By the mean's 95 % interval (Student's t, of ten rows or more): "clear" above 0, "none" below
    what matters, .02 nats, else "open"; a mean below -1 is "none", though its interval be wide, as
    it is where a few rows lose thousands. Also a sentence, empty if the gain is clear;
    `names_better` says whether the classes that are named are right more often than the commonest.

    Examples
    --------
    >>> judge_gain(np.array([0.5, 0.4, 0.6] * 4), names_better=True)
    ('clear', '')
    >>> judge_gain(np.array([-0.5, 0.9, 0.2]), names_better=True)[0]
    'open'
    """
    n = len(gain)
    mean, width = _mean_and_width(gain)
    if mean - width > 0:
        return "clear", ""
    if mean + width >= _SMALL_GAIN and not (n >= _FEWEST and mean < _FAR_BELOW):
        return "open", (
            f"{n} rows are too few to judge whether its probabilities tell more than the classes' "
            "shares do."
        )
    reason = (
        "it is too sure of itself where it is wrong"
        if names_better
        else "it has learnt next to nothing"
    )
    return "none", f"Its probabilities score no better than the classes' shares: {reason}."


def _mean_and_width(gain: Float[np.ndarray, " row"]) -> tuple[float, float]:
    """Return the mean and half of its 95 % interval (Student's t); of few rows infinity."""
    n = len(gain)
    if n < _FEWEST:  # they may be alike by chance
        return float(gain.mean()), np.inf
    return float(gain.mean()), float(stdtrit(n - 1, 0.975) * gain.std(ddof=1) / np.sqrt(n))


def copies_sentences(
    seen: Float[np.ndarray, "n d"], held_out: Float[np.ndarray, "m d"]
) -> list[str]:
    """Say where many held-out rows stand among the training rows, too, inputs and target.

    Examples
    --------
    >>> rows = np.eye(3)
    >>> copies_sentences(rows[:1], rows[1:])
    []
    >>> copies_sentences(rows[:2], rows[1:])[0][:51]
    '1 of the 2 held-out rows is equal to a training row'
    """
    known = {row.tobytes() for row in np.ascontiguousarray(seen)}
    count = sum(row.tobytes() in known for row in np.ascontiguousarray(held_out))
    if count < _MANY_COPIES * len(held_out) or not count:
        return []
    return [
        f"{count} of the {len(held_out)} held-out rows {'is' if count == 1 else 'are'} equal to a "
        "training row, target and all. Where that is no chance, but one case written down twice, "
        "the scores are better than those of new rows will be: take such copies out of the file."
    ]


def confusion(y: np.ndarray, said: np.ndarray, num_classes: int) -> list[list[int]]:
    """Return counts of rows, by class and by what was said of them.

    Examples
    --------
    >>> confusion(np.array([0, 0, 1]), np.array([0, 1, 1]), 2)
    [[1, 1], [0, 1]]
    """
    counts = np.zeros((num_classes, num_classes), int)
    np.add.at(counts, (y, said), 1)
    return counts.tolist()


def plain(value: float) -> str:
    """Return a number as people write it, of four digits or to the unit.

    Examples
    --------
    >>> plain(63336.2), plain(0.123456), plain(1.2e9)
    ('63,336', '0.1235', '1.2e+09')
    """
    return f"{value:,.0f}" if 1e4 <= abs(value) < 1e8 else f"{value:.4g}"


def confidence_sentence(claimed: float, accuracy: float, num_rows: int) -> str:
    """Say whether a mean confidence fits the fraction of rows that were right."""
    effect = weigh(accuracy, num_rows, claimed)
    said = f"Its mean confidence is {claimed:.1%}"
    points = f"{100 * abs(accuracy - claimed):.0f} points"
    more = {
        "fits": f"{said}, which fits that.",
        "little": f"{said}: {points} from that, too little to matter.",
        "below": f"{said}: it is too sure of itself, by {points} ({effect}).",
        "above": f"{said}: it is too unsure of itself, by {points} ({effect}).",
        "open": f"{said}; {num_rows} rows are too few to judge whether that fits ({effect} right).",
    }
    return more[effect.judgement]


def coverage_sentence(inside: float, level: float, num_rows: int, held: float | None = None) -> str:
    """Say whether as many rows lie in their intervals as should.

    `held` is of intervals of counts, whose ends are counted in part for `inside`.
    """
    effect = weigh(inside, num_rows, level)
    said = f"The {100 * level:g}% intervals hold {inside:.1%} of the held-out rows"
    if held is not None:
        said = (
            f"The {100 * level:g}% intervals, from count to count, hold {held:.1%} of the held-out "
            f"rows, and {inside:.1%} with their ends counted in part"
        )
    points = f"{100 * abs(inside - level):.0f} points"
    more = {
        "fits": f"{said}, as they should ({effect}).",
        "little": f"{said}: {100 * abs(inside - level):.1f} points off, too little to matter.",
        "below": f"{said}: they are too narrow by {points}, do not believe them ({effect}).",
        "above": f"{said}: they are wider than they need be, by {points} ({effect}).",
        "open": f"{said}; {num_rows} rows are too few to judge ({effect}).",
    }
    return more[effect.judgement]
