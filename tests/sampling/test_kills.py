"""Runs killed without warning; see `kills.py`, which counts where the kills fell."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.sampling.kill_program import DATA

ROOT = Path(__file__).parents[2]


# The short tests kill one of two processes (test_hosts.py).
@pytest.mark.long
@pytest.mark.parametrize("seed", [0, 1])
def test_a_killed_run_goes_on_bit_for_bit(tmp_path, seed):
    number = 20  # a run of each kind of data by one process, and one by two
    command = [sys.executable, "-m", "tests.sampling.kills", f"--number={number}"]
    command.append(f"--seed={seed}")
    log = tmp_path / "kills.log"
    finished = subprocess.run(
        [*command, f"--log={log}"], cwd=ROOT, env=os.environ | {"TMPDIR": str(tmp_path)},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert finished.returncode == 0, finished.stdout + finished.stderr
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    rows = [line for line in lines if "fell" in line]
    assert len(rows) == number
    assert all(row["same"] and not row["lost"] for row in rows)
    assert all(line["same"] for line in lines if "ended" in line)
    assert {line["ended"] for line in lines if "ended" in line} == set(DATA)
    assert len({row["data"] for row in rows}) >= 3  # a kill by the clock may come after the end
    assert {row["processes"] for row in rows} >= {1, 2}
    assert {row["phase"] for row in rows} == {"warm-up", "sampling"}
