"""What a target's own values say of its noise, before anything is computed."""

import math

import numpy as np
from jaxtyping import Shaped

from jaxbnn.tabular.kinds import DENSITIES

LEAST_NOISE = 1e-3
# Of the rows, and of those that have the second commonest value: grades repeat, too.
_MANY, _TIMES_THE_NEXT = 0.2, 5
# Of the rows, or one of them, may be off the grid of those that repeat.
_OFF_GRID = 0.01


def rounding_noise(y: Shaped[np.ndarray, " n"]) -> float:
    """Return the least noise of a row: the error of rounding, or .001 where that is less.

    Of numbers that are rounded to multiples of g the error is uniform, with standard deviation
    g / 12^(1/2). A density that is narrower is not learnt from such numbers; it is as high as one
    likes on those that repeat, and loses thousands of nats where the next row differs. For g the
    smallest difference between two values is taken; where all but one row, or 99 of 100, have a
    value that repeats, between two of these, so that one 5.5 among whole grades changes nothing. Of
    classes it is .001.

    Parameters
    ----------
    y
        Targets of the training rows, standardised.

    Examples
    --------
    >>> round(rounding_noise(np.array([-0.5, 0.5, 0.5, 2.5])), 4)
    0.2887
    """
    values, counts = np.unique(y, return_counts=True)
    if (counts == 1).sum() <= max(1, _OFF_GRID * len(y)):
        values = values[counts > 1]
    if np.issubdtype(values.dtype, np.integer) or len(values) < 2:
        return LEAST_NOISE
    return max(LEAST_NOISE, float(np.diff(values).min()) / math.sqrt(12.0))


def noise_notes(likelihood: str, least_noise: float, y: Shaped[np.ndarray, " n"]) -> list[str]:
    """Return sentences where the noise is bounded from below, and where no density fits.

    Parameters
    ----------
    likelihood, least_noise
        As `Settings` holds them.
    y
        Targets of the training rows, in any units.

    Examples
    --------
    >>> noise_notes("heteroscedastic", 0.3, np.arange(9.0))
    ['The noise of a row is at least 0.3 standard deviations of the target, the error of rounding.']
    >>> noise_notes("gaussian", 0.001, np.array([0.0, 0, 0, 0, 0, 0.7, 1.2, 1.9]))[0][:48]
    '62% of the targets are one and the same number, '
    """
    notes = []
    if likelihood == "heteroscedastic" and least_noise > 10 * LEAST_NOISE:
        notes.append(
            f"The noise of a row is at least {least_noise:.2g} standard deviations of the target, "
            "the error of rounding."
        )
    counts = np.sort(np.unique(y, return_counts=True)[1])
    if likelihood in DENSITIES and len(counts) > 2:
        share, most = counts[-1] / len(y), _TIMES_THE_NEXT * counts[-2]
        if share >= _MANY and counts[-1] >= most:
            notes.append(
                f"{share:.0%} of the targets are one and the same number, which no density tells "
                "of: learn first which rows have it, as classes, then the others' numbers."
            )
    return notes
