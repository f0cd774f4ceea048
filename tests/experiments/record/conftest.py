"""A finished run, for the tests of the record."""

import pytest

from experiments.record import (
    config_settings,
    settings_digest,
)
from experiments.record.pages import (
    current_code,
)
from experiments.results import write_results

NAME = "challenges/figure1"


@pytest.fixture
def finished(tmp_path):
    """Return a function that writes a run of figure 1 as the command would, without running it."""

    def write(scale="desk", rows=(), **changes):
        settings, seed = config_settings(NAME, "desk")
        settings |= changes.pop("settings", {})
        run = {
            "settings": settings,
            "settings_digest": settings_digest(settings),
            "cpu_seconds": 7200.0,
            "commits": ["a" * 40],
            "code": [current_code(NAME)],
            "files": {},
        } | changes
        folder = tmp_path / "results" / NAME / scale
        folder.mkdir(parents=True)
        seed = run.pop("seed", seed)
        write_results(
            folder, experiment=NAME, scale=scale, seed=seed, rows=rows, run=run, paper_values={}
        )
        return tmp_path / "results"

    return write
