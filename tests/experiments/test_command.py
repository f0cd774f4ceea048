"""Tests of experiments.__main__, experiments.commands and experiments.errors: the command: what it
lists, runs, refuses and writes.
"""

import importlib.util
import json
import os
import re
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

import experiments.benchmarks
import experiments.studies
from experiments.__main__ import main
from experiments.results import file_digest, held

ROOT = Path(__file__).parents[2]
# Of programs that it takes from a cache XLA may tell on stderr.
ENVIRONMENT = {**os.environ, "JAX_ENABLE_COMPILATION_CACHE": "false"}

STUDY = """
import matplotlib.pyplot as plt
import numpy as np
from pydantic import Field
from experiments.errors import InputError
from experiments.study import Context, Experiment, Row, Settings

class CountSettings(Settings):
    num_samples: int = Field(gt=0)
    fail: str = ""

def run(settings, context):
    calls = []
    def compute():
        calls.append(1)
        return {"mean": np.arange(settings.num_samples).mean(), "calls": np.ones(3)}
    stored = context.stage("counting", compute)
    if settings.fail == "sentence":
        raise InputError("The data are not here.")
    if settings.fail == "interrupt":
        raise KeyboardInterrupt
    if settings.fail == "escape":
        context.save_table("../escaped", ["a"], [[1]])
    with context.timed("counting", steps=settings.num_samples):
        figure, axes = plt.subplots()
        axes.plot(stored["calls"])
    context.save_figure("figure_1", figure)
    context.save_table("extra", ["name", "value"], [["computed", len(calls)]])
    context.save_draws("draws", ({"w": np.ones((2, 3))}, ()))
    return [
        Row("mean", "counting", stored["mean"], np.float32(0.5)),
        Row("computed", "now", len(calls)),
        Row("ess_min", "MALA, prior N(10, 3I)", float("nan"), None, "004 Table 1"),
    ]

EXPERIMENTS = {"count": Experiment(CountSettings, run)}
"""

CONFIG = """
study = "counting"
name = "first"
experiment = "count"
description = "counts"
num_samples = 11
[smoke]
num_samples = 3
[desk]
"""


@pytest.fixture
def study(tmp_path, monkeypatch):
    """A study and a benchmark of our own, discovered by file name as the real ones are."""
    for package, name, text in [
        (experiments.studies, "counting", STUDY),
        (experiments.benchmarks, "timing", "def run(out_dir, *, repeats=1):\n    return None\n"),
    ]:
        folder = tmp_path / package.__name__
        folder.mkdir()
        (folder / f"{name}.py").write_text(text)
        monkeypatch.setattr(package, "__path__", [*package.__path__, str(folder)])
    config = tmp_path / "first.toml"
    config.write_text(CONFIG)
    yield config
    for name in ("experiments.studies.counting", "experiments.benchmarks.timing"):
        sys.modules.pop(name, None)


def run(*arguments):
    return main([str(argument) for argument in arguments])


def test_a_run_writes_everything_to_its_own_directory(study, tmp_path, capsys):
    out = tmp_path / "out"
    assert run(study, "--scale", "smoke", "--out", out, "--seed", "7") == 0
    directory = out / "counting" / "first" / "smoke"
    written = {path.relative_to(directory).as_posix() for path in directory.rglob("*.*")}
    assert written == {
        "metrics.json",
        "run.json",
        "ledger.json",
        "table.md",
        "extra.md",
        "draws.npz",
        "figure_1.png",
        "stages/counting.npz",
    }
    metrics = json.loads((directory / "metrics.json").read_text())
    assert (metrics["experiment"], metrics["scale"], metrics["seed"]) == (
        "counting/first",
        "smoke",
        7,
    )
    assert metrics["rows"][0] == {
        "quantity": "mean",
        "setting": "counting",
        "value": 1.0,
        "standard_error": 0.5,
        "paper": None,
        "source": None,
    }
    assert metrics["rows"][2]["value"] is None
    assert metrics["rows"][2]["paper"] == 28982
    about = json.loads((directory / "run.json").read_text())
    assert set(about["versions"]) == {
        *("python", "jax", "jaxlib", "blackjax", "numpyro", "jaxbnn"),
        *("optax", "numpy", "scipy"),
    }
    assert about["settings"] == {"num_samples": 3, "fail": ""}
    assert about["steps_per_second"]["counting"] > 0
    assert {"devices", "backend", "platform", "cores", "date", "wall_seconds"} <= set(about)
    assert set(about["files"]) == {"extra.md", "draws.npz", "figure_1.png"}
    assert about["files"]["extra.md"] == file_digest(directory / "extra.md")
    printed = capsys.readouterr().out
    assert (directory / "table.md").read_text() in printed
    assert str(directory / "figure_1.png") in printed


