"""Counter-based keys: the key of chain c at step t is folded from (key, c, t).

No key depends on how a run was cut into chunks or spread over devices, so an
interrupted run that is resumed draws the same numbers.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, PRNGKeyArray, Shaped

# Counters have the 32 bits that fold_in takes. Steps are counted from 0, warm-up first, so that no
# step of sampling shares its key with one of warm-up; the largest counters are kept for keys that
# are not a step's: the one that `init` receives, and the ones for recomputing caches. (A small
# counter would not do: folding in i gives the i-th key of a split, which the kernel may make.)
INIT_COUNTER = 2**32 - 1
REFRESH_COUNTER = 2**32 - 2
MOST_STEPS = 2**32 - 2


def chain_keys(key: PRNGKeyArray, num_chains: int) -> Shaped[Array, "chains ..."]:
    """Return one key a chain, folded from `key` and the chain's number."""
    return jax.vmap(lambda c: jax.random.fold_in(key, c))(jnp.arange(num_chains, dtype=jnp.uint32))


def step_key(chain_key: PRNGKeyArray, step: Array) -> PRNGKeyArray:
    """Return the key of one chain at one step (an unsigned 32-bit counter)."""
    return jax.random.fold_in(chain_key, step)
