"""CSV files: names and columns of text, nothing guessed."""

import csv
import math
from pathlib import Path
from typing import NamedTuple

import numpy as np

_MISSING = {"", "na", "n/a", "nan", "null", "none", "?"}


class Table(NamedTuple):
    """A CSV file's columns by name, as text, and where they are from."""

    columns: dict[str, list[str]]
    source: str

    @property
    def num_rows(self) -> int:
        """The number of rows below the header."""
        return len(next(iter(self.columns.values())))


def read_table(path: Path) -> Table:
    """Read a CSV file with a header; fields are separated by commas, semicolons or tabs."""
    if not path.is_file():
        raise ValueError(f"there is no file {path}; check the name.")
    try:
        text = path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError:
        raise ValueError(f"{path} is not a text file in UTF-8; save it as a CSV file.") from None
    lines = [line for line in text.splitlines() if line.strip()]
    if len(lines) < 2:
        raise ValueError(f"{path} needs a header and at least one row below it.")
    separator = max(",;\t", key=lines[0].count)
    rows = list(csv.reader(lines, delimiter=separator))
    names = [name.strip() for name in rows[0]]
    repeated = sorted({name for name in names if names.count(name) > 1})
    if repeated:
        raise ValueError(f"{path} has more than one column {repeated[0]!r}; rename one of them.")
    for number, row in enumerate(rows[1:], start=2):
        if len(row) != len(names):
            raise ValueError(
                f"row {number} of {path} has {len(row)} fields, but the header has {len(names)}; "
                "mend that row."
            )
    columns = zip(*rows[1:], strict=True)
    return Table(
        {n: [v.strip() for v in column] for n, column in zip(names, columns, strict=True)},
        str(path),
    )


def is_missing(values: list[str]) -> np.ndarray:
    """Return which fields are empty or say that they are missing: NA, null, ?, ..."""
    return np.array([value.lower() in _MISSING for value in values])


def as_numbers(values: list[str]) -> np.ndarray | None:
    """Return the fields as numbers, missing ones as NaN; None if one of them is no number."""
    numbers = np.full(len(values), np.nan)
    missing = is_missing(values)
    for i, value in enumerate(values):
        if not missing[i]:
            try:
                numbers[i] = float(value)
            except ValueError:
                return None
            if not math.isfinite(numbers[i]):
                return None
    return numbers
