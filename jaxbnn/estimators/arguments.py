"""What an estimator was given, looked at when it is fitted: a sentence for what cannot be used."""

import datetime
from collections.abc import Sequence
from typing import Any

import numpy as np
from sklearn.utils import check_random_state

from jaxbnn.numerics import check_count
from jaxbnn.numerics.arguments import check_flag, check_word, short
from jaxbnn.numerics.checks import check_positive_number, check_unmasked
from jaxbnn.sampling.validation import check_checkpoint
from jaxbnn.tabular.settings import (
    FEWEST_DRAWS,
    ONE_LAYER,
    Settings,
    asked_noise,
    check_settings,
)

_LARGEST_SEED = 2**31 - 1
_NO_TIMES = "a date or a time; give numbers, such as days since the first"
_BEYOND = "which is beyond the numbers of 64 bits; give it in other units"
_TIMES = (np.datetime64, np.timedelta64, datetime.date, datetime.time, datetime.timedelta)


def check_columns(X: Any) -> None:
    """Check that the columns of a table are numbers; other X as `check_numbers` does.

    Of a table, as pandas, polars and PyArrow make them, each column is looked at by itself: as one
    array, dates beside numbers are numbers already, in units of their own.

    Raises
    ------
    ValueError
        Text, dates or a missing value, with the column's name; of other X, dates or masked values.
    TypeError
        A table that is not computed yet.
    """
    if hasattr(getattr(X, "dtypes", None), "items"):  # pandas'
        for place, name in enumerate(X.columns):
            _check_column(name, X.dtypes.iloc[place].kind, X.iloc[:, place])
        return
    names = getattr(X, "column_names", None) or getattr(X, "columns", None)
    if names is None:
        check_numbers("X", X)
    elif hasattr(X, "collect"):
        raise TypeError("X is a table that is not computed yet; give X.collect().")
    else:
        for name in names:
            values = np.asarray(X[name])
            _check_column(name, values.dtype.kind, values)


def _check_column(name: Any, kind: str, values: Any) -> None:
    """Raise ValueError of the first value that is no number, by the kind of NumPy's dtype."""
    if kind not in "mMOSUT" or not len(values):
        return
    strange = [v for v in values if kind in "mM" or not is_number(v)]
    if strange:
        what = "which is no number; encode it, as scikit-learn's OneHotEncoder does text"
        if isinstance(strange[0], _TIMES):
            what = _NO_TIMES
        elif _is_missing(strange[0]):
            what = "which is missing; fill it in, as scikit-learn's SimpleImputer does"
        elif _is_beyond(strange[0]):
            what = _BEYOND
        said = f"column {name!r} of X holds {short(strange[0])}, {what}"
        raise ValueError(f"{said}, or leave it out.")


def is_number(value: Any) -> bool:
    """Return whether a value is a number, or text that names one."""
    try:
        float(value)
    except (TypeError, ValueError, OverflowError):
        return False
    return True


def _is_beyond(value: Any) -> bool:
    """Return whether this is a whole number that no double holds."""
    return isinstance(value, int) and not is_number(value)


def check_numbers(name: str, values: Any) -> None:
    """Check that an array, or lists, hold neither dates nor what a mask hides.

    Raises
    ------
    ValueError
        Dates or spans of time, which NumPy would count in units of its own, NaT as -9.2e18; masked
        values, which it would take as they are; whole numbers that no double holds.
    """
    check_unmasked(name, values)
    found = np.asarray(values)
    if found.dtype.kind not in "mMO":
        return
    for value in found.ravel():
        if isinstance(value, _TIMES):
            raise ValueError(f"{name} holds {value!r}, {_NO_TIMES}.")
        if _is_beyond(value):
            raise ValueError(f"{name} holds {short(value)}, {_BEYOND}.")


