"""The record: what finished runs found, kept in the repository with what they were made of.

`record/<study>/<name>/<scale>/` holds a run's metrics.json, run.json, tables and pictures. Only
runs of a config as it stands are taken, so that anyone can make the record anew.
`record/benchmarks/<name>/` holds the same of a benchmark, which its command makes anew on another
machine with other times.
"""

import hashlib
import json
import shutil
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from experiments.config import read_config, settings_for
from experiments.errors import InputError
from experiments.record.pictures import copy_small
from experiments.results import file_digest
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

    Of benchmarks only one whose own folder `results` is. Stages that were kept of a run go.

    Raises
    ------
    InputError
        If there is no run, a run's settings or seed are not its config's, its scale is smoke, a
        file of its is not the one that it wrote, two are of one config and scale, or the record
        would exceed 25 MB. Nothing is written then.
    """
    if benchmark := _benchmark_in(results):
        names = {path.name for path in results.iterdir() if path.suffix in (".md", ".png")}
        return _put({record / "benchmarks" / benchmark: (results, names)}, record)
    folders = sorted(path.parent for path in results.rglob("metrics.json"))
    folders = [
        folder
        for folder in folders
        if "benchmarks" not in folder.relative_to(results).parts and not _benchmark_in(folder)
    ]
    if not folders:
        raise InputError(f"There is no finished run (metrics.json) in {results}.")
    runs = [(folder, read_run(folder)) for folder in folders]
    chosen: dict[Path, tuple[Path, set[str]]] = {}
    for folder, run in runs:
        _check(folder, run)
        target = record / run["experiment"] / run["scale"]
        if target in chosen:
            raise InputError(
                f"{chosen[target][0]} and {folder} are both of {run['experiment']} at scale "
                f"{run['scale']}: give the folder of the one that is wanted."
            )
        chosen[target] = folder, {"table.md", *_files(folder, run)}
    written = _put(chosen, record)
    for _, run in runs:
        shutil.rmtree(kept_stages(run["experiment"], run["scale"], record), ignore_errors=True)
    return written


def kept_stages(experiment: str, scale: str, record: Path = RECORD) -> Path:
    """Return the folder of what is kept of `study/name` at a scale, which need not exist."""
    return record / UNFINISHED / experiment / scale


def recorded_runs(record: Path = RECORD) -> Iterator[tuple[Path, dict[str, Any]]]:
    """Yield the folder and run.json of each recorded run, in the order of their names."""
    for path in sorted(record.glob("[!.]*/[!.]*/[!.]*/run.json")):
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


def _files(folder: Path, run: Mapping[str, Any]) -> set[str]:
    """Return the names of the tables and pictures that a run wrote, if they are there as it did."""
    if "files" not in run:
        raise InputError(
            f"{folder / 'run.json'} does not name the run's files: run the config again with "
            "--resume (an earlier version of the command made it)."
        )
    names = {name for name in run["files"] if Path(name).suffix in (".md", ".png")}
    for name in sorted(names):
        path = folder / name
        if not path.exists() or file_digest(path) != run["files"][name]:
            raise InputError(
                f"{path} is not the file that the finished run wrote, but a later one's: run the "
                "config again with --resume."
            )
    return names


def _put(chosen: Mapping[Path, tuple[Path, set[str]]], record: Path) -> list[Path]:
    """Put runs' files (a folder and names in it) in place of what each target held before."""
    fresh = {target: target.with_name(f".{target.name}.part") for target in chosen}
    try:
        for target, (folder, names) in chosen.items():
            shutil.rmtree(fresh[target], ignore_errors=True)
            fresh[target].mkdir(parents=True)
            for name in sorted({"metrics.json", "run.json", *names}):
                copy = copy_small if name.endswith(".png") else shutil.copyfile
                copy(folder / name, fresh[target] / name)
        _check_size(record, chosen)
        for target, part in fresh.items():
            shutil.rmtree(target, ignore_errors=True)
            part.rename(target)
    finally:
        for part in fresh.values():
            shutil.rmtree(part, ignore_errors=True)
    return list(chosen)


def _check_size(record: Path, replaced: Iterable[Path]) -> None:
    files = [path for path in record.rglob("*") if path.is_file()]
    old = {path for target in replaced for path in target.rglob("*")}
    kept = [f for f in files if f not in old and f.relative_to(record).parts[0] != UNFINISHED]
    total = sum(path.stat().st_size for path in kept)
    if total > MOST_BYTES:
        raise InputError(
            f"The record would grow to {total / 2**20:.1f} MB, and 25 MB are allowed: "
            "draw smaller pictures, or remove runs that no page shows."
        )
