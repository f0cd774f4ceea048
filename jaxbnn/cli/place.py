"""Where results go: a place that is free, held meanwhile, and written to whole or not at all."""

import csv
import json
import os
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from jaxbnn.cli.table import SEPARATORS

MODEL, DRAWS = "model.json", "posterior.nc"
# The column of predictions by which a file is known to be of `predict`.
OUTSIDE = "outside the training range"
WRITTEN = (
    *(MODEL, DRAWS, "summary.md", "summary.html", "scores.json"),
    *("predictions.png", "calibration.png", "confusion.png", "chains.png"),
)


def prepare(folder: Path) -> None:
    """Make the folder, before the work begins."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except FileExistsError:
        raise ValueError(f"{folder} is a file; name a folder for the results by --out.") from None
    except OSError as error:
        raise ValueError(
            f"the folder {folder} cannot be made ({error.strerror}); name another by --out."
        ) from None


def check_fit(folder: Path) -> None:
    """Refuse a folder in which there is no fit."""
    for name in (MODEL, DRAWS):
        if not (folder / name).is_file():
            raise ValueError(f"{folder} has no {name}; give the folder that `jaxbnn fit` wrote.")


def columns_of_fit(folder: Path) -> list[str] | None:
    """Return the names of the columns that a fit knows; None if its file had no header.

    A damaged fit, which is told of when it is loaded, knows none.
    """
    try:
        found = json.loads((folder / MODEL).read_text(encoding="utf-8"))["encoding"]
        if found.get("width"):
            return None
        return [*(column["name"] for column in found["columns"]), *found.get("constant", ())]
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return []


def check_free(folder: Path, force: bool) -> None:
    """Refuse a folder that holds a fit, or files of its names, unless they may be written over."""
    there = [name for name in WRITTEN if (folder / name).exists()]
    if not there or force:
        return
    if MODEL in there:
        raise ValueError(
            f"{folder} holds a fit already; give --force to write over it, or another --out."
        )
    raise ValueError(
        f"{folder} holds {there[0]}, which no fit has written and a fit would write over; give "
        "another --out, or --force."
    )


def check_predictions(out: Path, data: Path) -> None:
    """Refuse a path that cannot take predictions, or where there is a file of another kind."""
    if out.is_dir():
        raise ValueError(f"--out {out} is a folder; name a file for the predictions.")
    if not out.resolve().parent.is_dir():
        raise ValueError(f"there is no folder {out.resolve().parent} for --out; make it first.")
    if out.resolve() == data.resolve():
        raise ValueError(f"--out {out} would overwrite the new rows; name another file.")
    if out.is_file() and not _is_of_predict(out):
        raise ValueError(
            f"--out {out} is a file that `predict` has not written; name another, or remove it."
        )


def _is_of_predict(path: Path) -> bool:
    """Return whether a file's first record, in which names may hold newlines, has our column."""
    with path.open(encoding="utf-8", errors="replace", newline="") as file:
        for mark in SEPARATORS:
            file.seek(0)
            with suppress(csv.Error):
                if any(OUTSIDE in name for name in next(csv.reader(file, delimiter=mark), [])):
                    return True
    return False


@contextmanager
def held(folder: Path) -> Iterator[None]:
    """Hold the folder of a fit, which is made if need be; refuse one that cannot be written to."""
    import fcntl

    prepare(folder)
    try:
        # Before the hours of sampling, not after them.
        shutil.rmtree(tempfile.mkdtemp(prefix=".jaxbnn-", dir=folder))
        handle = os.open(folder, os.O_RDONLY)
    except OSError as error:
        raise OSError(
            f"{folder} cannot be written to ({error.strerror}); give another folder by --out."
        ) from None
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise OSError(
                f"another fit is writing to {folder}; wait for its end or give another --out."
            ) from None
        yield
    finally:
        os.close(handle)


@contextmanager
def written(folder: Path, old: Sequence[str] = ()) -> Iterator[Path]:
    """Give a folder to write to; what is in it is moved to `folder` when the block ends well.

    A fit that fails leaves the files of the one before as they were; after one that ends well
    those named `old` are gone, so that no picture of it stays beside the new ones.
    """
    try:
        part = Path(tempfile.mkdtemp(prefix=".jaxbnn-", dir=folder))
        try:
            yield part
            for name in old:
                (folder / name).unlink(missing_ok=True)
            for path in sorted(part.iterdir()):
                os.replace(path, folder / path.name)
        finally:
            shutil.rmtree(part, ignore_errors=True)
    except (OSError, RuntimeError) as error:  # HDF5 says a full disk by either
        reason = getattr(error, "strerror", None) or " ".join(str(error).split())
        raise OSError(
            f"the results cannot be written to {folder} ({reason[:200]}); what was there before "
            "is untouched: make room or give another --out."
        ) from None
