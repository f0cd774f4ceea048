"""Mean and standard deviation of a table's columns, whatever their units."""

from typing import Any

import numpy as np
from jaxtyping import Float

# Of the largest value: columns whose standard deviation is smaller differ by rounding only, by ten
# of a double's. Stamps of time in microseconds, which differ in the last digits, are above it.
_ROUNDING = 2e-15
# Below, beside the largest value, the sums over rows are made from the least value on.
_NARROW = 1e-6
# Standard deviations from the mean.
_FARTHEST = 1e9


def mean_and_sd(values: Float[np.ndarray, "rows *columns"]) -> tuple[Any, Any]:
    """Return each column's mean and standard deviation, NaN left out; 0 where it is constant.

    Arrays (columns,), or two numbers of values (rows,).

    Constant is what differs by rounding only, in proportion to the values themselves: farads and
    light years are columns like others. Squares neither overflow nor vanish on the way.

    Examples
    --------
    >>> mean, sd = mean_and_sd(np.array([[1e-200, 0.1], [3e-200, 0.1]]))
    >>> mean.tolist(), sd.tolist()
    ([2e-200, 0.1], [1e-200, 0.0])
    """
    _, exponent = np.frexp(np.nanmax(np.abs(values), axis=0))
    scaled = np.ldexp(values, -exponent)  # exact: by a power of two
    mean, sd = np.nanmean(scaled, axis=0), np.nanstd(scaled, axis=0)
    # Sums of many rows round by more than their last digits: by nothing from the least on.
    least = np.nanmin(scaled, axis=0)
    above = scaled - least
    spread = np.nanstd(above, axis=0)
    mean = np.where(spread < _NARROW, least + np.nanmean(above, axis=0), mean)
    sd = np.where(spread < _NARROW, spread, sd)
    sd = np.where(sd <= _ROUNDING, 0.0, sd)
    return np.ldexp(mean, exponent), np.ldexp(sd, exponent)


def standardised(values: np.ndarray, mean: Any, sd: Any) -> np.ndarray:
    """Return values less the mean, in standard deviations, none further out than 1e9.

    Further out nothing differs, and single precision would call it infinite.

    Examples
    --------
    >>> standardised(np.array([3.0, 1e300]), 1.0, 2.0).tolist()
    [1.0, 1000000000.0]
    """
    with np.errstate(over="ignore"):
        return np.clip((values - mean) / sd, -_FARTHEST, _FARTHEST)
