"""Tables to be read: a line for each thing compared, a column for each number."""

import math
from collections.abc import Mapping, Sequence

from experiments.study import Row


def by_setting(
    rows: Sequence[Row], what: str, columns: Mapping[str, str]
) -> tuple[list[str], list[list[str]]]:
    """Return the header and the lines: a setting a line, quantities by the header of their column.

    Settings without any of the quantities have no line. Numbers to three digits, with their
    standard error where there is one; a dash where a setting has none of this quantity.

    Examples
    --------
    >>> rows = [Row("lppd", "yacht", 0.5, 0.1), Row("seconds", "yacht", 3.0), Row("n", "boston", 1)]
    >>> by_setting(rows, "data", {"lppd": "LPPD", "rhat": "R-hat"})
    (['data', 'LPPD', 'R-hat'], [['yacht', '0.5 ± 0.1', '-']])
    """
    found: dict[str, dict[str, str]] = {}
    for row in rows:
        if row.quantity in columns:
            found.setdefault(row.setting, {})[row.quantity] = cell(row)
    lines = [
        [setting, *(numbers.get(quantity, "-") for quantity in columns)]
        for setting, numbers in found.items()
    ]
    return [what, *columns.values()], lines


def cell(row: Row) -> str:
    """Return a number to three digits, and its standard error to two, where they are known.

    Examples
    --------
    >>> cell(Row("lppd", "yacht", 0.12345, 0.0123)), cell(Row("cpu_seconds", "yacht", 1234.5))
    ('0.123 ± 0.012', '1234')
    >>> cell(Row("cpu_seconds", "yacht", 999.6))
    '1000'
    """
    if not math.isfinite(row.value):
        return "-"
    value = f"{row.value:.0f}" if abs(row.value) >= 999.5 else f"{row.value:.3g}"
    error = row.standard_error
    is_known = error is not None and math.isfinite(error)
    return f"{value} ± {error:.2g}" if is_known else value
