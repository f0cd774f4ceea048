"""Do things happen as often as predicted? Arrays in, numbers out."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import ArrayLike, Float, Int

from jaxbnn.numerics import check_count, check_real
from jaxbnn.numerics.checks import check_outside

Numbers = ArrayLike | Sequence


class Reliability(NamedTuple):
    """What a reliability diagram shows, a bin of confidences at a time.

    Attributes
    ----------
    confidence, accuracy
        Means over the predictions in a bin; NaN in an empty one.
    num_data
        How many there are.
    edges
        Of the bins.
    """

    confidence: Float[np.ndarray, " bins"]
    accuracy: Float[np.ndarray, " bins"]
    num_data: Int[np.ndarray, " bins"]
    edges: Float[np.ndarray, " edges"]


def coverage(pit: Numbers, levels: Numbers) -> Float[np.ndarray, " levels"]:
    """Return the fraction of data inside the central intervals of given probabilities.

    Parameters
    ----------
    pit
        Predictive distribution functions at the data, in [0, 1]; any shape (`scores(...).pit`).
    levels
        Probabilities of the intervals, one or along one axis. Calibrated predictions have
        coverage = level.

    Raises
    ------
    ValueError
        No data, or values outside [0, 1]; levels along more than one axis.

    Examples
    --------
    >>> coverage([0.02, 0.3, 0.5, 0.9], [0.5, 0.9]).tolist()
    [0.5, 0.75]
    """
    check_real("pit", pit)
    check_real("levels", levels)
    pit, levels = np.asarray(pit, float).ravel(), np.atleast_1d(np.asarray(levels, float))
    for name, values in (("pit", pit), ("levels", levels)):
        if len(values) == 0 or not ((values >= 0) & (values <= 1)).all():
            raise ValueError(f"{name} must be probabilities between 0 and 1, at least one of them.")
    if levels.ndim > 1:
        raise ValueError(f"levels must lie along one axis, but have shape {levels.shape}.")
    return np.array([np.mean(np.abs(pit - 0.5) <= level / 2) for level in levels])


def reliability(probabilities: Numbers, labels: Numbers, bins: int = 15) -> Reliability:
    """Return confidence and accuracy of the most probable class, by bins of confidence.

    Parameters
    ----------
    probabilities
        Shape (n, C), rows sum to 1.
    labels
        The classes that occurred, 0..C-1.
    bins
        Equal bins of [0, 1]; a confidence on an edge belongs to the bin below.

    Raises
    ------
    ValueError
        Shapes that do not fit; rows that are no probabilities; labels out of range, or no whole
        numbers; bins < 1.

    Notes
    -----
    Guo, Pleiss, Sun, Weinberger (2017), section 2.

    Examples
    --------
    >>> found = reliability([[0.9, 0.1], [0.2, 0.8]], [0, 0], bins=2)
    >>> found.num_data.tolist(), found.accuracy.tolist()[1]
    ([0, 2], 0.5)
    """
    check_outside("reliability", "it counts on the host; call it outside", probabilities, labels)
    check_real("probabilities", probabilities)
    check_real("labels", labels)
    check_count("bins", bins)
    p, labels = np.asarray(probabilities, float), np.asarray(labels)
    if p.ndim != 2 or labels.shape != p.shape[:1] or len(p) == 0:
        raise ValueError(
            "probabilities must have shape (n, C) and labels (n,), n > 0, but have shapes "
            f"{p.shape} and {labels.shape}."
        )
    if (p < 0).any() or not np.allclose(p.sum(axis=1), 1, atol=1e-3):
        raise ValueError("the rows of probabilities must be non-negative and sum to 1.")
    if not ((labels >= 0) & (labels < p.shape[1])).all():
        raise ValueError(f"labels must lie in 0..{p.shape[1] - 1}, one class a column.")
    if (labels % 1 != 0).any():
        raise ValueError("labels must be whole numbers, the columns of the classes that occurred.")
    edges = np.linspace(0, 1, bins + 1)
    confidence = p.max(axis=1)
    which = np.clip(np.searchsorted(edges, confidence, side="left") - 1, 0, bins - 1)
    count = np.bincount(which, minlength=bins)
    correct = (p.argmax(axis=1) == labels).astype(float)
    confidence, accuracy = (
        np.divide(
            np.bincount(which, weights=values, minlength=bins),
            count,
            out=np.full(bins, np.nan),
            where=count > 0,
        )
        for values in (confidence, correct)
    )
    return Reliability(confidence, accuracy, count, edges)


def expected_calibration_error(probabilities: Numbers, labels: Numbers, bins: int = 15) -> float:
    """Return the mean over data of |accuracy - confidence| in their bin of `reliability`.

    It is 0 for calibrated predictions only in the limit of much data: with n data it is of the
    order of (bins / n)^(1/2) even then.

    Parameters
    ----------
    probabilities, labels, bins
        As in `reliability`.

    Raises
    ------
    ValueError
        As `reliability`.

    Notes
    -----
    Guo et al. (2017), equation (3).

    Examples
    --------
    >>> round(expected_calibration_error([[0.9, 0.1], [0.2, 0.8]], [0, 0]), 2)
    0.45
    """
    found = reliability(probabilities, labels, bins)
    gap = np.abs(found.accuracy - found.confidence)
    return float(np.nansum(gap * found.num_data) / found.num_data.sum())
