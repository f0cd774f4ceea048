"""A metric with a few directions of its own, from the scores that a chain has met on its way.

A network's posterior is much narrower in some directions than in all others, in such as move all
its outputs at once, and no diagonal metric sees them. The covariance of the scores, the gradients
of the log density, does: under the law itself it is the mean of minus the Hessian,

    E[grad log p grad log p^T] = -E[grad grad log p],

and its largest eigenvalues are known from a few hundred scores, long before a chain has seen the
law's own covariance. In coordinates u, x = x_0 + s (I + V (F - 1) V^T) u with s the diagonal
metric's standard deviations, V the first eigenvectors of the covariance of s times the scores and
F the factors that make their eigenvalues equal to the next one.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from blackjax.base import SamplingAlgorithm
from jaxtyping import Array, Float

from jaxbnn.numerics import check_count, check_finite

# Entries of a kernel's parameters, beside the diagonal "inverse_mass_matrix".
DIRECTIONS, FACTORS = "directions", "factors"
# No direction is taken for narrower than by this factor: a few scores may say what they like.
_LEAST_FACTOR = 1e-3
# Below this part of the largest, a root is of rounding.
_ROUNDING = 1e-5


def score_metric(
    scores: Float[Array, "chain record d"],
    inverse_mass_matrix: Float[Array, "chain d"],
    num_directions: int,
) -> dict[str, Array]:
    """Return each chain's narrow directions, and by how much they are narrower than all others.

    Parameters
    ----------
    scores
        Gradients of the log density along each chain.
    inverse_mass_matrix
        Each chain's diagonal metric.
    num_directions
        How many directions, fewer than records and dimensions.

    Returns
    -------
    {"directions": (chain, d, k), orthonormal columns, "factors": (chain, k), of at most 1; all 1
    where the scores do not differ in more than k directions}, entries of the parameters of
    `adjusted_microcanonical`.

    Raises
    ------
    ValueError
        If there are no more records, or dimensions, than directions; scores that are not finite, or
        of other shapes than the matrix.

    Examples
    --------
    >>> scores = jnp.array([3.0, 1.0, 0.1]) * jax.random.normal(jax.random.key(0), (2, 500, 3))
    >>> score_metric(scores, jnp.ones((2, 3)), 1)["factors"].shape
    (2, 1)
    """
    check_count("num_directions", num_directions)
    expected = (*np.shape(scores)[:1], *np.shape(scores)[2:])
    if np.ndim(scores) != 3 or np.shape(inverse_mass_matrix) != expected:
        raise ValueError(
            "scores must have shape (chain, record, d) and the inverse mass matrix (chain, d), but "
            f"have {np.shape(scores)} and {np.shape(inverse_mass_matrix)}."
        )
    check_finite("scores", scores)
    scores, inverse_mass_matrix = jnp.asarray(scores), jnp.asarray(inverse_mass_matrix)
    num_records = min(scores.shape[1], scores.shape[2])
    if num_directions >= num_records:
        raise ValueError(
            f"num_directions is {num_directions}, but {scores.shape[1]} scores of "
            f"{scores.shape[2]} numbers tell of fewer than {num_records} directions; give fewer."
        )

    def of_chain(scores, variances):
        scaled = (scores - jnp.mean(scores, axis=0)) * jnp.sqrt(variances)
        _, roots, directions = jnp.linalg.svd(scaled, full_matrices=False)
        next_root = roots[num_directions]
        is_known = next_root > _ROUNDING * roots[0]
        factors = jnp.maximum(
            next_root / jnp.where(is_known, roots[:num_directions], 1), _LEAST_FACTOR
        )
        factors = jnp.where(is_known, factors, 1)
        return {DIRECTIONS: directions[:num_directions].T, FACTORS: factors}

    return jax.lax.map(lambda one: of_chain(*one), (scores, inverse_mass_matrix))


def in_metric(
    make_kernel: Callable[[Callable[[Array], Array], Array], SamplingAlgorithm],
    log_density: Callable[[Float[Array, " d"]], Float[Array, ""]],
    parameters: dict[str, Array],
) -> SamplingAlgorithm:
    """Return a kernel on vectors with one chain's metric, with or without directions.

    A step's coordinates begin where it does, so that one that is refused changes no digit.

    Parameters
    ----------
    make_kernel
        `make_kernel(log_density, inverse_mass_matrix) -> SamplingAlgorithm` for a diagonal (d,),
        with states of `position`, `logdensity` and `logdensity_grad` and Infos of `is_accepted`, or
        of `nonans` for a step that was not undone; with directions, other vectors of a state, such
        as a direction of motion, are in the coordinates of the step.
    log_density
        Of the vector itself.
    parameters
        "inverse_mass_matrix" (d,); and "directions" (d, k) and "factors" (k,), or neither.

    Raises
    ------
    ValueError
        Directions and factors whose shapes do not fit.
    """
    variances = parameters["inverse_mass_matrix"]
    if DIRECTIONS not in parameters:
        return make_kernel(log_density, variances)
    sd, ones = jnp.sqrt(variances), jnp.ones_like(variances)
    directions, factors = parameters[DIRECTIONS], jnp.asarray(parameters.get(FACTORS, 1.0))
    if factors.ndim != 1 or np.shape(directions) != (*sd.shape, *factors.shape):
        raise ValueError(
            "a metric with directions has parameters['directions'] of shape (d, k) and "
            f"parameters['factors'] (k,) a chain, for d = {sd.size}, but they have shapes "
            f"{np.shape(directions)} and {factors.shape}; score_metric makes them."
        )

    def step(rng_key, state):
        def local(u):
            return log_density(state.position + sd * _stretched(u, directions, factors))

        begun = state._replace(
            position=jnp.zeros_like(state.position),
            logdensity_grad=_stretched(sd * state.logdensity_grad, directions, factors),
        )
        new, info = make_kernel(local, ones).step(rng_key, begun)
        gradient = _stretched(new.logdensity_grad, directions, 1 / factors) / sd
        has_moved = info.is_accepted if hasattr(info, "is_accepted") else info.nonans
        moved = new._replace(
            position=state.position + sd * _stretched(new.position, directions, factors),
            logdensity_grad=jnp.where(has_moved, gradient, state.logdensity_grad),
        )
        return moved, info

    return SamplingAlgorithm(make_kernel(log_density, ones).init, step)


def _stretched(
    vector: Float[Array, " d"], directions: Float[Array, "d k"], factors: Float[Array, " k"]
) -> Float[Array, " d"]:
    """Return (I + V (F - 1) V^T) of a vector; with 1 / F its inverse, and both are symmetric."""
    return vector + directions @ ((factors - 1) * (vector @ directions))
