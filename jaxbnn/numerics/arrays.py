"""Read arrays that lie in files, for compiled programs."""

import jax
import numpy as np
from jaxtyping import PyTree


def in_memory(tree: PyTree) -> PyTree:
    """Return the tree with every leaf in memory; arrays of JAX and NumPy are left as they are.

    Compiled functions refuse objects that only can be converted to arrays, such as those of
    `jaxbnn.sampling.open_draws`.

    Examples
    --------
    >>> in_memory({"a": [1.0, 2.0]})["a"][0].shape
    ()
    """
    is_read = (jax.Array, np.ndarray)
    return jax.tree.map(lambda leaf: leaf if isinstance(leaf, is_read) else np.asarray(leaf), tree)
