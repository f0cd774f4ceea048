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
from jaxbnn.kernels.covariance_operator import (
    CovarianceOperator,
    covariance_operator,
    dense_covariance,
)
from jaxbnn.kernels.crank_nicolson import beta_from_delta, delta_from_beta
from jaxbnn.kernels.metropolis import MetropolisInfo, metropolis
from jaxbnn.kernels.pcn import PCNInfo, PCNState, pcn
from jaxbnn.kernels.pcnl import PCNLInfo, PCNLState, pcnl
from jaxbnn.kernels.smmala import SMMALAInfo, SMMALAState, smmala
from jaxbnn.kernels.truncated_mala import (
    TruncatedMALAInfo,
    TruncatedMALAState,
    truncated_mala,
)
from jaxbnn.kernels.underdamped_langevin import (
    UnderdampedLangevinInfo,
    UnderdampedLangevinState,
    underdamped_langevin,
)

__all__ = [
    "BlockState",
    "ComposedInfo",
    "CovarianceOperator",
    "CycleState",
    "MetropolisInfo",
    "MixInfo",
    "PCNInfo",
    "PCNLInfo",
    "PCNLState",
    "PCNState",
    "SMMALAInfo",
    "SMMALAState",
    "TruncatedMALAInfo",
    "TruncatedMALAState",
    "UnderdampedLangevinInfo",
    "UnderdampedLangevinState",
    "beta_from_delta",
    "covariance_operator",
    "cycle",
    "delta_from_beta",
    "dense_covariance",
    "metropolis",
    "mix",
    "on_block",
    "pcn",
    "pcnl",
    "refresh",
    "repeat",
    "smmala",
    "truncated_mala",
    "underdamped_langevin",
]
