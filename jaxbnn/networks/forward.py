"""The forward reading of a network: parameters at random, outputs, features.

    standard:  z = x @ w + b
    ntk:       z = weight_scale / sqrt(d_in) * x @ w + bias_scale * b

with d_in the fan-in (height * width * c_in of a filter), not counting the bias. The ntk form is
(1) of Pezzetti et al. with erratum B1.
"""

import math

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.typing import DTypeLike
from jaxtyping import Array, Float, PRNGKeyArray, PyTree, Shaped

from jaxbnn.networks.activations import activation_function
from jaxbnn.networks.layers import Activation, AvgPool, Conv, Dense, Flatten, Layer, Residual
from jaxbnn.networks.network import Network, check_network, parameter_shapes
from jaxbnn.networks.shapes import fan_in
from jaxbnn.networks.validation import check_inputs, check_params
from jaxbnn.numerics.arguments import check_key, short
from jaxbnn.numerics.arrays import float_dtype

# A Dense with no more inputs and units than this is cheapest with the data in columns: by itself,
# and where all layers of the network are such. `python -m experiments benchmark columns` measures.
_NARROW, _MOST_IN_COLUMNS = 16, 256


def init(rng_key: PRNGKeyArray, network: Network, dtype: DTypeLike = float) -> PyTree:
    """Draw parameters: a place to start, not a draw from a prior.

    standard: w ~ N(0, 1 / d_in), b = 0. ntk: w and b ~ N(0, 1).

    Parameters
    ----------
    rng_key
        Key of the draw.
    network
        The network.
    dtype
        Of the parameters; by default JAX's default float.

    Returns
    -------
    A tuple with one entry per layer; see `Network`.

    Raises
    ------
    TypeError
        If network is not a `Network`, rng_key is not a key, or dtype is not floating point.

    Examples
    --------
    >>> from jaxbnn.networks import mlp
    >>> params = init(jax.random.key(0), mlp((4, 3, 2)))
    >>> jax.tree.map(jnp.shape, params[0])
    {'b': (3,), 'w': (4, 3)}
    """
    check_network(network, "init(rng_key, network)")
    check_key("rng_key", rng_key)
    shapes = parameter_shapes(network, checked_dtype(dtype))
    leaves, structure = jax.tree.flatten(shapes)
    keys = jax.tree.unflatten(structure, list(jax.random.split(rng_key, len(leaves))))

    def draw(path, key, leaf):
        if path[-1].key == "b" and network.parametrisation != "ntk":
            return jnp.zeros(leaf.shape, leaf.dtype)
        # JAX's normals in bfloat16 have the mean -0.012.
        normal = jax.random.normal(key, leaf.shape, float_dtype(leaf.dtype))
        scale = 1 if network.parametrisation == "ntk" else math.sqrt(fan_in(leaf.shape))
        return (normal / scale).astype(leaf.dtype)

    return jax.tree_util.tree_map_with_path(draw, keys, shapes)


def apply(
    network: Network, params: PyTree, x: Shaped[Array | np.ndarray, "n *input"]
) -> Float[Array, "n *output"]:
    """Return the network's output for each datum.

    Matrix products and convolutions run at the highest precision: the default is TF32 on recent
    GPUs, too coarse for the differences of log densities that accept steps are made of.

    Parameters
    ----------
    network
        The network; static under `jax.jit`.
    params
        A tuple with one entry per layer; see `Network`.
    x
        Data of shape (n, *network.input_shape), floating point.

    Raises
    ------
    ValueError
        If x or params have shapes that do not fit the network.
    TypeError
        If x is not floating point.

    Examples
    --------
    >>> from jaxbnn.networks import mlp
    >>> network = mlp((4, 3, 2))
    >>> apply(network, init(jax.random.key(0), network), jnp.ones((5, 4))).shape
    (5, 2)
    """
    x = _check(network, params, x)
    return _apply_layers(network, network.layers, params, x)


def features(
    network: Network, params: PyTree, x: Shaped[Array | np.ndarray, "n *input"]
) -> Float[Array, "n *features"]:
    """Return the input of the last Dense, the read-out, for each datum.

    Parameters
    ----------
    network, params, x
        As in `apply`. The read-out's own parameters are not used.

    Raises
    ------
    ValueError
        If the network does not end in a Dense, or as in `apply`.

    Examples
    --------
    >>> from jaxbnn.networks import mlp
    >>> network = mlp((4, 3, 2))
    >>> features(network, init(jax.random.key(0), network), jnp.ones((5, 4))).shape
    (5, 3)
    """
    check_network(network, "features(network, params, x)")
    if not isinstance(network.layers[-1], Dense):
        raise ValueError(
            "features are the input of a Dense read-out, but the network ends in "
            f"{type(network.layers[-1]).__name__}; let a Dense be its last layer."
        )
    x = _check(network, params, x)
    return _apply_layers(network, network.layers[:-1], params[:-1], x)


