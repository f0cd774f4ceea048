"""The twelve data sets, as tables of numbers, and the rows that each split holds out."""

import csv
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from experiments.datasets import iris, uci, uci_splits
from experiments.errors import InputError
from experiments.fetch import data_file

_UCI = {
    "boston": "bostonHousing",
    "concrete": "concrete",
    "energy": "energy",
    "wine": "wine-quality-red",
    "yacht": "yacht",
}
_TABULAR = {
    "airfoil": "airfoil.csv",
    "ionosphere": "ionosphere.data",
    "glass": "glass_proc.data",
    "australian": "australian_proc.data",
    "heart": "heart_proc.data",
    "sonar": "sonar_proc.data",
}
NUMBERS = (*_UCI, "airfoil")
CLASSES = ("iris", "ionosphere", "glass", "australian", "heart", "sonar")
SETS = (*NUMBERS, *CLASSES)
# What a result says that has no scores, and whose seconds are not those of a fit that ended well.
NO_MEASUREMENT = {"over_limit", "is_nan"}


class Table(NamedTuple):
    """Features (n, d) and a target: numbers, or whole numbers of classes."""

    name: str
    x: np.ndarray
    y: np.ndarray


def table(name: str) -> Table:
    """Return a data set whole, its rows in the order of its file.

    Raises
    ------
    InputError
        If the file is not in `$JAXBNN_DATA`.
    """
    if name in _UCI:
        # The published splits share all rows: put them back in the order of the file.
        return Table(name, *_whole(_UCI[name]))
    if name == "iris":
        x, y = iris()
        return Table(name, x, y)
    file = data_file(f"tabular/{_TABULAR[name]}")
    lines = file.content.decode().splitlines()[name == "airfoil" :]
    values = np.array([[float(v) for v in line.replace(",", " ").split()] for line in lines])
    y = values[:, -1]
    return Table(name, values[:, :-1], y.astype(int) if name in CLASSES else y)


def rows_of(num_rows: int, split: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the rows of training and test of a split: those of `fit --seed split --test 0.2`."""
    order = np.random.default_rng(split).permutation(num_rows)
    held = round(0.2 * num_rows)
    return np.sort(order[held:]), np.sort(order[:held])


def share_of_copies(data: Table, splits: Sequence[int]) -> float:
    """Return which share of held-out rows stands among the training rows, too, target and all.

    Examples
    --------
    >>> twice = Table("twice", np.repeat(np.arange(50.0)[:, None], 2, axis=0), np.zeros(100))
    >>> other = twice._replace(y=np.arange(100))
    >>> share_of_copies(twice, range(5)) > 0.7, share_of_copies(other, range(5))
    (True, 0.0)
    """
    rows = [row.tobytes() for row in np.column_stack([data.x, data.y])]
    found = []
    for split in splits:
        train, test = rows_of(len(rows), split)
        known = {rows[i] for i in train}
        found += [rows[i] in known for i in test]
    return float(np.mean(found))


def write_csv(path: Path, data: Table) -> None:
    """Write a table as `fit` takes it; classes get names, since numbers would be taken for such."""
    with path.open("w", newline="", encoding="utf-8") as file:
        rows = csv.writer(file)
        rows.writerow([*(f"x{i}" for i in range(data.x.shape[1])), "y"])
        for x, y in zip(data.x.tolist(), data.y.tolist(), strict=True):
            rows.writerow([*x, f"class {y}" if data.name in CLASSES else y])


def _whole(name: str) -> tuple[np.ndarray, np.ndarray]:
    split = uci(name, 0)
    train, test = uci_splits(name)[0]
    x = np.empty((len(train) + len(test), split.x_train.shape[1]))
    y = np.empty(len(x))
    x[train], x[test], y[train], y[test] = split.x_train, split.x_test, split.y_train, split.y_test
    if np.isnan(y).any():
        raise InputError(f"The first split of {name} does not hold every row.")
    return x, y
