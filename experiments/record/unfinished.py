"""Finished stages of unfinished runs, kept in the repository: hours of computing outlive a machine.

`record/unfinished/<study>/<name>/<scale>/` holds a run's stages, compressed. A run of that config
and scale under --resume finds them beside its own, and reads back those of its seed, settings and
versions, as it does its own. When the run is recorded they go.
"""

import shutil
import zipfile
from pathlib import Path

import numpy as np

from experiments.errors import InputError
from experiments.record import RECORD, UNFINISHED
from experiments.results import written_whole

MOST_BYTES = 60 * 2**20
STAGES = "stages"


def keep_stages(results: Path, record: Path = RECORD) -> list[Path]:
    """Compress every finished stage below `results` into the record; return the files written.

    Those that are there already, bit for bit, are left as they are; draws inside a stage that is
    not finished are not kept.

    Raises
    ------
    InputError
        If there is no stage, or all that is unfinished would exceed 60 MB, which is told before
        anything is lost: the files that fit stay.
    """
    found = sorted(path for path in results.rglob(f"{STAGES}/*.npz") if "smoke" not in path.parts)
    if not found:
        raise InputError(f"There is no finished stage (stages/*.npz) in {results}.")
    written = []
    for path in found:
        study, name, scale = path.parts[-5:-2]
        target = record / UNFINISHED / study / name / scale / path.name
        if not _is_same(path, target):
            target.parent.mkdir(parents=True, exist_ok=True)
            with np.load(path, allow_pickle=False) as stage, written_whole(target) as temporary:
                np.savez_compressed(temporary, **{key: stage[key] for key in stage.files})
            written.append(target)
        total = sum(one.stat().st_size for one in (record / UNFINISHED).rglob("*.npz"))
        if total > MOST_BYTES:
            raise InputError(
                f"Stages of unfinished runs take {total / 2**20:.0f} MB, and "
                f"{MOST_BYTES / 2**20:.0f} are allowed: finish and record a run of "
                f"{record / UNFINISHED}, or remove it there."
            )
    return written


def bring_stages(experiment: str, scale: str, folder: Path, record: Path = RECORD) -> list[str]:
    """Copy kept stages of `study/name` that `folder` lacks into it; return their names."""
    brought = []
    for path in sorted((record / UNFINISHED / experiment / scale).glob("*.npz")):
        target = folder / STAGES / path.name
        if not target.exists():
            target.parent.mkdir(parents=True, exist_ok=True)
            with written_whole(target) as temporary:
                shutil.copyfile(path, temporary)
            brought.append(path.stem)
    return brought


def forget_stages(experiment: str, scale: str, record: Path = RECORD) -> None:
    """Remove the stages kept of a run, which is recorded whole."""
    shutil.rmtree(record / UNFINISHED / experiment / scale, ignore_errors=True)


def _is_same(stage: Path, kept: Path) -> bool:
    """Whether two files hold the same arrays: by the checksums that the archives carry."""
    if not kept.exists():
        return False
    with zipfile.ZipFile(stage) as one, zipfile.ZipFile(kept) as other:
        sums = [{i.filename: i.CRC for i in archive.infolist()} for archive in (one, other)]
    return sums[0] == sums[1]
