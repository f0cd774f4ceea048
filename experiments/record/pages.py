"""`docs/reproduction.md` and a page a paper: our numbers beside those that the papers print.

Made from the record, `experiments/paper_values/`, and three files of the record's own:
`reasons.toml` (why a number is OUTSIDE, NO ERROR, NO VALUE or NOT RUN), `assumed_settings.toml`
(settings that the papers do not print) and `names.toml` (what the names in a table stand for, and
which numbers our steps were tuned to).
"""

import functools
import json
import math
import tomllib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from experiments.config import SCALES, read_config
from experiments.errors import InputError
from experiments.paper_numbers import PaperValue, load_paper_values
from experiments.record import RECORD, ROOT, recorded_runs
from experiments.record.code import code_digest
from experiments.report import judge
from experiments.results import RowKey, markdown_table, written_whole
from experiments.spreads import spreads_of
from experiments.study import load_experiment

PAGES = ROOT / "docs" / "reproduction.md"
PAPERS = {
    "000": "Gibbs sampling with intermediate noise (Piccioli, Troiani, Zdeborová)",
    "001": "Function-space MCMC for wide networks (Pezzetti, Favaro, Peluchetti)",
    "002": "Deterministic variational inference (Wu et al.)",
    "004": "Challenges in MCMC for neural networks (Papamarkou et al.)",
}
STATES = ("WITHIN", "IMPRECISE", "OUTSIDE", "NO ERROR", "NO VALUE", "NOT RUN")
REASONED = ("OUTSIDE", "NO ERROR", "NO VALUE", "NOT RUN")
NAMES = "names.toml"
ASSUMED = "assumed_settings.toml"
# Of it: the entry, the title of its table, and the header of each key.
SETTINGS = (
    (
        "setting",
        "Settings that the papers do not print",
        {
            "paper": "paper",
            "setting": "setting",
            "value": "taken here",
            "from": "where it comes from",
            "effect": "what it changes",
        },
    ),
    (
        "departure",
        "Settings that are not as printed",
        {
            "paper": "paper",
            "setting": "setting",
            "printed": "printed",
            "value": "taken here",
            "why": "why",
        },
    ),
)
LEGEND = """\
* WITHIN: |ours - paper| is at most three times both errors together, plus half a unit of the
  paper's last digit; and our standard error, rounded to the digits of the paper's, is at most the
  paper's, or where the paper prints none 5 % of the value (of an R-hat: of its excess over 1). If
  the printed value is 0, our error may be half a unit of its last digit. Where a paper says in
  words what a number is close to, the last digit is that of two decimals (of an R-hat: of one); the
  limit of a theorem counts as exact, a zero by definition too, but for the rounding of our
  arithmetic; and above a lower bound that is printed every number is near. An error in brackets is
  ours: the paper prints one run without an error, we made several, and this is their standard
  deviation.
* IMPRECISE: not told apart from the paper's at our standard error, which is larger than that.
* OUTSIDE: farther away; the reason stands below the table.
* NO ERROR: our run states no standard error, or one that does not hold; why stands below the table.
* NO VALUE: our run found no finite number, or none that bears a comparison; why stands below the
  table.
* NOT RUN: no recorded run has it; why stands below the table.
* STALE: the code that made the run has changed since; checks of what is given, which may end a run
  but change no number, and when progress is looked at and told, do not count.
"""


@dataclass(frozen=True)
class Found:
    """One row of a recorded run: the row, the run's name and scale, whether its code changed.

    `spread` is that of the number over several runs, None where there is one.
    """

    row: Mapping[str, Any]
    run: str
    scale: str
    is_stale: bool
    spread: float | None


@dataclass(frozen=True)
class Entry:
    """One printed result with ours beside it, where there is one."""

    paper: PaperValue
    found: Found | None
    state: str
    reason: str | None


def write_pages(record: Path = RECORD, index: Path = PAGES) -> list[Path]:
    """Write the index and a page a paper beside it; return their paths."""
    paths = []
    for path, text in pages(record, index).items():
        path.parent.mkdir(parents=True, exist_ok=True)
        with written_whole(path) as temporary:
            temporary.write_text(text, encoding="utf-8")
        paths.append(path)
    return paths


