"""The data sets of the papers, read from their original formats; nothing is standardised.

Big sets are looked for in `$JAXBNN_DATA`, then in the user's cache, then downloaded (see
`fetch`); Iris and XOR ship with this package. Format checks (magic numbers, sizes, ranges)
always run, and no file is ever unpickled.
"""

import struct
from pathlib import Path
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int, Num, Shaped, UInt8

from experiments.errors import InputError, did_you_mean
from experiments.fetch import DataFile, check_digest, data_file

UCI_NAMES = (
    "bostonHousing",
    "concrete",
    "energy",
    "kin8nm",
    "naval-propulsion-plant",
    "power-plant",
    "protein-tertiary-structure",
    "wine-quality-red",
    "yacht",
)
# File, inputs, target.
_TABULAR = {
    "airfoil": (
        "airfoil.csv",
        ("frequency", "angle", "length", "velocity", "thickness"),
        "target",
    ),
    # Casual and registered riders add up to the target, and instant and dteday number the rows.
    "bikesharing": (
        "bikesharing_hour.csv",
        (
            *("season", "yr", "mnth", "hr", "holiday", "weekday", "workingday", "weathersit"),
            *("temp", "atemp", "hum", "windspeed"),
        ),
        "cnt",
    ),
}
TABULAR_NAMES = tuple(_TABULAR)
_CIFAR10_BATCH = 10_000
_CIFAR10_RECORD = 1 + 3 * 32 * 32


class Split(NamedTuple):
    """Training and test data, cases along the first axis."""

    x_train: Shaped[np.ndarray, "n ..."]
    y_train: Shaped[np.ndarray, " n"]
    x_test: Shaped[np.ndarray, "m ..."]
    y_test: Shaped[np.ndarray, " m"]


def iris() -> tuple[Float[np.ndarray, "150 4"], Int[np.ndarray, "150"]]:
    """Return Fisher's Iris: four lengths in centimetres, and the species 0, 1, 2.

    Examples
    --------
    >>> x, y = iris()
    >>> x.shape, y.tolist().count(2)
    ((150, 4), 50)
    """
    return _shipped("iris")


def xor() -> tuple[Float[np.ndarray, "4 2"], Int[np.ndarray, "4"]]:
    """Return the four points of exclusive or, and their labels.

    Examples
    --------
    >>> xor()[1].tolist()
    [0, 1, 1, 0]
    """
    return _shipped("xor")


def uci(name: str, split: int) -> Split:
    """Return one train/test split of a UCI regression set (Hernandez-Lobato and Adams 2015).

    Values are raw. Beware when standardising: two features of naval-propulsion-plant are
    constant.

    Parameters
    ----------
    name
        One of UCI_NAMES.
    split
        From 0; there are 20 splits, of protein-tertiary-structure 5.

    Raises
    ------
    InputError
        Unknown name or split; a file that is missing, damaged or not the original.
    """
    x, y, num_splits = _uci_table(name)
    if not 0 <= split < num_splits:
        raise InputError(f"{name} has splits 0 to {num_splits - 1}, but {split} was asked for.")
    train, test = _uci_split(name, split, len(y))
    return Split(x[train], y[train], x[test], y[test])


def uci_splits(name: str) -> list[tuple[Int[np.ndarray, " n"], Int[np.ndarray, " m"]]]:
    """Return every split of a UCI set: the rows (from 0) that train and that test."""
    _, y, num_splits = _uci_table(name)
    return [_uci_split(name, split, len(y)) for split in range(num_splits)]


def tabular(name: str, seed: int = 0) -> Split:
    """Return a fifth of the rows of airfoil or bikesharing as test data, and the others.

    The split is that of `train_test_split(x, y, test_size=0.2, random_state=seed)` of
    scikit-learn: with seed 0 the one of bde's benchmark (Arvanitis et al. 2025), which standardises
    inputs and target by the training rows (`standardised`). Values are raw.

    Parameters
    ----------
    name
        "airfoil": 1,503 rows, 5 inputs, the sound pressure in decibels. "bikesharing": 17,379
        hours, 12 inputs (season, yr, mnth, hr, holiday, weekday, workingday, weathersit, temp,
        atemp, hum, windspeed, as in that benchmark), the number of bicycles.
    seed
        From 0.

    Raises
    ------
    InputError
        Unknown name or a negative seed; a file that is missing, damaged or not the original.
    """
    if name not in _TABULAR:
        raise InputError(f"There is no table {name!r}{did_you_mean(name, TABULAR_NAMES)}")
    if not 0 <= seed < 2**32:
        raise InputError(f"seed must be from 0 to 2^32 - 1, but is {seed}.")
    file_name, inputs, target = _TABULAR[name]
    table = _columns(f"tabular/{file_name}", (*inputs, target))
    return a_fifth_held_out(table[:, :-1], table[:, -1], seed)


