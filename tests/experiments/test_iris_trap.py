"""Tests of experiments.studies.challenges.trap: the trap on Iris: a replica that is stuck from a
prior draw, passed round by swaps.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from experiments.datasets import iris
from experiments.studies.challenges.iris_kernels import kernel_factory, posterior
from jaxbnn import diagnostics, kernels, sample

STEP_SIZE = {"step_size": 0.0547723}
REPLICAS = 10


def replica_rates(state, info):
    rate = diagnostics.by_replica(info.inner.acceptance_rate, state.trips.replica, info.swaps.order)
    return {"position": state.position, "rate": rate}


@pytest.mark.long
@pytest.mark.third_party(reason="BlackJAX's MALA")
def test_summary_tells_of_the_stuck_replica_where_rhat_does_not():
    x, y = iris()
    data = {"x": jnp.asarray(x), "y": jnp.asarray(y)}
    target = posterior(3.0, data)
    # From the prior: a few of 200 chains are stuck, and the others have come far in 600 steps.
    first = sample(
        jax.random.key(0),
        kernel_factory("MALA", 3.0, REPLICAS, 10),
        target.sample_prior(jax.random.key(5), (200,)),
        600,
        parameters=STEP_SIZE,
        data=data,
        progress=False,
    )
    moves = np.asarray(first.infos.is_accepted)[:, 300:].mean(axis=1)
    stuck, free = np.flatnonzero(moves == 0), np.flatnonzero(moves > 0.3)
    assert 4 <= len(stuck) <= 20
    starts = jax.tree.map(lambda leaf: jnp.asarray(leaf[:, -1]), first.positions)

    def summarise(chosen):
        draws = sample(
            jax.random.key(1),
            kernel_factory("P-MALA", 3.0, REPLICAS, 10),
            kernels.Replicas(jax.tree.map(lambda leaf: leaf[chosen], starts)),
            6000,
            parameters=STEP_SIZE,
            data=data,
            num_warmup=4000,
            collect=replica_rates,
            progress=False,
        )
        positions = draws.positions["position"]
        density = np.asarray(diagnostics.evaluate(target.log_density, positions))
        rates = draws.positions["rate"]
        table = diagnostics.summary(positions, log_density=density, acceptance_rate=rates)
        return density, "\n".join(table.warnings)

    chosen = free[: 4 * REPLICAS].reshape(4, REPLICAS)
    density, words = summarise(chosen)
    assert "again and again" not in words
    assert "levels" not in words
    assert "Replica" not in words
    level = np.median(density)
    assert abs(density.mean() - level) < 3
    chosen[:, 3] = stuck[:4]
    density, words = summarise(chosen)
    assert density.mean() < level - 20
    assert diagnostics.split_rhat(density) < 1.05
    assert "Chains 0, 1, 2, 3 returned again and again" in words
    assert "The log density has two levels" in words
    listed = "Replicas 3 of chain 0, 3 of chain 1, 3 of chain 2, 3 of chain 3"
    assert f"{listed} accepted next to nothing" in words
