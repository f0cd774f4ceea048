"""How one column of text becomes numbers, learnt from the training rows."""

import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np

from jaxbnn.cli.dates import (
    Order,
    as_days,
    dates_of_another_kind,
    find_order,
    is_unseen,
    look_like_dates,
    part_features,
    part_names,
    parts_known,
    parts_seen,
    weekday_of,
    with_and_without_points,
    with_and_without_zone,
    written,
    written_in_two_ways,
)
from jaxbnn.cli.fields import (
    as_numbers,
    how_to_mend,
    is_missing,
    no_numbers,
    says_none,
    with_points,
)
from jaxbnn.cli.hints import (
    far_value,
    like_dates,
    odd_number,
    spelled_twice,
    strange_among_numbers,
)
from jaxbnn.numerics.spread import mean_and_sd, standardised

_MOST_CATEGORIES = 20
_MISSING_CATEGORY, _NONE = "(missing)", "none"
_MOST_NAMED = 5
_LEADING_ZERO = re.compile(r"0\d+")


@dataclass(frozen=True)
class Column:
    """How a column becomes numbers.

    `categories` is None but for text, `date` but for dates, whose numbers are days since 1970.
    `has_zone` is whether dates have a time zone; None for fits of before, whose parts are of UTC.
    `has_points` is whether dates with the year last have points; None where none were seen.
    `parts_seen` holds the weekdays and times of day of the training rows, none in fits of before.
    """

    name: str
    mean: float = 0.0
    sd: float = 1.0
    has_missing: bool = False
    categories: list[str] | None = None
    low: float | None = None
    high: float | None = None
    date: Order | None = None
    date_parts: list[str] = field(default_factory=list)
    has_zone: bool | None = None
    parts_seen: dict[str, list[int]] = field(default_factory=dict)
    has_points: bool | None = None

    def is_outside(self, values: list[str]) -> np.ndarray:
        """Return which values lie outside the training rows' by more than a tenth of their range.

        Of dates, all before the first and after the last, and those of a weekday or a time of day
        that did not occur; of text, what did not occur; of fits that wrote no range, none.
        """
        if self.categories is not None:
            known = set(self.categories)
            return np.array([value not in known for value in self.words(values)], bool)
        numbers = as_numbers(values) if self.date is None else self._days(values)
        if not isinstance(numbers, np.ndarray) or self.low is None or self.high is None:
            return np.zeros(len(values), bool)
        if self.date is not None:
            numbers = self._as_in_fit(numbers)
        margin = (self.high - self.low) / 10 if self.date is None else 0.0
        is_outside = (numbers < self.low - margin) | (numbers > self.high + margin)
        return is_outside | self._is_of_unseen_part(values)

    def _is_of_unseen_part(self, values: list[str]) -> np.ndarray:
        """Return which dates are of a weekday or at a time of day that did not occur."""
        found = np.zeros(len(values), bool)
        days = self._days(values, is_local=bool(self.has_zone)) if self.date else ""
        if not isinstance(days, str):
            for part, seen in self.parts_seen.items():
                found |= is_unseen(days, part, seen)
        return found

    def words_outside(self, values: list[str]) -> list[str]:
        """Return sentences on words that did not occur in the fit, and on what is missing."""
        words = self.words(values)
        strange = sorted(set(words) - set(self.categories or ()))
        named = [repr(word) for word in strange if word != _MISSING_CATEGORY]
        notes = []
        if named:
            notes.append(
                f"{self.name}: {_named(named)} did not occur in the fit; such rows are of no "
                "category."
            )
        if _MISSING_CATEGORY in strange:
            count = words.count(_MISSING_CATEGORY)
            notes.append(f"{self.name}: {count} missing, of no category; none was in the fit.")
        return notes

    def dates_outside(self, values: list[str]) -> list[str]:
        """Return sentences on dates beyond the fit's, and on weekdays and times that it lacked."""
        days = self._days(values)
        if isinstance(days, str) or self.low is None or self.high is None:
            return []
        seen = self._as_in_fit(days)
        found = days[(seen < self.low) | (seen > self.high)]
        notes = []
        if len(found):
            has_times = bool((found % 1).any() or self.low % 1 or self.high % 1)
            ends = [
                written(day, with_time=has_times)
                for day in (found.min(), found.max(), self.low, self.high)
            ]
            which = ends[0] if ends[0] == ends[1] else f"{ends[0]} to {ends[1]}"
            notes.append(
                f"{self.name}: {len(found)} of {len(values)} dates, {which}, "
                f"{'lies' if len(found) == 1 else 'lie'} outside the fit's, {ends[2]} to {ends[3]}."
            )
        is_strange = self._is_of_unseen_part(values)
        if is_strange.any():
            local = self._days(values, is_local=bool(self.has_zone))
            assert not isinstance(local, str)
            first = local[is_strange][0]
            parts = " or ".join(
                {"weekday": "weekday", "time of day": "time"}[p] for p in self.parts_seen
            )
            notes.append(
                f"{self.name}: {is_strange.sum()} of {len(values)} dates are of a {parts} that "
                f"the fit lacked, such as {weekday_of(first)}, {written(first, with_time=True)}."
            )
        return notes

    def _as_in_fit(self, days: np.ndarray) -> np.ndarray:
        """Return days without the time where the fit's dates had none: its last lasts all day."""
        has_times = "time of day" in self.date_parts or bool((self.low or 0) % 1)
        return days if has_times else np.floor(days)

    def encode(self, values: list[str], source: str) -> list[np.ndarray]:
        """Return the features, each (n,); a category that the fit did not see is 0 in all.

        Raises
        ------
        ValueError
            If a value is no number where all were, or no date; if its date has a time zone where
            none had one, or none where all had.
        """
        if self.categories is not None:
            found = np.array(self.words(values), dtype=object)
            return [found == category for category in self.categories]
        numbers = as_numbers(values) if self.date is None else self._days(values)
        if numbers is None or isinstance(numbers, str):
            # 80,25 among points is read with a point; 1.234,5 is a number in no way.
            strange = numbers or (no_numbers(with_points(values)) or no_numbers(values))[0]
            kind = "numbers" if self.date is None else f"dates, written {self.date},"
            raise ValueError(
                f"column {self.name!r} of {source} holds {strange!r}, but was all {kind} in the "
                f"fit; {how_to_mend(strange) if self.date is None else 'mend it'}."
            )
        missing = np.isnan(numbers)
        # Where the mean is the least there is one value: of another the fit knows nothing.
        is_one = self.mean == self.low
        scaled = 0.0 if is_one else standardised(numbers, self.mean, self.sd)
        parts = [np.where(missing, 0.0, scaled)]
        parts += [missing] if self.has_missing else []
        if self.date is None:
            return parts
        self._check_points(values, source)
        self._check_zones(values, source)
        days = self._days(values, is_local=True) if self.has_zone else numbers
        assert isinstance(days, np.ndarray)
        return parts + [f for part in self.date_parts for f in part_features(days, part)]

    def words(self, values: list[str]) -> list[str]:
        """Return text with a category for what is missing, which "none" is unless it is another."""
        return with_missing(values, none_is_word=_NONE in (self.categories or ()))

    def _days(self, values: list[str], *, is_local: bool = False) -> np.ndarray | str:
        """Return dates as days, in the fit's order; with the year at the other end, in their own.

        Days and months are never exchanged: a few rows, or one slip, tell of their order wrongly.
        """
        assert self.date is not None
        order = find_order(values)
        year_first = "year-month-day"
        is_other = (order == year_first) != (self.date == year_first)
        own = order if order and order != "open" and is_other else self.date
        return as_days(values, own, is_local=is_local)

    def _check_points(self, values: list[str], source: str) -> None:
        """Raise where dates are written with another mark, which says another order of its own."""
        with_points, without = with_and_without_points(values)
        strange = without if self.has_points else with_points
        if self.has_points is not None and strange is not None:
            marks = "points" if self.has_points else "strokes"
            raise ValueError(
                f"column {self.name!r} of {source} holds {strange!r}, but the fit's dates had "
                f"{marks}, {self.date}; write it as there, or as 2020-12-31."
            )

    def _check_zones(self, values: list[str], source: str) -> None:
        with_zone, without = with_and_without_zone(values)
        strange = without if self.has_zone else with_zone
        if self.has_zone is not None and strange is not None:
            has, had = ("no", "all had one") if self.has_zone else ("a", "none had one")
            raise ValueError(
                f"column {self.name!r} of {source} holds {strange!r}, which has {has} time zone, "
                f"but {had} in the fit; write it as there."
            )

    @property
    def features(self) -> list[str]:
        """Names of the features that it becomes."""
        if self.categories is not None:
            return [f"{self.name}={category}" for category in self.categories]
        own = [self.name] + ([f"{self.name} is missing"] if self.has_missing else [])
        return own + [f"{self.name}: {n}" for part in self.date_parts for n in part_names(part)]


