"""Runs that are killed without warning, taken up again, and compared with one that was not.

    python -m tests.sampling.kills [--number 200] [--log kills.log] [--seed 0]

Each run is a forked process of its own. Half of the kills come at a moment uniform over the
run; the others at a call that writes: before, midway or after it. A kill never lets the process
do anything more (SIGKILL). Exit status 1 if any resumed run differs in a single bit.
"""

import argparse
import collections
import hashlib
import json
import os
import select
import shutil
import signal
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import h5netcdf  # noqa: F401 - here once, and not in each of the processes
import jax
import numpy as np

# BlackJAX takes a logarithm at import, which starts JAX's threads: after that nothing can fork.
_log, jax.numpy.log = jax.numpy.log, np.log
import blackjax  # noqa: E402, F401

jax.numpy.log = _log

from jaxbnn.sampling import chunks, open_draws  # noqa: E402
from jaxbnn.sampling.checkpoint import read_state  # noqa: E402
from tests.sampling import small_run  # noqa: E402

CALLS = ("write", "fsync", "replace")
OPTIONS = {"num_warmup": 5 * 64, "num_samples": 20, "thinning": 1500, "chunk_size": 2}


class Ended(NamedTuple):
    """What became of one run: lines that it told, whether it was killed, its seconds."""

    told: list[dict]
    is_killed: bool
    seconds: float

    def last(self, name):
        return next((line[name] for line in reversed(self.told) if name in line), None)


def digest(draws) -> str:
    seen = hashlib.sha256()
    for place, leaf in small_run.leaves(draws).items():
        seen.update(f"{place} {leaf.dtype} {leaf.shape}".encode() + leaf.tobytes())
    return seen.hexdigest()


