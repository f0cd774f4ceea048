"""Tests of record.unfinished: a stage that is kept is read back elsewhere, bit for bit."""

import numpy as np
import pytest

from experiments import commands
from experiments.errors import InputError
from experiments.record import kept_stages, unfinished
from experiments.record.ledger import Ledger
from experiments.record.unfinished import keep_stages
from experiments.study import Context

NAME = "challenges/figure1"
ARRAYS = {"draws": np.random.default_rng(0).normal(size=(50, 3)).astype(np.float32), "n": 7}


def run(folder, *, kept=None, compute=lambda: ARRAYS, seed=0, scale="desk"):
    """One run of one stage; returns its arrays, and what the run knows of its costs."""
    out = folder / NAME / scale
    out.mkdir(parents=True, exist_ok=True)
    is_resumed = kept is not None
    ledger = Ledger.open(out, {"seed": seed}, "digest", resume=is_resumed)
    ledger.commit, ledger.commits = "c" * 40, []
    about = {"identity": {"experiment": NAME}, "ledger": ledger}
    kept = kept_stages(NAME, scale, kept) if kept else None
    context = Context(scale, seed, out, resume=is_resumed, kept=kept, **about)
    return context.stage("chains", compute), context


def never():
    raise AssertionError("this stage was finished")


def test_a_kept_stage_is_read_back_on_another_machine(tmp_path):
    run(tmp_path / "here")
    record = tmp_path / "record"
    (kept,) = keep_stages(tmp_path / "here", record)
    assert kept == record / "unfinished" / NAME / "desk" / "chains.npz"
    assert keep_stages(tmp_path / "here", record) == []  # bit for bit
    there = tmp_path / "there"
    for _ in range(2):
        found, context = run(there, kept=record, compute=never)
        np.testing.assert_array_equal(found["draws"], ARRAYS["draws"])
        assert found["draws"].dtype == np.float32
        assert found["n"] == 7
        assert context.reused == ["chains"]
        assert context.ledger.entries["commits"] == ["c" * 40]
        assert list(context.ledger.stages) == ["chains"]
    # What the run reads back is its own from then on.
    assert keep_stages(there, record) == []
    # Of another seed it is another stage.
    with pytest.raises(AssertionError, match="was finished"):
        run(there, kept=record, compute=never, seed=1)


def test_of_two_stages_of_a_name_the_wanted_one_is_read_back(tmp_path):
    """The run's folder has one of other settings, which does not hide the one that is kept."""
    record = tmp_path / "record"
    run(tmp_path / "here")
    keep_stages(tmp_path / "here", record)
    run(tmp_path / "there", seed=1)
    found, _ = run(tmp_path / "there", kept=record, compute=never)
    np.testing.assert_array_equal(found["draws"], ARRAYS["draws"])


def test_a_stage_of_other_settings_does_not_take_the_place_of_the_one_kept(tmp_path):
    record = tmp_path / "record"
    run(tmp_path / "here")
    (kept,) = keep_stages(tmp_path / "here", record)
    before = kept.read_bytes()
    run(tmp_path / "trial", seed=1)
    with pytest.raises(InputError, match="is of another seed, of other settings"):
        keep_stages(tmp_path / "trial", record)
    assert kept.read_bytes() == before


def test_of_two_stages_in_one_place_none_is_lost(tmp_path):
    for name, seed in (("a", 0), ("b", 1)):
        run(tmp_path / "here" / name, seed=seed)
    with pytest.raises(InputError, match="are of different seeds, settings or versions"):
        keep_stages(tmp_path / "here", tmp_path / "record")
    assert not (tmp_path / "record").exists()
    same = tmp_path / "smoke" / "same"  # which is no scale here
    for name in ("a", "b"):
        run(same / name)
    assert len(set(keep_stages(same, tmp_path / "record"))) == 1


def test_a_stage_that_was_made_again_takes_the_place_of_the_one_kept(tmp_path):
    record = tmp_path / "record"
    for value in (1.0, 2.0):
        run(tmp_path / "here", compute=lambda value=value: {"draws": np.full(9, value)})
        assert len(keep_stages(tmp_path / "here", record)) == 1
    found, _ = run(tmp_path / "there", kept=record, compute=never)
    assert found["draws"].tolist() == [2.0] * 9


def test_stages_of_one_process_say_what_they_cost(tmp_path):
    """As those do that were kept before a stage could be of several processes."""
    ledger = Ledger.open(tmp_path, {}, "new", resume=False)
    ledger.reused("chains", {"cpu_seconds": 9.0, "commit": "a", "code": "old"})
    assert ledger.entries["cpu_seconds"] >= 9.0
    assert ledger.entries["commits"][0] == "a"
    assert ledger.entries["code"] == ["old", "new"]


def test_what_cannot_be_kept_is_a_sentence(tmp_path, monkeypatch):
    with pytest.raises(InputError, match=r"no finished stage .* in "):
        keep_stages(tmp_path, tmp_path / "record")
    run(tmp_path / "here", scale="smoke")
    with pytest.raises(InputError, match="no finished stage"):
        keep_stages(tmp_path / "here", tmp_path / "record")
    run(tmp_path / "here")
    monkeypatch.setattr(unfinished, "MOST_BYTES", 100)
    with pytest.raises(InputError, match="finish and record a run"):
        keep_stages(tmp_path / "here", tmp_path / "record")


def test_the_command_names_what_it_kept(tmp_path, monkeypatch, capsys):
    run(tmp_path / "here")
    record = tmp_path / "record"
    monkeypatch.setattr(commands, "keep_stages", lambda results: keep_stages(results, record))
    assert commands.keep(tmp_path / "here") == 0
    assert capsys.readouterr().out.strip().endswith("figure1/desk/chains.npz")
