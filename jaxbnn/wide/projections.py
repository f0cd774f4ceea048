"""Projections of all weights on fixed random directions, from a chain on reduced inputs.

For a direction d, with D (p, h) its part in the first layer's weights V, and V = Q U + Q2 U2 + Z
with Q, U of the reduction and Q2, U2 of its further inputs,

    <d, theta> = <Q^T D, U> + <Q2^T D, U2> + <D, Z> + the other layers' part.

Z is standard normal in the rest of the complement, of dimension m. What k directions see of it is
<D_i, Z> = (B w)_i with w standard normal in min(k, m) dimensions and B B^T the Gram matrix of
the parts of the D_i in the rest: a root of it is all that is needed of them. Only k numbers for
each of the chain's own are held, and none for each weight.
"""

import math
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from jaxbnn.networks import Dense, Network, num_parameters, parameter_shapes
from jaxbnn.numerics import check_count, standard_normal
from jaxbnn.numerics.arguments import check_key, check_type
from jaxbnn.numerics.products import product
from jaxbnn.wide.input_reduction import InputReduction

# Units whose directions are in memory at once.
_BLOCK = 16


@jax.tree_util.register_dataclass
@dataclass(frozen=True, eq=False)
class WeightProjections:
    """k directions in the space of a network's weights, as a chain on reduced inputs sees them.

    Made by `weight_projections`; a PyTree, to be passed as data rather than closed over.

    Attributes
    ----------
    reduced
        Like the reduced network's parameters, each leaf with a leading axis of k.
    inputs
        Q2^T D, (k, s, h).
    root
        B, (k, j).
    """

    reduced: Any
    inputs: Any
    root: Any

    def of(self, params: PyTree, carried: Any) -> Float[Array, " k"]:
        """Return the k projections of all weights.

        Parameters
        ----------
        params
            The reduced network's weights: of a chain on phi, `posterior.to_weights(position)`.
        carried
            `state.carried` of `carry_complement` or `reduced_langevin`.
        """
        seen = jax.tree.map(_project, self.reduced, params)
        hidden = _project(self.inputs, carried.inputs) + _project(self.root, carried.weights)
        return sum(jax.tree.leaves(seen), hidden)


def weight_projections(
    reduction: InputReduction, key: PRNGKeyArray, num: int = 100
) -> WeightProjections:
    """Return random directions in weight space, N(0, 1) / sqrt(P) with P the number of weights.

    The directions depend on the full network and the key alone: they are those of
    `weight_directions`, the same for all samplers. They are drawn a few units at a time.

    Parameters
    ----------
    reduction
        Of `reduce_inputs`.
    key
        Of the directions.
    num
        How many.

    Returns
    -------
    `WeightProjections`, with `of(params, carried)`; give it to `carry_complement` or
    `reduced_langevin` too.

    Raises
    ------
    ValueError
        num < 1.
    TypeError
        num that is no whole number.

    Examples
    --------
    >>> from jaxbnn import pcn, wide
    >>> from jaxbnn.networks import init, mlp
    >>> network = mlp((50, 8, 1), "tanh", parametrisation="ntk")
    >>> x = jax.random.normal(jax.random.key(0), (3, 50))
    >>> reduction = wide.reduce_inputs(network, x)
    >>> projections = weight_projections(reduction, jax.random.key(1), num=10)
    >>> posterior = wide.reparametrise(reduction.network, reduction.x, jnp.zeros(3), 0.1)
    >>> kernel = wide.carry_complement(
    ...     pcn(posterior.log_likelihood, 0.5), 0.5, reduction, projections
    ... )
    >>> start = init(jax.random.key(2), reduction.network)
    >>> state = kernel.init(start, jax.random.key(3))
    >>> state, info = jax.jit(kernel.step)(jax.random.key(4), state)
    >>> projections.of(posterior.to_weights(state.position), state.carried).shape
    (10,)
    """
    check_type("reduction", reduction, InputReduction, "write reduce_inputs(network, x)")
    check_key("key", key)
    check_count("num", num)
    return _weight_projections(reduction, key, num)


