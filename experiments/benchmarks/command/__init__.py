"""`jaxbnn fit` against what people would use instead, on twelve data sets, five splits each.

    python -m experiments benchmark command --set write_page=true

Each method runs in a process of its own, whose processor time is taken with that of its children.
Results are stored one by one for each (set, split, method), and what is stored is not run again,
unless another method's program has changed: the command can be stopped at any time, and started
with other sets, methods or splits, in one `out_dir` at a time. The page says how many of jaxbnn's
results are of an earlier state of the code; `--set again=true` runs them again, and the page says
how many of those came out the same. All results are also written to
`record/benchmarks/command.json`, from which any machine goes on. The others need packages that
jaxbnn does not: they get an environment of their own, made in `out_dir`.
"""

import itertools
import json
import os
import shutil
import sys
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from experiments.benchmarks import check_known
from experiments.benchmarks.command import programs
from experiments.benchmarks.command.page import write
from experiments.benchmarks.command.tables import (
    CLASSES,
    NO_MEASUREMENT,
    SETS,
    Table,
    rows_of,
    share_of_copies,
    table,
    write_csv,
)
from experiments.benchmarks.peers import last_line, peers_python, timed, uncached
from experiments.benchmarks.stored import (
    FOLDER,
    Stored,
    age_of,
    by_one_code,
    say_how_many_are_earlier,
)
from experiments.errors import InputError
from experiments.record.code import code_digest
from experiments.results import Row
from experiments.threads import without_our_threads

METHODS = ("jaxbnn", "linear", "forest", "boosting", "gaussian_process", "bde")
# What `jaxbnn fit` is called with besides; those with options are no part of the page.
OURS = {"jaxbnn": (), "jaxbnn_ensemble": ("--sampler", "ensemble")}
ROOT = Path(__file__).parents[3]
PAGE = ROOT / "docs" / "command_comparison.md"
KEPT = FOLDER / "command.json"
# One core-hour a set for the dearest of the others: as many splits as it allows.
SECONDS_A_SET = 3600


def run(
    out_dir: Path,
    *,
    sets: tuple[str, ...] | list[str] = SETS,
    methods: tuple[str, ...] | list[str] = METHODS,
    splits: tuple[int, ...] | list[int] = (0, 1, 2, 3, 4),
    again: bool = False,
    write_page: bool = False,
) -> list[Row]:
    """Measure what is not stored yet; one row a number of each set, split and method.

    Parameters
    ----------
    out_dir
        Where results are stored, and the others' environment is made.
    sets, methods
        Some of `tables.SETS` and of METHODS; or of OURS, to try a sampler on splits of its own.
    splits
        Seeds of `fit`, which choose its held-out fifth; all methods are tested on these rows.
    again
        Whether to run jaxbnn's results of an earlier state of the code again.
    write_page
        Whether to write `docs/command_comparison.md` from all that is stored.
    """
    check_known(sets, SETS)
    check_known(methods, (*METHODS, *OURS))
    stored = Stored(out_dir / "stored", KEPT)
    stored.keep(_is_of_the_page)  # what was stored when this was stopped
    python = None
    todo = [
        (name, split, method)
        for name, split, method in itertools.product(sets, splits, methods)
        if not _is_stored(stored, f"{name}-{split}-{method}", method, again)
    ]
    if any(method not in OURS for *_, method in todo):
        python = peers_python(out_dir / "peers")
    for name, split, method in todo:
        if method in OURS or python is not None:
            measure = partial(_measured, out_dir, stored, table(name), split, method, python)
            found = by_one_code(measure, partial(_code_of, method))
            if found is not None:
                case = f"{name}-{split}-{method}"
                if case in stored and method in OURS:
                    found["is_as_before"] = is_same(found, stored[case])
                stored[case] = found
                stored.keep(_is_of_the_page)
                print(f"{case}: {_told(found)}", flush=True)
    results = stored.values()
    say_how_many_are_earlier(results, lambda one: _code_of(one["method"]))
    if write_page:
        seen = sorted({one["split"] for one in results})
        known = {one["set"] for one in results}
        copies = {name: share_of_copies(table(name), seen) for name in SETS if name in known}
        write(PAGE, results, _code_of("jaxbnn"), copies)
        print(PAGE)
    return _rows(results)


def _is_of_the_page(found: Mapping[str, Any]) -> bool:
    return found["method"] in METHODS


def _code_of(method: str) -> str:
    """Return a digest of the code behind a method's results."""
    if method in OURS:
        # "auto" chooses from nuts, ensemble and dvi.
        return code_digest(["jaxbnn.cli.command", "jaxbnn.cli.fit"], ("jaxbnn.gibbs",))[:16]
    return code_digest([programs.__name__])[:16]


def _is_stored(stored: Stored, name: str, method: str, again: bool) -> bool:
    """Whether there is a result; of another method, or `again`, by today's code."""
    if name not in stored:
        return False
    is_enough = method in OURS and not again
    return is_enough or stored[name].get("code") == _code_of(method)


