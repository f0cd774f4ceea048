"""Underdamped Langevin (and MALA) on reduced inputs.

The first-layer weights that the likelihood does not see are N(0, I) and independent of the rest in
the target, but the acceptance sees their leapfrog error: through |z|^2, where the momentum is drawn
anew each time (MALA), and through the inner products of z and its momentum q in general. Norms
alone would not do to fill in weights whose joint law in time is that of the unreduced chain. Held
are the coordinates of z and q in the plane of the last filled pair, and what is beyond this plane
on two axes of its own (see `complement_pair`). A filled pair is then the old plane's part plus, for
each of these two, a fresh uniform direction orthogonal to the plane.

Where nothing is to be filled in, the place of this plane is taken by the directions that
projections and further inputs see (see `complement`).
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from blackjax.base import SamplingAlgorithm
from jaxtyping import Array, ArrayLike, Float, Int, PRNGKeyArray, PyTree

from jaxbnn.kernels import underdamped_langevin
from jaxbnn.kernels.metropolis import metropolis
from jaxbnn.kernels.refresh import auxiliary_fields
from jaxbnn.kernels.trees import normal_like
from jaxbnn.kernels.underdamped_langevin import (
    UnderdampedLangevinInfo,
    UnderdampedLangevinState,
    leapfrog_step,
    refresh_momentum,
    underdamped_langevin_log_ratio,
)
from jaxbnn.numerics.arguments import check_type, short
from jaxbnn.wide.complement import carried_like, num_left, split_start_key
from jaxbnn.wide.complement_pair import (
    Pair,
    draw_pair,
    gram_schmidt,
    leapfrog_pair,
    refresh_pair,
    turn_back,
)
from jaxbnn.wide.input_reduction import InputReduction
from jaxbnn.wide.projections import WeightProjections


# Neither is a function of the position; `refresh` carries them over.
@auxiliary_fields("complement", "steps")
class ReducedLangevinState(NamedTuple):
    """The state of `underdamped_langevin` on the reduced network, and what is held beside it.

    Attributes
    ----------
    inner
        `UnderdampedLangevinState`.
    complement
        The complement's position and momentum, a `Pair`.
    steps
        Taken so far.
    """

    inner: UnderdampedLangevinState
    complement: Pair
    steps: Int[Array, ""]

    @property
    def position(self) -> PyTree:
        """The reduced network's phi."""
        return self.inner.position

    @property
    def carried(self) -> PyTree:
        """The carried coordinates of the complement."""
        return self.complement.along


