"""Tests of experiments.record, its pages, pictures and ledger: what is taken, and what is said."""

import json
import shutil
import tomllib
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pytest

from experiments.__main__ import main
from experiments.errors import InputError
from experiments.paper_numbers import PaperValue, load_paper_values
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
from experiments.record.energy_errors import STUDY, TABLE, bias_table, write_bias_table
from experiments.record.ledger import WRITTEN, Ledger, current_commit
from experiments.record.pages import (
    PAGES,
    Entry,
    _entries,
    _is_of,
    _reasons_of,
    current_code,
    is_stale,
    pages,
    state_of,
)
from experiments.record.pictures import MOST_BYTES
from experiments.results import Row, file_digest, write_json, write_results
from experiments.spreads import spread_name
from experiments.study import Context

NAME = "challenges/figure1"


@pytest.fixture
def finished(tmp_path):
    """Return a function that writes a run of figure 1 as the command would, without running it."""

    def write(scale="desk", rows=(), **changes):
        settings, seed = config_settings(NAME, "desk")
        settings |= changes.pop("settings", {})
        run = {
            "settings": settings,
            "settings_digest": settings_digest(settings),
            "cpu_seconds": 7200.0,
            "commits": ["a" * 40],
            "code": [current_code(NAME)],
            "files": {},
        } | changes
        folder = tmp_path / "results" / NAME / scale
        folder.mkdir(parents=True)
        seed = run.pop("seed", seed)
        write_results(
            folder, experiment=NAME, scale=scale, seed=seed, rows=rows, run=run, paper_values={}
        )
        return tmp_path / "results"

    return write


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


def printed(value=1.0, error=None, half_digit=0.0, quantity="ess", half_digit_of_error=0.0):
    digits = {"half_digit": half_digit, "half_digit_of_error": half_digit_of_error}
    return PaperValue("004 Table 1", quantity, "a", value, "result", error, **digits)


def row(value, standard_error):
    return {"value": value, "standard_error": standard_error, "source": "004 Table 1"}


@pytest.mark.parametrize(
    ("ours", "paper", "state"),
    [
        (None, printed(), "NOT RUN"),
        (row(1.02, 0.05), printed(), "WITHIN"),
        (row(1.02, 0.051), printed(), "IMPRECISE"),
        (row(1.02, 0.1), printed(error=0.1), "WITHIN"),
        (row(1.02, 0.11), printed(error=0.1), "IMPRECISE"),
        (row(2.0, 0.1), printed(error=0.1), "OUTSIDE"),
        (row(1.0, None), printed(), "NO ERROR"),
        (row(None, 0.1), printed(), "NO VALUE"),
        (row(0.0, 0.0), printed(0.0), "WITHIN"),
        (row(0.0, 0.05), printed(0.0, half_digit=0.05), "WITHIN"),
        (row(0.0, 0.06), printed(0.0, half_digit=0.05), "IMPRECISE"),
        # Half a unit of a last digit is no licence for an error of our own.
        (row(9.0, 0.5), printed(9.0, half_digit=0.5), "IMPRECISE"),
        (row(9.0, 0.5), printed(9.0, error=0.1, half_digit=0.5), "IMPRECISE"),
        # An error of 0.00 is less than 0.005.
        (row(9.0, 0.004), printed(9.0, error=0.0, half_digit_of_error=0.005), "WITHIN"),
        (row(9.0, 0.006), printed(9.0, error=0.0, half_digit_of_error=0.005), "IMPRECISE"),
        # An R-hat of 1.2 says 0.2.
        (row(1.2, 0.009), printed(1.2, quantity="psrf_split"), "WITHIN"),
        (row(1.2, 0.011), printed(1.2, quantity="psrf_split"), "IMPRECISE"),
        (row(1.2, 0.011), printed(1.2, quantity="rhat"), "IMPRECISE"),
    ],
)
def test_near_is_not_enough_where_our_own_error_is_large(ours, paper, state):
    assert state_of(ours, paper) == state


@pytest.mark.parametrize(
    ("ours", "paper", "spread", "state"),
    [
        (row(1.24, 0.02), printed(), None, "OUTSIDE"),
        (row(1.24, 0.02), printed(), 0.08, "WITHIN"),
        (row(1.24, 0.06), printed(), 0.08, "IMPRECISE"),
        (row(1.30, 0.02), printed(), 0.08, "OUTSIDE"),
        (row(1.24, 0.02), printed(error=0.01), 0.08, "OUTSIDE"),  # what is printed comes first
    ],
)
def test_the_spread_of_our_runs_stands_for_an_error_that_is_not_printed(ours, paper, spread, state):
    assert state_of(ours, paper, spread) == state


