"""The data sets as published, for tests that read them."""

from pathlib import Path

import pytest

from experiments import fetch

SHARED = Path(__file__).parents[3] / "shared" / "data"


@pytest.fixture
def original(monkeypatch):
    """Call a function that reads sets as published, or skip with the sentence of where they were
    sought.
    """
    _look_beside_the_clone(monkeypatch)

    def load(function, *arguments):
        try:
            return function(*arguments)
        except fetch.MissingDataError as error:
            pytest.skip(str(error))

    return load


@pytest.fixture
def sets_or_skip(monkeypatch):
    """Skip a test whose run lacks a set as published, with the sentence that the run would say."""
    _look_beside_the_clone(monkeypatch)
    monkeypatch.setattr(fetch, "MissingDataError", pytest.skip)


def _look_beside_the_clone(monkeypatch):
    if SHARED.is_dir():
        monkeypatch.setenv("JAXBNN_DATA", str(SHARED))
