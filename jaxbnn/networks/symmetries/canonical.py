"""One representative of all parameters that give the same output."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from jaxbnn.networks.network import Network, check_network
from jaxbnn.networks.symmetries.groups import Units, weight_symmetries
from jaxbnn.networks.symmetries.transformations import (
    flip_units,
    permute_units,
    scale_units,
    shift_classes,
    sum_per_unit,
)
from jaxbnn.networks.validation import check_params
from jaxbnn.numerics import check_floating
from jaxbnn.numerics.arguments import check_flag


def canonicalize(
    network: Network, params: PyTree, *, scalings: bool = True, softmax: bool = False
) -> PyTree:
    """Return the representative of the parameters among all that its symmetries connect.

    Layer by layer from the input: units that can be scaled get incoming weights of norm 1;
    units that can be flipped, a non-negative sum of incoming weights; units that can be
    permuted are sorted by that sum. Units of one incoming weight that were scaled have sums of 1 or
    -1: they are sorted by their biases behind these, and without biases have no order. Otherwise
    parameters that differ by symmetries get the same representative up to rounding, and its
    outputs are those of the parameters.

    Parameters
    ----------
    network
        The network; static under `jax.jit`.
    params
        Parameters; draws go through `jax.vmap`.
    scalings
        Whether to remove the units' scales. A prior gives weight to these scales, so leave them
        in when the draws are to be summarised as a posterior of weights.
    softmax
        Whether to remove the mean over classes of the read-out, which only a softmax ignores.

    Returns
    -------
    Parameters of the same shapes.

    Raises
    ------
    ValueError
        If softmax is asked for and the network does not end in a Dense of two or more features; if
        params do not fit the network.

    Examples
    --------
    >>> from jaxbnn.networks import init, mlp
    >>> network = mlp((2, 3, 1), "tanh")
    >>> canonical = canonicalize(network, init(jax.random.key(0), network))
    >>> sums = canonical[0]["w"].sum(axis=0)
    >>> bool((sums >= 0).all() and (jnp.diff(sums) >= 0).all())
    True
    """
    check_network(network, "canonicalize(network, params)")
    check_flag("scalings", scalings)
    check_flag("softmax", softmax)
    check_params(network, params)
    for leaf in jax.tree.leaves(params):
        check_floating("the position", leaf)
    found = weight_symmetries(network)
    if softmax and found.class_shift is None:
        raise ValueError(
            "softmax=True needs a network that ends in a Dense with two or more features; leave "
            "it out for this network."
        )
    moves = [(units, _normalise) for units in found.scalings] if scalings else []
    moves += [(units, _make_positive) for units in found.flips]
    scaled = {_layer(units) for units in found.scalings} if scalings else set()
    moves += [
        (units, _sort_signs if _layer(units) in scaled else _sort) for units in found.permutations
    ]
    # The input's side first: what a layer's units are judged by is then settled, for it depends
    # on earlier layers only. Within a layer: scale, sign, order (the sort is stable).
    for units, move in sorted(moves, key=lambda pair: _layer(pair[0])):
        params = move(params, units)
    if softmax and (shift := found.class_shift) is not None:
        leaves = jax.tree.leaves(params)
        means = [jnp.mean(leaves[shift.weights], axis=-1)]
        if shift.bias is not None:
            means.append(jnp.mean(leaves[shift.bias], keepdims=True))
        params, _ = shift_classes(params, shift, -jnp.concatenate(means))
    return params


def _normalise(params: PyTree, units: Units) -> PyTree:
    leaves = jax.tree.leaves(params)
    first = units.incoming[0]
    norms = jnp.sqrt(sum_per_unit(jnp.square(leaves[first.leaf]), first, units.size))
    return scale_units(params, units, 1 / jnp.where(norms > 0, norms, 1))[0]


def _make_positive(params: PyTree, units: Units) -> PyTree:
    sums = _incoming_sums(params, units)
    return flip_units(params, units, jnp.where(sums < 0, -1, 1).astype(sums.dtype))[0]


def _sort(params: PyTree, units: Units) -> PyTree:
    return permute_units(params, units, jnp.argsort(_incoming_sums(params, units)))[0]


def _sort_signs(params: PyTree, units: Units) -> PyTree:
    """Sort units that were scaled: by sign and bias where they have one incoming weight."""
    leaves = jax.tree.leaves(params)
    if leaves[units.incoming[0].leaf].size > units.size:
        return _sort(params, units)
    # Of +-1 only the sign is no rounding.
    signs = jnp.sign(_incoming_sums(params, units))
    others = [sum_per_unit(leaves[axis.leaf], axis, units.size) for axis in units.incoming[1:]]
    return permute_units(params, units, jnp.lexsort((*others[::-1], signs)))[0]


def _incoming_sums(params: PyTree, units: Units) -> Float[Array, " units"]:
    first = units.incoming[0]
    return sum_per_unit(jax.tree.leaves(params)[first.leaf], first, units.size)


def _layer(units: Units) -> int:
    return units.incoming[0].leaf
