"""What `pyproject.toml` asks for allows `constraints.txt`; its minimums are read from there."""

import pytest
from packaging.utils import canonicalize_name
from packaging.version import Version

from tests import lowest


def test_versions_known_to_work_together_are_allowed():
    lines = (lowest.ROOT / "constraints.txt").read_text().splitlines()
    pins = dict(line.split("==") for line in lines if not line.startswith("#"))
    pins = {canonicalize_name(name): version for name, version in pins.items()}
    refused = [
        f"{one}, but constraints.txt has {pins.get(canonicalize_name(one.name))}"
        for one in lowest.requirements()
        if not one.specifier.contains(pins.get(canonicalize_name(one.name), "0"))
    ]
    assert not refused


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
