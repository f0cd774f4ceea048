"""Transformations of weights that leave the output as it is, with their log |Jacobian|.

Each takes the whole parameters and returns them transformed. They are pure, and work under `jit`
and `vmap`.
"""

import math

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PyTree

from jaxbnn.networks.symmetries.groups import ClassShift, Units
from jaxbnn.networks.symmetries.segments import Axis
from jaxbnn.numerics import check_floating

Transformed = tuple[PyTree, Float[Array, ""]]


def permute_units(params: PyTree, units: Units, permutation: Int[Array, " units"]) -> Transformed:
    """Return the parameters with unit i in the place of which unit permutation[i] was before.

    Parameters
    ----------
    params
        Parameters of the network.
    units
        One of `weight_symmetries(network).permutations`.
    permutation
        Each of 0..size-1 once.

    Returns
    -------
    The parameters, and log |Jacobian| = 0.

    Examples
    --------
    >>> from jaxbnn.networks import init, mlp
    >>> from jaxbnn.networks.symmetries import weight_symmetries
    >>> network = mlp((2, 3, 1))
    >>> (units,) = weight_symmetries(network).permutations
    >>> params = init(jax.random.key(0), network)
    >>> permuted, _ = permute_units(params, units, jnp.array([2, 0, 1]))
    >>> bool((permuted[0]["w"][:, 0] == params[0]["w"][:, 2]).all())
    True
    """
    leaves, structure = jax.tree.flatten(params)
    for axis in units.incoming + units.outgoing:
        starts = units.size * jnp.arange(axis.blocks, dtype=permutation.dtype)
        entries = (starts[:, None] + permutation[None, :]).ravel()
        # In bounds by construction; the default mode would check every index for NaN filling.
        leaves[axis.leaf] = jnp.take(leaves[axis.leaf], entries, axis=axis.axis, mode="clip")
    return jax.tree.unflatten(structure, leaves), jnp.zeros((), leaves[0].dtype)


def flip_units(params: PyTree, units: Units, signs: Float[Array, " units"]) -> Transformed:
    """Return the parameters with the sign of the units' incoming and outgoing weights changed.

    Where a unit reflects, f(-z) = 1 - f(z), the next bias absorbs it: for every flipped unit u it
    grows by (weight scale / bias scale) sum w[u, :], summed over the positions that the unit is
    read at. In the ntk parametrisation the weight scale includes 1 / sqrt(d_in).

    Parameters
    ----------
    params
        Parameters of the network.
    units
        One of `weight_symmetries(network).flips`.
    signs
        -1 for the units to flip, 1 for the others.

    Returns
    -------
    The parameters, and log |Jacobian| = 0: signs and a shear.

    Examples
    --------
    >>> from jaxbnn.networks import apply, init, mlp
    >>> from jaxbnn.networks.symmetries import weight_symmetries
    >>> network = mlp((2, 3, 1), "sigmoid")
    >>> (units,) = weight_symmetries(network).flips
    >>> params, x = init(jax.random.key(0), network), jnp.ones((1, 2))
    >>> flipped, _ = flip_units(params, units, jnp.array([-1.0, 1.0, -1.0]))
    >>> bool(jnp.allclose(apply(network, flipped, x), apply(network, params, x), atol=1e-5))
    True
    """
    leaves, structure = jax.tree.flatten(params)
    flipped = (1 - signs) / 2
    # First the bias, from the weights as they were: it may itself belong to flipped units.
    for absorption in units.absorptions:
        rows = outgoing_sums(leaves, units, absorption.weights)
        growth = jnp.dot(flipped, rows, precision="highest")
        bias = leaves[absorption.bias]
        leaves[absorption.bias] = bias + (absorption.factor * growth).astype(bias.dtype)
    for axis in units.incoming + units.outgoing:
        leaves[axis.leaf] = leaves[axis.leaf] * _along(leaves[axis.leaf], axis, signs)
    return jax.tree.unflatten(structure, leaves), jnp.zeros((), leaves[0].dtype)