def learn_column(
    name: str, values: list[str], everywhere: list[str]
) -> tuple[Column | None, str | None]:
    """Return a column's encoding, or None where it is left out, and what to tell of it.

    `values` are those of the training rows, `everywhere` those of all.

    Raises
    ------
    ValueError
        If the column holds something among its numbers or dates, dates that could be read in two
        ways, or text of too many kinds.
    """
    if is_missing(values).all():
        return None, f"{name}: empty; left out."
    order = find_order(everywhere)
    if order is not None:
        return _learn_dates(name, values, everywhere, order)
    if (pair := written_in_two_ways(everywhere)) is not None:
        raise ValueError(_in_two_ways(name, *pair))
    if as_numbers(everywhere) is None:
        # Beside fields that are missing in another way, none is a word of its own.
        none_is_word = bool((is_missing(everywhere) & ~says_none(everywhere)).any())
        found = with_missing(values, none_is_word=none_is_word)
        categories = sorted(set(found))
        strange = look_like_dates(everywhere)
        if len(categories) > _MOST_CATEGORIES and strange:
            raise ValueError(_among_dates(name, strange[0]))
        other = dates_of_another_kind(everywhere)
        if len(categories) > _MOST_CATEGORIES and other is not None:
            raise ValueError(
                f"column {name!r} holds {other!r}; write dates as 2020-12-31 and times as hours, "
                f"18.5, or leave the column out by --drop {name!r}."
            )
        slip = strange_among_numbers(everywhere)
        if len(categories) > _MOST_CATEGORIES and slip is not None:
            raise ValueError(
                f"column {name!r} holds {slip!r} among its numbers; {how_to_mend(slip)}, or leave "
                f"the column out by --drop {name!r}."
            )
        if len(categories) > _MOST_CATEGORIES:
            raise ValueError(
                f"column {name!r} holds text with {len(categories)} different values "
                f"({categories[0]!r}, {categories[1]!r}, ...), more than {_MOST_CATEGORIES}; leave "
                f"it out by --drop {name!r}, or group its values."
            )
        if len(categories) == 1:
            return None, f"{name}: always {categories[0]}; left out."
        notes = [f"{name}: {len(categories)} categories."]
        of_dates = other and (
            f"{other!r} looks like a date or a time, but all are words; write dates as 2020-12-31 "
            "and times as hours, 18.5"
        )
        hints = (of_dates or odd_number(everywhere), spelled_twice(found))
        notes += [f"{name}: {hint}." for hint in hints if hint]
        unseen = set(with_missing(everywhere, none_is_word=none_is_word)) - set(found)
        if unseen:
            notes.append(f"{name}: no training row is {_named(sorted(unseen))}.")
        if none_is_word and _NONE in categories:
            notes.append(f"{name}: none is a category, apart from what is missing.")
        return Column(name, categories=categories), " ".join(notes)
    numbers = as_numbers(values)
    assert numbers is not None
    missing = np.isnan(numbers)
    mean, sd = map(float, mean_and_sd(numbers))
    low, high = float(np.nanmin(numbers)), float(np.nanmax(numbers))
    if sd == 0:
        # The mean of equal numbers is rounded: of ten times 0.3 it is less than 0.3.
        column = Column(name, low, 1.0, bool(missing.any()), low=low, high=high)
        return _of_one_value(column, f"{low:g}")
    notes = []
    every = as_numbers(everywhere)
    zero = next((v for v in everywhere if _LEADING_ZERO.fullmatch(v)), None)
    if zero is not None:
        notes.append(
            f"{name}: fields such as {zero} begin with 0, but are taken as numbers; write them as "
            f"words, v{zero}, if they are codes."
        )
    only = int(is_missing(everywhere).sum() - missing.sum())
    if only and not missing.any():
        notes.append(f"{name}: {only} missing, all held out, taken as the mean.")
    if every is not None and (np.diff(every) == 1).all():
        notes.append(
            f"{name}: counts the rows from {every[0]:.0f} on; if it tells no more than that, leave "
            f"it out by --drop {name!r}."
        )
    far = far_off(numbers, "{:g}".format)
    notes += [f"{name}: {far}."] if far else []
    if like_dates(numbers):
        notes.append(
            f"{name}: numbers such as {numbers[~missing][0]:.0f} look like dates, but are taken as "
            "numbers; write dates as 2020-12-31."
        )
    column = Column(name, mean, sd, bool(missing.any()), low=low, high=high)
    return column, " ".join(notes) or None


