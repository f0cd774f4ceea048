"""Fields of text: which are missing, which are numbers, and how their decimals are written."""

import contextlib
import math
import re
from collections.abc import Collection, Iterator

import numpy as np

_MISSING = {"", "na", "n/a", "nan", "null", "none", "?"}
_COMMA_NUMBER = re.compile(r"[+-]?(\d+,\d*|,\d+)([eE][+-]?\d+)?")
_POINT_NUMBER = re.compile(r"[+-]?(\d+\.\d*|\.\d+)([eE][+-]?\d+)?")
# 1,234 is a number between 1 and 2 to some, and more than a thousand to others; so is 1.234.
_COULD_BE_THOUSANDS = re.compile(r"[+-]?[1-9]\d{0,2}[.,]\d{3}")
_DECORATED_NUMBER = re.compile(r"[^\w]{0,3}\d[\d.,'\s]*[^\w]{0,3}")


def is_missing(values: list[str]) -> np.ndarray:
    """Return which fields are empty or say that they are missing: NA, null, ?, ..."""
    return np.array([value.lower() in _MISSING for value in values], bool)


def says_none(values: list[str]) -> np.ndarray:
    """Return which fields are the word none, of which words may mean one of their own."""
    return np.array([value.lower() == "none" for value in values], bool)


def as_numbers(values: list[str]) -> np.ndarray | None:
    """Return the fields as numbers, missing ones as NaN; None if one of them is no number."""
    numbers = np.full(len(values), np.nan)
    for i, value in enumerate(values):
        if value.lower() not in _MISSING:
            number = _number(value)
            if number is None:
                return None
            numbers[i] = number
    return numbers


def one_spelling(values: list[str]) -> list[str]:
    """Return the fields with equal numbers spelled alike, in the shortest of their ways.

    Examples
    --------
    >>> one_spelling(["1.0", "0", "1", "2.50"])
    ['1', '0', '1', '2.50']
    """
    numbers = as_numbers(values)
    if numbers is None:
        return values
    shortest: dict[float, str] = {}
    # Larger ones are not told apart by a double: they may be labels that differ.
    numbers = np.where(np.abs(numbers) < 2.0**53, numbers, np.nan)
    for number, value in zip(numbers.tolist(), values, strict=True):
        shortest[number] = min(
            shortest.get(number, value), value, key=lambda text: (len(text), text)
        )
    # NaN, which stands for what is missing or large, is not equal to itself.
    return [
        shortest.get(n, v) if n == n else v for n, v in zip(numbers.tolist(), values, strict=True)
    ]


def one_number_twice(values: list[str]) -> tuple[str, str] | None:
    """Return two ways in which a column spells one number, as 1.10 and 1.1; None if it does not.

    Examples
    --------
    >>> one_number_twice(["1.1", "2", "1.10"])
    ('1.10', '1.1')
    """
    for value, kept in zip(values, one_spelling(values), strict=True):
        if value != kept:
            return value, kept
    return None


def no_numbers(values: list[str]) -> list[str]:
    """Return the fields that are neither numbers nor missing."""
    return [v for v in values if v.lower() not in _MISSING and _number(v) is None]


def looks_like_number(value: str) -> bool:
    """Return whether people would read a number: 1,234.50 or $12 or 7 %."""
    return _DECORATED_NUMBER.fullmatch(value) is not None


def how_to_mend(value: str) -> str:
    """Return what to do about a field that should be a number."""
    return "write numbers plainly, as 1234.5" if looks_like_number(value) else "mend it"


def with_decimal_points(
    columns: dict[str, list[str]],
    decimal: str | None,
    source: str,
    unused: Collection[str] = (),
) -> tuple[dict[str, list[str]], str]:
    """Return the columns with numbers such as 3,5 written 3.5, and the mark that was found.

    With `decimal` None a comma counts where it makes a whole column numbers. Columns that are
    `unused` stay as they are, and are asked for the mark only where the others do not tell.

    Raises
    ------
    ValueError
        1,234 may be 1.234 or 1234; both marks are in use, or points where commas were asked for.
    """
    used = {name: columns[name] for name in columns if name not in unused}
    changed, mark = _read_decimals(used, decimal, source)
    if mark == "." and decimal is None and next(_pointed(used), None) is None:
        rest = {name: columns[name] for name in columns if name in unused}
        with contextlib.suppress(ValueError):  # written in two ways, for all one knows
            mark = _read_decimals(rest, None, source)[1]
    return columns | changed, mark


def _read_decimals(
    columns: dict[str, list[str]], decimal: str | None, source: str
) -> tuple[dict[str, list[str]], str]:
    if decimal == ".":
        return columns, "."
    changed = {name: with_points(values) for name, values in columns.items()}
    if decimal is None:
        changed = {
            name: values
            for name, values in changed.items()
            if values != columns[name] and as_numbers(values) is not None
        }
    written = {
        name: [v for v in columns[name] if _COMMA_NUMBER.fullmatch(v)]
        for name in changed
        if changed[name] != columns[name]
    }
    if not written and decimal is None:
        return columns, "."
    name, with_point = next(_pointed(columns), ("", None))
    if not written:
        if with_point is not None:
            raise ValueError(
                f"column {name!r} of {source} holds {with_point!r}, but --decimal is a comma: take "
                "points between thousands out, or leave --decimal out if points are decimal ones."
            )
        return columns, ","
    first = next(iter(written))
    if decimal is None and all(
        _COULD_BE_THOUSANDS.fullmatch(v) for values in written.values() for v in values
    ):
        raise ValueError(
            f"column {first!r} of {source} holds {written[first][0]!r}: give --decimal , if the "
            "comma is a decimal one, else take the commas out."
        )
    if with_point is not None:
        raise ValueError(
            f"{source} holds {written[first][0]!r} in column {first!r} and {with_point!r} in "
            f"column {name!r}; write all decimals alike."
        )
    return columns | changed, ","


def perhaps_thousands(columns: dict[str, list[str]]) -> list[str]:
    """Return a sentence where each number with a point could have it between thousands.

    Examples
    --------
    >>> perhaps_thousands({"x": ["1.234", "999"], "y": ["0.5", "1.5"]})
    []
    """
    pointed = list(_pointed(columns))
    if not pointed or not all(_COULD_BE_THOUSANDS.fullmatch(value) for _, value in pointed):
        return []
    name, value = pointed[0]
    return [
        f"{name}: numbers such as {value} are read with a decimal point; if points stand between "
        "thousands, take them out."
    ]


def _pointed(columns: dict[str, list[str]]) -> Iterator[tuple[str, str]]:
    """Yield the numbers that are written with a point, each after its column's name."""
    return ((name, v) for name in columns for v in columns[name] if _POINT_NUMBER.fullmatch(v))


def with_commas(values: list[str]) -> list[str]:
    """Return the fields with numbers such as 3.5 written 3,5.

    Examples
    --------
    >>> with_commas(["3.5", "v1.2", "7"]), with_points(["3,5", "a,b"])
    (['3,5', 'v1.2', '7'], ['3.5', 'a,b'])
    """
    return [v.replace(".", ",") if _POINT_NUMBER.fullmatch(v) else v for v in values]


def with_points(values: list[str]) -> list[str]:
    """Return the fields with numbers such as 3,5 written 3.5."""
    return [v.replace(",", ".") if _COMMA_NUMBER.fullmatch(v) else v for v in values]


def _number(value: str) -> float | None:
    if "_" in value:  # which Python reads as thousands
        return None
    try:
        number = float(value)
    except ValueError:
        return None
    return number if math.isfinite(number) else None
