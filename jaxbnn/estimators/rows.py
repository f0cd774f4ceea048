"""Predictions at new rows, a block of fixed size at a time.

The programs are those of the first call, however many rows there are, and what is said of a row
does not depend on the rows beside it: not even in the last digit.
"""

from collections.abc import Callable, Sequence

import jax
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray, PyTree, Shaped

from jaxbnn.prediction.families import sample_law
from jaxbnn.targets import Posterior

ROWS = 128


def by_blocks(
    function: Callable[..., Sequence[np.ndarray]], *arrays: Shaped[np.ndarray, "n ..."]
) -> list[np.ndarray]:
    """Return the arrays of `function(*blocks)`, one row for each row of `arrays`."""
    found = []
    for start in range(0, len(arrays[0]), ROWS):
        blocks = [array[start : start + ROWS] for array in arrays]
        missing = ROWS - len(blocks[0])
        padded = [np.concatenate([b, np.repeat(b[-1:], missing, axis=0)]) for b in blocks]
        found.append([np.asarray(part)[: len(blocks[0])] for part in function(*padded)])
    return [np.concatenate(parts) for parts in zip(*found, strict=True)]


def simulate(
    seeds: np.random.RandomState,
    posterior: Posterior,
    positions: PyTree,
    x: Float[np.ndarray, "n columns"],
    number: int,
) -> Shaped[np.ndarray, "n number"]:
    """Draw targets from the predictive distribution; a column is of one draw of the weights.

    `positions` has leaves (chain, draw, ...).
    """
    flat = jax.tree.map(lambda leaf: np.asarray(leaf).reshape(-1, *leaf.shape[2:]), positions)
    chosen = seeds.randint(len(jax.tree.leaves(flat)[0]), size=number)
    taken = jax.tree.map(lambda leaf: leaf[chosen], flat)
    key = jax.random.key(seeds.randint(2**31 - 1))
    keys = iter(jax.random.split(key, -(-len(x) // ROWS)))
    (values,) = by_blocks(lambda block: [_simulate(next(keys), posterior, taken, block)], x)
    return values


@jax.jit
def _simulate(
    key: PRNGKeyArray, posterior: Posterior, positions: PyTree, x: Float[Array, "rows columns"]
) -> Shaped[Array, "rows number"]:
    def one(key: PRNGKeyArray, position: PyTree) -> Array:
        return sample_law(posterior.predictive(position, x), key)

    number = len(jax.tree.leaves(positions)[0])
    return jax.vmap(one, out_axes=-1)(jax.random.split(key, number), positions)
