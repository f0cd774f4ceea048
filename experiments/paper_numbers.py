"""The numbers that the papers print.

They are in `experiments/paper_values/`, one TOML file a paper, as entries `[[value]]` with
`source`, `quantity`, `setting`, `value`, `kind` and perhaps `error`, `rounding`, `bound` and
`note`.
"""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

from experiments.errors import InputError
from experiments.results import RowKey

PAPER_VALUES = Path(__file__).parent / "paper_values"
KINDS = ("result", "quoted", "setting")


@dataclass(frozen=True)
class PaperValue:
    """One number that a paper prints; `half_digit` is half a unit of its last digit.

    `half_digit_of_error` is that of its error: 0.00 says no more than that it is less than .005.

    An entry's `rounding` stands in its place where the paper prints no digits: 0 for the limit of a
    theorem, a bound for words such as "close to 1".

    `bound` is "lower" where the paper prints a number that its own are above, else "".

    `kind` is "result" if an experiment of the paper measures the number, "quoted" if the paper
    takes it from others' publications, "setting" if an experiment is run with it.
    """

    source: str
    quantity: str
    setting: str
    value: float
    kind: str
    error: float | None = None
    half_digit: float = 0.0
    half_digit_of_error: float = 0.0
    note: str = ""
    bound: str = ""


def load_paper_values(directory: Path = PAPER_VALUES) -> dict[RowKey, PaperValue]:
    """Read all files of `directory`; InputError for a broken or repeated entry.

    Numbers are read as decimals, so that the precision they are printed with is known.
    """
    values: dict[RowKey, PaperValue] = {}
    for path in sorted(directory.glob("*.toml")):
        try:
            entries = tomllib.loads(path.read_text(encoding="utf-8"), parse_float=Decimal)
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise InputError(f"{path} is not TOML: {error}.") from None
        for index, entry in enumerate(entries.get("value", []), start=1):
            value = _paper_value(entry, f"{path}, value {index}")
            key = (value.source, value.quantity, value.setting)
            if key in values:
                raise InputError(f"{path}, value {index}: {' | '.join(key)} is there twice.")
            values[key] = value
    return values


def _paper_value(entry: Mapping[str, Any], where: str) -> PaperValue:
    required = {"source", "quantity", "setting", "value", "kind"}
    known = required | {"error", "rounding", "bound", "note"}
    if set(entry) - known or required - set(entry):
        wrong = sorted((set(entry) - known) | (required - set(entry)))
        raise InputError(f"{where}: unknown or missing key {', '.join(wrong)}.")
    for name in ("value", "error", "rounding"):
        number = entry.get(name, 0)
        if isinstance(number, bool) or not isinstance(number, int | Decimal):
            raise InputError(f"{where}: {name} must be a number, but is {number!r}.")
    if entry["kind"] not in KINDS:
        raise InputError(f"{where}: kind must be one of {', '.join(KINDS)}, not {entry['kind']!r}.")
    if entry.get("bound", "") not in ("", "lower"):
        raise InputError(f'{where}: bound must be "lower" or left out, not {entry["bound"]!r}.')
    printed = entry["value"]
    return PaperValue(
        source=entry["source"],
        quantity=entry["quantity"],
        setting=entry["setting"],
        value=float(printed),
        kind=entry["kind"],
        error=float(entry["error"]) if "error" in entry else None,
        half_digit=float(entry.get("rounding", _half_digit(printed))),
        half_digit_of_error=_half_digit(entry["error"]) if "error" in entry else 0.0,
        note=entry.get("note", ""),
        bound=entry.get("bound", ""),
    )


def _half_digit(printed: int | Decimal) -> float:
    """Return half a unit of the last digit that is printed.

    Examples
    --------
    >>> _half_digit(Decimal("2.50")), _half_digit(3)
    (0.005, 0.5)
    """
    exponent = printed.as_tuple().exponent if isinstance(printed, Decimal) else 0
    return 0.5 * 10.0**exponent if isinstance(exponent, int) else 0.0
