"""Rows, the files of a run, and the papers' numbers joined in after it.

No code that computes reads the papers' numbers (`experiments/paper_numbers.py`): `write_results`
joins them to the rows of a finished run on (source, quantity, setting), and so does the report.
"""

import hashlib
import importlib.metadata
import json
import math
import os
import platform
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Protocol

from experiments.errors import InputError

# (source, quantity, setting)
RowKey = tuple[str, str, str]


@dataclass(frozen=True)
class Row:
    """One number that a run computed.

    Parameters
    ----------
    quantity, setting
        What was computed, and under which setting: the words of the paper's entry.
    value
        The number; NaN and infinities are written as null.
    standard_error
        Its Monte Carlo standard error, or None, which the report shows as NO ERROR.
    source
        The place of the paper's value, as in "004 Table 2", or None.
    """

    quantity: str
    setting: str
    value: float
    standard_error: float | None = None
    source: str | None = None


class Printed(Protocol):
    """What a paper prints, as far as a run's files show it."""

    @property
    def value(self) -> float:
        """The number."""


def write_results(
    directory: Path,
    *,
    experiment: str,
    scale: str | None,
    seed: int | None,
    rows: Iterable[Row],
    run: Mapping[str, Any],
    paper_values: Mapping[RowKey, Printed],
) -> str:
    """Write metrics.json, run.json and table.md whole, and return the table.

    `run` is what run.json adds to the versions, the machine and the date.
    """
    joined = [_joined(row, paper_values) for row in rows]
    header = ("quantity", "setting", "value", "standard_error", "paper", "source")
    table = markdown_table(
        [name.replace("_", " ") for name in header],
        [[row[name] for name in header] for row in joined],
    )
    write_json(
        directory / "metrics.json",
        {"experiment": experiment, "scale": scale, "seed": seed, "rows": joined},
    )
    about = {"experiment": experiment, "scale": scale, "seed": seed, **run}
    write_json(
        directory / "run.json", {**about, **machine(), "versions": versions() | other_versions()}
    )
    with written_whole(directory / "table.md") as temporary:
        temporary.write_text(table, encoding="utf-8")
    return table


def _joined(row: Row, paper_values: Mapping[RowKey, Printed]) -> dict[str, Any]:
    paper = paper_values.get((row.source or "", row.quantity, row.setting))
    return {
        "quantity": row.quantity,
        "setting": row.setting,
        "value": finite_or_none(row.value),
        "standard_error": finite_or_none(row.standard_error),
        "paper": paper.value if paper else None,
        "source": row.source,
    }


def finite_or_none(value: Any) -> float | None:
    """Return the number as a Python float, or None if it is missing, NaN or infinite."""
    return None if value is None or not math.isfinite(value) else float(value)


def file_digest(path: Path) -> str:
    """Return the SHA-256 of a file, in hexadecimal digits."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def write_json(path: Path, content: Mapping[str, Any]) -> None:
    """Write JSON whole; a NaN or an infinity anywhere in it becomes null."""
    text = json.dumps(_plain(content), indent=2, allow_nan=False, ensure_ascii=False)
    with written_whole(path) as temporary:
        temporary.write_text(text + "\n", encoding="utf-8")


def _plain(content: Any) -> Any:
    if isinstance(content, Mapping):
        return {str(key): _plain(value) for key, value in content.items()}
    if isinstance(content, list | tuple):
        return [_plain(value) for value in content]
    if content is None or isinstance(content, bool | int | str):
        return content
    if isinstance(content, Path):
        return str(content)
    if hasattr(content, "tolist"):  # NumPy and JAX arrays and scalars
        return _plain(content.tolist())
    return finite_or_none(content)


@contextmanager
def written_whole(path: Path) -> Iterator[Path]:
    """Give a temporary path to write to, and rename it to `path` when the block ends well.

    A reader sees the old file or the new one, never a part of either. InputError where the disk
    is full or the folder cannot be written to.
    """
    # The suffix stays last: writers such as netCDF's choose their format by it.
    writer = f"{os.getpid()}.{threading.get_ident()}"
    temporary = path.with_name(f".{path.stem}.{writer}.part{path.suffix}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        yield temporary
        os.replace(temporary, path)
    except OSError as error:
        raise InputError(
            f"{path} cannot be written ({error.strerror or error}); what was there before is "
            "untouched. Make room or choose another folder with --out."
        ) from None
    finally:
        # Where nothing could be made there is nothing to remove, nor the right to.
        with suppress(OSError):
            temporary.unlink(missing_ok=True)


@contextmanager
def held(directory: Path, *, wait: bool = False) -> Iterator[None]:
    """Hold a folder for one process; while another holds it wait, or raise InputError.

    A killed process lets go of it.
    """
    import fcntl

    handle = os.open(directory, os.O_RDONLY)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except OSError:
            raise InputError(
                f"Another run is writing to {directory}; wait for its end or give this one a "
                "folder of its own with --out."
            ) from None
        yield
    finally:
        os.close(handle)


def markdown_table(header: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """Return an aligned Markdown table; numbers to six digits, None and NaN as a dash.

    Examples
    --------
    >>> print(markdown_table(["name", "value"], [["ess", 9878.123], ["rhat", None]]), end="")
    | name | value   |
    | ---- | ------- |
    | ess  | 9878.12 |
    | rhat | -       |
    """
    cells = [[str(name) for name in header], *([_cell(value) for value in row] for row in rows)]
    widths = [max(3, *(len(line[i]) for line in cells)) for i in range(len(header))]
    lines = [
        "| "
        + " | ".join(text.ljust(width) for text, width in zip(line, widths, strict=True))
        + " |"
        for line in cells
    ]
    lines.insert(1, "| " + " | ".join("-" * width for width in widths) + " |")
    return "\n".join(lines) + "\n"


def _cell(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, str):
        return value.replace("|", "\\|").replace("\n", " ")
    if isinstance(value, bool | int):
        return str(value)
    number = float(value)
    return f"{number:.6g}" if math.isfinite(number) else "-"


def versions() -> dict[str, str]:
    """Return the versions of Python and of the packages that most numbers depend on."""
    return {
        "python": platform.python_version(),
        **_versions_of("jax", "jaxlib", "blackjax", "numpyro", "jaxbnn"),
    }


def other_versions() -> dict[str, str]:
    """Return those of packages that some numbers depend on, which fingerprints of stages lack."""
    return _versions_of("optax", "numpy", "scipy")


def _versions_of(*packages: str) -> dict[str, str]:
    found = {}
    for package in packages:
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            found[package] = "not installed"
    return found


def machine() -> dict[str, Any]:
    """Return the devices, platform and cores of this run, and the time (UTC)."""
    import jax

    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return {
        "devices": [device.device_kind for device in jax.devices()],
        "backend": jax.default_backend(),
        "platform": platform.platform(),
        "cores": cores,
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
    }
