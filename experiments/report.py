"""The report: our numbers beside the papers', and what is missing.

A value is WITHIN when |ours - paper| <= 3 sqrt(se_ours^2 + error_paper^2) + h, with h half
a unit of the last digit that the paper prints (its rounding), and OUTSIDE otherwise. Above a lower
bound that the paper prints a value is WITHIN.
"""

import json
import math
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from experiments.errors import InputError
from experiments.paper_numbers import PaperValue
from experiments.results import RowKey, markdown_table
from experiments.spreads import spreads_of

RULE = (
    "WITHIN: |ours - paper| <= 3 sqrt(standard error^2 + paper's error^2) + half a unit of the "
    "paper's last printed digit, or ours lies above a printed lower bound; OUTSIDE: not. Where the "
    "paper prints the number of one run and no error, the spread of ours over several runs, where "
    "we made several, stands for its error. NO ERROR: our row has no standard error, so it is "
    "not judged. NO VALUE: not a finite number. NOT PRINTED: the row names a place in a paper, but "
    "no value is transcribed under its quantity and setting. MISSING: a result that a paper "
    "prints and no run has. The pages in docs/reproduction call a number WITHIN only if our "
    "standard error is small enough, and IMPRECISE if it is not."
)
STATES = ("WITHIN", "OUTSIDE", "NO ERROR", "NO VALUE", "NOT PRINTED")


def full_report(directory: Path, paper_values: Mapping[RowKey, PaperValue]) -> str:
    """Return the Markdown report on every metrics.json below `directory`.

    Totals first, then one table a run, then the papers' results that no run has.
    """
    runs = [_read_metrics(path) for path in sorted(directory.glob("*/*/*/metrics.json"))]
    seen: set[RowKey] = set()
    totals: dict[str, Counter[str]] = {}
    sections = []
    for run in runs:
        lines = []
        spreads = spreads_of(run["rows"])
        for row in run["rows"]:
            key = (row["source"] or "", row["quantity"], row["setting"])
            paper = paper_values.get(key)
            seen.add(key)
            states = judge(row, paper, spreads.get((row["quantity"], row["setting"])))
            totals.setdefault(run["scale"], Counter()).update(["rows", *states])
            lines.append(_line(row, paper, states))
        title = f"## {run['experiment']}, scale {run['scale']}, seed {run['seed']}\n\n"
        sections.append(title + markdown_table(HEADER, lines))

    results = {key: value for key, value in paper_values.items() if value.kind == "result"}
    missing = [value for key, value in results.items() if key not in seen]
    text = "# Our numbers and the papers'\n\n"
    text += _totals(totals, len(runs), len(results), len(missing)) + f"\n{RULE}\n\n"
    text += "\n".join(sections)
    if missing:
        lines = [[v.source, v.quantity, v.setting, v.value, v.error, "MISSING"] for v in missing]
        header = ["source", "quantity", "setting", "paper", "error", "state"]
        text += "\n## MISSING\n\n" + markdown_table(header, lines)
    return text


HEADER = ["quantity", "setting", "ours", "std error", "paper", "error", "ratio", "state", "source"]


def judge(
    row: Mapping[str, Any], paper: PaperValue | None, spread: float | None = None
) -> list[str]:
    """Return the states of one row of metrics.json (see RULE); none where nothing is said.

    `spread` is that of one run's number, which stands for an error that the paper does not print.
    """
    states = []
    if row["value"] is None:
        states.append("NO VALUE")
    elif row["standard_error"] is None:
        states.append("NO ERROR")
    elif paper is not None:
        of_paper = (spread or 0.0) if paper.error is None else paper.error
        error = math.hypot(row["standard_error"], of_paper)
        # A hair more, because 0.15 - 0.1 is not 0.05 in binary.
        limit = (3.0 * error + paper.half_digit) * (1.0 + 1e-9)
        off = row["value"] - paper.value
        within = abs(off) <= limit or (paper.bound == "lower" and off > 0)
        states.append("WITHIN" if within else "OUTSIDE")
    if row["source"] and paper is None:
        states.append("NOT PRINTED")
    return states


def _line(row: Mapping[str, Any], paper: PaperValue | None, states: list[str]) -> list[Any]:
    ratio = None
    if paper is not None and paper.value != 0 and row["value"] is not None:
        ratio = row["value"] / paper.value
    return [
        row["quantity"],
        row["setting"],
        row["value"],
        row["standard_error"],
        paper.value if paper else None,
        paper.error if paper else None,
        None if ratio is None else f"{ratio:.3f}",
        ", ".join(states),
        row["source"],
    ]


def _totals(totals: Mapping[str, Counter[str]], runs: int, results: int, missing: int) -> str:
    lines = [
        [scale, count["rows"], *(count[state] for state in STATES)]
        for scale, count in totals.items()
    ]
    text = f"{runs} runs. Of {results} results that the papers print, {missing} are MISSING.\n\n"
    return text + (markdown_table(["scale", "rows", *STATES], lines) if lines else "")


def _read_metrics(path: Path) -> Any:
    try:
        metrics = json.loads(path.read_text(encoding="utf-8"))
        for row in metrics["rows"]:
            for name in ("quantity", "setting", "value", "standard_error", "source"):
                row[name]
        return {name: metrics[name] for name in ("experiment", "scale", "seed", "rows")}
    except (ValueError, KeyError, TypeError) as error:
        raise InputError(f"{path} is no metrics file of this command ({error!r}).") from None
