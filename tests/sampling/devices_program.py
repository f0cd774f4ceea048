"""A run on eight virtual devices against one, in a process of its own: prints what differs.

`XLA_FLAGS=--xla_force_host_platform_device_count=8 python -m tests.sampling.devices_program`
"""

import json
import sys
import tempfile

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh

import jaxbnn
from jaxbnn import wide
from jaxbnn.networks import init, mlp
from jaxbnn.sampling import Adaptation
from tests.sampling.small_run import even_warm_up, stop_after
from tests.sampling.tiny import ar

CHAINS, ROWS = 8, 64
KEY = jax.random.key(7)
SHAPES = {"chain": (8, 1), "data": (1, 8), "both": (4, 2)}


def mesh_of(name):
    return Mesh(np.asarray(jax.devices()).reshape(SHAPES[name]), ("chain", "data"))


def run(kernel, positions, mesh, num_samples=1, progress=False, **options):
    with even_warm_up():
        return jaxbnn.sample(
            KEY, kernel, positions, num_samples, mesh=mesh, progress=progress, chunk_size=4,
            **options,
        )  # fmt: skip


def relative_difference(a, b):
    """Largest difference of any leaf, over the size of that leaf."""
    differences = [
        np.max(np.abs(np.asarray(x, np.float64) - np.asarray(y, np.float64)))
        / max(np.max(np.abs(np.asarray(y, np.float64))), 1e-30)
        for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True)
        if jnp.issubdtype(x.dtype, jnp.floating)
    ]
    return float(np.max(differences))  # NaN if any is


def data_of(dtype):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(ROWS, 3)).astype(dtype)
    return x, np.sin(x.sum(axis=1, keepdims=True)).astype(dtype)


def gibbs(dtype):
    model = jaxbnn.IntermediateNoise(mlp((3, 4, 1)), 0.1)
    x, y = data_of(dtype)
    start = model.random_position(jax.random.key(0), x, y)
    # Chains differ by their keys; the start of every second one is turned over.
    turned = jax.tree.map(jnp.negative, start)
    starts = stacked([start, turned] * (CHAINS // 2))
    return lambda _, data: jaxbnn.gibbs_sampler(model, *data), starts, (x, y)


def posterior(dtype):
    network = mlp((3, 4, 1), "tanh")
    prior, likelihood = jaxbnn.normal_prior(network), jaxbnn.Gaussian(0.5)

    def make_kernel(_, data):
        target = jaxbnn.Posterior(network, prior, likelihood, *data)
        return jaxbnn.pcn(target.log_likelihood, 0.2)

    return make_kernel, starts_of(network, dtype), data_of(dtype)


def function_space(dtype):
    network = mlp((3, 4, 1), "tanh", parametrisation="ntk")

    def make_kernel(_, data):
        target = wide.reparametrise(network, *data, noise_scale=0.5)
        return jaxbnn.pcnl(target.log_likelihood, 0.2)

    return make_kernel, starts_of(network, dtype), data_of(dtype)


def starts_of(network, dtype):
    return stacked([init(jax.random.key(c), network, dtype) for c in range(CHAINS)])


def stacked(trees):
    return jax.tree.map(lambda *leaves: np.stack(leaves), *trees)


CASES = {"gibbs": gibbs, "posterior": posterior, "function_space": function_space}


def one_step(name, dtype, meshes):
    """One step of a kernel on each mesh against one device, and how its latents lie."""
    found = {}
    with jax.enable_x64(dtype == "float64"):
        make_kernel, starts, data = CASES[name](dtype)
        whole = run(make_kernel, starts, None, data=data)
        for mesh in meshes:
            spread = run(make_kernel, starts, mesh_of(mesh), data=data)
            case = f"{name} {dtype} {mesh}"
            found[case] = relative_difference(spread.final_state, whole.final_state)
            if name == "gibbs":
                latent = spread.final_state.position.pre[0]
                found[f"{case} shard"] = latent.addressable_shards[0].data.shape
    return found


def elementwise(mesh):
    """Whole runs of a target that sums nothing: the largest difference, which is to be 0."""
    starts = np.random.default_rng(1).normal(size=(CHAINS, 5)).astype(np.float32)
    kernel, data = lambda parameters, data: ar(), np.ones(ROWS, np.float32)
    whole = run(kernel, starts, None, 30, data=data)
    spread = run(kernel, starts, mesh_of(mesh), 30, data=data)
    return {f"elementwise {mesh}": float(np.abs(whole.positions - spread.positions).max())}


def resumed(meshes):
    """A run stopped in warm-up and twice later, each part on another mesh: the difference."""
    starts = np.random.default_rng(2).normal(size=(CHAINS, 5)).astype(np.float32)
    options = {"num_samples": 12, "num_warmup": 66, "reduce": {"m": jaxbnn.moments()}}
    options |= {"parameters": {"shrink": np.linspace(0.1, 0.9, CHAINS, dtype=np.float32)}}
    options |= {"data": np.ones(ROWS, np.float32), "adapt": identity()}
    kernel = lambda parameters, data: ar(parameters["shrink"])  # noqa: E731
    whole = run(kernel, starts, None, **options)
    with tempfile.TemporaryDirectory() as folder:
        stops = [stop_after(1), stop_after(2), stop_after(1), False]
        for mesh, stop in zip(meshes, stops, strict=True):
            draws = run(
                kernel, starts, mesh and mesh_of(mesh), checkpoint=folder, progress=stop, **options
            )
            assert draws.interrupted == bool(stop)
        stored = jaxbnn.sampling.open_draws(folder)
    found = draws.positions, draws.reduced, draws.final_state, stored.parameters
    expected = whole.positions, whole.reduced, whole.final_state, whole.parameters
    case = " then ".join(str(mesh) for mesh in meshes)
    return {f"resumed {case}": relative_difference(found, expected)}


def resumed_rows():
    """A Gibbs run with its rows spread, stopped twice, on the same mesh: the difference."""
    kernel, starts, data = gibbs("float32")
    arguments, options = (kernel, starts, mesh_of("both"), 12), {"data": data, "num_warmup": 3}
    whole = run(*arguments, **options)
    with tempfile.TemporaryDirectory() as folder:
        for stop in (stop_after(1), stop_after(2), False):
            draws = run(*arguments, checkpoint=folder, progress=stop, **options)
    found, expected = ((d.positions, d.final_state) for d in (draws, whole))
    return {"resumed rows": relative_difference(found, expected)}


def identity():
    """An adaptation of nothing, which a stored warm-up carries all the same."""
    return Adaptation(lambda p: p, lambda a, step, state, info: (a, a), lambda a: a)


SHORT = [("gibbs", "float32", ["both"])]
RESUMED = [
    ("both", "chain", None, "chain"),
    ("chain", "both", "data", "both"),
    (None, "data", "both", None),
]
LONG = [(name, dtype, list(SHAPES)) for name in CASES for dtype in ("float32", "float64")]


def main(is_long):
    found = {}
    for case in LONG if is_long else SHORT:
        found |= one_step(*case)
    for mesh in SHAPES if is_long else ():
        found |= elementwise(mesh)
    found |= resumed_rows() if is_long else {}
    for meshes in RESUMED if is_long else ():
        found |= resumed(meshes)
    print(json.dumps(found))


if __name__ == "__main__":
    main("long" in sys.argv[1:])
