"""What `summary` says of chains that hold copies of draws, and of acceptances that are NaN."""

import numpy as np

from jaxbnn.diagnostics import summary

TITLE = "chains that are copies, in `summary`"


def measure():
    """Warnings and bulk ESS of 4 chains of 500 draws."""
    rng = np.random.default_rng(0)
    plain = rng.normal(size=(4, 500, 2)).astype(np.float32)
    two, every, half, lagged = (plain.copy() for _ in range(4))
    two[2] = two[0]
    every[1:] = every[:1]
    half[:, 250:] = half[:, :250]
    lagged[1, 60:] = -lagged[3, :-60]
    cases = {
        "four good chains": plain,
        "two of four equal": two,
        "all four equal": every,
        "second halves repeat the first": half,
        "one a lagged copy of another, signs flipped": lagged,
    }
    rows = []
    for name, draws in cases.items():
        table = summary(draws)
        said = _first(table.warnings)
        rows.append((name, f"bulk ESS {table.ess_bulk.min():.0f}; {said}"))
    rate = np.full((4, 500), np.nan)
    rows.append(("acceptance NaN", _first(summary(plain, acceptance_rate=rate).warnings)))
    still = plain.copy()
    still[..., 1] = np.arange(4)[:, None]
    still[2] = still[2, :1]
    told = [w for w in summary(still).warnings if "never changed" in w]
    rows.append(("a coordinate that never changes, beside a frozen chain", _first(told)))
    return rows


def _first(warnings):
    return warnings[0] if warnings else "silent"
