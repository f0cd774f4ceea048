"""The record of a long run: which statements were tested, at what size, with which p-values.

`JAXBNN_TEST_RECORD=record.jsonl pytest -m long` appends one line a comparison, with the commit
it ran at; `python -m tests.kit.report record.jsonl > tests/LONG.md` writes the table that is
committed.
"""

import functools
import json
import math
import os
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path


def record(comparison, effective_sizes) -> None:
    """Append one comparison to the file named by JAXBNN_TEST_RECORD, if it is set.

    The p-value is the bound of the DKW inequality, times the number of test functions;
    `effective_sizes` has n, or n / 2 where two samples are compared, for each of them.
    """
    path = os.environ.get("JAXBNN_TEST_RECORD")
    if not path:
        return
    count = len(comparison.distances)
    bounds = [
        2 * count * math.exp(-2 * effective_sizes[name] * distance**2)
        for name, distance in comparison.distances.items()
    ]
    line = {
        "commit": _commit(),
        "date": datetime.now(UTC).date().isoformat(),
        "test": os.environ.get("PYTEST_CURRENT_TEST", "").removesuffix(" (call)"),
        "chains": comparison.num_chains,
        "functions": count,
        "finds": round(comparison.detectable, 5),
        "largest_distance": round(max(comparison.distances.values()), 5),
        "p_value": min(1.0, min(bounds)),
        "passes": comparison.passes,
    }
    with Path(path).open("a", encoding="utf-8") as file:
        file.write(json.dumps(line) + "\n")


@functools.cache
def _commit() -> str:
    command = ["git", "rev-parse", "--short", "HEAD"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def table(lines: list[dict]) -> str:
    """Return the Markdown of a run's record: kernels that must pass, mutants that must not."""
    commits = " and ".join(sorted({line["commit"] for line in lines}))
    date = min(line["date"] for line in lines)
    text = [
        "# The long tests",
        "",
        f"`pytest -m long` on {date} at commit {commits}: {len(lines)} comparisons of empirical",
        "with exact distribution functions. The p-value is the DKW bound over all test functions",
        "of the comparison (1 where the bound says nothing); `finds` is the sup-distance that the",
        "comparison finds with probability 1 - 1e-6. A false alarm has probability 1e-6. Rows",
        "marked *found* are mutants, or other kernels that are wrong on purpose.",
        "",
        "| test | chains | functions | finds | largest distance | p-value | outcome |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    for line in lines:
        outcome = "passes" if line["passes"] else "*found*"
        text.append(
            f"| {line['test'].replace('|', ' ')} | {line['chains']:,} | {line['functions']} | "
            f"{line['finds']} | {line['largest_distance']} | {line['p_value']:.2g} | {outcome} |"
        )
    return "\n".join(text) + "\n"


if __name__ == "__main__":
    records = Path(sys.argv[1]).read_text(encoding="utf-8").splitlines()
    print(table(sorted(map(json.loads, records), key=lambda line: line["test"])), end="")
