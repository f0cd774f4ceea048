"""Runs that are killed without warning, resumed by other processes, and compared with one that
was not.

    python -m tests.sampling.kills [--number 200] [--report tests/KILLS.md] [--log kills.log]

Each start is a process of its own, under a hash seed of its own; some runs are shared by two or
four processes. A run is killed a few times in a row before it may end. Half of the kills come at a
moment uniform over the rest of the run, the others at a call that writes: before, midway in or
after it. A kill never lets a process do anything more (SIGKILL). After each kill the draws in the
folder must be those of the run that was not killed, bit for bit, and no more than the chunk in
progress may be lost; in the end all numbers must agree. A campaign that was stopped goes on
from its log. Exit status 1 if anything differs.
"""

import argparse
import collections
import datetime
import itertools
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

import jax
import numpy as np

from experiments.record.ledger import current_commit
from jaxbnn.sampling import open_draws
from jaxbnn.sampling.store.state import read_state
from tests.sampling.kill_program import DATA, OPTIONS, kind_of
from tests.sampling.small_run import WARMUP_CHUNK

ROOT = Path(__file__).parents[2]
PROGRAM = Path(__file__).with_name("kill_program.py")
# Kills in a row before the run may end.
KILLS_A_RUN = 4
# Of a hundred kills, so many fall on runs shared by this number of processes.
PROCESSES = {1: 78, 2: 14, 4: 8}
WHEN = ("before", "midway", "after")


class Ended(NamedTuple):
    """What became of one start: lines that it told, whether it was killed, its seconds."""

    told: list[dict]
    is_killed: bool
    seconds: float

    def last(self, name):
        return next((line[name] for line in reversed(self.told) if name in line), None)


class Start:
    """Starts processes, each under another hash seed, and kills them at a moment."""

    def __init__(self, seed: int):
        self.rng, self.number = np.random.default_rng(seed), 0
        self.hash_seeds: set[int] = set()

    def __call__(self, data, count, folder, *, hook="", delay=None) -> Ended:
        self.number += 1
        hash_seed = int(self.rng.integers(1, 2**32))
        self.hash_seeds.add(hash_seed)
        command = [sys.executable, str(PROGRAM), data, str(folder), hook]
        if count > 1:
            command[1:1] = ["-m", "jaxbnn", "hosts", "--processes", str(count)]
        environment = os.environ | {"PYTHONPATH": str(ROOT), "JAX_PLATFORMS": "cpu"}
        # Each of several processes draws a hash seed of its own.
        environment["PYTHONHASHSEED"] = str(hash_seed) if count == 1 else "random"
        # Errors into a file: a pipe that nobody reads holds 64 KiB, and then the process waits.
        with tempfile.TemporaryFile() as told:
            process = subprocess.Popen(
                command, cwd=ROOT, env=environment, stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE, stderr=told, start_new_session=True,
            )  # fmt: skip
            text, seconds = _follow(process, delay)
            status = process.wait()
            told.seek(0)
            errors = told.read().decode()
        # The lines of all processes but the first have a number before them.
        lines = [
            json.loads(line[line.index(b"{") :])
            for line in text.splitlines()
            if line.endswith(b"}")
        ]
        is_killed = status == -signal.SIGKILL or "was killed by SIGKILL" in errors
        if not is_killed and status != 0:
            raise RuntimeError(f"a run of {data} failed with status {status}: {errors}")
        return Ended(lines, is_killed, seconds)


def _follow(process, delay) -> tuple[bytes, float]:
    """Read what is told; kill all processes `delay` seconds after the first chunk."""
    text, first, deadline, pipe = b"", None, None, process.stdout.fileno()
    while True:
        left = None if deadline is None else max(deadline - time.perf_counter(), 0)
        if left == 0 or not select.select([pipe], [], [], left)[0]:
            os.killpg(process.pid, signal.SIGKILL)
            deadline = delay = None
            continue
        part = os.read(pipe, 2**16)
        if not part:
            break
        text += part
        if first is None and b'"done"' in text:
            first = time.perf_counter()
            deadline = None if delay is None else first + delay
    return text, time.perf_counter() - (first or time.perf_counter())


class Whole(NamedTuple):
    """The run that was not killed: its folder, its digest, its calls that write, its seconds."""

    folder: Path
    digest: str
    calls: int
    seconds: float


