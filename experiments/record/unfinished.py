"""Finished stages of unfinished runs, kept in the repository: hours of computing outlive a machine.

`record/unfinished/<study>/<name>/<scale>/` holds a run's stages, compressed. A run of that config
and scale under --resume reads back those of its seed, settings and versions, as it does its own.
When the run is recorded they go.
"""

import zipfile
from pathlib import Path

import numpy as np

from experiments.errors import InputError
from experiments.record import RECORD, UNFINISHED, kept_stages
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
        If there is no stage, or one would take the place of another, kept or below `results`, of
        another seed, of other settings or versions; nothing is written then. If all that is
        unfinished would exceed 60 MB, which is told before anything is lost: the files that fit
        stay.
    """
    found = sorted(path for path in results.rglob(f"{STAGES}/*.npz") if path.parts[-3] != "smoke")
    if not found:
        raise InputError(f"There is no finished stage (stages/*.npz) in {results}.")
    targets = []
    firsts: dict[Path, Path] = {}
    for path in found:
        study, name, scale = path.parts[-5:-2]
        target = kept_stages(f"{study}/{name}", scale, record) / path.name
        targets.append(target)
        other = firsts.setdefault(target, target if target.exists() else path)
        if other == path or _fingerprint(path) == _fingerprint(other):
            continue
        if other == target:
            raise InputError(
                f"{target} is kept, and {path} is of another seed, of other settings or other "
                "versions: remove the one that is not wanted."
            )
        raise InputError(
            f"{other} and {path} are of different seeds, settings or versions, and only one can be "
            f"{target}: give the folder of the one that is wanted."
        )
    written = []
    for path, target in zip(found, targets, strict=True):
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


def _fingerprint(stage: Path) -> str:
    """Return what a stage is of: see `Context.stage`."""
    with np.load(stage, allow_pickle=False) as stored:
        return stored["__fingerprint__"].item()


def _is_same(stage: Path, kept: Path) -> bool:
    """Whether two files hold the same arrays: by the checksums that the archives carry."""
    if not kept.exists():
        return False
    with zipfile.ZipFile(stage) as one, zipfile.ZipFile(kept) as other:
        sums = [{i.filename: i.CRC for i in archive.infolist()} for archive in (one, other)]
    return sums[0] == sums[1]
