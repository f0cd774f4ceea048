"""A run on several processes against one, each process with its device: prints what differs.

    python -m jaxbnn hosts --processes 2 tests/sampling/hosts_program.py short
    python -m jaxbnn hosts --processes 2 tests/sampling/hosts_program.py stored FOLDER [KILL]

The first process prints one line of JSON. KILL is "INDEX NUMBER WHEN": that process kills itself
before, midway in or after its so-many'th call that writes.
"""

import json
import os
import signal
import sys

import jax
import jax.numpy as jnp
import numpy as np
from blackjax.base import SamplingAlgorithm
from jax.sharding import Mesh

import jaxbnn
from tests.sampling import devices_program as program
from tests.sampling.small_run import stop_after
from tests.sampling.tiny import ar, walk

ROWS, CHAINS = program.ROWS, program.CHAINS
DATA = np.ones(ROWS, np.float32)
STARTS = np.random.default_rng(1).normal(size=(CHAINS, 5)).astype(np.float32)


def meshes():
    """Chains or rows laid over the processes."""
    count = jax.process_count()
    shapes = {"chain": (count, 1), "data": (1, count)}
    return {name: mesh_of(shape) for name, shape in shapes.items()}


def mesh_of(shape):
    return Mesh(np.asarray(jax.devices()).reshape(shape), ("chain", "data"))


def alone():
    """A mesh of this process's own device: the run it would make without the others."""
    return Mesh(np.asarray(jax.local_devices()).reshape(1, 1), ("chain", "data"))


def tiny(dtype):
    """A random walk whose log density is a sum over the rows."""
    x, y = program.data_of(dtype)

    def make_kernel(_, data):
        x, y = data
        return walk(lambda w: -0.5 * jnp.sum((x @ w - y[:, 0]) ** 2), 0.1)

    return make_kernel, np.random.default_rng(3).normal(size=(CHAINS, 3)).astype(dtype), (x, y)


CASES = program.CASES | {"tiny": tiny}


def one_step(name, dtype):
    found = {}
    with jax.enable_x64(dtype == "float64"):
        make_kernel, starts, data = CASES[name](dtype)
        is_first = jax.process_index() == 0
        whole = program.run(make_kernel, starts, alone(), data=data) if is_first else None
        for mesh_name, mesh in meshes().items():
            spread = program.run(make_kernel, starts, mesh, data=data)
            if is_first:
                difference = program.relative_difference(spread.final_state, whole.final_state)
                found[f"{name} {dtype} {mesh_name}"] = difference
    return found


def elementwise():
    """Whole runs of a target that sums nothing: the largest difference, which is to be 0."""
    kernel = lambda parameters, data: ar()  # noqa: E731
    options = {"data": DATA, "num_warmup": 3, "reduce": {"m": jaxbnn.moments()}}
    whole = program.run(kernel, STARTS, alone(), 30, **options)
    found = {}
    for name, mesh in meshes().items():
        spread = program.run(kernel, STARTS, mesh, 30, **options)
        results = [(d.positions, d.reduced, d.final_state, d.acceptance_rate)
                   for d in (spread, whole)]  # fmt: skip
        found[f"elementwise {name}"] = program.relative_difference(*results)
        assert isinstance(spread.positions, np.ndarray)
        np.testing.assert_array_equal(spread.infos.is_large, whole.infos.is_large)
        np.testing.assert_array_equal(spread.positions[:, -1], spread.final_state.position)
    return found


def keys():
    """Steps whose position is the key that they were given, against the keys as documented."""

    def step(rng_key, state):
        words = jax.random.key_data(rng_key)
        return state._replace(position=words), state

    def init(position, rng_key=None):
        return ar().init(position)._replace(log_density=jnp.zeros(()))

    kernel = lambda parameters, data: SamplingAlgorithm(init, step)  # noqa: E731
    starts = np.zeros((CHAINS, 2), np.uint32)
    expected = [
        [jax.random.key_data(jax.random.fold_in(jax.random.fold_in(program.KEY, c), t))
         for t in range(3)]
        for c in range(CHAINS)
    ]  # fmt: skip
    found = {}
    for name, mesh in meshes().items():
        seen = program.run(kernel, starts, mesh, 3, data=DATA).positions
        found[f"keys {name}"] = int((seen != np.asarray(expected)).sum())
    return found


