"""Buffers of records: what is kept of each draw, written inside a compiled loop.

A kernel of a small network takes microseconds a step, and on a CPU each separate write is
a noticeable part of it. Small leaves are therefore packed into one row of 32-bit words, one
write a record, and taken apart again after the loop; large ones keep buffers of their own.
"""

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, ArrayLike, PyTree

# Beyond this many entries the copy into a row costs more than a write of its own.
_LARGEST_PACKED = 1024

Buffers = tuple[Array | None, list[Array]]


def bytes_of(shapes: PyTree) -> int:
    """Return how many bytes one record with leaves like `shapes` takes, at least 1."""
    return max(1, sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(shapes)))


def make_buffers(shapes: PyTree, capacity: int) -> Buffers:
    """Return empty buffers for `capacity` records with leaves like `shapes`."""
    leaves = jax.tree.leaves(shapes)
    width = sum(leaf.size for leaf in leaves if _is_packed(leaf))
    rows = jnp.zeros((capacity, width), jnp.uint32) if width else None
    return rows, [
        jnp.zeros((capacity, *leaf.shape), leaf.dtype) for leaf in leaves if not _is_packed(leaf)
    ]


def write(buffers: Buffers, record: PyTree, index: ArrayLike) -> Buffers:
    """Return the buffers with `record` at `index`."""
    rows, others = buffers
    leaves = jax.tree.leaves(record)
    packed = [_to_words(leaf) for leaf in leaves if _is_packed(leaf)]
    if rows is not None:
        row = jnp.concatenate(packed)
        rows = jax.lax.dynamic_update_index_in_dim(rows, row, index, 0)
    large = [leaf for leaf in leaves if not _is_packed(leaf)]
    return rows, [
        jax.lax.dynamic_update_index_in_dim(buffer, leaf, index, 0)
        for buffer, leaf in zip(others, large, strict=True)
    ]


def read(buffers: Buffers, shapes: PyTree) -> PyTree:
    """Return all records, leaves (capacity, ...) like `shapes`."""
    rows, others = buffers
    remaining, begin, leaves = list(others), 0, []
    for shape in jax.tree.leaves(shapes):
        if rows is not None and _is_packed(shape):
            words = rows[:, begin : begin + shape.size]
            begin += shape.size
            leaves.append(_from_words(words, shape))
        else:
            leaves.append(remaining.pop(0))
    return jax.tree.unflatten(jax.tree.structure(shapes), leaves)


def _is_packed(leaf: Any) -> bool:
    # Only what has 32 bits, so that a row has one dtype; booleans, which come with every Info,
    # are widened to it. Keys are no numbers to JAX and keep buffers of their own.
    is_word = leaf.dtype == jnp.bool_ or (
        leaf.dtype.itemsize == 4 and not jnp.issubdtype(leaf.dtype, jax.dtypes.extended)
    )
    return is_word and 0 < leaf.size <= _LARGEST_PACKED


def _to_words(leaf: Array) -> Array:
    # Bits are cast and nothing is converted: whole numbers above 2^24 come back as they were.
    flat = jnp.ravel(leaf)
    if flat.dtype == jnp.bool_:
        return flat.astype(jnp.uint32)
    return jax.lax.bitcast_convert_type(flat, jnp.uint32)


def _from_words(words: Array, shape: Any) -> Array:
    if shape.dtype == jnp.bool_:
        values = words.astype(jnp.bool_)
    else:
        values = jax.lax.bitcast_convert_type(words, shape.dtype)
    return values.reshape(words.shape[0], *shape.shape)
