"""A pytest plugin: run the tests of a list until the shard is full, and write each one's outcome.

A shard is full when its time is over or its process has grown too large. What is left is for
the next shard, a process of its own. Outcomes are written as tests end, so that a shard that is
killed loses the test it was at and no other.
"""

import json
import os
import resource
import sys
import time
from pathlib import Path

import pytest

LIST, RESULTS = "JAXBNN_LONG_LIST", "JAXBNN_LONG_RESULTS"
SECONDS, MEGABYTES = "JAXBNN_LONG_SECONDS", "JAXBNN_LONG_MEGABYTES"


class Shard:
    """Choose the listed tests, write outcomes, stop when full."""

    def __init__(self):
        self.wanted = json.loads(Path(os.environ[LIST]).read_text(encoding="utf-8"))
        self.results = Path(os.environ[RESULTS])
        self.start = time.monotonic()
        self.reports: dict[str, list] = {}

    def pytest_collection_modifyitems(self, items, config):
        order = {test: index for index, test in enumerate(self.wanted)}
        kept = sorted((i for i in items if i.nodeid in order), key=lambda i: order[i.nodeid])
        config.hook.pytest_deselected(items=[item for item in items if item.nodeid not in order])
        items[:] = kept

    def pytest_runtest_logreport(self, report):
        self.reports.setdefault(report.nodeid, []).append(report)

    @pytest.hookimpl(trylast=True)
    def pytest_runtest_logfinish(self, nodeid):
        reports = self.reports.pop(nodeid, [])
        line = {
            "test": nodeid,
            "outcome": _outcome(reports),
            "seconds": round(sum(report.duration for report in reports), 1),
            "megabytes": round(megabytes()),
            "shard": os.getpid(),
        }
        with self.results.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")

    def pytest_runtest_protocol(self, item, nextitem):
        spent = time.monotonic() - self.start
        if spent > float(os.environ[SECONDS]) or megabytes() > float(os.environ[MEGABYTES]):
            pytest.exit("this shard is full", returncode=0)


def _outcome(reports) -> str:
    if any(report.failed for report in reports):
        return "failed"
    if any(hasattr(report, "wasxfail") for report in reports):
        return "expected failure"
    return "skipped" if any(report.skipped for report in reports) else "passed"


def megabytes() -> float:
    """Return the largest resident size of this process so far."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (2**20 if sys.platform == "darwin" else 2**10)


def pytest_configure(config):
    if LIST in os.environ:
        config.pluginmanager.register(Shard(), "jaxbnn-long-shard")
