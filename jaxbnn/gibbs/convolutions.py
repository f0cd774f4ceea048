"""Convolutions of arrays with the data axis last, in the forms that are quick where they run.

On a CPU, XLA's convolution is slow for few channels and a long last axis, along which a sum of
slices vectorises; and sums over all data at once leave the caches. Other platforms get XLA's.
"""

from functools import partial

import jax
import jax.numpy as jnp
from jax import lax
from jax.custom_derivatives import SymbolicZero
from jaxtyping import Array, Float

from jaxbnn.networks import Conv
from jaxbnn.networks.shapes import num_windows

# A sum of more slices takes long to compile.
_MOST_SLICES = 128
# Inputs and outputs of so many data stay in a core's own cache, for layers of the usual size.
_DATA_AT_ONCE = 512


@partial(jax.custom_jvp, nondiff_argnums=(0,))
def convolve(
    layer: Conv,
    w: Float[Array, "height width c_in c_out"],
    v: Float[Array, "rows columns c_in n"],
) -> Float[Array, "rows_out columns_out c_out n"]:
    """Return the convolution of every image, without a bias.

    Examples
    --------
    >>> convolve(Conv(2, (1, 2)), jnp.ones((1, 2, 1, 2)), jnp.ones((3, 3, 1, 5))).shape
    (3, 2, 2, 5)
    """
    if w.shape[0] * w.shape[1] * w.shape[2] > _MOST_SLICES:
        return _at_once(layer, w, v)
    return lax.platform_dependent(
        w, v, cpu=partial(_sum_of_slices, layer), default=partial(_at_once, layer)
    )


@partial(convolve.defjvp, symbolic_zeros=True)
def _tangent(layer: Conv, primals, tangents) -> tuple[Array, Array]:
    (w, v), (dw, dv) = primals, tangents
    out = convolve(layer, w, v)
    tangent = jnp.zeros_like(out)
    if not isinstance(dw, SymbolicZero):
        tangent = tangent + _by_weights(layer, dw, v)
    if not isinstance(dv, SymbolicZero):
        tangent = tangent + _at_once(layer, w, dv)
    return out, tangent


def correlate(
    layer: Conv,
    v: Float[Array, "rows columns c_in n"],
    e: Float[Array, "rows_out columns_out c_out n"],
) -> Float[Array, "height width c_in c_out"]:
    """Return the sum over data and positions of what a filter sees times `e`.

    The transpose of `convolve` in its weights.

    Examples
    --------
    >>> correlate(Conv(2, (1, 2)), jnp.ones((3, 3, 1, 5)), jnp.ones((3, 2, 2, 5))).ravel().tolist()
    [30.0, 30.0, 30.0, 30.0]
    """
    if _is_at_once(v):
        return _correlate_at_once(layer, v, e)
    return lax.platform_dependent(
        v, e, cpu=partial(_correlate_blocks, layer), default=partial(_correlate_at_once, layer)
    )


def filter_inputs(
    layer: Conv, v: Float[Array, "rows columns c_in n"]
) -> Float[Array, "positions features n"]:
    """Return what the filter sees at each position.

    Examples
    --------
    >>> filter_inputs(Conv(2, (1, 2)), jnp.ones((3, 3, 1, 5))).shape
    (6, 2, 5)
    """
    stacked = jnp.stack(_slices(layer, v), axis=2)  # rows, columns, taps, c_in, n
    return stacked.reshape(stacked.shape[0] * stacked.shape[1], -1, v.shape[-1])


def _at_once(layer: Conv, w: Array, v: Array) -> Array:
    return lax.conv_general_dilated(
        v,
        w,
        window_strides=layer.stride,
        padding="VALID",
        dimension_numbers=("HWCN", "HWIO", "HWCN"),
        precision=lax.Precision.HIGHEST,
    )


