"""What `pyproject.toml` asks for allows `constraints.txt`; its minimums are read from there."""

import importlib.metadata

import pytest
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import Version

from tests import lowest


def _pins():
    lines = (lowest.ROOT / "constraints.txt").read_text().splitlines()
    pins = dict(line.split("==") for line in lines if not line.startswith("#"))
    return {canonicalize_name(name): version for name, version in pins.items()}


def test_versions_known_to_work_together_are_allowed():
    pins = _pins()
    refused = [
        f"{one}, but constraints.txt has {pins.get(canonicalize_name(one.name))}"
        for one in lowest.requirements()
        if not one.specifier.contains(pins.get(canonicalize_name(one.name), "0"))
    ]
    assert not refused


def test_versions_known_to_work_together_run_on_the_oldest_python():
    """One that asked for 3.11.5 could not be installed with the 3.11.2 of Debian 12."""
    pins = _pins()
    oldest = str(lowest.project()["requires-python"]).removeprefix(">=") + ".0"
    installed = {canonicalize_name(one.name): one for one in importlib.metadata.distributions()}
    same = {name: one for name, one in installed.items() if one.version == pins.get(name)}
    assert len(same) > 20
    asked = {name: one.metadata.get("Requires-Python") or "" for name, one in same.items()}
    assert {
        name for name, text in asked.items() if not SpecifierSet(text).contains(oldest)
    } == set()


def test_of_two_minimums_the_largest_counts(monkeypatch):
    table = {
        "name": "x",
        "dependencies": ["Some_Package>=1.5,!=1.6"],
        "optional-dependencies": {"a": ["some-package[b]>=1.10"], "c": ["x[a]", "other>=2"]},
    }
    monkeypatch.setattr(lowest, "project", lambda: table)
    assert lowest.minimums() == {"some-package": Version("1.10"), "other": Version("2")}


def test_a_package_without_a_minimum_is_refused(monkeypatch):
    table = {"name": "x", "dependencies": ["other<3"], "optional-dependencies": {}}
    monkeypatch.setattr(lowest, "project", lambda: table)
    with pytest.raises(ValueError, match=r"asks for 'other<3'; write a minimum, other>="):
        lowest.minimums()
