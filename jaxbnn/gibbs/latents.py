"""The conditionals of latents that feed a linear map: Gaussian.

A latent v ~ N(mean, D) feeds z = T v + b + N(0, D_z), T a Dense layer's weights, a
convolution or an average pooling. With c = D / D_z,

    v ~ N(mean + c M^-1 T^T (z - b - T mean), D M^-1),  M = I + c T^T T

(Piccioli et al., (8), (59)-(62), (70)-(98), with errata A5 to A7). M is the same for all data
and factored once. Where z is much shorter than v, the smaller I + c T T^T is factored instead,
and a draw of the pair (v, z) from the model is moved to the z that is given.
"""

import math
from functools import partial

import jax
import jax.numpy as jnp
from jaxtyping import Array, ArrayLike, Float, PRNGKeyArray, PyTree

from jaxbnn.gibbs.arguments import check_affine, check_pooled, check_ratio
from jaxbnn.gibbs.factors import whiten
from jaxbnn.gibbs.linear_maps import add_to_windows, average, matrix_of_conv
from jaxbnn.networks import AvgPool, Conv, Dense
from jaxbnn.numerics import standard_normal
from jaxbnn.numerics.arguments import check_key
from jaxbnn.numerics.products import product


def sample_inputs(
    key: PRNGKeyArray,
    layer: Dense | Conv,
    params: PyTree,
    mean: Float[Array, "..."],
    outputs: Float[Array, "..."],
    noise_variance: ArrayLike,
    next_noise_variance: ArrayLike,
) -> Float[Array, "..."]:
    """Draw the inputs of a Dense or a Conv given its outputs: (8), and (62) with biases.

    Parameters
    ----------
    key
        A PRNG key.
    layer, params
        The layer that the latent feeds, and its weights and biases.
    mean
        What the layer before gives without noise, (*input_shape, n): sigma(Z) for
        post-activations.
    outputs
        (*output_shape, n), with the noise in them.
    noise_variance, next_noise_variance
        Of the noise in the latent, and in the outputs.

    Raises
    ------
    ValueError
        Arrays that do not fit the layer; variances that are not one positive number each, or a
        noise_variance above eps^-2 of next_noise_variance, where eps is that of the type.
    TypeError
        Arrays that are not float32 or float64.

    Examples
    --------
    >>> params = {"w": jnp.ones((1, 1)), "b": jnp.zeros(1)}
    >>> x = sample_inputs(
    ...     jax.random.key(0), Dense(1), params, jnp.zeros((1, 4)), jnp.ones((1, 4)), 1e-8, 1e-8
    ... )
    >>> [round(float(value), 2) for value in x[0]]
    [0.5, 0.5, 0.5, 0.5]
    """
    check_key("key", key)
    numbers = {"noise_variance": noise_variance, "next_noise_variance": next_noise_variance}
    check_affine(layer, params, mean, outputs, **numbers)
    check_ratio(mean.dtype, **numbers)
    if isinstance(layer, Conv):
        matrix = matrix_of_conv(layer, params["w"], mean.shape[:-1])
    else:
        matrix = params["w"].T
    if "b" in params:
        outputs = outputs - jnp.expand_dims(params["b"][:, None], tuple(range(outputs.ndim - 2)))
    if isinstance(layer, Dense) and mean.ndim > 2:
        # A Dense acts at every position alone: positions are data.
        drawn = _given_product(
            key, matrix, _columns(mean), _columns(outputs), noise_variance, next_noise_variance
        )
        return jnp.moveaxis(drawn.reshape(-1, *mean.shape[:-2], mean.shape[-1]), 0, -2)
    rows = mean.reshape(-1, mean.shape[-1])
    targets = outputs.reshape(-1, outputs.shape[-1])
    drawn = _given_product(key, matrix, rows, targets, noise_variance, next_noise_variance)
    return drawn.reshape(mean.shape)