def pages(record: Path = RECORD, index: Path = PAGES) -> dict[Path, str]:
    """Return the text of every page, by its path."""
    papers = load_paper_values().values()
    entries = _entries(record, papers)
    folder = index.with_suffix("")
    quoted = [paper for paper in papers if paper.kind == "quoted"]
    texts = {index: _index(entries, quoted, record, folder.name)}
    names = {one["paper"]: one["text"] for one in _read(record / NAMES, "names")}
    for paper, title in PAPERS.items():
        own = [entry for entry in entries if entry.paper.source.startswith(f"{paper} ")]
        texts[folder / f"{paper}.md"] = _page(paper, title, names, own, quoted)
    return texts


def state_of(row: Mapping[str, Any] | None, paper: PaperValue, spread: float | None = None) -> str:
    """Return which of STATES a printed result is in; `spread` as `judge` has it."""
    if row is None:
        return "NOT RUN"
    state = judge(row, paper, spread)[0]
    if state == "WITHIN" and row["standard_error"] > _most_error(paper):
        return "IMPRECISE"
    return state


def _most_error(paper: PaperValue) -> float:
    """Return the largest standard error that a number of ours may have, to be WITHIN.

    The paper's is a rounded one: what rounds to it is no larger.
    """
    if paper.error is not None:
        return paper.error + paper.half_digit_of_error
    is_rhat = paper.quantity.split("_")[0] in ("rhat", "psrf")
    size = abs(paper.value - 1.0 if is_rhat else paper.value)
    return 0.05 * size if size > 0 else paper.half_digit


def _entries(record: Path, papers: Iterable[PaperValue]) -> list[Entry]:
    found = _found(record)
    reasons = _reasons_of(record)
    entries = []
    for paper in papers:
        if paper.kind != "result":
            continue
        one = found.get((paper.source, paper.quantity, paper.setting))
        state = state_of(one.row, paper, one.spread) if one else state_of(None, paper)
        withheld = next((r for r in reasons if r.get("withheld") and _is_of(r, paper)), None)
        if one and withheld:
            state = withheld["state"]
        reason = _reason(reasons, paper, state) if state in REASONED else None
        entries.append(Entry(paper, one, state, reason))
    return entries


def _found(record: Path) -> dict[RowKey, Found]:
    """Return the recorded row of each key: of the largest scale, then of the smallest error.

    Runs made `without` an assumed setting say what it changes, and reproduce nothing.
    """
    found: dict[RowKey, Found] = {}
    order = {scale: index for index, scale in enumerate(SCALES)}
    without = {one.get("without") for one in _read(record / ASSUMED, "setting")}
    runs = sorted(recorded_runs(record), key=lambda pair: order[pair[1]["scale"]])
    for folder, run in runs:
        if run["experiment"] in without:
            continue
        has_changed = is_stale(run)
        metrics = json.loads((folder / "metrics.json").read_text(encoding="utf-8"))
        spreads = spreads_of(metrics["rows"])
        for row in metrics["rows"]:
            key = (row["source"] or "", row["quantity"], row["setting"])
            spread = spreads.get(key[1:])
            new = Found(row, run["experiment"], run["scale"], has_changed, spread)
            old = found.get(key)
            if old is None or old.scale != new.scale or _error(new) <= _error(old):
                found[key] = new
    return found


def _error(found: Found) -> float:
    """Return the standard error of a row; infinity where it has none."""
    error = found.row["standard_error"]
    return math.inf if error is None else error


def is_stale(run: Mapping[str, Any]) -> bool:
    """Whether the code that a recorded run used has changed since, at any of its resumptions."""
    return run["code"] != [current_code(run["experiment"])]


@functools.cache
def current_code(experiment: str) -> str:
    """Return the digest of the code that a run of `study/name` would use now."""
    config = read_config(ROOT / "configs" / f"{experiment}.toml")
    kind = load_experiment(config.study, config.experiment, str(config.path))
    return code_digest({kind.run.__module__, kind.settings.__module__})


