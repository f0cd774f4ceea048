"""How one column of text becomes numbers, learnt from the training rows."""

from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from jaxbnn.cli.dates import (
    Order,
    as_days,
    find_order,
    look_like_dates,
    part_features,
    part_names,
    parts_known,
    written,
    written_in_two_ways,
)
from jaxbnn.cli.fields import (
    as_numbers,
    how_to_mend,
    is_missing,
    looks_like_number,
    no_numbers,
)
from jaxbnn.tabular.spread import mean_and_sd, standardised

_MOST_CATEGORIES = 20
_MISSING_CATEGORY = "(missing)"


@dataclass(frozen=True)
class Column:
    """How a column becomes numbers.

    `categories` is None but for text, `date` but for dates, whose numbers are days since 1970.
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

    def is_outside(self, values: list[str]) -> np.ndarray:
        """Return which values lie outside the training rows' by more than a tenth of their range.

        Of dates, all before the first and after the last; of text, those that did not occur; of
        fits that wrote no range, none.
        """
        if self.categories is not None:
            known = set(self.categories)
            return np.array([value not in known for value in with_missing(values)], bool)
        numbers = as_numbers(values) if self.date is None else self._days(values)
        if not isinstance(numbers, np.ndarray) or self.low is None or self.high is None:
            return np.zeros(len(values), bool)
        margin = (self.high - self.low) / 10 if self.date is None else 0.0
        return (numbers < self.low - margin) | (numbers > self.high + margin)

    def dates_outside(self, values: list[str]) -> list[str]:
        """Return a sentence on the dates before the first and after the last of the fit."""
        days = self._days(values)
        if isinstance(days, str) or self.low is None or self.high is None:
            return []
        seen = days[(days < self.low) | (days > self.high)]
        if not len(seen):
            return []
        return [
            f"{self.name}: {len(seen)} of {len(values)} dates, {written(seen.min())} to "
            f"{written(seen.max())}, lie outside the fit's, {written(self.low)} to "
            f"{written(self.high)}."
        ]

    def encode(self, values: list[str], source: str) -> list[np.ndarray]:
        """Return the features, each (n,); a category that the fit did not see is 0 in all.

        Raises
        ------
        ValueError
            If a value is no number where all were, or no date.
        """
        if self.categories is not None:
            found = np.array(with_missing(values), dtype=object)
            return [found == category for category in self.categories]
        numbers = as_numbers(values) if self.date is None else self._days(values)
        if numbers is None or isinstance(numbers, str):
            strange = numbers or no_numbers(values)[0]
            kind = "numbers" if self.date is None else f"dates, written {self.date},"
            raise ValueError(
                f"column {self.name!r} of {source} holds {strange!r}, but was all {kind} in the "
                f"fit; {how_to_mend(strange) if self.date is None else 'mend it'}."
            )
        missing = np.isnan(numbers)
        scaled = standardised(numbers, self.mean, self.sd)
        parts = [np.where(missing, 0.0, scaled)]
        parts += [missing] if self.has_missing else []
        return parts + [f for part in self.date_parts for f in part_features(numbers, part)]

    def _days(self, values: list[str]) -> np.ndarray | str:
        """Return dates as days, in the fit's order; with the year at the other end, in their own.

        Days and months are never exchanged: a few rows, or one slip, tell of their order wrongly.
        """
        assert self.date is not None
        order = find_order(values)
        year_first = "year-month-day"
        is_other = (order == year_first) != (self.date == year_first)
        return as_days(values, order if order and order != "open" and is_other else self.date)

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
        raise ValueError(
            f"column {name!r} writes its dates in more than one way, such as {pair[0]!r} and "
            f"{pair[1]!r}; write all of them as 2020-12-31, or leave the column out by "
            f"--drop {name!r}."
        )
    if as_numbers(everywhere) is None:
        found = with_missing(values)
        categories = sorted(set(found))
        strange = look_like_dates(everywhere)
        if len(categories) > _MOST_CATEGORIES and strange:
            raise ValueError(_among_dates(name, strange[0]))
        strange = no_numbers(everywhere)
        meant_numbers = len(strange) < len(everywhere) / 2 or looks_like_number(strange[0])
        if len(categories) > _MOST_CATEGORIES and meant_numbers:
            raise ValueError(
                f"column {name!r} holds {strange[0]!r} among its numbers; "
                f"{how_to_mend(strange[0])}, or leave the column out by --drop {name!r}."
            )
        if len(categories) > _MOST_CATEGORIES:
            raise ValueError(
                f"column {name!r} holds text with {len(categories)} different values "
                f"({categories[0]!r}, {categories[1]!r}, ...), more than {_MOST_CATEGORIES}; leave "
                f"it out by --drop {name!r}, or group its values."
            )
        if len(categories) == 1:
            return None, f"{name}: always {categories[0]}; left out."
        return Column(name, categories=categories), f"{name}: {len(categories)} categories."
    numbers = as_numbers(values)
    assert numbers is not None
    missing = np.isnan(numbers)
    mean, sd = map(float, mean_and_sd(numbers))
    if sd == 0:
        column = Column(name, mean, 1.0, bool(missing.any()), low=mean, high=mean)
        return _of_one_value(column, f"{mean:g}")
    note = None
    every = as_numbers(everywhere)
    if every is not None and every[0] in (0, 1) and (np.diff(every) == 1).all():
        note = (
            f"{name}: counts the rows from {every[0]:.0f} on; if it tells no more than that, leave "
            f"it out by --drop {name}."
        )
    low, high = float(np.nanmin(numbers)), float(np.nanmax(numbers))
    return Column(name, mean, sd, bool(missing.any()), low=low, high=high), note


def _learn_dates(
    name: str, values: list[str], everywhere: list[str], order: Order | Literal["open"]
) -> tuple[Column | None, str | None]:
    if order == "open":
        shown = next(v for v in everywhere if v and find_order([v]) is not None)
        raise ValueError(
            f"column {name!r} holds dates such as {shown!r}, of which the day or the month may "
            f"come first; write them as 2020-12-31, or leave the column out by --drop {name!r}."
        )
    all_days = as_days(everywhere, order)
    if isinstance(all_days, str):
        raise ValueError(_among_dates(name, all_days))
    days = as_days(values, order)
    assert not isinstance(days, str)
    low, high = float(np.nanmin(days)), float(np.nanmax(days))
    missing = bool(np.isnan(days).any())
    if low == high:
        return _of_one_value(Column(name, low, 1.0, missing, None, low, high, order), written(low))
    parts = parts_known(days)
    mean, sd = float(np.nanmean(days)), float(np.nanstd(days))
    column = Column(name, mean, sd, missing, None, low, high, order, parts)
    made = ", ".join(["days since the first", *parts])
    return column, (
        f"{name}: dates, written {order}, {written(low)} to {written(high)}; taken as {made}."
    )


def _of_one_value(column: Column, shown: str) -> tuple[Column | None, str]:
    """Return a column of one value, which tells where it is missing; None where it never is."""
    if not column.has_missing:
        return None, f"{column.name}: always {shown}; left out."
    return column, f"{column.name}: always {shown} where it is given; taken as given or missing."


def _among_dates(name: str, value: str) -> str:
    return (
        f"column {name!r} holds {value!r} among its dates; mend it, or leave the column out by "
        f"--drop {name!r}."
    )


def with_missing(values: list[str]) -> list[str]:
    """Return text with a category for what is missing."""
    missing = is_missing(values)
    return [_MISSING_CATEGORY if m else v for v, m in zip(values, missing, strict=True)]
