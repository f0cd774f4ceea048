"""PyTrees as JSON and back, so that draws can be opened without the code that made them."""

from collections import namedtuple
from typing import Any

import jax


def leaf_names(prefix: str, tree: Any) -> list[str]:
    """Return one readable name a leaf, such as `positions.0.w`, all different.

    Examples
    --------
    >>> leaf_names("at", {"leaf2": 0, "z": {"b": 1}, "z.b": 2})
    ['at.leaf2', 'at.z.b', 'at.leaf2_']
    """
    names: list[str] = []
    for number, (path, _) in enumerate(jax.tree_util.tree_leaves_with_path(tree)):
        parts = [prefix, jax.tree_util.keystr(path, simple=True, separator=".")]
        name = ".".join(part for part in parts if part).replace("/", "|")
        if name in names:
            name = f"{prefix}.leaf{number}"
        while name in names:  # the caller's own "leaf2"
            name += "_"
        names.append(name)
    return names


def describe(tree: Any) -> Any:
    """Return the containers of a PyTree as JSON data, with a leaf as its number."""
    numbers = range(len(jax.tree.leaves(tree)))
    return _describe(jax.tree.unflatten(jax.tree.structure(tree), numbers))


def _describe(node: Any) -> Any:
    if node is None or isinstance(node, int):
        return node
    if isinstance(node, dict):
        return {"dict": [[str(key), _describe(value)] for key, value in node.items()]}
    if isinstance(node, tuple) and hasattr(node, "_fields"):
        fields = [[name, _describe(getattr(node, name))] for name in node._fields]
        return {"namedtuple": type(node).__name__, "fields": fields}
    if isinstance(node, tuple | list):
        return {type(node).__name__: [_describe(value) for value in node]}
    # A container of the caller's own: what it holds, in its order.
    return {"list": [_describe(leaf) for leaf in jax.tree.leaves(node)]}


def rebuild(description: Any, leaves: list) -> Any:
    """Return the PyTree that `describe` saw, with these leaves; named tuples are made anew."""
    if description is None:
        return None
    if isinstance(description, int):
        return leaves[description]
    if "dict" in description:
        return {key: rebuild(value, leaves) for key, value in description["dict"]}
    if "namedtuple" in description:
        names = [name for name, _ in description["fields"]]
        values = [rebuild(value, leaves) for _, value in description["fields"]]
        return namedtuple(description["namedtuple"].strip("_"), names)(*values)  # type: ignore[misc]
    (kind, values), *_ = description.items()
    children = [rebuild(value, leaves) for value in values]
    return tuple(children) if kind == "tuple" else children
