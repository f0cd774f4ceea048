"""Optimised starts and microcanonical chains against bde, on its own benchmark's data and network.

    python -m experiments benchmark ensembles --set write_page=true

Each method runs in a process of its own, whose processor time is taken with that of its children:
imports, compilation and starts included. Results are stored one by one for each (set, seed,
method), and what is stored is not run again: the command can be stopped at any time, and started
with other sets, methods or seeds. bde gets an environment of its own, made in `out_dir`.
"""

import json
import os
import sys
from pathlib import Path
from typing import Any

import numpy as np

from experiments.benchmarks.ensembles import ours
from experiments.benchmarks.ensembles.page import write
from experiments.benchmarks.ensembles.scores import QUANTITIES, scores_of
from experiments.benchmarks.ensembles.tables import SEEDS, split_of
from experiments.benchmarks.peers import PACKAGES, last_line, peers_python, store, timed
from experiments.errors import InputError, did_you_mean
from experiments.results import Row

METHODS = (*ours.METHODS, "bde")
ROOT = Path(__file__).parents[3]
PAGE = ROOT / "docs" / "ensembles_comparison.md"


def run(
    out_dir: Path,
    *,
    sets: tuple[str, ...] | list[str] = tuple(SEEDS),
    methods: tuple[str, ...] | list[str] = METHODS,
    most_seeds: int = 5,
    is_development: bool = False,
    write_page: bool = False,
) -> list[Row]:
    """Measure what is not stored yet; one row a number of each set, seed and method.

    Parameters
    ----------
    out_dir
        Where results are stored, and bde's environment is made.
    sets, methods
        Some of `tables.SEEDS` and of METHODS.
    most_seeds
        Seeds of the samplers, at most; a set has as many as `tables.SEEDS` says.
    is_development
        Whether to leave the test rows alone and take a fifth of the training rows in their place.
    write_page
        Whether to write `docs/ensembles_comparison.md` from all that is stored.
    """
    for name, known in [*((s, tuple(SEEDS)) for s in sets), *((m, METHODS) for m in methods)]:
        if name not in known:
            raise InputError(f"There is no {name!r} here{did_you_mean(name, known)}")
    if write_page and is_development:
        raise InputError("The page shows test rows: leave is_development or write_page out.")
    stored = out_dir / ("development" if is_development else "stored")
    stored.mkdir(parents=True, exist_ok=True)
    for name in sets:
        for seed in range(min(most_seeds, SEEDS[name])):
            for method in methods:
                path = stored / f"{name}-{seed}-{method}.json"
                if _is_stored(path, method):
                    continue
                found = _measured(out_dir, name, seed, method, is_development)
                if found is not None:
                    store(path, found)
                    print(
                        f"{path.stem}: NLL {found['nll']:.4f}, RMSE {found['rmse']:.4f} "
                        f"in {found['cpu_seconds']:.0f} CPU s",
                        flush=True,
                    )
    results = [json.loads(path.read_text()) for path in sorted(stored.glob("*.json"))]
    if write_page:
        write(PAGE, results)
        print(PAGE)
    return _rows(results)


def _is_stored(path: Path, method: str) -> bool:
    """Whether there is a result, and of ours one of today's settings."""
    if not path.exists():
        return False
    found = json.loads(path.read_text())
    return found.get("settings", {}) == ours.SETTINGS.get(method, {})


def _measured(
    out_dir: Path, name: str, seed: int, method: str, is_development: bool
) -> dict[str, Any] | None:
    """Run one method in a process; None, after a sentence, if it fails or cannot be had."""
    split = split_of(name, is_development=is_development)
    work = out_dir / "work"
    work.mkdir(exist_ok=True)
    data, result, log = work / "data.npz", work / "predictions.npz", work / "log.txt"
    result.unlink(missing_ok=True)
    np.savez(data, x_train=split.x_train, y_train=split.y_train, x_test=split.x_test)
    # A compilation that is read from a cache would be one that nobody pays for.
    environment = {k: v for k, v in os.environ.items() if k != "JAX_COMPILATION_CACHE_DIR"}
    if method == "bde":
        python = peers_python(out_dir / "peers", {"bde": PACKAGES["bde"]})
        if python is None:
            return None
        command = [str(python), str(Path(__file__).with_name("theirs.py"))]
    else:
        command = [sys.executable, "-m", "experiments.benchmarks.ensembles.ours", method]
        environment["PYTHONPATH"] = str(ROOT)
    command += [str(data), str(result), str(seed)]
    seconds, wall, status = timed(command, environment, None, log)
    if status:
        print(f"{name}, seed {seed}: {method} failed: {last_line(log)}", flush=True)
        return None
    with np.load(result) as found:
        warnings = found["warnings"].tolist() if "warnings" in found else []
        scores = scores_of(found["mean"], found["sd"], split.y_test)
    return {
        "set": name,
        "seed": seed,
        "method": method,
        **scores,
        "cpu_seconds": seconds,
        "wall_seconds": wall,
        "warnings": warnings,
        "settings": ours.SETTINGS.get(method, {}),
    }


def _rows(results: list[dict[str, Any]]) -> list[Row]:
    names = (*QUANTITIES, "cpu_seconds", "wall_seconds")
    return [
        Row(name, f"{one['set']}, seed {one['seed']}, {one['method']}", one[name])
        for one in results
        for name in names
        if name in one
    ]
