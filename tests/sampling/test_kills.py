"""Runs killed without warning; see `kills.py`, which counts where the kills fell."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("number", [2, pytest.param(200, marks=pytest.mark.long)])
def test_a_killed_run_goes_on_bit_for_bit(tmp_path, number):
    command = [sys.executable, "-m", "tests.sampling.kills", f"--number={number}"]
    log = tmp_path / "kills.log"
    finished = subprocess.run(
        [*command, f"--log={log}"], cwd=ROOT, env=os.environ | {"TMPDIR": str(tmp_path)},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert finished.returncode == 0, finished.stdout + finished.stderr
    rows = [json.loads(line) for line in log.read_text().splitlines() if line.startswith("{")]
    assert len(rows) == number
    assert all(row["same"] and not row["lost"] for row in rows)
    if number == 200:
        writing = [row for row in rows if "write" in row["kind"] or row["kind"] == "in warm-up"]
        assert len(writing) >= 60
        assert sum(row["phase"] == "warm-up" for row in rows) >= 20
        assert sum(row["kind"].startswith("resumed") for row in rows) >= 20
