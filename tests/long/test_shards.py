"""Tests of `python -m tests.long`: what is a test, and shards that pytest refuses."""

import argparse
import json
import subprocess
import sys
from types import SimpleNamespace

import pytest

import tests.long.__main__ as module

COLLECTED = """tests/room/test_one.py::test_it[a b]
jaxbnn/room/one.py::jaxbnn.room.one.made

=============================== warnings summary ===============================
  Test: tests/room/test_one.py::test_other, argvalues type: generator
"""


def test_what_pytest_warns_of_is_no_test(monkeypatch, tmp_path):
    found = SimpleNamespace(stdout=COLLECTED, stderr="")
    monkeypatch.setattr(module.subprocess, "run", lambda *_, **__: found)
    assert module._collect(tmp_path) == COLLECTED.splitlines()[:2]


def test_a_shard_that_pytest_refuses_ends_the_run(monkeypatch, tmp_path):
    """A test that is not there would else be tried with each of the others in turn."""

    def refused(*_):
        return subprocess.Popen([sys.executable, "-c", "raise SystemExit(4)"])

    monkeypatch.setattr(module, "_start", refused)
    options = argparse.Namespace(jobs=1)
    with pytest.raises(SystemExit, match="pytest refused the tests of a shard"):
        module._run(["tests/gone.py::test_it"], tmp_path, options)


def test_an_outcome_of_this_commit_stands_above_an_earlier_one(tmp_path):
    own, earlier = tmp_path / "1764402.jsonl", tmp_path / "from-0123456789.jsonl"
    own.write_text(json.dumps({"test": "a", "outcome": "failed"}) + "\n")
    earlier.write_text(json.dumps({"test": "a", "outcome": "passed"}) + "\n")
    assert module._outcomes(tmp_path)["a"]["outcome"] == "failed"