class Campaign:
    """Kills by kind of data and number of processes, with those of a log from before."""

    def __init__(self, root: Path, seed: int, log):
        log.seek(0)
        before = [json.loads(line) for line in log if line.endswith("}\n")]
        self.root, self.log, self.start = root, log, Start(seed + len(before))
        self.commit = current_commit(10)
        self.rng = np.random.default_rng(seed + 1 + len(before))
        # Of a run that was stopped in the middle, the kills count and the run does not.
        self.rows = [row for row in before if "number" in row]
        ended = [row for row in before if "ended" in row]
        self.runs = [row["same"] for row in ended]
        self.earlier_seeds = {one for row in ended for one in row["hash_seeds"]}
        self.earlier_starts = sum(row["starts"] for row in ended)
        self.told_starts = 0
        self.wholes: dict[tuple[str, int], Whole] = {}

    def whole(self, data: str, count: int) -> Whole:
        """Return the run that nobody kills, made when it is first asked for."""
        if (data, count) not in self.wholes:
            folder = self.root / f"whole {data} {count}"
            ended = self.start(data, count, folder)
            told = ended.last("digest"), ended.last("calls"), ended.seconds
            self.wholes[data, count] = Whole(folder, *told)
        return self.wholes[data, count]

    def run(self, data: str, count: int, most: int) -> None:
        """Kill one run a few times, then let it end; it must have ended like the whole one."""
        whole, folder = self.whole(data, count), self.root / "run"
        shutil.rmtree(folder, ignore_errors=True)
        for left in range(most, 0, -1):
            share = self.rng.uniform(0, 1 / left) * _share_left(folder)
            if self.rng.random() < 0.5:
                kind, delay, hook = "at any moment", share * whole.seconds, ""
            else:
                number = 1 + int(share * whole.calls)
                hook = f"{self.rng.integers(count)} {number} {self.rng.choice(WHEN)}"
                kind, delay = "at a call that writes", None
            before = _progressed(folder)
            ended = self.start(data, count, folder, hook=hook, delay=delay)
            if not ended.is_killed:
                break
            self._seen(data, count, kind, whole, folder, before, ended)
        else:
            ended = self.start(data, count, folder)
        self.runs.append(ended.last("digest") == whole.digest)
        row = {
            "ended": data,
            "processes": count,
            "same": self.runs[-1],
            "starts": self.start.number - self.told_starts,
            "hash_seeds": sorted(self.start.hash_seeds),
        }
        self.told_starts = self.start.number
        print(json.dumps(row), file=self.log, flush=True)

    def _seen(self, data, count, kind, whole, folder, before, ended):
        phase, done, kept = _progressed(folder)
        told = ended.last("phase"), ended.last("done")
        # What was told was published before, and what was published is never lost.
        is_lost = (phase, done) < before[:2] if phase == before[0] else phase < before[0]
        if told[0] is not None and _number(told[0]) == phase:
            is_lost |= (told[1] // (OPTIONS["thinning"] if phase else 1)) > done
        row = {
            "number": len(self.rows) + 1,
            "commit": self.commit,
            "data": data,
            "processes": count,
            "kind": kind,
            "fell": ended.last("where") or _where(folder, kept),
            "phase": ("warm-up", "sampling")[phase],
            "published": done,
            "lost": bool(is_lost),
            "same": _same_draws(folder, whole.folder, kept),
        }
        self.rows.append(row)
        print(json.dumps(row), file=self.log, flush=True)

    def is_well(self) -> bool:
        return all(self.runs) and all(row["same"] and not row["lost"] for row in self.rows)

    def report(self) -> str:
        """Return Markdown: what was tried and what differed."""
        lines = ["| data | processes | kills | runs |", "| --- | --- | --- | --- |"]
        counts = collections.Counter((row["data"], row["processes"]) for row in self.rows)
        for (data, count), number in sorted(counts.items(), key=lambda item: item[0][::-1]):
            lines.append(f"| {data} | {count} | {number} | {-(-number // KILLS_A_RUN)} or more |")
        for title, names in (("kill", ("kind", "phase")), ("where it fell", ("fell",))):
            kinds = collections.Counter(", in ".join(row[n] for n in names) for row in self.rows)
            lines += ["", f"| {title} | number |", "| --- | --- |"]
            lines += [f"| {kind} | {number} |" for kind, number in kinds.most_common()]
        different = sum(not row["same"] for row in self.rows)
        lost = sum(row["lost"] for row in self.rows)
        lines += [
            "",
            f"{len(self.rows)} kills of {len(self.runs)} runs, "
            f"{self.earlier_starts + self.start.number} starts under "
            f"{len(self.earlier_seeds | self.start.hash_seeds)} hash seeds:",
            f"after {different} kills the draws in the folder differed from those of the run that "
            "was not killed,",
            f"after {lost} more than the chunk in progress was lost, and "
            f"{self.runs.count(False)} runs ended with other numbers.",
        ]
        return "\n".join(lines)


def _number(phase: str) -> int:
    return int(phase == "sampling")


def _progressed(folder: Path) -> tuple[int, int, int]:
    """Return what is published: 0 (warm-up) or 1 (sampling), steps or records of it, draws."""
    if not (folder / "state.nc").exists():
        return 0, 0, 0
    phase, done, kept = read_state(folder)[0]["progressed"]
    return int(phase in ("sampling", "finished")), done, kept


def _share_left(folder: Path) -> float:
    """Return which share of the whole run's calls that write is still to come."""
    warm, each = OPTIONS["num_warmup"] // WARMUP_CHUNK, OPTIONS["num_samples"]
    phase, done, _ = _progressed(folder)
    total = warm + each  # a chunk of two draws writes two files, one of warm-up one
    return 1 - (warm + done if phase else done // WARMUP_CHUNK) / total


def _where(folder: Path, kept: int) -> str:
    parts = sorted(folder.glob("*.part"))
    if parts:
        return f"{kind_of(parts[0])} not yet renamed"
    begins = {int(path.name[6:18]) for path in folder.glob("draws-*.nc")}
    return "draws written, state not yet" if any(b >= kept for b in begins) else "between writes"


def _same_draws(folder: Path, whole: Path, kept: int) -> bool:
    """Whether the draws that the state counts are the first ones of the whole run."""
    if not (folder / "state.nc").exists():
        return True
    found, expected = open_draws(folder), open_draws(whole)
    pairs = zip(
        jax.tree.leaves((found.positions, found.infos)),
        jax.tree.leaves((expected.positions, expected.infos)) if kept else [],
        strict=True,
    )
    return len(found.steps) == kept and all(
        np.asarray(x).tobytes() == np.asarray(y[:, :kept]).tobytes() for x, y in pairs
    )


def plan(number: int):
    """Return (data, processes) of runs with that many kills in all, kinds spread evenly."""
    counts = [count for count, share in PROCESSES.items() for _ in range(share)]
    order = sorted(range(len(counts)), key=lambda i: (i * 0.618034) % 1)
    names = list(DATA)
    for i in range(number):
        round_number = i // len(names)
        yield names[i % len(names)], counts[order[round_number % len(counts)]]


def main(arguments=None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--number", type=int, default=200)
    parser.add_argument("--log", type=Path, default=Path(os.devnull))
    parser.add_argument("--report", type=Path, help="write the tables to this file")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as root, options.log.open("a+") as log:
        # Programs are compiled once for all the processes.
        os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", f"{root}/programs")
        os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0"
        campaign = Campaign(Path(root), options.seed, log)
        runs = itertools.islice(plan(options.number), len(campaign.runs), None)
        while (left := options.number - len(campaign.rows)) > 0:
            data, count = next(runs)
            campaign.run(data, count, min(left, KILLS_A_RUN))
    print(campaign.report())
    if options.report:
        options.report.write_text(_page(options.number, campaign), encoding="utf-8")
    return int(not campaign.is_well())


def _page(number: int, campaign: Campaign) -> str:
    about = __doc__.partition("]\n\n")[2]
    kills = collections.Counter(row["commit"] for row in campaign.rows)
    commits = ", ".join(f"{commit} ({count} kills)" for commit, count in kills.items())
    return (
        "# Runs that were killed, and how they went on\n\n"
        f"Made until {datetime.date.today()} at commit {commits} by\n\n"
        f"    python -m tests.sampling.kills --number {number} --report tests/KILLS.md\n\n"
        f"{about.rpartition(' Exit')[0]}\n\n{campaign.report()}\n"
    )


if __name__ == "__main__":
    sys.exit(main())