def refusals(folder):
    """What several processes cannot do together: one sentence each."""
    index, mesh = jax.process_index(), meshes()["chain"]

    def told(mesh=mesh, starts=STARTS, **options):
        try:
            jaxbnn.sample(program.KEY, ar(), starts, 2, mesh=mesh, progress=False, **options)
        except (ValueError, OSError) as error:
            return f"{type(error).__name__}: {error}"

    return {
        "none": told(mesh=None),
        "part": told(mesh=Mesh(np.asarray(jax.devices()[1:]), ("chain",)))
        if jax.process_count() > 2
        else "mesh has devices of",
        "uneven": told(starts=STARTS[:3]),
        "start": told(starts=STARTS + np.float32(index)),
        "number": told(chunk_size=1 + index),
        "validation": told(starts=STARTS * np.float32(np.nan if index else 1)),
        "folder": told(checkpoint=f"{folder}-{index}"),
        "debug": told(debug=True),
    }


def make_kernel(parameters, data):
    return ar(parameters["shrink"])


def stored(folder, mesh, progress=False, **options):
    """Make, or resume, an elementwise run in a folder."""
    parameters = {"shrink": np.linspace(0.1, 0.9, CHAINS, dtype=np.float32)}
    options = {"num_samples": 12, "parameters": parameters, "data": DATA} | options
    return program.run(make_kernel, STARTS, mesh, checkpoint=folder, progress=progress, **options)


# With all that a checkpoint has to carry.
WHOLE = {"num_warmup": 66, "adapt": program.identity(), "reduce": {"m": jaxbnn.moments()}}


def kill_at(index, number, when):
    """Let process `index` kill itself at its so-many'th call that writes."""
    if jax.process_index() != index:
        return
    seen = 0

    def watch(real):
        def call(*args):
            nonlocal seen
            seen += 1
            if seen != number:
                return real(*args)
            if when == "midway" and real.__name__ == "write":
                real(args[0], args[1][: len(args[1]) // 2])
            elif when == "after":
                real(*args)
            os.kill(os.getpid(), signal.SIGKILL)

        return call

    for name in ("write", "fsync", "replace"):
        setattr(os, name, watch(getattr(os, name)))


def interrupted(folder):
    """Ctrl-C at the last process, then at the first one's reporter, then on to the end."""
    count, mesh = jax.process_count(), meshes()["chain"]
    replace = os.replace

    def stop(*args):
        os.replace = replace
        replace(*args)
        os.kill(os.getpid(), signal.SIGINT)

    if jax.process_index() == count - 1:
        os.replace = stop
    numbers = []
    for progress in (False, stop_after(1), False):
        draws = stored(folder, mesh, progress, num_samples=24, lazy=True)
        numbers += [len(draws.steps), draws.interrupted]
    whole = stored(None, alone(), num_samples=24)
    np.testing.assert_array_equal(draws.positions, whole.positions)
    return numbers


LONG = [(name, dtype) for name in CASES for dtype in ("float32", "float64")]


def main(size, folder=None, kill=None):
    if kill is not None:
        index, number, when = kill.split()
        kill_at(int(index), int(number), when)
    if size == "short":
        tell({"steps": one_step("tiny", "float32"), "refusals": refusals(folder)})
        stored(folder, meshes()["chain"])
    elif size == "stored":
        count = jax.process_count()
        # Of four processes two hold the same chains, and one of them writes.
        draws = stored(folder, mesh_of((2, count // 2) if count > 1 else (1, 1)), **WHOLE)
        assert not draws.interrupted
    else:
        found = elementwise() | keys()
        for case in LONG:
            found |= one_step(*case)
        tell({
            "steps": found,
            "refusals": refusals(folder),
            "interrupted": interrupted(f"{folder} interrupted"),
        })  # fmt: skip


def tell(found):
    if jax.process_index() == 0:
        print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
