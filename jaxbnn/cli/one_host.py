"""Run a script as one process of several: `python one_host.py ADDRESS COUNT INDEX SCRIPT ...`.

JAX must know of the others before it computes anything, which importing this package does:
therefore a file that is run by its path, and nothing here imports `jaxbnn`.
"""

import os
import runpy
import sys
import threading
import traceback
from pathlib import Path

LOST = 75  # the exit status of a process that stops because another one did


def _end_with_parent() -> None:
    """End when the pipe closes, whose other end the launcher holds for as long as it lives."""
    while os.read(0, 1024):
        pass
    os._exit(LOST)


def _fail(error: BaseException) -> int:
    """Tell what went wrong; of a process that only lost another one the launcher tells."""
    if type(error).__name__ == "LostProcess":
        return LOST
    traceback.print_exception(error)
    return 1


def main() -> None:
    """Join the others, run the script, and end without waiting for them if it fails."""
    address, count, index, script, *_ = sys.argv[1:]
    threading.Thread(target=_end_with_parent, daemon=True).start()
    sys.argv = sys.argv[4:]
    sys.path[0] = str(Path(script).resolve().parent)
    status = 0
    try:
        import jax

        jax.config.update("jax_cpu_collectives_implementation", "gloo")
        jax.distributed.initialize(address, int(count), int(index))
        runpy.run_path(script, run_name="__main__")
    except SystemExit as end:
        if isinstance(end.code, str):
            print(end.code, file=sys.stderr)
        status = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException as error:
        status = _fail(error)
    if status:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)  # else JAX would wait for the others until it gives them up


if __name__ == "__main__":
    main()
