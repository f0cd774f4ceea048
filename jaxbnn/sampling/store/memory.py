"""The store of a run without a checkpoint: draws in the memory of the host, nothing on a disk."""

import time
from typing import Any

import jax
import numpy as np
from jaxtyping import PyTree

from jaxbnn.sampling.devices.hosts import gather
from jaxbnn.sampling.store.progressed import START, Progressed


class Memory:
    """Keeps the draws of one run of this process; it has the methods of `Folder`."""

    progressed = Progressed(START, 0, 0)
    is_on_disk = False

    def __init__(self, num_draws: int):
        self._num_draws, self._began = num_draws, time.perf_counter()
        self._draws: PyTree = None

    @property
    def seconds(self) -> float:
        """Seconds that the run took so far."""
        return time.perf_counter() - self._began

    def publish(self, progressed: Progressed, trees: dict[str, PyTree]) -> None:
        """Nothing outlasts this process."""

    def restore(self, name: str) -> PyTree:
        """Nothing was stored: `progressed` says so, and nobody asks."""
        raise KeyError(name)

    def add_draws(self, first: int, steps: np.ndarray, draws: PyTree, keep: Any) -> None:
        """Copy those draws of a chunk that are kept behind those before; `Folder` has the rest."""
        draws = jax.tree.map(np.asarray, gather(draws))
        if self._draws is None:
            self._draws = jax.tree.map(
                lambda x: np.empty((x.shape[0], self._num_draws, *x.shape[2:]), x.dtype), draws
            )

        def copy(kept, new):
            kept[:, first : first + len(steps)] = new[:, keep]

        jax.tree.map(copy, self._draws, draws)

    def read_draws(self, num_kept: int, *, is_lazy: bool = False) -> tuple[PyTree, PyTree]:
        """Return positions and infos of the first draws; None before the first."""
        if self._draws is None:
            return None, None
        return jax.tree.map(lambda x: x[:, :num_kept], self._draws)
