"""What the stated errors, intervals and p-values of the library are worth, by simulation.

`python -m tests.diagnostics.null_laws --report tests/CALIBRATION.md` writes the table: some ten
minutes of one core. The p-values of `covariance_agreement` have a page of their own, by
`tests.diagnostics.calibration`.
"""

import argparse
import time
from datetime import UTC, datetime
from pathlib import Path

from experiments.record.ledger import current_commit
from tests.diagnostics import null_errors, null_predictions, null_tests

TEXT = """# Stated errors, intervals and p-values, and what they are worth

Made on {date}, commit {commit}, by

    python -m tests.diagnostics.null_laws --report tests/CALIBRATION.md

Each line is of many data sets of which the truth is known. "found" is a share of them, with its
binomial standard error; or, where 1 is nominal, the root mean square of the stated errors over that
of the true ones. "wanted" is the range that is asked of it: P(p < .05) from .03 to .07, the share
that a 90 % interval holds from .86 to .94, stated over true errors from .8 to 1.25, and a rate of
false alarms that is an upper bound at most 1.4 times that bound. Where no range stands, the library
claims nothing, for the reason told.

Of {count} lines with a range {outside} are outside it, {clear} by more than two of their errors.

{table}

Measurements that the command makes and this table does not hold: {missing}.

The shares of `covariance_agreement` in all its cells: [docs](../docs/covariance_agreement.md).
Functions that state no error are not in the table: the R-hats, `swap_acceptance`,
`equalise_rejections`, `autocorrelation`, `covariance_distance`, `expected_calibration_error` (which
says how far from 0 it is by chance), the distributions of `deterministic_vi` (which are
approximations by themselves).
"""
HEADER = ["function", "stated", "draws", "data sets", "nominal", "wanted", "found"]


def cells_of(row):
    """Cells of one row."""
    wanted = row.note or f"{row.low:g} to {row.high:g}"
    is_outside = not row.note and not row.low <= row.found <= row.high
    found = f"{row.found:.3f} ± {row.error:.3f}" + (" (outside)" if is_outside else "")
    start = [row.function, row.stated, row.law, str(row.runs), f"{row.nominal:g}"]
    return [*start, wanted, found]


def _is_clear(cells):
    """Whether a line is outside its range by more than two of its errors."""
    if "(outside)" not in cells[-1]:
        return False
    low, high = map(float, cells[-2].split(" to "))
    found, error = map(float, cells[-1].removesuffix(" (outside)").split(" ± "))
    return max(low - found, found - high) > 2 * error


def _logged(path):
    """Lines of earlier runs, by the measurement whose name stands after them."""
    found, lines = {}, []
    for text in path.read_text().splitlines() if path else []:
        if text.startswith("-- "):
            found[text.removeprefix("-- ").partition(":")[0]] = lines
            lines = []
        elif len(cells := text.split(" | ")) == len(HEADER):
            lines.append(cells)
    return found


def main():
    """Measure, print and write the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--report", type=Path)
    parser.add_argument("--runs", type=int, default=600)
    parser.add_argument("--only", default="", help="part of a measurement's name")
    parser.add_argument("--log", type=Path, help="what an earlier run printed: not measured again")
    parser.add_argument("--only-log", action="store_true", help="measure nothing else")
    options = parser.parse_args()
    commit, done = current_commit(10), _logged(options.log)
    lines, missing = [], []
    for part in (null_tests, null_errors, null_predictions):
        for name, measure in part.MEASURES.items():
            if options.only not in name or (options.only_log and name not in done):
                missing += [name]
                continue
            cpu, first = time.process_time(), len(lines)
            lines += done.get(name) or [cells_of(row) for row in measure(options.runs)]
            print("\n".join(" | ".join(cells) for cells in lines[first:]))
            print(f"-- {name}: {time.process_time() - cpu:.0f} s of CPU", flush=True)
    if options.report is None:
        return
    text = TEXT.format(
        date=datetime.now(UTC).date().isoformat(),
        commit=commit,
        outside=sum("(outside)" in cells[-1] for cells in lines),
        clear=sum(map(_is_clear, lines)),
        missing=", ".join(missing) or "none",
        count=sum(" to " in cells[-2] for cells in lines),
        table="\n".join(
            "| " + " | ".join(cells) + " |" for cells in [HEADER, ["---"] * len(HEADER), *lines]
        ),
    )
    options.report.write_text(text)


if __name__ == "__main__":
    main()
