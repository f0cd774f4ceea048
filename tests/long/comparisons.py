"""The comparisons of the long tests: what was tested, at what size, with which p-values.

Where JAXBNN_TEST_RECORD names a file, each comparison appends a line to it; `python -m tests.long`
sets it and makes a table of the lines.
"""

import json
import math
import os
from pathlib import Path

VARIABLE = "JAXBNN_TEST_RECORD"


def record(comparison, effective_sizes) -> None:
    """Append one comparison to the file named by JAXBNN_TEST_RECORD, if it is set.

    The p-value is the bound of the DKW inequality, times the number of test functions;
    `effective_sizes` has n, or n / 2 where two samples are compared, for each of them.
    """
    path = os.environ.get(VARIABLE)
    if not path:
        return
    count = len(comparison.distances)
    bounds = [
        2 * count * math.exp(-2 * effective_sizes[name] * distance**2)
        for name, distance in comparison.distances.items()
    ]
    line = {
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


def table(lines: list[dict]) -> str:
    """Return the comparisons as Markdown: kernels that must pass, mutants that must not."""
    text = [
        "## Comparisons of distribution functions",
        "",
        f"{len(lines)} comparisons of empirical with exact distribution functions. The p-value is",
        "the DKW bound over all test functions of the comparison (1 where the bound says nothing);",
        "`finds` is the sup-distance that the comparison finds with probability 1 - 1e-6. A false",
        "alarm has probability 1e-6. Rows marked *found* are mutants, or other kernels that are",
        "wrong on purpose.",
        "",
        "| test | chains | functions | finds | largest distance | p-value | outcome |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    for line in sorted(lines, key=lambda line: line["test"]):
        outcome = "passes" if line["passes"] else "*found*"
        text.append(
            f"| {line['test'].replace('|', ' ')} | {line['chains']:,} | {line['functions']} | "
            f"{line['finds']} | {line['largest_distance']} | {line['p_value']:.2g} | {outcome} |"
        )
    return "\n".join(text) + "\n"
