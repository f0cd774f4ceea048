"""The conditional of weights and biases: Bayesian linear regression, one unit at a time.

With features phi (the inputs of a unit) and outputs z = w^T phi + b + N(0, D), the weights of
each unit given the rest are normal with precision (sum phi phi^T + D Lambda) / D, Lambda the
diagonal of prior precisions (Piccioli et al., (9), (52)-(68), (99)-(103), with errata A3, A4
and A9: scaled by D, and b jointly with w as the weight of a constant feature).

Draws are computed as differences from given parameters: then float32 rounds residuals, of the
order of sqrt(D), and not the outputs themselves.
"""

from functools import partial

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
from jaxbnn.numerics import standard_normal
from jaxbnn.numerics.arguments import check_key
from jaxbnn.numerics.products import product


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
        Arrays that do not fit the layer; variances or precisions that are not one positive number.
    TypeError
        Arrays that are not float32 or float64.

    Notes
    -----
    Where features nearly repeat one another, weights keep their prior along what the data do not
    tell as long as eps |phi| is well below sqrt(D precision): eps that of the floating-point type,
    |phi| the root of the sum of a feature's squares. In float32, with 10,000 standardised rows and
    a precision of 10, that is D above 1e-9. Standardise inputs, or use float64, below.

    Examples
    --------
    >>> import jax
    >>> x, params = jnp.ones((1, 10_000)), {"w": jnp.zeros((1, 1))}
    >>> draw = sample_weights_and_bias(
    ...     jax.random.key(0), Dense(1, bias=False), params, x, 3 * x, 1e-4, 1.0, 1.0
    ... )
    >>> round(float(draw["w"][0, 0]), 3)
    3.0
    """
    check_key("key", key)
    numbers = {"noise_variance": noise_variance, "weight_precision": weight_precision}
    check_affine(layer, params, inputs, outputs, **numbers, bias_precision=bias_precision)
    if "b" not in params:
        return _weights(key, layer, params, inputs, outputs, noise_variance, weight_precision)
    d, prior, current = joined(params, noise_variance, weight_precision, bias_precision)
    residual = outputs - affine(layer, params, inputs)
    step = _increment(key, layer, inputs, residual, current, d, prior)
    return separated(current + step, params)


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
        Arrays that do not fit the layer; variances or precisions that are not one positive number.
    TypeError
        Arrays that are not float32 or float64.

    Examples
    --------
    >>> import jax
    >>> x, params = jnp.array([[1.0, 2.0]]), {"w": jnp.zeros((1, 1)), "b": jnp.ones(1)}
    >>> layer, key = Dense(1), jax.random.key(0)
    >>> draw = sample_weights(key, layer, params, x, 3 * x + 1, 1e-8, 1.0)
    >>> round(float(draw["w"][0, 0]), 2), float(draw["b"][0])
    (3.0, 1.0)
    """
    check_key("key", key)
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
        Arrays that do not fit the layer; params without biases; variances or precisions that are
        not one positive number.
    TypeError
        Arrays that are not float32 or float64.

    Examples
    --------
    >>> import jax
    >>> x, params = jnp.array([[1.0, 2.0]]), {"w": jnp.full((1, 1), 3.0), "b": jnp.zeros(1)}
    >>> draw = sample_bias(jax.random.key(0), Dense(1), params, x, 3 * x + 1, 1e-8, 1.0)
    >>> round(float(draw["b"][0]), 2)
    1.0
    """
    check_key("key", key)
    numbers = {"noise_variance": noise_variance, "bias_precision": bias_precision}
    check_affine(layer, params, inputs, outputs, **numbers)
    if "b" not in params:
        raise ValueError('params hold no biases to draw; give {"w": ..., "b": ...}.')
    total = unit_sums(outputs - affine(layer, params, inputs))
    count = outputs.size // outputs.shape[-2]
    return biases_given(key, total, count, params, noise_variance, bias_precision)


def _weights(key, layer, params, inputs, outputs, noise_variance, weight_precision) -> PyTree:
    current = params["w"].reshape(-1, layer.features)
    d = jnp.asarray(noise_variance, current.dtype)
    prior = jnp.full(current.shape[0], weight_precision, current.dtype)
    residual = outputs - affine(layer, params, inputs)
    step = _increment(key, layer, inputs, residual, current, d, prior)
    return params | {"w": (current + step).reshape(params["w"].shape)}


def biases_given(key, total, count, params, noise_variance, bias_precision) -> PyTree:
    """Draw biases given the sum of the residuals and their number."""
    d = jnp.asarray(noise_variance, total.dtype)
    shrink = d * jnp.asarray(bias_precision, total.dtype)
    size = jnp.asarray(count, total.dtype) + shrink
    noise = standard_normal(key, total.shape, total.dtype)
    step = (total - shrink * params["b"]) / size + jnp.sqrt(d / size) * noise
    return params | {"b": params["b"] + step}


def joined(params, noise_variance, weight_precision, bias_precision) -> tuple[Array, Array, Array]:
    """Return D, the diagonal of prior precisions, and [W; b] as one matrix."""
    w, b = params["w"], params["b"]
    matrix = w.reshape(-1, w.shape[-1])
    prior = jnp.append(
        jnp.full(matrix.shape[0], weight_precision, w.dtype), jnp.asarray(bias_precision, w.dtype)
    )
    return jnp.asarray(noise_variance, w.dtype), prior, jnp.concatenate([matrix, b[None, :]])


def separated(joint: Array, params: PyTree) -> PyTree:
    """Return weights and biases in the shapes of `params`, from [W; b] as one matrix."""
    return {"w": joint[:-1].reshape(params["w"].shape), "b": joint[-1]}


def bordered(gram: Array, total: Array, count: Array) -> Array:
    """Return the features' second moments with those of the constant feature as a border."""
    top = jnp.concatenate([gram, total[:, None]], axis=1)
    return jnp.concatenate([top, jnp.append(total, count)[None, :]])


def _increment(key, layer, inputs, residual, current, d, prior) -> Array:
    """Return A^-1 (cross - D Lambda current) + N(0, D A^-1) with A = gram + D Lambda.

    The constant feature is among the features if `current` has a row for the bias.
    """
    whitened = whiten(partial(regression_sums, layer, inputs, residual, current, d * prior))
    noise = jnp.sqrt(d) * standard_normal(key, current.shape, current.dtype)
    return product(whitened.root.T, whitened.linear + noise)


def regression_sums(layer, inputs, residual, current, ridge, root) -> tuple[Array, Array]:
    """Return R A R^T and R h for h = cross - ridge * current, from R Phi; A and h for no R.

    For `whiten`: A = gram + diag(ridge) is the precision of `current` and what is added to it,
    times D, and `residual` what the outputs are beyond `current`.
    """
    if root is None:
        gram, total, count = feature_gram(layer, inputs)
        cross = feature_cross(layer, inputs, residual)
        if current.shape[0] > gram.shape[0]:
            gram = bordered(gram, total, jnp.asarray(count, gram.dtype))
            cross = jnp.concatenate([cross, unit_sums(residual)[None, :]])
        return gram + jnp.diag(ridge), cross - ridge[:, None] * current
    phi = combinations(layer, inputs, root)
    prior = root * jnp.sqrt(ridge)[None, :]
    cross = moments(phi, residual.reshape(*phi.shape[:-2], *residual.shape[-2:]))
    scaled = jnp.sqrt(ridge)[:, None] * current
    return moments(phi, phi) + product(prior, prior.T), cross - product(prior, scaled)