def test_resume_reuses_a_stage_of_the_same_run_only(study, tmp_path, capsys):
    def computed(*arguments):
        assert run(study, "--out", tmp_path / "out", *arguments) == 0
        rows = json.loads((tmp_path / "out/counting/first/desk/metrics.json").read_text())["rows"]
        return rows[1]["value"]

    assert computed() == 1
    assert computed() == 1
    assert computed("--resume") == 0
    assert computed("--resume", "--seed", "1") == 1
    assert computed("--resume", "--seed", "1", "--set", "num_samples=5") == 1
    assert computed("--resume", "--seed", "1", "--set", "num_samples=5") == 0
    capsys.readouterr()


def test_a_kept_stage_is_read_back_unless_it_is_not_wanted(study, tmp_path, monkeypatch, capsys):
    def computed(out, *options):
        assert run(study, "--out", tmp_path / out, *options) == 0
        rows = json.loads((tmp_path / out / "counting/first/desk/metrics.json").read_text())["rows"]
        return rows[1]["value"]

    computed("here")
    stages = tmp_path / "here/counting/first/desk/stages"
    monkeypatch.setattr("experiments.commands.kept_stages", lambda name, scale: stages)
    assert computed("fresh") == 1
    assert computed("other", "--resume", "--without-kept") == 1
    capsys.readouterr()
    assert computed("there", "--resume") == 0
    assert "Stage counting is kept in the repository." in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--scale", "smok"], ["'smok'", "did you mean 'smoke'"]),
        (["--scale", "paper"], ["no table [paper]"]),
        (["--seed", "-1"], ["--seed", "-1"]),
        (["--seed", "one"], ["--seed", "one"]),
        (["--sead", "1"], ["--sead"]),
        (["--set", "num_sample=1"], ["'num_sample'", "did you mean 'num_samples'"]),
        (["--set", "fail=sentence"], ["The data are not here."]),
        (["--set", "fail=escape"], ["'../escaped'", "file name"]),
        (["more"], ["no second argument", "'more'"]),
        (["--out", "first.toml"], ["output directory", "--out"]),
    ],
)
def test_a_bad_call_is_one_sentence_and_exit_code_2(study, capsys, monkeypatch, arguments, words):
    monkeypatch.chdir(study.parent)
    assert run("first.toml", *arguments) == 2
    assert_one_sentence(capsys.readouterr().err, words)
    assert not (study.parent / "results" / "escaped.md").exists()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["nothing.toml"], ["no config file", "nothing.toml"]),
        (["lst"], ["lst", "list, report, benchmark, record"]),
        ([], ["what"]),
        (["benchmark"], ["Benchmark needs a name"]),
        (["benchmark", "timng"], ["'timng'", "did you mean 'timing'"]),
        (["benchmark", "timing", "--set", "repeat=2"], ["'repeat'", "did you mean 'repeats'"]),
        (["benchmark", "timing", "--set", "repeats=two"], ["a whole number", "'two'"]),
        (["benchmark", "timing", "--set", "repeats=true"], ["a whole number", "True"]),
        (["report", "nowhere"], ["no directory", "nowhere"]),
        (["record", "--out", "results"], ["Record takes no --out", "record results"]),
        (["list", "--scale", "smoke"], ["List takes no --scale", "takes no options"]),
        (["report", "--resume", "--seed", "1"], ["no --seed and no --resume", "takes --out"]),
        (["report", "here", "--out", "there"], ["one folder", "'here' or --out"]),
        (["keep", "--set", "a=1"], ["Keep takes no --set"]),
        (["anew", "--scale", "smoke"], ["Anew takes no --scale", "--out and --resume"]),
        (["benchmark", "timing", "--seed", "3"], ["no --seed", "--set and --out"]),
        (["first.toml", "--without-kept"], ["--without-kept", "--resume"]),
    ],
)
def test_bad_commands_are_one_sentence(study, capsys, monkeypatch, arguments, words):
    monkeypatch.chdir(study.parent)
    assert run(*arguments) == 2
    assert_one_sentence(capsys.readouterr().err, words)


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ('"counting"', '"countin"', ["'countin'", "did you mean 'counting'", "first.toml"]),
        ('"count"', '"conut"', ["'conut'", "did you mean 'count'", "first.toml"]),
        ('"first"', '"../../first"', ["'name'", "first.toml"]),
    ],
)
def test_a_config_that_asks_for_what_is_not_there(study, capsys, old, new, words):
    study.write_text(CONFIG.replace(old, new))
    assert run(study, "--out", study.parent / "out") == 2
    assert_one_sentence(capsys.readouterr().err, words)
    assert not (study.parent / "out").exists()


