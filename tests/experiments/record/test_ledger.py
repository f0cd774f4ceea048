"""Tests of experiments.record.ledger: what a run cost, over all its processes, and its code."""

from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import pytest

from experiments.record.ledger import Ledger
from experiments.results import write_json
from experiments.study import Context


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
