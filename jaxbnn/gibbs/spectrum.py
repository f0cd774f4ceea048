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
    moments,
    unit_sums,
)
from jaxbnn.gibbs.weights import biases_given, bordered, joined, separated
from jaxbnn.networks import Conv, Dense
from jaxbnn.numerics import standard_normal
from jaxbnn.numerics.products import product

# Times what the prior tells: so much may not be lost of what the data tell.
_MUCH = 100


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
        The largest second moment that is the data's, and that is too small beside the largest of
        all for its direction to be told in this floating-point type: `values` has 0 there.
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
    lost = _largest_lost(matrix, vectors, roots, seen)
    return Spectrum(jnp.where(seen, roots**2, 0), vectors, scale, total, count, lost)


def _largest_lost(
    matrix: Float[Array, "p p"],
    vectors: Float[Array, "p p"],
    roots: Float[Array, " p"],
    seen: Bool[Array, " p"],
) -> Float[Array, ""]:
    """Return the largest second moment among those not seen that rounding alone cannot make.

    Rounding makes roots of some eps times the size of the features that cancel, where features
    repeat one another, and, in the decomposition, of p^(1/2) eps times the largest root. A feature
    that is smaller than that in itself is lost whole.
    """
    eps, size = jnp.finfo(roots.dtype).eps, len(roots)
    squares = jnp.diagonal(matrix)
    cancelling = jnp.sqrt(product(squares[None, :], jnp.square(vectors))[0])
    noise = jnp.maximum(10 * size * eps * cancelling, size**0.5 * eps * roots[0])
    directions = jnp.where(~seen & (roots > noise), roots**2, 0)
    whole = jnp.where(squares < (size**0.5 * eps * roots[0]) ** 2, squares, 0)
    return jnp.maximum(jnp.max(directions), jnp.max(whole))


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
    what the spectrum has lost tells much more of the weights than their prior.

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
    is_lost = spectrum.lost > _MUCH * d * jnp.asarray(weight_precision, cross.dtype)
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
