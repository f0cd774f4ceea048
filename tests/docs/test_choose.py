"""The figures of docs/choose.md are those of the record."""

import json
import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
RECORD = ROOT / "record" / "thermalization" / "faster" / "paper" / "metrics.json"
MODES = ROOT / "record" / "ensembles" / "modes" / "desk" / "metrics.json"
TEXT = (ROOT / "docs" / "choose.md").read_text(encoding="utf-8")
ARMS = {
    "plain Gibbs": "plain",
    "`sample_annealed`": "all",
    "`sample_annealed(..., turns_every=50)`": "all and turns",
}
CASE = "Delta = 1e-4, noisy labels"


def recorded(quantity, setting, path=RECORD):
    rows = json.loads(path.read_text(encoding="utf-8"))["rows"]
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


@pytest.mark.parametrize(
    ("chains", "steps", "arm"),
    [("ten", "40,000", "longer"), ("a hundred", "20,000", "long"), ("ten", "80,000", "longest")],
)
def test_the_gain_by_longer_chains_is_the_record_s(chains, steps, arm):
    said = " ".join(TEXT.split())
    found = re.search(rf"{chains} chains of {steps} steps[^;.]*? give [^;]*?(\.\d{{3}})", said)
    number = {"ten": 10, "a hundred": 100}[chains]
    assert found is not None
    assert float(found[1]) == round(recorded("lppd", f"{arm}, {number} chains", MODES), 3)
    # Half of the steps find the place, and a hundred draws are the other half.
    settings = tomllib.loads((ROOT / "configs/ensembles/modes.toml").read_text(encoding="utf-8"))
    (of_arm,) = [one for one in settings["arms"] if one["name"] == arm]
    assert of_arm["num_chains"] == number
    assert of_arm["most_steps"] + 100 * of_arm["trajectory_steps"] == int(steps.replace(",", ""))
