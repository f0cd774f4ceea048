"""What benchmarks of whole programs share: the others' environment, and processor time."""

import json
import os
import subprocess
import sys
import time
import venv
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from experiments.record.code import ROOT

PACKAGES = {"scikit-learn": "scikit-learn==1.9.1", "bde": "sklearn-contrib-bde==1.0.2"}
# Others run on JAX too; these releases compute wrong sums, as pyproject.toml says.
_REFUSED = "jaxlib!=0.10.2,!=0.11.0"
_LIMITED = """
import os, resource, sys
seconds = int(sys.argv[1])
resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 5))
os.execvp(sys.argv[2], sys.argv[2:])
"""


def peers_python(folder: Path, packages: Mapping[str, str] = PACKAGES) -> Path | None:
    """Return the Python of an environment with the others; None, after a sentence, if none.

    It is made once, with the newest versions that all of them work with. Of several packages all
    but the first may be missing: then they are asked for again the next time.
    """
    python = folder / "bin" / "python"
    if (folder / "made").exists():
        return python
    names = list(packages.values())
    if _installed(folder, python, names):
        (folder / "made").touch()
        return python
    print(f"{' and '.join(names[1:] or names)} cannot be installed here: left out.", flush=True)
    return python if len(names) > 1 and _installed(folder, python, names[:1]) else None


def _installed(folder: Path, python: Path, packages: list[str]) -> bool:
    venv.create(folder, with_pip=True, clear=True)
    constraints = folder / "constraints.txt"
    constraints.write_text(f"{_REFUSED}\n", encoding="utf-8")
    pip = [str(python), "-m", "pip", "install", "--quiet", "-c", str(constraints), *packages]
    return not subprocess.run(pip, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode


def uncached() -> dict[str, str]:
    """Return this process's environment without a compilation cache, which nobody would pay for."""
    return {k: v for k, v in os.environ.items() if k != "JAX_COMPILATION_CACHE_DIR"}


def timed(
    command: list[str], environment: dict[str, str], limit: float | None, log: Path
) -> tuple[float, float, int]:
    """Return processor seconds of a process and its children, wall seconds, and its status.

    `limit` is in processor seconds. What the process prints goes to the file `log`.
    """
    if limit is not None:
        command = [sys.executable, "-c", _LIMITED, str(int(limit)), *command]
    begun = time.monotonic()
    with log.open("wb") as file:
        process = subprocess.Popen(command, env=environment, stdout=file, stderr=file)
        _, status, usage = os.wait4(process.pid, 0)
    process.returncode = status
    return usage.ru_utime + usage.ru_stime, time.monotonic() - begun, status


class Ended(NamedTuple):
    """A process that ended: processor and wall seconds, its result, and what it printed last.

    `found` is None where it failed or was stopped by its limit.
    """

    seconds: float
    wall: float
    found: dict[str, Any] | None
    said: str


def run_module(
    module: str, arguments: Sequence[object], work: Path, limit: float | None = None
) -> Ended:
    """Run a module of ours in a process, which writes JSON to the file that it is given last.

    `limit` is in processor seconds. In `work` are the file and a log; no compilation is cached.
    """
    work.mkdir(parents=True, exist_ok=True)
    result, log = work / "result.json", work / "log.txt"
    result.unlink(missing_ok=True)
    command = [sys.executable, "-m", module, *map(str, arguments), str(result)]
    environment = uncached() | {"PYTHONPATH": str(ROOT)}
    seconds, wall, status = timed(command, environment, limit, log)
    found = None if status else json.loads(result.read_text("utf-8"))
    return Ended(seconds, wall, found, last_line(log))


def last_line(log: Path) -> str:
    """Return what a process printed last: of one that failed, the error."""
    return " ".join(log.read_text(errors="replace").strip().splitlines()[-1:])[:300]
