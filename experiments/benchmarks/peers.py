"""What benchmarks of whole programs share: an environment, processor time, and stored results."""

import json
import os
import subprocess
import sys
import time
import venv
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from experiments.results import written_whole

PACKAGES = {"scikit-learn": "scikit-learn==1.9.1", "bde": "sklearn-contrib-bde==1.0.2"}
_LIMITED = """
import os, resource, sys
seconds = int(sys.argv[1])
resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 5))
os.execvp(sys.argv[2], sys.argv[2:])
"""


def peers_python(folder: Path, packages: Mapping[str, str] = PACKAGES) -> Path | None:
    """Return the Python of an environment with the others; None, after a sentence, if none.

    It is made once. Of several packages all but the first may be missing.
    """
    python = folder / "bin" / "python"
    if not (folder / "made").exists():
        venv.create(folder, with_pip=True, clear=True)
        for number, package in enumerate(packages.values()):
            pip = [str(python), "-m", "pip", "install", "--quiet", package]
            if subprocess.run(pip, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode:
                print(f"{package} cannot be installed here: its methods are left out.", flush=True)
                if number == 0:
                    return None
        (folder / "made").touch()
    return python


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


def last_line(log: Path) -> str:
    """Return what a process printed last: of one that failed, the error."""
    return " ".join(log.read_text(errors="replace").strip().splitlines()[-1:])[:300]


def store(path: Path, found: Mapping[str, Any]) -> None:
    """Write one result as JSON, whole or not at all."""
    with written_whole(path) as temporary:
        temporary.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
