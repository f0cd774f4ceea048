"""The data of the study, standardised: splits of the UCI sets, stacked, and the toy example."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from experiments.datasets import UCI_NAMES, uci, uci_splits
from jaxbnn import dvi

# The names that the paper's tables print.
SETS = dict(
    zip(
        ("bost", "conc", "ener", "kin8", "nava", "powe", "prot", "wine", "yach"),
        UCI_NAMES,
        strict=True,
    )
)


class Splits(NamedTuple):
    """Standardised training and test data of several splits, one leading axis of splits.

    A log density of y is, in the units of y, less by log y_scale.
    """

    x: Float[np.ndarray, "run n d"]
    y: Float[np.ndarray, "run n"]
    x_test: Float[np.ndarray, "run m d"]
    y_test: Float[np.ndarray, "run m"]
    y_scale: Float[np.ndarray, " run"]


def whole_splits(name: str, num_splits: int) -> Splits:
    """Return the first splits of a UCI set, by its printed name; as many as there are, at most."""
    num_splits = min(num_splits, len(uci_splits(SETS[name])))
    return _stacked([tuple(uci(SETS[name], split)) for split in range(num_splits)])


def validation_splits(name: str, num_splits: int, fraction: float = 0.2) -> Splits:
    """Return the training parts alone, a fraction of each set aside to be tested on.

    The test rows of a split are not read into it.
    """
    num_splits = min(num_splits, len(uci_splits(SETS[name])))
    parts = []
    for split in range(num_splits):
        whole = uci(SETS[name], split)
        order = np.random.default_rng(split).permutation(len(whole.y_train))
        held = round(fraction * len(order))
        train, rest = order[held:], order[:held]
        x, y = whole.x_train, whole.y_train
        parts.append((x[train], y[train], x[rest], y[rest]))
    return _stacked(parts)


def toy_data(seed: int, num_data: int) -> tuple[np.ndarray, np.ndarray]:
    """Draw x (n, 1) ~ U(-0.5, 0.5) and y = -(x + 0.5) sin(3 pi x) + N(0, (0.45 (x + 0.5)^2)^2).

    Examples
    --------
    >>> x, y = toy_data(0, 500)
    >>> x.shape, y.shape
    ((500, 1), (500,))
    """
    generator = np.random.default_rng(seed)
    x = generator.uniform(-0.5, 0.5, num_data)
    mean, scale = toy_truth(x)
    return x[:, None], mean + scale * generator.normal(size=num_data)


def toy_truth(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return mean and standard deviation of y at x."""
    return -(x + 0.5) * np.sin(3 * np.pi * x), 0.45 * np.square(x + 0.5)


def _stacked(parts: Sequence[tuple[np.ndarray, ...]]) -> Splits:
    columns: list[list[np.ndarray]] = [[], [], [], [], []]
    for x, y, x_test, y_test in parts:
        s = dvi.standardisation(x, y)
        values = (s.inputs(x), s.targets(y), s.inputs(x_test), s.targets(y_test), s.y_scale)
        for column, value in zip(columns, values, strict=True):
            column.append(value)
    return Splits(*(np.stack(column) for column in columns))