def _sum_of_slices(layer: Conv, w: Array, v: Array) -> Array:
    if _is_at_once(v):
        return _slices_at_once(layer, w, v)
    # In a loop the result is computed once, where each that reads it would compute it anew.
    num_data = v.shape[-1]
    shape = jax.eval_shape(partial(_at_once, layer), w, v).shape

    def write(i, out):
        # The last block begins where it ends with the data.
        start = jnp.minimum(i * _DATA_AT_ONCE, num_data - _DATA_AT_ONCE)
        part = lax.dynamic_slice_in_dim(v, start, _DATA_AT_ONCE, axis=-1)
        return lax.dynamic_update_slice_in_dim(out, _slices_at_once(layer, w, part), start, axis=-1)

    return lax.fori_loop(0, -(-num_data // _DATA_AT_ONCE), write, jnp.zeros(shape, v.dtype))


def _slices_at_once(layer: Conv, w: Array, v: Array) -> Array:
    weights = w.reshape(-1, *w.shape[2:])
    total = None
    for weight, part in zip(weights, _slices(layer, v), strict=True):
        for channel in range(v.shape[-2]):
            term = part[:, :, channel, None] * weight[channel][None, None, :, None]
            total = term if total is None else total + term
    assert total is not None
    return total


def _correlate_at_once(layer: Conv, v: Array, e: Array) -> Array:
    like = jax.ShapeDtypeStruct((*layer.window, v.shape[-2], layer.features), v.dtype)
    (w,) = jax.linear_transpose(lambda w: _at_once(layer, w, v), like)(e)
    return w


def _correlate_blocks(layer: Conv, v: Array, e: Array) -> Array:
    num_blocks = v.shape[-1] // _DATA_AT_ONCE
    rest = num_blocks * _DATA_AT_ONCE

    def add(i, total):
        return total + _correlate_at_once(layer, _block(v, i), _block(e, i))

    total = _correlate_at_once(layer, v[..., rest:], e[..., rest:])
    return lax.fori_loop(0, num_blocks, add, total)


def _by_weights(layer: Conv, w: Array, v: Array) -> Array:
    """Return the convolution as a linear function of the weights, of which the gradient is run."""
    if _is_at_once(v):
        return _at_once(layer, w, v)
    return lax.platform_dependent(
        w, v, cpu=partial(_in_blocks, layer), default=partial(_at_once, layer)
    )


def _in_blocks(layer: Conv, w: Array, v: Array) -> Array:
    # Recomputed, as a copy of all blocks would be kept for the gradient otherwise.
    @jax.checkpoint
    def step(w, i):
        return w, _at_once(layer, w, _block(v, i))

    num_blocks = v.shape[-1] // _DATA_AT_ONCE
    _, blocks = lax.scan(step, w, jnp.arange(num_blocks))
    joined = jnp.moveaxis(blocks, 0, -2).reshape(*blocks.shape[1:-1], -1)
    rest = _at_once(layer, w, v[..., num_blocks * _DATA_AT_ONCE :])
    return jnp.concatenate([joined, rest], axis=-1)


def _is_at_once(v: Array) -> bool:
    # Data may be spread over several devices, which would send each other block after block.
    return v.shape[-1] < 2 * _DATA_AT_ONCE or jax.device_count() > 1


def _block(v: Array, i: Array) -> Array:
    return lax.dynamic_slice_in_dim(v, i * _DATA_AT_ONCE, _DATA_AT_ONCE, axis=-1)


def _slices(layer: Conv, v: Array) -> list[Array]:
    """Return, for each place of the filter, the pixels that it sees there."""
    rows, columns = num_windows(layer.window, layer.stride, v.shape)
    down, right = layer.stride
    size = ((rows - 1) * down + 1, (columns - 1) * right + 1)
    return [
        lax.slice(v, (i, j, 0, 0), (i + size[0], j + size[1], *v.shape[2:]), (down, right, 1, 1))
        for i in range(layer.window[0])
        for j in range(layer.window[1])
    ]
