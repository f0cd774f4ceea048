"""A network: layer descriptions, the shape of one datum and a parametrisation. No arrays."""

import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import DTypeLike
from jaxtyping import Array, Float, PyTree, Shaped

from jaxbnn.networks.layers import Activation, Conv, Dense, Layer, Residual, checked_layers
from jaxbnn.networks.shapes import Shape, layers_parameter_shapes, output_shapes
from jaxbnn.numerics.arguments import a_or_an, short

Parametrisation = Literal["standard", "ntk"]


@dataclass(frozen=True)
class Network:
    """Layers in order, applied to data of shape (n, *input_shape).

    Hashable and comparable, hence a static argument of `jax.jit`. Parameters are a PyTree beside
    it: a tuple with one entry per layer, {"w": (d_in, d_out), "b": (d_out,)} for a Dense, the
    same with w (height, width, c_in, c_out) for a Conv, a tuple for a Residual, else ().

    Attributes
    ----------
    layers
        A tuple of layer descriptions.
    input_shape
        Shape of one datum, without the data axis.
    parametrisation
        "standard": z = x @ w + b. "ntk": z = weight_scale / sqrt(d_in) * x @ w + bias_scale * b,
        so that standard normal parameters give activations of a size that does not grow
        with the width.

    Raises
    ------
    ValueError
        If the layers do not fit each other or the input, or the parametrisation is unknown.
    TypeError
        If an entry of layers is not a layer.

    Examples
    --------
    >>> Network((Dense(3), Activation("relu"), Dense(1)), input_shape=(4,)).parametrisation
    'standard'
    >>> Network((Conv(2, (5, 5)),), input_shape=(4, 4, 1))
    Traceback (most recent call last):
    ValueError: layer 0 (Conv) has a window of 5 x 5, larger than its input of 4 x 4; use ...
    """

    layers: tuple[Layer, ...]
    input_shape: tuple[int, ...]
    parametrisation: Parametrisation = "standard"

    def __post_init__(self):
        object.__setattr__(self, "layers", checked_layers("Network", self.layers))
        object.__setattr__(self, "input_shape", _checked_input_shape(self.input_shape))
        is_word = isinstance(self.parametrisation, str)
        if not is_word or self.parametrisation not in ("standard", "ntk"):
            raise ValueError(
                f"parametrisation must be 'standard' or 'ntk', but is "
                f"{short(self.parametrisation)}."
            )
        output_shapes(self.layers, self.input_shape)
        if self.parametrisation == "standard":
            _refuse_scales(self.layers)

    def apply(
        self, params: PyTree, x: Shaped[Array | np.ndarray, "n *input"]
    ) -> Float[Array, "n *output"]:
        """Return the network's output; the same as `jaxbnn.networks.apply(network, params, x)`."""
        # Imported here because the forward reading imports this module.
        from jaxbnn.networks.forward import apply

        return apply(self, params, x)


def mlp(
    widths: Sequence[int],
    activation: str | Callable = "relu",
    *,
    bias: bool = True,
    parametrisation: Parametrisation = "standard",
    weight_scale: float = 1.0,
    bias_scale: float = 1.0,
) -> Network:
    """Return a multilayer perceptron: Dense layers with an activation between them.

    Parameters
    ----------
    widths
        Numbers of units, of the input, the hidden layers and the output: (4, 3, 3) has 4 inputs,
        3 hidden units and 3 outputs.
    activation
        Of the hidden layers; the output has none.
    bias, weight_scale, bias_scale
        Of every Dense.
    parametrisation
        As in `Network`.

    Raises
    ------
    ValueError
        If there are fewer than two widths, one is not positive, or the activation is unknown.
    TypeError
        If widths are not a sequence.

    Examples
    --------
    >>> num_parameters(mlp((4, 3, 3)))
    27
    """
    if not isinstance(widths, Sequence | np.ndarray) or isinstance(widths, str):
        raise TypeError(
            f"widths must be a tuple of numbers of units, as (4, 3, 3), but is {short(widths)}."
        )
    if len(widths) < 2:
        raise ValueError(
            f"widths must hold at least the input's and the output's, but is {tuple(widths)}."
        )
    layers: list[Layer] = []
    for width in widths[1:]:
        layers += [Dense(width, bias, weight_scale, bias_scale), Activation(activation)]
    return Network(tuple(layers[:-1]), (widths[0],), parametrisation)


