"""Inputs and targets of zero mean and unit variance, and the way back."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from jaxbnn.numerics import check_finite, check_real
from jaxbnn.numerics.spread import mean_and_sd

# Rows of a constant column are as near to its mean, beside their size.
_ROUNDED = 1e-13
# Standard deviations, or units of a constant column.
_UNSEEN = 1e-9


class Standardisation(NamedTuple):
    """Means and standard deviations of training data.

    Attributes
    ----------
    x_mean, x_scale
        (d,); the scale of a constant column is 1.
    y_mean, y_scale
        Numbers, or (k,).
    constant_columns
        Columns of x that do not vary, but for rounding: they are kept, as zeros.
    """

    x_mean: Float[np.ndarray, " d"]
    x_scale: Float[np.ndarray, " d"]
    y_mean: np.ndarray
    y_scale: np.ndarray
    constant_columns: tuple[int, ...]

    def inputs(self, x: np.ndarray) -> np.ndarray:
        """Return x standardised.

        Raises
        ------
        ValueError
            Other columns; numbers that are not finite, or that a mask hides.
        TypeError
            What are no real numbers: dates, say.
        """
        _check("x", x, np.shape(self.x_mean))
        away = np.asarray(x, np.float64) - self.x_mean
        if self.constant_columns:
            columns = np.arange(np.size(self.x_mean)).reshape(np.shape(self.x_mean))
            is_rounding = np.abs(away) <= _ROUNDED * np.abs(self.x_mean)
            away = np.where(np.isin(columns, self.constant_columns) & is_rounding, 0.0, away)
        return away / self.x_scale

    def targets(self, y: np.ndarray) -> np.ndarray:
        """Return y standardised; a log density of it, in the units of y, is less by log y_scale.

        Raises
        ------
        ValueError
            Other columns; numbers that are not finite, or that a mask hides.
        TypeError
            What are no real numbers.
        """
        _check("y", y, np.shape(self.y_mean))
        return (np.asarray(y, np.float64) - self.y_mean) / self.y_scale


def standardisation(x: np.ndarray, y: np.ndarray) -> Standardisation:
    """Return what standardises training data.

    Parameters
    ----------
    x
        Training inputs, (n, d).
    y
        Training targets, (n,) or (n, k).

    Raises
    ------
    ValueError
        If the data hold NaN or no rows, x and y differ in their number of rows, or a target does
        not vary.
    TypeError
        Data that are not real numbers.

    Examples
    --------
    >>> s = standardisation(np.array([[1.0, 7.0], [3.0, 7.0]]), np.array([0.0, 4.0]))
    >>> s.constant_columns, s.inputs(np.array([[3.0, 8.0]])).tolist(), float(s.y_scale)
    ((1,), [[1.0, 1.0]], 2.0)
    """
    for name, value in (("x", x), ("y", y)):
        check_real(name, value)
        check_finite(name, value)
    if np.ndim(y) == 0 or np.shape(x)[:1] != np.shape(y)[:1] or len(x) == 0:
        raise ValueError(
            f"x and y must have the same number of rows, at least one, but have shapes "
            f"{np.shape(x)} and {np.shape(y)}; give one target per datum."
        )
    x, y = np.asarray(x, np.float64), np.asarray(y, np.float64)
    (x_mean, x_scale), (y_mean, y_scale) = mean_and_sd(x), mean_and_sd(y)
    constant, flat = x_scale == 0, np.atleast_1d(y_scale == 0)
    if flat.any():
        column = "" if y.ndim == 1 else f" in column {int(np.argmax(flat))}"
        raise ValueError(
            f"y has no spread{column}, so that it cannot be standardised; there is nothing to "
            "learn, or the wrong column was taken."
        )
    x_scale = np.where(constant, 1.0, x_scale)
    with np.errstate(over="ignore"):
        plain = x.mean(axis=0)
    # As NumPy sums it, by whose digits recorded fits began, where its rounding cannot be seen.
    x_mean = np.where(np.abs(plain - x_mean) <= _UNSEEN * x_scale, plain, x_mean)
    names = tuple(int(i) for i in np.flatnonzero(constant))
    return Standardisation(x_mean, x_scale, y_mean, y_scale, names)


def _check(name: str, values: np.ndarray, columns: tuple[int, ...]) -> None:
    """Raise unless data are finite numbers, with the columns of those that the means are of."""
    check_real(name, values)
    check_finite(name, values)
    if columns and np.shape(values)[-len(columns) :] != columns:
        raise ValueError(
            f"{name} has shape {np.shape(values)}, but was standardised with columns of shape "
            f"{columns}; give the same columns."
        )
    if not columns and np.shape(values)[1:] not in ((), (1,)):
        raise ValueError(
            f"{name} has shape {np.shape(values)}, but was standardised as numbers (n,); give "
            "these."
        )
