"""What a kernel has learnt, after it was put into a composition."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from blackjax.base import SamplingAlgorithm

import jaxbnn
from jaxbnn.kernels import metropolis

TITLE = "An adaptive kernel's own state in a composition"
STEPS = 200


class Undeclared(NamedTuple):
    """A State class that says nothing of its fields."""

    position: Any
    log_density: Any
    log_scale: Any


class Declared(NamedTuple):
    """The same, with the field that is its own named."""

    position: Any
    log_density: Any
    log_scale: Any
    auxiliary = ("log_scale",)


def _adaptive(make_state) -> SamplingAlgorithm:
    """A random walk that learns the logarithm of its scale, from -4."""
    log_density = lambda x: -0.5 * jnp.sum(x**2)  # noqa: E731

    def init(position, rng_key=None):
        return make_state(position, log_density(position), jnp.float32(-4.0))

    def step(rng_key, state):
        key_proposal, key_accept = jax.random.split(rng_key)
        noise = jax.random.normal(key_proposal, state.position.shape)
        new = state.position + jnp.exp(state.log_scale) * noise
        ratio = log_density(new) - state.log_density
        old = (state.position, state.log_density)
        (x, value), info = metropolis(key_accept, ratio, old, (new, log_density(new)))
        log_scale = state.log_scale + 0.1 * (info.acceptance_rate - 0.44)
        return make_state(x, value, log_scale), info

    return SamplingAlgorithm(init, step)


def _learnt(make_state, compose) -> str:
    kernel = compose(_adaptive(make_state))
    try:
        state = kernel.init(jnp.zeros(2))
        step = jax.jit(kernel.step)
        for t in range(STEPS):
            state, _ = step(jax.random.key(t), state)
    except (TypeError, ValueError) as error:
        return f"refused: {error}"
    except Exception as error:
        return f"failed: {type(error).__name__}"
    kinds = (Undeclared, Declared)
    states = jax.tree.leaves(state, is_leaf=lambda leaf: isinstance(leaf, kinds))
    (own,) = (leaf for leaf in states if isinstance(leaf, kinds))
    return f"{float(own.log_scale):.2f}"


def measure() -> list[tuple[str, str]]:
    """Return log scales after some steps, alone and composed, with and without a declaration."""
    walk = jaxbnn.pcn(lambda x: jnp.zeros(()), 0.5)
    ways = {
        "alone": lambda kernel: kernel,
        "in cycle": lambda kernel: jaxbnn.cycle(kernel, walk),
        "in mix": lambda kernel: jaxbnn.mix([kernel, walk], [1.0, 0.0]),
    }
    classes = {"no `auxiliary`": Undeclared, "`auxiliary` declared": Declared}
    return [
        (f"log scale after {STEPS} steps from -4, {way}, {name}", _learnt(make_state, compose))
        for way, compose in ways.items()
        for name, make_state in classes.items()
    ]
