"""What a fit leaves behind, and how `predict` finds it again."""

import json
import math
import os
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jaxtyping import PyTree

from jaxbnn.cli.encoding import Encoding
from jaxbnn.cli.kinds import LIKELIHOODS
from jaxbnn.cli.samplers import SAMPLERS, Fitted, Settings, make_posterior
from jaxbnn.interop.arviz import from_arviz, to_arviz
from jaxbnn.targets import Posterior

_MODEL, _DRAWS = "model.json", "posterior.nc"
WRITTEN = (
    *(_MODEL, _DRAWS, "summary.md", "scores.json"),
    *("predictions.png", "calibration.png", "chains.png"),
)
# Log likelihoods of more terms than this are left out of the file.
_MOST_TERMS = 20_000_000


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


def check_free(folder: Path, force: bool) -> None:
    """Refuse a folder that holds a fit, unless it may be written over."""
    if (folder / _MODEL).exists() and not force:
        raise ValueError(
            f"{folder} holds a fit already; give --force to write over it, or another --out."
        )


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


def save(
    folder: Path,
    encoding: Encoding,
    settings: Settings,
    sampler: str,
    fitted: Fitted,
    posterior: Posterior,
) -> list[str]:
    """Write the draws, as ArviZ reads them, and what predicts with them; return remarks."""
    chains, draws = np.shape(jax.tree.leaves(fitted.positions)[0])[:2]
    is_small = chains * draws * len(posterior.x) <= _MOST_TERMS
    data = to_arviz(
        fitted.positions if fitted.draws is None else fitted.draws,
        posterior if is_small else None,
        coords={"layer0_in": encoding.features},
        format="DataTree",  # needs no ArviZ, and both of its lines read the file
    )
    data.to_netcdf(str(folder / _DRAWS), engine="h5netcdf")
    model = {"sampler": sampler, "settings": settings._asdict(), "encoding": encoding.to_dict()}
    (folder / _MODEL).write_text(json.dumps(model, indent=2) + "\n", encoding="utf-8")
    if is_small:
        return []
    return [f"{_DRAWS} holds no log likelihoods, of which there would be too many for a file."]


def load(folder: Path) -> tuple[PyTree, Encoding, Posterior]:
    """Return the draws, the encoding, and a posterior to predict with (its data are blank)."""
    for name in (_MODEL, _DRAWS):
        if not (folder / name).is_file():
            raise ValueError(f"{folder} has no {name}; give the folder that `jaxbnn fit` wrote.")
    try:
        model = json.loads((folder / _MODEL).read_text(encoding="utf-8"))
        encoding = Encoding.from_dict(model["encoding"])
        # Fits of before had these fixed.
        values = {"prior_scale": 1.0, "likelihood": "auto"} | model["settings"]
        settings = Settings(**{**values, "hidden": tuple(values["hidden"])})
        _check_model(model["sampler"], settings, encoding)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        raise ValueError(_not_ours(folder / _MODEL)) from None
    x = np.zeros((1, len(encoding.features)), np.float32)
    classes = None if encoding.classes is None else len(encoding.classes)
    y = np.zeros(1, np.float32 if classes is None else np.int32)
    posterior = make_posterior(model["sampler"], settings, x, y, classes)
    try:
        positions = from_arviz(_read(folder / _DRAWS))
    except Exception:  # a damaged file makes the readers of HDF5 raise anything
        raise ValueError(_not_ours(folder / _DRAWS)) from None
    return positions, encoding, posterior


def _not_ours(path: Path) -> str:
    return (
        f"{path} is damaged, or not what `jaxbnn fit` wrote; copy the folder again, or fit again."
    )


def _check_model(sampler: Any, settings: Settings, encoding: Encoding) -> None:
    """Raise where JSON of the right form holds what no fit writes."""
    columns = encoding.columns
    numbers = [encoding.y_mean, encoding.y_sd, settings.noise]
    numbers += [value for column in columns for value in (column.mean, column.sd)]
    numbers += [v for column in columns for v in (column.low, column.high) if v is not None]
    lists = [encoding.classes, *(column.categories for column in columns)]
    scale = settings.prior_scale
    is_right = (
        sampler in SAMPLERS
        and settings.likelihood in LIKELIHOODS
        and (scale is None or (isinstance(scale, int | float) and 0 < scale < math.inf))
        and len(columns) > 0
        and all(isinstance(size, int) and size > 0 for size in settings.hidden)
        and all(isinstance(value, int | float) and math.isfinite(value) for value in numbers)
        and all(value > 0 for value in (encoding.y_sd, settings.noise))
        and all(isinstance(name, str) for name in [encoding.target, *encoding.features])
        and all(one is None or all(isinstance(word, str) for word in one) for one in lists)
        and all(column.sd > 0 for column in columns)
    )
    if not is_right:
        raise ValueError


def _read(path: Path) -> Any:
    import xarray

    # Groups are read one by one, so that files of ArviZ before and after version 1 do alike.
    with xarray.open_dataset(path, group="posterior", engine="h5netcdf") as group:
        return {"posterior": group.load()}
