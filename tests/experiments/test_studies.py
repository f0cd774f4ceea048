"""Tests of experiments.studies.thermalization: every study runs from its config to its files: one
config in the short tests, all in the long.
"""

import json
from pathlib import Path

import pytest

from experiments.__main__ import main

# The function-space study prints fractions, not per cent: test_function_space.py runs its configs.
# Variational inference has no chains to print R-hat of: test_deterministic_vi.py runs its configs.
CONFIGS = sorted(
    path
    for path in (Path(__file__).parents[2] / "configs").glob("*/*.toml")
    if path.parent.name not in ("deterministic_vi", "function_space")
)
# One config a study; that of `challenges` is run, and resumed, by the last test of this file.
SHORT = {"thermalization/figure1"}
# The papers print no number that these measure.
BEYOND_THE_PAPERS = {
    "challenges/evidence",
    "challenges/first_look",
    "challenges/iris_converged",
    "ensembles/between_modes",
    "ensembles/bias",
    "ensembles/exactness",
    "ensembles/metric",
    "ensembles/modes",
    "thermalization/activations",
    "thermalization/deep",
    "thermalization/faster",
    "thermalization/faster_deltas",
    "thermalization/figure2_left",
    "thermalization/figure4",
    "thermalization/starts_cnn",
    "thermalization/starts_cnn_logits",
    "thermalization/starts_mlp",
    "thermalization/starts_mlp_logits",
}
# Gradient descents, and runs whose chains are compared by what they reach: no R-hat.
WITHOUT_RHAT = {
    "challenges/figure1",
    "ensembles/between_modes",
    "ensembles/bias",
    "ensembles/metric",
    "ensembles/modes",
    "thermalization/figure2_left",
    "thermalization/figure2_merging",
    "thermalization/figure2_right",
    "thermalization/starts_cnn",
    "thermalization/starts_cnn_logits",
    "thermalization/starts_mlp",
    "thermalization/starts_mlp_logits",
}

pytestmark = pytest.mark.third_party(reason="BlackJAX's kernels, adaptation and NUTS")


def _name(path):
    return f"{path.parent.name}/{path.stem}"


def _params():
    for path in CONFIGS:
        marks = [] if _name(path) in SHORT else [pytest.mark.long]
        yield pytest.param(path, id=_name(path), marks=marks)


@pytest.mark.parametrize("config", list(_params()))
def test_smoke_run_writes_numbers_and_pictures(config, tmp_path, capsys, sets_or_skip):
    assert main([str(config), "--scale", "smoke", "--seed", "3", "--out", str(tmp_path)]) == 0
    folder = tmp_path / config.parent.name / config.stem / "smoke"
    metrics = json.loads((folder / "metrics.json").read_text())
    assert metrics["seed"] == 3
    assert metrics["scale"] == "smoke"
    rows = metrics["rows"]
    keys = {"quantity", "setting", "value", "standard_error", "paper", "source"}
    assert rows
    assert all(set(row) == keys for row in rows)
    in_paper = any(row["paper"] is not None for row in rows)
    assert in_paper == (_name(config) not in BEYOND_THE_PAPERS)
    rates = [row for row in rows if row["source"] and row["quantity"] == "acceptance_rate"]
    assert all(1 < row["value"] < 100 for row in rates)  # per cent, as the paper prints it
    assert all(picture.stat().st_size > 5_000 for picture in folder.glob("*.png"))
    assert list(folder.glob("*.png"))
    run = json.loads((folder / "run.json").read_text())
    assert run["versions"]["jax"]
    assert run["cpu_seconds"] > 0
    assert len(run["code"]) == len(run["commits"]) == 1
    printed = capsys.readouterr().out
    assert "table.md" in printed
    assert ("R-hat" in printed) == (_name(config) not in WITHOUT_RHAT)


@pytest.mark.long
def test_a_resumed_run_computes_only_what_is_missing(tmp_path):
    config = next(path for path in CONFIGS if _name(path) == "challenges/figure1")
    arguments = [str(config), "--scale", "smoke", "--out", str(tmp_path)]
    assert main(arguments) == 0
    folder = tmp_path / "challenges" / "figure1" / "smoke"
    first = json.loads((folder / "metrics.json").read_text())
    stages = sorted((folder / "stages").glob("*.npz"))
    kept = {path: path.stat().st_mtime_ns for path in stages[:-1]}
    stages[-1].unlink()
    assert main([*arguments, "--resume"]) == 0
    assert {path: path.stat().st_mtime_ns for path in kept} == kept
    assert json.loads((folder / "metrics.json").read_text()) == first
    assert any(row["paper"] is not None for row in first["rows"])
    assert all(picture.stat().st_size > 5_000 for picture in folder.glob("*.png"))
