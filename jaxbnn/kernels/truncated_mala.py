"""MALA in a box: each coordinate's Langevin proposal is truncated to its bounds.

With mu(x) = x + eps^2/2 g(x), g the gradient of the log density,

    y_i ~ N(mu_i(x), eps^2) restricted to [l_i, u_i],
    log q(x, y) = sum_i -(y_i - mu_i)^2 / (2 eps^2) - log Z_i,
    Z_i = Phi((u_i - mu_i) / eps) - Phi((l_i - mu_i) / eps)

up to a constant (Papamarkou et al., section 4.1 with erratum D1: the normaliser is a difference,
not a product). Nothing is ever proposed outside of the box.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from blackjax.base import SamplingAlgorithm
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, ArrayLike, Float, PRNGKeyArray, PyTree

from jaxbnn.kernels.arguments import check_log_density_fn, check_step, check_step_size
from jaxbnn.kernels.metropolis import MetropolisInfo, metropolis
from jaxbnn.kernels.refresh import auxiliary_fields
from jaxbnn.kernels.trees import as_scalar, check_position, differentiable
from jaxbnn.numerics import (
    check_real,
    is_concrete,
    log_mass_from_mode,
    truncated_normal,
)
from jaxbnn.numerics.arguments import short


@auxiliary_fields()
class TruncatedMALAState(NamedTuple):
    """State of `truncated_mala`.

    Attributes
    ----------
    position
        A PyTree.
    log_density
        There.
    gradient
        Of the log density, ravelled.
    """

    position: PyTree
    log_density: Float[Array, ""]
    gradient: Float[Array, " d"]


# A plain Metropolis step: nothing more to tell.
TruncatedMALAInfo = MetropolisInfo


def truncated_mala(
    log_density_fn: Callable[[PyTree], Array],
    step_size: ArrayLike,
    lower: PyTree,
    upper: PyTree,
) -> SamplingAlgorithm:
    """Metropolis-adjusted Langevin algorithm for a target on a box.

    Parameters
    ----------
    log_density_fn
        position -> log density, a scalar; it is evaluated inside the box and on its faces only.
    step_size
        eps, with eps^2/2 before the gradient. May be traced.
    lower, upper
        Bounds: numbers, or PyTrees shaped like the position or like a prefix of it, each leaf
        broadcast against the position's. Either may be infinite anywhere; without finite bounds
        this is MALA. May be traced.

    Returns
    -------
    The kernel; positions stay in the closed box.

    Raises
    ------
    ValueError
        If `step_size` is not positive; in `init`, if a lower bound is not below its upper bound,
        bounds do not fit the position, or the start is outside of the box, naming the leaf.

    Source: Papamarkou et al., section 4.1; erratum D1.

    Examples
    --------
    >>> kernel = truncated_mala(lambda x: 3 * x["rate"], 0.5, lower=0.0, upper=1.0)
    >>> state = kernel.init({"rate": jnp.array(0.5)})
    >>> state, info = jax.jit(kernel.step)(jax.random.key(0), state)
    >>> bool(0 <= state.position["rate"] <= 1)
    True
    """
    check_log_density_fn(log_density_fn)
    check_step_size(step_size)

    def evaluate(position: PyTree) -> TruncatedMALAState:
        vector, unravel = ravel_pytree(position)
        value, gradient = jax.value_and_grad(
            lambda v: differentiable(
                "log_density_fn", as_scalar("log_density_fn", log_density_fn(unravel(v)))
            )
        )(vector)
        return TruncatedMALAState(position, value, gradient)

    def init(position: PyTree, rng_key: PRNGKeyArray | None = None) -> TruncatedMALAState:
        check_position(position)
        _check_box(position, lower, upper)
        return evaluate(position)

    def step(
        rng_key: PRNGKeyArray, state: TruncatedMALAState
    ) -> tuple[TruncatedMALAState, TruncatedMALAInfo]:
        check_step(rng_key, state)
        key_proposal, key_accept = jax.random.split(rng_key)
        vector, unravel = ravel_pytree(state.position)
        low, high = _ravel_bounds(state.position, lower), _ravel_bounds(state.position, upper)
        eps = jnp.asarray(step_size, vector.dtype)
        mean = vector + jnp.square(eps) / 2 * state.gradient
        proposal = evaluate(unravel(truncated_normal(key_proposal, low, high, mean, eps)))
        log_ratio = truncated_mala_log_ratio(state, proposal, step_size, lower, upper)
        return metropolis(key_accept, log_ratio, state, proposal)

    return SamplingAlgorithm(init, step)


def truncated_mala_log_ratio(
    state: TruncatedMALAState,
    proposal: TruncatedMALAState,
    step_size: ArrayLike,
    lower: PyTree,
    upper: PyTree,
) -> Float[Array, ""]:
    """Log Metropolis-Hastings ratio of a move between two states of `truncated_mala`.

        log pi(y) - log pi(x) + log q(y, x) - log q(x, y),        q as at the top of this file

    Parameters
    ----------
    state, proposal
        x and y, both in the box, with what is cached about them.
    step_size, lower, upper
        As in `truncated_mala`.

    Examples
    --------
    >>> kernel = truncated_mala(lambda x: jnp.zeros(()), 1.0, 0.0, jnp.inf)
    >>> here, there = kernel.init(jnp.zeros(1)), kernel.init(jnp.full(1, 9.0))
    >>> round(float(truncated_mala_log_ratio(here, there, 1.0, 0.0, jnp.inf)), 4)  # log(1/2)
    -0.6931
    """
    eps = jnp.asarray(step_size, state.gradient.dtype)
    low, high = _ravel_bounds(state.position, lower), _ravel_bounds(state.position, upper)
    x, y = ravel_pytree(state.position)[0], ravel_pytree(proposal.position)[0]
    forward = _log_proposal(x, y, state.gradient, eps, low, high)
    backward = _log_proposal(y, x, proposal.gradient, eps, low, high)
    return proposal.log_density - state.log_density + jnp.sum(backward - forward)


def _log_proposal(
    start: Float[Array, " d"],
    end: Float[Array, " d"],
    gradient: Float[Array, " d"],
    eps: Float[Array, ""],
    low: Float[Array | np.ndarray, " d"],
    high: Float[Array | np.ndarray, " d"],
) -> Float[Array, " d"]:
    """Log density of each coordinate's proposal, without the constant.

    Relative to the density at the mode, which is the mean where that is inside: a mean far outside
    the box makes both the square and the log normaliser huge, and their sum moderate.
    """
    mean = start + jnp.square(eps) / 2 * gradient
    mode = jnp.clip(mean, low, high)
    from_mode = end - mode
    squares = from_mode * (from_mode + 2 * (mode - mean))
    edge = jnp.maximum((low - mean) / eps, (mean - high) / eps)
    half_line = any(is_concrete(b) and bool(np.isinf(b).all()) for b in (low, high))
    width = None if half_line else (high - low) / eps
    return -squares / (2 * jnp.square(eps)) - log_mass_from_mode(edge, width)


def _ravel_bounds(position: PyTree, bounds: PyTree) -> Any:
    """Lay bounds out like the ravelled position; NumPy where they are concrete.

    The truncated normal is cheaper where it can see that a side has no bound.
    """
    xp = np if is_concrete(bounds) else jnp
    leaves = jax.tree.leaves(_spread(position, bounds))
    pairs = zip(leaves, jax.tree.leaves(position), strict=True)
    spread = [xp.broadcast_to(xp.asarray(b, p.dtype), p.shape).reshape(-1) for b, p in pairs]
    return xp.concatenate(spread)


def _spread(position: PyTree, bounds: PyTree) -> PyTree:
    """Give every leaf of the position its own bound."""
    try:
        return jax.tree.broadcast(bounds, position)
    except ValueError:
        raise ValueError(
            "bounds must be numbers or shaped like the position, "
            f"{short(jax.tree.structure(position), 200)}, but are "
            f"{short(jax.tree.structure(bounds), 100)}."
        ) from None


def _check_box(position: PyTree, lower: PyTree, upper: PyTree) -> None:
    lows, highs = (jax.tree.leaves(_spread(position, bounds)) for bounds in (lower, upper))
    leaves = jax.tree_util.tree_leaves_with_path(position)
    for (path, leaf), low, high in zip(leaves, lows, highs, strict=True):
        name = f"position{jax.tree_util.keystr(path)}"
        for bound, value in (("lower", low), ("upper", high)):
            if not _fits(np.shape(value), np.shape(leaf)):
                raise ValueError(
                    f"the {bound} bound of {name} has shape {np.shape(value)}, but {name} has "
                    f"{np.shape(leaf)}; give a number or one bound for each entry."
                )
        check_real(f"the lower bound of {name}", low)
        check_real(f"the upper bound of {name}", high)
        if not is_concrete((low, high)):
            continue
        # Bounds as the position's dtype has them, as the proposals will see them.
        least, most = (np.asarray(bound, jnp.result_type(leaf)) for bound in (low, high))
        if not np.all(least < most):
            raise ValueError(
                f"lower must be below upper everywhere, but the bounds of {name} are {low} and "
                f"{high}, in {least.dtype}; exchange or widen them."
            )
        if is_concrete(leaf):
            value = np.asarray(leaf)
            inside = (value >= least) & (value <= most)
            if not inside.all():
                raise ValueError(
                    f"{name} starts at {value[~inside].flat[0]:g}, outside of its bounds {low} and "
                    f"{high}; start inside."
                )


def _fits(shape: tuple[int, ...], whole: tuple[int, ...]) -> bool:
    """Whether an array of this shape can be broadcast to `whole`."""
    pairs = zip(reversed(shape), reversed(whole), strict=False)
    return len(shape) <= len(whole) and all(n in (1, m) for n, m in pairs)