def sample_pooled(
    key: PRNGKeyArray,
    layer: AvgPool,
    mean: Float[Array, "height width channels n"],
    outputs: Float[Array, "rows columns channels n"],
    noise_variance: ArrayLike,
    next_noise_variance: ArrayLike,
) -> Float[Array, "height width channels n"]:
    """Draw the inputs of an average pooling given its outputs.

    Parameters
    ----------
    key
        A PRNG key.
    layer
        The pooling. Where its windows do not overlap, the covariance is the identity minus a
        projector in each window, and z - q <z, 1> 1 has it (erratum A7).
    mean, outputs, noise_variance, next_noise_variance
        As in `sample_inputs`. Pixels in no window are N(mean, noise_variance).

    Raises
    ------
    ValueError
        Arrays that do not fit the layer; variances as in `sample_inputs`, their ratio where
        windows overlap.
    TypeError
        Arrays that are not float32 or float64, or of two types.

    Examples
    --------
    >>> mean, pooled = jnp.zeros((3, 2, 1, 1)), jnp.ones((1, 1, 1, 1))
    >>> v = sample_pooled(jax.random.key(0), AvgPool((2, 2)), mean, pooled, 1e-6, 1e-12)
    >>> round(float(v[:2].mean()), 3)
    1.0
    """
    check_key("key", key)
    numbers = {"noise_variance": noise_variance, "next_noise_variance": next_noise_variance}
    check_pooled(layer, mean, outputs, **numbers)
    assert layer.stride is not None  # resolved at construction
    if any(s < w for s, w in zip(layer.stride, layer.window, strict=True)):
        check_ratio(mean.dtype, **numbers)
        return _overlapping(key, layer, mean, outputs, noise_variance, next_noise_variance)
    d, d_out = (jnp.asarray(value, mean.dtype) for value in (noise_variance, next_noise_variance))
    spread_out = math.prod(layer.window) * d_out
    gain = d / (d + spread_out)
    keep = 1 - jnp.sqrt(spread_out / (d + spread_out))
    noise = jnp.sqrt(d) * standard_normal(key, mean.shape, mean.dtype)
    shift = gain * (outputs - average(layer, mean)) - keep * average(layer, noise)
    return add_to_windows(layer, mean + noise, shift)


def _overlapping(key, layer, mean, outputs, noise_variance, next_noise_variance) -> Array:
    """Windows share pixels: pooling is a matrix, the same for all channels."""
    height, width, channels, n = mean.shape
    pixels = jnp.eye(height * width, dtype=mean.dtype).reshape(height, width, 1, -1)
    matrix = average(layer, pixels).reshape(-1, height * width)
    targets = outputs.reshape(-1, channels * n)
    drawn = _given_product(
        key, matrix, mean.reshape(-1, channels * n), targets, noise_variance, next_noise_variance
    )
    return drawn.reshape(mean.shape)


def _given_product(
    key: PRNGKeyArray,
    matrix: Float[Array, "k m"],
    mean: Float[Array, "m n"],
    outputs: Float[Array, "k n"],
    noise_variance: ArrayLike,
    next_noise_variance: ArrayLike,
) -> Float[Array, "m n"]:
    """Draw v ~ N(mean, D I) given outputs = matrix v + N(0, D_z I)."""
    d = jnp.asarray(noise_variance, mean.dtype)
    d_out = jnp.asarray(next_noise_variance, mean.dtype)
    c = d / d_out
    k, m = matrix.shape
    gain = jnp.sqrt(c) * matrix.T
    if 50 * k < m * m:  # a normal costs as much as a hundred multiplications
        key_v, key_z = jax.random.split(key)
        v = mean + jnp.sqrt(d) * standard_normal(key_v, mean.shape, mean.dtype)
        z = jnp.sqrt(d_out) * standard_normal(key_z, outputs.shape, mean.dtype)
        residual = outputs - z - product(matrix, v)
        # R^T R itself would lose what z says along directions that T repeats.
        small = whiten(partial(_sums, gain.T))
        return v + product(jnp.sqrt(c) * small.linear.T, product(small.root, residual))
    whitened = whiten(partial(_sums, gain))
    noise = jnp.sqrt(d) * standard_normal(key, mean.shape, mean.dtype)
    # As a difference from the mean: T^T z itself cancels where c is large.
    away = product(jnp.sqrt(c) * whitened.linear, outputs - product(matrix, mean))
    return mean + product(whitened.root.T, away + noise)


def _sums(rows: Array, root: Array | None) -> tuple[Array, Array]:
    """Return R (I + rows rows^T) R^T and R rows."""
    if root is None:
        return jnp.eye(rows.shape[0], dtype=rows.dtype) + product(rows, rows.T), rows
    whitened = product(root, rows)
    return product(whitened, whitened.T) + product(root, root.T), whitened


def _columns(v: Array) -> Array:
    return jnp.moveaxis(v, -2, 0).reshape(v.shape[-2], -1)