def test_an_interrupted_run_says_so_and_leaves_no_metrics(study, tmp_path, capsys):
    assert run(study, "--out", tmp_path / "out", "--set", "fail=interrupt") == 130
    assert "--resume" in capsys.readouterr().err
    assert not list((tmp_path / "out").rglob("metrics.json"))
    assert not list((tmp_path / "out").rglob("*.part*"))


def test_a_benchmark_runs_with_its_options(study, tmp_path, capsys):
    assert run("benchmark", "timing", "--set", "repeats=2", "--out", tmp_path / "out") == 0
    about = json.loads((tmp_path / "out/benchmarks/timing/run.json").read_text())
    assert about["settings"] == {"repeats": 2}
    capsys.readouterr()


def test_report_reads_what_runs_wrote(study, tmp_path, capsys):
    out = tmp_path / "out"
    assert run(study, "--scale", "smoke", "--out", out) == 0
    capsys.readouterr()
    assert run("report", out) == 0
    printed = capsys.readouterr().out
    assert printed == (out / "report.md").read_text()
    assert "counting/first, scale smoke" in printed


def test_a_missing_extra_is_named_with_what_to_install(monkeypatch, capsys):
    found = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name == "pydantic" else found(name)
    )
    assert run("list") == 2
    message = capsys.readouterr().err
    assert_one_sentence(message, ["pydantic", "pip install -e '.[experiments]'"])


def test_the_command_starts_without_the_extras_as_a_program():
    # None in sys.modules: not to be found and not to be imported.
    program = textwrap.dedent("""
        import runpy, sys
        sys.modules["pydantic"] = sys.modules["matplotlib"] = None
        sys.argv = ["experiments", "list"]
        runpy.run_module("experiments", run_name="__main__")
    """)
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=ROOT,
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert_one_sentence(done.stderr, ["pydantic, matplotlib", "pip install"])


@pytest.mark.parametrize("reason", ["No space left on device", "Permission denied"])
def test_results_that_cannot_be_written_are_one_sentence(
    study, tmp_path, capsys, monkeypatch, reason
):
    out = tmp_path / "out"
    assert run(study, "--scale", "smoke", "--out", out) == 0
    before = {path: path.read_bytes() for path in out.rglob("*.*") if path.is_file()}

    def refuse(old, new):
        raise OSError(0, reason)

    monkeypatch.setattr("experiments.results.os.replace", refuse)
    capsys.readouterr()
    assert run(study, "--scale", "smoke", "--out", out, "--seed", "8") == 2
    assert_one_sentence(capsys.readouterr().err, [f"cannot be written ({reason})", "--out"])
    assert {path: path.read_bytes() for path in out.rglob("*.*") if path.is_file()} == before


def test_two_runs_do_not_share_a_folder(study, tmp_path, capsys):
    folder = tmp_path / "out" / "counting" / "first" / "smoke"
    folder.mkdir(parents=True)
    with held(folder):
        assert run(study, "--scale", "smoke", "--out", tmp_path / "out") == 2
    assert_one_sentence(capsys.readouterr().err, ["Another run is writing to"])
    assert not list(folder.iterdir())


@pytest.mark.long
@pytest.mark.parametrize(
    ("module", "content", "more"),
    [
        ("experiments", b"study = ", []),
        ("experiments", b"<!DOCTYPE html>", ["--scale", "smoke"]),
        ("jaxbnn", b"<!DOCTYPE html>", ["--target", "y"]),
        ("jaxbnn", bytes(100), ["--target", "y"]),
    ],
)
def test_from_a_shell_bad_files_are_one_sentence(tmp_path, module, content, more):
    path = tmp_path / "file"
    path.write_bytes(content)
    arguments = ["fit", str(path)] if module == "jaxbnn" else [str(path)]
    done = subprocess.run(
        [sys.executable, "-m", module, *arguments, *more],
        cwd=ROOT,
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    # `fit` says what it reads before it can tell what is wrong with it, and for how long it does.
    told = [line for line in done.stderr.splitlines() if not re.match(r"reading[:,] ", line)]
    assert len(told) == 1, done.stderr
    assert [entry.name for entry in tmp_path.iterdir()] == ["file"]


def assert_one_sentence(text, words):
    assert text.count("\n") == 1, text
    assert text.rstrip("\n").endswith((".", "?")), text
    missing = [word for word in words if word not in text]
    assert not missing, text