def _learn_dates(
    name: str, values: list[str], everywhere: list[str], order: Order | Literal["open"]
) -> tuple[Column | None, str | None]:
    if order == "open":
        shown = next(v for v in everywhere if v and find_order([v]) is not None)
        raise ValueError(
            f"column {name!r} holds dates such as {shown!r}, of which the day or the month may "
            f"come first; write them as 2020-12-31, or leave the column out by --drop {name!r}."
        )
    with_zone, without = with_and_without_zone(everywhere)
    if with_zone is not None and without is not None:
        raise ValueError(
            f"column {name!r} holds {with_zone!r} with a time zone and {without!r} without one; "
            f"write all of them alike, or leave the column out by --drop {name!r}."
        )
    with_points, strokes = with_and_without_points(everywhere)
    if with_points is not None and strokes is not None:
        raise ValueError(_in_two_ways(name, with_points, strokes))
    has_points = None if with_points is strokes else with_points is not None
    has_zone = with_zone is not None
    all_days = as_days(everywhere, order)
    if isinstance(all_days, str):
        raise ValueError(_among_dates(name, all_days))
    days = as_days(values, order)
    assert not isinstance(days, str)
    low, high = float(np.nanmin(days)), float(np.nanmax(days))
    missing = bool(np.isnan(days).any())
    dates = Column(
        name, low, 1.0, missing, low=low, high=high, date=order, has_zone=has_zone,
        has_points=has_points,
    )  # fmt: skip
    if low == high:
        return _of_one_value(dates, written(low))
    local = as_days(values, order, is_local=True) if has_zone else days
    assert not isinstance(local, str)
    parts = parts_known(local)
    mean, sd = float(np.nanmean(days)), float(np.nanstd(days))
    made = ", ".join(["days since the first", *parts])
    far = far_off(days, written)
    note = f"{name}: dates, written {order}, {written(low)} to {written(high)}; taken as {made}."
    note += f" {far}." if far else ""
    seen = parts_seen(local, parts)
    return replace(dates, mean=mean, sd=sd, date_parts=parts, parts_seen=seen), note


