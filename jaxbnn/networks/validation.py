"""Validation of parameters and inputs against the network that they are given with."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PyTree

from jaxbnn.networks.network import Network, parameter_shapes
from jaxbnn.numerics import check_floating, check_real
from jaxbnn.numerics.arguments import short


def check_params(network: Network, params: PyTree) -> None:
    """Raise unless `params` are real arrays of the network's shapes. Costs nothing once traced."""
    shapes = parameter_shapes(network)
    structure: Any = jax.tree.structure(params)
    if structure != jax.tree.structure(shapes):
        raise ValueError(
            "params do not fit the network: they must be a tuple with one entry per layer, "
            f"{jax.tree.map(lambda leaf: leaf.shape, shapes)}, but have the structure "
            f"{short(structure, 200)}."
        )
    flat = jax.tree_util.tree_leaves_with_path(params)
    for (path, leaf), expected in zip(flat, jax.tree.leaves(shapes), strict=True):
        name = f"params{jax.tree_util.keystr(path)}"
        check_real(name, leaf)
        if jnp.shape(leaf) != expected.shape:
            raise ValueError(
                f"{name} must have shape {expected.shape} in this network, but has "
                f"{jnp.shape(leaf)}."
            )


def check_inputs(network: Network, x: Array | np.ndarray) -> Array:
    """Return x, (n, *input_shape), as an array; refuse other shapes and whole numbers."""
    check_real("x", x)
    x = jnp.asarray(x)
    if x.ndim == 0 or x.shape[1:] != network.input_shape:
        expected = ", ".join(("n", *map(str, network.input_shape)))
        single = "; write x[None] for one datum" if x.shape == network.input_shape else ""
        raise ValueError(f"x must have shape ({expected}), but has {x.shape}{single}.")
    check_floating("x", x)
    return x
