"""What a fit leaves behind, and how `predict` finds it again."""

import json
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jaxtyping import PyTree

from jaxbnn.cli.encoding import Encoding
from jaxbnn.cli.samplers import Fitted, Settings, make_posterior
from jaxbnn.interop.arviz import from_arviz, to_arviz
from jaxbnn.targets import Posterior

_MODEL, _DRAWS = "model.json", "posterior.nc"
_WRITTEN = (
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


def save(
    folder: Path,
    encoding: Encoding,
    settings: Settings,
    sampler: str,
    fitted: Fitted,
    posterior: Posterior,
) -> list[str]:
    """Write the draws, as ArviZ reads them, and what predicts with them; return remarks.

    What an earlier fit left in the folder goes, so that no picture of it stays beside this one's.
    """
    for name in _WRITTEN:
        (folder / name).unlink(missing_ok=True)
    chains, draws = np.shape(jax.tree.leaves(fitted.positions)[0])[:2]
    is_small = chains * draws * len(posterior.x) <= _MOST_TERMS
    data = to_arviz(
        fitted.positions if fitted.draws is None else fitted.draws,
        posterior if is_small else None,
        coords={"layer0_in": encoding.features},
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
            raise ValueError(
                f"{folder} has no {name}; give the folder that `python -m jaxbnn fit` wrote."
            )
    model = json.loads((folder / _MODEL).read_text(encoding="utf-8"))
    encoding = Encoding.from_dict(model["encoding"])
    settings = Settings(**{**model["settings"], "hidden": tuple(model["settings"]["hidden"])})
    x = np.zeros((1, len(encoding.features)), np.float32)
    classes = None if encoding.classes is None else len(encoding.classes)
    y = np.zeros(1, np.float32 if classes is None else np.int32)
    posterior = make_posterior(model["sampler"], settings, x, y, classes)
    return from_arviz(_read(folder / _DRAWS)), encoding, posterior


def _read(path: Path) -> Any:
    import xarray

    # Groups are read one by one, so that files of ArviZ before and after version 1 do alike.
    with xarray.open_dataset(path, group="posterior", engine="h5netcdf") as group:
        return {"posterior": group.load()}
