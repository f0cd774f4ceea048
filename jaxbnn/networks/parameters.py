"""Validation of parameters against the network that they are given with."""

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import PyTree

from jaxbnn.networks.network import Network, parameter_shapes
from jaxbnn.numerics import check_real
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
