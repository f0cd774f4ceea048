"""What a run computes: one frozen description, made of the checked arguments of `sample`."""

import dataclasses
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import PRNGKeyArray, PyTree

from jaxbnn.sampling.devices.hosts import Hosts
from jaxbnn.sampling.devices.placement import Placement
from jaxbnn.sampling.loops import Options

# A chunk holds at most this many records, and about this many bytes of kept draws. Room that a
# chunk of a second leaves empty is cleared and copied too: 64 MiB took a twentieth of the second.
MOST_RECORDS = 16_384
CHUNK_BYTES = 16 * 2**20
# A gap of a thinning schedule longer than this is walked in several records, not all kept.
_LONGEST_GAP = 10_000


class Schedule(NamedTuple):
    """When draws are kept.

    A draw is kept after each of `steps` sampling steps. The way there is cut into `gaps`, steps
    from one record to the next, and `is_record` says at the end of which a draw is kept.
    """

    steps: np.ndarray
    gaps: np.ndarray
    is_record: np.ndarray

    @classmethod
    def of(cls, steps: np.ndarray) -> "Schedule":
        """Cut the way to each kept draw into gaps."""
        gaps = np.diff(steps, prepend=0)
        num_pieces = -(-gaps // _LONGEST_GAP)
        last = np.cumsum(num_pieces) - 1  # where the last piece of each gap ends up
        pieces = np.full(num_pieces.sum(), _LONGEST_GAP, np.int32)
        pieces[last] = gaps - (num_pieces - 1) * _LONGEST_GAP
        is_record = np.zeros(len(pieces), bool)
        is_record[last] = True
        return cls(steps, pieces, is_record)

    @property
    def is_thinned(self) -> bool:
        """Whether more than one step may lie between two records."""
        return bool((self.gaps > 1).any())

    @property
    def num_records(self) -> int:
        """How many records there are, kept or not."""
        return len(self.gaps)

    def num_kept(self, done: int) -> int:
        """Return how many of the first `done` records are kept."""
        return int(self.is_record[:done].sum())

    def num_steps(self, done: int) -> int:
        """Return after how many steps the first `done` records are made."""
        return int(self.gaps[:done].sum())


@dataclasses.dataclass(frozen=True, eq=False)
class Run:
    """All that `sample` was called with, checked; PyTrees are ordered (see `order.py`).

    `reducers` are the names of `options.reduce`, `asked` the records of a chunk that were asked
    for, and `is_paced` says whether a chunk may be shorter than that, to last about a second.
    """

    key: PRNGKeyArray
    kernel: Any
    positions: PyTree
    parameters: PyTree
    data: PyTree
    num_chains: int
    num_warmup: int
    schedule: Schedule
    options: Options
    reducers: tuple[str, ...]
    asked: int
    is_paced: bool
    is_debug: bool
    is_lazy: bool
    place: Placement
    hosts: Hosts

    def with_capacity(self, capacity: int) -> "Run":
        """Return the run with at most so many records a chunk."""
        return dataclasses.replace(self, options=self.options._replace(capacity=capacity))


def chunk_bytes_a_chain(
    chunk_bytes: int | None, chunk_size: int | None, num_chains: int
) -> int | None:
    """Return the most bytes of records that a chunk holds of each chain; None: any number."""
    if chunk_bytes is None and chunk_size is not None:
        return None
    return max(1, (CHUNK_BYTES if chunk_bytes is None else chunk_bytes) // num_chains)
