"""What a run has cost so far and which code ran it, kept beside its results.

A run that was stopped and resumed is one run: its processor seconds are those of all its
processes, its commits and digests of code those of all of them. A stage that another run made, of
fewer arms say, brings its own with it; one that was stopped halfway goes on counting where it was.
What a killed process spent on the stage that it was at is not counted.
"""

import json
import os
import subprocess
import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from experiments.record.code import BIAS_TABLE, ROOT
from experiments.results import write_json

FILE = "ledger.json"
# What recording writes, or into which folders: no run's numbers depend on it.
WRITTEN = ("record", "docs", BIAS_TABLE)


class Origin(NamedTuple):
    """What a stage cost, and the commits and digests of code of the processes that computed it."""

    cpu_seconds: float
    commits: list[str | None]
    codes: list[str]


@dataclass
class Ledger:
    """Processor seconds, commits and code digests of one run, over all its processes.

    Stages may be computed by several threads at once: what the process spends meanwhile is shared
    equally among them, so that the sum is the process's.

    Parameters
    ----------
    folder
        The run's folder.
    identity
        What the run computes, as JSON data: scale, seed, settings.
    commit, code
        Those of this process.
    outside
        Processor seconds of all processes, their children included, outside of stages.
    stages
        The seconds of each finished stage, by name.
    commits, codes
        Of the processes in turn and of the stages, each once.
    """

    folder: Path
    identity: Mapping[str, Any]
    commit: str | None
    code: str
    outside: float = 0.0
    stages: dict[str, float] = field(default_factory=dict)
    commits: list[str | None] = field(default_factory=list)
    codes: list[str] = field(default_factory=list)
    _open: dict[str, Origin] = field(default_factory=dict)
    _counted: float = field(default_factory=lambda: _cpu_seconds())
    _lock: Any = field(default_factory=threading.RLock)

    @classmethod
    def open(
        cls, folder: Path, identity: Mapping[str, Any], code: str, *, resume: bool
    ) -> "Ledger":
        """Start a ledger, or under `resume` go on with that of the same run."""
        identity = json.loads(json.dumps(identity, default=str))
        ledger = cls(folder, identity, current_commit(but=WRITTEN), code)
        if resume:
            ledger._read()
        ledger.commits = _each_once([*ledger.commits, ledger.commit])
        ledger.codes = _each_once([*ledger.codes, code])
        return ledger

    def begun(self, name: str, before: Mapping[str, Any] | None) -> None:
        """Count for a stage from now on, after what was spent on it `before`, if it was stopped."""
        with self._lock:
            self._settle()
            known = _read_origin(before) if before else Origin(0.0, [], [])
            commits, codes = [*known.commits, self.commit], [*known.codes, self.code]
            self._open[name] = Origin(known.cpu_seconds, _each_once(commits), _each_once(codes))

    def stopped(self, name: str) -> dict[str, Any]:
        """Count for a stage no more; return what is to be kept until it goes on."""
        with self._lock:
            self._settle()
            return self._open.pop(name)._asdict()

    def finished(self, name: str) -> dict[str, Any]:
        """Count a stage that is finished; return what is to be stored with it."""
        origin = self.stopped(name)
        self.reused(name, origin)
        return origin

    def reused(self, name: str, origin: Mapping[str, Any]) -> None:
        """Count a stage that was read back, by what was stored with it."""
        with self._lock:
            known = _read_origin(origin)
            self.stages[name] = known.cpu_seconds
            self.commits = [c for c in known.commits if c not in self.commits] + self.commits
            self.codes = [c for c in known.codes if c not in self.codes] + self.codes

    def write(self) -> None:
        """Add what was spent since the last call, and write the file whole."""
        with self._lock:
            self._settle()
            kept = {"identity": self.identity, "outside": self.outside, "stages": self.stages}
            write_json(self.folder / FILE, {**kept, **self.entries})

    @property
    def entries(self) -> dict[str, Any]:
        """What run.json says of it."""
        return {
            "cpu_seconds": round(self.outside + sum(self.stages.values()), 1),
            "commits": self.commits,
            "code": self.codes,
        }

    def _settle(self) -> None:
        """Give what was spent since the last time to the stages that are open, or to none."""
        now = _cpu_seconds()
        spent, self._counted = now - self._counted, now
        for name, origin in self._open.items():
            share = origin.cpu_seconds + spent / len(self._open)
            self._open[name] = origin._replace(cpu_seconds=share)
        if not self._open:
            self.outside += spent

    def _read(self) -> None:
        try:
            stored = json.loads((self.folder / FILE).read_text(encoding="utf-8"))
            if stored["identity"] == self.identity:
                self.outside = float(stored["outside"])
                self.stages = {name: float(value) for name, value in stored["stages"].items()}
                self.commits, self.codes = list(stored["commits"]), list(stored["code"])
        except (OSError, ValueError, KeyError, TypeError):
            return  # another run's, or none: this one starts its own


def _read_origin(stored: Mapping[str, Any]) -> Origin:
    """Return what is stored with a stage; stages of one process had one commit and one code."""
    if "commit" in stored:
        return Origin(float(stored["cpu_seconds"]), [stored["commit"]], [stored["code"]])
    return Origin(**stored)


def _each_once(items: Iterable[Any]) -> list[Any]:
    return list(dict.fromkeys(items))


def current_commit(length: int = 40, *, but: Sequence[str] = ()) -> str | None:
    """Return the commit of this repository, with "+" where files differ from it; None without.

    `length` is the number of its hexadecimal digits, `but` are files and folders that may differ.
    """
    paths = [".", *(f":(exclude){path}" for path in but)]
    try:
        commit = _git("rev-parse", "HEAD")[:length]
        changed = _git("status", "--porcelain", "--untracked-files=no", "--", *paths)
        return commit + ("+" if changed else "")
    except (OSError, subprocess.CalledProcessError):
        return None


def _git(*words: str) -> str:
    found = subprocess.run(["git", *words], cwd=ROOT, check=True, capture_output=True, text=True)
    return found.stdout.strip()


def _cpu_seconds() -> float:
    """Return the processor seconds of this process and of its children that ended."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system
