"""Weights at the kept draws of a Langevin chain on reduced inputs; see `reduced_langevin`."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray, PyTree

from jaxbnn.numerics import check_count, check_real, is_concrete
from jaxbnn.numerics.arguments import check_function, check_key
from jaxbnn.numerics.products import product
from jaxbnn.wide.complement_pair import Pair, gram_schmidt
from jaxbnn.wide.input_reduction import InputReduction, check_kept
from jaxbnn.wide.reduced_langevin import coordinates


def fill_in_langevin(
    reduction: InputReduction,
    key: PRNGKeyArray,
    positions: PyTree,
    complement: Pair,
    steps: Int[Array | np.ndarray, " draw"],
    *,
    thinning: int,
    function: Callable[[PyTree], PyTree] = lambda params: params,
) -> PyTree:
    """Return function(params) of the full network at each kept draw of one Langevin chain.

    Successive draws have the joint law of the unreduced chain that started at a draw from the
    prior of the complement. The weights of a few draws are held at a time.

    Parameters
    ----------
    reduction
        The reduced network.
    key
        A key that the chain did not use.
    positions
        Kept positions of the reduced network in order, leaves (draw, ...): phi, or its weights.
    complement, steps
        Of the states that the positions were kept with, leaves (draw, ...).
    thinning
        As `reduced_langevin` was given it: a draw was kept every so many steps.
    function
        Of all parameters, for instance predictions.

    Raises
    ------
    ValueError
        Draws that were kept at other steps, of another network or in other numbers, or none.

    Examples
    --------
    >>> import functools
    >>> from jaxbnn import wide
    >>> from jaxbnn.networks import init, mlp
    >>> network = mlp((50, 8, 1), "tanh", parametrisation="ntk")
    >>> reduction = wide.reduce_inputs(network, jax.random.normal(jax.random.key(0), (3, 50)))
    >>> posterior = wide.reparametrise(reduction.network, reduction.x, jnp.zeros(3), 0.1)
    >>> kernel = wide.reduced_langevin(
    ...     posterior.log_density_terms, 0.1, 1.0, reduction, thinning=5
    ... )
    >>> def five_steps(state, key):
    ...     state, _ = jax.lax.scan(lambda s, k: kernel.step(k, s), state, jax.random.split(key, 5))
    ...     return state, (state.position, state.complement, state.steps)
    >>> state = kernel.init(init(jax.random.key(1), reduction.network), jax.random.key(2))
    >>> _, chain = jax.lax.scan(five_steps, state, jax.random.split(jax.random.key(3), 4))
    >>> fill_in = jax.jit(functools.partial(fill_in_langevin, reduction, thinning=5))
    >>> phi = fill_in(jax.random.key(4), *chain)
    >>> phi[0]["w"].shape
    (4, 50, 8)
    """
    check_key("key", key)
    _check_steps(steps, thinning)
    check_kept(reduction.network, positions, len(steps), "steps")
    check_function("function", function, "give params -> value")
    (p, _), h = reduction.basis.shape, reduction.width
    dtype, dimension = reduction.basis.dtype, reduction.dimension
    num_axes, num_beyond = complement.along.shape[1], complement.rest.shape[1]

    def fresh_axes(key, axes, num):
        """Draw orthonormal axes in the complement, uniform among those orthogonal to `axes`."""
        for key_axis in jax.random.split(key, num):
            axis = jax.random.normal(key_axis, (p, h), dtype)
            # Gram-Schmidt twice: once leaves a rounding error along the old axes that, relative
            # to a short remainder, is not small.
            for _ in range(2):
                axis -= product(reduction.basis, product(reduction.basis.T, axis))
                axis -= _combine(jnp.sum(axes * axis[None], axis=(1, 2)), axes)
            axis /= jnp.sqrt(jnp.sum(jnp.square(axis)))
            axes = jnp.concatenate([axes, axis[None]])
        return axes

    def step(axes, argument):
        index, position, pair = argument
        axes = fresh_axes(jax.random.fold_in(key, index), axes, num_beyond)
        z, q = coordinates(pair)
        params = function(reduction.restore(position, _combine(z, axes)))
        if dimension > 2:
            # The plane that the kernel goes on from, on the same axes.
            frame, _ = gram_schmidt(z, q)
            axes = jnp.stack([_combine(column, axes) for column in frame.T])
        return axes, params

    num_draws = complement.along.shape[0]
    # The draws use the indices below num_draws.
    key_start = jax.random.fold_in(key, jnp.uint32(num_draws))
    axes = fresh_axes(key_start, jnp.zeros((0, p, h), dtype), num_axes)
    indices = jnp.arange(num_draws, dtype=jnp.uint32)
    return jax.lax.scan(step, axes, (indices, positions, complement))[1]


def _check_steps(steps: Int[Array | np.ndarray, " draw"], thinning: int) -> None:
    check_count("thinning", thinning)
    check_real("steps", steps)
    if np.ndim(steps) != 1:
        raise ValueError(
            f"steps must have one entry a draw, but has the shape {np.shape(steps)}; give the "
            "field steps of the run's draws."
        )
    if not is_concrete(steps):
        return
    steps = np.asarray(steps)
    if (steps % thinning != 0).any() or (np.diff(steps) != thinning).any():
        raise ValueError(
            f"draws to fill in must be kept every {thinning} steps from the chain's start, but "
            f"were kept at steps {steps[:4].tolist()}...; give kernel and run the same thinning, "
            "and let num_warmup be a multiple of it."
        )


def _combine(weights: Float[Array, " axes"], axes: Float[Array, "axes p h"]) -> Array:
    return jnp.tensordot(weights, axes, 1, precision="highest")
