"""Whether to believe a fit, in plain words, from its chains and from held-out data."""

from typing import Any, NamedTuple

import numpy as np

from jaxbnn.cli.effect import weigh
from jaxbnn.cli.encoding import Encoding
from jaxbnn.cli.samplers import Fitted, predicted
from jaxbnn.diagnostics import summary
from jaxbnn.prediction import (
    ClassPrediction,
    ClassScores,
    NumberPrediction,
    NumberScores,
    coverage,
    expected_calibration_error,
)
from jaxbnn.targets import Posterior

_PROBES = 10
_RHAT, _ESS = 1.05, 100
_FINE = ("fits", "little", "open")


class Verdict(NamedTuple):
    """Sentences for people, the numbers behind them, and whether nothing in them warns."""

    sentences: list[str]
    numbers: dict[str, Any]
    is_good: bool = True


def judge_chains(sampler: str, fitted: Fitted, posterior: Posterior, x: np.ndarray) -> Verdict:
    """Judge the chains by what they predict: weights have copies by symmetry, predictions none."""
    if fitted.draws is None:
        return Verdict(
            [
                f"{sampler} fits one Gaussian to the posterior of the weights: an approximation, "
                "whose error no diagnostic of chains can show. Its uncertainty is more often too "
                "small than too large; believe it as far as the held-out scores below go."
            ],
            {"sampler": sampler},
        )
    rows = np.unique(np.linspace(0, len(x) - 1, _PROBES).astype(int))
    probes = np.asarray(x[rows])
    table = summary(fitted.positions, function=predicted(posterior, probes))
    rhat, ess = float(np.max(table.rhat)), float(np.min(table.ess_bulk))
    numbers = {"sampler": sampler, "rhat": rhat, "ess_bulk": ess, "chains": table.num_chains}
    facts = f"R-hat of the predictions is at most {rhat:.3f}, with {ess:.0f} effective draws"
    if table.nan_chains or table.frozen_chains:
        stuck = sorted({*table.nan_chains, *table.frozen_chains})
        sentence = (
            f"Do not believe it: of the chains, {', '.join(map(str, stuck))} never moved or "
            "met NaN; take another seed or sampler."
        )
    elif table.num_chains < 2:
        sentence = (
            f"One chain cannot tell whether it has settled ({ess:.0f} effective draws); take "
            "--chains 4."
        )
    elif rhat <= _RHAT and ess >= _ESS:
        sentence = f"Believe the chains: they agree about what they predict ({facts})."
    else:
        other = "fewer --hidden units" if sampler == "nuts" else "--sampler nuts"
        sentence = (
            f"Do not believe it yet: the chains have not settled ({facts}, where {_RHAT} and "
            f"{_ESS} are wanted); raise --warmup and --samples, or take {other}."
        )
    return Verdict([sentence], numbers, sentence.startswith("Believe"))


def judge_numbers(
    encoding: Encoding,
    y: np.ndarray,
    prediction: NumberPrediction,
    found: NumberScores,
    mean: float = 0.0,
) -> Verdict:
    """Judge predictions of numbers, in the target's own units; `mean` is that of the training."""
    n, sd = len(y), encoding.y_sd
    rmse = float(np.sqrt(np.mean(found.error**2))) * sd
    guess = float(np.sqrt(np.mean((y - mean) ** 2))) * sd
    inside = float(coverage(found.pit, [prediction.level])[0])
    numbers = {
        "rmse": rmse,
        "rmse_of_the_mean": guess,
        "log_score": float(found.log_score.mean() - np.log(sd)),
        "log_score_standard_error": float(found.log_score.std() / np.sqrt(n)),
        "crps": float(found.crps.mean()) * sd,
        "level": prediction.level,
        "coverage": inside,
        "held_out": n,
    }
    sentences = [
        f"Typical error (RMSE) on {n} held-out rows: {plain(rmse)}; always guessing the "
        f"mean: {plain(guess)}."
    ]
    if rmse > 0.95 * guess:
        sentences.append("It has learnt next to nothing: the inputs hardly tell of the target.")
    sentences.append(coverage_sentence(inside, prediction.level, n))
    is_good = rmse <= 0.95 * guess and weigh(inside, n, prediction.level).judgement in _FINE
    return Verdict(sentences, numbers, is_good)


def judge_classes(
    encoding: Encoding, y: np.ndarray, prediction: ClassPrediction, found: ClassScores
) -> Verdict:
    """Judge predicted probabilities of classes."""
    n = len(y)
    accuracy = float(found.is_correct.mean())
    majority = float(np.bincount(y, minlength=len(encoding.classes or [])).max() / n)
    claimed = float(prediction.probabilities.max(axis=-1).mean())
    numbers = {
        "accuracy": accuracy,
        "accuracy_of_the_commonest": majority,
        "log_score": float(found.log_score.mean()),
        "log_score_standard_error": float(found.log_score.std() / np.sqrt(n)),
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
    sentences.append(confidence_sentence(claimed, accuracy, n))
    is_good = accuracy > majority and weigh(accuracy, n, claimed).judgement in _FINE
    return Verdict(sentences, numbers, is_good)


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


def coverage_sentence(inside: float, level: float, num_rows: int) -> str:
    """Say whether as many rows lie in their intervals as should."""
    effect = weigh(inside, num_rows, level)
    said = f"The {level:.0%} intervals hold {inside:.1%} of the held-out rows"
    points = f"{100 * abs(inside - level):.0f} points"
    more = {
        "fits": f"{said}, as they should ({effect}).",
        "little": f"{said}: {100 * abs(inside - level):.1f} points off, too little to matter.",
        "below": f"{said}: they are too narrow by {points}, do not believe them ({effect}).",
        "above": f"{said}: they are wider than they need be, by {points} ({effect}).",
        "open": f"{said}; {num_rows} rows are too few to judge ({effect}).",
    }
    return more[effect.judgement]