def test_pages_show_the_spread_and_judge_by_it(finished, tmp_path):
    first = next(v for v in load_paper_values().values() if v.kind == "result" and v.value > 0)
    assert first.error is None
    off = 0.2 * first.value
    rows = [
        Row(first.quantity, first.setting, first.value + off, 0.01 * first.value, first.source),
        Row(spread_name(first.quantity), first.setting, off / 2),
    ]
    record = tmp_path / "record"
    record_runs(finished(rows=rows, code=[current_code(NAME)]), record)
    made = pages(record, tmp_path / "reproduction.md")
    assert "1 WITHIN" in made[tmp_path / "reproduction.md"]
    page = made[tmp_path / "reproduction" / f"{first.source[:3]}.md"]
    assert f"| ({off / 2:.2g}) " in page


def test_pages_count_say_reasons_and_name_what_is_stale(finished, tmp_path):
    first, second, *_ = (v for v in load_paper_values().values() if v.kind == "result")
    rows = [Row(v.quantity, v.setting, v.value + 9.0, 0.0, v.source) for v in (first, second)]
    results = finished(rows=rows, code=["of another version"])
    record = tmp_path / "record"
    record_runs(results, record)
    pattern = f'source = "{first.source}"\nquantity = "{first.quantity}"\n'
    entries = [
        f'[[reason]]\nstate = "{state}"\n{pattern}reason = "{why}"\n'
        for state, why in (("NOT RUN", "Too dear."), ("OUTSIDE", "Because."))
    ]
    (record / "reasons.toml").write_text("".join(entries))
    made = pages(record, tmp_path / "reproduction.md")
    index = made[tmp_path / "reproduction.md"]
    assert index.splitlines()[2].startswith("2 of 467 results")
    assert "144 are quoted" in index.splitlines()[2]
    table_3 = made[tmp_path / "reproduction" / "002.md"].split("## 002 Table 3")[1]
    assert "144 more numbers are printed there" in table_3
    assert "| DGP-1 50, bost" not in table_3
    assert "2 OUTSIDE" in index
    assert "2 of them are of a STALE run" in index
    assert "2.0 CPU hours" in index
    page = made[tmp_path / "reproduction" / f"{first.source[:3]}.md"]
    assert "OUTSIDE, STALE" in page
    assert "Because." in page
    assert "Too dear." not in page  # a reason of another state
    (record / "reasons.toml").write_text(f'[[reason]]\n{pattern}reason = "Because."\n')
    with pytest.raises(InputError, match="it must say which it explains"):
        pages(record, tmp_path / "reproduction.md")
    assert f"{NAME} desk" in page


def test_a_run_that_older_code_began_is_stale():
    now = current_code(NAME)
    for codes, stale in (([now], False), (["old", now], True), ([now, "old"], True), ([], True)):
        assert is_stale({"experiment": NAME, "code": codes}) == stale


@pytest.mark.parametrize("state", ["NO ERROR", "NO VALUE"])
def test_a_number_that_does_not_bear_its_state_is_withheld(state, finished, tmp_path):
    """Equal to the printed one and exact, or far from it: the entry decides, and says why."""
    first, second, *_ = (v for v in load_paper_values().values() if v.kind == "result")
    rows = [
        Row(v.quantity, v.setting, v.value + gap, 1e-9, v.source)
        for v, gap in ((first, 0.0), (second, 9.0))
    ]
    record = tmp_path / "record"
    record_runs(finished(rows=rows), record)

    def index_and_page(withheld):
        entry = f'[[reason]]\nstate = "{state}"\nreason = "Not so."\nwithheld = {withheld}\n'
        (record / "reasons.toml").write_text(entry)
        made = pages(record, tmp_path / "reproduction.md")
        return (
            made[tmp_path / "reproduction.md"].splitlines()[2],
            made[tmp_path / "reproduction" / f"{first.source[:3]}.md"],
        )

    index, page = index_and_page("true")
    assert f"2 {state}" in index
    assert "0 WITHIN" in index
    assert "Not so." in page
    index, page = index_and_page("false")
    assert "1 WITHIN" in index
    assert "1 OUTSIDE" in index
    assert "Not so." not in page


