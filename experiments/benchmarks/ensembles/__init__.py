"""Optimised starts and microcanonical chains against bde, on its own benchmark's data and network.

    python -m experiments benchmark ensembles --set write_page=true

Each method runs in a process of its own, whose processor time is taken with that of its children:
imports, compilation and starts included. Results are stored one by one for each (set, seed,
method), and what is stored is not run again, unless the code of its method has changed: the command
can be stopped at any time, and started with other sets, methods or seeds. Results on test rows are
also written to `record/benchmarks/ensembles.json`, from which any machine goes on. bde gets an
environment of its own, made in `out_dir`.
"""

import itertools
import sys
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from experiments.benchmarks import check_known
from experiments.benchmarks.command import programs
from experiments.benchmarks.ensembles import ours, theirs
from experiments.benchmarks.ensembles.page import write
from experiments.benchmarks.ensembles.scores import QUANTITIES, scores_of
from experiments.benchmarks.ensembles.tables import SEEDS, split_of
from experiments.benchmarks.peers import PACKAGES, last_line, peers_python, timed, uncached
from experiments.benchmarks.stored import FOLDER, Stored, by_one_code
from experiments.datasets import Split
from experiments.errors import InputError
from experiments.record.code import code_digest
from experiments.results import Row
from experiments.threads import without_our_threads

# Of the chains of `sample_ensemble`, as `ours.predictions` returns them.
TOLD = ("settled", "undone", "stuck")
METHODS = (*ours.METHODS, *ours.CURVE, "bde")
# Of the curve of scores against processor time; as many as bde's where its time is about the same.
CURVE_SEEDS = {
    "airfoil": dict.fromkeys(ours.CURVE, 2) | {"quick-x4": SEEDS["airfoil"]},
    "bikesharing": {"quick-x2": SEEDS["bikesharing"]},
}
ROOT = Path(__file__).parents[3]
PAGE = ROOT / "docs" / "ensembles_comparison.md"
KEPT = FOLDER / "ensembles.json"
# Imported with the other likelihoods, and of no use where targets are numbers.
NEVER_RUN = ("jaxbnn.targets.counts",)


def run(
    out_dir: Path,
    *,
    sets: tuple[str, ...] | list[str] = tuple(SEEDS),
    methods: tuple[str, ...] | list[str] = METHODS,
    most_seeds: int = 5,
    is_development: bool = False,
    write_page: bool = False,
    score_again: bool = False,
) -> list[Row]:
    """Measure what is not stored yet; one row a number of each set, seed and method.

    Parameters
    ----------
    out_dir
        Where results are stored, and bde's environment is made.
    sets, methods
        Some of `tables.SEEDS` and of METHODS.
    most_seeds
        Seeds of the samplers, at most; a set has as many as `tables.SEEDS` says, and methods of the
        curve against processor time as CURVE_SEEDS says.
    is_development
        Whether to leave the test rows alone and take a fifth of the training rows in their place.
    write_page
        Whether to write `docs/ensembles_comparison.md`, with its pictures, from all that is stored.
    score_again
        Whether to score anew the predictions that are still in `out_dir`, after a change of scores.
    """
    check_known(sets, SEEDS)
    check_known(methods, METHODS)
    if write_page and is_development:
        raise InputError("The page shows test rows: leave is_development or write_page out.")
    stored = Stored(
        out_dir / ("development" if is_development else "stored"), None if is_development else KEPT
    )
    if not is_development:
        stored.keep()  # what was stored when this was stopped
    for name, number, method in itertools.product(sets, range(most_seeds), methods):
        case = f"{name}-{number}-{method}"
        seeds = CURVE_SEEDS.get(name, {}).get(method, 0) if method in ours.CURVE else SEEDS[name]
        if number >= seeds:
            continue
        if _is_stored(stored, case, method):
            work = _work(out_dir, name, number, method, is_development)
            predictions = work / "predictions.npz"
            if score_again and predictions.exists():
                split = split_of(name, is_development=is_development)
                stored[case] = stored[case] | _scores(predictions, split)
                if not is_development:
                    stored.keep()
            continue
        measure = partial(_measured, out_dir, name, number, method, is_development)
        found = by_one_code(measure, partial(_code_of, method))
        if found is not None:
            stored[case] = found
            if not is_development:
                stored.keep()
            said = f"NLL {found['nll']:.4f}, RMSE {found['rmse']:.4f}"
            print(f"{case}: {said} in {found['cpu_seconds']:.0f} CPU s", flush=True)
    every = stored.values()
    results = [one for one in every if _is_of_today(one, one["method"])]
    if len(results) < len(every):
        print(f"{len(every) - len(results)} results of earlier code or settings are left out.")
    if write_page:
        write(PAGE, results)
        print(PAGE)
    return _rows(results)


def _code_of(method: str) -> str:
    """Return a digest of the code and the settings behind a method's results."""
    module = theirs if method == "bde" else ours
    return code_digest([module.__name__, programs.__name__], NEVER_RUN)[:16]


def _is_stored(stored: Stored, case: str, method: str) -> bool:
    """Whether there is a result, of today's settings and code."""
    return case in stored and _is_of_today(stored[case], method)


def _is_of_today(found: dict[str, Any], method: str) -> bool:
    settings = ours.SETTINGS.get(method, {})
    return found.get("code") == _code_of(method) and found.get("settings", {}) == settings


def _measured(
    out_dir: Path, name: str, seed: int, method: str, is_development: bool
) -> dict[str, Any] | None:
    """Run one method in a process; None, after a sentence, if it fails or cannot be had."""
    split = split_of(name, is_development=is_development)
    work = _work(out_dir, name, seed, method, is_development)
    work.mkdir(parents=True, exist_ok=True)
    data, result, log = work / "data.npz", work / "predictions.npz", work / "log.txt"
    result.unlink(missing_ok=True)
    np.savez(data, x_train=split.x_train, y_train=split.y_train, x_test=split.x_test)
    environment = uncached()
    if method == "bde":
        python = peers_python(out_dir / "peers", {"bde": PACKAGES["bde"]})
        if python is None:
            return None
        command = [str(python), str(Path(__file__).with_name("theirs.py"))]
        environment = without_our_threads(environment)
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
        told = {name: float(found[name]) for name in TOLD if name in found}
    return {
        "set": name,
        "seed": seed,
        "method": method,
        **_scores(result, split),
        **told,
        "cpu_seconds": seconds,
        "wall_seconds": wall,
        "warnings": warnings,
        "settings": ours.SETTINGS.get(method, {}),
    }


def _work(out_dir: Path, name: str, seed: int, method: str, is_development: bool) -> Path:
    folder = "development_work" if is_development else "work"
    return out_dir / folder / f"{name}-{seed}-{method}"


def _scores(predictions: Path, split: Split) -> dict[str, float]:
    with np.load(predictions) as found:
        return scores_of(found["mean"], found["sd"], split.y_test)


def _rows(results: list[dict[str, Any]]) -> list[Row]:
    names = (*QUANTITIES, *TOLD, "cpu_seconds", "wall_seconds")
    return [
        Row(name, f"{one['set']}, seed {one['seed']}, {one['method']}", one[name])
        for one in results
        for name in names
        if name in one
    ]
