"""Whether to believe a fit, in plain words, from its chains and from held-out data."""

from typing import Any, NamedTuple

import numpy as np
from scipy.special import bdtr

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
# Each tail of three standard errors.
_RARE = 0.00135


class Verdict(NamedTuple):
    """Sentences for people, and the numbers behind them."""

    sentences: list[str]
    numbers: dict[str, Any]


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
    return Verdict([sentence], numbers)


def judge_numbers(
    encoding: Encoding, y: np.ndarray, prediction: NumberPrediction, found: NumberScores
) -> Verdict:
    """Judge predictions of numbers, in the target's own units."""
    n, sd = len(y), encoding.y_sd
    rmse = float(np.sqrt(np.mean(found.error**2))) * sd
    guess = float(np.sqrt(np.mean(y**2))) * sd  # standardised: the training mean is zero
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
        f"Typical error (RMSE) on {n} held-out rows: {rmse:.4g}; always guessing the mean: "
        f"{guess:.4g}."
    ]
    if rmse > 0.95 * guess:
        sentences.append("It has learnt next to nothing: the inputs hardly tell of the target.")
    sentences.append(_coverage_sentence(inside, prediction.level, n))
    return Verdict(sentences, numbers)


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
    }
    sentences = [
        f"Right on {accuracy:.1%} of {n} held-out rows; always naming the commonest class: "
        f"{majority:.1%}."
    ]
    if accuracy <= majority:
        sentences.append("It names classes no better than that.")
    word = "too sure" if claimed > accuracy else "too unsure"
    # Confidences that differ from row to row make the number of hits vary less than this.
    if _is_rare(int(found.is_correct.sum()), n, claimed):
        sentences.append(f"It is {word} of itself: its mean confidence is {claimed:.1%}.")
    else:
        sentences.append(f"Its mean confidence, {claimed:.1%}, fits that.")
    return Verdict(sentences, numbers)


def _coverage_sentence(inside: float, level: float, n: int) -> str:
    said = f"The {level:.0%} intervals hold {inside:.1%} of the held-out rows"
    if _is_rare(round(inside * n), n, level):
        wrong = "too narrow, do not believe them" if inside < level else "wider than they need be"
        return f"{said}: they are {wrong}."
    return f"{said}, as they should within the noise of {n} rows."


def _is_rare(count: int, n: int, chance: float) -> bool:
    """Whether so few, or so many, of n have a probability of .00135: three standard errors.

    By the binomial law itself: the normal one is wrong by a factor of ten where few are missing.
    """
    at_most, fewer = bdtr([float(count), count - 1.0], n, min(chance, 1.0))
    return bool(min(at_most, 1 - (fewer if count > 0 else 0.0)) < _RARE)