def test_in_a_section_of_several_quantities_a_reason_names_those_it_is_given_for(
    finished, tmp_path
):
    source = "000 Section V.1"
    own = [v for v in load_paper_values().values() if (v.kind, v.source) == ("result", source)]
    first, second = (next(v for v in own if v.quantity == q) for q in ("test_mse", "rhat"))
    record = tmp_path / "record"
    rows = [Row(v.quantity, v.setting, v.value + 9.0, 0.0, source) for v in (first, second)]
    record_runs(finished(rows=rows), record)
    reason = f'[[reason]]\nstate = "OUTSIDE"\nsource = "{source}"\nreason = "Because."\n'
    (record / "reasons.toml").write_text(reason)
    page = pages(record, tmp_path / "reproduction.md")[tmp_path / "reproduction" / "000.md"]
    told = {f"{v.quantity}: {v.setting}" for v in (first, second)}
    (line,) = (line for line in page.splitlines() if line.endswith("): Because."))
    assert set(line[len("* OUTSIDE (") : -len("): Because.")].split("; ")) == told


@pytest.mark.parametrize("backend", ["cpu", "gpu"])
def test_the_runs_say_which_had_a_gpu(finished, tmp_path, backend):
    record = tmp_path / "record"
    record_runs(finished(), record)
    path = record / NAME / "desk" / "run.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"backend": backend}))
    index = pages(record, tmp_path / "reproduction.md")[tmp_path / "reproduction.md"]
    (line,) = (line for line in index.splitlines() if line.startswith(f"| {NAME} "))
    assert ("| GPU " in line) == (backend == "gpu")


@pytest.mark.parametrize(
    ("errors", "shown"), [((0.5, 0.25), 2.0), ((0.25, 0.5), 1.0), ((0.5, None), 1.0)]
)
def test_of_several_runs_of_a_number_the_surest_is_shown(finished, tmp_path, errors, shown):
    first = next(v for v in load_paper_values().values() if v.kind == "result")
    record = tmp_path / "record"
    record_runs(finished(rows=[Row(first.quantity, first.setting, 1.0, 0.0, first.source)]), record)
    for name, value, error in zip((NAME, "challenges/xor"), (1.0, 2.0), errors, strict=True):
        folder = record / name / "desk"
        if name != NAME:
            shutil.copytree(record / NAME / "desk", folder)
        metrics = json.loads((folder / "metrics.json").read_text())
        metrics["rows"][0] |= {"value": value, "standard_error": error}
        (folder / "metrics.json").write_text(json.dumps(metrics))
        run = json.loads((folder / "run.json").read_text()) | {"experiment": name}
        (folder / "run.json").write_text(json.dumps(run))
    page = pages(record, tmp_path / "reproduction.md")
    page = page[tmp_path / "reproduction" / f"{first.source[:3]}.md"]
    (line,) = (
        line for line in page.splitlines() if f"| {first.setting} " in line and "desk" in line
    )
    assert f"| {shown:g} " in line


def test_a_run_without_an_assumed_setting_reproduces_nothing(finished, tmp_path):
    first = next(v for v in load_paper_values().values() if v.kind == "result")
    rows = [Row(first.quantity, first.setting, first.value, 0.0, first.source)]
    record = tmp_path / "record"
    record_runs(finished(rows=rows), record)
    index = tmp_path / "reproduction.md"
    assert pages(record, index)[index].splitlines()[2].startswith("1 of 467 results")
    keys = ("paper", "setting", "value", "from", "effect")
    entry = "".join(f'{key} = "x"\n' for key in keys)
    (record / "assumed_settings.toml").write_text(f'[[setting]]\n{entry}without = "{NAME}"\n')
    assert pages(record, index)[index].splitlines()[2].startswith("0 of 467 results")


@pytest.fixture
def spent(monkeypatch):
    """Processor seconds that the test decides."""
    seconds = {"spent": 0.0}
    monkeypatch.setattr("experiments.record.ledger._cpu_seconds", lambda: seconds["spent"])
    return seconds


