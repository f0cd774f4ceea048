"""Targets drawn at new rows, a block of fixed size at a time."""

import jax
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray, PyTree, Shaped

from jaxbnn.prediction.blocks import ROWS, by_blocks
from jaxbnn.prediction.families import sample_law
from jaxbnn.targets import Posterior


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
