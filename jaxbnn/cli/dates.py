"""Dates: how a column writes them, and what of them a network is given.

A date becomes the days since the first one; and, where the training rows tell of them, the season,
the weekday and the time of day. With time zones days are counted in UTC, and these three are those
of the clock that the date is written by.
"""

import functools
import re
from datetime import date, timedelta
from typing import Literal

import numpy as np

from jaxbnn.cli.fields import is_missing

Order = Literal["year-month-day", "day-month-year", "month-day-year"]
_TIME = (
    r"(?:[T ]\s*(\d{1,2}):(\d\d)(?::(\d\d(?:[.,]\d+)?))?\s*([AaPp][Mm])?\s*(Z|[+-]\d\d:?\d\d)?)?"
)
_YEAR_FIRST = re.compile(r"(\d{4})([-/.])(\d{1,2})\2(\d{1,2})" + _TIME)
_YEAR_LAST = re.compile(r"(\d{1,2})([-/.])(\d{1,2})\2(\d{4})" + _TIME)
_MONTH = r"(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)[a-z]*\.?"
_OTHER_DATES = re.compile(
    rf"(\d{{1,2}}[-/. ]{_MONTH}[-/. ]\d{{2,4}}|{_MONTH}[-/. ](?:\d{{1,2}},? )?\d{{4}}"
    r"|\d{1,2}[-/.]\d{1,2}[-/.]\d{2})( .*)?|\d{1,2}:\d\d(:\d\d)?( ?[AP]M)?",
    re.IGNORECASE,
)
_WEEKDAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
_DAYS_A_YEAR = 365.2425
# A season is known where more than one year of it was seen, a weekday where two weeks were.
_LEAST_FOR_SEASON, _LEAST_FOR_WEEKDAY = 1.5 * _DAYS_A_YEAR, 14
_QUARTERS = 96  # of an hour, in a day


def find_order(values: list[str]) -> Order | Literal["open"] | None:
    """Return how a column writes its dates; None if it holds none, "open" if that cannot be told.

    With points, as in 3.4.2020, the day comes first unless a column contradicts; with strokes,
    3/4/2020 may be either, and some date of the column has to tell by a number above 12.

    Examples
    --------
    >>> find_order(["2020-04-03", "2020-12-24 18:00"]), find_order(["3.4.2020", ""])
    ('year-month-day', 'day-month-year')
    >>> find_order(["3/4/2020", "12/24/2020"]), find_order(["3/4/2020"])
    ('month-day-year', 'open')
    >>> find_order(["3/4/2020", "soon"])
    """
    known = [v for v, m in zip(values, is_missing(values), strict=True) if not m]
    if not known:
        return None
    if all(_YEAR_FIRST.fullmatch(v) for v in known):
        return "year-month-day"
    parts = [_YEAR_LAST.fullmatch(v) for v in known]
    if any(part is None for part in parts):
        return None
    first = max(int(part[1]) for part in parts if part)
    second = max(int(part[3]) for part in parts if part)
    if first > 12 and second > 12:
        return None
    if first > 12 or second > 12:
        return "day-month-year" if first > 12 else "month-day-year"
    has_points = all(part[2] == "." for part in parts if part)
    return "day-month-year" if has_points else "open"


def dates_of_another_kind(values: list[str]) -> str | None:
    """Return the first field if most are dates or times as people write them, but not read here.

    Examples
    --------
    >>> dates_of_another_kind(["01 Feb 2022", "3 Feb 2022"]), dates_of_another_kind(["00:56", "b"])
    ('01 Feb 2022', None)
    """
    known = [v for v, m in zip(values, is_missing(values), strict=True) if not m]
    found = [v for v in known if _OTHER_DATES.fullmatch(v)]
    return found[0] if len(found) > len(known) / 2 else None


def with_and_without_points(values: list[str]) -> tuple[str | None, str | None]:
    """Return the first date with the year last that has points, 3.4.2020, and the first without.

    Examples
    --------
    >>> with_and_without_points(["", "3/4/2020", "5.4.2020", "2020.04.03"])
    ('5.4.2020', '3/4/2020')
    """
    found = [(v, _YEAR_LAST.fullmatch(v)) for v in values]
    with_points = (v for v, match in found if match is not None and match[2] == ".")
    without = (v for v, match in found if match is not None and match[2] != ".")
    return next(with_points, None), next(without, None)


def look_like_dates(values: list[str]) -> list[str]:
    """Return the fields that are no dates if most are, else none."""
    known = [v for v, m in zip(values, is_missing(values), strict=True) if not m]
    strange = [v for v in known if not (_YEAR_FIRST.fullmatch(v) or _YEAR_LAST.fullmatch(v))]
    return strange if len(strange) < len(known) / 2 else []


def written_in_two_ways(values: list[str]) -> tuple[str, str] | None:
    """Return two dates of a column whose order differs, if it holds dates alone, else None."""
    known = [v for v, m in zip(values, is_missing(values), strict=True) if not m]
    if find_order(known) is not None or not known or any(find_order([v]) is None for v in known):
        return None
    seen: dict[str, str] = {}
    for value in known:
        seen.setdefault(str(find_order([value])), value)
    if len(seen) > 2:
        seen.pop("open", None)
    one, other, *_ = seen.values()
    return one, other