def test_a_resumed_run_counts_all_its_processes(tmp_path, spent):
    of = {"settings": {"n": 1}}
    ledger = Ledger.open(tmp_path, of, "one", resume=False)
    spent["spent"] += 5.0
    ledger.write()
    ledger = Ledger.open(tmp_path, of, "two", resume=True)
    spent["spent"] += 2.0
    ledger.write()
    assert ledger.entries["cpu_seconds"] == 7.0
    assert ledger.codes == ["one", "two"]
    other = Ledger.open(tmp_path, {"settings": {"n": 2}}, "three", resume=True)
    assert other.entries["cpu_seconds"] == 0.0
    assert other.codes == ["three"]


def test_a_stage_that_was_stopped_costs_what_all_its_processes_spent(tmp_path, spent):
    """And so says its file, which another machine may read back."""

    def run(code, seconds, is_stopped, folder=tmp_path):
        ledger = Ledger.open(folder, {}, code, resume=True)
        context = Context("desk", 0, folder, resume=True, ledger=ledger)

        def work():
            spent["spent"] += seconds
            if is_stopped:
                raise KeyboardInterrupt
            return {"number": 1.0}

        with suppress(KeyboardInterrupt):
            context.stage("long", work)
        ledger.write()
        return ledger.entries["cpu_seconds"], ledger.codes

    run("one", 100.0, True)
    run("two", 30.0, True)
    # The code of a process is its own, whichever the run has seen before.
    assert run("one", 7.0, False) == (137.0, ["one", "two"])
    (tmp_path / "there" / "stages").mkdir(parents=True)
    stage = tmp_path / "stages" / "long.npz"
    stage.rename(tmp_path / "there" / "stages" / "long.npz")
    assert not list((tmp_path / "stages").iterdir())
    found = run("three", 0.0, False, tmp_path / "there")
    assert found == (137.0, ["one", "two", "three"])


def test_stages_of_several_threads_share_what_is_spent(tmp_path, spent):
    ledger = Ledger.open(tmp_path, {}, "code", resume=False)
    spent["spent"] += 1  # outside
    ledger.begun("a", None)
    spent["spent"] += 10  # a's
    ledger.begun("b", None)
    spent["spent"] += 40  # both
    assert ledger.finished("a")["cpu_seconds"] == 30.0
    spent["spent"] += 5
    assert ledger.finished("b")["cpu_seconds"] == 25.0
    ledger.write()
    assert ledger.entries["cpu_seconds"] == 56.0


def test_threads_may_write_one_file(tmp_path):
    ledger = Ledger.open(tmp_path, {}, "code", resume=False)
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda _: ledger.write(), range(200)))
        list(pool.map(lambda n: write_json(tmp_path / "a.json", {"n": n}), range(200)))
    assert {path.name for path in tmp_path.iterdir()} == {"ledger.json", "a.json"}


def test_a_stage_that_another_run_made_brings_its_cost_and_its_code(tmp_path, spent):
    """A run of one arm, by older code, and then the whole run in its folder."""

    def work():
        spent["spent"] += 100
        return {"number": 1.0}

    def run(arms, code):
        identity = {"arms": arms}
        ledger = Ledger.open(tmp_path, identity, code, resume=True)
        context = Context("desk", 0, tmp_path, resume=True, identity=identity, ledger=ledger)
        for name in arms:
            context.stage(name, work, of={"arm": name})
        spent["spent"] += 7  # outside of stages
        ledger.write()
        return ledger.entries["cpu_seconds"], ledger.codes

    assert run(["a"], "old") == (107.0, ["old"])
    assert run(["a", "b"], "new") == (207.0, ["old", "new"])
    assert run(["a", "b"], "new") == (214.0, ["old", "new"])


def test_the_record_is_what_the_configs_say():
    for folder, run in recorded_runs():
        settings, seed = config_settings(run["experiment"], run["scale"])
        assert run["settings"] == settings, folder
        assert run["settings_digest"] == settings_digest(settings), folder
        assert run["seed"] == seed, folder
        assert folder == RECORD / run["experiment"] / run["scale"]


def test_the_pages_are_what_the_command_makes():
    for path, text in pages(RECORD, PAGES).items():
        assert path.read_text(encoding="utf-8") == text, "run: python -m experiments record"


def test_the_table_of_the_bias_is_what_the_command_makes():
    assert TABLE.read_text(encoding="utf-8") == bias_table(), "run: python -m experiments record"


