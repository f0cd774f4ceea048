"""Networks as plain data, their parameters, the forward pass, and their symmetries."""

from jaxbnn.networks.activations import activation_function
from jaxbnn.networks.forward import apply, features, init
from jaxbnn.networks.layers import Activation, AvgPool, Conv, Dense, Flatten, Layer, Residual
from jaxbnn.networks.network import (
    Network,
    layer_shapes,
    mlp,
    num_parameters,
    output_shape,
    parameter_shapes,
)
from jaxbnn.networks.summary import network_summary
from jaxbnn.networks.symmetries import canonicalize, weight_symmetries

__all__ = [
    "Activation",
    "AvgPool",
    "Conv",
    "Dense",
    "Flatten",
    "Layer",
    "Network",
    "Residual",
    "apply",
    "canonicalize",
    "features",
    "init",
    "layer_shapes",
    "mlp",
    "network_summary",
    "num_parameters",
    "parameter_shapes",
    "weight_symmetries",
]
