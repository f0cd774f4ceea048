"""CSV files: names and columns of text."""

import csv
import difflib
import io
import itertools
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from jaxbnn.cli.fields import (
    as_numbers,
    is_missing,
    no_numbers,
    perhaps_thousands,
    with_decimal_points,
)

SEPARATORS = ",;\t|"
_UNNAMED = re.compile(r"(Unnamed: \d+)?")  # pandas gives such names to columns without one
_BLANK_LINES = re.compile(r"\A\s*[\r\n]")
_AS_UTF8 = "save it in the spreadsheet program as 'CSV UTF-8'"
_MOST_NAMES = 20


class Table(NamedTuple):
    """A CSV file's columns by name, as text, where they are from, and how it was written.

    Decimals have a point in `columns`; `as_written` are the columns that had commas.
    """

    columns: dict[str, list[str]]
    source: str
    separator: str = ","
    decimal: str = "."
    notes: tuple[str, ...] = ()
    has_header: bool = True
    as_written: Mapping[str, list[str]] = MappingProxyType({})

    @property
    def num_rows(self) -> int:
        """The number of rows below the header."""
        return len(next(iter(self.columns.values())))

    def column(self, name: str) -> str:
        """Return the name of the column that is meant.

        Without a header that is a column's number, from 1 on, or what its first field holds.

        Raises
        ------
        ValueError
            If there is no such column, or more than one.
        """
        if name in self.columns:
            return name
        if self.has_header:
            raise ValueError(self.missing_column(name))
        first = {known: values[0] for known, values in self.columns.items()}
        meant = [known for known in first if known == f"column {name}"]
        meant += [
            known
            for known, value in first.items()
            if value in (name, name.replace(",", ".")) and known not in meant
        ]
        if len(meant) > 1:
            raise ValueError(
                f"{self.source} has no header, and {name} may be any of {', '.join(meant)}: write "
                f"{meant[0]!r}, say."
            )
        if not meant:
            raise ValueError(
                f"{self.source} has no header, and no column is meant by {name!r}: give its "
                f"number, 1 to {len(first)}."
            )
        return meant[0]

    def missing_column(self, name: str) -> str:
        """Return a sentence that says that a column is not here, and why that may be."""
        said = f"{self.source} has no column {name!r}"
        names = list(self.columns)
        if len(names) == 1:
            return (
                f"{said}, but only one, {names[0]!r}; if that is more than one, say by --separator "
                "what stands between them."
            )
        if not self.has_header:
            return f"{said}, for it has no header: its columns are {names[0]!r} to {names[-1]!r}."
        if not no_numbers(names):
            return f"{said}: its first line holds numbers; put the names of the columns above it."
        lower = {known.lower(): known for known in names}
        like = difflib.get_close_matches(name.lower(), lower, 1)
        if like:
            return f"{said}; is it {lower[like[0]]!r}?"
        more = ", ..." if len(names) > _MOST_NAMES else ""
        return f"{said}; its columns are {', '.join(names[:_MOST_NAMES])}{more}."


def read_table(
    path: Path,
    separator: str | None = None,
    decimal: str | None = None,
    *,
    is_headerless: bool = False,
    known: Collection[str] = (),
    dropped: Collection[str] = (),
) -> Table:
    """Read a CSV file.

    Fields are separated by commas, semicolons, tabs or bars, whichever makes most of the header;
    decimals have points or commas. Columns without a name are left out where they are empty or
    hold a different whole number in each row, as row numbers do. Where the first line holds
    numbers, and otherwise only what stands below it too, it is a row and no header, and columns are
    called "column 1", "column 2", ...; but numbers that count up by one, and years that rise and do
    not come again below, are names.

    Of rows to predict more is known. If `is_headerless`, as they are when the fit's file was, only
    "column 1", ... are names. `known` are the columns that the fit used: a line that holds one of
    them is the header, the mark that makes most of them separates, and none of them is left out.
    How decimals are written is asked of these alone, or of all that are not `dropped`.

    Raises
    ------
    ValueError
        No such file, another encoding than UTF-8, no rows, lines with more or fewer fields than
        the header, columns of the same name or none, decimals that could mean two things.
    """
    text = _read_text(path)
    if separator is None:
        separator = _separator(text, known)
    records = _records(text, separator, path)
    if len(records) < 2 - is_headerless:
        what = "at least one row" if is_headerless else "a header and at least one row below it"
        raise ValueError(f"{path} needs {what}.")
    names = [name.strip() for name in records[0][1]]
    if is_headerless:
        has_header = all(name.startswith("column ") for name in names)
    else:
        rows_below = [fields for _, fields in records[1:]]
        has_header = not set(names).isdisjoint(known) or _is_header(names, rows_below)
    _check_widths(records, path, separator, "header" if has_header else "first line")
    rows = records[1:] if has_header else records
    columns = [[f.strip() for f in c] for c in zip(*(r for _, r in rows), strict=True)]
    if not has_header:
        names = [f"column {number}" for number in range(1, len(names) + 1)]
    named, notes = _named(names, columns, path, known)
    unused = set(dropped) | (named.keys() - set(known) if known else set())
    if not has_header:
        notes.append(f"No header: the first line is a row; columns are 1 to {len(names)}.")
        unused |= {f"column {number}" for number in dropped}
    elif not known and as_numbers(names) is not None:
        notes.append(f"The first line, {', '.join(names[:_MOST_NAMES])}, names the columns.")
    if separator == ";" and decimal is None:  # as where commas are decimal, and points may be none
        notes += perhaps_thousands({n: named[n] for n in named if n not in unused})
    plain, decimal = with_decimal_points(named, decimal, str(path), unused)
    if decimal == ",":
        notes.append("Decimal commas were read as such.")
    as_written = {name: values for name, values in named.items() if values != plain[name]}
    return Table(plain, str(path), separator, decimal, tuple(notes), has_header, as_written)