def with_and_without_zone(values: list[str]) -> tuple[str | None, str | None]:
    """Return the first date that has a time zone, and the first that has none.

    Examples
    --------
    >>> with_and_without_zone(["", "2020-01-01 06:00", "2020-01-01 06:00Z"])
    ('2020-01-01 06:00Z', '2020-01-01 06:00')
    """
    known = [v for v, m in zip(values, is_missing(values), strict=True) if not m]
    found = [(v, _YEAR_FIRST.fullmatch(v) or _YEAR_LAST.fullmatch(v)) for v in known]
    zoned = (v for v, match in found if match is not None and match[9])
    bare = (v for v, match in found if match is not None and not match[9])
    return next(zoned, None), next(bare, None)


def as_days(values: list[str], order: Order, *, is_local: bool = False) -> np.ndarray | str:
    """Return days since 1970, NaN where missing; or the first field that is no such date.

    Days of UTC, or if `is_local` those of the clock that each date is written by.
    """
    days = np.full(len(values), np.nan)
    for i, (value, is_gone) in enumerate(zip(values, is_missing(values), strict=True)):
        if is_gone:
            continue
        found = _days(value, order, is_local)
        if found is None:
            return value
        days[i] = found
    return days


def _days(value: str, order: Order, is_local: bool) -> float | None:
    pattern = _YEAR_FIRST if order == "year-month-day" else _YEAR_LAST
    found = pattern.fullmatch(value)
    if found is None:
        return None
    numbers = [int(found[1]), int(found[3]), int(found[4])]
    if order == "day-month-year":
        numbers.reverse()
    elif order == "month-day-year":
        numbers = [numbers[2], numbers[0], numbers[1]]
    day = _day(*numbers)
    if day is None or not found[5]:
        return day
    hour, minute = int(found[5]), int(found[6])
    second = float((found[7] or "0").replace(",", "."))
    if found[8]:
        hour = hour % 12 + 12 * (found[8].lower() == "pm")
    if hour > 23 or minute > 59 or second > 60:
        return None
    east = 0 if is_local else _minutes_east(found[9])
    return day + ((hour * 60 + minute - east) * 60 + second) / 86400


@functools.lru_cache(maxsize=100_000)
def _day(year: int, month: int, day: int) -> float | None:
    try:
        return float(date(year, month, day).toordinal() - date(1970, 1, 1).toordinal())
    except ValueError:
        return None


def _minutes_east(zone: str | None) -> int:
    if zone in (None, "", "Z"):
        return 0
    assert zone is not None
    minutes = 60 * int(zone[1:3]) + int(zone[-2:])
    return -minutes if zone[0] == "-" else minutes


def parts_known(days: np.ndarray) -> list[str]:
    """Return which parts of the date the training rows tell of: season, weekday, time of day."""
    seen = days[~np.isnan(days)]
    span = seen.max() - seen.min()
    parts = ["season"] if span >= _LEAST_FOR_SEASON else []
    if span >= _LEAST_FOR_WEEKDAY and len(np.unique(_weekday(seen))) > 1:
        parts.append("weekday")
    if len(np.unique(seen % 1)) > 1:
        parts.append("time of day")
    return parts


def parts_seen(days: np.ndarray, parts: list[str]) -> dict[str, list[int]]:
    """Return the weekdays, from Monday, and the quarter hours that the training rows tell of."""
    seen = days[~np.isnan(days)]
    found = {"weekday": _weekday(seen), "time of day": np.floor(seen % 1 * _QUARTERS)}
    return {part: np.unique(found[part]).astype(int).tolist() for part in parts if part in found}


def is_unseen(days: np.ndarray, part: str, seen: list[int]) -> np.ndarray:
    """Return which dates are of no weekday seen, or more than a tenth of a day from every time."""
    known = np.nan_to_num(days)
    if part == "weekday":
        is_strange = ~np.isin(_weekday(known), seen)
    else:
        apart = np.abs((known % 1)[:, None] * _QUARTERS - (np.asarray(seen) + 0.5))
        apart = np.minimum(apart, _QUARTERS - apart)
        is_strange = apart.min(axis=1) > _QUARTERS / 10 + 0.5
    return is_strange & ~np.isnan(days)


def part_names(part: str) -> list[str]:
    """Return the names of the features that a part becomes."""
    return list(_WEEKDAYS) if part == "weekday" else [f"{part} (cos)", f"{part} (sin)"]


def part_features(days: np.ndarray, part: str) -> list[np.ndarray]:
    """Return the features of a part, each (n,); 0 where the date is missing."""
    known = np.nan_to_num(days)
    if part == "weekday":
        features = [_weekday(known) == number for number in range(7)]
    else:
        turns = known / _DAYS_A_YEAR if part == "season" else known % 1
        features = [np.cos(2 * np.pi * turns), np.sin(2 * np.pi * turns)]
    return [np.where(np.isnan(days), 0.0, feature) for feature in features]


def written(days: float, *, with_time: bool = False) -> str:
    """Return a day as 2020-04-03, with its time as 2020-04-03 18:00."""
    minutes = round(days * 1440) if with_time else int(np.floor(days)) * 1440
    day = str(date(1970, 1, 1) + timedelta(days=minutes // 1440))
    hours = f" {minutes // 60 % 24:02}:{minutes % 60:02}" if with_time else ""
    return day + hours


def weekday_of(days: float) -> str:
    """Return the name of a day.

    Examples
    --------
    >>> weekday_of(0.5)
    'Thursday'
    """
    return _WEEKDAYS[int(_weekday(np.array([days]))[0])]


def _weekday(days: np.ndarray) -> np.ndarray:
    return (np.floor(days).astype(int) + 3) % 7  # 1970 began on a Thursday
