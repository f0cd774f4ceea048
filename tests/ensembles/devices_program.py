"""Training and `sample_ensemble` on four virtual devices against one, in a process of its own.

`XLA_FLAGS=--xla_force_host_platform_device_count=4 python -m tests.ensembles.devices_program short`
prints what was found, as JSON.
"""

import json
import sys
import tempfile

import jax
import jax.numpy as jnp
import numpy as np
import optax

import jaxbnn
from jaxbnn.ensembles import optimised_starts, sample_ensemble
from jaxbnn.tabular.devices import devices_for, mesh_for

CHAINS, ROWS = 4, 40
KEY = jax.random.key(3)
OPTIMIZER = optax.sgd(1e-3)


def posterior():
    network = jaxbnn.mlp((2, 3, 1))
    x = np.random.default_rng(0).normal(size=(ROWS, 2)).astype(np.float32)
    prior = jaxbnn.normal_prior(network)
    return jaxbnn.Posterior(network, prior, jaxbnn.Gaussian(0.5), x, x[:, :1] ** 2)


def difference(one, other):
    pairs = zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True)
    return max(float(np.max(np.abs(np.asarray(a) - np.asarray(b)))) for a, b in pairs)


def trained(mesh, max_epochs, checkpoint=None):
    return optimised_starts(
        KEY, posterior(), CHAINS, optimizer=OPTIMIZER, max_epochs=max_epochs, patience=4,
        checkpoint=checkpoint, mesh=mesh, progress=False,
    )  # fmt: skip


def of_training():
    """What differs after a few epochs of a slow training, whole or begun on one device."""
    mesh, alone = mesh_for(CHAINS), trained(None, 4)
    spread = trained(mesh, 4)
    with tempfile.TemporaryDirectory() as folder:
        trained(None, 2, folder)
        resumed = trained(mesh, 4, folder)
    devices = {d for leaf in jax.tree.leaves(spread.positions) for d in leaf.devices()}
    return {
        "devices": len(devices),
        "training": difference(spread.positions, alone.positions),
        "resumed": difference(resumed.positions, alone.positions),
    }


def of_ensemble():
    """Whether chains on four devices see the law that chains on one see: their mean log density."""
    target = posterior()
    starts = target.sample_prior(jax.random.key(1), (CHAINS,))
    found = {}
    for name, mesh in (("alone", None), ("spread", mesh_for(CHAINS))):
        run = sample_ensemble(
            KEY, target, starts, 400, num_tuning=200, most_steps=2000, num_warmup=100,
            trajectory_steps=10, mesh=mesh, progress=False,
        )  # fmt: skip
        levels = jax.vmap(jax.vmap(target.log_density))(
            jax.tree.map(jnp.asarray, run.draws.positions)
        )
        found[name] = [float(np.mean(levels)), float(np.std(np.mean(levels, axis=1), ddof=1))]
    return found


if __name__ == "__main__":
    result = {"devices_for": [devices_for(n) for n in (1, 3, 4, 10)], **of_training()}
    if sys.argv[1] == "long":
        result |= of_ensemble()
    print(json.dumps(result))
