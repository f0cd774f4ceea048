"""Tests of experiments.benchmarks.stored: what one machine has measured, another goes on with."""

import json
from concurrent.futures import ThreadPoolExecutor

from experiments.benchmarks.stored import Stored, by_one_code, digest_by_now
from experiments.record import code
from experiments.record.code import code_digest


def read(kept):
    """Return the results of the repository's file, without their times."""
    found = json.loads(kept.read_text())
    for one in found.values():
        one.pop("stored_at")
    return found


def test_another_machine_goes_on_with_what_the_repository_keeps(tmp_path):
    kept = tmp_path / "kept" / "all.json"
    here = Stored(tmp_path / "here", kept)
    here["b-0"], here["a-1"] = {"log_score": -1.5}, {"log_score": -2.0, "old": True}
    here.keep(lambda found: "old" not in found)
    assert read(kept) == {"b-0": {"log_score": -1.5}}
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
    assert read(kept) == {"a-0": {"log_score": -1.0}, "b-0": {"log_score": -1.5}}


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
    assert read(kept) == {"a-0": {"log_score": -1.0}, "b-0": {"log_score": -2.0}}
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
    assert read(kept) == {"a-0": {"log_score": -1.0}, "b-0": {"log_score": -2.0}}


def test_workers_that_keep_at_once_lose_nothing(tmp_path):
    kept = tmp_path / "all.json"

    def work(number):
        stored = Stored(tmp_path / str(number), kept)
        stored[f"a-{number}"] = {"log_score": -float(number)}
        stored.keep()

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(work, range(40)))
    assert len(json.loads(kept.read_text())) == 40


def test_of_two_results_the_newer_counts_wherever_it_is(tmp_path):
    kept = tmp_path / "all.json"
    here = Stored(tmp_path / "here", kept)
    here["a-0"], here["b-0"] = {"log_score": -3.0}, {"log_score": -3.0}
    here.keep()
    there = Stored(tmp_path / "there", kept)
    there["a-0"] = {"log_score": -1.0}
    there.keep()
    # An old result of a folder does not hide the repository's.
    again = Stored(tmp_path / "here", kept)
    assert again["a-0"] == {"log_score": -1.0}
    # Killed between storing and keeping: the next one keeps it.
    again["b-0"] = {"log_score": -2.0}
    later = Stored(tmp_path / "here", kept)
    later.keep()
    assert read(kept) == {"a-0": {"log_score": -1.0}, "b-0": {"log_score": -2.0}}
    assert later.values() == [{"log_score": -1.0}, {"log_score": -2.0}]


def test_results_without_a_time_are_the_oldest(tmp_path):
    kept = tmp_path / "all.json"
    kept.write_text('{"a-0": {"log_score": -1.0}, "b-0": {"log_score": -1.0}}')
    here = Stored(tmp_path / "here", kept)
    (tmp_path / "here" / "a-0.json").write_text('{"log_score": -3.0}')
    here["b-0"] = {"log_score": -2.0}
    assert here.values() == [{"log_score": -1.0}, {"log_score": -2.0}]
    here.keep()
    found = json.loads(kept.read_text())
    assert found["a-0"] == {"log_score": -1.0}
    assert found["b-0"].pop("stored_at").endswith("+00:00")
    assert found["b-0"] == {"log_score": -2.0}


def test_nothing_is_written_where_nothing_is_new(tmp_path):
    kept = tmp_path / "all.json"
    here = Stored(tmp_path / "here", kept)
    here["a-0"] = {"log_score": -1.0}
    here.keep()
    kept.write_text(text := kept.read_text().replace("{\n", "{\n\n"))
    Stored(tmp_path / "here", kept).keep()
    assert kept.read_text() == text


def test_a_digest_is_of_the_files_as_they_are_by_now(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(code, "ROOT", tmp_path)
    file = tmp_path / "jaxbnn" / "of_this_test.py"
    file.parent.mkdir()
    file.write_text("x = 1\n")

    def code_of():
        return code_digest(["jaxbnn.of_this_test"])

    first = digest_by_now(code_of)

    def measure(text=None):
        if text is not None:
            file.write_text(text)
        return {"log_score": -1.0}

    assert by_one_code(measure, code_of) == {"log_score": -1.0, "code": first}
    assert by_one_code(lambda: None, code_of) is None
    assert capsys.readouterr().out == ""
    assert by_one_code(lambda: measure("x = 22\n"), code_of) is None
    assert "Not stored: the code was changed while this was measured." in capsys.readouterr().out
    second = by_one_code(measure, code_of)["code"]
    assert second == code_of() != first
