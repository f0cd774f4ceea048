"""The same chains on one device and on eight virtual ones: how far the numbers part."""

import inspect
import json
import os
import subprocess
import sys

import jaxbnn

TITLE = "equal numbers on another mesh"
PROMISE = "exactly where nothing is summed over devices"
_PROGRAM = """
import json
import blackjax, jax, jax.numpy as jnp, numpy as np
import jaxbnn
from jaxbnn.networks import init, mlp
network = mlp((3, 8, 1), "tanh")
x = np.random.default_rng(0).normal(size=(64, 3)).astype(np.float32)
gaussian = getattr(jaxbnn, "Gaussian", None) or jaxbnn.gaussian
data = jaxbnn.Posterior(
    network, jaxbnn.normal_prior(network), gaussian(0.3), x, np.sin(x[:, :1])
)
starts = jax.tree.map(lambda *c: np.stack(c), *[init(jax.random.key(c), network) for c in range(8)])
def run(mesh):
    make_kernel = lambda p, d: blackjax.hmc(d.log_density, 0.02, jnp.ones(41), 5)
    positions = jaxbnn.sample(
        jax.random.key(0), make_kernel, starts, 500, data=data, mesh=mesh, chunk_size=100,
        progress=False,
    ).positions
    return np.concatenate([leaf.reshape(8, 500, -1) for leaf in jax.tree.leaves(positions)], axis=2)
whole = run(None)
found = {}
for count in (2, 8):
    mesh = jax.sharding.Mesh(np.asarray(jax.devices()[:count]), ("chain",))
    difference = np.abs(run(mesh) - whole).max((0, 2))
    again = np.abs(run(mesh) - run(mesh)).max()
    found[count] = [float(difference[0]), float(difference[499]), float(again)]
print("found " + json.dumps(found))
"""


def measure():
    flags = "--xla_force_host_platform_device_count=8"
    environment = os.environ | {"JAX_PLATFORMS": "cpu", "XLA_FLAGS": flags}
    environment["PYTHONPATH"] = os.pathsep.join(sys.path)
    ended = subprocess.run(
        [sys.executable, "-c", _PROGRAM],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    found = json.loads(ended.stdout.rpartition("found ")[2])
    text = " ".join((inspect.getdoc(inspect.unwrap(jaxbnn.sample)) or "").split())
    rows = [
        ("promised: numbers are equal where nothing is summed", "yes" if PROMISE in text else "no")
    ]
    for count, (first, last, again) in found.items():
        where = f"chains over {count} devices against one"
        rows.append((f"{where}, largest difference at draw 0", f"{first:.1e}"))
        rows.append((f"{where}, at draw 499", f"{last:.1e}"))
        rows.append((f"the same {count} devices twice, at any draw", f"{again:.1e}"))
    return rows