@jax.jit(static_argnames="num")
def _weight_projections(reduction, key, num):
    key_first, key_others = jax.random.split(key)
    dtype, (p, r) = reduction.basis.dtype, reduction.basis.shape
    s, h = reduction.also_basis.shape[1], reduction.width
    size, scale = math.gcd(h, _BLOCK), 1 / math.sqrt(num_parameters(reduction.full))

    def project(block, basis):
        return jnp.einsum("ukp,pr->ukr", block, basis, precision="highest")

    def add_block(i, total):
        reduced, inputs, gram = total
        start = i * size
        block = scale * _first_layer(key_first, start + jnp.arange(size), num, p, dtype)
        seen, also = project(block, reduction.basis), project(block, reduction.also_basis)
        rest = block - project(seen, reduction.basis.T) - project(also, reduction.also_basis.T)
        return (
            jax.lax.dynamic_update_slice(reduced, jnp.moveaxis(seen, 0, 2), (0, 0, start)),
            jax.lax.dynamic_update_slice(inputs, jnp.moveaxis(also, 0, 2), (0, 0, start)),
            gram + jnp.einsum("ukp,ulp->kl", rest, rest, precision="highest"),
        )

    empty = [jnp.zeros(shape, dtype) for shape in ((num, r, h), (num, s, h), (num, num))]
    reduced, inputs, gram = jax.lax.fori_loop(0, h // size, add_block, tuple(empty))
    values, vectors = jnp.linalg.eigh(gram)
    # Eigenvalues ascend; with more directions than dimensions the first ones are zero.
    first = num - min(num, (p - r - s) * h)
    root = vectors[:, first:] * jnp.sqrt(jnp.maximum(values[first:], 0))[None]
    others = _other_layers(key_others, reduction.full, num, dtype)
    others = jax.tree.map(lambda leaf: scale * leaf, others)
    return WeightProjections(({"w": reduced}, *others), inputs, root)


def weight_directions(
    network: Network, key: PRNGKeyArray, num: int = 100, dtype: Any = float
) -> PyTree:
    """Return the directions of `weight_projections` themselves, for a chain on full inputs.

    Leaves like the network's parameters with a leading axis of `num`: as many numbers as `num`
    networks have.

    Parameters
    ----------
    network
        The full network, its first layer a Dense.
    key, num
        As in `weight_projections`.
    dtype
        Of the directions.

    Raises
    ------
    ValueError
        num < 1.
    TypeError
        num that is no whole number.

    Examples
    --------
    >>> from jaxbnn.networks import mlp
    >>> directions = weight_directions(mlp((5, 8, 1)), jax.random.key(0), num=10)
    >>> directions[0]["w"].shape
    (10, 5, 8)
    """
    check_key("key", key)
    check_count("num", num)
    key_first, key_others = jax.random.split(key)
    dtype = jnp.zeros((), dtype).dtype
    first = network.layers[0]
    assert isinstance(first, Dense)
    p = network.input_shape[0] + first.bias
    columns = _first_layer(key_first, jnp.arange(first.features), num, p, dtype)
    v = jnp.moveaxis(columns, 0, 2)
    layer = {"w": v[:, :-1], "b": v[:, -1]} if first.bias else {"w": v}
    directions = (layer, *_other_layers(key_others, network, num, dtype))
    scale = 1 / math.sqrt(num_parameters(network))
    return jax.tree.map(lambda leaf: scale * leaf, directions)


def _first_layer(key, units, num, p, dtype) -> Float[Array, "u k p"]:
    """Return D for some units: a key a unit, so that blocks may be of any size."""

    def draw(unit):
        unit_key = jax.random.fold_in(key, unit.astype(jnp.uint32))
        return standard_normal(unit_key, (num, p), dtype)

    return jax.vmap(draw)(units)


def _other_layers(key, network, num, dtype) -> tuple:
    leaves, structure = jax.tree.flatten(parameter_shapes(network, dtype)[1:])
    keys = jax.random.split(key, len(leaves))
    drawn = [
        standard_normal(k, (num, *leaf.shape), dtype) for k, leaf in zip(keys, leaves, strict=True)
    ]
    return jax.tree.unflatten(structure, drawn)


def _project(directions: Array, value: Array) -> Float[Array, " k"]:
    flat = directions.reshape(directions.shape[0], value.size)
    return product(flat, value.ravel())
