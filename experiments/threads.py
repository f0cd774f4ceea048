"""How many cores one program of a run may use, settled before JAX is imported.

XLA spreads a program's products over all cores unless told otherwise when it starts, and LAPACK
its factorisations, with threads that wait busily. Studies that run several chains' programs side
by side are faster with one core each: two programs that both want both cores took 1.7 times as
long on a machine with two. A config says so by `one_core_programs = true`.
"""

import os
import tomllib
from pathlib import Path

FLAG = "--xla_cpu_multi_thread_eigen"
LAPACK = "OPENBLAS_NUM_THREADS"


def without_our_threads(environment: dict[str, str]) -> dict[str, str]:
    """Return an environment without the number of threads that `import jaxbnn` chose for XLA.

    For programs of others that we measure: they choose for themselves.

    Examples
    --------
    >>> without_our_threads({"PJRT_NPROC": "4", "JAXBNN_SET_PJRT_NPROC": "yes", "A": "b"})
    {'A': 'b'}
    >>> without_our_threads({"PJRT_NPROC": "8"})
    {'PJRT_NPROC': '8'}
    """
    if "JAXBNN_SET_PJRT_NPROC" not in environment:
        return environment
    ours = ("PJRT_NPROC", "JAXBNN_SET_PJRT_NPROC")
    return {name: value for name, value in environment.items() if name not in ours}


def settle_threads(config: Path) -> None:
    """Keep each program on one core where the config asks for it.

    To be called before JAX is imported, and LAPACK with it, which read the environment once; what a
    user has set stays. A file that cannot be read is left for `read_config` to complain of.
    """
    try:
        content = tomllib.loads(config.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return
    flags = os.environ.get("XLA_FLAGS", "")
    if content.get("one_core_programs") is True:
        if FLAG not in flags:
            os.environ["XLA_FLAGS"] = f"{flags} {FLAG}=false".strip()
        if "OMP_NUM_THREADS" not in os.environ:
            os.environ.setdefault(LAPACK, "1")