def layer_shapes(network: Network) -> tuple[Shape, ...]:
    """Return the output shape of each layer, without the data axis.

    Parameters
    ----------
    network
        The network.

    Raises
    ------
    TypeError
        An entry of the network that is not a layer.

    Examples
    --------
    >>> layer_shapes(mlp((4, 3, 2)))
    ((3,), (3,), (2,))
    """
    check_network(network)
    return output_shapes(network.layers, network.input_shape)


def output_shape(network: Network) -> Shape:
    """Return the shape of the network's output for one datum.

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
    >>> output_shape(mlp((4, 3, 2)))
    (2,)
    """
    return layer_shapes(network)[-1]


def parameter_shapes(network: Network, dtype: DTypeLike = float) -> PyTree[jax.ShapeDtypeStruct]:
    """Return the PyTree of `jax.ShapeDtypeStruct` that parameters of the network must fit.

    Parameters
    ----------
    network
        The network.
    dtype
        Of the leaves; by default JAX's default float, float32 or with x64 float64.

    Raises
    ------
    TypeError
        The network is not a `Network`.

    Examples
    --------
    >>> parameter_shapes(mlp((4, 3), bias=False))[0]["w"].shape
    (4, 3)
    """
    check_network(network)
    shapes = layers_parameter_shapes(network.layers, network.input_shape)
    leaf_dtype = jnp.result_type(dtype)
    return _map_shapes(lambda shape: jax.ShapeDtypeStruct(shape, leaf_dtype), shapes)


def num_parameters(network: Network) -> int:
    """Return the number of weights and biases.

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
    >>> num_parameters(mlp((2, 2, 1)))
    9
    """
    return sum(leaf.size for leaf in jax.tree.leaves(parameter_shapes(network)))


def check_network(network: Any, call: str = "") -> None:
    """Raise TypeError unless `network` is a `Network`; `call` shows how it should be given.

    Examples
    --------
    >>> check_network((4, 3), "init(rng_key, network)")
    Traceback (most recent call last):
    TypeError: network must be a jaxbnn.Network, but is a tuple; write init(rng_key, network).
    """
    if not isinstance(network, Network):
        advice = f"write {call}" if call else "make one with jaxbnn.mlp or jaxbnn.Network"
        raise TypeError(f"network must be a jaxbnn.Network, but is {a_or_an(network)}; {advice}.")


def _map_shapes(function, shapes):
    # A shape is itself a tuple, so the recursion goes by dicts and not by jax.tree.
    if isinstance(shapes, dict):
        return {name: function(shape) for name, shape in shapes.items()}
    return tuple(_map_shapes(function, entry) for entry in shapes)


def _checked_input_shape(shape) -> Shape:
    try:
        sizes = tuple(operator.index(size) for size in shape)
    except TypeError:
        sizes = (0,)
    if any(size < 1 for size in sizes):
        raise ValueError(
            "input_shape must be the shape of one datum, a tuple of positive integers such as "
            f"(4,) or (28, 28, 1), but is {short(shape)}."
        )
    return sizes


def _refuse_scales(layers: tuple[Layer, ...]) -> None:
    # Ignoring them would silently sample another model than the one asked for.
    for layer in layers:
        if isinstance(layer, Residual):
            _refuse_scales(layer.layers)
        elif isinstance(layer, Dense | Conv) and (layer.weight_scale, layer.bias_scale) != (1, 1):
            raise ValueError(
                f"weight_scale {layer.weight_scale:g} and bias_scale {layer.bias_scale:g} of "
                f"{type(layer).__name__} are used in the ntk parametrisation only; set "
                "parametrisation='ntk', or leave them at 1 and set the prior's precision."
            )
