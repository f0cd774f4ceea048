"""The conditional of weights and biases: Bayesian linear regression, one unit at a time.

With features phi (the inputs of a unit) and outputs z = w^T phi + b + N(0, D), the weights of
each unit given the rest are normal with precision (sum phi phi^T + D Lambda) / D, Lambda the
diagonal of prior precisions (Piccioli et al., (9), (52)-(68), (99)-(103), with errata A3, A4
and A9: scaled by D, and b jointly with w as the weight of a constant feature).

Draws are computed as differences from given parameters: then float32 rounds residuals, of the
order of sqrt(D), and not the outputs themselves.
"""

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, ArrayLike, Float, PRNGKeyArray, PyTree

from jaxbnn.gibbs.arguments import check_affine
from jaxbnn.gibbs.factors import whiten
from jaxbnn.gibbs.linear_maps import (
    affine,
    combinations,
    feature_cross,
    feature_gram,
    moments,
    unit_sums,
)
from jaxbnn.networks import Conv, Dense
from jaxbnn.numerics.products import product


class Spectrum(NamedTuple):
    """Features of data that do not change, decomposed once: it serves every noise variance.

    Attributes
    ----------
    values, vectors
        Of S G S: G the features' second moments, that of the constant feature included if
        `scale` has one entry more than there are features.
    scale
        S, a diagonal: 1, and for the constant feature sqrt(weight / bias precision).
    total, num_terms
        Sums of the features and of ones.
    """

    values: Float[Array, " p"]
    vectors: Float[Array, "p p"]
    scale: Float[Array, " p"]
    total: Float[Array, " features"]
    num_terms: Float[Array, ""]


class Residuals(NamedTuple):
    """Sums over data and positions of residuals e = z - w^T phi - b at the current parameters.

    Attributes
    ----------
    cross
        Of features times residuals.
    total
        Of residuals.
    """

    cross: Float[Array, "features units"]
    total: Float[Array, " units"]


def sample_weights_and_bias(
    key: PRNGKeyArray,
    layer: Dense | Conv,
    params: PyTree,
    inputs: Float[Array, "..."],
    outputs: Float[Array, "..."],
    noise_variance: ArrayLike,
    weight_precision: ArrayLike,
    bias_precision: ArrayLike,
) -> PyTree:
    """Draw weights and biases jointly given the layer's inputs and outputs; without a bias, w.

    Parameters
    ----------
    key
        A PRNG key.
    layer
        A Dense or a Conv.
    params
        {"w": ..., "b": ...}, any values; those near the result keep the most digits.
    inputs, outputs
        (*input_shape, n) and (*output_shape, n), with the noise in them.
    noise_variance
        D, that of the outputs' noise.
    weight_precision, bias_precision
        Of the zero-mean normal priors.

    Raises
    ------
    ValueError
        Arrays that do not fit the layer; variances or precisions that are not positive.
    TypeError
        Arrays that are not floating point.

    Examples
    --------
    >>> x, params = jnp.ones((1, 10_000)), {"w": jnp.zeros((1, 1))}
    >>> draw = sample_weights_and_bias(
    ...     jax.random.key(0), Dense(1, bias=False), params, x, 3 * x, 1e-4, 1.0, 1.0
    ... )
    >>> round(float(draw["w"][0, 0]), 3)
    3.0
    """
    numbers = {"noise_variance": noise_variance, "weight_precision": weight_precision}
    check_affine(layer, params, inputs, outputs, **numbers, bias_precision=bias_precision)
    if "b" not in params:
        return _weights(key, layer, params, inputs, outputs, noise_variance, weight_precision)
    d, prior, current = _joint(params, noise_variance, weight_precision, bias_precision)
    residual = outputs - affine(layer, params, inputs)
    step = _increment(key, layer, inputs, residual, current, d, prior)
    return _split(current + step, params)


def sample_weights(
    key: PRNGKeyArray,
    layer: Dense | Conv,
    params: PyTree,
    inputs: Float[Array, "..."],
    outputs: Float[Array, "..."],
    noise_variance: ArrayLike,
    weight_precision: ArrayLike,
) -> PyTree:
    """Draw weights given biases, inputs and outputs; returns params with the new weights.

    Parameters
    ----------
    key, layer, inputs, outputs, noise_variance, weight_precision
        As in `sample_weights_and_bias`.
    params
        {"w": any, "b": the biases that are given}.

    Raises
    ------
    ValueError
        Arrays that do not fit the layer; variances or precisions that are not positive.
    TypeError
        Arrays that are not floating point.

    Examples
    --------
    >>> x, params = jnp.array([[1.0, 2.0]]), {"w": jnp.zeros((1, 1)), "b": jnp.ones(1)}
    >>> layer, key = Dense(1), jax.random.key(0)
    >>> draw = sample_weights(key, layer, params, x, 3 * x + 1, 1e-8, 1.0)
    >>> round(float(draw["w"][0, 0]), 2), float(draw["b"][0])
    (3.0, 1.0)
    """
    numbers = {"noise_variance": noise_variance, "weight_precision": weight_precision}
    check_affine(layer, params, inputs, outputs, **numbers)
    return _weights(key, layer, params, inputs, outputs, noise_variance, weight_precision)


