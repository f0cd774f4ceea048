"""Tests of experiments.guides: the guides run from the first cell to the last, and end in a
picture.
"""

import os
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

GUIDES = sorted((Path(__file__).parents[2] / "experiments" / "guides").glob("*.py"))
QUICK = ("thermalized",)
NEEDS_DATA = ("regression", "wide_network")
OWN_PROCESS = ("devices_and_checkpoints",)  # says how many devices there are before JAX starts

pytestmark = pytest.mark.third_party(reason="users run without strict checks")


@pytest.mark.parametrize(
    "guide",
    [
        pytest.param(guide, id=guide.stem, marks=() if guide.stem in QUICK else pytest.mark.long)
        for guide in GUIDES
    ],
)
def test_guide_runs_at_smoke_scale(guide, tmp_path, monkeypatch):
    if guide.stem in NEEDS_DATA and "JAXBNN_DATA" not in os.environ:
        pytest.skip("set JAXBNN_DATA to the folder of the data sets to run this guide")
    pytest.importorskip("matplotlib").use("Agg")
    monkeypatch.setenv("JAXBNN_SCALE", "smoke")
    monkeypatch.setenv("JAXBNN_OUT", str(tmp_path))
    assert guide.read_text().startswith("# %% [markdown]\n# # ")
    if guide.stem in OWN_PROCESS:
        monkeypatch.setenv("MPLBACKEND", "Agg")
        done = subprocess.run([sys.executable, guide], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        assert "8 devices" in done.stdout
        assert "identical to the run that was not stopped: True" in done.stdout
    else:
        runpy.run_path(str(guide), run_name="__main__")
        pytest.importorskip("matplotlib.pyplot").close("all")
    picture = tmp_path / f"{guide.stem}.png"
    assert picture.read_bytes()[:4] == b"\x89PNG"
    assert picture.stat().st_size > 10_000


def test_there_are_guides():
    assert {guide.stem for guide in GUIDES} >= {
        *QUICK,
        *OWN_PROCESS,
        "own_kernel",
        "dvi_against_mcmc",
    }
