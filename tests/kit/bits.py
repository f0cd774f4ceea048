"""Whether two results are the same to the last bit."""

from typing import Any

import jax
import numpy as np


def leaves(tree: Any) -> dict[str, np.ndarray]:
    """Return all numbers of a PyTree by their place."""
    found = jax.tree_util.tree_leaves_with_path(tree)
    return {jax.tree_util.keystr(path): np.asarray(leaf) for path, leaf in found}


def assert_same(a: Any, b: Any) -> None:
    """Fail unless places, dtypes, shapes and bytes are equal; NaN is equal to NaN."""
    a, b = leaves(a), leaves(b)
    assert list(a) == list(b)
    for place, x in a.items():
        assert (x.dtype, x.shape) == (b[place].dtype, b[place].shape), place
        assert x.tobytes() == b[place].tobytes(), place