def take(table: Table, rows: np.ndarray) -> Table:
    """Return some rows of a table."""

    def taken(columns: Mapping[str, list[str]]) -> dict[str, list[str]]:
        return {name: [values[i] for i in rows] for name, values in columns.items()}

    return table._replace(columns=taken(table.columns), as_written=taken(table.as_written))


def _read_text(path: Path) -> str:
    if not path.is_file():
        raise ValueError(f"there is no file {path}; check the name.")
    raw = path.read_bytes()
    if raw.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise ValueError(
            f"{path} is in UTF-16, not UTF-8; {_AS_UTF8}, or run "
            f"`iconv -f UTF-16 -t UTF-8 {path.name} > new.csv`."
        )
    if raw.startswith(b"PK\x03\x04") or b"\0" in raw:
        raise ValueError(f"{path} is not a text file, as a CSV file is; {_AS_UTF8}.")
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise ValueError(
            f"line {line} of {path} is not in UTF-8, but probably in Latin-1 or Windows-1252; "
            f"{_AS_UTF8}, or run `iconv -f WINDOWS-1252 -t UTF-8 {path.name} > new.csv`."
        ) from None


def _records(text: str, separator: str, path: Path) -> list[tuple[int, list[str]]]:
    """Return the lines that are not blank, as fields, each with the number of its first line.

    In a file of one column a blank line above others is a row whose field is empty, and so is a
    line that holds quotes alone, wherever it stands.
    """
    read: list[str] = []  # the lines of the record at hand
    reader = _strict_reader(_noted(io.StringIO(text, newline=""), read), separator)
    records, before, is_in_quotes = [], 0, []
    try:
        for fields in reader:
            records.append((before + 1, fields or [""]))
            is_in_quotes.append(any('"' in line for line in read))
            read.clear()
            before = reader.line_num
    except csv.Error as error:
        raise ValueError(
            f"{path} cannot be read from line {before + 1} on ({error}); look for an open quote, "
            "and write one that belongs to the text twice, in a field that stands in quotes: "
            '"5"" pipe".'
        ) from None
    is_blank = [len(fields) == 1 and not fields[0].strip() for _, fields in records]
    there = np.flatnonzero(~np.array(is_blank, bool))
    if all(len(fields) == 1 for _, fields in records):
        there = np.flatnonzero(~np.array(is_blank, bool) | np.array(is_in_quotes, bool))
        return records[there[0] : there[-1] + 1] if len(there) else []
    return [records[i] for i in there]


def _noted(lines: Iterable[str], read: list[str]) -> Iterator[str]:
    """Yield lines, and add each to `read`."""
    for line in lines:
        read.append(line)
        yield line


def _strict_reader(lines: Iterable[str], separator: str) -> Any:
    """Read fields; strictly, since an open quote takes all that follows it into one of them."""
    return csv.reader(lines, delimiter=separator, skipinitialspace=True, strict=True)


def _check_widths(
    records: list[tuple[int, list[str]]], path: Path, separator: str, first: str
) -> None:
    """Refuse lines with more or fewer fields than the first, which may be a title."""
    width, widths = len(records[0][1]), {len(fields) for _, fields in records[1:]}
    for line, fields in records[1:]:
        if len(fields) != width:
            is_more = len(fields) > width
            commas = " (a decimal comma needs quotes)" if separator == "," and is_more else ""
            is_title = is_more and len(widths) == 1
            title = ", or remove the first line if it is a title" if is_title else ""
            number = "one field" if len(fields) == 1 else f"{len(fields)} fields"
            raise ValueError(
                f"line {line} of {path} has {number}, but the {first} has {width}; mend that line"
                f"{commas}{title}."
            )


