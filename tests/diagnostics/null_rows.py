"""Lines of the table of `null_laws`: shares with binomial errors, and errors over errors."""

from typing import NamedTuple

import numpy as np


class Row(NamedTuple):
    """One measurement; `low` to `high` is asked of `found`, unless a note says why nothing is."""

    function: str
    stated: str
    law: str
    runs: int
    nominal: float
    low: float
    high: float
    found: float
    error: float
    note: str = ""


def share(function, stated, law, happened, nominal, low, high, note=""):
    """A share of data sets; NaNs, where the function refused, are left out."""
    happened = np.asarray(happened, float)
    happened = happened[~np.isnan(happened)]
    found = happened.mean()
    # Of the nominal share too: an empirical 0 has no error of its own.
    error = np.sqrt(max(found * (1 - found), nominal * (1 - nominal)) / happened.size)
    return Row(function, stated, law, happened.size, nominal, low, high, found, error, note)


def p_value(function, law, p, note=""):
    """P(p < .05)."""
    p = np.asarray(p, float)
    small = np.where(np.isnan(p), np.nan, p < 0.05)
    return share(function, "P(p < .05)", law, small, 0.05, 0.03, 0.07, note)


def covers(function, stated, law, inside, note=""):
    """The share that 90 % intervals hold."""
    return share(function, stated, law, inside, 0.9, 0.86, 0.94, note)


def false_alarms(function, stated, law, alarms, rate, note=""):
    """Alarms of which the rate is an upper bound."""
    return share(function, stated, law, alarms, rate, 0.0, 1.4 * rate, note)


def stated_over_true(function, stated, law, errors, truth, note=""):
    """Root mean square of stated over true errors."""
    errors, truth = np.ravel(errors).astype(float), np.ravel(truth).astype(float)
    found = np.sqrt(np.mean(errors**2) / np.mean(truth**2))
    # Both means are of few or heavy-tailed numbers: by the jackknife over groups.
    groups = np.arange(truth.size) % 20
    left = [
        np.sqrt(np.mean(errors[groups != g] ** 2) / np.mean(truth[groups != g] ** 2))
        for g in range(20)
    ]
    error = np.sqrt(19 / 20 * np.sum((left - np.mean(left)) ** 2))
    return Row(function, stated, law, truth.size, 1.0, 0.8, 1.25, found, error, note)
