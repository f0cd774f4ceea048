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
    if SHARED.is_dir():
        monkeypatch.setenv("JAXBNN_DATA", str(SHARED))

    def load(function, *arguments):
        try:
            return function(*arguments)
        except fetch.MissingDataError as error:
            pytest.skip(str(error))

    return load
