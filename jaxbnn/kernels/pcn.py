"""Preconditioned Crank-Nicolson (pCN): a random walk that keeps a Gaussian measure.

For a target exp(l(u)) N(u; m, C), proposes

    v = m + sqrt(1 - beta^2) (u - m) + beta w,    w ~ N(0, C),

and accepts with probability min(1, exp(l(v) - l(u))): the proposal is reversible for
N(m, C), so only l is in the ratio, and the step size need not shrink as the dimension grows.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
from blackjax.base import SamplingAlgorithm
from jaxtyping import Array, ArrayLike, Float, PRNGKeyArray, PyTree

from jaxbnn.kernels.arguments import check_log_likelihood_fn, check_one_number, check_step
from jaxbnn.kernels.covariance_operator import CovarianceOperator, as_operator
from jaxbnn.kernels.crank_nicolson import check_beta, crank_nicolson, delta_from_beta
from jaxbnn.kernels.metropolis import MetropolisInfo, metropolis
from jaxbnn.kernels.refresh import auxiliary_fields
from jaxbnn.kernels.trees import as_terms, check_position, normal_like, widened
from jaxbnn.numerics import check_finite, sum_of_differences


@auxiliary_fields()
class PCNState(NamedTuple):
    """State of `pcn`.

    Attributes
    ----------
    position
        u, a PyTree.
    log_likelihood
        l(u), one term per datum or a scalar.
    """

    position: PyTree
    log_likelihood: Float[Array, "..."]


# A plain Metropolis step: nothing more to tell.
PCNInfo = MetropolisInfo


def pcn(
    log_likelihood_fn: Callable[[PyTree], Array],
    step_size: ArrayLike,
    covariance: PyTree | CovarianceOperator | None = None,
    *,
    mean: PyTree | None = None,
) -> SamplingAlgorithm:
    """Preconditioned Crank-Nicolson for a target exp(l(u)) N(u; m, C).

    Parameters
    ----------
    log_likelihood_fn
        l, the log density *relative to* N(m, C): position to one term per datum, or to a
        scalar. Where the prior is N(m, C), it is the log likelihood; in the coordinates of a
        reparametrised network it is that of `wide.reparametrise`, not log p(y | theta).
    step_size
        beta in (0, 1]; 1 proposes independently of the position. May be traced; a traced
        value above 1, which an adaptation may try, counts as 1.
    covariance
        C: None for the identity; a positive number; a PyTree like the position of variances;
        or an operator, from `dense_covariance(matrix)` or `covariance_operator(sqrt)`.
    mean
        m: None for zero; a number; or a PyTree like the position.

    Returns
    -------
    The kernel, with `PCNState` and `PCNInfo`.

    Raises
    ------
    ValueError
        step_size outside (0, 1]; variances that are not positive; a mean that is not finite; a
        mean or covariance not shaped like the position.

    Notes
    -----
    Pezzetti et al., (4)-(5) and algorithm 1, which are right as
    printed (erratum B5). beta = 0, which never moves, is refused.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> kernel = pcn(lambda u: -((u - 1.0) ** 2), 0.5)
    >>> state, info = kernel.step(jax.random.key(0), kernel.init(jnp.zeros(3)))
    >>> state.position.shape, state.log_likelihood.shape
    ((3,), (3,))
    """
    check_log_likelihood_fn(log_likelihood_fn)
    check_beta("step_size", step_size)
    check_one_number("step_size", step_size)
    check_finite("mean", mean, "give finite numbers")
    operator = as_operator(covariance)

    def init(position: PyTree, rng_key: PRNGKeyArray | None = None) -> PCNState:
        check_position(position)
        return PCNState(position, as_terms("log_likelihood_fn", log_likelihood_fn(position)))

    def step(rng_key: PRNGKeyArray, state: PCNState) -> tuple[PCNState, PCNInfo]:
        check_step(rng_key, state)
        key_noise, key_accept = jax.random.split(rng_key)
        noise = operator.sqrt(normal_like(key_noise, widened(state.position)))
        delta = delta_from_beta(step_size)
        proposal = init(crank_nicolson(state.position, noise, delta, mean=mean))
        log_ratio = pcn_log_ratio(state, proposal)
        return metropolis(key_accept, log_ratio, state, proposal)

    return SamplingAlgorithm(init, step)


def pcn_log_ratio(state: PCNState, proposal: PCNState) -> Float[Array, ""]:
    """Return l(v) - l(u), the log of the Metropolis-Hastings ratio (erratum B5)."""
    return sum_of_differences(proposal.log_likelihood, state.log_likelihood)
