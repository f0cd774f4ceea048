"""What a prior says about moves along weight symmetries: ratios by unit, and what it breaks."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jaxtyping import Array, Float, Int

from jaxbnn.networks.symmetries import Units, sum_per_unit
from jaxbnn.numerics import is_concrete
from jaxbnn.targets.prior_density import log_prob_terms


def log_ratio_per_unit(priors: list, old: list, new: list, units: Units) -> Float[Array, " units"]:
    """Return log prior(new) - log prior(old), split by unit over what moves with each unit.

    Only where `factorises(priors, units)`.
    """
    return sum(
        sum_per_unit(
            log_prob_terms(priors[axis.leaf], new[axis.leaf])
            - log_prob_terms(priors[axis.leaf], old[axis.leaf]),
            axis,
            units.size,
        )
        for axis in units.incoming + units.outgoing
    )  # type: ignore[return-value]


def log_ratio_of_leaves(
    priors: list, old: list | dict, new: list | dict, leaves: list[int]
) -> Float[Array, ""]:
    """Return log prior(new) - log prior(old) over the parameter arrays in `leaves`."""
    return sum(
        jnp.sum(log_prob_terms(priors[leaf], new[leaf]) - log_prob_terms(priors[leaf], old[leaf]))
        for leaf in leaves
    )  # type: ignore[return-value]


def touched_leaves(units: Units) -> list[int]:
    """Return the indices of the parameter arrays that a transformation of the units changes."""
    leaves = [axis.leaf for axis in units.incoming + units.outgoing]
    return sorted({*leaves, *(absorption.bias for absorption in units.absorptions)})


def factorises(priors: list, units: Units) -> bool:
    """Whether the prior ratio is a product over units, but for the biases that absorb.

    It is not where a weight connects two of the units (tied by a Residual), where an absorbing
    bias belongs to them too, or where a prior joins the elements of an array.
    """
    leaves = [axis.leaf for axis in units.incoming + units.outgoing]
    own_biases = any(absorption.bias in leaves for absorption in units.absorptions)
    apart = len(set(leaves)) == len(leaves) and not own_biases
    return apart and all(elements_are_independent(priors[leaf]) for leaf in leaves)


def exchangeable_sets(priors: list, units: Units) -> Int[np.ndarray, " units"] | None:
    """Return for each unit the number of the set that it is exchangeable in under the prior.

    None where that cannot be seen: traced hyper-parameters that differ along an array, priors that
    join elements, units that have weights between them and elements with priors of their own.
    """
    leaves = [axis.leaf for axis in units.incoming + units.outgoing]
    columns = [np.zeros(units.size, int)]
    for axis in units.incoming + units.outgoing:
        base = base_distribution(priors[axis.leaf])
        if not elements_are_independent(priors[axis.leaf]):
            return None
        if np.prod(base.batch_shape, dtype=int) == 1:
            continue  # one distribution for the whole array
        values = jax.tree.leaves(base)
        if leaves.count(axis.leaf) > 1 or not _elementwise_parameters(base, values):
            return None
        shape = priors[axis.leaf].event_shape
        for value in values:
            padded = (1,) * (len(shape) - np.ndim(value)) + np.shape(value)
            if padded[axis.axis] == 1:
                continue
            if not is_concrete(value):
                return None
            full = np.broadcast_to(np.asarray(value).reshape(padded), shape)
            along = np.moveaxis(full, axis.axis, 0).reshape(axis.blocks, units.size, -1)
            rows = np.moveaxis(along, 1, 0).reshape(units.size, -1)
            columns.append(np.unique(rows, axis=0, return_inverse=True)[1].reshape(-1))
    return np.unique(np.stack(columns, -1), axis=0, return_inverse=True)[1].reshape(-1)


def allows_both_signs(prior: Any) -> bool:
    """Whether no element's support ends at zero or on one side of it."""
    support = prior.support
    while hasattr(support, "base_constraint"):
        support = support.base_constraint
    lower = getattr(support, "lower_bound", -np.inf)
    upper = getattr(support, "upper_bound", np.inf)
    if not is_concrete((lower, upper)):
        return True
    return bool(np.all(np.asarray(lower) < 0) and np.all(np.asarray(upper) > 0))


def base_distribution(prior: Any) -> Any:
    """Return what independent and expanded copies are copies of."""
    while isinstance(prior, dist.Independent | dist.ExpandedDistribution):
        prior = prior.base_dist
    return prior


def elements_are_independent(prior: Any) -> bool:
    """Whether no distribution joins elements of the array."""
    while isinstance(prior, dist.Independent):
        prior = prior.base_dist
    return prior.event_dim == 0


def _elementwise_parameters(base: Any, values: list) -> bool:
    """Whether the distribution's arrays are its parameters, one value per element each."""
    constraints_of = base.arg_constraints.values()
    if len(values) != len(constraints_of) or any(c.event_dim for c in constraints_of):
        return False
    return all(
        np.broadcast_shapes(np.shape(value), base.batch_shape) == tuple(base.batch_shape)
        for value in values
    )
