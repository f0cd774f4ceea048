"""The record: what finished runs found, kept in the repository with what they were made of.

`record/<study>/<name>/<scale>/` holds a run's metrics.json, run.json, tables and pictures. Only
runs of a config as it stands are taken, so that anyone can make the record anew.
`record/benchmarks/<name>/` holds the same of a benchmark, which its command makes anew on another
machine with other times.
"""

import hashlib
import json
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from experiments.config import read_config, settings_for
from experiments.errors import InputError
from experiments.record.pictures import copy_small
from experiments.study import load_experiment

ROOT = Path(__file__).parents[2]
RECORD = ROOT / "record"
MOST_BYTES = 25 * 2**20
# Of stages of runs that are not finished: see `experiments.record.unfinished`.
UNFINISHED = "unfinished"
REQUIRED = ("experiment", "scale", "seed", "settings", "settings_digest", "commits", "code")


def settings_digest(settings: Mapping[str, Any]) -> str:
    """Return the SHA-256 of settings as sorted JSON, in hexadecimal digits."""
    return hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()


def config_settings(experiment: str, scale: str) -> tuple[dict[str, Any], int]:
    """Return the settings and the seed that the config of `study/name` has at a scale.

    Raises
    ------
    InputError
        If there is no such config, or it has no such scale.
    """
    path = ROOT / "configs" / f"{experiment}.toml"
    config = read_config(path)
    kind = load_experiment(config.study, config.experiment, f"In {path}")
    settings = settings_for(config, scale, kind.settings, [])
    return settings.model_dump(mode="json"), config.seed


def record_runs(results: Path, record: Path = RECORD) -> list[Path]:
    """Copy every finished run below `results` into the record; return the folders written.

    Of benchmarks only one whose own folder `results` is.

    Raises
    ------
    InputError
        If there is no run, a run's settings or seed are not its config's, its scale is smoke, or
        the record would exceed 25 MB. Nothing is written then.
    """
    if benchmark := _benchmark_in(results):
        _copy(results, record / "benchmarks" / benchmark)
        return [record / "benchmarks" / benchmark]
    folders = sorted(path.parent for path in results.rglob("metrics.json"))
    folders = [folder for folder in folders if "benchmarks" not in folder.parts]
    if not folders:
        raise InputError(f"There is no finished run (metrics.json) in {results}.")
    runs = [(folder, read_run(folder)) for folder in folders]
    for folder, run in runs:
        _check(folder, run)
    written = []
    for folder, run in runs:
        target = record / run["experiment"] / run["scale"]
        _copy(folder, target)
        written.append(target)
    files = (path for path in record.rglob("*") if path.is_file())
    total = sum(f.stat().st_size for f in files if f.relative_to(record).parts[0] != UNFINISHED)
    if total > MOST_BYTES:
        raise InputError(
            f"The record has grown to {total / 2**20:.1f} MB, and 25 MB are allowed: "
            "draw smaller pictures, or remove runs that no page shows."
        )
    return written


def recorded_runs(record: Path = RECORD) -> Iterator[tuple[Path, dict[str, Any]]]:
    """Yield the folder and run.json of each recorded run, in the order of their names."""
    for path in sorted(record.glob("*/*/*/run.json")):
        yield path.parent, read_run(path.parent)


def read_run(folder: Path) -> dict[str, Any]:
    """Return a folder's run.json; InputError where it lacks what a record needs."""
    try:
        run = json.loads((folder / "run.json").read_text(encoding="utf-8"))
        lacking = [name for name in REQUIRED if name not in run]
    except (OSError, ValueError) as error:
        raise InputError(f"{folder / 'run.json'} cannot be read: {error}.") from None
    if lacking:
        raise InputError(
            f"{folder / 'run.json'} does not say its {', '.join(lacking)}: run the config again "
            "(an earlier version of the command made it)."
        )
    return run


def _benchmark_in(folder: Path) -> str | None:
    """Return the name of the benchmark whose own folder this is; None of any other."""
    try:
        about = json.loads((folder / "run.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    kind, _, name = str(about.get("experiment")).partition("/")
    return name if kind == "benchmarks" and (folder / "metrics.json").exists() else None


def _check(folder: Path, run: Mapping[str, Any]) -> None:
    experiment, scale = run["experiment"], run["scale"]
    if scale == "smoke":
        raise InputError(
            f"{folder} is a smoke run, too short to be evidence; record desk or paper."
        )
    settings, seed = config_settings(experiment, scale)
    differing = sorted(
        key
        for key in settings.keys() | run["settings"].keys()
        if settings.get(key) != run["settings"].get(key)
    )
    if differing:
        raise InputError(
            f"{folder} was made with other settings than configs/{experiment}.toml has at scale "
            f"{scale} ({', '.join(differing)}): run the config as it stands, without --set."
        )
    if run["seed"] != seed:
        raise InputError(
            f"{folder} was made with seed {run['seed']}, and configs/{experiment}.toml says "
            f"{seed}: run it without --seed."
        )


def _copy(folder: Path, target: Path) -> None:
    """Put a run's files into `target` in place of what was there."""
    fresh = target.with_name(f".{target.name}.part")
    shutil.rmtree(fresh, ignore_errors=True)
    fresh.mkdir(parents=True)
    for path in sorted(folder.iterdir()):
        if path.suffix == ".md" or path.name in ("metrics.json", "run.json"):
            shutil.copyfile(path, fresh / path.name)
        elif path.suffix == ".png":
            copy_small(path, fresh / path.name)
    shutil.rmtree(target, ignore_errors=True)
    fresh.rename(target)
