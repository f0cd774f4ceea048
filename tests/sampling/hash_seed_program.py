"""Runs whose data, parameters, states or draws hold what Python orders by its hash seed.

    PYTHONHASHSEED=1 python -m tests.sampling.hash_seed_program FOLDER stop long
    PYTHONHASHSEED=2 python -m tests.sampling.hash_seed_program FOLDER finish long

Prints one line of JSON: a digest of each run's numbers, or what it was refused with.
"""

import dataclasses
import functools
import hashlib
import json
import sys
from typing import Any, NamedTuple

import blackjax
import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist

import jaxbnn
from jaxbnn.interop.numpyro import posterior_from_numpyro
from jaxbnn.networks import init, mlp
from tests.sampling.small_run import even_warm_up, leaves, stop_after
from tests.sampling.tiny import WalkState, walk

KEY, CHAINS = jax.random.key(3), 2
NETWORK = mlp((2, 2, 1), "tanh")
X = np.linspace(-1, 1, 12, dtype=np.float32).reshape(6, 2)
Y = np.sin(3 * X[:, :1])
PRIOR = (
    {"w": dist.StudentT(4.0, 0.0, 1.0), "b": dist.Normal(0.0, 1.0)},
    (),
    {"w": dist.Laplace(0.0, 0.5), "b": dist.Normal(0.0, 2.0)},
)
STARTS = jax.tree.map(
    lambda *chains: jnp.stack(chains), *[init(jax.random.key(c), NETWORK) for c in range(CHAINS)]
)
FLAT = np.zeros((CHAINS, 2), np.float32)


def posterior():
    return jaxbnn.Posterior(NETWORK, PRIOR, jaxbnn.Gaussian(0.3), X, Y)


def of_posterior(parameters, data):
    return jaxbnn.pcn(data.log_likelihood, 0.3)


def hmc_of_posterior(parameters, data):
    reference = jax.tree.map(jnp.zeros_like, jax.tree.map(lambda leaf: leaf[0], STARTS))
    log_density = data.log_density_from(reference)
    metric = jnp.ones(sum(leaf.size for leaf in jax.tree.leaves(reference)))
    return blackjax.hmc(log_density, parameters["step_size"], metric, 3)


def numpyro_model(scale, y):
    mean = numpyro.sample("mean", dist.StudentT(3.0, 0.0, scale))
    with numpyro.plate("rows", len(y)):
        numpyro.sample("y", dist.Cauchy(mean, 1.0), obs=y)


def of_model(parameters, data):
    return blackjax.mala(data.log_density, 0.3)


def of_distributions(parameters, data):
    """Parameters, a chain each, and data that are distributions themselves, one in another."""
    log_density = lambda x: data["all"].log_prob(x) + jnp.sum(parameters["own"].log_prob(x))  # noqa: E731
    return walk(log_density, parameters["step_size"])


class Holds(NamedTuple):
    position: Any
    log_density: Any
    family: Any


def holding(parameters, data):
    """A kernel whose state holds a distribution."""
    inner = walk(lambda x: jnp.sum(data.log_prob(x)))

    def family(x):
        return dist.Normal(x, jnp.exp(x)).expand((2,))

    def init(position, rng_key=None):
        return Holds(*inner.init(position), family(position))

    def step(rng_key, state):
        new, info = inner.step(rng_key, WalkState(*state[:2]))
        return Holds(*new, family(new.position)), info

    return blackjax.SamplingAlgorithm(init, step)


@functools.partial(
    jax.tree_util.register_dataclass, data_fields=["slope"], meta_fields=["activation"]
)
@dataclasses.dataclass(frozen=True)
class Line:
    slope: jax.Array
    activation: Any


def of_line(parameters, data):
    return walk(lambda x: jnp.sum(data.activation(data.slope) * x) - jnp.sum(x**2))


def gibbs(parameters, data):
    return jaxbnn.gibbs_sampler(data["model"], data["x"], data["y"])


def cases():
    model = jaxbnn.IntermediateNoise(mlp((2, 2, 1)), 0.1)
    start = model.random_position(jax.random.key(0), X, Y)
    own = jax.vmap(lambda s: dist.StudentT(4.0, 0.0, s))(jnp.arange(1.0, 1 + CHAINS))
    shared = dist.Independent(dist.Laplace(np.zeros(2), np.array([1.0, 2.0])), 1)
    masked = dist.MaskedDistribution(dist.Cauchy(np.zeros(2), 1.0), np.array([True, False]))
    adapt = {"num_warmup": 5, "adapt": jaxbnn.dual_averaging(0.6)}
    steps = {"step_size": 0.1}
    values = dict.fromkeys({"one", "two", "three", "four"}, np.ones(2, np.float32))  # set order
    predictive = lambda state, info: posterior().predictive(state.position, X)  # noqa: E731
    return {
        "a Posterior": (of_posterior, STARTS, {"data": posterior()}),
        "HMC of a Posterior": (
            hmc_of_posterior, STARTS, {"data": posterior(), "parameters": steps} | adapt,
        ),
        "a NumPyro model": (
            of_model, {"mean": np.zeros(CHAINS, np.float32)},
            {"data": posterior_from_numpyro(numpyro_model, 1.0, Y[:, 0])},
        ),
        "a Gibbs model": (
            gibbs, jax.tree.map(lambda leaf: jnp.stack([leaf, -leaf]), start),
            {"data": {"model": model, "x": X, "y": Y}},
        ),
        "parameters of distributions": (
            of_distributions, FLAT,
            {"data": {"all": shared}, "parameters": steps | {"own": own}} | adapt,
        ),
        "a state of distributions": (holding, FLAT, {"data": masked}),
        "predictives collected": (
            of_posterior, STARTS,
            {"data": posterior(), "collect": predictive},
        ),
        "a dict in the order of a set": (
            lambda p, d: walk(lambda x: jnp.sum(d["two"] * x) - jnp.sum(x**2)), FLAT,
            {"data": values},
        ),
        "static functions": (
            of_line, FLAT, {"data": Line(jnp.ones(2), functools.partial(jnp.clip, max=0.5))},
        ),
    }  # fmt: skip


def digest(draws) -> str:
    seen = hashlib.sha256()
    for leaf in sorted(leaf.tobytes() for leaf in leaves(draws).values()):
        seen.update(leaf)
    return seen.hexdigest()


SHORT = ("parameters of distributions",)


def main(folder: str, what: str, size: str = "long") -> None:
    print(json.dumps(digests(folder, what, size)))


def digests(folder: str, what: str, size: str) -> dict[str, str]:
    found = {}
    for name, (kernel, starts, options) in cases().items():
        if size == "short" and name not in SHORT:
            continue
        options = {"num_samples": 6, "chunk_size": 2, "progress": False} | options
        if what != "whole":
            options["checkpoint"] = f"{folder}/{name}"
        if what == "stop":
            options["progress"] = stop_after(2)
        try:
            with even_warm_up():
                found[name] = digest(jaxbnn.sample(KEY, kernel, starts, **options))
        except ValueError as error:
            found[name] = str(error)
    return found


if __name__ == "__main__":
    main(*sys.argv[1:])
