"""Chains of the Gibbs sampler in float32 that become NaN, from exact starts."""

import jax
import jax.numpy as jnp

from jaxbnn.gibbs import IntermediateNoise, gibbs_sampler
from jaxbnn.networks import mlp

TITLE = "float32 Gibbs with collinear features"
N, CHAINS, SWEEPS = 20, 256, 10
CASES = (
    ("sign", 1e-6, 1.0),
    ("sign", 1e-7, 1.0),
    ("sign", 1e-8, 1.0),
    ("identity", 1e-4, 1e3),
    ("identity", 1e-7, 1.0),
    ("identity", 1e-7, 1e-3),
)


def chain(activation):
    """Return the compiled (keys, Delta, x) -> whether each chain became NaN."""

    def is_lost(key, delta, x):
        keys = jax.random.split(key, 3)
        model = IntermediateNoise(mlp((2, 3, 1), activation), delta)
        position, y = model.simulate(keys[0], model.sample_prior(keys[1]), x)
        kernel = gibbs_sampler(model, x, y)

        def sweep(i, state):
            return kernel.step(jax.random.fold_in(keys[2], i), state)[0]

        state = jax.lax.fori_loop(0, SWEEPS, sweep, kernel.init(position))
        sums = [jnp.sum(leaf) for leaf in jax.tree.leaves(state.position)]
        return ~jnp.all(jnp.isfinite(jnp.stack(sums)))

    return jax.jit(jax.vmap(is_lost, in_axes=(0, None, None)))


def measure() -> list[tuple[str, str]]:
    """Count chains that become NaN; look at the weights of a repeated input."""
    keys = jax.random.split(jax.random.key(1), CHAINS)
    x = jax.random.normal(jax.random.key(0), (N, 2))
    programs = {activation: chain(activation) for activation in ("sign", "identity")}
    found = []
    for activation, delta, scale in CASES:
        number = int(programs[activation](keys, jnp.float32(delta), scale * x).sum())
        words = f"{activation}, Delta = {delta:g}, inputs times {scale:g}"
        found.append((f"NaN within {SWEEPS} sweeps: {words}", f"{number} of {CHAINS}"))
    return [*found, prior_along_repeated_inputs(keys, x)]


def prior_along_repeated_inputs(keys, x) -> tuple[str, str]:
    """Two inputs are equal: the difference of their weights has its prior, whatever the data."""
    x = 30 * x.at[:, 1].set(x[:, 0])
    model = IntermediateNoise(mlp((2, 1, 1)), 1e-8)

    def difference(key):
        keys = jax.random.split(key, 3)
        position, y = model.simulate(keys[0], model.sample_prior(keys[1]), x)
        kernel = gibbs_sampler(model, x, y)
        state, _ = kernel.step(keys[2], kernel.init(position))
        w = state.position.params[0]["w"][:, 0]
        return (w[0] - w[1]) / jnp.sqrt(2.0)

    spread = jnp.std(jax.jit(jax.vmap(difference))(keys))
    words = "standard deviation of w1 - w2 of two equal inputs over the prior's (1 is right)"
    return (words, f"{float(spread):.3f}")
