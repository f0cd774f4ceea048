"""Which sampler `auto` takes: each of them on sets of several sizes, by its log score.

    python -m experiments benchmark samplers --set write_table=true

The data sets are not among those of `benchmark command` and `benchmark ensembles`, so that nothing
is chosen on their test rows; classes are thirds of a number. Each fit, by the estimators with their
default settings, runs in a process of its own, whose processor time is limited to what two cores
do in five minutes. Results are stored one by one, also in `record/benchmarks/samplers.json`, from
which any machine goes on; what is stored is not run again unless it failed, or is of an earlier
state of the code and `--set again=true` asks for it. A sampler that is over the limit is not run
with more rows of the set, and what is stored of these does not count.
"""

import itertools
from functools import partial
from pathlib import Path
from typing import Any

from experiments.benchmarks import check_known
from experiments.benchmarks.peers import run_module
from experiments.benchmarks.samplers import fit
from experiments.benchmarks.samplers.fit import KINDS, SETS
from experiments.benchmarks.stored import (
    FOLDER,
    Stored,
    age_of,
    by_one_code,
    say_how_many_are_earlier,
)
from experiments.record.code import code_digest
from experiments.results import Row, written_whole

SAMPLERS = ("nuts", "ensemble", "dvi")
ROWS = (200, 800, 3200)
# Two cores for five minutes.
SECONDS = 600
ROOT = Path(__file__).parents[3]
TABLE = ROOT / "jaxbnn" / "tabular" / "samplers.toml"
KEPT = FOLDER / "samplers.json"


def run(
    out_dir: Path,
    *,
    sets: tuple[str, ...] | list[str] = SETS,
    kinds: tuple[str, ...] | list[str] = KINDS,
    rows: tuple[int, ...] | list[int] = ROWS,
    samplers: tuple[str, ...] | list[str] = SAMPLERS,
    again: bool = False,
    write_table: bool = False,
) -> list[Row]:
    """Fit what is not stored yet; one row a number of each set, kind, size and sampler.

    Parameters
    ----------
    out_dir
        Where results are stored.
    sets, kinds, samplers
        Some of SETS, KINDS and SAMPLERS.
    rows
        Numbers of training rows.
    again
        Whether to run what is stored of an earlier state of the code again.
    write_table
        Whether to write `jaxbnn/tabular/samplers.toml` from all that is stored.
    """
    check_known(sets, SETS)
    check_known(kinds, KINDS)
    check_known(samplers, SAMPLERS)
    stored = Stored(out_dir / "stored", KEPT)
    stored.keep()  # what was stored when this was stopped
    for size, name, kind, sampler in itertools.product(rows, sets, kinds, samplers):
        case = f"{kind}-{name}-{size}-{sampler}"
        if case in stored and not _is_due(stored[case], again):
            continue
        if _is_over_limit(stored.values(), kind, name, size, sampler):
            print(f"{case}: not run, for fewer rows were over the limit", flush=True)
            continue
        measure = partial(_measured, out_dir / "work" / case, kind, name, size, sampler)
        found = by_one_code(measure, _code)
        if found is not None:
            stored[case] = found
            stored.keep()
            print(f"{case}: {_told(found)}", flush=True)
    results, code = _that_count(stored.values()), _code()
    say_how_many_are_earlier(results, lambda one: code)
    if write_table:
        with written_whole(TABLE) as temporary:
            temporary.write_text(table_of(results, code), encoding="utf-8")
        print(TABLE)
    return [
        Row(
            quantity,
            f"{one['kind']}, {one['set']}, {one['rows']} rows, {one['sampler']}{age_of(one, code)}",
            one[quantity],
        )
        for one in results
        if "log_score" in one  # the seconds of others are of no fit
        for quantity in ("log_score", "cpu_seconds")
    ]


def _code() -> str:
    # No fit here chooses its sampler; the table that is made here is read by what chooses.
    return code_digest([fit.__name__], ("jaxbnn.tabular.choice",))[:16]


def _is_due(found: dict[str, Any], again: bool) -> bool:
    """Whether a fit is run though it is stored: one that failed and, `again`, one of other code."""
    return "failed" in found or (again and found.get("code") != _code())


def _that_count(results: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the results but for those of more rows than were over the limit."""
    names = ("kind", "set", "rows", "sampler")
    return [one for one in results if not _is_over_limit(results, *(one[n] for n in names))]


def _is_over_limit(
    results: list[dict[str, Any]], kind: str, name: str, size: int, sampler: str
) -> bool:
    """Whether the sampler was over the limit with fewer rows of the same set."""
    case = {"kind": kind, "set": name, "sampler": sampler}
    return any(
        one.get("over_limit", False) and one["rows"] < size
        for one in results
        if case.items() <= one.items()
    )


def _measured(work: Path, kind: str, name: str, size: int, sampler: str) -> dict[str, Any]:
    """Fit once in a process; of one that fails return its last line."""
    ended = run_module(fit.__name__, (kind, name, size, sampler), work, SECONDS)
    known = {"kind": kind, "set": name, "rows": size, "sampler": sampler}
    known |= {"cpu_seconds": ended.seconds, "wall_seconds": ended.wall}
    if ended.seconds >= SECONDS - 1:
        return {**known, "over_limit": True}
    if ended.found is None:
        return {**known, "failed": ended.said}
    return {**known, **ended.found}


def _told(found: dict[str, Any]) -> str:
    if "over_limit" in found:
        return f"over the limit of {SECONDS} core-seconds"
    if "failed" in found:
        return f"failed: {found['failed']}"
    return f"log score {found['log_score']:.3f} in {found['cpu_seconds']:.0f} CPU s"


def table_of(results: list[dict[str, Any]], code: str) -> str:
    """Return the table as TOML: a case for each set and size, with what each sampler reached.

    A sampler that was over the limit, or failed, is not there; comments say which failed, and how
    many results are not of the digest `code`. A case without any sampler is left out.
    """
    lines = [
        "# By which `auto` chooses a sampler: mean log scores, in nats a test row (larger is",
        f"# better), and processor seconds of those that ended within {SECONDS}. Made by `python",
        "# -m experiments benchmark samplers --set write_table=true`, never by hand.",
    ]
    if old := sum(age_of(one, code) != "" for one in results):
        lines.append(f"# {old} of {len(results)} results are of an earlier state of the code.")
    lines += [
        f"# Not over the limit, but failed: {one['sampler']}, {one['kind']} of {one['set']}, "
        f"{one['rows']} rows."
        for one in results
        if "failed" in one
    ]
    cases: dict[tuple[str, int, str], dict[str, Any]] = {}
    for one in results:
        case = cases.setdefault((one["kind"], one["rows"], one["set"]), {})
        if "log_score" in one:
            reached = f"{{log_score = {one['log_score']:.4f}, seconds = {one['cpu_seconds']:.0f}}}"
            case[one["sampler"]] = reached
            case["parameters"] = one["parameters"]
    for (kind, size, name), case in sorted(cases.items()):
        if not case:
            continue
        lines += ["", "[[case]]", f'kind = "{kind}"', f'set = "{name}"', f"rows = {size}"]
        lines.append(f"parameters = {case['parameters']}")
        lines += [f"{s} = {case[s]}" for s in SAMPLERS if s in case]
    return "\n".join(lines) + "\n"
