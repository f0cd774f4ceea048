"""How far a run has come, in the words of its store."""

from typing import NamedTuple

START = "start"
WARM_UP = "warm-up"
SAMPLING = "sampling"
FINISHED = "finished"


class Progressed(NamedTuple):
    """The phase that a run is in, the steps or records of it that are done, the draws kept."""

    phase: str
    done: int
    num_kept: int