def is_same(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Whether two results are equal to the last digit, but for the time that they took."""
    left_out = ("cpu_seconds", "wall_seconds", "cores", "code", "is_as_before")
    first, second = ({k: v for k, v in r.items() if k not in left_out} for r in (one, other))
    return first == second


def _measured(
    out_dir: Path, stored: Stored, data: Table, split: int, method: str, python: Path | None
) -> dict[str, Any] | None:
    """Run one method in a process; None, after a sentence, if it fails."""
    work = out_dir / "work" / f"{data.name}-{split}-{method}"
    work.mkdir(parents=True, exist_ok=True)
    result = work / "result.json"
    result.unlink(missing_ok=True)
    limit = _left(stored, data.name) if method == "bde" else None
    known = {"set": data.name, "split": split, "method": method}
    if limit is not None and limit < 1:
        return {**known, "over_limit": True, "cpu_seconds": 0.0}
    environment = uncached()
    if method in OURS:
        write_csv(work / "data.csv", data)
        # What an interrupted fit left would be gone on with, in less time than a fit takes.
        shutil.rmtree(work / "fit", ignore_errors=True)
        command = [sys.executable, "-m", "jaxbnn", "fit", str(work / "data.csv"), "--target", "y"]
        command += ["--seed", str(split), "--out", str(work / "fit"), "--force", "--quiet"]
        command += OURS[method]
        environment["PYTHONPATH"] = str(ROOT)
    else:
        train, test = rows_of(len(data.y), split)
        np.savez(work / "data.npz", x=data.x, y=data.y, train=train, test=test)
        program = str(Path(__file__).with_name("programs.py"))
        command = [str(python), program, method, str(work / "data.npz"), str(result), str(split)]
        environment = without_our_threads(environment)
        # Threads that wait for each other use processor time for nothing.
        environment |= {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    seconds, wall, status = timed(command, environment, limit, work / "log.txt")
    known |= {"cpu_seconds": seconds, "wall_seconds": wall, "cores": len(os.sched_getaffinity(0))}
    if limit is not None and seconds >= limit - 1:
        return {**known, "over_limit": True}
    if status:
        said = last_line(work / "log.txt")
        print(f"{data.name}, split {split}: {method} failed: {said}", flush=True)
        return None
    if method in OURS:
        return {**known, **_with_a_number(_ours(work / "fit", data, split))}
    return {**known, **_with_a_number(json.loads(result.read_text()))}


def _with_a_number(found: dict[str, Any]) -> dict[str, Any]:
    """Return scores as they are stored where the log score is no finite number.

    NaN says that predictions are, and no score means anything; of an infinite one its sign is told,
    and the others stand.
    """
    score = found["log_score"]
    if np.isnan(score):
        return {"is_nan": True}
    if np.isfinite(score):
        return found
    others = {name: value for name, value in found.items() if name != "log_score"}
    return {**others, "infinite_log_score": str(float(score))}


def _left(stored: Stored, name: str) -> float:
    of_set = [one for one in stored.values() if (one["set"], one["method"]) == (name, "bde")]
    code = _code_of("bde")
    return SECONDS_A_SET - sum(one["cpu_seconds"] for one in of_set if one.get("code") == code)


def _ours(folder: Path, data: Table, split: int) -> dict[str, Any]:
    """Read what `fit` found, on rows that are checked to be those of the others."""
    found = json.loads((folder / "scores.json").read_text())
    train, test = rows_of(len(data.y), split)
    y = data.y
    if data.name in CLASSES:
        counts = dict(zip(found["classes"], np.sum(found["confusion"], axis=1), strict=True))
        is_same = counts == {f"class {c}": np.sum(y[test] == c) for c in np.unique(y)}
        result = {"accuracy": found["accuracy"]}
    else:
        expected = np.sqrt(np.mean((y[test] - y[train].mean()) ** 2))
        is_same = np.isclose(expected, found["rmse_of_the_mean"], rtol=1e-4)
        result = {"rmse": found["rmse"], "coverage": found["coverage"]}
    if not is_same:
        raise InputError("`jaxbnn fit` holds out other rows than this benchmark: rows_of is stale.")
    more = {name: found[name] for name in ("sampler", "rhat", "ess_bulk") if name in found}
    return {**result, "log_score": found["log_score"], **more}


def _told(found: dict[str, Any]) -> str:
    if "over_limit" in found:
        return f"over the limit of {SECONDS_A_SET} core-seconds a set"
    if "is_nan" in found:
        return f"its predictions are NaN, after {found['cpu_seconds']:.0f} CPU s"
    score = found.get("infinite_log_score") or f"{found['log_score']:.3f}"
    return f"log score {score} in {found['cpu_seconds']:.0f} CPU s"


def _rows(results: list[dict[str, Any]]) -> list[Row]:
    names = ("log_score", "rmse", "accuracy", "coverage", "cpu_seconds")
    return [
        Row(name, f"{one['set']}, split {one['split']}, {one['method']}{age}", one[name])
        for one in results
        for age in [age_of(one, _code_of(one["method"]))]
        for name in names
        if name in one and not NO_MEASUREMENT & one.keys()
    ]
