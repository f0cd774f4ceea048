"""Log density of a prior, and its difference from a reference without cancellation.

Independent normals, the usual case, are written out: a compiled step then holds one sum of squares
per parameter array and nothing else.
"""

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpyro.distributions as dist
from jax.tree_util import keystr, tree_leaves_with_path
from jaxtyping import Array, ArrayLike, Float, PyTree
from numpyro.distributions import constraints

from jaxbnn.numerics.arrays import float_dtype, widened
from jaxbnn.targets.prior_trees import JointPrior, is_distribution

_HALF_LOG_2_PI = 0.5 * math.log(2 * math.pi)


def prior_log_prob(prior: PyTree, position: PyTree) -> Float[Array, ""]:
    """Return the log prior density, -inf outside the support.

    Parameters
    ----------
    prior
        A PyTree of NumPyro distributions of the parameters' shapes (see `expand_prior`).
    position
        The parameters.

    Raises
    ------
    ValueError
        If the position is not shaped like the prior, naming the leaf.

    Examples
    --------
    >>> prior = {"w": dist.Normal(0.0, 1.0).expand((2, 1)).to_event()}
    >>> round(float(prior_log_prob(prior, {"w": jnp.ones((2, 1))})), 4)
    -2.8379
    """
    if isinstance(prior, JointPrior):
        return prior.log_prob(position)
    return _total(
        [
            _normal_log_prob(d, p) if _base_normal(d) else jnp.sum(log_prob_terms(d, p))
            for d, p in _pairs(prior, position)
        ]
    )


def prior_log_ratio(prior: PyTree, reference: PyTree) -> Callable[[PyTree], Float[Array, ""]]:
    """Return the function position -> log prior(position) - log prior(reference).

    The difference of normals is -(1 / (2 scale^2)) sum (p - r)(p + r - 2 loc), so that no
    large totals cancel; of the others, the sum of the differences of their elements' terms.

    Parameters
    ----------
    prior
        A PyTree of NumPyro distributions of the parameters' shapes.
    reference
        Parameters inside the support; what depends on them alone is computed once, here.

    Examples
    --------
    >>> prior = {"w": dist.Normal(0.0, 1.0).expand((2,)).to_event()}
    >>> log_ratio = prior_log_ratio(prior, {"w": jnp.full(2, 100.0)})
    >>> round(float(log_ratio({"w": jnp.full(2, 100.001)})), 3)
    -0.2
    """
    if isinstance(prior, JointPrior):
        return prior.log_ratio(reference)
    pairs = _pairs(prior, reference)
    reference_terms = [None if _base_normal(d) else log_prob_terms(d, r) for d, r in pairs]

    def log_ratio(position):
        ratios = []
        for (d, p), (_, r), r_terms in zip(
            _pairs(prior, position), pairs, reference_terms, strict=True
        ):
            if r_terms is None:
                ratios.append(_normal_log_ratio(d, p, r))
            else:
                ratios.append(jnp.sum(log_prob_terms(d, p) - r_terms))
        return _total(ratios)

    return log_ratio


def _pairs(prior: PyTree, position: PyTree) -> list[tuple[Any, Array]]:
    """Return (distribution, parameter) for every leaf; shapes are checked while tracing only."""
    leaves = tree_leaves_with_path(position)
    distributions = jax.tree.leaves(prior, is_leaf=is_distribution)
    treedef: Any = jax.tree.structure(prior, is_leaf=is_distribution)
    if treedef != jax.tree.structure(position):
        raise ValueError(
            f"the position must be shaped like the prior, {treedef}, but its structure is "
            f"{jax.tree.structure(position)}; give one array per distribution."
        )
    for (path, leaf), distribution in zip(leaves, distributions, strict=True):
        if jnp.shape(leaf) != distribution.shape():
            raise ValueError(
                f"the position{keystr(path)} has shape {jnp.shape(leaf)}, but its prior is of "
                f"shape {distribution.shape()}; chains go through jax.vmap, and a prior through "
                "expand_prior."
            )
    return [(d, _value(d, leaf)) for d, (_, leaf) in zip(distributions, leaves, strict=True)]


def _value(distribution: Any, leaf: ArrayLike) -> Array:
    """Return a parameter as floats, or, if its law is of whole numbers, as such."""
    array = jnp.asarray(leaf)
    if jnp.issubdtype(array.dtype, jnp.floating) or not distribution.support.is_discrete:
        return widened(array)
    return array.astype(jnp.int32) if array.dtype == bool else array


def _total(parts: list) -> Float[Array, ""]:
    return sum(parts[1:], start=parts[0])


def _base_normal(distribution: Any) -> Any:
    """Return the normal inside expanded and independent copies of it, else None."""
    while isinstance(distribution, dist.Independent | dist.ExpandedDistribution):
        distribution = distribution.base_dist
    return distribution if type(distribution) is dist.Normal else None


def _loc_and_precision(normal: Any, p: Array) -> tuple[Array, Array, Array]:
    """Return loc, 1 / scale^2 and log scale in the dtype of p, scalars left scalar."""

    def fit(value):
        value = jnp.asarray(value, p.dtype)
        if value.size == 1:
            return value.reshape(())
        return jnp.broadcast_to(value, p.shape)

    scale = fit(normal.scale)
    return fit(normal.loc), 1 / jnp.square(scale), jnp.log(scale)


def _weighted_sum(weight: Array, values: Array) -> Array:
    return weight * jnp.sum(values) if weight.ndim == 0 else jnp.sum(weight * values)


def _normal_log_prob(distribution: Any, p: Array) -> Array:
    loc, precision, log_scale = _loc_and_precision(_base_normal(distribution), p)
    log_scales = p.size * log_scale if log_scale.ndim == 0 else jnp.sum(log_scale)
    return (
        -0.5 * _weighted_sum(precision, jnp.square(p - loc)) - log_scales - p.size * _HALF_LOG_2_PI
    )


def _normal_log_ratio(distribution: Any, p: Array, reference: Array) -> Array:
    loc, precision, _ = _loc_and_precision(_base_normal(distribution), p)
    # p + r - 2 loc as two differences: rounds least where both lie near loc.
    return -0.5 * _weighted_sum(precision, (p - reference) * ((p - loc) + (reference - loc)))


def log_prob_terms(distribution: Any, p: Array) -> Array:
    """Return the terms of the log density, -inf outside the support, one per independent event."""
    dtype = float_dtype(p.dtype)
    while isinstance(distribution, dist.Independent):
        distribution = distribution.base_dist
    if _is_everywhere(distribution.support):
        return distribution.log_prob(p).astype(dtype)
    inside = distribution.support(p)
    # NumPyro's densities are right inside the support only, and their gradients outside it may be
    # NaN, which jnp.where would let through: evaluate them at a point that is inside.
    mask = jnp.expand_dims(inside, range(inside.ndim, p.ndim))
    feasible = jnp.asarray(distribution.support.feasible_like(p), p.dtype)
    terms = distribution.log_prob(jnp.where(mask, p, feasible)).astype(dtype)
    return jnp.where(inside, terms, -jnp.inf)


def _is_everywhere(support: Any) -> bool:
    while hasattr(support, "base_constraint"):
        support = support.base_constraint
    return type(support) is type(constraints.real)
