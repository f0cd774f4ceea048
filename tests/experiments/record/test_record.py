"""Tests of experiments.record: which runs are taken, and the whole record made anew."""

import json
import shutil
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pytest

from experiments.__main__ import main
from experiments.errors import InputError
from experiments.record import (
    RECORD,
    config_settings,
    kept_stages,
    ledger,
    record_runs,
    recorded_runs,
    settings_digest,
)
from experiments.record.anew import make_anew
from experiments.record.code import BIAS_TABLE
from experiments.record.ledger import WRITTEN, current_commit
from experiments.record.pictures import MOST_BYTES
from experiments.results import Row, file_digest, write_results

NAME = "challenges/figure1"


def name_files(folder, *names):
    """Put files of a run into its run.json, as the command does."""
    run = json.loads((folder / "run.json").read_text())
    run["files"] = {name: file_digest(folder / name) for name in names}
    (folder / "run.json").write_text(json.dumps(run))


def test_of_two_runs_of_one_config_none_is_lost(finished, tmp_path):
    results = finished()
    shutil.copytree(results / NAME, results / "again" / NAME)
    with pytest.raises(InputError, match=f"are both of {NAME} at scale desk"):
        record_runs(results, tmp_path / "record")
    assert not (tmp_path / "record").exists()


def test_results_may_lie_in_a_folder_of_any_name(finished, tmp_path):
    results = finished().rename(tmp_path / "benchmarks")
    assert record_runs(results, tmp_path / "record")


def test_a_file_that_the_run_did_not_write_is_refused(finished, tmp_path):
    """A later run, stopped before its end, has drawn pictures into the folder of a finished one."""
    folder = finished() / NAME / "desk"
    (folder / "traces.md").write_text("of the config")
    name_files(folder, "traces.md")
    (folder / "traces.md").write_text("of other settings")
    with pytest.raises(InputError, match=r"traces\.md is not the file that the finished run wrote"):
        record_runs(folder, tmp_path / "record")
    run = json.loads((folder / "run.json").read_text())
    del run["files"]
    (folder / "run.json").write_text(json.dumps(run))
    with pytest.raises(InputError, match="does not name the run's files"):
        record_runs(folder, tmp_path / "record")
    assert not (tmp_path / "record").exists()


def test_a_record_that_would_grow_too_large_stays_as_it_is(finished, tmp_path, monkeypatch):
    results, record = finished(), tmp_path / "record"
    (folder,) = record_runs(results, record)
    before = (folder / "run.json").read_text()
    (results / NAME / "desk" / "long.md").write_text("x" * 9000)
    name_files(results / NAME / "desk", "long.md")
    monkeypatch.setattr("experiments.record.MOST_BYTES", 8000)
    with pytest.raises(InputError, match="would grow"):
        record_runs(results, record)
    assert [path.name for path in folder.parent.iterdir()] == ["desk"]
    assert (folder / "run.json").read_text() == before
    # What a killed process left half written is no run.
    (folder.parent / ".desk.part").mkdir()
    (folder.parent / ".desk.part" / "run.json").write_text("{")
    assert [where for where, _ in recorded_runs(record)] == [folder]


@pytest.mark.long
def test_a_finished_run_is_recorded_with_a_small_picture(finished, tmp_path):
    results = finished()
    noise = np.random.default_rng(0).normal(size=(700, 900, 3))
    plt.imsave(results / NAME / "desk" / "loud.png", np.clip(noise, 0, 1))
    name_files(results / NAME / "desk", "loud.png")
    (results / NAME / "desk" / "of_an_earlier_run.png").touch()
    (results / NAME / "desk" / "stages").mkdir()
    old = tmp_path / "record" / NAME / "desk" / "old.png"
    old.parent.mkdir(parents=True)
    old.touch()
    (folder,) = record_runs(results, tmp_path / "record")
    assert folder == old.parent
    names = {path.name for path in folder.iterdir()}
    assert names == {"metrics.json", "run.json", "table.md", "loud.png"}
    assert (folder / "loud.png").stat().st_size <= MOST_BYTES
    assert plt.imread(folder / "loud.png").shape[0] > 100


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"settings": {"num_points": 3}}, ["other settings", "num_points", "--set"]),
        ({"seed": 77}, ["seed 77", "--seed"]),
        ({"scale": "smoke"}, ["smoke run"]),
        ({"commits": None, "code": None}, []),
    ],
)
def test_what_is_no_run_of_the_config_is_refused(finished, tmp_path, changes, words):
    results = finished(**changes)
    if not words:
        path = results / NAME / "desk" / "run.json"
        run = json.loads(path.read_text())
        del run["commits"], run["code"]
        path.write_text(json.dumps(run))
        words = ["commits, code", "again"]
    with pytest.raises(InputError) as refused:
        record_runs(results, tmp_path / "record")
    assert all(word in str(refused.value) for word in words)
    assert not (tmp_path / "record").exists()


