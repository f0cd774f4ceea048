"""A fit that was interrupted: kept beside the results, and gone on with by the same arguments."""

import argparse
import hashlib
import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax

import jaxbnn
from jaxbnn.tabular.settings import NOISE

FOLDER = ".unfinished"
_ARGUMENTS = "arguments.json"
_CHOICE = "choice.json"
# What the draws depend on; the rest may change from one call to the next.
_NAMES = (
    *("target", "sampler", "task", "likelihood", "order", "prior_scale", "hidden", "drop", "test"),
    *("relevance", "chains", "warmup", "samples", "noise", "seed", "separator", "decimal"),
)


def identity_of(options: argparse.Namespace) -> dict[str, Any]:
    """Return what makes two fits the same: their arguments and the content of their file."""
    digest = hashlib.sha256(options.data.read_bytes()).hexdigest()
    values = {name: getattr(options, name) for name in _NAMES}
    if options.noise is None:  # fits of before have the number
        values["noise"] = NOISE
    return json.loads(json.dumps({"data": digest, **values}))


def goes_on(out: Path, identity: dict[str, Any], force: bool) -> bool:
    """Return whether the fit of before goes on.

    Raises
    ------
    ValueError
        If another one was interrupted in this folder, and may not be thrown away.
    """
    path = out / FOLDER / _ARGUMENTS
    try:
        before = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    if before == identity or force:
        return before == identity
    changed = next((name for name in identity if before.get(name) != identity[name]), "data")
    how = "other data"
    if changed != "data":
        option = f"--{changed.replace('_', '-')}"
        how = f"{option} {_shown(before.get(changed))}, and not {_shown(identity[changed])}"
    raise ValueError(
        f"{out} holds a fit that was interrupted, with {how}: give the same arguments to go on, "
        "--force to begin anew, or another --out."
    )


def begin(out: Path, identity: dict[str, Any], is_going_on: bool) -> Path:
    """Return the folder for the checkpoints, emptied unless the fit of before goes on."""
    folder = out / FOLDER
    if not is_going_on:
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        (folder / _ARGUMENTS).write_text(json.dumps(identity), encoding="utf-8")
    return folder


def keep_choice(folder: Path, tried: Sequence[str], taken: int, why: str) -> None:
    """Keep which of the networks tried was taken, and why."""
    text = json.dumps({"tried": _of_today(tried), "taken": taken, "why": why})
    (folder / _CHOICE).write_text(text, encoding="utf-8")


def kept_choice(folder: Path, tried: Sequence[str]) -> tuple[int, str] | None:
    """Return which of these networks was taken, and why; None if they were not compared."""
    try:
        kept = json.loads((folder / _CHOICE).read_text(encoding="utf-8"))
    except (OSError, ValueError):  # or written in part
        return None
    return (kept["taken"], kept["why"]) if kept["tried"] == _of_today(tried) else None


def _of_today(tried: Sequence[str]) -> list[str]:
    """Return the networks, and the versions that their scores depend on."""
    return [*tried, f"jaxbnn {jaxbnn.__version__}", f"jax {jax.__version__}"]


def end(folder: Path) -> None:
    """Throw the checkpoints of a finished fit away."""
    shutil.rmtree(folder, ignore_errors=True)


def has_begun(folder: Path) -> bool:
    """Return whether a sampler left anything to go on with; each phase has a folder of its own."""
    return any(folder.rglob("*.nc"))


def what_is_left(out: Path) -> str:
    """Return what to say to somebody who interrupted a fit."""
    if has_begun(out / FOLDER) or (out / FOLDER / _CHOICE).is_file():
        return "interrupted: the same command goes on where it was."
    shutil.rmtree(out / FOLDER, ignore_errors=True)
    return "interrupted before there was anything to keep."


def _shown(value: Any) -> str:
    if isinstance(value, list):
        return " ".join(map(str, value)) or "nothing"
    return "not given" if value is None else str(value)
