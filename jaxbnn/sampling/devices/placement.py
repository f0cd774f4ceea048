"""Where a run's arrays live on a mesh of devices: chains along one axis, data along another.

Independent chains need no communication. Where data are spread too, the compiler adds up what
each device has summed over its rows; arrays that are as long as the data (latents) are spread
like them. Keys do not depend on the mesh, so that every chain takes the same steps on any, each to
rounding.
"""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec
from jaxtyping import PyTree

CHAIN, DATA = "chain", "data"
Placer = Callable[[PyTree], PyTree]


class Placement(NamedTuple):
    """How arrays are put onto a mesh.

    `spread` takes arrays (chain, ...), `by_chain` too, but keeps each chain whole; `data` takes
    the data.
    """

    spread: Placer
    by_chain: Placer
    data: Placer


def placement(mesh: Mesh | None, num_chains: int, data: PyTree) -> Placement:
    """Return how arrays are put onto the mesh; None leaves them where they are."""
    if mesh is None:
        stay = lambda tree: tree  # noqa: E731
        return Placement(stay, stay, stay)
    mesh, rows = check_mesh(mesh, num_chains, data)
    return Placement(
        functools.partial(place_chains, mesh, rows),
        functools.partial(place_chains, mesh, 0),
        functools.partial(place_data, mesh, rows),
    )


def check_mesh(mesh: Mesh, num_chains: int, data: PyTree) -> tuple[Mesh, int]:
    """Return the mesh as the runner uses it, and the number of rows of the data, or raise.

    Parameters
    ----------
    mesh
        With an axis "chain", an axis "data", or both.
    num_chains
        A multiple of the devices along "chain".
    data
        What `sample` is given; the longest leading axis of its leaves is its number of rows, a
        multiple of the devices along "data".
    """
    sizes = dict(mesh.shape)
    if not sizes or not set(sizes) <= {CHAIN, DATA}:
        raise ValueError(
            f"mesh must have the axes 'chain' and 'data' or one of them, but has {list(sizes)}; "
            "make it by jax.make_mesh((4, 2), ('chain', 'data'))."
        )
    if num_chains % sizes.get(CHAIN, 1):
        raise ValueError(
            f"{num_chains} chains cannot be spread evenly over {sizes[CHAIN]} devices; run a "
            "multiple of them."
        )
    rows = max((np.shape(leaf)[0] for leaf in jax.tree.leaves(data) if np.ndim(leaf)), default=0)
    if sizes.get(DATA, 1) > 1 and (rows == 0 or rows % sizes[DATA]):
        raise ValueError(
            f"the data have {rows} rows, which cannot be spread evenly over {sizes[DATA]} devices; "
            "give data as an argument of sample, their rows a multiple of the devices."
        )
    # The compiler is to decide how sums are formed, whatever types the user's axes have.
    automatic = (AxisType.Auto,) * len(mesh.axis_names)
    return Mesh(mesh.devices, mesh.axis_names, axis_types=automatic), rows


def place_chains(mesh: Mesh, rows: int, tree: PyTree) -> PyTree:
    """Spread leaves (chain, ...) over the mesh; a last axis as long as the data, like these."""

    def spec(leaf: Any) -> PartitionSpec:
        has_rows = DATA in mesh.shape and rows > 1 and np.ndim(leaf) > 1
        is_long = has_rows and np.shape(leaf)[-1] == rows
        middle = (None,) * (np.ndim(leaf) - 1 - is_long)
        chain = CHAIN if CHAIN in mesh.shape else None
        return PartitionSpec(chain, *middle, *((DATA,) if is_long else ()))

    return jax.tree.map(lambda leaf: put(leaf, NamedSharding(mesh, spec(leaf))), tree)


def place_data(mesh: Mesh, rows: int, tree: PyTree) -> PyTree:
    """Spread leaves with as many rows as the data over the mesh; the others go everywhere."""

    def spec(leaf: Any) -> PartitionSpec:
        is_long = DATA in mesh.shape and np.ndim(leaf) > 0 and np.shape(leaf)[0] == rows
        return PartitionSpec(DATA) if is_long else PartitionSpec()

    return jax.tree.map(lambda leaf: put(leaf, NamedSharding(mesh, spec(leaf))), tree)


def put(leaf: Any, sharding: NamedSharding) -> Any:
    """Place an array; each of several processes, which all have it, places its own part."""
    if sharding.is_fully_addressable:
        return jax.device_put(leaf, sharding)
    if isinstance(leaf, jax.Array) and not leaf.is_fully_addressable:
        return jax.jit(lambda x: x, out_shardings=sharding)(leaf)
    if not hasattr(leaf, "dtype"):
        return leaf  # a plain number goes everywhere, and stays as weak as it is
    if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
        words = put(np.asarray(jax.random.key_data(leaf)), sharding)
        return jax.random.wrap_key_data(words, impl=jax.random.key_impl(leaf))
    array = np.asarray(leaf)
    array = array.astype(jax.dtypes.canonicalize_dtype(array.dtype), copy=False)
    return jax.make_array_from_callback(array.shape, sharding, lambda part: array[part])
