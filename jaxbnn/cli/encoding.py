"""From columns to arrays and back: scales, categories and missing values, learnt in training.

Numbers are standardised; a missing one becomes the mean, and a column of its own says where. Text
becomes one column a category, and missing text a category; dates become days and what else is known
of them. Constant columns are left out.
"""

from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from jaxbnn.cli.columns import Column, far_off, learn_column
from jaxbnn.cli.dates import find_order
from jaxbnn.cli.fields import (
    as_numbers,
    how_to_mend,
    is_missing,
    no_numbers,
    one_spelling,
    says_none,
    with_commas,
    with_points,
)
from jaxbnn.cli.hints import spelled_twice, strange_among_numbers
from jaxbnn.cli.kinds import Kind
from jaxbnn.cli.table import Table, take
from jaxbnn.numerics.spread import mean_and_sd
from jaxbnn.tabular.kinds import CLASSES, COUNTS

_MOST_CLASSES = 50
_FEW_NUMBERS = 10


@dataclass(frozen=True)
class Encoding:
    """How a table becomes x and y.

    `classes` is None where the target is a number, `width` the columns of a file without a header,
    and `constant` has the one value of each column that was left out because of it.
    """

    target: str
    columns: list[Column]
    classes: list[str] | None
    y_mean: float
    y_sd: float
    width: int = 0
    constant: dict[str, str] = field(default_factory=dict)

    @property
    def features(self) -> list[str]:
        """Names of the columns of x."""
        return [feature for column in self.columns for feature in column.features]

    def in_units(self, values: Any) -> np.ndarray:
        """Return standardised numbers in the target's own units, in double precision."""
        return np.asarray(values, float) * self.y_sd + self.y_mean

    def to_dict(self) -> dict[str, Any]:
        """Return what JSON can hold."""
        return asdict(self)

    @staticmethod
    def from_dict(values: dict[str, Any]) -> "Encoding":
        """Return what `to_dict` was made from."""
        return Encoding(**{**values, "columns": [Column(**c) for c in values["columns"]]})

    def inputs(self, table: Table) -> np.ndarray:
        """Return x, (n, features); a category that the fit did not see is 0 in every column."""
        parts: list[np.ndarray] = []
        for column in self.columns:
            if column.name not in table.columns:
                raise ValueError(
                    f"the fit used {column.name!r}: {table.missing_column(column.name)}"
                )
            parts += column.encode(fields_of(column, table), table.source)
        return np.stack([np.asarray(part, np.float32) for part in parts], axis=1)

    def remarks(self, table: Table) -> list[str]:
        """Return what in a new table the fit had not seen."""
        notes = []
        for column in self.columns:
            values = fields_of(column, table)
            if column.categories is not None:
                notes += column.words_outside(values)
                continue
            if column.date is not None:
                notes += column.dates_outside(values)
            if not column.has_missing and is_missing(values).any():
                notes.append(
                    f"{column.name}: {is_missing(values).sum()} missing, taken as the mean; none "
                    "was in the fit."
                )
        return notes

    def targets(self, table: Table) -> np.ndarray:
        """Return y of shape (n,): standardised numbers, or numbers of classes."""
        values = table.columns[self.target]
        if self.classes is not None:
            number = {name: i for i, name in enumerate(self.classes)}
            # A file whose labels have decimal commas was read with points.
            number = dict(zip(with_points(self.classes), number.values(), strict=True)) | number
            return np.array([number[value] for value in values], np.int32)
        numbers = as_numbers(values)
        assert numbers is not None
        return ((numbers - self.y_mean) / self.y_sd).astype(np.float32)


def fields_of(column: Column, table: Table) -> list[str]:
    """Return a column's fields as its encoding knows them.

    Among other words 1,5 is a category. Where a file has no other one, it was read as a number.
    """
    fields = table.columns[column.name]
    written = table.as_written.get(column.name, fields)
    if column.categories is None or written == fields:
        return fields
    known = set(column.categories)
    return [w if w in known else f for w, f in zip(written, fields, strict=True)]


