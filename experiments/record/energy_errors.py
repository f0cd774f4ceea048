"""`jaxbnn/diagnostics/energy_errors.toml`: by what unadjusted draws are off, from the record.

Of the study `ensembles/bias` the rows of the Gaussian are taken, whose moments are known.
"""

import json
from pathlib import Path
from typing import Any

from experiments.config import SCALES
from experiments.record import RECORD, ROOT, recorded_runs
from experiments.record.code import BIAS_TABLE
from experiments.results import written_whole

TABLE = ROOT / BIAS_TABLE
STUDY = "ensembles/bias"
_SETTING = "gaussian, energy error "
_HEAD = """\
# By which share variances of unadjusted draws are too small, at an energy error a dimension. Made
# by `python -m experiments record` from record/ensembles/bias, never by hand.
"""


def write_bias_table(record: Path = RECORD, path: Path = TABLE) -> list[Path]:
    """Write the table and return its path; nothing where the study is not recorded."""
    text = bias_table(record)
    if text is None:
        return []
    with written_whole(path) as temporary:
        temporary.write_text(text, encoding="utf-8")
    return [path]


def bias_table(record: Path = RECORD) -> str | None:
    """Return the table as TOML, of the largest scale; None where the study is not recorded."""
    folders = {
        run["scale"]: folder for folder, run in recorded_runs(record) if run["experiment"] == STUDY
    }
    if not folders:
        return None
    largest = max(folders, key=SCALES.index)
    metrics = json.loads((folders[largest] / "metrics.json").read_text(encoding="utf-8"))
    measured: dict[str, dict[str, Any]] = {}
    for row in metrics["rows"]:
        if row["setting"].startswith(_SETTING):
            measured.setdefault(row["setting"], {})[row["quantity"]] = row
    found = sorted(
        (
            one["energy_error"]["value"],
            one["variance_ratio"]["value"],
            one["variance_ratio"]["standard_error"],
        )
        for one in measured.values()
    )
    return _HEAD + "".join(_entry(*one) for one in found)


def _entry(energy_error: float, ratio: float, standard_error: float) -> str:
    return (
        "\n[[measured]]\n"
        f"energy_error = {energy_error:.3g}\n"
        f"share = {1 - ratio:.3g}\n"
        f"standard_error = {standard_error:.3g}\n"
    )
