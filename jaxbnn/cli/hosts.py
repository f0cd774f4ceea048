"""One script in several processes on this machine, watched until all have ended."""

import contextlib
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import IO

from jaxbnn.cli.one_host import LOST

# Where one process failed, the others may say why within so many seconds.
_SECONDS_TO_TELL = 2.0


def run_hosts(count: int, script: Path, arguments: Sequence[str] = ()) -> int:
    """Run a script in `count` processes that JAX knows as one; return 0, or 1 after a sentence.

    Each process has called `jax.distributed.initialize` when the script begins; their CPUs are the
    `jax.devices()`, of which `sample` takes a mesh. When one process fails or is killed the others
    are ended. The first process's output is passed on as it is, that of the others with their
    number before each line.

    Parameters
    ----------
    count
        At least 1.
    script
        A Python file.
    arguments
        What the script finds in `sys.argv[1:]`.
    """
    if count < 1:
        raise ValueError(f"--processes must be at least 1, but is {count}.")
    if not script.is_file():
        raise ValueError(f"{script} is no file; give a Python script to run.")
    processes = _start(count, script, arguments)
    readers = [
        threading.Thread(target=_pass_on, args=(index, pipe, stream), daemon=True)
        for index, process in enumerate(processes)
        for pipe, stream in ((process.stdout, sys.stdout), (process.stderr, sys.stderr))
        if pipe is not None
    ]
    for reader in readers:
        reader.start()
    # Ctrl-C reaches the processes too, which end after the chunk and tell what they have.
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        failed = _wait(processes)
    finally:
        signal.signal(signal.SIGINT, before)
        for process in processes:
            process.kill()
            process.wait()
    for reader in readers:
        reader.join()
    if failed is None:
        return 0
    print(f"error: {_sentence(failed, processes[failed].returncode, count)}", file=sys.stderr)
    return 1


def _start(count: int, script: Path, arguments: Sequence[str]) -> list[subprocess.Popen]:
    with socket.socket() as found:
        found.bind(("localhost", 0))
        address = f"localhost:{found.getsockname()[1]}"
    # Several processes cannot share one accelerator; on a cluster there is one launcher a machine.
    environment = {"JAX_PLATFORMS": "cpu"} | os.environ
    program = Path(__file__).with_name("one_host.py")
    return [
        subprocess.Popen(
            [
                sys.executable,
                str(program),
                address,
                str(count),
                str(index),
                str(script),
                *arguments,
            ],
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE if index else None,
            stderr=subprocess.PIPE if index else None,
        )
        for index in range(count)
    ]


def _pass_on(index: int, pipe: IO[bytes], stream: IO[str]) -> None:
    for line in pipe:
        stream.write(f"[{index}] {line.decode(errors='replace')}")
        stream.flush()


def _wait(processes: list[subprocess.Popen]) -> int | None:
    """Return the number of the process that failed, of several the one to blame; None: none."""
    while True:
        ended = [process.poll() for process in processes]
        if None not in ended:
            break
        if any(ended):
            until = time.monotonic() + _SECONDS_TO_TELL
            for process in processes:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(max(until - time.monotonic(), 0))
            break
        time.sleep(0.05)
    failed = {index: p.returncode for index, p in enumerate(processes) if p.returncode}
    # JAX aborts a process that lost another one in its own way.
    rank = {LOST: 3, -signal.SIGABRT: 2}
    return min(failed, key=lambda index: rank.get(failed[index], failed[index] > 0), default=None)


def _sentence(index: int, status: int, count: int) -> str:
    others = {1: "", 2: ", and the other one was ended"}.get(count, ", and the others were ended")
    if status > 0:
        return f"process {index} of {count} failed with exit status {status}{others}."
    return (
        f"process {index} of {count} was killed by {signal.Signals(-status).name}{others}; start "
        "them again, in any number: a run with a checkpoint goes on where it was, one without "
        "begins anew."
    )
