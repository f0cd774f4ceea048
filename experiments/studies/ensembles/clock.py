"""Processor seconds without those of compiling.

Arms of a study share programs, and whoever comes first would pay for all. What JAX takes to trace
a program, a small part, is counted.
"""

import math
import time
from pathlib import Path

import jax

_COMPILED = (
    "/jax/core/compile/backend_compile_duration",
    "/jax/core/compile/jaxpr_to_mlir_module_duration",
)


class Clock:
    """Counts from its making on.

    Compiling is measured in wall seconds: give the process a core of its own, which nothing else
    uses, or too much is taken away.

    Parameters
    ----------
    folder
        Of the checkpoints of what is timed. What an earlier process took is not known, and no cost
        is better than a part of it: if the folder is there already, the seconds are NaN.

    Examples
    --------
    >>> clock = Clock()
    >>> clock.seconds() < 1.0
    True
    """

    _compiling = 0.0  # of the process, in seconds

    def __init__(self, folder: Path | None = None) -> None:
        self._is_whole = folder is None or not folder.exists()
        self._begun = time.process_time() - Clock._compiling

    def seconds(self) -> float:
        """Return the processor seconds since, less those of compiling."""
        if not self._is_whole:
            return math.nan
        return max(time.process_time() - Clock._compiling - self._begun, 0.0)

    @staticmethod
    def heard(event: str, duration_secs: float, **_: str | int) -> None:
        """Count a compilation."""
        if event in _COMPILED:
            Clock._compiling += duration_secs


jax.monitoring.register_event_duration_secs_listener(Clock.heard)
