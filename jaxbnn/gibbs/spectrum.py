"""Weights of a layer whose inputs are data: from second moments that are decomposed once.

In the coordinates of the eigenvectors the precision of the weights is diagonal, for every noise
variance and prior precision at once, so that no sweep factors a matrix or passes over the data
to make one (Piccioli et al., (9), as in `jaxbnn.gibbs.weights`).
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, ArrayLike, Bool, Float, PRNGKeyArray, PyTree

from jaxbnn.gibbs.linear_maps import (
    affine,
    combinations,
    feature_cross,
    feature_gram,
    features_of,
    moments,
    unit_sums,
)
from jaxbnn.gibbs.weights import biases_given, bordered, joined, separated
from jaxbnn.networks import Conv, Dense
from jaxbnn.numerics import standard_normal
from jaxbnn.numerics.products import product

# At most so much of what the prior tells of a weight may be lost of what the data tell.
SHARE = 5e-2
# Times eps and their size: sums of one datum's features are rounded by less.
_ROUNDING = 30
# Of so many data a typical one is found.
_FEW = 64


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
    lost
        The largest of the data's second moments along the `vectors` in which `values` has 0, less
        what the others predict by regression: too small beside the largest of all for `values` to
        hold it. 0 where it is within rounding.
    """

    values: Float[Array, " p"]
    vectors: Float[Array, "p p"]
    scale: Float[Array, " p"]
    total: Float[Array, " features"]
    num_terms: Float[Array, ""]
    lost: Float[Array, ""]


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
        matrix = bordered(gram, total, count) * scale[:, None] * scale[None, :]

    def second_moments(root):
        phi = combinations(layer, inputs, root * scale[None, :])
        return moments(phi, phi)

    vectors, roots = _singular_vectors(matrix, second_moments)
    seen = roots > scale.shape[0] * jnp.finfo(dtype).eps * roots[0]
    lost = jax.lax.cond(
        jnp.all(seen),
        lambda: jnp.zeros((), dtype),
        lambda: _largest_lost(layer, inputs, scale[:, None] * vectors, seen),
    )
    return Spectrum(jnp.where(seen, roots**2, 0), vectors, scale, total, count, lost)