def _of_one_value(column: Column, shown: str) -> tuple[Column | None, str]:
    """Return a column of one value, which tells where it is missing; None where it never is."""
    if not column.has_missing:
        return None, f"{column.name}: always {shown}; left out."
    return column, f"{column.name}: always {shown} where it is given; taken as given or missing."


def far_off(numbers: np.ndarray, shown: Callable[[float], str]) -> str | None:
    """Return what to say of a number far from all others; None if there is none."""
    far = far_value(numbers)
    if far is None:
        return None
    return (
        f"{shown(far)}, in {np.sum(numbers == far)} of {len(numbers)} training rows, lies far from "
        "all others; if it means that the value is not known, leave the field empty"
    )


def _named(words: list[str]) -> str:
    more = f" and {len(words) - _MOST_NAMED} more" if len(words) > _MOST_NAMED else ""
    return ", ".join(words[:_MOST_NAMED]) + more


def _in_two_ways(name: str, one: str, other: str) -> str:
    return (
        f"column {name!r} writes its dates in more than one way, such as {one!r} and {other!r}; "
        f"write all of them as 2020-12-31, or leave the column out by --drop {name!r}."
    )


def _among_dates(name: str, value: str) -> str:
    return (
        f"column {name!r} holds {value!r} among its dates; mend it, or leave the column out by "
        f"--drop {name!r}."
    )


def with_missing(values: list[str], *, none_is_word: bool = False) -> list[str]:
    """Return text with a category for what is missing; "none" may be one of the words instead."""
    words = [_NONE if none else v for v, none in zip(values, says_none(values), strict=True)]
    missing = is_missing(words) & ~(says_none(words) & none_is_word)
    return [_MISSING_CATEGORY if m else v for v, m in zip(words, missing, strict=True)]
