"""Processor seconds without those of compiling.

Arms of a study share programs, and whoever comes first would pay for all. What JAX takes to trace
a program, a small part, is counted.
"""

import time

import jax

_COMPILED = (
    "/jax/core/compile/backend_compile_duration",
    "/jax/core/compile/jaxpr_to_mlir_module_duration",
)


class Clock:
    """Counts from its making on.

    Compiling is measured in wall seconds: give the process a core of its own, which nothing else
    uses, or too much is taken away.

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
        if event in _COMPILED:
            Clock._compiling += duration_secs


jax.monitoring.register_event_duration_secs_listener(Clock.heard)
