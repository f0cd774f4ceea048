"""The metric of a network's posterior, from the prior and the likelihood's scores on the way in.

Under the posterior the mean of minus the Hessian of the log density is

    M = -E[grad grad log prior] + E[g g^T],

up to a term that has mean zero where the model fits, with g the score of the likelihood: its
gradient, that of the log density less the prior's. The first part is known, and diagonal where the
prior has a factor for every number. Of the second the largest eigenvalues are known from some
hundred scores, at the posterior's mass and on the way to it, as long as the mean score is small
beside its spread; further out the first eigenvector is the way to go, with a scale that is too
small by the distance. What the scores do not tell keeps the prior's scale. A chain's own variances
tell of neither: on its way they are those of the path that it takes.

In coordinates u, x = x_0 + s (I + V (F - 1) V^T) u with s the prior's standard deviations, V the
first eigenvectors of the mean of (s g)(s g)^T, lambda their eigenvalues, and F = (1 +
lambda)^(-1/2).
"""

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float, PyTree

from jaxbnn.ensembles.metric import DIAGONAL, DIRECTIONS, FACTORS

# A number's precision is at least these parts of means over its leaf, unless its prior is normal:
# unless its second derivative is the same elsewhere, up to rounding. In a small leaf, and where
# chains begin, the gradient may be far from its mean square.
_LEAST_OF_MEAN = 1 / 4
_LEAST_OF_SQUARE = 1 / 16
_SAME = 1e-3

LogPrior = Callable[[PyTree], Float[Array, ""]]


def prior_variances(log_prior: LogPrior, position: PyTree) -> Float[Array, " d"]:
    """Return the inverse of minus the second derivatives of the log prior, at a position.

    They are those of the numbers themselves where the prior is normal. A Student's t curves the
    other way in its tails, and a Laplace distribution nowhere: there a number's precision is at
    least a quarter of the mean over its leaf, and a sixteenth of the leaf's mean square of the
    prior's gradient, which has the same mean under the prior; where the first is not positive, that
    mean square itself.

    Parameters
    ----------
    log_prior
        Of one position; numbers of one leaf must be independent given all others.
    position
        Of one chain.

    Returns
    -------
    A variance for each number, in the order of `ravel_pytree`; 1 where the prior is flat.

    Examples
    --------
    >>> prior = lambda p: -jnp.sum(p["w"] ** 2) / 2 - 2 * jnp.sum(abs(p["b"]))
    >>> prior_variances(prior, {"b": jnp.array([0.1, -2]), "w": jnp.ones(2)}).tolist()
    [0.25, 0.25, 1.0, 1.0]
    """
    leaves, structure = jax.tree.flatten(position)
    gradient = jax.grad(lambda leaves: log_prior(jax.tree.unflatten(structure, leaves)))

    def of_leaf(number: int) -> Array:
        # All rows of the leaf's block, which is diagonal, at once; other leaves are as they are.
        along = [jnp.full_like(leaf, i == number) for i, leaf in enumerate(leaves)]

        def slope_and_curvature(leaf):
            at = [*leaves[:number], leaf, *leaves[number + 1 :]]
            slope, change = jax.jvp(gradient, (at,), (along,))
            return slope[number], -change[number]

        leaf = leaves[number]
        slopes, precisions = slope_and_curvature(leaf)
        elsewhere = slope_and_curvature(-2 * jnp.roll(leaf, 1))[1]
        is_normal = (precisions > 0) & jnp.isclose(precisions, elsewhere, rtol=_SAME, atol=0)
        return jnp.where(is_normal, precisions, _bounded(slopes, precisions, ~is_normal))

    precisions = ravel_pytree([of_leaf(number) for number in range(len(leaves))])[0]
    is_known = jnp.isfinite(precisions) & (precisions > 0)
    return jnp.where(is_known, 1 / jnp.where(is_known, precisions, 1), 1)


def _bounded(slopes: Array, precisions: Array, which: Array) -> Array:
    """Return the precisions of one leaf, bounded below by what those numbers have on average."""
    count = jnp.maximum(jnp.sum(which, dtype=precisions.dtype), 1)
    mean = jnp.sum(precisions, where=which) / count
    square = jnp.sum(jnp.square(slopes), where=which) / count
    least = jnp.maximum(_LEAST_OF_MEAN * mean, _LEAST_OF_SQUARE * square)
    return jnp.maximum(precisions, jnp.where(mean > 0, least, square))


def likelihood_metric(
    log_prior: LogPrior,
    position: PyTree,
    places: Float[Array | np.ndarray, "record d"],
    scores: Float[Array | np.ndarray, "record d"],
    num_directions: int,
) -> dict[str, Array]:
    """Return the metric of one chain: "inverse_mass_matrix", "directions" and "factors".

    Parameters
    ----------
    log_prior
        As `prior_variances` takes it.
    position
        The chain's, where the prior's second derivatives are taken.
    places, scores
        Of the way: positions as vectors (`ravel_pytree`), and gradients of the log density there.
    num_directions
        Fewer than records and dimensions.

    Returns
    -------
    Entries of the parameters of a microcanonical kernel: (d,), (k, d) and (k,). Scores that are not
    finite tell nothing: the factors are 1 then.
    """
    places, scores = jnp.asarray(places), jnp.asarray(scores)
    whole = ravel_pytree(position)[1]
    of_prior = jax.vmap(jax.grad(lambda vector: log_prior(whole(vector))))(places)
    variances = prior_variances(log_prior, position)
    scaled = (scores - of_prior) * jnp.sqrt(variances)[None]
    is_whole = jnp.all(jnp.isfinite(scaled))
    scaled = jnp.where(is_whole, scaled, 0)
    _, roots, directions = jnp.linalg.svd(scaled, full_matrices=False)
    eigenvalues = jnp.square(roots[:num_directions]) / len(scaled)
    return {
        DIAGONAL: variances,
        DIRECTIONS: directions[:num_directions],
        FACTORS: jax.lax.rsqrt(1 + eigenvalues),
    }


@functools.partial(jax.jit, static_argnames="num_directions")
def first_metric(
    posterior: Any, positions: PyTree, num_directions: int
) -> dict[str, Float[Array, "chain ..."]]:
    """Return the metric of all chains before any score is known: that of the prior.

    With `num_directions` > 0 it has entries of directions, too, which change nothing, so that one
    compiled program serves all parts.
    """
    variances = jax.vmap(lambda p: prior_variances(posterior.log_prior, p))(positions)
    found = {DIAGONAL: variances}
    if num_directions:
        num_chains, size = variances.shape
        found[DIRECTIONS] = jnp.zeros((num_chains, num_directions, size), variances.dtype)
        found[FACTORS] = jnp.ones((num_chains, num_directions), variances.dtype)
    return found


@functools.partial(jax.jit, static_argnames="num_directions")
def metrics(
    posterior: Any,
    positions: PyTree,
    places: Float[Array | np.ndarray, "chain record d"],
    scores: Float[Array | np.ndarray, "chain record d"],
    num_directions: int,
) -> dict[str, Float[Array, "chain ..."]]:
    """Return `likelihood_metric` of each chain, one after the other."""

    def of_chain(chain):
        position, places, scores = chain
        return likelihood_metric(posterior.log_prior, position, places, scores, num_directions)

    return jax.lax.map(of_chain, (positions, places, scores))