def usable_rows(table: Table, target: str, drop: list[str]) -> tuple[Table, list[str]]:
    """Return the table without dropped columns and rows of unknown target, and what was done."""
    if target in drop:
        raise ValueError(f"column {target!r} cannot be both the target and dropped.")
    values = table.columns[target]
    notes = list(table.notes)
    is_known = ~is_missing(values)
    if as_numbers(values) is None and says_none(values).any():
        is_known |= says_none(values)
        notes.append(f"{target}: none is one of its classes (leave the field empty if not known).")
    known = np.flatnonzero(is_known)
    if len(known) < table.num_rows:
        notes.append(f"Rows without {target}, left out: {table.num_rows - len(known)}.")
    if len(known) < 10:
        raise ValueError(
            f"{table.source} has {len(known)} rows with a known {target}, too few to learn from "
            "and be tested on; 10 is the least."
        )
    kept = {name: values for name, values in table.columns.items() if name not in drop}
    kept[target] = one_spelling(values)
    spellings = sorted({values[row] for row in known})
    if len(spellings) > 1 and len({kept[target][row] for row in known}) == 1:
        raise ValueError(
            f"the target {target!r} is one number in every row, written {spellings[0]} and "
            f"{spellings[1]}; if these name classes, write them as words, v{spellings[0]}."
        )
    return take(table._replace(columns=kept), known), notes


def learn_encoding(
    table: Table, training: Table, target: str, task: str, kind: Kind
) -> tuple[Encoding, list[str]]:
    """Return the encoding: classes from the whole table, all else from the training part."""
    notes: list[str] = []
    numbers = as_numbers(table.columns[target])
    distinct = sorted(set(table.columns[target]))
    if len(distinct) < 2:
        raise ValueError(f"the target {target!r} is {distinct[0]} in every row; nothing to learn.")
    is_class = kind.likelihood in CLASSES
    if task != "classification" and find_order(table.columns[target]) is not None:
        raise ValueError(
            f"the target {target!r} holds dates such as {distinct[-1]!r}; give a column of numbers "
            "instead, of days from a day of yours, say."
        )
    if not is_class and numbers is None:
        strange = no_numbers(table.columns[target])
        raise ValueError(
            f"the target {target!r} holds {strange[0]!r}, which is no number; leave out "
            f"{'--task regression' if task == 'regression' else f'--likelihood {kind.likelihood}'} "
            "to predict classes."
        )
    if is_class and len(distinct) > _MOST_CLASSES:
        slip = strange_among_numbers(table.columns[target])
        if slip is not None:
            raise ValueError(
                f"the target {target!r} holds {slip!r} among its numbers; {how_to_mend(slip)}."
            )
        raise ValueError(
            f"the target {target!r} has {len(distinct)} classes, more than {_MOST_CLASSES}; choose "
            "another target, or --task regression if it holds numbers."
        )
    if is_class:
        notes.append(f"{target}: {len(distinct)} classes.")
        hint = spelled_twice(distinct)
        notes += [f"{target}: {hint}."] if hint else []
        unseen = sorted(set(distinct) - set(training.columns[target]))
        if unseen:
            notes.append(f"{target}: no training row is of {', '.join(unseen)}.")
    elif len(distinct) <= min(_FEW_NUMBERS, table.num_rows // 2):
        taken = "counts" if kind.likelihood in COUNTS else "numbers"
        notes.append(
            f"{target}: {len(distinct)} different numbers, taken as {taken}; if they stand for "
            "classes, give --task classification."
        )
    columns: list[Column] = []
    gaps: list[str] = []
    constant: dict[str, str] = {}
    for name, values in training.columns.items():
        if name == target:
            continue
        column, note = learn_column(name, values, table.columns[name])
        notes += [note] if note else []
        columns += [column] if column else []
        if column is None and not is_missing(values).all():
            constant[name] = next(
                v for v, gone in zip(values, is_missing(values), strict=True) if not gone
            )
        if column and column.has_missing:
            rows = f"{training.num_rows}{'' if gaps else ' training rows'}"
            gaps.append(f"{name} ({is_missing(values).sum()} of {rows})")
    if gaps:
        notes.append(f"Missing numbers, taken as the mean: {', '.join(gaps)}.")
    if not columns:
        raise ValueError(f"{table.source} has no column but {target!r} that varies.")
    y = None if is_class else as_numbers(training.columns[target])
    mean, sd = 0.0, 1.0
    if y is not None:
        y_mean, y_sd = map(float, mean_and_sd(y))
        if y_sd == 0:
            raise ValueError(
                f"the target {target!r} is constant in the training part; give more rows."
            )
        far = far_off(y, "{:g}".format)
        notes += [f"{target}: {far}."] if far else []
        if kind.likelihood not in COUNTS:
            mean, sd = y_mean, y_sd
    classes = (kind.order or distinct) if is_class else None
    if classes and target in table.as_written:
        classes = with_commas(classes)
    return Encoding(target, columns, classes, mean, sd, constant=constant), notes
