"""The pictures of a fit."""

from pathlib import Path

import numpy as np

from jaxbnn.cli.encoding import Encoding
from jaxbnn.cli.verdict import confusion
from jaxbnn.diagnostics import evaluate
from jaxbnn.plots import trace
from jaxbnn.plots.predictions import (
    calibration,
    confusion_matrix,
    observed_against_predicted,
)
from jaxbnn.prediction import (
    ClassPrediction,
    NumberPrediction,
    NumberScores,
    coverage,
    reliability,
)
from jaxbnn.tabular.fitted import Fitted
from jaxbnn.tabular.posteriors import predicted
from jaxbnn.targets import Posterior

_LEVELS = np.linspace(0.05, 0.95, 19)
_BINS = 10


def draw_numbers(
    folder: Path,
    encoding: Encoding,
    y: np.ndarray,
    prediction: NumberPrediction,
    found: NumberScores,
) -> None:
    """Draw predictions against held-out numbers, and coverage against level."""
    axes = observed_against_predicted(
        *(encoding.in_units(v) for v in (y, prediction.mean, prediction.lower, prediction.upper)),
        level=prediction.level,
        name=_literal(encoding.target),
    )
    axes.figure.savefig(folder / "predictions.png")
    counts = np.full(len(_LEVELS), len(y))
    axes = calibration(_LEVELS, coverage(found.pit, _LEVELS), counts=counts)
    axes.set_title("held-out rows inside their intervals", fontsize="medium")
    axes.figure.savefig(folder / "calibration.png")


def draw_classes(
    folder: Path, encoding: Encoding, y: np.ndarray, prediction: ClassPrediction
) -> None:
    """Draw the reliability diagram, and which classes were taken for which."""
    found = reliability(prediction.probabilities, y, bins=_BINS)
    seen = found.num_data > 0
    axes = calibration(found.confidence[seen], found.accuracy[seen], counts=found.num_data[seen])
    axes.set_title("held-out rows, by confidence", fontsize="medium")
    axes.figure.savefig(folder / "calibration.png")
    assert encoding.classes is not None
    counts = np.array(confusion(y, prediction.label, len(encoding.classes)))
    axes = confusion_matrix(counts, [_literal(name) for name in encoding.classes])
    axes.set_title(f"{len(y):,} held-out rows", fontsize="medium")
    axes.figure.savefig(folder / "confusion.png")


def draw_chains(
    folder: Path,
    encoding: Encoding,
    fitted: Fitted,
    posterior: Posterior,
    x: np.ndarray,
    y: np.ndarray,
) -> None:
    """Draw the chains' predictions of three held-out rows against the draw."""
    if fitted.draws is None:
        return
    rows = np.unique(np.linspace(0, len(x) - 1, 3).astype(int))
    values = np.asarray(evaluate(predicted(posterior, np.asarray(x[rows])), fitted.positions))
    if encoding.classes is None:
        series = encoding.in_units(values[..., 0])
        names = [f"{_literal(encoding.target)}, held-out row {row + 1}" for row in rows]
    else:
        series = values[..., np.arange(len(rows)), y[rows]]
        classes = [_literal(encoding.classes[y[row]]) for row in rows]
        names = [f"p({c}), held-out row {row + 1}" for c, row in zip(classes, rows, strict=True)]
    from matplotlib.figure import Figure

    # One below the other: side by side they are too small for the page on a phone.
    figure = Figure(figsize=(6.0, 2.2 * len(rows)), dpi=120, layout="constrained")
    trace(series, figure.subplots(len(rows), 1, squeeze=False).ravel(), names=names)
    figure.savefig(folder / "chains.png")


def _literal(text: str) -> str:
    r"""Return a text of the user's file for Matplotlib, to which a $ begins a formula.

    Examples
    --------
    >>> print(_literal("$50 to $100"))
    \$50 to \$100
    """
    return text.replace("$", r"\$")
