"""How many threads XLA has on a CPU of two or three cores."""

import os

# With two threads, and now and then with three, jaxlib 0.10.0 and 0.10.1 wait for ever where two
# batches of matrices could be factorised at once in a loop: each takes a thread and waits for more.
_ENOUGH = 4
_VARIABLES = ("PJRT_NPROC", "NPROC")
# Tells the processes that this one starts that the number is not the user's; see also
# `experiments.threads`.
_OURS = "JAXBNN_SET_PJRT_NPROC"


def spare_threads() -> None:
    """Let XLA have four threads on two or three cores, unless the user has set their number.

    XLA reads the environment when it first computes; what has computed before has its threads. On
    one core nothing waits for another. A process that another one started, perhaps on fewer cores,
    decides for itself.

    Examples
    --------
    >>> spare_threads()
    >>> _cores() not in (2, 3) or any(name in os.environ for name in _VARIABLES)
    True
    """
    if os.environ.pop(_OURS, None) is not None:
        os.environ.pop(_VARIABLES[0], None)
    if any(name in os.environ for name in _VARIABLES):
        return
    if 1 < _cores() < _ENOUGH:
        os.environ[_VARIABLES[0]], os.environ[_OURS] = str(_ENOUGH), "yes"


def _cores() -> int:
    """Return the cores that this process may use, as XLA counts them."""
    if hasattr(os, "sched_getaffinity"):  # not on macOS and Windows
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
