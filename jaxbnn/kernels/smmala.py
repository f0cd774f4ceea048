"""Simplified manifold MALA: Langevin proposals scaled by a metric that follows the position.

With M the metric at x and g the gradient of the log density,

    y ~ N(x + eps^2/2 M(x)^-1 g(x), eps^2 M(x)^-1),
    log q(x, y) = log det M(x) / 2 - |R(x)^T (y - x - eps^2/2 M(x)^-1 g(x))|^2 / (2 eps^2)

up to a constant, M = R R^T (Girolami and Calderhead 2011; Papamarkou et al., (3.4) with
erratum D5). By default M is the SoftAbs of the Hessian (erratum D6); "simplified" because the
derivatives of M are left out of the drift, which the accept step makes exact.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from blackjax.base import SamplingAlgorithm
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, ArrayLike, Bool, Float, PRNGKeyArray, PyTree

from jaxbnn.kernels.arguments import (
    check_bits,
    check_log_density_fn,
    check_positive_number,
    check_step,
    check_step_size,
)
from jaxbnn.kernels.metropolis import metropolis
from jaxbnn.kernels.refresh import auxiliary_fields
from jaxbnn.kernels.trees import as_scalar, check_position, differentiable
from jaxbnn.numerics import (
    SoftAbsMetric,
    check_real,
    is_concrete,
    metric_inverse_sqrt,
    metric_log_det,
    metric_quadratic,
    metric_solve,
    softabs_metric,
    solve_triangular,
)
from jaxbnn.numerics.arguments import check_function
from jaxbnn.numerics.products import product


class CholeskyMetric(NamedTuple):
    """A metric M = L L^T, factored once, with S = L^-T: M^-1 = S S^T."""

    root: Float[Array, "d d"]
    inverse_root: Float[Array, "d d"]


@auxiliary_fields()
class SMMALAState(NamedTuple):
    """State of `smmala`: the position and what is computed once for it.

    Attributes
    ----------
    position
        The PyTree.
    log_density
        Its log density.
    natural_gradient
        M^-1 times the gradient of the log density, ravelled.
    metric
        M, factored: by its eigenvectors with SoftAbs, by Cholesky without.
    log_det
        log det M.
    """

    position: PyTree
    log_density: Float[Array, ""]
    natural_gradient: Float[Array, " d"]
    metric: SoftAbsMetric | CholeskyMetric
    log_det: Float[Array, ""]


class SMMALAInfo(NamedTuple):
    """What happened in one step of `smmala`.

    Attributes
    ----------
    acceptance_rate
        min(1, exp(log ratio)), 0 where the log ratio is NaN.
    is_accepted
        Whether the proposal became the new state.
    metric_failed
        Whether the metric at the proposal could not be factored (NaN in the Hessian, or a matrix
        that is not positive definite without SoftAbs); such a proposal is rejected. Its sum over
        the steps counts the failures.
    is_divergent
        Whether the log ratio was NaN, for that or another reason.
    """

    acceptance_rate: Float[Array, ""]
    is_accepted: Bool[Array, ""]
    metric_failed: Bool[Array, ""]
    is_divergent: Bool[Array, ""]


def smmala(
    log_density_fn: Callable[[PyTree], Array],
    step_size: ArrayLike,
    *,
    softabs: ArrayLike | None = 1000.0,
    metric: Callable[[PyTree], Array] | None = None,
) -> SamplingAlgorithm:
    """Simplified manifold Metropolis-adjusted Langevin algorithm.

    One value, one gradient, one metric and one factorisation a step.

    Parameters
    ----------
    log_density_fn
        position -> log density, a scalar; twice differentiable unless `metric` is given.
    step_size
        eps: eps^2/2 stands before the natural gradient, eps^2 before M^-1. May be traced. (The
        "step" of Papamarkou et al. is eps^2.)
    softabs
        alpha > 0 of the SoftAbs, which makes any symmetric matrix positive definite with
        eigenvalues of at least 1/alpha: the noise of a proposal is never longer than about
        eps sqrt(alpha) a coordinate, its drift than eps^2/2 alpha |gradient|. May be traced. None
        leaves the matrix as it is: it must be positive definite, and a Cholesky factor takes the
        place of the eigen-decomposition, several times cheaper.
    metric
        position -> symmetric matrix (d, d) on the ravelled position (order of `ravel_pytree`);
        the default is the Hessian of minus the log density by `jax.hessian`. For the posterior of
        a network, `posterior_hessian(posterior)` is the same at a fraction of the cost, and
        `gauss_newton_metric(posterior)` is the expected Hessian of the likelihood plus the prior's.

    Returns
    -------
    The kernel. Its state caches the log density, the natural gradient and the factored metric.

    Raises
    ------
    ValueError
        If `step_size` or `softabs` is not positive; if the matrix is not (d, d); in `init`, if the
        matrix at the start holds NaN or infinities (naming the coordinate), or cannot be factored.
    TypeError
        A log density of whole numbers; a position, and so a metric, of fewer than 32 bits.

    Source: Papamarkou et al., section 3.1.3 and equation (3.4); errata D5, D6.

    Examples
    --------
    >>> kernel = smmala(lambda x: -(x[0] ** 2 / 2 + 50 * x[1] ** 2), 1.0)
    >>> state = kernel.init(jnp.array([2.0, 1.0]))
    >>> [round(float(v), 3) for v in state.natural_gradient]
    [-2.0, -1.0]
    >>> state, info = jax.jit(kernel.step)(jax.random.key(0), state)
    >>> bool(info.metric_failed)
    False
    """
    check_log_density_fn(log_density_fn)
    check_step_size(step_size)
    if metric is not None:
        check_function("metric", metric, "give position -> matrix")
    if softabs is not None:
        check_positive_number("softabs", softabs, "it is the alpha of SoftAbs, for instance 1000")

    def init(position: PyTree, rng_key: PRNGKeyArray | None = None) -> SMMALAState:
        check_position(position)
        state, matrix = _evaluate(log_density_fn, metric, softabs, position)
        if is_concrete((state, matrix)):
            _check_start(matrix, state, named="metric" if metric else "Hessian of the log density")
        return state

    def step(rng_key: PRNGKeyArray, state: SMMALAState) -> tuple[SMMALAState, SMMALAInfo]:
        check_step(rng_key, state)
        key_proposal, key_accept = jax.random.split(rng_key)
        vector, unravel = ravel_pytree(state.position)
        eps = jnp.asarray(step_size, vector.dtype)
        noise = jax.random.normal(key_proposal, vector.shape, vector.dtype)
        drift = jnp.square(eps) / 2 * state.natural_gradient
        moved = vector + drift + eps * _colour(state.metric, noise)
        proposal, _ = _evaluate(log_density_fn, metric, softabs, unravel(moved))
        failed = ~_is_factored(proposal)
        log_ratio = jnp.where(failed, jnp.nan, smmala_log_ratio(state, proposal, step_size))

        def make_info(rate: Array, is_accepted: Array, is_divergent: Array) -> SMMALAInfo:
            return SMMALAInfo(rate, is_accepted, failed, is_divergent)

        return metropolis(key_accept, log_ratio, state, proposal, make_info)

    return SamplingAlgorithm(init, step)


def smmala_log_ratio(
    state: SMMALAState, proposal: SMMALAState, step_size: ArrayLike
) -> Float[Array, ""]:
    """Log Metropolis-Hastings ratio of a move between two states of `smmala`.

        log pi(y) - log pi(x) + log q(y, x) - log q(x, y),        q as at the top of this file

    Parameters
    ----------
    state, proposal
        x and y with what is cached about them.
    step_size
        eps.

    Examples
    --------
    >>> kernel = smmala(lambda x: -jnp.sum(x**2) / 2, 0.1)
    >>> here, there = map(jax.jit(kernel.init), (jnp.zeros(1), jnp.ones(1)))
    >>> round(float(smmala_log_ratio(here, there, 0.1)), 5)  # -eps^2 / 8, from discretisation
    -0.00125
    """
    forward = _log_proposal(state, proposal, step_size)
    backward = _log_proposal(proposal, state, step_size)
    return proposal.log_density - state.log_density + (backward - forward)


def _log_proposal(start: SMMALAState, end: SMMALAState, step_size: ArrayLike) -> Float[Array, ""]:
    """Log density of proposing `end` from `start`, without the constant."""
    change = ravel_pytree(end.position)[0] - ravel_pytree(start.position)[0]
    eps2 = jnp.square(jnp.asarray(step_size, change.dtype))
    square = _quadratic(start.metric, change - eps2 / 2 * start.natural_gradient)
    return start.log_det / 2 - square / (2 * eps2)


def _evaluate(
    log_density_fn: Callable,
    metric: Callable | None,
    softabs: ArrayLike | None,
    position: PyTree,
) -> tuple[SMMALAState, Float[Array, "d d"]]:
    """Compute all that a state caches, and the matrix that was factored."""
    vector, unravel = ravel_pytree(position)

    def log_density(vector: Array) -> Array:
        value = as_scalar("log_density_fn", log_density_fn(unravel(vector)))
        return differentiable("log_density_fn", value)

    value, gradient = jax.value_and_grad(log_density)(vector)
    matrix = -jax.hessian(log_density)(vector) if metric is None else metric(position)
    check_real("what metric returns", matrix)
    if jnp.shape(matrix) != 2 * vector.shape:
        raise ValueError(
            f"metric must return a matrix of shape {2 * vector.shape}, one row for each number in "
            f"the position, but returned shape {jnp.shape(matrix)}."
        )
    factored, log_det = _factor(matrix, softabs)
    return SMMALAState(position, value, _solve(factored, gradient), factored, log_det), matrix


def _factor(
    matrix: Float[Array, "d d"], softabs: ArrayLike | None
) -> tuple[SoftAbsMetric | CholeskyMetric, Float[Array, ""]]:
    """Return the metric, factored, and log det M."""
    if softabs is not None:
        metric = softabs_metric(matrix, softabs)
        return metric, metric_log_det(metric)
    check_bits("the metric", matrix)
    root = jnp.linalg.cholesky(matrix)
    inverse_root = solve_triangular(root, jnp.eye(len(root), dtype=root.dtype)).T
    return CholeskyMetric(root, inverse_root), 2 * jnp.sum(jnp.log(jnp.diagonal(root)))


def _colour(metric: SoftAbsMetric | CholeskyMetric, noise: Float[Array, " d"]) -> Array:
    """Turn standard normal noise into a draw from N(0, M^-1)."""
    if isinstance(metric, SoftAbsMetric):
        return metric_inverse_sqrt(metric, noise)
    return product(metric.inverse_root, noise)


def _solve(metric: SoftAbsMetric | CholeskyMetric, vector: Float[Array, " d"]) -> Array:
    if isinstance(metric, SoftAbsMetric):
        return metric_solve(metric, vector)
    return product(metric.inverse_root, product(metric.inverse_root.T, vector))


def _quadratic(metric: SoftAbsMetric | CholeskyMetric, vector: Float[Array, " d"]) -> Array:
    if isinstance(metric, SoftAbsMetric):
        return metric_quadratic(metric, vector)
    return jnp.sum(jnp.square(product(metric.root.T, vector)))


def _is_factored(state: SMMALAState) -> Bool[Array, ""]:
    # A factorisation that fails is NaN throughout, and so are the products with it.
    return jnp.isfinite(state.log_det) & ~jnp.any(jnp.isnan(state.natural_gradient))


def _check_start(matrix: Array, state: SMMALAState, named: str) -> None:
    bad = ~np.isfinite(np.asarray(matrix))
    if bad.any():
        # One coordinate fills its row and its column: take the row with most of them.
        index = int(np.argmax(bad.sum(axis=1)))
        where = _coordinate(state.position, index)
        raise ValueError(
            f"the {named} at the start is NaN or infinite in coordinate {index} of the ravelled "
            f"position, {where}; start where it is finite."
        )
    if not np.isfinite(np.asarray(state.log_det)):
        raise ValueError(
            f"the {named} at the start is not positive definite; use softabs=1000, or start "
            "elsewhere."
        )


def _coordinate(position: PyTree, index: int) -> str:
    """Name an entry of the ravelled position by its leaf and its index there."""
    for path, leaf in jax.tree_util.tree_leaves_with_path(position):
        if index < np.size(leaf):
            inside = tuple(int(i) for i in np.unravel_index(index, np.shape(leaf)))
            return f"position{jax.tree_util.keystr(path)}{list(inside)}"
        index -= np.size(leaf)
    raise IndexError("no such coordinate")
