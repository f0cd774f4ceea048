"""A run that keeps nothing but reducers stays where it is in memory."""

import gc

import jax
import numpy as np
import psutil
import pytest

import jaxbnn
from tests.sampling.tiny import ar

KERNEL = ar()
WIDTH, CHAINS = 200, 10


REDUCE = {"m": jaxbnn.moments(), "b": jaxbnn.batch_means(100)}


def growth(num_samples):
    """Resident bytes that a run adds at its highest, as seen between its chunks."""
    gc.collect()
    process = psutil.Process()
    before, seen = process.memory_info().rss, [0]
    draws = jaxbnn.sample(
        jax.random.key(0), KERNEL, np.zeros((CHAINS, WIDTH), np.float32), num_samples,
        collect=None, reduce=REDUCE, chunk_size=1000,
        progress=lambda p: seen.append(process.memory_info().rss - before),
    )  # fmt: skip
    assert draws.reduced["m"].pooled.num_draws == CHAINS * num_samples
    assert draws.positions is None
    return max(seen)


@pytest.mark.parametrize("num_samples", [20_000, pytest.param(400_000, marks=pytest.mark.long)])
def test_memory_stays_flat(num_samples):
    growth(1000)  # compiles
    grown = growth(num_samples)
    kept = num_samples * CHAINS * WIDTH * 4
    assert kept > 100 * 2**20  # storing would show
    assert grown < 40 * 2**20
