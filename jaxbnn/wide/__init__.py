from jaxbnn.wide.input_reduction import (
    AcceptedState,
    InputReduction,
    count_accepted,
    reduce_inputs,
)
from jaxbnn.wide.marginal import (
    MarginalConditional,
    ReadOutState,
    marginal_conditional,
    with_read_out,
)
from jaxbnn.wide.reparametrisation import Reparametrisation, reparametrise

__all__ = [
    "AcceptedState",
    "InputReduction",
    "MarginalConditional",
    "ReadOutState",
    "Reparametrisation",
    "count_accepted",
    "marginal_conditional",
    "reduce_inputs",
    "reparametrise",
    "with_read_out",
]
