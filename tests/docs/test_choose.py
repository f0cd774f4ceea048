"""The figures of docs/choose.md are those of the record."""

import json
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
RECORD = ROOT / "record" / "thermalization" / "faster" / "paper" / "metrics.json"
TEXT = (ROOT / "docs" / "choose.md").read_text(encoding="utf-8")
ARMS = {
    "plain Gibbs": "plain",
    "`sample_annealed`": "all",
    "`sample_annealed(..., turns_every=50)`": "all and turns",
}
CASE = "Delta = 1e-4, noisy labels"


def recorded(quantity, setting):
    rows = json.loads(RECORD.read_text(encoding="utf-8"))["rows"]
    (value,) = [r["value"] for r in rows if (r["quantity"], r["setting"]) == (quantity, setting)]
    return value


@pytest.mark.parametrize(("line", "arm"), ARMS.items())
def test_the_shares_of_thermalized_chains_are_the_record_s(line, arm):
    (cells,) = [row.split("|") for row in TEXT.splitlines() if row.startswith(f"| {line} |")]
    seconds = []
    for start, cell in zip(("zero", "prior"), cells[2:4], strict=True):
        setting = f"{arm}, {start} start, {CASE}"
        share = recorded("share_thermalized", setting)
        assert cell.strip() == f"{32 * share:.0f} of 32"
        seconds.append(8000 * recorded("seconds_per_iteration", setting))
    assert int(cells[4]) == round(sum(seconds) / 2)


def test_the_largest_rhat_is_the_record_s():
    stated = re.search(r"is at\s+most (1\.\d+)\.", TEXT)
    found = recorded("rhat_worst", f"all and turns, {CASE}, 2 chains a start")
    assert stated is not None
    assert float(stated[1]) == round(found, 4)
    assert recorded("share_rhat_below_1.01", f"all and turns, {CASE}, 2 chains a start") == 1
