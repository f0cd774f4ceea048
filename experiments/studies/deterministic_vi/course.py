"""What is noted of a fit on its way, kept beside its checkpoint: a resumed fit knows its past."""

import time
from collections.abc import Mapping
from pathlib import Path

import jax
import numpy as np
from jaxtyping import PyTree

from experiments.results import written_whole
from jaxbnn import dvi

_LAST_PART = 0.9


class Course:
    """The seconds of a fit, q before its last tenth, and what was watched after each chunk.

    Notes are written after each chunk, next to the fit's own files. A process that is killed while
    it watches loses what it would have seen: a point of a curve, but not the last (`fits.train`).

    Parameters
    ----------
    folder
        The fit's checkpoint, or None: notes are not kept.
    starts
        q to begin with, leaves (run, ...).
    """

    def __init__(self, folder: Path | None, starts: PyTree):
        self._path = None if folder is None else folder / "course.npz"
        self._leaves, self._kind = jax.tree.flatten(starts)
        self._began = time.perf_counter()
        self._earlier = 0.0
        # Updates at the last note, and at the last look.
        self.done = self.last_watched = 0
        self.watched: dict[str, np.ndarray] = {}
        if self._path is not None and self._path.exists():
            with np.load(self._path, allow_pickle=False) as stored:
                self._earlier = float(stored["seconds"])
                self.done = int(stored["done"])
                self.last_watched = int(stored["last_watched"])
                self._leaves = [stored[f"leaf_{i}"] for i in range(len(self._leaves))]
                names = [name for name in stored.files if name.startswith("watched_")]
                self.watched = {name.removeprefix("watched_"): stored[name] for name in names}

    @property
    def seconds(self) -> float:
        """Wall seconds of all processes, up to now."""
        return self._earlier + time.perf_counter() - self._began

    @property
    def before(self) -> PyTree:
        """Return q at the last chunk that ended within the first nine tenths, or the starts."""
        return jax.tree.unflatten(self._kind, self._leaves)

    def note(self, progress: dvi.FitProgress) -> None:
        """Note that a chunk is done."""
        self.done = progress.done
        if progress.done <= _LAST_PART * progress.total:
            self._leaves = jax.tree.leaves(progress.positions)
        self._write()

    def saw(self, seen: Mapping[str, np.ndarray]) -> None:
        """Note what was watched after the last chunk."""
        for name, value in seen.items():
            known = self.watched.get(name, np.zeros((0, *np.shape(value))))
            self.watched[name] = np.concatenate([known, np.asarray(value)[None]])
        self.last_watched = self.done
        self._write()

    def _write(self) -> None:
        if self._path is None:
            return
        leaves = {f"leaf_{i}": np.asarray(leaf) for i, leaf in enumerate(self._leaves)}
        watched = {f"watched_{name}": value for name, value in self.watched.items()}
        counts = {"done": self.done, "last_watched": self.last_watched}
        arrays = {"seconds": self.seconds, **counts, **leaves, **watched}
        with written_whole(self._path) as temporary:
            np.savez(temporary, **arrays)  # type: ignore[arg-type]