def _read(path: Path, name: str) -> list[dict[str, str]]:
    if not path.exists():
        return []
    try:
        return tomllib.loads(path.read_text(encoding="utf-8")).get(name, [])
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InputError(f"{path} is not TOML: {error}.") from None


def _reason(reasons: Iterable[Mapping[str, str]], paper: PaperValue, state: str) -> str | None:
    """Return the first reason for a state that is one of this number."""
    found = (r["reason"] for r in reasons if r["state"] == state and _is_of(r, paper))
    return next(found, None)


def _reasons_of(record: Path) -> list[dict[str, str]]:
    """Return the entries of `reasons.toml`, each with a state that asks for a reason."""
    reasons = _read(record / "reasons.toml", "reason")
    for reason in reasons:
        if reason.get("state") not in REASONED:
            raise InputError(
                f"A reason of reasons.toml has state {reason.get('state')!r}; it must say which "
                f"it explains, one of {', '.join(REASONED)} ({reason['reason']})."
            )
    return reasons


def _is_of(reason: Mapping[str, str], paper: PaperValue) -> bool:
    """Whether the patterns of a reason match a number; one that is left out matches all."""
    fields = ("source", "quantity", "setting")
    return all(fnmatchcase(getattr(paper, f), reason.get(f, "*")) for f in fields)


def _index(
    entries: Sequence[Entry], quoted: Sequence[PaperValue], record: Path, folder: str
) -> str:
    beside = [entry for entry in entries if entry.found and entry.found.row["value"] is not None]
    states = Counter(entry.state for entry in beside)
    stale = sum(entry.found.is_stale for entry in beside if entry.found)
    not_run = sum(entry.found is None for entry in entries)
    tuned = _read(record / NAMES, "tuned")
    within = [entry.paper for entry in beside if entry.state == "WITHIN"]
    near = sum(any(_is_of(one, paper) for one in tuned) for paper in within)
    text = "# Reproduction\n\n"
    text += (
        f"{len(beside)} of {len(entries) + len(quoted)} results that the four papers print have a "
        f"number of ours beside them: {states['WITHIN']} WITHIN"
        f"{f' ({near} of them rates that steps were tuned to)' if near else ''}, "
        f"{states['IMPRECISE']} IMPRECISE, {states['OUTSIDE']} OUTSIDE, {states['NO ERROR']} NO "
        f"ERROR, {states['NO VALUE']} NO VALUE; {stale} of them are of a STALE run. Of "
        f"{len(entries) - len(beside) - not_run} the run found no number (NO VALUE, too), "
        f"{not_run} are NOT RUN, and {len(quoted)} are quoted from others' publications, of "
        "methods that the papers did not run. What a paper prints in several places counts in "
        f"each; by quantity, setting and value ours stand beside {_distinct(beside)} different "
        f"numbers.\n\n{LEGEND}\n"
    )
    lines = []
    for paper, title in PAPERS.items():
        own = [entry for entry in entries if entry.paper.source.startswith(f"{paper} ")]
        count = Counter(entry.state for entry in own)
        lines.append([f"[{paper}]({folder}/{paper}.md)", title, *(count[s] for s in STATES)])
    text += markdown_table(["paper", "", *STATES], lines)
    text += (
        "\nWhere several runs have a result, ours is of the one at the largest scale, and of those "
        "the one with the smallest standard error.\n"
        "\nMade by `python -m experiments record` from the files in `record/`, never by hand.\n"
    )
    return text + _runs(record) + _assumed(record)


def _distinct(entries: Iterable[Entry]) -> int:
    """Return how many numbers these are if what a paper prints in several places counts once."""
    papers = (entry.paper for entry in entries)
    return len({(p.source.split()[0], p.quantity, p.setting, p.value) for p in papers})