def sample_bias(
    key: PRNGKeyArray,
    layer: Dense | Conv,
    params: PyTree,
    inputs: Float[Array, "..."],
    outputs: Float[Array, "..."],
    noise_variance: ArrayLike,
    bias_precision: ArrayLike,
) -> PyTree:
    """Draw biases given weights, inputs and outputs; returns params with the new biases.

        b ~ N(sum(z - w^T phi) / (m + D lambda), D / (m + D lambda))

    with m the number of data, times that of positions in a convolution.

    Parameters
    ----------
    key, layer, inputs, outputs, noise_variance, bias_precision
        As in `sample_weights_and_bias`.
    params
        {"w": the weights that are given, "b": any}.

    Raises
    ------
    ValueError
        Arrays that do not fit the layer; variances or precisions that are not positive.
    TypeError
        Arrays that are not floating point.

    Examples
    --------
    >>> x, params = jnp.array([[1.0, 2.0]]), {"w": jnp.full((1, 1), 3.0), "b": jnp.zeros(1)}
    >>> draw = sample_bias(jax.random.key(0), Dense(1), params, x, 3 * x + 1, 1e-8, 1.0)
    >>> round(float(draw["b"][0]), 2)
    1.0
    """
    numbers = {"noise_variance": noise_variance, "bias_precision": bias_precision}
    check_affine(layer, params, inputs, outputs, **numbers)
    total = unit_sums(outputs - affine(layer, params, inputs))
    count = outputs.size // outputs.shape[-2]
    return _bias(key, total, count, params, noise_variance, bias_precision)


def residual_sums(
    layer: Dense | Conv,
    params: PyTree,
    inputs: Float[Array, "..."],
    outputs: Float[Array, "..."],
) -> Residuals:
    """Return what the data say about the parameters, relative to `params`."""
    residual = outputs - affine(layer, params, inputs)
    return Residuals(feature_cross(layer, inputs, residual), unit_sums(residual))


def spectrum_of(
    layer: Dense | Conv, inputs: Float[Array, "..."], precision_ratio: ArrayLike | None
) -> Spectrum:
    """Decompose the features' second moments.

    Values within rounding of zero are zero: the data say nothing in these directions. Constant
    and repeated features make such ones, and the weights along them must keep their prior.

    Parameters
    ----------
    layer, inputs
        Whose features.
    precision_ratio
        Weight over bias precision, for joint draws; None for weights alone.
    """
    dtype = inputs.dtype
    gram, total, number = feature_gram(layer, inputs)
    count = jnp.asarray(number, dtype)
    scale = jnp.ones(gram.shape[0], dtype)
    matrix = gram
    if precision_ratio is not None:
        border = jnp.sqrt(jnp.asarray(precision_ratio, dtype))
        scale = jnp.append(scale, border)
        matrix = _bordered(gram, total, count) * scale[:, None] * scale[None, :]
    diagonal = jnp.diagonal(matrix)
    eps = jnp.finfo(dtype).eps
    # A ridge far below the rounding of the features, so that repeated ones can be factored.
    ridge = jnp.square(4 * eps) * jnp.where(diagonal > 0, diagonal, 1)

    def sums(root):
        none = jnp.zeros((scale.shape[0], 0), dtype)
        if root is None:
            return matrix + jnp.diag(ridge), none
        phi = combinations(layer, inputs, root * scale[None, :])
        return moments(phi, phi) + product(root * ridge[None, :], root.T), none

    vectors, roots, _ = jnp.linalg.svd(whiten(sums).lower, full_matrices=False)
    seen = roots > scale.shape[0] * eps * roots[0]
    return Spectrum(jnp.where(seen, roots**2, 0), vectors, scale, total, count)


