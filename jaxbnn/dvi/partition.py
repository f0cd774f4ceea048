"""Which weights share a prior variance: sets of tensors, or of entries of tensors."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.tree_util import keystr, tree_leaves_with_path
from jaxtyping import Array, Float, PyTree

from jaxbnn.numerics import is_concrete
from jaxbnn.numerics.arguments import check_no_key


def set_numbers(partition: Any, mean: PyTree) -> list[np.ndarray]:
    """Return, for every tensor, the number of its set, or one for each of its entries.

    Raises
    ------
    ValueError
        Labels at other places than the parameters, or of other shapes.

    Examples
    --------
    >>> mean = {"w": jnp.zeros((2, 1)), "b": jnp.zeros(1)}
    >>> [numbers.tolist() for numbers in set_numbers("tensor", mean)]  # b before w
    [0, 1]
    >>> rows = frozen({"w": np.array([[5], [6]]), "b": 5})
    >>> [numbers.tolist() for numbers in set_numbers(rows, mean)]
    [0, [[0], [1]]]
    """
    paths = [keystr(path) for path, _ in tree_leaves_with_path(mean)]
    if isinstance(partition, str):
        of_path = {
            "tensor": lambda path: keystr(path),
            "layer": lambda path: keystr(path[:-1]),
            "all": lambda path: "all",
        }[partition]
        labels = [np.asarray(of_path(path)) for path, _ in tree_leaves_with_path(mean)]
    else:
        given = {path: np.array(flat, object).reshape(shape) for path, shape, flat in partition}
        if set(given) != set(paths):
            raise ValueError(
                f"partition has labels at {', '.join(sorted(given))}, but the parameters are at "
                f"{', '.join(paths)}; give one label a parameter."
            )
        labels = [given[path] for path in paths]
    for path, label, leaf in zip(paths, labels, jax.tree.leaves(mean), strict=True):
        if label.shape not in ((), leaf.shape):
            raise ValueError(
                f"the labels of the partition at {path} have shape {label.shape}, but the "
                f"parameter {leaf.shape}; give one label, or one an entry."
            )
    numbers: dict[Any, int] = {}
    return [
        np.array([numbers.setdefault(v, len(numbers)) for v in label.ravel().tolist()]).reshape(
            label.shape
        )
        for label in labels
    ]


def frozen(partition: PyTree) -> tuple:
    """Make a PyTree of labels hashable, so that it may be static under jit."""
    found = []
    for path, leaf in tree_leaves_with_path(partition):
        check_no_key("labels of a partition are numbers or strings", leaf)
        labels = np.asarray(leaf, None if hasattr(leaf, "dtype") else object)
        found.append((keystr(path), labels.shape, tuple(labels.ravel().tolist())))
    return tuple(found)


def sums_of_sets(values: list[Array], indices: list[np.ndarray]) -> tuple[Array, Array]:
    """Return the sum of the values of every set, and how many they are, each (sets,).

    Examples
    --------
    >>> values = [jnp.ones(1), jnp.array([[2.0], [3.0]])]
    >>> sums, sizes = sums_of_sets(values, [np.array(0), np.array([[0], [1]])])
    >>> sums.tolist(), sizes.tolist()
    ([3.0, 3.0], [2.0, 1.0])
    """
    count = 1 + max(int(index.max()) for index in indices)
    whole: list[list[Array]] = [[] for _ in range(count)]
    total, size = jnp.zeros(count, values[0].dtype), np.zeros(count)
    for index, leaf in zip(indices, values, strict=True):
        if index.ndim:
            total = total + jax.ops.segment_sum(leaf.ravel(), index.ravel(), count)
            size += np.bincount(index.ravel(), minlength=count)
        else:  # one sum, where a scatter would be slow
            whole[int(index)].append(jnp.sum(leaf))
            size[index] += leaf.size
    total = total + jnp.stack([sum(parts, jnp.zeros((), total.dtype)) for parts in whole])
    return total, jnp.asarray(size, total.dtype)


def value_of_sets(
    beta: PyTree, mean: PyTree, indices: list[np.ndarray], like: Array
) -> Float[Array, " sets"]:
    """Return the beta of every set: that of its tensors, from one a tensor or one in all.

    Raises
    ------
    ValueError
        Betas at other places than the parameters, or tensors of one set that have different ones.

    Examples
    --------
    >>> mean = {"w": jnp.zeros((2, 1)), "b": jnp.zeros(1)}
    >>> apart = [np.array(0), np.array(1)]  # b before w
    >>> value_of_sets({"w": 5.0, "b": 2.0}, mean, apart, jnp.zeros(2)).tolist()
    [2.0, 5.0]
    """
    paths = [keystr(path) for path, _ in tree_leaves_with_path(mean)]
    given = {keystr(path): number for path, number in tree_leaves_with_path(beta)}
    if set(given) == {""}:
        given = dict.fromkeys(paths, given[""])
    if set(given) != set(paths):
        raise ValueError(
            f"beta has numbers at {', '.join(sorted(given))}, but the parameters are at "
            f"{', '.join(paths)}; give one number, or a PyTree shaped like the parameters."
        )
    betas = [given[path] for path in paths]
    tensor_of = np.zeros(len(like), int)
    for tensor in reversed(range(len(indices))):
        tensor_of[indices[tensor]] = tensor
    if is_concrete(betas):
        numbers = np.array([float(b) for b in betas])
        for tensor, index in enumerate(indices):
            others = numbers[tensor_of[index]]
            if (others != numbers[tensor]).any():
                raise ValueError(
                    "tensors that share a variance must have one beta, but tensor "
                    f"{tensor} has {numbers[tensor]:g} and another of its set "
                    f"{others[others != numbers[tensor]].flat[0]:g}; give them one, or "
                    "partition='tensor'."
                )
    return jnp.stack([jnp.asarray(b, like.dtype) for b in betas])[tensor_of]
