"""Redraw the incoming weights of one hidden unit after the other from their prior.

    v_u ~ prior of what comes into unit u, accept with probability min(1, L(v) / L(w)).

The prior cancels. A unit that is saturated on all data, or off, leaves the likelihood (almost)
alone: its incoming weights have their wide prior for a posterior, where those of a unit in use
are narrow. A sampler with one metric takes small steps in both, and takes long to wake such a unit
up; this move does it at once. Put it in a `cycle` with any kernel, beside `symmetry_moves`.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from blackjax.base import SamplingAlgorithm
from jaxtyping import Array, Bool, Float, PyTree

from jaxbnn.kernels.arguments import check_log_likelihood_fn, check_network, check_step
from jaxbnn.kernels.metropolis import metropolis
from jaxbnn.kernels.refresh import auxiliary_fields
from jaxbnn.kernels.symmetry_priors import elements_are_independent
from jaxbnn.kernels.trees import as_terms, check_position
from jaxbnn.networks import Network
from jaxbnn.networks.symmetries import Units, hidden_units
from jaxbnn.networks.validation import check_params
from jaxbnn.numerics import sum_of_differences
from jaxbnn.targets import expand_prior
from jaxbnn.targets.prior_trees import is_distribution, sample_prior


@auxiliary_fields()
class UnitRedrawsState(NamedTuple):
    """State of `redraw_units`.

    Attributes
    ----------
    position
        The parameters.
    log_likelihood
        There: one term per datum, or a scalar.
    """

    position: PyTree
    log_likelihood: Float[Array, "..."]


class UnitRedrawsInfo(NamedTuple):
    """What happened in one step, in which every unit has had its turn.

    Attributes
    ----------
    acceptance_rate
        Mean acceptance probability over the units. It is small where most units are in use, and
        no step size makes it larger.
    is_accepted
        Whether any unit was redrawn.
    is_divergent
        Whether the log ratio of any unit was NaN.
    """

    acceptance_rate: Float[Array, ""]
    is_accepted: Bool[Array, ""]
    is_divergent: Bool[Array, ""]


def redraw_units(
    network: Network, prior: PyTree, log_likelihood_fn: Callable[[PyTree], Array]
) -> SamplingAlgorithm:
    """Return a kernel that proposes new incoming weights for each hidden unit, from the prior.

    One step goes through all hidden units in turn and costs one likelihood each, no gradient.

    Parameters
    ----------
    network
        The network. Its hidden units are those that are not tied to the input or the output.
    prior
        That of the target: a PyTree of NumPyro distributions shaped like the parameters, or a
        prefix of that. Its hyper-parameters may be traced. Where the whole posterior is tempered,
        the prior of the target is another one, raised to the power.
    log_likelihood_fn
        position -> log-likelihood terms, one per datum, or a scalar; tempered, where the target
        is (`posterior.tempered(t).log_likelihood`).

    Returns
    -------
    `init(position, rng_key=None)` and `step(rng_key, state)` with `UnitRedrawsState` and
    `UnitRedrawsInfo`.

    Raises
    ------
    ValueError
        If the network has no hidden units, the prior is not shaped like the parameters, or it
        joins the elements of an array with incoming weights, so that no unit has its own prior.

    Examples
    --------
    >>> import numpyro.distributions as dist
    >>> from jaxbnn.networks import init, mlp
    >>> network, x = mlp((1, 3, 1), "sigmoid"), jnp.ones((5, 1))
    >>> log_likelihood = lambda params: -jnp.sum(network.apply(params, x) ** 2, axis=1)
    >>> kernel = redraw_units(network, dist.Normal(0.0, 1.0), log_likelihood)
    >>> state = kernel.init(init(jax.random.key(0), network))
    >>> state, info = jax.jit(kernel.step)(jax.random.key(1), state)
    >>> state.log_likelihood.shape
    (5,)
    """
    check_network("redraw_units", network)
    check_log_likelihood_fn(log_likelihood_fn)
    prior = expand_prior(prior, network)
    groups = hidden_units(network)
    if not groups:
        raise ValueError(
            "redraw_units needs hidden units, but this network has none that are free of its "
            "input and output; leave it out."
        )
    leaves_of_prior = jax.tree.leaves(prior, is_leaf=is_distribution)
    for units in groups:
        if not all(elements_are_independent(leaves_of_prior[axis.leaf]) for axis in units.incoming):
            raise ValueError(
                f"the prior joins the incoming weights of the units of {units.name}, so that none "
                "has a prior of its own; leave redraw_units out."
            )

    def init(position, rng_key=None):
        check_position(position)
        check_params(network, position)
        return UnitRedrawsState(
            position, as_terms("log_likelihood_fn", log_likelihood_fn(position))
        )

    def step(rng_key, state):
        check_step(rng_key, state)
        key_draw, key_accept = jax.random.split(rng_key)
        # One draw of everything serves all units: each takes what is its own.
        fresh = sample_prior(key_draw, prior)
        leaves = zip(jax.tree.leaves(fresh), jax.tree.leaves(state.position), strict=True)
        fresh = [new.astype(old.dtype) for new, old in leaves]
        rates, accepted, divergent = [], [], []
        for group, units in enumerate(groups):
            key_group = jax.random.fold_in(key_accept, group)

            def redraw_one(state, index, units=units, key_group=key_group):
                key = jax.random.fold_in(key_group, index)
                proposal = init(_with_unit(state.position, fresh, units, index))
                log_ratio = sum_of_differences(proposal.log_likelihood, state.log_likelihood)
                return metropolis(key, log_ratio, state, proposal, UnitRedrawsInfo)

            indices = jnp.arange(units.size, dtype=jnp.int32)
            state, infos = jax.lax.scan(redraw_one, state, indices, unroll=min(units.size, 4))
            rates.append(infos.acceptance_rate)
            accepted.append(infos.is_accepted)
            divergent.append(infos.is_divergent)
        rate = jnp.mean(jnp.concatenate(rates))
        any_of = lambda flags: jnp.any(jnp.concatenate(flags))  # noqa: E731
        return state, UnitRedrawsInfo(rate, any_of(accepted), any_of(divergent))

    return SamplingAlgorithm(init, step)


def _with_unit(position: PyTree, fresh: list, units: Units, index: Array) -> PyTree:
    """Return the position with what comes into one unit taken from `fresh`."""
    leaves, structure = jax.tree.flatten(position)
    for axis in units.incoming:
        leaf = leaves[axis.leaf]
        place = jnp.arange(leaf.shape[axis.axis], dtype=jnp.int32) % units.size
        mask = (place == index).reshape((-1,) + (1,) * (leaf.ndim - axis.axis - 1))
        mask = jnp.broadcast_to(mask, leaf.shape)
        leaves[axis.leaf] = jnp.where(mask, fresh[axis.leaf], leaf)
    return jax.tree.unflatten(structure, leaves)
