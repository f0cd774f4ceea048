"""A table of a network's layers, for people."""

import dataclasses
import math

from jaxbnn.networks.layers import Activation, AvgPool, Conv, Dense, Layer, Residual
from jaxbnn.networks.network import Network, check_network, num_parameters
from jaxbnn.networks.shapes import Shape, layer_parameter_shapes, output_shapes


def network_summary(network: Network) -> str:
    """Return a table with one row per layer: what it is, its output's shape, its parameters.

    Inner layers of a Residual are indented below it, and counted in its row too.

    Parameters
    ----------
    network
        The network.

    Raises
    ------
    TypeError
        The network is not a `Network`.

    Examples
    --------
    >>> from jaxbnn.networks import mlp
    >>> print(network_summary(mlp((4, 3, 3))))
    layer             output  parameters
    ------------------------------------
    input             (4,)
    Dense(3)          (3,)            15
    Activation(relu)  (3,)
    Dense(3)          (3,)            12
    ------------------------------------
    27 parameters, standard parametrisation
    """
    check_network(network)
    rows = [("input", str(network.input_shape), "")]
    rows += _rows(network.layers, network.input_shape, indent="")
    heads = ("layer", "output", "parameters")
    first, second, third = (max(map(len, column)) for column in zip(heads, *rows, strict=True))
    lines = [f"{a:<{first}}  {b:<{second}}  {c:>{third}}".rstrip() for a, b, c in (heads, *rows)]
    rule = "-" * (first + second + third + 4)
    total = f"{num_parameters(network):,} parameters, {network.parametrisation} parametrisation"
    return "\n".join((lines[0], rule, *lines[1:], rule, total))


def _rows(layers: tuple[Layer, ...], shape: Shape, indent: str) -> list[tuple[str, str, str]]:
    rows = []
    for layer, output in zip(layers, output_shapes(layers, shape), strict=True):
        count = _count(layer_parameter_shapes(layer, shape))
        rows.append((indent + _describe(layer), str(output), f"{count:,}" if count else ""))
        if isinstance(layer, Residual):
            rows += _rows(layer.layers, shape, indent + "  ")
        shape = output
    return rows


def _count(shapes: dict[str, Shape] | tuple) -> int:
    if isinstance(shapes, dict):
        return sum(map(math.prod, shapes.values()))
    return sum(map(_count, shapes))


def _describe(layer: Layer) -> str:
    """Name the layer with what differs from the defaults."""
    match layer:
        case Activation():
            function = layer.function
            name = function if isinstance(function, str) else getattr(function, "__name__", None)
            return f"Activation({name or repr(function)})"
        case Residual():
            return "Residual"
        case AvgPool(window=window, stride=stride) if window == stride:
            return f"AvgPool({window})"
    shown = [
        f"{value}"
        if field.default is dataclasses.MISSING and isinstance(layer, Dense | Conv)
        else f"{field.name}={value}"
        for field in dataclasses.fields(layer)
        if (value := getattr(layer, field.name)) != field.default
    ]
    return f"{type(layer).__name__}({', '.join(shown)})"