def check_targets(y: Any) -> None:
    """Check that the targets of a regression are no text, besides what `check_numbers` refuses.

    Raises
    ------
    ValueError
        Text that names no number; dates, or masked values.
    """
    check_numbers("y", y)
    found = np.asarray(y)
    if found.dtype.kind not in "OUT":
        return
    strange = [v for v in found.ravel() if isinstance(v, str) and not is_number(v)]
    if strange:
        raise ValueError(
            f"y holds {str(strange[0])!r}, which is no number; take BayesianClassifier for "
            "classes, or give numbers."
        )


def check_labels(y: Any) -> None:
    """Check that no label is missing.

    Raises
    ------
    ValueError
        None, NaN or pandas' NA among them, or one that is masked.
    """
    check_unmasked("y", y)
    values = np.asarray(y, dtype=object).ravel()
    missing = [place for place, value in enumerate(values) if _is_missing(value)]
    if missing:
        raise ValueError(
            f"y holds {values[missing[0]]!r} at row {missing[0]}; leave out rows without a label."
        )


def _is_missing(value: Any) -> bool:
    try:
        return value is None or bool(value != value)
    except TypeError:  # of pandas' NA nothing is true
        return True
    except ValueError:  # an array, which is refused elsewhere
        return False


def settings_of(estimator: Any, samplers: Sequence[str], likelihoods: Sequence[str]) -> Settings:
    """Return the settings of an estimator, with a seed drawn from its `random_state`.

    Raises
    ------
    TypeError
        A value of another kind.
    ValueError
        One out of range, or two that exclude each other.
    """
    check_word("sampler", estimator.sampler, samplers, "; choose one")
    check_word("likelihood", estimator.likelihood, likelihoods, "; choose one")
    for name, least in (("chains", 1), ("warmup", 1), ("samples", FEWEST_DRAWS)):
        if name != "chains" or estimator.chains is not None:
            check_count(name, getattr(estimator, name), least)
    for name in ("relevance", "verbose"):
        check_flag(name, getattr(estimator, name))
    _check_checkpoint(estimator)
    scale, noise = estimator.prior_scale, getattr(estimator, "noise", None)
    if scale is not None:
        check_positive_number("prior_scale", scale, "give a positive number, or None to learn it")
    if noise is not None:
        check_positive_number("noise", noise, "give a positive number, or None")
    settings = Settings(
        estimator.sampler,
        ONE_LAYER if estimator.hidden is None else _hidden(estimator.hidden),
        None if estimator.chains is None else int(estimator.chains),
        int(estimator.warmup),
        int(estimator.samples),
        asked_noise(estimator.sampler, noise),
        _seed(estimator.random_state),
        estimator.likelihood,
        None if scale is None else float(scale),
        bool(estimator.relevance),
        estimator.hidden is None,
    )
    check_settings(settings)
    return settings


def _check_checkpoint(estimator: Any) -> None:
    check_checkpoint(estimator.checkpoint)
    seed = estimator.random_state
    if estimator.checkpoint is not None and not isinstance(seed, int | np.integer):
        raise ValueError(
            f"a fit with a checkpoint goes on by the same random numbers, but random_state is "
            f"{short(seed)}; give an int, or leave checkpoint out."
        )


def _hidden(value: Any) -> tuple[int, ...]:
    """Return the hidden units by layer, of a number those of one layer; none of a linear model."""
    value = np.atleast_1d(value) if isinstance(value, np.ndarray) else value
    sizes = list(value) if isinstance(value, Sequence | np.ndarray) else [value]
    if not all(isinstance(s, int | np.integer) and not isinstance(s, bool) for s in sizes):
        raise TypeError(
            "hidden must be whole numbers of units, one a layer, as in (50,) or (20, 20), but is "
            f"{short(value)}."
        )
    return tuple(int(size) for size in sizes)


def _seed(random_state: Any) -> int:
    """Return a whole number as it is, so that the command's --seed draws the same."""
    if isinstance(random_state, int | np.integer) and not isinstance(random_state, bool):
        check_random_state(random_state)  # which refuses what is out of range
        return int(random_state)
    return int(check_random_state(random_state).randint(_LARGEST_SEED))
