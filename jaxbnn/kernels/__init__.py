"""Kernels, `init` and `step`, and how to make kernels out of kernels.

The State and Info classes are importable from here too: `from jaxbnn.kernels import PCNState`.
"""

from jaxbnn.kernels.blocks import BlockState, on_block
from jaxbnn.kernels.compose import (
    ComposedInfo,
    CycleState,
    MixInfo,
    cycle,
    mix,
    repeat,
)
from jaxbnn.kernels.covariance_operator import (
    CovarianceOperator,
    covariance_operator,
    dense_covariance,
)
from jaxbnn.kernels.crank_nicolson import beta_from_delta, delta_from_beta
from jaxbnn.kernels.in_turn import in_turn
from jaxbnn.kernels.jittered import jittered
from jaxbnn.kernels.metropolis import MetropolisInfo, metropolis
from jaxbnn.kernels.pcn import PCNInfo, PCNState, pcn
from jaxbnn.kernels.pcnl import PCNLInfo, PCNLState, pcnl
from jaxbnn.kernels.power_posterior import (
    PowerPosteriorInfo,
    PowerPosteriorState,
    Replicas,
    power_posterior,
)
from jaxbnn.kernels.prior_precisions import (
    PriorPrecisionsInfo,
    PriorPrecisionsState,
    prior_precisions,
)
from jaxbnn.kernels.refresh import refresh
from jaxbnn.kernels.smmala import SMMALAInfo, SMMALAState, smmala
from jaxbnn.kernels.swaps import RoundTrips, Swaps, swap_log_ratio
from jaxbnn.kernels.symmetry import SymmetryInfo, SymmetryState, explain_symmetries, symmetry_moves
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
from jaxbnn.kernels.unit_redraws import UnitRedrawsInfo, UnitRedrawsState, redraw_units
from jaxbnn.kernels.vectors import VectorState, on_vector

__all__ = [
    "Replicas",
    "covariance_operator",
    "cycle",
    "dense_covariance",
    "explain_symmetries",
    "in_turn",
    "jittered",
    "metropolis",
    "mix",
    "on_block",
    "on_vector",
    "pcn",
    "pcnl",
    "power_posterior",
    "prior_precisions",
    "redraw_units",
    "refresh",
    "repeat",
    "smmala",
    "symmetry_moves",
    "truncated_mala",
    "underdamped_langevin",
]
