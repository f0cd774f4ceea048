"""A stored run with a `Posterior` as its data, resumed by processes of other hash seeds."""

import os
import subprocess
import sys
import tempfile

TITLE = "a stored run resumed in another process"
_PROGRAM = """
import importlib.metadata, sys
version = importlib.metadata.version  # the tree need not be installed
importlib.metadata.version = lambda name: "0" if name == "jaxbnn" else version(name)
import jax, numpy as np
import numpyro.distributions as dist
import jaxbnn
from jaxbnn.networks import init, mlp
network = mlp((2, 2, 1), "tanh")
x = np.linspace(-1, 1, 12, dtype=np.float32).reshape(6, 2)
gaussian = getattr(jaxbnn, "Gaussian", None) or jaxbnn.gaussian
data = jaxbnn.Posterior(network, dist.StudentT(4.0, 0.0, 1.0), gaussian(0.3), x, x[:, :1])
starts = jax.tree.map(lambda *c: np.stack(c), *[init(jax.random.key(c), network) for c in (0, 1)])
mesh = jax.make_mesh((2,), ("chain",)) if jax.process_count() > 1 else None
try:
    jaxbnn.sample(
        jax.random.key(0), lambda p, d: jaxbnn.pcn(d.log_likelihood, 0.2), starts, 4, data=data,
        checkpoint=sys.argv[1], mesh=mesh, progress=False,
    )
except ValueError as error:
    sys.exit(str(error))
"""


def measure():
    with tempfile.TemporaryDirectory() as folder:
        script = f"{folder}/script.py"
        with open(script, "w", encoding="utf-8") as file:
            file.write(_PROGRAM)
        ended = [_run([script, f"{folder}/run"], str(seed)) for seed in range(6)]
        command = ["-m", "jaxbnn", "hosts", "--processes", "2", script]
        hosts = [_run([*command, f"{folder}/hosts{i}"], "random") for i in range(3)]
    return [
        ("refused, of 5 restarts under hash seeds 1 to 5", _count(ended[1:], folder)),
        ("refused, of 3 runs of `jaxbnn hosts --processes 2`", _count(hosts, folder)),
    ]


def _run(arguments, hash_seed):
    environment = os.environ | {"PYTHONHASHSEED": hash_seed, "JAX_PLATFORMS": "cpu"}
    environment["PYTHONPATH"] = os.pathsep.join(sys.path)
    command = [sys.executable, *arguments]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


def _count(ended, folder):
    refused = [one for one in ended if one.returncode]
    said = refused[0].stderr.replace(f"{folder}/", "").strip() if refused else ""
    return f"{len(refused)}" + (f" ({said[-150:]})" if refused else "")