def _separator(text: str, known: Collection[str]) -> str:
    """Return the mark that makes most of the first line; of numbers, 0,5;1,5, not a comma.

    One that makes as many fields of the next line goes before those that do not, and of several the
    one that makes numbers of most. Of rows to predict it is the one that makes most of the names
    that are known.
    """
    text = _BLANK_LINES.sub("", text)
    whole = io.StringIO(text, newline="")
    fields = {mark: _first_record(whole, mark) for mark in SEPARATORS}
    num_known = {mark: len(set(known).intersection(fields[mark])) for mark in SEPARATORS}
    if any(num_known.values()):
        return max(SEPARATORS, key=lambda mark: num_known[mark])
    for mark in SEPARATORS[1:]:
        plain = [field.replace(",", ".") for field in fields[mark]]
        if len(plain) > 1 and as_numbers(plain) is not None:
            return mark
    below = {mark: _second_record(text, mark, len(fields[mark])) for mark in SEPARATORS}
    even = [mark for mark in SEPARATORS if below[mark]]
    return max(even or SEPARATORS, key=lambda mark: (_share(below[mark]), len(fields[mark])))


def _second_record(text: str, mark: str, width: int) -> list[str]:
    """Return the fields of the second line that is not blank, if they are `width`, two or more."""
    reader = _strict_reader(io.StringIO(text, newline=""), mark)
    try:
        filled = (fields for fields in reader if any(field.strip() for field in fields))
        below = list(itertools.islice(filled, 1, 2))
    except csv.Error:  # a quote within a field, as where the mark is another
        return []
    return below[0] if below and len(below[0]) == width > 1 else []


def _share(fields: list[str]) -> float:
    """Return the share of numbers among fields, with decimal commas or points."""
    plain = [field.strip().replace(",", ".") for field in fields]
    return sum(as_numbers([field]) is not None for field in plain) / max(len(plain), 1)


def _first_record(whole: io.StringIO, mark: str) -> list[str]:
    """Return the fields of the first line, or lines where one is in quotes."""
    whole.seek(0)
    reader = csv.reader(whole, delimiter=mark, skipinitialspace=True)
    try:
        return [field.strip() for field in next(reader, [])]
    except csv.Error:  # a quote that stays open
        whole.seek(0)
        return [field.strip() for field in whole.readline().split(mark)]


def _is_header(first: list[str], rows: list[list[str]]) -> bool:
    """Return whether the first line names the columns; see `read_table`."""
    plain = [field.replace(",", ".") for field in first]
    numbers = as_numbers([p for p in plain if p and as_numbers([p]) is not None])
    if numbers is None or not len(numbers):
        return True
    if len(numbers) == len(first) > 1:
        gaps = np.diff(numbers)
        are_years = (
            (numbers == np.round(numbers)).all() and min(numbers) >= 1500 and max(numbers) <= 2200
        )
        come_again = any(set(row) & set(first) for row in rows)
        if (gaps == 1).all() or (are_years and (gaps > 0).all() and not come_again):
            return True
    texts = [i for i, field in enumerate(plain) if as_numbers([field]) is None]
    return any(all(len(row) <= i or row[i].strip() != first[i] for row in rows) for i in texts)


def _named(
    names: list[str], columns: list[list[str]], path: Path, known: Collection[str]
) -> tuple[dict[str, list[str]], list[str]]:
    """Return the columns by name, and which ones without a name were left out, and why.

    Those whose names are `known` stay.
    """
    named: dict[str, list[str]] = {}
    notes = []
    for number, (name, values) in enumerate(zip(names, columns, strict=True), start=1):
        if _UNNAMED.fullmatch(name) and name not in known:
            if is_missing(values).all():
                notes.append(f"Column {number} has neither a name nor values: left out.")
                continue
            if _numbers_rows(values):
                notes.append(
                    f"Column {number} has no name and holds a different whole number in each row, "
                    "as row numbers do: left out; give it a name to keep it."
                )
                continue
            if not name:
                raise ValueError(f"column {number} of {path} has no name; give it one.")
        if name in named:
            raise ValueError(f"{path} has more than one column {name!r}; rename one of them.")
        named[name] = values
    if not named:
        raise ValueError(f"{path} has no column with a name; give them names in the first line.")
    return named, notes


def _numbers_rows(values: list[str]) -> bool:
    numbers = as_numbers(values)
    return (
        numbers is not None
        and bool((numbers == np.round(numbers)).all())  # false where one is missing
        and len(set(numbers.tolist())) == len(numbers)
    )
