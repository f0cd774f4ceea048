"""Gibbs sweeps over features that are constant, repeated, zero or of any scale, in float32."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
from hypothesis import strategies as st

from jaxbnn.gibbs import IntermediateNoise, gibbs_sampler
from jaxbnn.networks import mlp
from tests.kit.hostile import Call

ACTIVATIONS = ("identity", "relu", "leaky_relu", "abs", "sign", "heaviside", "hard_tanh")
FEATURES = ("own features", "constant feature", "repeated feature", "zero feature")
SCALES = (1e-3, 1.0, 1e3)
DELTAS = (1e-2, 1e-4, 1e-6, 1e-7, 1e-8)
N, CHAINS, SWEEPS = 20, 16, 5


@functools.lru_cache
def _program(activation: str, output: str):
    """Return the compiled (seed, Delta, x) -> positions and divergences after a few sweeps."""
    network = mlp((2, 3, 3 if output == "probit" else 1), activation)

    def chain(key, delta, x):
        keys = jax.random.split(key, 3)
        model = IntermediateNoise(network, delta, output=output)
        position, y = model.simulate(keys[0], model.sample_prior(keys[1]), x)
        kernel = gibbs_sampler(model, x, y)

        def sweep(carry, key):
            state, info = kernel.step(key, carry)
            return state, info.is_divergent

        state, failed = jax.lax.scan(
            sweep, kernel.init(position), jax.random.split(keys[2], SWEEPS)
        )
        return state.position, jnp.where(failed, jnp.nan, 0)

    return jax.jit(jax.vmap(chain, in_axes=(0, None, None)))


def _sweeps(activation, output, features, scale, delta, seed):
    x = np.random.default_rng(seed).normal(size=(N, 2)).astype(np.float32)
    second = {"constant feature": 1.0, "repeated feature": x[:, 0], "zero feature": 0.0}
    x[:, 1] = second.get(features, x[:, 1])
    keys = jax.random.split(jax.random.key(seed), CHAINS)
    return _program(activation, output)(keys, jnp.float32(delta), np.float32(scale) * x)


def _make(choice):
    (activation, output, features, scale, delta), seed = choice
    name = f"gibbs_sampler, {activation}, {output}, Delta = {delta:g}"
    kind = f"{features}, inputs times {scale:g}"
    return seed, Call(name, kind, lambda: _sweeps(activation, output, features, scale, delta, seed))


_CHOICES = [
    (activation, output, features, scale, delta)
    for activation in ACTIVATIONS
    for output in ("regression", "probit")
    for features in FEATURES
    for scale in SCALES
    for delta in DELTAS
]
FAMILIES = {
    "collinear features in Gibbs sweeps": st.tuples(
        st.sampled_from(_CHOICES), st.integers(0, 2**31 - 1)
    ).map(_make)
}
