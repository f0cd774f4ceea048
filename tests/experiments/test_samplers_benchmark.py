"""Tests of experiments.benchmarks.samplers: the rows it takes, and the table it writes."""

import json
import tomllib

import numpy as np
import pytest

from experiments.benchmarks import peers, samplers
from experiments.benchmarks.samplers.fit import SETS, rows_of
from experiments.benchmarks.stored import Stored
from experiments.record.code import code_digest


def test_the_table_holds_what_ended_in_time():
    common = {"kind": "numbers", "set": "kin8nm", "rows": 200}
    results = [
        {**common, "sampler": "dvi", "log_score": -1.25, "parameters": 501, "cpu_seconds": 9.6},
        {**common, "sampler": "nuts", "over_limit": True, "cpu_seconds": 600.0},
        {**common, "rows": 800, "sampler": "nuts", "over_limit": True, "cpu_seconds": 600.0},
    ]
    (case,) = tomllib.loads(samplers.table_of(results, "now"))["case"]
    assert case == {**common, "parameters": 501, "dvi": {"log_score": -1.25, "seconds": 10}}


def test_the_table_says_how_old_it_is_and_what_failed():
    common = {"kind": "numbers", "set": "kin8nm", "rows": 200, "cpu_seconds": 9.6}
    results = [
        {**common, "sampler": "dvi", "log_score": -1.25, "parameters": 501, "code": "now"},
        {**common, "sampler": "ensemble", "log_score": -1.2, "parameters": 501},
        {**common, "sampler": "nuts", "failed": "no memory", "code": "now"},
    ]
    text = samplers.table_of(results, "now")
    assert "\n# 1 of 3 results are of an earlier state of the code.\n" in text
    assert "\n# Not over the limit, but failed: nuts, numbers of kin8nm, 200 rows.\n" in text
    (case,) = tomllib.loads(text)["case"]
    assert "nuts" not in case
    assert "earlier" not in samplers.table_of(results[:1], "now")


def test_the_shipped_table_is_what_the_command_makes(tmp_path):
    results = samplers._that_count(Stored(tmp_path, samplers.KEPT).values())
    shipped, made = samplers.TABLE.read_text(), samplers.table_of(results, "now")
    assert tomllib.loads(shipped) == tomllib.loads(made)
    assert f" of {len(results)} results are of an earlier state" in shipped


def test_the_table_is_no_part_of_the_code_that_it_is_made_with():
    """Else, written again, it would make every result one of earlier code."""
    names = [samplers.fit.__name__], ("jaxbnn.tabular.choice",)
    assert samplers._code() == code_digest(*names)[:16] != code_digest(names[0])[:16]


def test_training_and_test_rows_differ_and_classes_are_thirds(original):
    for name in SETS:
        split = original(rows_of, "classes", name, 300)
        assert split.x_train.shape[0] == 300
        assert len(split.y_test) == 2000
        counts = np.bincount(split.y_train)
        assert len(counts) == 3
        assert counts.min() > 80  # some targets are equal
        numbers = rows_of("numbers", name, 300)
        np.testing.assert_array_equal(numbers.x_train, split.x_train)
    assert len(np.unique(np.concatenate([numbers.x_train, numbers.x_test]), axis=0)) > 2200


def test_more_rows_than_were_over_the_limit_are_not_tried(tmp_path, monkeypatch):
    monkeypatch.setattr(samplers, "KEPT", tmp_path / "kept.json")
    tried = []

    def measured(work, kind, name, size, sampler):
        tried.append((size, sampler))
        known = {"kind": kind, "set": name, "rows": size, "sampler": sampler}
        if sampler == "nuts":
            return {**known, "cpu_seconds": 600.0, "over_limit": True}
        return {**known, "cpu_seconds": 6.0, "log_score": -1.0, "parameters": 7}

    monkeypatch.setattr(samplers, "_measured", measured)
    options = {"sets": ["kin8nm"], "kinds": ["numbers"], "samplers": ["nuts", "dvi"]}
    samplers.run(tmp_path, rows=[800, 3200], **options)
    assert tried == [(800, "nuts"), (800, "dvi"), (3200, "dvi")]
    samplers.run(tmp_path, rows=[200], **options)
    assert tried[3:] == [(200, "nuts"), (200, "dvi")]


