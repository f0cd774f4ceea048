"""How long the next chunk of a run is: when the host looks, by the clock.

No number may depend on it, since the clock is never the same twice; and none does: one program,
cut anywhere, agrees to the last bit.
"""

import time

import numpy as np

# Unless the caller chose the chunk, it is cut to about this long: progress, and Ctrl-C.
_SECONDS_A_CHUNK = 1.0
# Each chunk of a checkpoint is a file: they grow with the run, of which a kill costs this much.
_SHARE_A_CHUNK = 0.01
# A chunk may be as many times longer than the one before, which was too short to time well.
_MOST_GROWTH = 8


class Pace:
    """How many steps to run next so that a chunk lasts about a second.

    It begins with a single step (thinned: a single record, of at most 10,000), which may take
    minutes. Where chunks are files, they grow with the time that the run took: else a run of days
    would leave a hundred thousand of them.
    """

    def __init__(self, *, is_stored: bool = False):
        self._count, self._is_stored = 1, is_stored
        self._began = self._start = time.perf_counter()
        self._is_compiled = False

    def next_steps(self, left: int) -> int:
        """Return how many steps to run now, of `left` that remain."""
        self._start = time.perf_counter()
        return min(left, self._count)

    def next_records(self, gaps: np.ndarray) -> int:
        """Return how many records to make now, of those that lie `gaps` (record,) steps apart."""
        self._start = time.perf_counter()
        return max(1, int(np.searchsorted(np.cumsum(gaps), self._count, "right")))

    def tick(self, count: int) -> None:
        """Learn from the time since a chunk of `count` steps was asked for."""
        now = time.perf_counter()
        if not self._is_compiled:  # the first chunk may have compiled: its time says nothing
            self._is_compiled = True
            return
        per_step = max((now - self._start) / max(count, 1), 1e-9)
        seconds = _SECONDS_A_CHUNK
        if self._is_stored:
            seconds = max(seconds, _SHARE_A_CHUNK * (now - self._began))
        self._count = int(np.clip(seconds / per_step, 1, _MOST_GROWTH * max(count, 1)))
