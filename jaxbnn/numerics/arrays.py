"""Arrays that compiled programs take, made of whatever acts as one."""

import jax
import numpy as np
from jaxtyping import PyTree


def in_memory(tree: PyTree) -> PyTree:
    """Return the tree with each leaf that lies in files read; JAX's and NumPy's arrays stay.

    Compiled functions take nothing that only can become an array, as what
    `jaxbnn.sampling.open_draws` returns.

    Examples
    --------
    >>> in_memory({"a": [1.0, 2.0]})["a"][0].shape
    ()
    """
    is_read = (jax.Array, np.ndarray)
    return jax.tree.map(lambda leaf: leaf if isinstance(leaf, is_read) else np.asarray(leaf), tree)