def _largest_lost(
    layer: Dense | Conv,
    inputs: Float[Array, "..."],
    directions: Float[Array, "p p"],
    seen: Bool[Array, " p"],
) -> Float[Array, ""]:
    """Return the largest second moment along directions not seen, less what those seen predict.

    By regression, since a direction is known to rounding of the others only. A typical datum is
    subtracted, exactly from inputs that lie close together: what they tell beyond their mean then
    keeps its digits far from zero. Data that are within their own rounding of zero along a
    direction count as zero, so that one far away hides no other.
    """
    eps, size = jnp.finfo(inputs.dtype).eps, len(seen)
    origin = _typical(inputs)
    inputs = inputs - jnp.expand_dims(origin, tuple(range(inputs.ndim - 2)))
    features = features_of(layer, inputs)
    number = features.shape[-2]
    turned = directions[:number].T
    constant = product(turned, jnp.tile(origin, (number // len(origin), 1)))
    if size > number:
        constant = constant + directions[number][:, None]
    phi = combinations(layer, inputs, jnp.concatenate([turned, constant], axis=1))
    left = combinations(Dense(1), phi, _residuals(moments(phi, phi), seen))
    sizes = combinations(Dense(1), jnp.square(features), jnp.square(turned))
    rounding = (_ROUNDING * eps) ** 2 * sizes
    is_told = jnp.square(left) > rounding
    squares = unit_sums(jnp.where(is_told, jnp.square(left), 0))
    is_lost = ~seen & (squares > (10 * size * eps) ** 2 * unit_sums(jnp.square(phi)))
    return jnp.max(jnp.where(is_lost, squares, 0))


def _typical(inputs: Float[Array, "..."]) -> Float[Array, "channels 1"]:
    """Return by channel the median of a few data, which one far away does not move."""
    some = inputs[..., :: max(1, inputs.shape[-1] // _FEW)]
    by_channel = jnp.moveaxis(some, -2, 0).reshape(some.shape[-2], -1)
    return jnp.quantile(by_channel, 0.5, axis=1, keepdims=True, method="lower")


def _residuals(second_moments: Float[Array, "p p"], seen: Bool[Array, " p"]) -> Float[Array, "p p"]:
    """Return the matrix that takes variables to what a regression on those seen leaves of them."""
    squares = jnp.diagonal(second_moments)
    sizes = jnp.sqrt(jnp.where(squares > 0, squares, 1))
    correlations = second_moments / sizes[:, None] / sizes[None, :]
    others = jnp.diag(jnp.where(seen, 0, 1).astype(sizes.dtype))
    among = jnp.where(seen[:, None] & seen[None, :], correlations, others)
    values, vectors = jnp.linalg.eigh(among)
    least = len(seen) * jnp.finfo(values.dtype).eps * values[-1]
    across = product(vectors.T, jnp.where(seen[:, None], correlations, 0))
    slopes = product(vectors, across / jnp.maximum(values, least)[:, None])
    slopes = jnp.where(seen[:, None], slopes, 0).T
    return jnp.eye(len(seen), dtype=sizes.dtype) - slopes * sizes[:, None] / sizes[None, :]


def _singular_vectors(
    matrix: Float[Array, "p p"], second_moments: Callable[[Array], Float[Array, "p p"]]
) -> tuple[Float[Array, "p p"], Float[Array, " p"]]:
    """Return left singular vectors and values of the features, with the digits that these have.

    As `whiten`, by eigenvectors in place of triangles: where most features repeat others, as
    constant pixels do, rounding grows from one pivot to the next, and orthogonal vectors keep it.

    Parameters
    ----------
    matrix
        The features' second moments.
    second_moments
        A function of R: those of the features in the coordinates R.
    """
    eps = jnp.finfo(matrix.dtype).eps
    values, vectors = (part[..., ::-1] for part in jnp.linalg.eigh(matrix))
    # Small ones are rounding: half the digits of the features are lost in squares.
    raised = jnp.sqrt(jnp.maximum(values, len(matrix) * eps * values[0]))

    def again():
        more, across = jnp.linalg.eigh(second_moments((vectors / raised[None, :]).T))
        root = raised[:, None] * across * jnp.sqrt(jnp.maximum(more, 0))[None, :]
        # Rows are of very different sizes, and so each keeps its digits.
        turn, roots, _ = jnp.linalg.svd(root, full_matrices=False)
        return product(vectors, turn), roots

    is_rough = values[-1] < eps**0.5 * values[0]
    return jax.lax.cond(is_rough, again, lambda: (vectors, raised))


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

    Jointly if the spectrum holds the constant feature, otherwise weights, then biases. NaN where
    what the spectrum has lost tells of the weights more than a small share of what their prior
    tells.

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
        d, prior, current = joined(params, noise_variance, weight_precision, bias_precision)
        cross = jnp.concatenate([cross, residuals.total[None, :]])
    else:
        d = jnp.asarray(noise_variance, cross.dtype)
        current = params["w"].reshape(features, -1)
        prior = jnp.full(features, weight_precision, cross.dtype)
    shrunk = spectrum.values + d * jnp.asarray(weight_precision, cross.dtype)
    noise = standard_normal(key_weights, cross.shape, cross.dtype)
    scale, values = spectrum.scale[:, None], spectrum.values[:, None]
    rotated = jnp.where(values > 0, product(spectrum.vectors.T, scale * cross), 0)
    rotated = rotated - product(spectrum.vectors.T, scale * d * prior[:, None] * current)
    rotated = rotated / shrunk[:, None] + jnp.sqrt(d / shrunk)[:, None] * noise
    step = scale * product(spectrum.vectors, rotated)
    is_lost = spectrum.lost > SHARE * d * jnp.asarray(weight_precision, cross.dtype)
    step = jnp.where(is_lost, jnp.nan, step)
    if p > features:
        return separated(current + step, params)
    params = params | {"w": (current + step).reshape(params["w"].shape)}
    if "b" not in params:
        return params
    moved = product(spectrum.total, step)
    return biases_given(
        key_bias,
        residuals.total - moved,
        spectrum.num_terms,
        params,
        noise_variance,
        bias_precision,
    )
