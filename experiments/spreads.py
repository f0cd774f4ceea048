"""The spread of one run's number, where a run was made several times: a row beside the number's.

A paper that prints the number of one run, and no error, has an error all the same: that spread.
"""

from collections.abc import Iterable, Mapping
from typing import Any


def spread_name(quantity: str) -> str:
    """Return the quantity of the row that holds a number's standard deviation over seeds."""
    return f"{quantity}_sd_of_one_seed"


def spreads_of(rows: Iterable[Mapping[str, Any]]) -> dict[tuple[str, str], float]:
    """Return the spreads among the rows of a `metrics.json`, by (quantity of it, setting)."""
    ending = spread_name("")
    return {
        (row["quantity"].removesuffix(ending), row["setting"]): row["value"]
        for row in rows
        if row["quantity"].endswith(ending) and row["value"] is not None
    }