def checked_dtype(dtype: DTypeLike) -> DTypeLike:
    """Return a dtype of floating point; raise TypeError for any other."""
    try:
        is_float = jnp.issubdtype(jnp.dtype(dtype), jnp.floating)
    except (TypeError, ValueError):
        is_float = False
    if not is_float:
        raise TypeError(
            f"dtype must be a floating-point type, as jnp.float32, but is {short(dtype)}."
        )
    return dtype


def _apply_layers(network: Network, layers: tuple[Layer, ...], params: PyTree, x: Array) -> Array:
    if x.ndim == 2 and all(_fits_columns(*layer) for layer in zip(layers, params, strict=True)):
        # Units first and the long data axis last, where XLA vectorises on a CPU: value and gradient
        # of an MLP (4, 3, 3) on 150 rows take a third of the time, of ten (10, 50, 2) on 1,000
        # about half. Wider layers gain nothing.
        return _apply_columns(network, layers, params, x.T).T
    for layer, layer_params in zip(layers, params, strict=True):
        x = _apply_layer(network, layer, layer_params, x)
    return x


def _apply_layer(network: Network, layer: Layer, params: PyTree, x: Array) -> Array:
    match layer:
        case Dense():
            return _affine(network, layer, params, _multiply(params["w"], x))
        case Conv():
            return _affine(network, layer, params, _convolve(layer, params["w"], x))
        case AvgPool():
            return _average(layer, x)
        case Activation():
            return activation_function(layer.function)(x)
        case Flatten():
            return x.reshape(x.shape[0], math.prod(x.shape[1:]))
        case Residual():
            return x + _apply_layers(network, layer.layers, params, x)
    raise TypeError(f"{layer!r} has no forward reading.")


def _affine(
    network: Network, layer: Dense | Conv, params: PyTree, product: Array, unit_axis: int = -1
) -> Array:
    """Scale x @ w and add the bias, as the parametrisation has it."""
    ntk = network.parametrisation == "ntk"
    if ntk:
        product = product * (layer.weight_scale / math.sqrt(fan_in(params["w"].shape)))
    if not layer.bias:
        return product
    bias = layer.bias_scale * params["b"] if ntk else params["b"]
    others = [axis for axis in range(product.ndim) if axis != unit_axis % product.ndim]
    return product + jnp.expand_dims(bias, others)


def _multiply(w: Array, x: Array) -> Array:
    """Return x @ w over the last axis of x, of any rank."""
    if max(w.shape) > _NARROW:
        return jnp.dot(x, w, precision="highest")
    product = jnp.tensordot(w, x, ((0,), (x.ndim - 1,)), precision="highest")
    return jnp.moveaxis(product, 0, -1)


def _fits_columns(layer: Layer, params: PyTree) -> bool:
    match layer:
        case Dense():
            return max(params["w"].shape) <= _MOST_IN_COLUMNS
        case Activation():
            # A caller's own function might look along the last axis.
            return isinstance(layer.function, str)
        case Residual():
            return all(_fits_columns(*inner) for inner in zip(layer.layers, params, strict=True))
    return False


def _apply_columns(
    network: Network, layers: tuple[Layer, ...], params: PyTree, x: Float[Array, "inputs n"]
) -> Float[Array, "outputs n"]:
    """Apply layers of few units to data in columns."""
    for layer, layer_params in zip(layers, params, strict=True):
        match layer:
            case Dense():
                product = jnp.tensordot(layer_params["w"], x, ((0,), (0,)), precision="highest")
                x = _affine(network, layer, layer_params, product, unit_axis=0)
            case Activation():
                x = activation_function(layer.function)(x)
            case Residual():
                x = x + _apply_columns(network, layer.layers, layer_params, x)
    return x


def _convolve(layer: Conv, w: Array, x: Array) -> Array:
    dtype = jnp.promote_types(x.dtype, w.dtype)
    return lax.conv_general_dilated(
        x.astype(dtype),
        w.astype(dtype),
        window_strides=layer.stride,
        padding="VALID",
        dimension_numbers=("NHWC", "HWIO", "NHWC"),
        precision="highest",
    )


def _average(layer: AvgPool, x: Array) -> Array:
    assert layer.stride is not None  # resolved at construction
    total = lax.reduce_window(
        x, x.dtype.type(0), lax.add, (1, *layer.window, 1), (1, *layer.stride, 1), "VALID"
    )
    return total / math.prod(layer.window)


def _check(network: Network, params: PyTree, x: Array | np.ndarray) -> Array:
    """Return x as an array, or say in one sentence what does not fit. Costs nothing once traced."""
    check_network(network, "apply(network, params, x)")
    x = check_inputs(network, x)
    check_params(network, params)
    return x
