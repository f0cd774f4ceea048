"""Runs many short independent chains in batches and keeps only their test functions."""

from collections.abc import Callable, Mapping

import jax
import jax.numpy as jnp
import numpy as np

from tests.kit.dkw import Comparison, chains_needed, compare
from tests.kit.sizes import QUICK

MINIMUM = 1_200_000  # chains of a full-size test


def check_chains(
    chain: Callable,
    exact: Callable,
    test_functions: Callable,
    cdfs: Mapping[str, Callable],
    num_chains: int | None,
    seed: int,
    batch_size: int,
) -> Comparison:
    """Compare the end of independent chains with exact draws.

    Parameters
    ----------
    chain
        chain(key) -> (end, moved): one chain from an exact draw to its end, and whether its
        position changed.
    exact
        exact(key) -> end: an exact draw of what the end must be distributed as.
    test_functions
        test_functions(*end) -> dict of scalars.
    cdfs
        Exact distribution functions of those test functions that have one.
    num_chains
        None for the full size; otherwise rounded up to whole batches.
    seed, batch_size
        Seed of all chains; chains run at once (memory grows with this number only).
    """

    key = jax.random.key(seed)
    names = list(jax.eval_shape(lambda key: test_functions(*exact(key)), key))
    without_cdf = [name for name in names if name not in cdfs]

    def both(key):
        key_chain, key_exact = jax.random.split(key)
        end, moved = chain(key_chain)
        # Nothing is computed for the functions whose exact distribution is known.
        exact_values = test_functions(*exact(key_exact)) if without_cdf else {}
        return test_functions(*end), {name: exact_values[name] for name in without_cdf}, moved

    def batch(key):
        return jax.vmap(both)(jax.random.split(key, batch_size))

    batch = jax.jit(batch, compiler_options=None if num_chains is None else QUICK)
    if num_chains is None:
        num_chains = max(MINIMUM, chains_needed(len(names), two_sample=bool(without_cdf)))
    batch_size = min(batch_size, num_chains)
    num_batches = -(-num_chains // batch_size)

    after: dict[str, list] = {name: [] for name in names}
    reference: dict[str, list] = {name: [] for name in without_cdf}
    moved = 0.0
    for key_batch in jax.random.split(key, num_batches):
        values, exact_values, changed = batch(key_batch)
        for name in names:
            after[name].append(np.asarray(values[name]))
        for name in without_cdf:
            reference[name].append(np.asarray(exact_values[name]))
        moved += float(np.mean(changed)) / num_batches
    return compare(
        {name: np.concatenate(parts) for name, parts in after.items()},
        {name: np.concatenate(parts) for name, parts in reference.items()},
        cdfs,
        moved,
    )


def has_moved(before, after):
    """Whether any leaf of a position changed."""
    changed = [
        jnp.any(old != new)
        for old, new in zip(jax.tree.leaves(before), jax.tree.leaves(after), strict=True)
    ]
    return jnp.any(jnp.stack(changed))
