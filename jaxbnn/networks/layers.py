"""Layer descriptions: frozen, hashable, plain data without arrays.

What a layer means is a reading of it (`forward.py` here, others in their own folders).
Images are (height, width, channels); convolution and pooling use no padding.
"""

import math
import operator
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from jaxbnn.networks.activations import activation_function
from jaxbnn.numerics.arguments import check_flag, short


@dataclass(frozen=True)
class Dense:
    """An affine map of the last axis, z = x @ w + b with w of shape (d_in, features).

    In the ntk parametrisation z = weight_scale / sqrt(d_in) * x @ w + bias_scale * b.

    Attributes
    ----------
    features
        Width of the output.
    bias
        Whether there is a b.
    weight_scale, bias_scale
        Standard deviations of the scaled parameters in the ntk parametrisation; leave them at 1
        in the standard one.

    Raises
    ------
    ValueError
        If features is not a positive integer, or a scale not positive and finite.

    Examples
    --------
    >>> Dense(3) == Dense(3, bias=True)
    True
    """

    features: int
    bias: bool = True
    weight_scale: float = 1.0
    bias_scale: float = 1.0

    def __post_init__(self):
        _set(self, "features", _positive_integer("features of Dense", self.features))
        check_flag(f"bias of {type(self).__name__}", self.bias)
        _set_scales(self)


@dataclass(frozen=True)
class Conv:
    """A convolution of images without padding, w of shape (height, width, c_in, features).

    Output rows: (height_in - window[0]) // stride[0] + 1; columns alike. The filter is not
    flipped. In the ntk parametrisation d_in is height * width * c_in of the filter.

    Attributes
    ----------
    features
        Number of output channels.
    window
        Height and width of the filter.
    stride
        Step of the filter in rows and columns.
    bias, weight_scale, bias_scale
        As in `Dense`; one bias per output channel.

    Raises
    ------
    ValueError
        If a size is not a positive integer, or a scale not positive and finite.

    Examples
    --------
    >>> Conv(8, (3, 3)).stride
    (1, 1)
    """

    features: int
    window: tuple[int, int]
    stride: tuple[int, int] = (1, 1)
    bias: bool = True
    weight_scale: float = 1.0
    bias_scale: float = 1.0

    def __post_init__(self):
        _set(self, "features", _positive_integer("features of Conv", self.features))
        _set(self, "window", _pair("window of Conv", self.window))
        _set(self, "stride", _pair("stride of Conv", self.stride))
        check_flag(f"bias of {type(self).__name__}", self.bias)
        _set_scales(self)


@dataclass(frozen=True)
class AvgPool:
    """The mean over windows of an image, per channel; left-over rows and columns are dropped.

    Attributes
    ----------
    window
        Height and width of the window.
    stride
        Step of the window in rows and columns; None, the default, is the window itself.

    Raises
    ------
    ValueError
        If a size is not a positive integer.

    Examples
    --------
    >>> AvgPool((2, 2)) == AvgPool((2, 2), stride=(2, 2))
    True
    """

    window: tuple[int, int]
    stride: tuple[int, int] | None = None

    def __post_init__(self):
        _set(self, "window", _pair("window of AvgPool", self.window))
        # Resolved here, so that two spellings of one layer are equal and share a program.
        stride = self.window if self.stride is None else self.stride
        _set(self, "stride", _pair("stride of AvgPool", stride))


@dataclass(frozen=True)
class Activation:
    """An elementwise function, by name or as a callable.

    Attributes
    ----------
    function
        A name that `activation_function` knows, or a hashable callable. Callables are equal only
        if they are the same object: define one once, or each new one compiles a new program.

    Raises
    ------
    ValueError
        If the name is not known.
    TypeError
        If it is neither a name nor a hashable callable.

    Examples
    --------
    >>> Activation("rule")
    Traceback (most recent call last):
    ValueError: unknown activation 'rule'; use one of relu, leaky_relu, ...
    """

    function: str | Callable

    def __post_init__(self):
        activation_function(self.function)
        try:
            hash(self.function)
        except TypeError:
            raise TypeError(
                f"function of Activation must be hashable, but {short(self.function)} is not; "
                "wrap it in a function."
            ) from None


@dataclass(frozen=True)
class Flatten:
    """All axes of a datum in one, the last axis fastest.

    Examples
    --------
    >>> hash(Flatten()) == hash(Flatten())
    True
    """


@dataclass(frozen=True)
class Residual:
    """The sum x + layers(x); the inner layers keep the shape and may hold a Residual.

    Attributes
    ----------
    layers
        A tuple of layers. Their parameters are a tuple with one entry per inner layer.

    Raises
    ------
    TypeError
        If an entry is not a layer.
    ValueError
        If there is no inner layer.

    Examples
    --------
    >>> Residual((Dense(4), Activation("tanh"))).layers[0]
    Dense(features=4, bias=True, weight_scale=1.0, bias_scale=1.0)
    """

    layers: tuple["Layer", ...]

    def __post_init__(self):
        _set(self, "layers", checked_layers("Residual", self.layers))


Layer = Dense | Conv | AvgPool | Activation | Flatten | Residual


def checked_layers(owner: str, layers: Iterable) -> tuple[Layer, ...]:
    """Return `layers` as a tuple, or say which entry is not a layer.

    Examples
    --------
    >>> checked_layers("Network", (Dense(3), "relu"))
    Traceback (most recent call last):
    TypeError: layer 1 of Network is 'relu', not a layer; use Dense(...), ...
    """
    try:
        layers = tuple(layers)
    except TypeError:
        raise TypeError(
            f"layers of {owner} must be a tuple of layers, but is {short(layers)}."
        ) from None
    if not layers:
        raise ValueError(f"{owner} has no layers; give at least one.")
    for index, layer in enumerate(layers):
        if not isinstance(layer, Layer):
            raise TypeError(
                f"layer {index} of {owner} is {short(layer)}, not a layer; use Dense(...), "
                "Conv(...), AvgPool(...), Activation(...), Flatten() or Residual(...)."
            )
    return layers


def _set(layer, name: str, value) -> None:
    # A frozen dataclass offers no other way to normalise a field.
    object.__setattr__(layer, name, value)


def _set_scales(layer) -> None:
    for name in ("weight_scale", "bias_scale"):
        value = getattr(layer, name)
        try:
            scale = float(value)
        except (TypeError, ValueError):
            scale = math.nan
        if not (math.isfinite(scale) and scale > 0):
            raise ValueError(
                f"{name} of {type(layer).__name__} must be a positive number, but is "
                f"{short(value)}."
            )
        _set(layer, name, scale)


def _positive_integer(name: str, value) -> int:
    try:
        number = operator.index(value)
    except TypeError:
        number = 0
    if number < 1:
        raise ValueError(f"{name} must be a positive integer, but is {short(value)}.")
    return number


def _pair(name: str, value) -> tuple[int, int]:
    try:
        rows, columns = (operator.index(entry) for entry in value)
    except (TypeError, ValueError):
        rows = columns = 0
    if rows < 1 or columns < 1:
        raise ValueError(
            f"{name} must be a pair of positive integers (rows, columns), but is {short(value)}."
        )
    return rows, columns
