"""Progress of the command: a line at once, its phases by name, and no silence within them."""

import math
import shutil
import sys
import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import Any

# A terminal has one line that changes; a log has lines that stay, and is read afterwards.
_SECONDS_ON_A_TERMINAL = 0.5
_SECONDS_IN_A_LOG = 2.0
_SECONDS_A_LOOK = 0.1
# Those of which another comes, which is to be compiled.
_PHASES = ("warm-up", "training")


class Progress:
    """Tells on standard error what is being done, while a `with` block lasts.

    A phase is told when it begins, and again with its seconds whenever so long has passed without
    a word, by a thread: a compilation does not come back for a minute. All is written under one
    lock in whole lines, so that nothing is told after the block has ended.

    Examples
    --------
    >>> import io
    >>> now, log = [0.0], io.StringIO()
    >>> progress = Progress(log, clock=lambda: now[0])
    >>> progress.begin("sampling")
    >>> now[0] = 3.0
    >>> progress.beat()
    >>> print(log.getvalue(), end="")
    sampling ...
    sampling, 3 s
    """

    def __init__(
        self,
        stream: Any = None,
        *,
        is_quiet: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._stream = sys.stderr if stream is None else stream
        self._is_quiet = is_quiet
        self._clock = clock
        self._is_terminal = self._stream.isatty()
        self._pace = _SECONDS_ON_A_TERMINAL if self._is_terminal else _SECONDS_IN_A_LOG
        self._lock = threading.Lock()
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None
        self._phase = self._detail = ""
        self._shown = 0  # characters of the line that a terminal shows and that may be redrawn
        self._begun = self._told = self._clock()

    def __enter__(self) -> "Progress":
        """Start the thread."""
        if not self._is_quiet:
            self._thread = threading.Thread(target=self._watch, daemon=True)
            self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """End the thread, and leave a terminal's cursor at the start of an empty line."""
        self._ended.set()
        with self._lock:
            self._finish_phase(is_whole=kind is None)
            self._is_quiet = True
        if self._thread is not None:
            self._thread.join()

    def begin(self, phase: str, detail: str = "") -> None:
        """Tell a new phase; the one that goes on already is left to go on."""
        with self._lock:
            if phase == self._phase:
                return
            self._finish_phase(is_whole=True)
            self._phase, self._detail, self._begun = phase, detail, self._clock()
            self._write((f"{phase}: {detail}" if detail else phase) + " ...")

    def tell(self, phase: str, detail: str) -> None:
        """Say how far a phase, which may be a new one, has come; it is shown with the next beat."""
        self.begin(phase, detail)
        with self._lock:
            self._detail = detail

    def say(self, sentence: str) -> None:
        """Write a line that stays."""
        with self._lock:
            self._clear()
            self._write(sentence, is_whole=True)

    def beat(self) -> None:
        """Tell the phase again if nothing was told for so long."""
        with self._lock:
            now = self._clock()
            if self._phase and now - self._told >= self._pace:
                line = f"{self._phase}, {now - self._begun:.0f} s"
                self._write(f"{line}: {self._detail}" if self._detail else line)

    def _watch(self) -> None:
        while not self._ended.wait(_SECONDS_A_LOOK):
            self.beat()

    def _finish_phase(self, *, is_whole: bool) -> None:
        if self._phase and self._is_terminal:
            self._clear()
            if is_whole:
                seconds = self._clock() - self._begun
                self._write(f"{self._phase}: {seconds:.1f} s", is_whole=True)
        self._phase = self._detail = ""

    def _clear(self) -> None:
        if self._shown:
            self._put("\r" + " " * self._shown + "\r")
            self._shown = 0

    def _write(self, line: str, *, is_whole: bool = False) -> None:
        self._told = self._clock()
        if not self._is_terminal or is_whole:
            self._put(line + "\n")
            return
        line = line[: shutil.get_terminal_size().columns - 1]
        self._put("\r" + line.ljust(self._shown))
        self._shown = len(line)

    def _put(self, text: str) -> None:
        if self._is_quiet:
            return
        try:
            self._stream.write(text)
            self._stream.flush()
        except (OSError, ValueError):  # whoever read it has gone: the work goes on
            self._is_quiet = True


def of_sampling(progress: Progress) -> Callable[[Any], None]:
    """Return what `sample` calls with each chunk: a phase that begins has been compiled then."""
    known: list[str] = []

    def report(done: Any) -> None:
        phase = done.phase if done.phase in _PHASES else "draws"
        detail = f"{phase}, {100 * done.done / max(done.total, 1):.0f} %"
        is_known = not math.isnan(done.seconds_left)
        if done.phase in known and is_known:  # the first chunk compiled, also that of a later part
            detail += f", {_time(done.seconds_left)} left"
        known.append(done.phase)
        is_training = done.phase == "training"
        progress.tell("training networks" if is_training else "sampling", detail)
        if done.phase in _PHASES and done.done == done.total:
            if not is_training and "sampling" in known:  # of an earlier part
                progress.tell("sampling", "draws")
                return
            what = "the sampler" if is_training else "the draws after the warm-up"
            progress.begin("compiling", what)

    return report


def of_updates(progress: Progress) -> Callable[[Any], None]:
    """Return what `dvi.fit` calls with each chunk of updates."""
    start: Any = None

    def report(done: Any) -> None:
        nonlocal start
        start = start or done
        detail = f"{100 * done.done / done.total:.0f} %"
        if done.done > start.done:  # the first chunk compiled
            pace = (done.seconds - start.seconds) / (done.done - start.done)
            detail += f", {_time(pace * (done.total - done.done))} left"
        progress.tell("sampling", detail)

    return report


def _time(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"
