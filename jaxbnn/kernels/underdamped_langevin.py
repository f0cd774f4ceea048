"""Underdamped Langevin: one leapfrog step with a momentum that is partly refreshed.

For a target density pi(u), with unit mass:

    m <- sqrt(1 - b) m + sqrt(b) xi,    xi ~ N(0, I)
    (v, m') = one leapfrog step of size eps from (u, m)
    accept (v, m') with probability min(1, pi(v) exp(-|m'|^2/2) / (pi(u) exp(-|m|^2/2))),
    else stay at u and turn back: m <- -m.

The refreshment b = 1 draws a new momentum each time, which is MALA,
v = u + (eps^2/2) grad log pi(u) + eps xi.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from blackjax.base import SamplingAlgorithm
from jaxtyping import Array, ArrayLike, Float, PRNGKeyArray, PyTree

from jaxbnn.kernels.arguments import (
    check_log_density_fn,
    check_one_number,
    check_step,
    check_step_size,
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
from jaxbnn.numerics import is_concrete, sum_of_differences


# Not a function of the position: `refresh` carries it over when another kernel moves u.
@auxiliary_fields("momentum")
class UnderdampedLangevinState(NamedTuple):
    """State of `underdamped_langevin`.

    Attributes
    ----------
    position, momentum
        PyTrees of the same structure.
    log_density
        log pi(u), terms or a scalar.
    gradient
        Of their sum, a PyTree like the position.
    """

    position: PyTree
    momentum: PyTree
    log_density: Float[Array, "..."]
    gradient: PyTree


# A plain Metropolis step: nothing more to tell.
UnderdampedLangevinInfo = MetropolisInfo


def underdamped_langevin(
    log_density_fn: Callable[[PyTree], Array], step_size: ArrayLike, refreshment: ArrayLike
) -> SamplingAlgorithm:
    """Metropolis-adjusted underdamped Langevin; `refreshment=1` is MALA.

    The gradient is kept with the position: one evaluation of the density and its gradient a
    step.

    Parameters
    ----------
    log_density_fn
        Log density of the target up to a constant: position to a scalar, or to terms whose
        sum it is; differentiable. In the coordinates of a reparametrised network it is
        l(phi) - |phi|^2 / 2.
    step_size
        eps > 0, with eps^2 / 2 before the gradient. May be traced.
    refreshment
        b in (0, 1], the fraction of the momentum's variance that is refreshed in each step; 1 is
        MALA, and small values let the momentum persist over about 2 / b steps as long as
        proposals are accepted. May be traced.

    Returns
    -------
    The kernel, with `UnderdampedLangevinState` and `UnderdampedLangevinInfo`.
    `init(position, rng_key)` draws the momentum from N(0, I); without a key it starts at rest,
    with zeros, which does not matter for MALA and is forgotten like any start in one long run.
    A loop that starts anew again and again, as SMC does, must give a key, which
    `interop.blackjax.inner_kernel` does.

    Raises
    ------
    ValueError
        step_size not positive; refreshment outside (0, 1].

    Notes
    -----
    Pezzetti et al. write "underdamped LMC" for MALA; their step beta is
    eps here, and this kernel with partial refreshment is what the name means (erratum B8).
    Generalised HMC with one leapfrog step: Horowitz (1991).

    Examples
    --------
    >>> kernel = underdamped_langevin(lambda u: -jnp.sum(u**2) / 2, 0.1, refreshment=0.5)
    >>> state = kernel.init(jnp.zeros(3), jax.random.key(0))
    >>> state, info = kernel.step(jax.random.key(1), state)
    >>> bool(info.is_accepted), state.momentum.shape
    (True, (3,))
    """
    check_log_density_fn(log_density_fn)
    check_step_size(step_size)
    _check_refreshment(refreshment)

    def init(position: PyTree, rng_key: PRNGKeyArray | None = None) -> UnderdampedLangevinState:
        check_position(position)
        if rng_key is None:
            momentum = jax.tree.map(jnp.zeros_like, widened(position))
        else:
            momentum = normal_like(rng_key, widened(position))
        return UnderdampedLangevinState(
            position, momentum, *terms_and_gradient("log_density_fn", log_density_fn, position)
        )

    def step(
        rng_key: PRNGKeyArray, state: UnderdampedLangevinState
    ) -> tuple[UnderdampedLangevinState, UnderdampedLangevinInfo]:
        check_step(rng_key, state)
        key_noise, key_accept = jax.random.split(rng_key)
        noise = normal_like(key_noise, widened(state.position))
        state = state._replace(momentum=refresh_momentum(state.momentum, noise, refreshment))
        proposal = leapfrog_step(log_density_fn, state, step_size)
        log_ratio = underdamped_langevin_log_ratio(state, proposal)
        turned = state._replace(momentum=jax.tree.map(jnp.negative, state.momentum))
        return metropolis(key_accept, log_ratio, turned, proposal)

    return SamplingAlgorithm(init, step)


def refresh_momentum(momentum: PyTree, noise: PyTree, refreshment: ArrayLike) -> PyTree:
    """Return sqrt(1 - b) m + sqrt(b) xi, which leaves N(0, I) invariant."""

    def mix(m, xi):
        b = jnp.asarray(refreshment, xi.dtype)
        return (jnp.sqrt(1 - b) * m.astype(xi.dtype) + jnp.sqrt(b) * xi).astype(m.dtype)

    return jax.tree.map(mix, momentum, noise)


def leapfrog_step(
    log_density_fn: Callable[[PyTree], Array],
    state: UnderdampedLangevinState,
    step_size: ArrayLike,
) -> UnderdampedLangevinState:
    """Return the state after one leapfrog step of unit mass, its momentum not turned.

    The inverse is the same step between two turns of the momentum, and volume is kept.
    """

    def kick(m, g):
        return m + jnp.asarray(step_size, m.dtype) / 2 * g.astype(m.dtype)

    half = jax.tree.map(kick, state.momentum, state.gradient)

    def move(u, m):
        return (u.astype(m.dtype) + jnp.asarray(step_size, m.dtype) * m).astype(u.dtype)

    position = jax.tree.map(move, state.position, half)
    log_density, gradient = terms_and_gradient("log_density_fn", log_density_fn, position)
    momentum = jax.tree.map(kick, half, gradient)
    return UnderdampedLangevinState(position, momentum, log_density, gradient)


def underdamped_langevin_log_ratio(
    state: UnderdampedLangevinState, proposal: UnderdampedLangevinState
) -> Float[Array, ""]:
    """Return log pi(v) - log pi(u) + (|m|^2 - |m'|^2) / 2.

    The kinetic energies as <m - m', m + m'> / 2, which does not cancel in high dimensions.
    """
    difference = sum_of_differences(proposal.log_density, state.log_density)
    lost = jax.tree.map(jnp.subtract, state.momentum, proposal.momentum)
    total = jax.tree.map(jnp.add, state.momentum, proposal.momentum)
    return difference + inner_product(lost, total, difference.dtype) / 2


def _check_refreshment(refreshment: ArrayLike) -> None:
    check_one_number("refreshment", refreshment)
    if not is_concrete(refreshment):
        return
    for value in np.ravel(np.asarray(refreshment, np.float64)):
        if not 0 < value <= 1:
            raise ValueError(
                f"refreshment must lie in (0, 1], but is {value:g}; 1 draws a new momentum each "
                "step (MALA) and 0 would never draw one."
            )
