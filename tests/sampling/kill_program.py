"""One stored run of `kills.py`, in a process of its own or in several that share it.

    python tests/sampling/kill_program.py DATA FOLDER [HOOK]
    python -m jaxbnn hosts --processes 2 tests/sampling/kill_program.py DATA FOLDER [HOOK]

Prints a line of JSON after each chunk, and a digest of its numbers at the end. HOOK is
"INDEX NUMBER WHEN": process INDEX kills itself before, midway in or after its call number NUMBER
that writes.
"""

import hashlib
import json
import os
import signal
import sys
from pathlib import Path

import blackjax
import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist

import jaxbnn
from jaxbnn.interop.numpyro import posterior_from_numpyro
from jaxbnn.networks import init, mlp
from tests.sampling.small_run import WARMUP_CHUNK, even_warm_up

CALLS = ("write", "fsync", "replace")
CHAINS, KEY_NUMBER = 4, 11
OPTIONS = {"num_warmup": 4 * WARMUP_CHUNK, "num_samples": 24, "thinning": 100, "chunk_size": 2}
NETWORK = mlp((2, 2, 1), "tanh")
X = np.linspace(-1, 1, 24, dtype=np.float32).reshape(12, 2)
Y = np.sin(3 * X[:, :1])
REDUCE = {"m": jaxbnn.moments()}


def stacked(make):
    return jax.tree.map(lambda *leaves: np.stack(leaves), *[make(c) for c in range(CHAINS)])


def arrays():
    def make_kernel(parameters, data):
        log_density = lambda w: -0.5 * jnp.sum((w["w"] - data) ** 2)  # noqa: E731
        return blackjax.mala(log_density, parameters["step_size"])

    starts = {"w": np.linspace(-1, 1, 2 * CHAINS, dtype=np.float32).reshape(CHAINS, 2)}
    parameters = {"step_size": np.full(CHAINS, 0.1, np.float32)}
    adapt = jaxbnn.dual_averaging(0.574)
    data = np.array([1.0, -1.0], np.float32)
    return make_kernel, starts, {"data": data, "parameters": parameters, "adapt": adapt}


def posterior():
    prior = dist.StudentT(4.0, 0.0, 1.0)
    data = jaxbnn.Posterior(NETWORK, prior, jaxbnn.Gaussian(0.3), X, Y)

    def make_kernel(parameters, data):
        return blackjax.mala(data.log_density, parameters["step_size"])

    starts = stacked(lambda c: init(jax.random.key(c), NETWORK))
    parameters = {"step_size": np.full(CHAINS, 0.1, np.float32)}
    adapt = jaxbnn.dual_averaging(0.574, is_pooled=False)
    return make_kernel, starts, {"data": data, "parameters": parameters, "adapt": adapt}


def numpyro_model():
    def model(scale, y):
        mean = numpyro.sample("mean", dist.StudentT(3.0, 0.0, scale))
        spread = numpyro.sample("spread", dist.HalfCauchy(1.0))
        with numpyro.plate("rows", len(y)):
            numpyro.sample("y", dist.Normal(mean, spread), obs=y)

    data = posterior_from_numpyro(model, 1.0, Y[:, 0])
    make_kernel = lambda parameters, data: blackjax.mala(data.log_density, 0.1)  # noqa: E731
    zeros = np.zeros(CHAINS, np.float32)
    return make_kernel, {"mean": zeros, "spread": zeros}, {"data": data}


def gibbs_model():
    model = jaxbnn.IntermediateNoise(mlp((2, 2, 1)), 0.1)

    def make_kernel(parameters, data):
        return jaxbnn.gibbs_sampler(*data)

    starts = stacked(lambda c: model.random_position(jax.random.key(c), X, Y))
    return make_kernel, starts, {"data": (model, X, Y)}


DATA = {
    "arrays": arrays,
    "a Posterior": posterior,
    "a NumPyro model": numpyro_model,
    "a Gibbs model": gibbs_model,
}


def digest(draws) -> str:
    seen = hashlib.sha256()
    tree = draws._replace(seconds=0.0)
    for path, leaf in jax.tree_util.tree_leaves_with_path(tree):
        array = np.asarray(leaf)
        seen.update(f"{jax.tree_util.keystr(path)} {array.dtype} {array.shape}".encode())
        seen.update(array.tobytes())
    return seen.hexdigest()


class Hook:
    """Counts the calls that write, and kills the process at one of them."""

    def __init__(self, text: str, tell):
        index, number, self.when = text.split() if text else (-1, 0, "")
        self.number = int(number) if int(index) == jax.process_index() else -1
        self.calls, self._tell = 0, tell
        for name in CALLS:
            setattr(os, name, self._watch(name, getattr(os, name)))

    def _watch(self, name, real):
        def call(*args):
            self.calls += 1
            if self.calls != self.number:
                return real(*args)
            target = args[0] if name == "replace" else os.readlink(f"/proc/self/fd/{args[0]}")
            self._tell(where=f"{self.when} {name} of {kind_of(Path(target))}")
            if self.when == "midway" and name == "write":
                real(args[0], args[1][: len(args[1]) // 2])
            elif self.when == "after":
                real(*args)
            os.kill(os.getpid(), signal.SIGKILL)

        return call


def kind_of(path: Path) -> str:
    if path.is_dir():
        return "the folder"
    return "draws" if path.name.startswith("draws-") else "state"


def main(data: str, folder: str, hook: str = "") -> None:
    write = os.write

    def tell(**line):
        write(1, json.dumps(line).encode() + b"\n")

    counter = Hook(hook, tell)
    make_kernel, starts, options = DATA[data]()
    mesh = None
    if jax.process_count() > 1:
        mesh = jax.make_mesh((jax.device_count(),), ("chain",))
    with even_warm_up():
        draws = jaxbnn.sample(
            jax.random.key(KEY_NUMBER), make_kernel, starts, mesh=mesh, checkpoint=folder,
            reduce=REDUCE, progress=lambda p: tell(phase=p.phase, done=p.done, calls=counter.calls),
            **OPTIONS, **options,
        )  # fmt: skip
    if jax.process_index() == 0:
        tell(digest=digest(draws), calls=counter.calls)


if __name__ == "__main__":
    main(*sys.argv[1:])