def reduced_langevin(
    log_density_fn: Callable[[PyTree], Array],
    step_size: ArrayLike,
    refreshment: ArrayLike,
    reduction: InputReduction,
    projections: WeightProjections | None = None,
    *,
    thinning: int | None = None,
) -> SamplingAlgorithm:
    """Underdamped Langevin on reduced inputs, equal in law to that on full ones.

    Parameters
    ----------
    log_density_fn
        Log density of phi of the reduced network, `posterior.log_density_terms`; the complement
        is N(0, I) and independent of phi.
    step_size, refreshment
        eps and b, as in `underdamped_langevin`; b = 1 is MALA.
    reduction
        The reduced network.
    projections
        Of `weight_projections`, where they are wanted.
    thinning
        None carries the coordinates that projections and further inputs see, `state.carried`.
        A number prepares for `fill_in_langevin` at every so many steps instead: keep
        `state.complement` and `state.steps` of these draws.

    Returns
    -------
    The kernel, with `ReducedLangevinState` and `UnderdampedLangevinInfo`. Its `init` draws
    complement and momentum from N(0, I) and needs a key.

    Raises
    ------
    ValueError
        step_size not positive; refreshment outside (0, 1]; thinning below 1, or projections
        beside it; no key at the start.

    Examples
    --------
    >>> from jaxbnn import wide
    >>> from jaxbnn.networks import init, mlp
    >>> network = mlp((50, 8, 1), "tanh", parametrisation="ntk")
    >>> x, x_test = jax.random.normal(jax.random.key(0), (2, 3, 50))
    >>> reduction = wide.reduce_inputs(network, x, also=x_test)
    >>> posterior = wide.reparametrise(reduction.network, reduction.x, jnp.zeros(3), 0.1)
    >>> kernel = reduced_langevin(posterior.log_density_terms, 0.1, 1.0, reduction)
    >>> start = init(jax.random.key(1), reduction.network)
    >>> state = kernel.init(start, jax.random.key(2))
    >>> state, info = jax.jit(kernel.step)(jax.random.key(3), state)
    >>> weights = posterior.to_weights(state.position)
    >>> reduction.outputs(weights, state.carried.inputs).shape  # at x_test
    (3, 1)
    """
    check_type("reduction", reduction, InputReduction, "write reduce_inputs(network, x)")
    if projections is not None:
        advice = "write weight_projections(reduction, key)"
        check_type("projections", projections, WeightProjections, advice)
    inner_kernel = underdamped_langevin(log_density_fn, step_size, refreshment)
    if thinning is not None:
        _check_thinning(thinning, projections)
    dtype = reduction.basis.dtype
    if thinning is None:
        along_like: Any = carried_like(reduction, projections)
    else:
        along_like = jax.ShapeDtypeStruct((min(reduction.dimension, 2),), dtype)
    num_rest = num_left(reduction, along_like)

    def init(position: PyTree, rng_key: PRNGKeyArray | None = None) -> ReducedLangevinState:
        key_inner, key_complement = split_start_key(rng_key)
        complement = draw_pair(key_complement, along_like, num_rest, dtype)
        return ReducedLangevinState(
            inner_kernel.init(position, key_inner), complement, jnp.zeros((), jnp.int32)
        )

    def step(
        rng_key: PRNGKeyArray, state: ReducedLangevinState
    ) -> tuple[ReducedLangevinState, UnderdampedLangevinInfo]:
        key_noise, key_complement, key_accept = jax.random.split(rng_key, 3)
        inner, pair = state.inner, state.complement
        if thinning is not None and num_rest > 0:
            is_filled = state.steps % thinning == 0
            pair = jax.tree.map(
                lambda new, old: jnp.where(is_filled, new, old), to_own_plane(pair), pair
            )
        noise = normal_like(key_noise, inner.position)
        inner = inner._replace(momentum=refresh_momentum(inner.momentum, noise, refreshment))
        pair = refresh_pair(key_complement, pair, refreshment, num_rest)

        proposal = leapfrog_step(log_density_fn, inner, step_size)
        proposed_pair, gain = leapfrog_pair(pair, step_size)
        log_ratio = underdamped_langevin_log_ratio(inner, proposal)
        turned = inner._replace(momentum=jax.tree.map(jnp.negative, inner.momentum))
        (inner, pair), info = metropolis(
            key_accept,
            log_ratio + gain.astype(log_ratio.dtype),
            (turned, turn_back(pair)),
            (proposal, proposed_pair),
        )
        return ReducedLangevinState(inner, pair, state.steps + 1), info

    return SamplingAlgorithm(init, step)


def to_own_plane(pair: Pair) -> Pair:
    """Return the same pair on axes in its own plane, with nothing beyond it."""
    frame = gram_schmidt(*coordinates(pair))
    position, momentum = frame[1].T
    nothing = jnp.zeros_like(pair.rest)
    return Pair(position, momentum, nothing, nothing)


def coordinates(pair: Pair) -> tuple[Float[Array, " axes"], Float[Array, " axes"]]:
    """Return position and momentum on the axes of the last filled pair and those beyond."""
    return (
        jnp.concatenate([pair.along, pair.rest]),
        jnp.concatenate([pair.momentum_along, pair.momentum_rest]),
    )


def _check_thinning(thinning: Any, projections: WeightProjections | None) -> None:
    if not isinstance(thinning, int | np.integer) or thinning < 1:
        raise ValueError(
            f"thinning must be a whole number of steps, 1 or more, not {short(thinning)}."
        )
    if projections is not None:
        raise ValueError(
            "projections are carried where nothing is filled in; leave out thinning, or take "
            "projections of the weights that fill_in_langevin gives."
        )