def test_what_a_limit_overrules_is_no_longer_told(tmp_path, monkeypatch):
    monkeypatch.setattr(samplers, "KEPT", tmp_path / "kept.json")
    monkeypatch.setattr(samplers, "TABLE", tmp_path / "table.toml")
    code, is_slow = ["before"], [False]

    def measured(work, kind, name, size, sampler):
        known = {"kind": kind, "set": name, "rows": size, "sampler": sampler, "cpu_seconds": 600.0}
        if is_slow[0]:
            return {**known, "over_limit": True}
        return {**known, "log_score": -1.0, "parameters": 7}

    monkeypatch.setattr(samplers, "_measured", measured)
    monkeypatch.setattr(samplers, "_code", lambda: code[0])
    options = {"sets": ["kin8nm"], "kinds": ["numbers"], "samplers": ["nuts"], "rows": [800, 3200]}
    assert len(samplers.run(tmp_path, **options, write_table=True)) == 2 * 2
    assert samplers.TABLE.read_text().count("[[case]]") == 2
    code[0], is_slow[0] = "now", True
    # Neither has a score; the seconds of a fit that was cut are none.
    assert samplers.run(tmp_path, **options, again=True, write_table=True) == []
    assert "[[case]]" not in samplers.TABLE.read_text()


def test_a_fit_that_fails_is_stored_as_that_and_tried_again(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(samplers, "KEPT", tmp_path / "kept.json")
    monkeypatch.setattr(samplers, "_code", lambda: "now")
    said = []

    def timed(command, environment, limit, log):
        log.write_text("Traceback\nMemoryError\n")
        said.append(command)
        return 5.0, 6.0, 1

    monkeypatch.setattr(peers, "timed", timed)
    options = {"sets": ["kin8nm"], "kinds": ["numbers"], "samplers": ["nuts"], "rows": [200, 800]}
    assert samplers.run(tmp_path, **options) == []
    assert "numbers-kin8nm-200-nuts: failed: MemoryError" in capsys.readouterr().out
    assert json.loads(samplers.KEPT.read_text())["numbers-kin8nm-200-nuts"]["failed"]
    samplers.run(tmp_path, **options)
    assert len(said) == 4


def test_what_is_of_an_earlier_code_is_told_and_run_again_if_asked(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(samplers, "KEPT", tmp_path / "kept.json")
    tried = []

    def measured(work, kind, name, size, sampler):
        tried.append(sampler)
        known = {"kind": kind, "set": name, "rows": size, "sampler": sampler}
        return {**known, "cpu_seconds": 6.0, "log_score": -1.0, "parameters": 7}

    monkeypatch.setattr(samplers, "_measured", measured)
    options = {"sets": ["kin8nm"], "kinds": ["numbers"], "rows": [200], "samplers": ["nuts"]}
    for code, more, runs, said in (
        ("a" * 64, {}, 1, ""),
        ("a" * 64, {"again": True}, 1, ""),
        ("b" * 64, {}, 1, "1 of 1 results are of an earlier state of the code."),
        ("b" * 64, {"again": True}, 2, ""),
    ):
        monkeypatch.setattr(samplers, "_code", lambda code=code: code)
        rows = samplers.run(tmp_path, **options, **more)
        assert len(tried) == runs
        assert all(row.setting.endswith(", by earlier code") == bool(said) for row in rows)
        told = capsys.readouterr().out
        assert said in told
        assert ("earlier" in told) == bool(said)


@pytest.mark.long
@pytest.mark.third_party(reason="scikit-learn")
def test_a_fit_is_stored_and_not_run_again(tmp_path, monkeypatch):
    pytest.importorskip("sklearn")
    monkeypatch.setattr(samplers, "KEPT", tmp_path / "kept.json")
    options = {"sets": ["power-plant"], "kinds": ["classes"], "rows": [30], "samplers": ["dvi"]}
    rows = samplers.run(tmp_path, **options)
    assert [row.quantity for row in rows] == ["log_score", "cpu_seconds"]
    assert -1.2 < rows[0].value < 0  # guessing is -log 3 = -1.1
    (path,) = (tmp_path / "stored").glob("*.json")
    assert json.loads(path.read_text())["parameters"] == 4 * 50 + 50 + 51
    monkeypatch.setattr(samplers, "_measured", lambda *_: pytest.fail("run again"))
    assert [row.value for row in samplers.run(tmp_path, **options)] == [row.value for row in rows]
