"""Positions of 16 bits: kernels compute in float32 and round what they keep."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxbnn import pcn, pcnl, underdamped_langevin
from jaxbnn.networks import init, mlp

CHAINS, STEPS = 2_000, 300


def nothing(u):
    return jnp.zeros((1,), u.dtype) * u[:1]


def half_a_normal(u):
    return -jnp.sum(u.astype(jnp.float32) ** 2) / 2


# On a standard normal prior; the third target has half of its variance, the last is the normal.
KERNELS = {
    "pcn": (partial(pcn, nothing, 0.1), 1.0),
    "pcn, small steps": (partial(pcn, nothing, 0.03), 1.0),
    "pcnl": (partial(pcnl, half_a_normal, 0.5), 0.5),
    "underdamped": (partial(underdamped_langevin, half_a_normal, 0.3, refreshment=0.02), 1.0),
}


@pytest.mark.parametrize("dtype", [jnp.bfloat16, jnp.float16])
@pytest.mark.parametrize("name", KERNELS)
def test_exact_starts_stay_exact(name, dtype):
    """By five standard errors; noise drawn by JAX in bfloat16 moved the mean to -0.23."""
    make_kernel, variance = KERNELS[name]
    kernel = make_kernel()
    key_start, key_state, key_steps = jax.random.split(jax.random.key(3), 3)
    starts = variance**0.5 * jax.random.normal(key_start, (CHAINS, 2))
    init_keys = jax.random.split(key_state, CHAINS)
    states = jax.vmap(kernel.init)(starts.astype(dtype), init_keys)

    def step(states, key):
        return jax.vmap(kernel.step)(jax.random.split(key, CHAINS), states)[0], None

    run = jax.jit(lambda states: jax.lax.scan(step, states, jax.random.split(key_steps, STEPS))[0])
    position = run(states).position
    assert position.dtype == dtype
    drawn = np.asarray(position, float)
    number = drawn.size
    assert abs(drawn.mean()) < 5 * (variance / number) ** 0.5
    rounding = 0.01 * variance
    assert abs(drawn.var() - variance) < 5 * variance * (2 / number) ** 0.5 + rounding


@pytest.mark.parametrize("parametrisation", ["ntk", "standard"])
def test_networks_of_halves_begin_at_zero_on_average(parametrisation):
    network = mlp((1000, 1000), parametrisation=parametrisation)
    weights = init(jax.random.key(0), network, jnp.bfloat16)[0]["w"]
    assert weights.dtype == jnp.bfloat16
    drawn = np.asarray(weights, float)
    assert abs(drawn.mean()) < 5 * drawn.std() / drawn.size**0.5


def test_leaves_may_be_numbers_and_momenta_halves():
    kernel = underdamped_langevin(lambda u: -(u["a"] ** 2) / 2, 0.1, refreshment=0.5)
    state = jax.jit(kernel.step)(jax.random.key(1), kernel.init({"a": 1.0}, jax.random.key(0)))[0]
    assert state.position["a"].dtype == jnp.float32
    half = kernel.init({"a": jnp.ones((), jnp.bfloat16)})
    half = half._replace(momentum={"a": jnp.ones((), jnp.bfloat16)})
    state = jax.jit(kernel.step)(jax.random.key(1), half)[0]
    assert state.momentum["a"].dtype == jnp.bfloat16
