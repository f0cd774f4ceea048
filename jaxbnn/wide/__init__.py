from jaxbnn.wide.marginal import (
    MarginalConditional,
    ReadOutState,
    marginal_conditional,
    with_read_out,
)
from jaxbnn.wide.reparametrisation import Reparametrisation, reparametrise

__all__ = [
    "MarginalConditional",
    "ReadOutState",
    "Reparametrisation",
    "marginal_conditional",
    "reparametrise",
    "with_read_out",
]