@pytest.mark.parametrize("is_changed", [True, False])
def test_a_run_with_a_setting_changed_or_lacking_is_refused(is_changed, finished, tmp_path):
    results = finished()
    path = results / NAME / "desk" / "run.json"
    run = json.loads(path.read_text())
    name = min(run["settings"])
    del run["settings"][name]
    run["settings"] |= {name: "another"} if is_changed else {}
    path.write_text(json.dumps(run))
    with pytest.raises(InputError, match=rf"other settings than .* \({name}\)"):
        record_runs(results, tmp_path / "record")


def test_stages_of_a_run_go_when_it_is_recorded(finished, tmp_path):
    record = tmp_path / "record"
    for scale in ("desk", "paper"):
        kept_stages(NAME, scale, record).mkdir(parents=True)
    record_runs(finished(), record)
    assert not kept_stages(NAME, "desk", record).exists()
    assert kept_stages(NAME, "paper", record).exists()


def test_stages_of_unfinished_runs_take_no_room_of_the_record(finished, tmp_path, monkeypatch):
    record = tmp_path / "record"
    kept = kept_stages("challenges/xor", "desk", record)
    kept.mkdir(parents=True)
    (kept / "chains.npz").write_bytes(bytes(9000))
    monkeypatch.setattr("experiments.record.MOST_BYTES", 8000)
    assert record_runs(finished(), record)


def test_the_whole_record_is_made_anew_and_goes_on_where_it_stopped(finished, tmp_path, capsys):
    record, out = tmp_path / "record", tmp_path / "out"
    results = finished()
    with pytest.raises(InputError, match="Nothing is recorded"):
        make_anew(out, resume=False, record=record)
    record_runs(results, record)
    asked = []

    def run(arguments):
        asked.append(arguments)
        folder = Path(arguments[arguments.index("--out") + 1]) / NAME
        folder.mkdir(parents=True)
        rows = [{"quantity": "made", "setting": "anew", "value": len(asked)}]
        (results / NAME / "desk" / "metrics.json").write_text(json.dumps({"rows": rows}))
        (results / NAME / "desk").rename(folder / "desk")
        return 0

    make_anew(out, resume=True, record=record, run=run)
    assert "1 runs, which took 2.0 CPU hours." in capsys.readouterr().out
    config, *options = asked[0]
    assert config.endswith("configs/challenges/figure1.toml")
    # Of this commit, so that no stage of other code is read back.
    folder = f"{out}/anew-{current_commit(10, but=WRITTEN)}"
    assert options == ["--scale", "desk", "--out", folder, "--resume", "--without-kept"]
    found = json.loads((record / NAME / "desk" / "metrics.json").read_text())
    assert found["rows"][0]["setting"] == "anew"

    def fail(arguments):
        asked.append(arguments)
        return 1

    with pytest.raises(InputError, match=r"figure1 at scale desk failed; .* With --resume"):
        make_anew(out, resume=False, record=record, run=fail)
    assert not {"--resume", "--without-kept"} & set(asked[-1])


def test_a_benchmark_is_recorded_by_its_own_folder(tmp_path):
    folder = tmp_path / "results" / "benchmarks" / "runner"
    write_results(
        folder,
        experiment="benchmarks/runner",
        scale=None,
        seed=None,
        rows=[Row("ratio", "one case", 0.98)],
        run={"settings": {"num_pairs": 3}},
        paper_values={},
    )
    with pytest.raises(InputError, match="There is no finished run"):
        record_runs(tmp_path / "results", tmp_path / "record")
    (written,) = record_runs(folder, tmp_path / "record")
    assert written == tmp_path / "record" / "benchmarks" / "runner"
    assert {path.name for path in written.iterdir()} == {"metrics.json", "run.json", "table.md"}
    assert not list(recorded_runs(tmp_path / "record"))  # no page of a paper is about it


def test_anew_takes_no_settings(capsys):
    assert main(["anew", "--set", "num_points=3"]) == 2
    assert "takes no --set: it runs configs as they stand" in capsys.readouterr().err


def test_what_recording_writes_is_no_change_of_the_code(tmp_path, monkeypatch):
    monkeypatch.setattr(ledger, "ROOT", tmp_path)
    for words in (
        ["init", "-q"],
        ["-c", "user.name=a", "-c", "user.email=a@b", "commit", "-q", "--allow-empty", "-m", "a"],
    ):
        ledger._git(*words)
    for name in ("record/a.json", BIAS_TABLE, "code.py"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("1")
    ledger._git("add", "record", BIAS_TABLE)
    assert current_commit(but=WRITTEN) == current_commit()[:-1]
    ledger._git("add", "code.py")
    assert current_commit(but=WRITTEN).endswith("+")


def test_a_folder_without_runs_is_refused_by_the_command(tmp_path, capsys):
    assert main(["record", str(tmp_path)]) == 2
    assert "no finished run" in capsys.readouterr().err


def test_the_record_is_what_the_configs_say():
    for folder, run in recorded_runs():
        settings, seed = config_settings(run["experiment"], run["scale"])
        assert run["settings"] == settings, folder
        assert run["settings_digest"] == settings_digest(settings), folder
        assert run["seed"] == seed, folder
        assert folder == RECORD / run["experiment"] / run["scale"]
