"""Processor seconds without those of compiling: a program that is there already costs nothing more.

Arms of a study share programs, and whoever comes first would pay for all.
"""

import time

import jax

_COMPILED = "/jax/core/compile/backend_compile_duration"


class Clock:
    """Counts from its making on. Compiling is measured in wall seconds: run it on one core.

    Examples
    --------
    >>> clock = Clock()
    >>> clock.seconds() < 1.0
    True
    """

    _compiling = 0.0  # of the process, in seconds

    def __init__(self) -> None:
        self._begun = time.process_time() - Clock._compiling

    def seconds(self) -> float:
        """Return the processor seconds since, less those of compiling."""
        return max(time.process_time() - Clock._compiling - self._begun, 0.0)

    @staticmethod
    def heard(event: str, duration_secs: float, **_: str | int) -> None:
        """Count a compilation."""
        if event == _COMPILED:
            Clock._compiling += duration_secs


jax.monitoring.register_event_duration_secs_listener(Clock.heard)