def test_the_table_of_the_bias_is_of_the_largest_scale(tmp_path):
    for scale in ("desk", "paper"):
        folder = tmp_path / STUDY / scale
        shutil.copytree(RECORD / STUDY / "desk", folder)
        run = json.loads((folder / "run.json").read_text()) | {"scale": scale}
        (folder / "run.json").write_text(json.dumps(run))
    before = bias_table(tmp_path)
    metrics = json.loads((folder / "metrics.json").read_text())
    for row in metrics["rows"]:
        if row["quantity"] == "variance_ratio":
            row["value"] = 0.5
    (folder / "metrics.json").write_text(json.dumps(metrics))
    after = bias_table(tmp_path)
    assert after != before
    assert {line for line in after.splitlines() if line.startswith("share")} == {"share = 0.5"}


def test_the_table_of_the_bias_is_left_where_the_study_is_not_recorded(tmp_path):
    assert write_bias_table(tmp_path, tmp_path / "table.toml") == []
    assert not list(tmp_path.iterdir())


def test_each_reason_stands_on_a_page_and_each_number_that_asks_for_one_has_it():
    made = "".join(pages(RECORD).values())
    entries = tomllib.loads((RECORD / "reasons.toml").read_text(encoding="utf-8"))["reason"]
    assert [one["reason"] for one in entries if one["reason"] not in made] == []
    assert "No reason is known yet." not in made


def of_crossing_reasons(entries: list[Entry], reasons: list[dict]) -> list[str]:
    """Return the settings of two reasons of which the first is not the narrower.

    It is given for numbers that the other is not of: which of the two it is, chance decides.
    """

    def given_for(reason):
        same = (e for e in entries if e.state == reason["state"])
        return {
            (p.source, p.quantity, p.setting) for p in (e.paper for e in same) if _is_of(reason, p)
        }

    crossing = []
    for entry in entries:
        own = [r for r in reasons if r["state"] == entry.state and _is_of(r, entry.paper)]
        if any(not given_for(own[0]) <= given_for(other) for other in own[1:]):
            crossing.append(entry.paper.setting)
    return crossing


def test_of_two_reasons_for_a_number_the_narrower_comes_first():
    entries = _entries(RECORD, load_paper_values().values())
    reasons = _reasons_of(RECORD)
    assert of_crossing_reasons(entries, reasons) == []
    # "pCN*" is a pattern of pCNL, too, whose own reason then stood behind pCN's.
    pattern = "pCN,*limit of infinite width"
    assert sum(reason.get("setting") == pattern for reason in reasons) == 1
    wrong = [
        reason | {"setting": "pCN*limit of infinite width"}
        if reason.get("setting") == pattern
        else reason
        for reason in reasons
    ]
    assert of_crossing_reasons(entries, wrong) == [
        "pCNL, reparametrised posterior, limit of infinite width"
    ]


def test_what_stands_in_several_places_and_what_steps_were_tuned_to_is_counted_apart(
    finished, tmp_path
):
    values = [
        v
        for v in load_paper_values().values()
        if (v.kind, v.quantity, v.setting) == ("result", "ess_min", "MALA, prior N(0, 3I)")
    ]
    assert len(values) == 3
    rows = [Row(v.quantity, v.setting, v.value, 0.0, v.source) for v in values]
    record = tmp_path / "record"
    record_runs(finished(rows=rows), record)
    tuned = '[[tuned]]\nsource = "004 Table 1"\nsetting = "MALA*"\n'
    (record / "names.toml").write_text(tuned)
    line = pages(record, tmp_path / "reproduction.md")[tmp_path / "reproduction.md"].splitlines()[2]
    assert line.startswith("3 of 467 results")
    assert "3 WITHIN (1 of them rates that steps were tuned to)" in line
    assert line.endswith("ours stand beside 1 different numbers.")


def test_a_run_without_a_number_stands_beside_nothing(finished, tmp_path):
    first, second, *_ = (v for v in load_paper_values().values() if v.kind == "result")
    rows = [
        Row(first.quantity, first.setting, first.value, 0.0, first.source),
        Row(second.quantity, second.setting, float("nan"), None, second.source),
    ]
    record = tmp_path / "record"
    record_runs(finished(rows=rows), record)
    line = pages(record, tmp_path / "reproduction.md")[tmp_path / "reproduction.md"].splitlines()[2]
    assert line.startswith("1 of 467 results")
    assert "Of 1 the run found no number (NO VALUE, too), 321 are NOT RUN" in line