def scale_units(params: PyTree, units: Units, factors: Float[Array, " units"]) -> Transformed:
    """Return the parameters with incoming weights times, outgoing ones over, a positive factor.

    Parameters
    ----------
    params
        Parameters of the network.
    units
        One of `weight_symmetries(network).scalings`.
    factors
        Positive.

    Returns
    -------
    The parameters, and log |Jacobian| = (incoming - outgoing parameters of a unit) * sum of the
    log factors.

    Examples
    --------
    >>> from jaxbnn.networks import apply, init, mlp
    >>> from jaxbnn.networks.symmetries import weight_symmetries
    >>> network = mlp((2, 3, 1), "relu")
    >>> (units,) = weight_symmetries(network).scalings
    >>> params, x = init(jax.random.key(0), network), jnp.ones((1, 2))
    >>> scaled, log_jacobian = scale_units(params, units, jnp.array([2.0, 1.0, 4.0]))
    >>> bool(jnp.allclose(apply(network, scaled, x), apply(network, params, x), atol=1e-5))
    True
    >>> round(float(log_jacobian / jnp.log(8.0)), 4)
    2.0
    """
    leaves, structure = jax.tree.flatten(params)
    log_jacobian = jacobian_exponent(leaves, units) * jnp.sum(jnp.log(factors))
    for axis in units.incoming:
        leaves[axis.leaf] = leaves[axis.leaf] * _along(leaves[axis.leaf], axis, factors)
    for axis in units.outgoing:
        leaves[axis.leaf] = leaves[axis.leaf] / _along(leaves[axis.leaf], axis, factors)
    return jax.tree.unflatten(structure, leaves), log_jacobian


def shift_classes(params: PyTree, shift: ClassShift, amounts: Float[Array, " rows"]) -> Transformed:
    """Return the parameters with a constant added to all classes of the read-out.

    The outputs of a datum all grow by the same number, which a softmax does not see.

    Parameters
    ----------
    params
        Parameters of the network.
    shift
        `weight_symmetries(network).class_shift`.
    amounts
        One constant for each row of the read-out's weights, then one for its bias.

    Returns
    -------
    The parameters, and log |Jacobian| = 0.

    Examples
    --------
    >>> from jaxbnn.networks import init, mlp
    >>> from jaxbnn.networks.symmetries import weight_symmetries
    >>> network = mlp((2, 3))
    >>> shift = weight_symmetries(network).class_shift
    >>> shifted, _ = shift_classes(init(jax.random.key(0), network), shift, jnp.ones(3))
    >>> shifted[0]["b"].tolist()
    [1.0, 1.0, 1.0]
    """
    leaves, structure = jax.tree.flatten(params)
    rows = leaves[shift.weights].shape[0]
    leaves[shift.weights] = leaves[shift.weights] + amounts[:rows, None]
    if shift.bias is not None:
        leaves[shift.bias] = leaves[shift.bias] + amounts[rows]
    return jax.tree.unflatten(structure, leaves), jnp.zeros((), leaves[0].dtype)


def sum_per_unit(leaf: Float[Array, "..."], axis: Axis, size: int) -> Float[Array, " units"]:
    """Return the sums of an array's entries that belong to each unit.

    Examples
    --------
    >>> sum_per_unit(jnp.arange(6.0).reshape(2, 3), Axis(0, 1), 3).tolist()
    [3.0, 5.0, 7.0]
    """
    split = leaf.reshape(*leaf.shape[: axis.axis], axis.blocks, size, *leaf.shape[axis.axis + 1 :])
    return jnp.sum(split, axis=tuple(i for i in range(split.ndim) if i != axis.axis + 1))


def outgoing_sums(leaves: list, units: Units, weights: Axis) -> Float[Array, "units features"]:
    """Return each unit's outgoing weights, summed over the positions at which it is read."""
    leaf = leaves[weights.leaf]
    return jnp.sum(leaf.reshape(-1, units.size, leaf.shape[-1]), axis=0)


def jacobian_exponent(leaves: list, units: Units) -> int:
    """Return the number of incoming minus that of outgoing parameters of a unit."""
    incoming, outgoing = (
        sum(math.prod(leaves[axis.leaf].shape) for axis in axes)
        for axes in (units.incoming, units.outgoing)
    )
    return (incoming - outgoing) // units.size


def _along(leaf: Array, axis: Axis, values: Array) -> Array:
    """Lay one value per unit along the units' axis of a parameter, ready to multiply."""
    check_floating("the position", leaf)  # whole numbers would cut the factors
    values = jnp.tile(values.astype(leaf.dtype), axis.blocks)
    return values.reshape((-1,) + (1,) * (leaf.ndim - axis.axis - 1))[(None,) * axis.axis]
