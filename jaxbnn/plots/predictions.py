"""Pictures of predictions: against what happened, and whether they are calibrated."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import ArrayLike

from jaxbnn.numerics import check_fraction
from jaxbnn.plots._canvas import COLORS, REFERENCE, given_axes, new_axes
from jaxbnn.plots._series import as_numbers

Numbers = ArrayLike | Sequence
_MOST_POINTS = 400
_MOST_CELLS = 20
_ROUNDING = 1e-5


def observed_against_predicted(
    observed: Numbers,
    mean: Numbers,
    lower: Numbers,
    upper: Numbers,
    axes: Any = None,
    *,
    level: float | int = 0.9,
    name: str = "target",
) -> Any:
    """Draw what was observed against its prediction, with the interval of each as a bar.

    Intervals that miss what was observed are drawn in a second colour. Of more than 400 data,
    evenly spaced ones are shown; the title says how many, and of how many. Rows that hold a number
    that is not finite are left out and counted in the title.

    Parameters
    ----------
    observed, mean, lower, upper
        Arrays of shape (n,).
    axes
        Matplotlib axes; None makes a figure.
    level
        Probability of the intervals, for the legend.
    name
        What is predicted.

    Raises
    ------
    ValueError
        If the arrays differ in shape, no row is finite, an interval ends below its start, or the
        level is not between 0 and 1.

    Examples
    --------
    >>> axes = observed_against_predicted([0.0, 1.0], [0.1, 0.5], [-1.0, 0.4], [1.0, 0.6])
    >>> axes.get_xlabel()
    'predicted target'
    """
    check_fraction("level", level, "; divide percents by 100")
    arrays = [as_numbers("what is drawn", values) for values in (observed, mean, lower, upper)]
    if len({values.shape for values in arrays}) > 1 or arrays[0].ndim != 1:
        raise ValueError(
            "observed, mean, lower and upper must have one shape (n,), but have "
            f"{[values.shape for values in arrays]}."
        )
    is_finite = np.isfinite(arrays).all(axis=0)
    if not is_finite.any():
        raise ValueError("no row is finite, so there is nothing to draw; look at the predictions.")
    missing, arrays = int((~is_finite).sum()), [values[is_finite] for values in arrays]
    _, _, low, high = arrays
    if (low - high > _ROUNDING * np.maximum(np.abs(low), np.abs(high))).any():
        raise ValueError("upper must not be below lower; give the ends in this order.")
    rows = np.unique(np.linspace(0, len(arrays[0]) - 1, _MOST_POINTS).astype(int))
    y, center, low, high = (values[rows] for values in arrays)
    axes = new_axes(panel_size=(5.0, 4.2))[0] if axes is None else given_axes(axes, 1)[0]
    inside = (low <= y) & (y <= high)
    for shown, color, label in (
        (inside, COLORS[0], f"inside its {100 * level:g}% interval"),
        (~inside, COLORS[1], "outside"),
    ):
        if shown.any():
            axes.vlines(center[shown], low[shown], high[shown], color=color, alpha=0.25, lw=1.0)
            axes.plot(center[shown], y[shown], ".", color=color, label=label, markersize=5)
    ends = [min(y.min(), center.min()), max(y.max(), center.max())]
    axes.plot(ends, ends, color=REFERENCE, linewidth=1.0, label="observed = predicted")
    axes.set(xlabel=f"predicted {name}", ylabel=f"observed {name}")
    shown = f"{len(y):,} of " if len(y) < len(arrays[0]) else ""
    left_out = f", {missing:,} not finite" if missing else ""
    noun = "row" if len(arrays[0]) == 1 else "rows"
    axes.set_title(f"{shown}{len(arrays[0]):,} {noun}{left_out}", fontsize="medium")
    axes.legend(loc="upper left", framealpha=0.9)
    return axes


def confusion_matrix(counts: Numbers, names: Sequence[str], axes: Any = None) -> Any:
    """Draw how many data of each class were taken for each: the diagonal was right.

    Shades are shares of the row, so that rare classes are seen too; numbers are written into
    the cells of up to 20 classes.

    Parameters
    ----------
    counts
        Whole numbers of shape (classes, classes): by the class it is, and the class it was given.
    names
        Of the classes.
    axes
        Matplotlib axes; None makes a figure.

    Raises
    ------
    ValueError
        If `counts` is not square with one row a name, or holds what is no count.

    Examples
    --------
    >>> axes = confusion_matrix([[5, 1], [0, 4]], ["cat", "dog"])
    >>> axes.get_xlabel()
    'was taken for'
    """
    table = as_numbers("counts", counts)
    if table.shape != (len(names), len(names)):
        raise ValueError(
            f"counts must have one row and one column a name, ({len(names)}, {len(names)}), but "
            f"has shape {table.shape}."
        )
    if not ((table >= 0) & (table % 1 == 0)).all():  # NaNs compare false
        raise ValueError("counts must be whole numbers, zero or more; give counts, not shares.")
    size = min(3.0 + 0.45 * len(names), 9.0)
    axes = new_axes(panel_size=(size, size))[0] if axes is None else given_axes(axes, 1)[0]
    share = table / np.maximum(table.sum(axis=1, keepdims=True), 1)
    axes.imshow(share, cmap="Blues", vmin=0.0, vmax=1.0)
    ticks = np.arange(len(names))
    axes.set_xticks(ticks, names, rotation=45, ha="right", rotation_mode="anchor")
    axes.set_yticks(ticks, names)
    axes.set(xlabel="was taken for", ylabel="is")
    if len(names) <= _MOST_CELLS:
        for (row, column), count in np.ndenumerate(table):
            color = "white" if share[row, column] > 0.5 else "black"
            axes.text(column, row, f"{count:.0f}", ha="center", va="center", color=color)
    return axes


def calibration(
    predicted: Numbers, happened: Numbers, axes: Any = None, *, counts: Numbers | None = None
) -> Any:
    """Draw how often things happened against how often they were predicted to.

    Parameters
    ----------
    predicted, happened
        Levels of intervals and their `coverage`, or confidence and accuracy of `reliability`; NaN
        is left out.
    axes
        Matplotlib axes; None makes a figure.
    counts
        Data behind each point; bars are drawn of the probabilities that lie within two standard
        errors of what happened (Wilson's interval, 95 %), which have a length also where
        everything or nothing happened.

    Raises
    ------
    TypeError
        `axes` that are no Matplotlib axes.
    ValueError
        Shapes that differ, or numbers that are not between 0 and 1, percentages say.

    Examples
    --------
    >>> axes = calibration([0.5, 0.9], [0.4, 0.95])
    >>> axes.get_ylabel()
    'how often it happened'
    """
    predicted, happened = as_numbers("predicted", predicted), as_numbers("happened", happened)
    if predicted.ndim != 1 or predicted.shape != happened.shape:
        raise ValueError(
            f"predicted and happened must have one shape (n,), but have {predicted.shape} and "
            f"{happened.shape}."
        )
    for name, shares in (("predicted", predicted), ("happened", happened)):
        # Means of many ones exceed 1 by rounding; NaNs compare false.
        if (wrong := shares[(shares < -_ROUNDING) | (shares > 1 + _ROUNDING)]).size:
            raise ValueError(
                f"{name} must lie between 0 and 1, but holds {wrong[0]:g}; divide percents by 100."
            )
    axes = new_axes(panel_size=(4.2, 4.2))[0] if axes is None else given_axes(axes, 1)[0]
    axes.plot([0, 1], [0, 1], color=REFERENCE, linewidth=1.0, label="calibrated")
    if counts is None:
        axes.plot(predicted, happened, ".-", color=COLORS[0], label="predictions")
    else:
        number = np.maximum(as_numbers("counts", counts), 1)
        if number.shape != predicted.shape:
            raise ValueError(
                f"counts must have the shape of predicted, {predicted.shape}, but has "
                f"{number.shape}."
            )
        axes.errorbar(
            predicted,
            happened,
            _wilson(happened, number),
            fmt=".-",
            color=COLORS[0],
            capsize=2,
            label="predictions",
        )
    axes.set(
        xlabel="predicted probability",
        ylabel="how often it happened",
        xlim=(-0.02, 1.02),
        ylim=(-0.02, 1.02),
    )
    axes.legend(loc="upper left", framealpha=0.9)
    return axes


def _wilson(share: np.ndarray, number: np.ndarray) -> np.ndarray:
    """Lengths below and above of Wilson's (1927) interval of two standard errors, (2, n)."""
    error = 2.0
    centre = (share + error**2 / (2 * number)) / (1 + error**2 / number)
    spread = np.sqrt(np.maximum(share * (1 - share), 0) / number + (error / (2 * number)) ** 2)
    half = error * spread / (1 + error**2 / number)
    return np.maximum([share - (centre - half), centre + half - share], 0)
