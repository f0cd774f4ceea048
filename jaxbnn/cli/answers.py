"""What `predict` writes of each row: ids, predictions, quantiles, and what lies outside the fit."""

import csv
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import PyTree

from jaxbnn.cli import folder as folders
from jaxbnn.cli.dates import as_days, find_order
from jaxbnn.cli.encoding import Encoding, fields_of
from jaxbnn.cli.fields import as_numbers, is_missing
from jaxbnn.cli.place import OUTSIDE, written
from jaxbnn.cli.progress import Progress
from jaxbnn.cli.table import Table
from jaxbnn.prediction import ClassPrediction, NumberPrediction, predict
from jaxbnn.prediction.blocks import by_blocks
from jaxbnn.targets import Posterior

# Of a level that stands for the median: two quantiles that are one.
_NO_WIDTH = 1e-6


def write_predictions(
    folder: Path,
    table: Table,
    out: Path,
    progress: Progress,
    level: float,
    quantiles: Sequence[float],
    ids: Sequence[str],
) -> list[str]:
    """Predict the rows of a table by the fit in `folder`, write them, and return remarks."""
    positions, encoding, posterior = folders.load(folder)
    check_quantiles(quantiles, encoding)
    table = _numbered(table, encoding)
    x = encoding.inputs(table)
    strange, remarks = outside(encoding, table)
    columns = id_columns(table, encoding, ids)
    progress.begin("predicting", f"{table.num_rows:,} rows")
    found = predictions_of(positions, x, posterior, encoding, level, quantiles)
    given = {*columns, OUTSIDE}
    for name, values in found.items():
        while name in given:
            name = f"predicted {name}"
        columns[name] = values
        given.add(name)
    columns[OUTSIDE] = strange
    progress.begin("writing", str(out))
    out = out.resolve()  # a link stays one
    digits = _digits(encoding)
    with (
        written(out.parent) as part,
        (part / out.name).open("w", newline="", encoding="utf-8") as file,
    ):
        # As the new rows were written, so that the same program opens both.
        writer = csv.writer(file, delimiter=table.separator)
        writer.writerow(columns)
        for row in zip(*columns.values(), strict=True):
            writer.writerow(
                v if isinstance(v, str) else f"{v:.{digits}g}".replace(".", table.decimal)
                for v in row
            )
    notes = (*table.notes, *encoding.remarks(table))
    return [*notes, *remarks, *_without_variance(found, encoding)]


def _without_variance(found: dict[str, np.ndarray], encoding: Encoding) -> list[str]:
    """Return a remark where a standard deviation of numbers is infinite."""
    if encoding.classes is not None:
        return []
    name = "sd of the prediction" if encoding.target == "sd" else "sd"
    count = np.sum(~np.isfinite(found[name]))
    if not count:
        return []
    return [
        f"{name} is infinite in {count} of {len(found[name])} rows, for in some draw the noise has "
        "no finite variance: go by lower and upper."
    ]


def _digits(encoding: Encoding) -> int:
    """Return as many digits as tell six of a target's standard deviation, at most a double's.

    Counts, whose mean is not taken away, have eight at most.
    """
    if encoding.classes is not None:
        return 6
    if not encoding.y_mean:
        return 8
    more = math.ceil(math.log10(abs(encoding.y_mean) / encoding.y_sd))
    return min(6 + max(more, 0), 15)


def _numbered(table: Table, encoding: Encoding) -> Table:
    """Return a table without a header with the columns' numbers in the fit, target or none."""
    if table.has_header or not encoding.width:
        return table
    count, width = len(table.columns), encoding.width
    if count not in (width - 1, width):
        raise ValueError(
            f"{table.source} has no header and {count} columns, but the fit's file had {width}: "
            "give all of them, or all but the target."
        )
    names = [f"column {number}" for number in range(1, width + 1)]
    if count < width:
        names.remove(encoding.target)
    new = dict(zip(table.columns, names, strict=True))
    # A file that lacks another column has as many.
    taken = f"{count} columns: taken as the fit's without its target, {encoding.target}."
    return table._replace(
        notes=(*table.notes, taken) if count < width else table.notes,
        columns={new[name]: values for name, values in table.columns.items()},
        as_written={new[name]: values for name, values in table.as_written.items()},
    )


def check_quantiles(quantiles: Sequence[float], encoding: Encoding) -> None:
    """Raise ValueError unless quantiles are probabilities, and of numbers."""
    for q in quantiles:
        if not 0 < q < 1:
            raise ValueError(f"--quantiles must be probabilities between 0 and 1, but holds {q}.")
        if abs(1 - 2 * q) == 1:
            raise ValueError(f"--quantiles holds {q}, which is too near to 0; give 1e-16 or more.")
    if quantiles and encoding.classes is not None:
        raise ValueError(
            f"--quantiles are of numbers, but {encoding.target!r} has classes, whose probabilities "
            "are written anyway; leave it out."
        )


