"""How often the test of covariances is wrong where they agree, and how often it finds what is not.

`python -m tests.diagnostics.calibration --report docs/covariance_agreement.md` writes the tables
(some twenty minutes of two cores); `--runs 100` is a glance at them. Lines that `--log` holds, from
a run that was stopped, are not measured again.
"""

import argparse
from datetime import UTC, datetime
from pathlib import Path

import numpy as np

from experiments.record.ledger import current_commit
from tests.diagnostics.covariance_laws import CHANGES, MODES, NORMAL, OTHERS, p_values

CHAINS, LENGTH = 4, 1000
HEADER = ["p", "draws", "compared with", "data sets", "P(p < .01)", "P(p < .05)", "5/50/95 % of p"]
WITH = {"chains": "each other", "matrix": "the true matrix", "draws": "as many other draws"}
TEXT = """# Covariance agreement: level and power

Made by `python -m tests.diagnostics.calibration --report docs/covariance_agreement.md` on {date},
commit {commit}: each data set has {chains} chains of {length} draws, ten blocks a chain. A share of
0.05 is known to .007 from 1,000 data sets (one standard error).

`covariance_agreement` refuses to give a p-value where the effective draws are fewer than five times
the p coordinates, or three a block.

## Where the covariances agree

A p-value should be uniform then, with P(p < .05) = .05. Draws are normal, independent or AR(1) with
the coefficient told: P(p < .05) is {null_mean} on average over the lines without refusals, and at
most {null_most}.

{null}

Other laws: the same, each normal number x replaced by a standard exponential, by sinh(x / 2)
(kurtosis 7) or by sinh(x) (kurtosis 40): without refusals {others_mean} on average and at most
{others_most}. Where a part of the data sets is refused, effective draws are near three a block for
the others too, and skewed blocks leave P(p < .05) as high as {refused_most}.

{others}

## Where one chain of four is wrong

P(p < .05) between chains of normal draws, {few} data sets each.

{power}
"""


def null_table(laws, dims, runs, done):
    """One line a number of coordinates, law and mode."""
    rows = [HEADER]
    for dim in dims:
        for number, (name, law) in enumerate(laws.items()):
            for mode in MODES:
                start = [str(dim), name, WITH[mode]]
                rng = np.random.default_rng([dim, number, MODES.index(mode), len(laws)])
                rows.append(done.get(tuple(start)))
                if rows[-1] is None:
                    p = p_values(rng, law, (CHAINS, LENGTH, dim), mode, runs)
                    rows[-1] = [*start, str(runs), *_shares(p)]
                print(" | ".join(rows[-1]), flush=True)
    return rows


def power_table(runs):
    """One line a fault and law, a column a number of coordinates."""
    dims = (3, 10, 27)
    rows = [["fault", "draws", *(f"p = {dim}" for dim in dims)]]
    for what, change in CHANGES.items():
        for number, (name, law) in enumerate(NORMAL.items()):
            row = [what, name]
            for dim in dims:
                rng = np.random.default_rng([dim, number, len(what)])
                p = p_values(rng, law, (CHAINS, LENGTH, dim), "chains", runs, change)
                row.append(f"{np.mean(p < 0.05):.3f}")
            rows.append(row)
            print(" | ".join(row), flush=True)
    return rows


def _logged(path):
    """Lines of an earlier run, by what they are of."""
    if path is None:
        return {}
    cells = [line.split(" | ") for line in path.read_text().splitlines()]
    return {tuple(row[:3]): row for row in cells if len(row) == len(HEADER)}


def _shares(p):
    judged = p[~np.isnan(p)]
    if judged.size == 0:
        return ["refused"] * 3
    note = f" ({np.isnan(p).mean():.0%} refused)" if judged.size < p.size else ""
    quantiles = " / ".join(f"{q:.2f}" for q in np.quantile(judged, [0.05, 0.5, 0.95]))
    return [f"{np.mean(judged < 0.01):.3f}", f"{np.mean(judged < 0.05):.3f}{note}", quantiles]


def _levels(rows):
    """P(p < .05) of the lines without refusals, and of those with some."""
    cells = [row[5] for row in rows[1:] if row[5] != "refused"]
    without = [float(cell) for cell in cells if "refused" not in cell]
    return without, [float(cell.split()[0]) for cell in cells if "refused" in cell]


def _table(rows):
    lines = ["| " + " | ".join(row) + " |" for row in rows]
    return "\n".join([lines[0], "|" + " --- |" * len(rows[0]), *lines[1:]])


def main():
    """Write the report."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--report", type=Path, required=True)
    parser.add_argument("--runs", type=int, default=1000)
    parser.add_argument("--few", type=int, default=200, help="data sets of each fault")
    parser.add_argument("--log", type=Path, help="what an earlier run printed")
    options = parser.parse_args()
    commit = current_commit(10)
    done = _logged(options.log)
    power = power_table(options.few)
    others = null_table(OTHERS, (3, 27), options.runs, done)
    normal = null_table(NORMAL, (3, 10, 27, 60), options.runs, done)
    (of_normal, _), (of_others, refused) = _levels(normal), _levels(others)
    text = TEXT.format(
        null_mean=f"{np.mean(of_normal):.3f}",
        null_most=f"{max(of_normal):.3f}",
        others_mean=f"{np.mean(of_others):.3f}",
        others_most=f"{max(of_others):.3f}",
        refused_most=f"{max(refused, default=0.0):.3f}",
        date=datetime.now(UTC).date().isoformat(),
        commit=commit,
        few=options.few,
        chains=CHAINS,
        length=LENGTH,
        null=_table(normal),
        others=_table(others),
        power=_table(power),
    )
    options.report.write_text(text)


if __name__ == "__main__":
    main()
