"""What a fit leaves behind, and how `predict` finds it again."""

import hashlib
import json
import math
from pathlib import Path
from typing import Any, get_args

import jax
import numpy as np
from jaxtyping import PyTree

from jaxbnn.cli.dates import Order, part_names
from jaxbnn.cli.encoding import Encoding
from jaxbnn.cli.place import DRAWS, MODEL, check_fit
from jaxbnn.interop.arviz import from_arviz, to_arviz
from jaxbnn.tabular.fitted import Fitted
from jaxbnn.tabular.kinds import LIKELIHOODS
from jaxbnn.tabular.posteriors import make_posterior
from jaxbnn.tabular.settings import SAMPLERS, Settings
from jaxbnn.targets import Posterior

# Log likelihoods of more terms than this are left out of the file.
_MOST_TERMS = 20_000_000
# The attribute of the draws that says with which model they belong.
_OF_MODEL = "model_sha256"


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
    _in_units(data, encoding)
    # Written out, so that draws keep their meaning where what is usual changes.
    is_class = encoding.classes is not None
    kept = settings._replace(
        weight_scales=settings.scales(is_class=is_class),
        is_centred=settings.centred(is_class=is_class),
    )._asdict()
    model = {"sampler": sampler, "settings": kept, "encoding": encoding.to_dict()}
    text = json.dumps(model, indent=2) + "\n"
    (folder / MODEL).write_text(text, encoding="utf-8")
    data["posterior"].attrs[_OF_MODEL] = _digest(text)
    data.to_netcdf(str(folder / DRAWS), engine="h5netcdf")
    if is_small:
        return []
    return [f"{DRAWS} holds no log likelihoods, of which there would be too many for a file."]


def _in_units(data: Any, encoding: Encoding) -> None:
    """Give data and log likelihoods in the target's own units, so that fits can be compared.

    The draws stay as the network has them, whose target is standardised: how is written beside.
    """
    data["posterior"].attrs |= {"target_mean": encoding.y_mean, "target_sd": encoding.y_sd}
    if encoding.classes is not None or "observed_data" not in data.children:
        return
    for group, in_units in (
        ("observed_data", encoding.in_units),
        ("log_likelihood", lambda terms: np.asarray(terms, float) - np.log(encoding.y_sd)),
    ):
        values = data[group]["y"]
        data[group]["y"] = values.copy(data=in_units(values.to_numpy()))


def load(folder: Path) -> tuple[PyTree, Encoding, Posterior]:
    """Return the draws, the encoding, and a posterior to predict with (its data are blank).

    Raises
    ------
    ValueError
        A folder without a fit; a file that no fit has written; files of two fits.
    """
    check_fit(folder)
    try:
        text = (folder / MODEL).read_text(encoding="utf-8")
        model = json.loads(text)
        encoding = Encoding.from_dict(model["encoding"])
        # Fits of before had these fixed.
        is_line = encoding.classes is not None and not model["settings"]["hidden"]
        scales = (6.0, 6.0) if is_line else (2.0, 1.0)
        fixed = {"weight_scales": scales, "is_centred": False}
        values = {"prior_scale": 1.0, "likelihood": "auto", **fixed} | model["settings"]
        lists = {name: tuple(values[name]) for name in ("hidden", "weight_scales")}
        settings = Settings(**{**values, **lists})
        _check_model(model["sampler"], settings, encoding)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        raise ValueError(_not_ours(folder / MODEL)) from None
    x = np.zeros((1, len(encoding.features)), np.float32)
    classes = None if encoding.classes is None else len(encoding.classes)
    y = np.zeros(1, np.float32 if classes is None else np.int32)
    posterior = make_posterior(model["sampler"], settings, x, y, classes)
    try:
        draws = _read(folder / DRAWS)
        positions = from_arviz({"posterior": draws})
    except Exception:  # a damaged file makes the readers of HDF5 raise anything
        raise ValueError(_not_ours(folder / DRAWS)) from None
    own = _digest(text)
    if draws.attrs.get(_OF_MODEL, own) != own:  # fits of before had none
        raise ValueError(
            f"{MODEL} and {DRAWS} in {folder} are not of one fit, or {MODEL} was changed; copy "
            "both from one folder again, or fit again."
        )
    return positions, encoding, posterior


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _not_ours(path: Path) -> str:
    return (
        f"{path} is damaged, or not what `jaxbnn fit` wrote; copy the folder again, or fit again."
    )


def _check_model(sampler: Any, settings: Settings, encoding: Encoding) -> None:
    """Raise where JSON of the right form holds what no fit writes."""
    columns = encoding.columns
    scales = settings.weight_scales or ()
    positive = [encoding.y_sd, settings.noise, settings.least_noise, *scales]
    numbers = [encoding.y_mean, *positive]
    numbers += [value for column in columns for value in (column.mean, column.sd)]
    numbers += [v for column in columns for v in (column.low, column.high) if v is not None]
    lists = [encoding.classes, *(column.categories for column in columns)]
    prior_scale = settings.prior_scale
    is_right = (
        sampler in SAMPLERS
        and isinstance(encoding.width, int)
        and encoding.width >= 0
        and settings.likelihood in LIKELIHOODS
        and (
            prior_scale is None
            or (isinstance(prior_scale, int | float) and 0 < prior_scale < math.inf)
        )
        and isinstance(settings.relevance, bool)
        and isinstance(settings.is_centred, bool)
        and settings.activation in ("tanh", "relu")
        and len(scales) == 2
        and len(columns) > 0
        and all(isinstance(size, int) and size > 0 for size in settings.hidden)
        and all(isinstance(value, int | float) and math.isfinite(value) for value in numbers)
        and all(value > 0 for value in positive)
        and all(isinstance(name, str) for name in [encoding.target, *encoding.features])
        and all(one is None or all(isinstance(word, str) for word in one) for one in lists)
        and all(column.sd > 0 for column in columns)
        and all(column.date in (None, *get_args(Order)) for column in columns)
        and all(column.has_zone in (None, True, False) for column in columns)
        and all(part_names(part) for column in columns for part in column.date_parts)
    )
    if not is_right:
        raise ValueError


def _read(path: Path) -> Any:
    import xarray

    # Groups are read one by one, so that files of ArviZ before and after version 1 do alike.
    with xarray.open_dataset(path, group="posterior", engine="h5netcdf") as group:
        return group.load()
