"""PyTrees whose leaves have the same order in every process.

NumPyro keeps the fields of a distribution in a `set`: the order of its leaves, and with it that of
a `Posterior`, changes with Python's hash seed. What is stored, compared between processes or
compiled must not. `ordered` therefore replaces each distribution in a PyTree by its fields in
alphabetical order, and `restored` puts the distributions back.
"""

import functools
from collections.abc import Callable
from typing import Any

import jax
from jaxtyping import PyTree
from numpyro.distributions import Distribution


@jax.tree_util.register_pytree_with_keys_class
class Fields:
    """The fields of one distribution, by name; what is static of it is part of the structure."""

    def __init__(self, kind: type[Distribution], leaves: dict[str, PyTree], static: tuple):
        self.kind, self.leaves, self.static = kind, leaves, static

    def tree_flatten_with_keys(self) -> tuple[tuple, Any]:
        """Split into the fields' values, in the order of their names, and all else."""
        names = tuple(sorted(self.leaves))
        children = tuple((jax.tree_util.GetAttrKey(name), self.leaves[name]) for name in names)
        return children, (self.kind, names, self.static)

    @classmethod
    def tree_unflatten(cls, about: Any, children: tuple) -> "Fields":
        """Put the fields together again."""
        kind, names, static = about
        return cls(kind, dict(zip(names, children, strict=True)), static)


def ordered(tree: PyTree) -> PyTree:
    """Return the tree with the fields of each distribution in its place."""

    def one(node: Any) -> Any:
        if not isinstance(node, Distribution):
            return node
        kind = type(node)
        leaves, static = node.tree_flatten()
        fields = dict(zip(kind.gather_pytree_data_fields(), leaves, strict=True))
        # Sorted by name alone: values need not be comparable.
        about = sorted(zip(kind.gather_pytree_aux_fields(), static, strict=True), key=_name)
        # A field may hold distributions of its own (`Independent`).
        return Fields(kind, {name: ordered(value) for name, value in fields.items()}, tuple(about))

    return jax.tree.map(one, tree, is_leaf=lambda node: isinstance(node, Distribution))


def restored(tree: PyTree) -> PyTree:
    """Return the tree that `ordered` was given."""

    def one(node: Any) -> Any:
        if not isinstance(node, Fields):
            return node
        fields = {name: restored(value) for name, value in node.leaves.items()}
        leaves = tuple(fields[name] for name in node.kind.gather_pytree_data_fields())
        static = dict(node.static)
        return node.kind.tree_unflatten(
            tuple(static[name] for name in node.kind.gather_pytree_aux_fields()), leaves
        )

    return jax.tree.map(one, tree, is_leaf=lambda node: isinstance(node, Fields))


def in_order(function: Callable) -> Callable:
    """Return the function of ordered arguments with an ordered result."""

    @functools.wraps(function)
    def call(*args: PyTree) -> PyTree:
        return ordered(function(*restored(args)))

    return call


def _name(field: tuple[str, Any]) -> str:
    return field[0]
