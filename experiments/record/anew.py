"""The papers' record made anew: every recorded run, by its config, each in a process of its own.

Benchmarks measure a machine and others' packages: each is made anew by its own command.
"""

import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from experiments.errors import InputError
from experiments.record import RECORD, ROOT, record_runs, recorded_runs
from experiments.record.ledger import WRITTEN, current_commit

Run = Callable[[Sequence[str]], int]


def make_anew(out: Path, *, resume: bool, record: Path = RECORD, run: Run | None = None) -> None:
    """Run again what is recorded and record each run as it ends; print what it costs.

    Parameters
    ----------
    out
        Where the runs' files go, in a folder of this commit: stages of other code are not reused,
        nor are those that the repository keeps.
    resume
        Whether runs that were stopped there go on.
    record
        The record.
    run
        Runs the command with these arguments, and returns its exit status; by default in a process
        of its own, so that each config settles its threads.

    Raises
    ------
    InputError
        If nothing is recorded, or a run fails: what ended before is recorded already.
    """
    known = [about for _, about in recorded_runs(record)]
    if not known:
        raise InputError(f"Nothing is recorded in {record} yet: run a config, then record it.")
    out = out / f"anew-{current_commit(10, but=WRITTEN)}"
    hours = [about["cpu_seconds"] / 3600 for about in known]
    print(f"{len(known)} runs, which took {sum(hours):.1f} CPU hours.", flush=True)
    for about, cost in zip(known, hours, strict=True):
        name, scale = about["experiment"], about["scale"]
        print(f"{name} at scale {scale}: {cost:.2f} CPU hours", flush=True)
        config = ROOT / "configs" / f"{name}.toml"
        command = [str(config), "--scale", scale, "--out", str(out)]
        command += ["--resume", "--without-kept"] if resume else []
        if (run or _in_process)(command):
            raise InputError(
                f"{name} at scale {scale} failed; what ended before it is recorded. With --resume "
                "the same command goes on."
            )
        record_runs(out / name / scale, record)


def _in_process(arguments: Sequence[str]) -> int:
    return subprocess.run([sys.executable, "-m", "experiments", *arguments], cwd=ROOT).returncode
