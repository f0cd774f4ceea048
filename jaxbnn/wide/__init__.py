"""Wide networks: the reparametrised posterior, the exact read-out, reduced inputs."""

from jaxbnn.wide.accepted_moves import AcceptedState, count_accepted
from jaxbnn.wide.complement import Carried, CarriedState, carry_complement
from jaxbnn.wide.input_reduction import InputReduction, reduce_inputs
from jaxbnn.wide.langevin_fill_in import fill_in_langevin
from jaxbnn.wide.marginal import (
    MarginalConditional,
    ReadOutState,
    marginal_conditional,
    with_read_out,
)
from jaxbnn.wide.projections import WeightProjections, weight_directions, weight_projections
from jaxbnn.wide.reduced_langevin import ReducedLangevinState, reduced_langevin
from jaxbnn.wide.reparametrisation import Reparametrisation, reparametrise

__all__ = [
    "InputReduction",
    "WeightProjections",
    "carry_complement",
    "count_accepted",
    "fill_in_langevin",
    "marginal_conditional",
    "reduce_inputs",
    "reduced_langevin",
    "reparametrise",
    "weight_projections",
    "with_read_out",
]