def _runs(record: Path) -> str:
    lines = []
    for _, run in recorded_runs(record):
        hours = run["cpu_seconds"] / 3600
        lines.append(
            [
                run["experiment"],
                run["scale"],
                run["seed"],
                ", ".join(commit[:7] + commit[40:] for commit in run["commits"] if commit),
                f"{hours:.2f}",
                "GPU" if run["backend"] == "gpu" else "",
                "STALE" if is_stale(run) else "",
            ]
        )
    if not lines:
        return "\n## The runs\n\nNone is recorded yet.\n"
    total = sum(float(line[4]) for line in lines)
    header = ["run", "scale", "seed", "commit", "CPU hours", "device", ""]
    text = (
        f"\n## The runs\n\n{total:.1f} CPU hours in all; what ran on a GPU would take many more "
        "without one. `python -m experiments anew` makes them again, one after the other. Their "
        "pictures and all their numbers are in `record/`. Runs at scale paper have the paper's "
        "sizes unless their configs say otherwise, or are of studies that no paper has; at scale "
        "desk they have what a few hours of two cores allow; + means that files differed from the "
        "commit.\n\n"
    )
    return text + markdown_table(header, lines)


def _assumed(record: Path) -> str:
    text = ""
    for entry, title, columns in SETTINGS:
        found = _read(record / ASSUMED, entry)
        if found:
            lines = [[one[key] for key in columns] for one in found]
            text += f"\n## {title}\n\n{markdown_table(list(columns.values()), lines)}"
    return text


def _page(
    paper: str,
    title: str,
    names: Mapping[str, str],
    entries: Sequence[Entry],
    quoted: Sequence[PaperValue],
) -> str:
    text = f"# Paper {paper}: {title}\n\n[What the states mean](../reproduction.md)\n\n"
    text += f"{names.get(paper, '')}\n"
    sections: dict[str, list[Entry]] = {}
    for entry in entries:
        sections.setdefault(entry.paper.source, []).append(entry)
    for source, own in sections.items():
        header = ["quantity", "setting", "ours", "error", "paper", "error", "state", "run"]
        text += f"\n## {source}\n\n" + markdown_table(header, [_line(entry) for entry in own])
        text += _reasons(own)
        others = [value for value in quoted if value.source == source]
        if others:
            methods = ", ".join(dict.fromkeys(value.setting.split(",")[0] for value in others))
            notes = ", ".join(dict.fromkeys(value.note for value in others))
            text += (
                f"\n{len(others)} more numbers are printed there, of methods that the paper did "
                f"not run ({methods}): {notes}.\n"
            )
    return text


def _line(entry: Entry) -> list[Any]:
    row = entry.found.row if entry.found else {"value": None, "standard_error": None}
    state = entry.state + (", STALE" if entry.found and entry.found.is_stale else "")
    run = f"{entry.found.run} {entry.found.scale}" if entry.found else None
    paper = entry.paper
    ours = [row["value"], row["standard_error"]]
    error: float | str | None = paper.error
    if error is None and entry.found is not None and entry.found.spread is not None:
        error = f"({entry.found.spread:.2g})"
    return [paper.quantity, paper.setting, *ours, paper.value, error, state, run]


def _reasons(entries: Sequence[Entry]) -> str:
    """Return the reasons of a section, each once, with the numbers that it is given for."""
    given: dict[tuple[str, str], list[PaperValue]] = {}
    for entry in entries:
        if entry.state in REASONED:
            reason = entry.reason or "No reason is known yet."
            given.setdefault((entry.state, reason), []).append(entry.paper)
    is_named = len({entry.paper.quantity for entry in entries}) > 1
    lines = []
    for (state, reason), papers in given.items():
        which = "all" if len(papers) == len(entries) else _which(papers, is_named=is_named)
        lines.append(f"* {state} ({which}): {reason}\n")
    return "\n" + "".join(lines) if lines else ""


def _which(papers: Sequence[PaperValue], *, is_named: bool) -> str:
    """Return the settings of some numbers, after their quantities where `is_named`."""
    by_quantity: dict[str, list[str]] = {}
    for paper in papers:
        by_quantity.setdefault(paper.quantity, []).append(paper.setting)
    texts = {name: "; ".join(dict.fromkeys(found)) for name, found in by_quantity.items()}
    if not is_named:
        return "; ".join(texts.values())
    return "; ".join(f"{name}: {text}" for name, text in texts.items())
