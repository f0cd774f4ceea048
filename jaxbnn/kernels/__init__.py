from jaxbnn.kernels.compose import (
    BlockState,
    ComposedInfo,
    CycleState,
    MixInfo,
    cycle,
    mix,
    on_block,
    refresh,
    repeat,
)
from jaxbnn.kernels.metropolis import MetropolisInfo, metropolis

__all__ = [
    "BlockState",
    "ComposedInfo",
    "CycleState",
    "MetropolisInfo",
    "MixInfo",
    "cycle",
    "metropolis",
    "mix",
    "on_block",
    "refresh",
    "repeat",
]
