"""Flax and Equinox modules as networks: their posterior is that of the same network of ours."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest

import jaxbnn
from jaxbnn.targets import expand_prior

pytestmark = pytest.mark.third_party(reason="other people's layers promote ranks")

X = np.linspace(-1, 1, 8, dtype=np.float32).reshape(4, 2)
Y = np.array([[0.3], [-0.2], [0.9], [0.1]], np.float32)
OURS = jaxbnn.mlp((2, 3, 1), activation="tanh")


def linen():
    nn = pytest.importorskip("flax.linen")
    module = nn.Sequential([nn.Dense(3), nn.tanh, nn.Dense(1)])
    params = module.init(jax.random.key(0), X)["params"]

    def to_ours(p):
        first, last = p["layers_0"], p["layers_2"]
        return (
            {"w": first["kernel"], "b": first["bias"]},
            (),
            {"w": last["kernel"], "b": last["bias"]},
        )

    return params, lambda p, x: module.apply({"params": p}, x), to_ours


def nnx():
    nnx = pytest.importorskip("flax.nnx")

    class Net(nnx.Module):
        def __init__(self, rngs):
            self.first = nnx.Linear(2, 3, rngs=rngs)
            self.last = nnx.Linear(3, 1, rngs=rngs)

        def __call__(self, x):
            return self.last(jnp.tanh(self.first(x)))

    graph, state = nnx.split(Net(nnx.Rngs(0)), nnx.Param)
    params = nnx.to_pure_dict(state)

    def apply_fn(p, x):
        return nnx.merge(graph, nnx.State(p))(x)

    def to_ours(p):
        first, last = p["first"], p["last"]
        return (
            {"w": first["kernel"], "b": first["bias"]},
            (),
            {"w": last["kernel"], "b": last["bias"]},
        )

    return params, apply_fn, to_ours


def equinox():
    eqx = pytest.importorskip("equinox")
    module = eqx.nn.MLP(2, 1, width_size=3, depth=1, activation=jnp.tanh, key=jax.random.key(0))
    params, rest = eqx.partition(module, eqx.is_inexact_array)

    def to_ours(p):
        first, last = p.layers
        return ({"w": first.weight.T, "b": first.bias}, (), {"w": last.weight.T, "b": last.bias})

    return params, lambda p, x: jax.vmap(eqx.combine(p, rest))(x), to_ours


@pytest.mark.long
@pytest.mark.parametrize(
    "make",
    [
        pytest.param(linen, marks=pytest.mark.long),
        nnx,
        pytest.param(equinox, marks=pytest.mark.long),
    ],
    ids=["linen", "nnx", "equinox"],
)
def test_posterior_and_draws_of_a_module(make):
    params, apply_fn, to_ours = make()
    prior = expand_prior(dist.Normal(0.0, 2.0), params)
    posterior = jaxbnn.Posterior(apply_fn, prior, jaxbnn.Gaussian(0.5), X, Y)
    ours = jaxbnn.Posterior(OURS, dist.Normal(0.0, 2.0), jaxbnn.Gaussian(0.5), X, Y)
    np.testing.assert_allclose(
        posterior.log_density(params), ours.log_density(to_ours(params)), rtol=1e-5
    )
    starts = posterior.sample_prior(jax.random.key(1), (2,))
    assert jax.tree.structure(starts) == jax.tree.structure(params)
    kernel = jaxbnn.pcn(posterior.log_likelihood, 0.3, 4.0)
    draws = jaxbnn.sample(jax.random.key(2), kernel, starts, 5, progress=False)
    outputs = jax.vmap(lambda p: ours.outputs(to_ours(p), X))(
        jax.tree.map(lambda leaf: jnp.asarray(leaf[:, -1]), draws.positions)
    )
    predicted = jaxbnn.predict(
        jax.tree.map(lambda leaf: leaf[:, -1:], draws.positions), X, posterior
    )
    np.testing.assert_allclose(predicted.mean, outputs.mean(0), rtol=1e-4, atol=1e-5)
