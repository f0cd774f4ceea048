"""Shapes of activations and parameters, and the one sentence for those that do not fit."""

import math

from jaxbnn.networks.layers import Activation, AvgPool, Conv, Dense, Flatten, Layer, Residual

Shape = tuple[int, ...]


def output_shapes(
    layers: tuple[Layer, ...], input_shape: Shape, path: str = "layer "
) -> tuple[Shape, ...]:
    """Return the output shape of each layer, without the data axis.

    Parameters
    ----------
    layers
        Layers applied in order.
    input_shape
        Shape of one datum before the first.
    path
        How the error names the layer: this, then the index.

    Raises
    ------
    ValueError
        If a layer does not fit the shape that reaches it.

    Examples
    --------
    >>> output_shapes((Conv(2, (3, 3)), Flatten(), Dense(5)), (6, 6, 1))
    ((4, 4, 2), (32,), (5,))
    """
    shapes: list[Shape] = []
    for index, layer in enumerate(layers):
        input_shape = _output_shape(layer, input_shape, f"{path}{index}")
        shapes.append(input_shape)
    return tuple(shapes)


def layer_parameter_shapes(layer: Layer, input_shape: Shape) -> dict[str, Shape] | tuple:
    """Return the parameters' shapes of one layer: a dict, a tuple for a Residual, or ().

    Examples
    --------
    >>> layer_parameter_shapes(Dense(3), (4,))
    {'w': (4, 3), 'b': (3,)}
    """
    match layer:
        case Dense() | Conv():
            window = layer.window if isinstance(layer, Conv) else ()
            shapes: dict[str, Shape] = {"w": (*window, input_shape[-1], layer.features)}
            return shapes | {"b": (layer.features,)} if layer.bias else shapes
        case Residual():
            return layers_parameter_shapes(layer.layers, input_shape)
        case _:
            return ()


def layers_parameter_shapes(layers: tuple[Layer, ...], input_shape: Shape) -> tuple:
    """Return the parameters' shapes of a chain of layers, one entry per layer.

    Examples
    --------
    >>> layers_parameter_shapes((Dense(3, bias=False), Activation("relu")), (4,))
    ({'w': (4, 3)}, ())
    """
    inputs = (input_shape, *output_shapes(layers, input_shape)[:-1])
    return tuple(map(layer_parameter_shapes, layers, inputs))


def fan_in(weight_shape: Shape) -> int:
    """Return the number of inputs of one output unit: d_in, or height * width * c_in.

    Examples
    --------
    >>> fan_in((3, 3, 2, 8))
    18
    """
    return math.prod(weight_shape[:-1])


def _output_shape(layer: Layer, shape: Shape, where: str) -> Shape:
    where = f"{where} ({type(layer).__name__})"
    match layer:
        case Dense():
            if not shape:
                raise ValueError(
                    f"{where} acts on the last axis, but its input has none; use input_shape (1,)."
                )
            return (*shape[:-1], layer.features)
        case Conv():
            rows, columns = _windows(layer.window, layer.stride, shape, where)
            return rows, columns, layer.features
        case AvgPool():
            assert layer.stride is not None  # resolved at construction
            rows, columns = _windows(layer.window, layer.stride, shape, where)
            return rows, columns, shape[2]
        case Flatten():
            return (math.prod(shape),)
        case Activation():
            return shape
        case Residual():
            inner = output_shapes(layer.layers, shape, f"{where}, inner layer ")[-1]
            if inner != shape:
                raise ValueError(
                    f"{where} adds its input of shape {shape} to its inner layers' output of shape "
                    f"{inner}; make the inner layers keep the shape."
                )
            return shape
    raise TypeError(f"{where} is not a layer that has a shape.")


def _windows(window: Shape, stride: Shape, shape: Shape, where: str) -> tuple[int, int]:
    if len(shape) != 3:
        raise ValueError(
            f"{where} needs input of shape (height, width, channels), but gets {shape}; put it "
            "before Flatten, or give such an input_shape."
        )
    if window[0] > shape[0] or window[1] > shape[1]:
        raise ValueError(
            f"{where} has a window of {window[0]} x {window[1]}, larger than its input of "
            f"{shape[0]} x {shape[1]}; use a smaller window, or pool less before it."
        )
    return num_windows(window, stride, shape)


def num_windows(window: Shape, stride: Shape, shape: Shape) -> tuple[int, int]:
    """Return how many windows fit into the rows and columns of an image; 0 where none does."""
    rows, columns = (max(0, (shape[i] - window[i]) // stride[i] + 1) for i in range(2))
    return rows, columns
