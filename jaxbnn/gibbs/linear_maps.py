"""Dense, convolution and average pooling as linear maps of arrays with the data axis last.

Values are (*shape, n): XLA vectorises the innermost axis, and n is the long one. A map has a
forward direction, a transpose in its input, and sums over data of products of its features
(the inputs that one output unit sees: d_in of a Dense, height * width * c_in of a filter).
"""

import math

import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float, PyTree

from jaxbnn.gibbs.convolutions import convolve, correlate, filter_inputs
from jaxbnn.networks import AvgPool, Conv, Dense
from jaxbnn.networks.shapes import num_windows

HIGHEST = lax.Precision.HIGHEST


def linear(layer: Dense | Conv, w: Float[Array, "..."], v: Float[Array, "..."]) -> Array:
    """Return the layer's output without its bias.

    Parameters
    ----------
    layer
        A Dense or a Conv.
    w
        Its weights.
    v
        Inputs (*input_shape, n).

    Examples
    --------
    >>> linear(Dense(2), jnp.ones((3, 2)), jnp.ones((3, 5))).shape
    (2, 5)
    """
    if isinstance(layer, Conv):
        return convolve(layer, w, v)
    product = lax.dot_general(w, v, (((0,), (v.ndim - 2,)), ((), ())), precision=HIGHEST)
    return product if v.ndim == 2 else jnp.moveaxis(product, 0, -2)


def affine(layer: Dense | Conv, params: PyTree, v: Float[Array, "..."]) -> Array:
    """Return the layer's output, its bias included.

    Examples
    --------
    >>> params = {"w": jnp.ones((3, 2)), "b": jnp.zeros(2)}
    >>> affine(Dense(2), params, jnp.ones((3, 5)))[0, 0].tolist()
    3.0
    """
    out = linear(layer, params["w"], v)
    if "b" not in params:
        return out
    bias = params["b"][:, None]
    return out + jnp.expand_dims(bias, tuple(range(out.ndim - 2)))


def feature_cross(
    layer: Dense | Conv, v: Float[Array, "..."], e: Float[Array, "..."]
) -> Float[Array, "features units"]:
    """Return the sum over data and positions of features times `e`, an array like the output.

    Examples
    --------
    >>> feature_cross(Dense(2), jnp.ones((3, 5)), jnp.ones((2, 5))).tolist()
    [[5.0, 5.0], [5.0, 5.0], [5.0, 5.0]]
    """
    if isinstance(layer, Conv):
        return correlate(layer, v, e).reshape(-1, layer.features)
    return moments(v, e)


def feature_gram(
    layer: Dense | Conv, v: Float[Array, "..."]
) -> tuple[Float[Array, "features features"], Float[Array, " features"], int]:
    """Return sums over data and positions of features: of products, of single ones, of ones.

    Examples
    --------
    >>> gram, total, count = feature_gram(Dense(2), 2 * jnp.ones((1, 5)))
    >>> gram.tolist(), total.tolist(), count
    ([[20.0]], [10.0], 5)
    """
    v = features_of(layer, v)
    positions = (*range(v.ndim - 2), v.ndim - 1)
    return moments(v, v), jnp.sum(v, axis=positions), math.prod(v.shape) // v.shape[-2]


def features_of(layer: Dense | Conv, v: Float[Array, "..."]) -> Float[Array, "..."]:
    """Return what one output unit sees, (..., features, n).

    Examples
    --------
    >>> features_of(Conv(2, (1, 2)), jnp.ones((1, 3, 1, 5))).shape
    (2, 2, 5)
    """
    return filter_inputs(layer, v) if isinstance(layer, Conv) else v


def moments(v: Float[Array, "..."], e: Float[Array, "..."]) -> Float[Array, "features units"]:
    """Return the sum over data and positions of products of (..., features, n), (..., units, n).

    Examples
    --------
    >>> moments(jnp.ones((3, 5)), jnp.ones((2, 5))).shape
    (3, 2)
    """
    axes = (*range(v.ndim - 2), v.ndim - 1)
    return lax.dot_general(v, e, ((axes, axes), ((), ())), precision=HIGHEST)


def combinations(
    layer: Dense | Conv, v: Float[Array, "..."], matrix: Float[Array, "rows columns"]
) -> Float[Array, "..."]:
    """Return linear combinations of features, and of the constant one if there is a column more.

    (..., rows, n), with the positions of a convolution as one leading axis.

    Examples
    --------
    >>> combinations(Dense(2), jnp.ones((1, 5)), jnp.array([[2.0, 3.0]])).tolist()
    [[5.0, 5.0, 5.0, 5.0, 5.0]]
    """
    v = features_of(layer, v)
    features = v.shape[-2]
    combined = jnp.einsum("pf,...fn->...pn", matrix[:, :features], v, precision=HIGHEST)
    if matrix.shape[1] == features:
        return combined
    return combined + jnp.expand_dims(matrix[:, features:], tuple(range(v.ndim - 2)))