def id_columns(table: Table, encoding: Encoding, asked: Sequence[str]) -> dict[str, np.ndarray]:
    """Return the columns that tell rows apart: those asked for, else unused ones of distinct text.

    Raises
    ------
    ValueError
        If there is no column of a name asked for, or one of the predictions has it.
    """
    asked = [table.column(name) for name in asked]
    if OUTSIDE in asked:
        raise ValueError(
            f"the column {OUTSIDE!r} of {table.source} has the name of a column of the "
            "predictions; rename it."
        )
    used = {OUTSIDE, encoding.target, *(column.name for column in encoding.columns)}
    found = asked or [
        name
        for name, values in table.columns.items()
        if name not in used and len(set(values)) == len(values)
    ]
    columns = {**table.columns, **table.as_written}
    return {name: np.array(columns[name], dtype=object) for name in found}


def predictions_of(
    positions: PyTree,
    x: np.ndarray,
    posterior: Posterior,
    encoding: Encoding,
    level: float,
    quantiles: Sequence[float] = (),
) -> dict[str, np.ndarray]:
    """Return the columns of the predictions, in the target's own units.

    A column is called otherwise where the target has its name: "lower of the prediction".
    """

    def at(level: float) -> Any:
        kind: type = NumberPrediction if encoding.classes is None else ClassPrediction
        # In blocks, so that of a row the same is said whatever rows are beside it.
        return kind(
            *by_blocks(lambda block: predict(positions, block, posterior, level=level)[:-1], x),
            level,
        )

    found = at(level)
    more: dict[str, Any] = {}
    if encoding.classes is not None:
        for i, name in enumerate(encoding.classes):
            more[f"probability of {name}"] = found.probabilities[:, i]
        more |= {"entropy of the noise": found.aleatoric, "entropy unknown": found.epistemic}
        return _beside_target(encoding.target, np.array(encoding.classes)[found.label], more)
    sd = encoding.y_sd
    more = {
        "sd": found.sd.astype(float) * sd,
        "lower": encoding.in_units(found.lower),
        "upper": encoding.in_units(found.upper),
    }
    at_level: dict[float, Any] = {level: found}  # q and 1 - q are the ends of one interval
    for q in quantiles:
        own = max(abs(1 - 2 * q), _NO_WIDTH)
        if own not in at_level:
            at_level[own] = at(own)
        end = at_level[own].lower if q < 0.5 else at_level[own].upper
        more[f"quantile {q}"] = encoding.in_units(end)
    more["sd of the noise"] = np.sqrt(found.aleatoric.astype(float)) * sd
    more["sd unknown"] = np.sqrt(found.epistemic.astype(float)) * sd
    return _beside_target(encoding.target, encoding.in_units(found.mean), more)


def _beside_target(
    target: str, predicted: np.ndarray, more: dict[str, Any]
) -> dict[str, np.ndarray]:
    """Return what is predicted under the target's name, and the rest under other ones."""
    renamed = {f"{name} of the prediction" if name == target else name: more[name] for name in more}
    return {target: predicted, **renamed}


def _is_other(values: Sequence[str], value: str) -> np.ndarray:
    """Return which values are not this one; what is missing is not known to be another."""
    there = ~is_missing(list(values))
    numbers = as_numbers([*values, value])
    if numbers is None:
        order = find_order([*values, value])
        days = "" if order is None or order == "open" else as_days([*values, value], order)
        if isinstance(days, np.ndarray):
            return there & (days[:-1] != days[-1])
        return there & (np.array(values, dtype=object) != value)
    *others, one = numbers
    return there & ~np.isclose(others, one, rtol=1e-9, atol=0.0)


def outside(encoding: Encoding, table: Table) -> tuple[np.ndarray, list[str]]:
    """Return for each row the columns in which it lies outside the training rows, and a remark."""
    strange: list[list[str]] = [[] for _ in range(table.num_rows)]
    for column in encoding.columns:
        for row in np.flatnonzero(column.is_outside(fields_of(column, table))):
            strange[row].append(column.name)
    for name, value in encoding.constant.items():
        for row in np.flatnonzero(_is_other(table.columns.get(name, []), value)):
            strange[row].append(name)
    number = sum(bool(names) for names in strange)
    if not number:
        return np.array([""] * table.num_rows, dtype=object), []
    names = sorted({name for row in strange for name in row})
    shown = ", ".join(names[:5]) + (", ..." if len(names) > 5 else "")
    note = (
        f"{number} of {table.num_rows} rows lie outside the training rows ({shown}), as their "
        f"column {OUTSIDE!r} says: the fit has seen nothing like them, do not trust it there."
    )
    return np.array(["; ".join(row) for row in strange], dtype=object), [note]
