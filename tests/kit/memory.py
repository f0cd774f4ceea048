"""What a process of tests holds in memory: compiled programs dropped in time, the peak told."""

import ctypes
import gc
import os
import re
from pathlib import Path

import jax
import pytest

MAPS = Path("/proc/self/maps")
MOST_MAPS = 40_000
MOST_NEW_MEGABYTES = 800


class Memory:
    """A pytest plugin. Registered, it sees every test; hooks of a conftest see their folder's."""

    def __init__(self):
        self.programs = Programs()
        # A process's highest values, each with the test that reached it.
        self.peaks: list[tuple[float, str]] = [(500.0, "the start")]
        self.of_workers: dict[str, list[tuple[float, str]]] = {}

    def pytest_runtest_teardown(self, item):
        """Drop what was compiled, if it is much."""
        self.programs.drop_if_many(look_at_maps=item.get_closest_marker("long") is not None)

    def pytest_runtest_logfinish(self, nodeid):
        """Note which test raised the process's peak of memory."""
        status = MAPS.with_name("status")
        if not status.exists():
            return
        peak = int(re.search(r"VmHWM:\s+(\d+)", status.read_text()).group(1)) / 1024
        if peak > self.peaks[-1][0] + 50:
            self.peaks.append((peak, nodeid))

    def pytest_sessionfinish(self, session):
        """Hand a worker's peaks to the process that prints."""
        if hasattr(session.config, "workeroutput"):
            session.config.workeroutput["peaks"] = self.peaks
            # JAX's own, which would print a traceback when the worker is interrupted at its end.
            gc.callbacks.clear()

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node):
        """Take a worker's peaks, in the process that prints."""
        self.of_workers[node.gateway.id] = getattr(node, "workeroutput", {}).get("peaks", [])

    def pytest_terminal_summary(self, terminalreporter):
        """Print the most memory that each worker held, and the test that raised it last."""
        for worker, peaks in sorted(self.of_workers.items()):
            for peak, nodeid in peaks[-1:]:
                line = f"worker {worker} held up to {peak:,.0f} MB, in {nodeid}"
                terminalreporter.write_line(line)


class Programs:
    """Drops compiled programs before they fill the memory, or Linux's 65,530 maps a process.

    XLA does not check for the maps: the process ends with a segmentation fault. The long tests
    come to that many after some forty tests.
    """

    def __init__(self):
        self._megabytes = 500.0  # held when programs were dropped last; pytest and JAX take so much

    def drop_if_many(self, look_at_maps: bool = False) -> None:
        """Drop all of them once they hold `MOST_NEW_MEGABYTES`, or `MOST_MAPS` if looked at."""
        if not MAPS.exists():
            return
        has_many_maps = look_at_maps and MAPS.read_bytes().count(b"\n") > MOST_MAPS
        if has_many_maps or _megabytes() > self._megabytes + MOST_NEW_MEGABYTES:
            jax.clear_caches()
            gc.collect()
            trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
            if trim is not None:  # glibc keeps what is freed
                trim(0)
            self._megabytes = _megabytes()


def _megabytes() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20
