"""The wiring of a network seen from its units: what writes to them and what reads them.

A segment is what lies between two activations, or an activation and a layer with weights: one
entry per unit, where a Conv's channel is one unit. Pooling, flattening and adding carry a linear
change of a segment along, so they need no entry of their own.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

import jax

from jaxbnn.networks.layers import Activation, AvgPool, Conv, Dense, Flatten, Residual
from jaxbnn.networks.network import Network, parameter_shapes
from jaxbnn.networks.shapes import Shape, fan_in, output_shapes


class Axis(NamedTuple):
    """Where units lie in one parameter array.

    Attributes
    ----------
    leaf
        Index of the array in `jax.tree.leaves(params)`.
    axis
        The units' axis.
    blocks
        How often the units come one after another along the axis: entry block * size + unit.
        More than 1 behind a Flatten of an image, with one block per pixel.
    """

    leaf: int
    axis: int
    blocks: int = 1


class Absorption(NamedTuple):
    """How the next layer's bias makes up for a unit that turns from a into 1 - a.

    Its bias grows by `factor` times the sum of the unit's outgoing weights, with `factor` the
    scale of the weights over the scale of the bias in the parametrisation (1 in the standard one).
    """

    bias: int
    weights: Axis
    factor: float


class Reader(NamedTuple):
    """A layer with weights that reads a segment; `absorption` is None if it has no bias."""

    name: str
    weights: Axis
    absorption: Absorption | None


class Writer(NamedTuple):
    """A layer with weights that writes a segment."""

    name: str
    weights: Axis
    bias: Axis | None


@dataclass
class Segments:
    """Segments, numbered in the order in which data pass them.

    Attributes
    ----------
    sizes
        Number of units of each.
    writers, readers
        Layers with weights before and behind each.
    activations
        (function, segment before, segment behind).
    ties
        Pairs that a Residual adds to each other.
    output
        The last segment; the first, number 0, is the input.
    """

    sizes: list[int] = field(default_factory=list)
    writers: list[list[Writer]] = field(default_factory=list)
    readers: list[list[Reader]] = field(default_factory=list)
    activations: list[tuple[str | Callable, int, int]] = field(default_factory=list)
    ties: list[tuple[int, int]] = field(default_factory=list)
    output: int = 0

    def add(self, size: int) -> int:
        """Append a segment and return its number."""
        self.sizes.append(size)
        self.writers.append([])
        self.readers.append([])
        return len(self.sizes) - 1


def trace_segments(network: Network) -> Segments:
    """Return the segments of a network.

    Raises
    ------
    TypeError
        If it is not known which transformations pass through a layer.

    Examples
    --------
    >>> from jaxbnn.networks import mlp
    >>> trace_segments(mlp((4, 3, 2), "tanh")).sizes
    [4, 3, 3, 2]
    """
    segments = Segments()
    shapes = parameter_shapes(network)
    structure = jax.tree.structure(shapes)
    leaves = jax.tree.unflatten(structure, range(len(jax.tree.leaves(shapes))))
    start = segments.add(network.input_shape[-1]), 1
    segments.output, _ = _trace(
        segments, network, network.layers, network.input_shape, shapes, leaves, start, "layer "
    )
    return segments


def _trace(
    segments: Segments, network: Network, layers, shape: Shape, shapes, leaves, signal, prefix
) -> tuple[int, int]:
    """Follow `signal`, a segment and its number of blocks along the last axis, through layers."""
    outputs = output_shapes(layers, shape)
    for index, (layer, output) in enumerate(zip(layers, outputs, strict=True)):
        segment, blocks = signal
        name = f"{prefix}{index} ({type(layer).__name__})"
        match layer:
            case Dense() | Conv():
                _read(segments, network, layer, shapes[index], leaves[index], signal, name)
                signal = _write(segments, layer, shapes[index], leaves[index], name), 1
            case Activation():
                behind = segments.add(segments.sizes[segment])
                segments.activations.append((layer.function, segment, behind))
                signal = behind, blocks
            case AvgPool():
                pass  # linear, channel by channel
            case Flatten():
                signal = segment, blocks * math.prod(shape[:-1])
            case Residual():
                inner, _ = _trace(
                    segments, network, layer.layers, shape, shapes[index], leaves[index], signal,
                    f"{name}, inner layer ",
                )  # fmt: skip
                segments.ties.append((segment, inner))
            case _:
                raise TypeError(
                    f"no weight symmetries are known of {name}; use Dense, Conv, AvgPool, "
                    "Activation, Flatten and Residual, or no symmetries."
                )
        shape = output
    return signal


def _read(segments: Segments, network: Network, layer, shapes, leaves, signal, name) -> None:
    segment, blocks = signal
    weights = Axis(leaves["w"], len(shapes["w"].shape) - 2, blocks)
    absorption = None
    if layer.bias:
        factor = 1.0
        if network.parametrisation == "ntk":
            scale = layer.weight_scale / math.sqrt(fan_in(shapes["w"].shape))
            factor = scale / layer.bias_scale
        absorption = Absorption(leaves["b"], weights, factor)
    segments.readers[segment].append(Reader(name, weights, absorption))


def _write(segments: Segments, layer, shapes, leaves, name) -> int:
    segment = segments.add(layer.features)
    weights = Axis(leaves["w"], len(shapes["w"].shape) - 1)
    bias = Axis(leaves["b"], 0) if layer.bias else None
    segments.writers[segment].append(Writer(name, weights, bias))
    return segment