def sample_from_spectrum(
    key: PRNGKeyArray,
    spectrum: Spectrum,
    residuals: Residuals,
    params: PyTree,
    noise_variance: ArrayLike,
    weight_precision: ArrayLike,
    bias_precision: ArrayLike,
) -> PyTree:
    """Draw weights and biases as the other functions do, from sums kept and factored before.

    Jointly if the spectrum holds the constant feature, otherwise weights, then biases.

    Parameters
    ----------
    key
        A PRNG key.
    spectrum, residuals
        Of the inputs, and of the outputs at `params`.
    params, noise_variance, weight_precision, bias_precision
        As in `sample_weights_and_bias`.
    """
    key_weights, key_bias = jax.random.split(key)
    features, p = spectrum.total.shape[0], spectrum.values.shape[0]
    cross = residuals.cross
    if p > features:
        d, prior, current = _joint(params, noise_variance, weight_precision, bias_precision)
        cross = jnp.concatenate([cross, residuals.total[None, :]])
    else:
        d = jnp.asarray(noise_variance, cross.dtype)
        current = params["w"].reshape(features, -1)
        prior = jnp.full(features, weight_precision, cross.dtype)
    shrunk = spectrum.values + d * jnp.asarray(weight_precision, cross.dtype)
    noise = jax.random.normal(key_weights, cross.shape, cross.dtype)
    scale, values = spectrum.scale[:, None], spectrum.values[:, None]
    rotated = jnp.where(values > 0, product(spectrum.vectors.T, scale * cross), 0)
    rotated = rotated - product(spectrum.vectors.T, scale * d * prior[:, None] * current)
    rotated = rotated / shrunk[:, None] + jnp.sqrt(d / shrunk)[:, None] * noise
    step = scale * product(spectrum.vectors, rotated)
    if p > features:
        return _split(current + step, params)
    params = params | {"w": (current + step).reshape(params["w"].shape)}
    if "b" not in params:
        return params
    moved = product(spectrum.total, step)
    return _bias(
        key_bias,
        residuals.total - moved,
        spectrum.num_terms,
        params,
        noise_variance,
        bias_precision,
    )


def _weights(key, layer, params, inputs, outputs, noise_variance, weight_precision) -> PyTree:
    current = params["w"].reshape(-1, layer.features)
    d = jnp.asarray(noise_variance, current.dtype)
    prior = jnp.full(current.shape[0], weight_precision, current.dtype)
    residual = outputs - affine(layer, params, inputs)
    step = _increment(key, layer, inputs, residual, current, d, prior)
    return params | {"w": (current + step).reshape(params["w"].shape)}


def _bias(key, total, count, params, noise_variance, bias_precision) -> PyTree:
    d = jnp.asarray(noise_variance, total.dtype)
    shrink = d * jnp.asarray(bias_precision, total.dtype)
    size = jnp.asarray(count, total.dtype) + shrink
    noise = jax.random.normal(key, total.shape, total.dtype)
    step = (total - shrink * params["b"]) / size + jnp.sqrt(d / size) * noise
    return params | {"b": params["b"] + step}


def _joint(params, noise_variance, weight_precision, bias_precision) -> tuple[Array, Array, Array]:
    """Return D, the diagonal of prior precisions, and [W; b] as one matrix."""
    w, b = params["w"], params["b"]
    matrix = w.reshape(-1, w.shape[-1])
    prior = jnp.append(
        jnp.full(matrix.shape[0], weight_precision, w.dtype), jnp.asarray(bias_precision, w.dtype)
    )
    return jnp.asarray(noise_variance, w.dtype), prior, jnp.concatenate([matrix, b[None, :]])


def _split(joint: Array, params: PyTree) -> PyTree:
    return {"w": joint[:-1].reshape(params["w"].shape), "b": joint[-1]}


def _bordered(gram: Array, total: Array, count: Array) -> Array:
    top = jnp.concatenate([gram, total[:, None]], axis=1)
    return jnp.concatenate([top, jnp.append(total, count)[None, :]])


def _increment(key, layer, inputs, residual, current, d, prior) -> Array:
    """Return A^-1 (cross - D Lambda current) + N(0, D A^-1) with A = gram + D Lambda.

    The constant feature is among the features if `current` has a row for the bias.
    """
    whitened = whiten(partial(_sums, layer, inputs, residual, current, d * prior))
    noise = jnp.sqrt(d) * jax.random.normal(key, current.shape, current.dtype)
    return product(whitened.root.T, whitened.linear + noise)


def _sums(layer, inputs, residual, current, ridge, root) -> tuple[Array, Array]:
    """Return R A R^T and R h for h = cross - ridge * current, from R Phi; A and h for no R."""
    if root is None:
        gram, total, count = feature_gram(layer, inputs)
        cross = feature_cross(layer, inputs, residual)
        if current.shape[0] > gram.shape[0]:
            gram = _bordered(gram, total, jnp.asarray(count, gram.dtype))
            cross = jnp.concatenate([cross, unit_sums(residual)[None, :]])
        return gram + jnp.diag(ridge), cross - ridge[:, None] * current
    phi = combinations(layer, inputs, root)
    prior = root * jnp.sqrt(ridge)[None, :]
    cross = moments(phi, residual.reshape(*phi.shape[:-2], *residual.shape[-2:]))
    scaled = jnp.sqrt(ridge)[:, None] * current
    return moments(phi, phi) + product(prior, prior.T), cross - product(prior, scaled)
