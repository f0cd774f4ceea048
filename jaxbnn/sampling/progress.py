"""Progress, told on the host between chunks, so that it costs nothing inside a program."""

import math
import sys
import time
from collections.abc import Callable
from typing import NamedTuple


class Progress(NamedTuple):
    """How far a run has come, for `format_progress` or a function of one's own.

    Attributes
    ----------
    phase
        "warm-up" or "sampling"; of `optimised_starts` "training".
    done, total
        Steps of this phase, per chain; of training its updates.
    steps_per_second
        Steps a second of all chains together, compilation left out where it can be.
    seconds_left
        Estimated remaining time of this phase; NaN after its first chunk, whose time tells how long
        compiling took and not how long a step takes.
    acceptance_rate
        Mean over chains and steps of this phase so far, of a resumed warm-up since then; None for a
        kernel that has none.
    """

    phase: str
    done: int
    total: int
    steps_per_second: float
    seconds_left: float
    acceptance_rate: float | None


Reporter = Callable[[Progress], None]


def format_progress(progress: Progress) -> str:
    """Return one line of text for `progress`.

    Parameters
    ----------
    progress
        What `sample` tells its `progress` function.

    Examples
    --------
    >>> print(format_progress(Progress("sampling", 50, 200, 120.0, 75.0, 0.81)))
    sampling  25% | 50/200 steps | 120 steps/s | 1:15 left | acceptance 0.810
    """
    share = 100 * progress.done / max(progress.total, 1)
    line = f"{progress.phase:>8} {share:3.0f}% | {progress.done:,}/{progress.total:,} steps"
    if not math.isnan(progress.seconds_left):
        minutes, seconds = divmod(round(progress.seconds_left), 60)
        line += f" | {progress.steps_per_second:,.0f} steps/s | {minutes}:{seconds:02d} left"
    if progress.acceptance_rate is not None:
        line += f" | acceptance {progress.acceptance_rate:.3f}"
    return line


def text_reporter(title: str = "") -> Reporter:
    """Write to standard error: one line redrawn on a terminal, else a line a phase.

    Parameters
    ----------
    title
        A line to begin with; empty: none.
    """
    titles = [title] if title else []

    def report(progress: Progress) -> None:
        while titles:
            print(titles.pop(), file=sys.stderr, flush=True)
        is_last = progress.done == progress.total
        if sys.stderr.isatty():
            end = "\n" if is_last else ""
            print(f"\r{format_progress(progress):<100}", end=end, file=sys.stderr, flush=True)
        elif is_last:
            print(format_progress(progress), file=sys.stderr, flush=True)

    return report


def choose_reporter(progress: bool | Reporter, title: str = "") -> Reporter | None:
    """Turn the `progress` argument of `sample` into a reporter or None."""
    if callable(progress):
        return progress
    return text_reporter(title) if progress else None


class Clock:
    """Steps a second of a phase; the first chunk, which compiles, is left out of the rate.

    `begun` counts the steps that an earlier process made of a run that goes on.
    """

    def __init__(
        self, phase: str, total: int, num_chains: int, report: Reporter | None, begun: int = 0
    ):
        self._phase, self._total, self._num_chains = phase, total, num_chains
        self._report = report
        self._mark = (begun, time.perf_counter())
        self._has_ticked = False

    def tick(self, done: int, acceptance_rate: float | None) -> None:
        """Report after a chunk; `done` counts the steps of this phase so far."""
        now = time.perf_counter()
        mark_done, mark_time = self._mark
        rate = (done - mark_done) / max(now - mark_time, 1e-9)
        left = (self._total - done) / max(rate, 1e-9)
        if not self._has_ticked:
            self._mark, self._has_ticked = (done, now), True
            left = math.nan if done < self._total else 0.0
        if self._report is not None:
            self._report(
                Progress(
                    self._phase, done, self._total, rate * self._num_chains, left, acceptance_rate
                )
            )
