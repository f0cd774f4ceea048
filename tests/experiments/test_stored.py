"""Tests of experiments.benchmarks.stored: what one machine has measured, another goes on with."""

import json
from concurrent.futures import ThreadPoolExecutor

from experiments.benchmarks.stored import Stored


def test_another_machine_goes_on_with_what_the_repository_keeps(tmp_path):
    kept = tmp_path / "kept" / "all.json"
    here = Stored(tmp_path / "here", kept)
    here["b-0"], here["a-1"] = {"log_score": -1.5}, {"log_score": -2.0, "old": True}
    here.keep(lambda found: "old" not in found)
    assert json.loads(kept.read_text()) == {"b-0": {"log_score": -1.5}}
    here.keep()
    there = Stored(tmp_path / "there", kept)
    assert list(there) == ["a-1", "b-0"]
    assert there.values() == [{"log_score": -2.0, "old": True}, {"log_score": -1.5}]
    # What a machine has measured itself stays.
    there["b-0"] = {"log_score": 0.0}
    assert Stored(tmp_path / "there", kept)["b-0"] == {"log_score": 0.0}
    assert "c-0" not in there


def test_a_folder_that_is_lost_takes_nothing_with_it(tmp_path):
    """Another worker, or a user who tidies up, may remove it while a result is measured."""
    kept = tmp_path / "all.json"
    here = Stored(tmp_path / "here", kept)
    here["b-0"] = {"log_score": -1.5}
    here.keep()
    (tmp_path / "here" / "b-0.json").unlink()
    here["a-0"] = {"log_score": -1.0}
    here.keep()
    assert json.loads(kept.read_text()) == {"a-0": {"log_score": -1.0}, "b-0": {"log_score": -1.5}}


def test_of_two_workers_neither_takes_back_what_the_other_kept(tmp_path):
    kept = tmp_path / "all.json"
    Stored(tmp_path / "before", kept)["a-0"] = {"log_score": -3.0}
    Stored(tmp_path / "before", kept).keep()
    one, two = Stored(tmp_path / "one", kept), Stored(tmp_path / "two", kept)
    assert one["a-0"] == two["a-0"] == {"log_score": -3.0}
    one["a-0"] = {"log_score": -1.0}
    one.keep()
    two["b-0"] = {"log_score": -2.0}
    two.keep()
    assert json.loads(kept.read_text()) == {"a-0": {"log_score": -1.0}, "b-0": {"log_score": -2.0}}
    # Begun before the other had measured, a worker goes on with what it read.
    assert two["a-0"] == {"log_score": -3.0}


def test_a_folder_of_long_ago_takes_nothing_back(tmp_path):
    """It holds what older code measured; since then another folder has measured it again."""
    kept = tmp_path / "all.json"
    old = Stored(tmp_path / "old", kept)
    old["a-0"] = {"log_score": -3.0}
    old.keep()
    new = Stored(tmp_path / "new", kept)
    new["a-0"] = {"log_score": -1.0}
    new.keep()
    again = Stored(tmp_path / "old", kept)
    again["b-0"] = {"log_score": -2.0}
    again.keep()
    assert json.loads(kept.read_text()) == {"a-0": {"log_score": -1.0}, "b-0": {"log_score": -2.0}}


def test_workers_that_keep_at_once_lose_nothing(tmp_path):
    kept = tmp_path / "all.json"

    def work(number):
        stored = Stored(tmp_path / str(number), kept)
        stored[f"a-{number}"] = {"log_score": -float(number)}
        stored.keep()

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(work, range(40)))
    assert len(json.loads(kept.read_text())) == 40