def unit_sums(e: Float[Array, "..."]) -> Float[Array, " units"]:
    """Return the sum over data and positions, one a unit or channel.

    Examples
    --------
    >>> unit_sums(jnp.ones((3, 3, 2, 5))).tolist()
    [45.0, 45.0]
    """
    return jnp.sum(e, axis=(*range(e.ndim - 2), e.ndim - 1))


def matrix_of_conv(
    layer: Conv, w: Float[Array, "..."], input_shape: tuple[int, ...]
) -> Float[Array, "outputs inputs"]:
    """Return the convolution of one image as a matrix, outputs and inputs flattened.

    Examples
    --------
    >>> matrix_of_conv(Conv(1, (1, 2)), jnp.array([[[[1.0]], [[2.0]]]]), (1, 3, 1)).tolist()
    [[1.0, 2.0, 0.0], [0.0, 1.0, 2.0]]
    """
    size = math.prod(input_shape)
    pixels = jnp.eye(size, dtype=w.dtype).reshape(*input_shape, size)
    return linear(layer, w, pixels).reshape(-1, size)


def average(layer: AvgPool, v: Float[Array, "..."]) -> Array:
    """Return the mean over windows of images (height, width, channels, n).

    Examples
    --------
    >>> average(AvgPool((2, 2)), jnp.ones((5, 5, 1, 3))).shape
    (2, 2, 1, 3)
    """
    assert layer.stride is not None  # resolved at construction
    window, stride = layer.window, layer.stride
    rows, columns = num_windows(window, stride, v.shape)
    total = None
    # A sum of strided slices vectorises over data, where reduce_window on a CPU does not.
    for i in range(window[0]):
        for j in range(window[1]):
            part = lax.slice(
                v,
                (i, j, 0, 0),
                (i + (rows - 1) * stride[0] + 1, j + (columns - 1) * stride[1] + 1, *v.shape[2:]),
                (*stride, 1, 1),
            )
            total = part if total is None else total + part
    assert total is not None
    return total / math.prod(window)


def add_to_windows(
    layer: AvgPool, v: Float[Array, "..."], pooled: Float[Array, "..."]
) -> Float[Array, "..."]:
    """Add to every pixel the value of its window, if it is in one; windows must not overlap.

    Examples
    --------
    >>> v, pooled = jnp.ones((1, 3, 1, 1)), jnp.full((1, 1, 1, 1), 7.0)
    >>> add_to_windows(AvgPool((1, 2)), v, pooled).ravel().tolist()
    [8.0, 8.0, 1.0]
    """
    if layer.stride != layer.window:
        return v + spread(layer, v.shape[:-1], pooled)
    # Written over a part of `v`: filled up to the size of `v`, what `v` comes from would be
    # computed number by number.
    (height, width), (rows, columns) = layer.window, pooled.shape[:2]
    part = lax.slice(v, (0, 0, 0, 0), (rows * height, columns * width, *v.shape[2:]))
    shape = (rows, height, columns, width, *v.shape[2:])
    values = jnp.broadcast_to(pooled[:, None, :, None], shape).reshape(part.shape)
    return lax.dynamic_update_slice(v, part + values, (0, 0, 0, 0))


def spread(
    layer: AvgPool, input_shape: tuple[int, ...], pooled: Float[Array, "..."]
) -> Float[Array, "..."]:
    """Give every pixel the value of its window, 0 to those in none; windows must not overlap.

    Examples
    --------
    >>> spread(AvgPool((1, 2)), (1, 3, 1), jnp.full((1, 1, 1, 1), 7.0)).ravel().tolist()
    [7.0, 7.0, 0.0]
    """
    assert layer.stride is not None
    shape = (*input_shape, pooled.shape[-1])
    for axis, (window, stride) in enumerate(zip(layer.window, layer.stride, strict=True)):
        # One window and the gap after it, repeated; then cut or filled up to the image's size.
        pooled = jnp.expand_dims(pooled, axis + 1)
        pooled = jnp.broadcast_to(
            pooled, (*pooled.shape[: axis + 1], window, *pooled.shape[axis + 2 :])
        )
        pooled = _pad(pooled, axis + 1, stride)
        merged = (*pooled.shape[:axis], -1, *pooled.shape[axis + 2 :])
        pooled = _pad(pooled.reshape(merged), axis, shape[axis])
    return pooled


def _pad(v: Array, axis: int, size: int) -> Array:
    missing = size - v.shape[axis]
    if missing <= 0:
        return lax.slice_in_dim(v, 0, size, axis=axis)
    return jnp.pad(v, [(0, missing if i == axis else 0) for i in range(v.ndim)])
