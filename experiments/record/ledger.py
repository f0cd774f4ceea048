"""What a run has cost so far and which code ran it, kept beside its results.

A run that was stopped and resumed is one run: its processor seconds are those of all its
processes, its commits and digests of code those of all of them. A stage that another run made, of
fewer arms say, brings its own with it. What a killed process spent since its last finished stage is
not counted.
"""

import json
import os
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from experiments.record.code import ROOT
from experiments.results import write_json

FILE = "ledger.json"
# Folders that recording writes into: no run depends on them.
WRITTEN = ("record", "docs")


@dataclass
class Ledger:
    """Processor seconds, commits and code digests of one run, over all its processes.

    Parameters
    ----------
    folder
        The run's folder.
    identity
        What the run computes, as JSON data: scale, seed, settings.
    outside
        Processor seconds of all processes, their children included, up to the last `write`, less
        those of finished stages.
    stages
        The seconds of each finished stage, by name.
    commits, code
        Of the processes in turn and of the stages, each once.
    counted
        This process's own seconds at the last `write`.
    """

    folder: Path
    identity: Mapping[str, Any]
    outside: float = 0.0
    stages: dict[str, float] = field(default_factory=dict)
    commits: list[str | None] = field(default_factory=list)
    code: list[str] = field(default_factory=list)
    counted: float = field(default_factory=lambda: _cpu_seconds())

    @classmethod
    def open(
        cls, folder: Path, identity: Mapping[str, Any], code: str, *, resume: bool
    ) -> "Ledger":
        """Start a ledger, or under `resume` go on with that of the same run."""
        ledger = cls(folder, json.loads(json.dumps(identity, default=str)))
        if resume:
            ledger._read()
        commit = current_commit(but=WRITTEN)
        ledger.commits = list(dict.fromkeys([*ledger.commits, commit]))
        ledger.code = list(dict.fromkeys([*ledger.code, code]))
        return ledger

    def spent(self) -> float:
        """Return the processor seconds of this process and of its children that ended."""
        return _cpu_seconds()

    def finished(self, name: str, seconds: float) -> dict[str, Any]:
        """Count a stage of this process; return what is to be stored with it."""
        self.outside -= seconds
        self.stages[name] = seconds
        return {"cpu_seconds": seconds, "commit": self.commits[-1], "code": self.code[-1]}

    def reused(self, name: str, origin: Mapping[str, Any]) -> None:
        """Count a stage that was read back, by what was stored with it."""
        self.stages[name] = float(origin["cpu_seconds"])
        for known, one in ((self.commits, origin["commit"]), (self.code, origin["code"])):
            if one not in known:
                known.insert(0, one)

    def write(self) -> None:
        """Add what was spent since the last call, and write the file whole."""
        now = self.spent()
        self.outside += now - self.counted
        self.counted = now
        kept = {"identity": self.identity, "outside": self.outside, "stages": self.stages}
        write_json(self.folder / FILE, {**kept, **self.entries})

    @property
    def entries(self) -> dict[str, Any]:
        """What run.json says of it."""
        return {
            "cpu_seconds": round(self.outside + sum(self.stages.values()), 1),
            "commits": self.commits,
            "code": self.code,
        }

    def _read(self) -> None:
        try:
            stored = json.loads((self.folder / FILE).read_text(encoding="utf-8"))
            if stored["identity"] == self.identity:
                self.outside = float(stored["outside"])
                self.stages = {name: float(value) for name, value in stored["stages"].items()}
                self.commits, self.code = list(stored["commits"]), list(stored["code"])
        except (OSError, ValueError, KeyError, TypeError):
            return  # another run's, or none: this one starts its own


def current_commit(length: int = 40, *, but: Sequence[str] = ()) -> str | None:
    """Return the commit of this repository, with "+" where files differ from it; None without.

    `length` is the number of its hexadecimal digits, `but` are folders whose files may differ.
    """
    paths = [".", *(f":(exclude){folder}" for folder in but)]
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
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system
