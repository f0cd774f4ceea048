"""Preconditioned Crank-Nicolson Langevin (pCNL): pCN with a drift along the gradient.

For a target exp(l(u)) N(u; m, C) and g = D l(u), proposes

    v = m + [(2 - delta) (u - m) + 2 delta C g + sqrt(8 delta) w] / (2 + delta),  w ~ N(0, C),

which is c (u - m) + (1 - c) C g + beta w from m, c = sqrt(1 - beta^2), and accepts with
probability min(1, exp(log_ratio)), log_ratio as in `pcnl_log_ratio`.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from blackjax.base import SamplingAlgorithm
from jaxtyping import Array, ArrayLike, Float, PRNGKeyArray, PyTree

from jaxbnn.kernels.arguments import check_log_likelihood_fn, check_one_number, check_step
from jaxbnn.kernels.covariance_operator import CovarianceOperator, as_operator
from jaxbnn.kernels.crank_nicolson import (
    check_beta,
    check_delta,
    crank_nicolson,
    delta_from_beta,
    from_mean,
)
from jaxbnn.kernels.metropolis import MetropolisInfo, metropolis
from jaxbnn.kernels.refresh import auxiliary_fields
from jaxbnn.kernels.trees import (
    check_position,
    inner_product,
    normal_like,
    terms_and_gradient,
    widened,
)
from jaxbnn.numerics import check_finite, sum_of_differences


@auxiliary_fields()
class PCNLState(NamedTuple):
    """State of `pcnl`.

    Attributes
    ----------
    position
        u, a PyTree.
    log_likelihood
        l(u), one term per datum or a scalar.
    gradient
        Of their sum, a PyTree like the position.
    """

    position: PyTree
    log_likelihood: Float[Array, "..."]
    gradient: PyTree


# A plain Metropolis step: nothing more to tell.
PCNLInfo = MetropolisInfo


def pcnl(
    log_likelihood_fn: Callable[[PyTree], Array],
    step_size: ArrayLike | None = None,
    *,
    delta: ArrayLike | None = None,
    covariance: PyTree | CovarianceOperator | None = None,
    mean: PyTree | None = None,
) -> SamplingAlgorithm:
    """Preconditioned Crank-Nicolson Langevin for a target exp(l(u)) N(u; m, C).

    The gradient is kept with the position: one evaluation of l and its gradient a step.

    Parameters
    ----------
    log_likelihood_fn
        l, the log density *relative to* N(m, C): position to one term per datum, or to a
        scalar; differentiable.
    step_size
        beta in (0, 1]. May be traced; a traced value above 1 counts as 1.
    delta
        Instead of beta, delta in (0, 2): beta = sqrt(8 delta) / (2 + delta). May be traced.
    covariance, mean
        C and m, as in `pcn`.

    Returns
    -------
    The kernel, with `PCNLState` and `PCNLInfo`.

    Raises
    ------
    ValueError
        None or both of step_size and delta; step_size outside (0, 1]; delta outside (0, 2),
        with the beta that it means; a bad covariance or mean, as in `pcn`.

    Notes
    -----
    Pezzetti et al., (6). The acceptances printed in equation (7),
    algorithm 2 and appendix B are wrong; this is the right one (erratum B6), with beta and
    delta related as in erratum B7.

    Examples
    --------
    >>> kernel = pcnl(lambda u: -((u - 1.0) ** 2), 0.5)
    >>> state, info = kernel.step(jax.random.key(0), kernel.init(jnp.zeros(3)))
    >>> bool(info.is_accepted), state.gradient.shape
    (True, (3,))
    """
    check_log_likelihood_fn(log_likelihood_fn)
    if (step_size is None) == (delta is None):
        raise ValueError("pcnl needs one of step_size (beta) and delta, not none nor both.")
    if step_size is not None:
        check_beta("step_size", step_size)
        check_one_number("step_size", step_size)
    if delta is not None:
        check_delta(delta)
        check_one_number("delta", delta)
    check_finite("mean", mean, "give finite numbers")
    operator = as_operator(covariance)

    def init(position: PyTree, rng_key: PRNGKeyArray | None = None) -> PCNLState:
        check_position(position)
        return PCNLState(
            position, *terms_and_gradient("log_likelihood_fn", log_likelihood_fn, position)
        )

    def step(rng_key: PRNGKeyArray, state: PCNLState) -> tuple[PCNLState, PCNLInfo]:
        check_step(rng_key, state)
        key_noise, key_accept = jax.random.split(rng_key)
        noise = operator.sqrt(normal_like(key_noise, widened(state.position)))
        size = jnp.asarray(delta) if step_size is None else delta_from_beta(step_size)
        drift = operator.multiply(widened(state.gradient))
        proposal = init(crank_nicolson(state.position, noise, size, drift=drift, mean=mean))
        log_ratio = pcnl_log_ratio(state, proposal, size, operator, mean)
        return metropolis(key_accept, log_ratio, state, proposal)

    return SamplingAlgorithm(init, step)


def pcnl_log_ratio(
    state: PCNLState,
    proposal: PCNLState,
    delta: ArrayLike,
    covariance: PyTree | CovarianceOperator | None = None,
    mean: PyTree | None = None,
) -> Float[Array, ""]:
    """Return the log of the Metropolis-Hastings ratio of the move u -> v.

        l(v) - l(u) - <v - u, g_u + g_v> / 2
            + (delta / 4) <C (g_u + g_v) - (u + v - 2 m), g_u - g_v>

    It is erratum B6 with the two squared norms, equal to first order, taken as one product:
    |A^T g_u|^2 - |A^T g_v|^2 = <C (g_u + g_v), g_u - g_v>.

    Parameters
    ----------
    state, proposal
        At u and v.
    delta
        The step size, in (0, 2].
    covariance, mean
        C and m, as in `pcn`.
    """
    difference = sum_of_differences(proposal.log_likelihood, state.log_likelihood)
    dtype = difference.dtype
    state, proposal = widened(state), widened(proposal)
    gradient_sum = jax.tree.map(jnp.add, state.gradient, proposal.gradient)
    step = jax.tree.map(jnp.subtract, proposal.position, state.position)
    pull = jax.tree.map(
        lambda drift, u, v: drift - u - v,
        as_operator(covariance).multiply(gradient_sum),
        from_mean(state.position, mean),
        from_mean(proposal.position, mean),
    )
    gradient_step = jax.tree.map(jnp.subtract, state.gradient, proposal.gradient)
    return (
        difference
        - inner_product(step, gradient_sum, dtype) / 2
        + jnp.asarray(delta, dtype) / 4 * inner_product(pull, gradient_step, dtype)
    )
