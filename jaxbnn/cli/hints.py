"""What in a column may be meant otherwise than it is taken: said, and left as it is."""

import re
from collections import Counter
from datetime import date

import numpy as np

from jaxbnn.cli.fields import how_to_mend, is_missing, looks_like_number, no_numbers

# Numbers of more different values than this are hardly names of classes.
_MANY = 10
# Of the range of all other values, where these are many and where they are few: what lies further
# off than that is far from them.
_FAR, _FAR_FROM_FEW = 5, 20
_UNIT = re.compile(r"[^\w]{0,3}\d[\d.,'\s]*?\s*([^\W\d_]{1,5})")


def far_value(numbers: np.ndarray) -> float | None:
    """Return the least or the largest of a column's numbers if it lies far from all others.

    Examples
    --------
    >>> far_value(np.array([-999.0, 0.2, 0.9, -999.0, np.nan, 0.4]))
    -999.0
    >>> far_value(np.array([0.0, 1.0, 1.0])), far_value(np.array([0.0, 1.0, 3.0]))
    (None, None)
    """
    different = np.unique(numbers[~np.isnan(numbers)])
    if len(different) < 3:
        return None
    with np.errstate(over="ignore"):
        gaps = np.diff(different)
        for gap, others, far in (
            (gaps[0], different[1:], different[0]),
            (gaps[-1], different[:-1], different[-1]),
        ):
            if gap > (_FAR if len(others) > _MANY else _FAR_FROM_FEW) * (others[-1] - others[0]):
                return float(far)
    return None


def like_dates(numbers: np.ndarray) -> bool:
    """Return whether all numbers, more than ten different ones, are dates written as 20201231.

    Examples
    --------
    >>> like_dates(np.arange(20200101.0, 20200113.0)), like_dates(np.arange(20200120.0, 20200140.0))
    (True, False)
    """
    known = np.unique(numbers[~np.isnan(numbers)])
    if len(known) <= _MANY or known[0] < 19000101 or known[-1] > 21001231:
        return False
    if (known != np.round(known)).any():
        return False
    try:
        for day in known.astype(int).tolist():
            date(day // 10000, day // 100 % 100, day % 100)
    except ValueError:
        return False
    return True


def odd_number(values: list[str]) -> str | None:
    """Return what to say of text that may be meant as numbers; None if it does not look so.

    Examples
    --------
    >>> odd_number(["3", "1O", "7"])
    "'1O' is no number, so that all are words; mend it if numbers are meant"
    >>> odd_number(["red", "", "blue"])
    """
    strange = no_numbers(values)
    are_all = len(strange) == np.sum(~is_missing(values))
    if not strange or (are_all and not _look_like_numbers(strange)):
        return None
    mend = how_to_mend(strange[0])
    return f"{strange[0]!r} is no number, so that all are words; {mend} if numbers are meant"


def strange_among_numbers(values: list[str]) -> str | None:
    """Return the first field that is no number, if most others are or it looks like one.

    For columns of too many different values to be words of a kind.

    Examples
    --------
    >>> strange_among_numbers(["3", "4", "soon"]), strange_among_numbers(["red", "blue"])
    ('soon', None)
    """
    strange = no_numbers(values)
    if strange and (len(strange) < len(values) / 2 or looks_like_number(strange[0])):
        return strange[0]
    return None


def slip_among_numbers(values: list[str]) -> str | None:
    """Return the first field of a target that is no number, if most seem to be meant as numbers.

    They are where more than ten different ones are numbers and most fields are, or where more than
    ten different ones look like numbers that have a unit.

    Examples
    --------
    >>> numbers = [str(i) for i in range(20)]
    >>> slip_among_numbers([*numbers, "unknown"]), slip_among_numbers(["0", "1", "2", "3+"])
    ('unknown', None)
    >>> slip_among_numbers([f"${i},000" for i in range(20)])
    '$0,000'
    """
    strange = no_numbers(values)
    if not strange:
        return None
    plain = set(values) - set(strange)
    if len(plain) > _MANY and len(strange) < len(values) / 2:
        return strange[0]
    if len(set(strange)) > _MANY and _look_like_numbers(strange):
        return strange[0]
    return None


def spelled_twice(values: list[str]) -> str | None:
    """Return what to say of words that differ by capital letters alone; None if there are none.

    Examples
    --------
    >>> spelled_twice(["yes", "Yes", "no"])
    "'Yes' and 'yes' are taken as different; write them alike if they mean the same"
    """
    different = set(values)
    count = Counter(value.casefold() for value in different)
    twice = sorted(value for value in different if count[value.casefold()] > 1)
    if not twice:
        return None
    alike = [value for value in twice if value.casefold() == twice[0].casefold()]
    return (
        f"{alike[0]!r} and {alike[1]!r} are taken as different; write them alike if they mean the "
        "same"
    )


def _look_like_numbers(values: list[str]) -> bool:
    """Return whether people would read numbers, with marks of money, say, or all with one unit."""
    if all(looks_like_number(value) for value in values):
        return True
    found = [_UNIT.fullmatch(value) for value in values]
    return len({match[1] if match else None for match in found} - {None}) == 1 and all(found)