def child(folder: Path, pipe: int, hook) -> None:
    """Run to the end, or to the call named by `hook`: (its number, "before" ...)."""
    write = os.write
    number = 0

    def tell(**line):
        write(pipe, json.dumps(line).encode() + b"\n")

    def watch(name, real):
        def call(*args):
            nonlocal number
            number += 1
            if hook is None or number != hook[0]:
                return real(*args)
            target = args[0] if name == "replace" else os.readlink(f"/proc/self/fd/{args[0]}")
            tell(where=f"{hook[1]} {name} of {_kind(Path(target))}")
            if hook[1] == "midway in" and name == "write":
                real(args[0], args[1][: len(args[1]) // 2])
            elif hook[1] == "after":
                real(*args)
            os.kill(os.getpid(), signal.SIGKILL)

        return call

    for name in CALLS:
        setattr(os, name, watch(name, getattr(os, name)))
    chunks.Pace.tick = lambda self, count: None  # warm-up in chunks of 64 steps, not by the clock
    begun = time.perf_counter()
    draws = small_run.run(
        folder, lambda p: tell(phase=p.phase, done=p.done, calls=number), **OPTIONS
    )
    tell(digest=digest(draws), calls=number, seconds=time.perf_counter() - begun)


def start(folder: Path, *, hook=None, delay: float | None = None) -> Ended:
    """Fork a run; kill it `delay` seconds after its first chunk, unless it kills itself."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            os.close(reader)
            child(folder, writer, hook)
            status = 0
        finally:
            sys.stderr.flush()
            os._exit(status)
    os.close(writer)
    text, first, deadline = b"", None, None
    while True:
        left = None if deadline is None else max(deadline - time.perf_counter(), 0)
        if left == 0 or not select.select([reader], [], [], left)[0]:
            os.kill(pid, signal.SIGKILL)
            deadline, delay = None, None
            continue
        part = os.read(reader, 2**16)
        if not part:
            break
        text += part
        if first is None and b'"done"' in text:
            first = time.perf_counter()
            deadline = None if delay is None else first + delay
    os.close(reader)
    status = os.waitpid(pid, 0)[1]
    lines = [json.loads(line) for line in text.splitlines() if line.endswith(b"}")]
    is_killed = os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL
    if not is_killed and status != 0:
        raise RuntimeError(f"a run failed with status {status}: {lines[-1:]}")
    return Ended(lines, is_killed, time.perf_counter() - (first or time.perf_counter()))


def found(folder: Path) -> tuple[str, tuple]:
    """Where a kill fell, by what lies in the folder, and how far the run had come."""
    progressed = tuple(read_state(folder)[0]["progressed"])
    parts = sorted(folder.glob("*.part"))
    uncounted = len(list(folder.glob("draws-*.nc"))) * OPTIONS["chunk_size"] > progressed[2]
    if parts:
        return f"{_kind(parts[0])} not yet renamed", progressed
    return ("draws written, state not yet" if uncounted else "between writes"), progressed


class Campaign:
    """Kills by kind, each followed by a run that must end like the undisturbed one."""

    def __init__(self, root: Path, seed: int, log):
        self.root, self.rng, self.log = root, np.random.default_rng(seed), log
        self.rows: list[dict] = []
        self.runs = 0
        whole, again = self._whole(), self._whole()
        self.digest, self.seconds = whole.last("digest"), again.seconds
        if again.last("digest") != self.digest:
            raise RuntimeError("two undisturbed runs differ; nothing can be compared with them")
        of_phase = {
            phase: [line["calls"] for line in whole.told if line.get("phase") == phase]
            for phase in ("warm-up", "sampling")
        }
        # From the first published chunk on.
        self.first, self.warm, self.all = (
            of_phase["warm-up"][0],
            of_phase["warm-up"][-1],
            whole.last("calls"),
        )

    def _whole(self) -> Ended:
        folder = self.root / f"whole{self.runs}"
        self.runs += 1
        return start(folder)

    def kill(self, kind: str) -> bool:
        """Kill one run; False if it ended before, which counts for nothing."""
        folder = self.root / "run"
        shutil.rmtree(folder, ignore_errors=True)
        hook, delay = self._moment(kind.removeprefix("resumed, "))
        if kind.startswith("resumed, "):
            early = (int(self.rng.integers(self.first + 1, self.all * 6 // 10)), "before")
            start(folder, hook=early)
            if hook is not None:
                hook = (int(self.rng.integers(1, self.all * 4 // 10)), hook[1])
            else:
                delay *= 0.4
        ended = start(folder, hook=hook, delay=delay)
        if not ended.is_killed:
            return False
        where, progressed = found(folder)
        phase, done = ended.last("phase"), ended.last("done")
        done = done // OPTIONS["thinning"] if phase == "sampling" else done
        is_lost = phase == progressed[0] and done > progressed[1]
        resumed = start(folder)
        same = resumed.last("digest") == self.digest and digest(open_draws(folder)) == self.stored()
        row = {
            "number": len(self.rows) + 1,
            "kind": kind,
            "fell": ended.last("where") or where,
            "phase": progressed[0],
            "published": progressed[1],
            "lost": is_lost,
            "same": bool(same),
        }
        self.rows.append(row)
        print(json.dumps(row), file=self.log, flush=True)
        return True

    def stored(self) -> str:
        """Digest of the undisturbed run as `open_draws` has it: other types, same numbers."""
        return digest(open_draws(self.root / "whole0"))

    def _moment(self, kind: str):
        when = str(self.rng.choice(["before", "midway in", "after"]))
        if kind == "any moment":
            return None, float(self.rng.uniform(0, self.seconds))
        if kind == "inside a write":
            return (int(self.rng.integers(self.first + 1, self.all + 1)), when), None
        return (int(self.rng.integers(self.first + 1, self.warm + 1)), when), None

    def table(self) -> str:
        counts = collections.Counter((row["kind"], row["phase"]) for row in self.rows)
        places = collections.Counter(row["fell"] for row in self.rows)
        different = sum(not row["same"] for row in self.rows)
        lost = sum(row["lost"] for row in self.rows)
        lines = ["| kills | last state published | number |", "| --- | --- | --- |"]
        lines += [f"| {kind} | {phase} | {n} |" for (kind, phase), n in sorted(counts.items())]
        lines += ["", "| where it fell | number |", "| --- | --- |"]
        lines += [f"| {place} | {n} |" for place, n in places.most_common()]
        lines += ["", f"{len(self.rows)} kills: {different} resumed runs differ, {lost} lost more "
                  "than the chunk in progress."]  # fmt: skip
        return "\n".join(lines)


def _kind(path: Path) -> str:
    if path.is_dir():
        return "the folder"
    return "draws" if path.name.startswith("draws-") else "state"


KINDS = {
    "any moment": 45,
    "inside a write": 30,
    "in warm-up": 12,
    "resumed, inside a write": 7,
    "resumed, any moment": 6,
}


def main(arguments=None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--number", type=int, default=200)
    parser.add_argument("--log", type=Path, default=Path(os.devnull))
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as root, options.log.open("w") as log:
        # Programs are compiled once for all the processes.
        os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", f"{root}/programs")
        jax.config.update("jax_compilation_cache_dir", os.environ["JAX_COMPILATION_CACHE_DIR"])
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
        campaign = Campaign(Path(root), options.seed, log)
        total = sum(KINDS.values())
        kinds = [kind for kind, share in KINDS.items() for _ in range(share)]
        # Spread evenly, so that any part of the campaign has kills of all kinds.
        order = sorted(range(total), key=lambda i: (i * 0.618034) % 1)
        while len(campaign.rows) < options.number:
            kind = kinds[order[len(campaign.rows) % total]]
            while not campaign.kill(kind):
                pass
        print(campaign.table())
        print("\n" + campaign.table(), file=log)
        return int(any(row["lost"] or not row["same"] for row in campaign.rows))


if __name__ == "__main__":
    sys.exit(main())