def a_fifth_held_out(
    x: Shaped[np.ndarray, "n ..."], y: Shaped[np.ndarray, " n"], seed: int
) -> Split:
    """Return a random fifth of the rows, rounded up, as test data, and the others.

    The rows are those of scikit-learn's `train_test_split(x, y, test_size=0.2, random_state=seed)`.

    Examples
    --------
    >>> a_fifth_held_out(np.arange(10), np.arange(10), 0).x_test.tolist()
    [2, 8]
    """
    order = np.random.RandomState(seed).permutation(len(y))
    num_test = -(-len(y) // 5)
    test, train = order[:num_test], order[num_test:]
    return Split(x[train], y[train], x[test], y[test])


def standardised(split: Split) -> Split:
    """Return inputs and target with mean 0 and standard deviation 1 of the training rows.

    A column that is constant there is only shifted.

    Examples
    --------
    >>> one = np.array([[1.0, 5.0], [3.0, 5.0]])
    >>> standardised(Split(one, one[:, 0], one + 1, one[:, 0])).x_test.tolist()
    [[0.0, 1.0], [2.0, 1.0]]
    """
    shifts = [np.mean(rows, axis=0) for rows in split[:2]]
    scales = [np.std(rows, axis=0) for rows in split[:2]]
    scales = [np.where(scale > 0, scale, 1.0) for scale in scales]
    pairs = zip(split, 2 * shifts, 2 * scales, strict=True)
    return Split(*((rows - shift) / scale for rows, shift, scale in pairs))


def mnist() -> Split:
    """Return MNIST: images (n, 28, 28), 0 to 255, and digits, both uint8; 60,000 and 10,000."""
    return Split(
        _idx("mnist/train-images-idx3-ubyte", (60_000, 28, 28)),
        _labels(_idx("mnist/train-labels-idx1-ubyte", (60_000,)), "mnist/train-labels-idx1-ubyte"),
        _idx("mnist/t10k-images-idx3-ubyte", (10_000, 28, 28)),
        _labels(_idx("mnist/t10k-labels-idx1-ubyte", (10_000,)), "mnist/t10k-labels-idx1-ubyte"),
    )


def cifar10(num_train: int = 50_000, num_test: int = 10_000) -> Split:
    """Return the first images of CIFAR-10's training and test sets, in the stored order.

    Images are (n, 32, 32, 3) uint8, 0 to 255, colour last; labels are uint8, 0 to 9. Only
    the batches that are needed are read, and a subset will do if it holds the rows asked for.
    """
    for name, number, most in (("num_train", num_train, 50_000), ("num_test", num_test, 10_000)):
        if not 1 <= number <= most:
            raise InputError(f"{name} must be from 1 to {most} for CIFAR-10, but is {number}.")
    train = []
    for batch, first in enumerate(range(0, num_train, _CIFAR10_BATCH), start=1):
        rows = min(_CIFAR10_BATCH, num_train - first)
        train.append(_cifar10_batch(f"cifar10/data_batch_{batch}.bin", rows))
    return Split(
        np.concatenate([images for images, _ in train]),
        np.concatenate([labels for _, labels in train]),
        *_cifar10_batch("cifar10/test_batch.bin", num_test),
    )


def _shipped(name: str) -> tuple[Float[np.ndarray, "n d"], Int[np.ndarray, " n"]]:
    folder = Path(__file__).parent / "data" / name
    x = np.loadtxt(folder / "x.csv", delimiter=",", skiprows=1, ndmin=2)
    return x, np.loadtxt(folder / "y.csv", skiprows=1, dtype=np.int64)


def _uci_table(name: str) -> tuple[Float[np.ndarray, "n d"], Float[np.ndarray, " n"], int]:
    if name not in UCI_NAMES:
        raise InputError(f"There is no UCI set {name!r}{did_you_mean(name, UCI_NAMES)}")
    table, where = _text(f"uci/{name}/data.txt", np.float64)
    if not np.isfinite(table).all():
        raise InputError(f"{where} holds a value that is not finite.")
    features, features_path = _text(f"uci/{name}/index_features.txt", np.int64)
    target, target_path = _text(f"uci/{name}/index_target.txt", np.int64)
    counts, counts_path = _text(f"uci/{name}/n_splits.txt", np.int64)
    for columns, path in ((features, features_path), (target, target_path)):
        if columns.min() < 0 or columns.max() >= table.shape[1]:
            raise InputError(f"{path} names a column that {where} does not have.")
    if target.size != 1 or counts.size != 1 or counts.item() < 1:
        path = target_path if target.size != 1 else counts_path
        raise InputError(f"{path} must hold one number, but does not.")
    return table[:, features.ravel()], table[:, target.item()], counts.item()


def _uci_split(
    name: str, split: int, rows: int
) -> tuple[Int[np.ndarray, " n"], Int[np.ndarray, " m"]]:
    train, path = _text(f"uci/{name}/index_train_{split}.txt", np.int64)
    test, _ = _text(f"uci/{name}/index_test_{split}.txt", np.int64)
    both = np.sort(np.concatenate([train.ravel(), test.ravel()]))
    if not np.array_equal(both, np.arange(rows)):
        raise InputError(f"{path} and its test rows do not partition the {rows} rows of {name}.")
    return train.ravel(), test.ravel()


def _text(name: str, dtype: type) -> tuple[Num[np.ndarray, "rows columns"], Path]:
    file = data_file(name)
    try:
        lines = [line for line in file.content.decode("ascii").splitlines() if line.strip()]
        if not lines:
            raise InputError(f"{file.path} is empty.")
        # Indices are written as 3 or as 3.000e+00, hence through floats.
        table = np.loadtxt(lines, ndmin=2)
        is_whole = (np.abs(table) < 2**53) & (table == np.floor(table))
        if dtype is np.int64 and not is_whole.all():
            raise ValueError("whole numbers were expected")
    except InputError:
        raise
    except ValueError as error:
        raise InputError(f"{file.path} is not a table of numbers: {error}.") from None
    if table.size == 0:
        raise InputError(f"{file.path} is empty.")
    check_digest(file)
    return table.astype(dtype), file.path


def _columns(name: str, columns: tuple[str, ...]) -> Float[np.ndarray, "rows columns"]:
    """Read these columns of a CSV file with one header line; others need not be numbers."""
    file = data_file(name)
    try:
        header, *lines = file.content.decode("ascii").splitlines()
        names = header.split(",")
        missing = [column for column in columns if column not in names]
        if missing:
            raise InputError(f"{file.path} has no column {missing[0]!r}; it has {header[:200]}.")
        places = [names.index(column) for column in columns]
        rows = [line.split(",") for line in lines if line]
        table = np.array([[float(row[place]) for place in places] for row in rows])
    except InputError:
        raise
    except (ValueError, IndexError) as error:
        raise InputError(f"{file.path} is not a table of numbers: {error}.") from None
    if not table.size:
        raise InputError(f"{file.path} is empty.")
    if not np.isfinite(table).all():
        raise InputError(f"{file.path} holds a value that is not finite.")
    check_digest(file)
    return table


def _idx(name: str, shape: tuple[int, ...]) -> UInt8[np.ndarray, "..."]:
    """Read an IDX file of bytes: 00 00 08 <rank>, the sizes (big-endian), the values."""
    file = data_file(name)
    magic = bytes([0, 0, 8, len(shape)])
    if file.content[:4] != magic:
        raise InputError(
            f"{file.path} is not an IDX file of bytes with {len(shape)} axes: it begins with "
            f"{file.content[:4].hex(' ') or 'nothing'}, not {magic.hex(' ')}."
        )
    start = 4 + 4 * len(shape)
    header = file.content[4:start].ljust(4 * len(shape), b"\0")
    sizes = struct.unpack(f">{len(shape)}I", header)
    expected = int(np.prod(shape))
    if sizes != shape or len(file.content) != start + expected:
        raise InputError(
            f"{file.path} says that its shape is {sizes} and has {len(file.content)} bytes, "
            f"but {shape} in {start + expected} bytes was expected."
        )
    check_digest(file)
    return np.frombuffer(file.content, np.uint8, offset=start).reshape(shape)


def _cifar10_batch(
    name: str, rows: int
) -> tuple[UInt8[np.ndarray, "rows 32 32 3"], UInt8[np.ndarray, " rows"]]:
    file: DataFile = data_file(name)
    held, rest = divmod(len(file.content), _CIFAR10_RECORD)
    if rest or not 1 <= held <= _CIFAR10_BATCH:
        raise InputError(
            f"{file.path} has {len(file.content)} bytes, which is not 1 to {_CIFAR10_BATCH} "
            f"records of {_CIFAR10_RECORD}."
        )
    records = np.frombuffer(file.content, np.uint8).reshape(held, _CIFAR10_RECORD)
    labels = _labels(records[:, 0], str(file.path))
    check_digest(file)
    if held < rows:
        raise InputError(
            f"{file.path} is a subset with the first {held} of {_CIFAR10_BATCH} images, but "
            f"{rows} were asked for."
        )
    images = records[:rows, 1:].reshape(rows, 3, 32, 32).transpose(0, 2, 3, 1)
    return np.ascontiguousarray(images), labels[:rows].copy()


def _labels(labels: UInt8[np.ndarray, " n"], where: str) -> UInt8[np.ndarray, " n"]:
    if labels.max() > 9:
        raise InputError(f"{where} holds the label {labels.max()}, but labels are 0 to 9.")
    return labels
