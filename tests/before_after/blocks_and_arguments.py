"""Blocks of positions, and arguments of kernels and networks that are of no use."""

import dataclasses
import traceback

import jax
import jax.numpy as jnp
import numpyro.distributions as dist

import jaxbnn
from jaxbnn import networks

TITLE = "Blocks by path, and arguments of the wrong kind"
KEY = jax.random.key(0)


@jax.tree_util.register_dataclass
@dataclasses.dataclass
class _Layer:
    w: jax.Array
    b: jax.Array


def _moved(position, block) -> str:
    def kernel_of(whole):
        log_density = lambda v: -sum(jnp.sum(x**2) for x in jax.tree.leaves(whole(v)))  # noqa: E731
        return jaxbnn.pcn(log_density, 0.5)

    kernel = jaxbnn.on_block(kernel_of, block)
    state, _ = kernel.step(KEY, kernel.init(position))
    pairs = zip(jax.tree.leaves(state.position), jax.tree.leaves(position), strict=True)
    return f"{sum(bool((a != b).any()) for a, b in pairs)} array(s) moved"


def _told(call) -> str:
    try:
        return str(call())
    except (TypeError, ValueError) as error:
        words = " ".join(str(error).split())
        is_ours = "/jaxbnn/" in traceback.extract_tb(error.__traceback__)[-1].filename
        return f"{'refused' if is_ours else 'failed'}: {words[:160]}"
    except Exception as error:
        return f"failed: {type(error).__name__}: {' '.join(str(error).split())[:120]}"


def measure() -> list[tuple[str, str]]:
    """Return what came of each call."""
    ones = jnp.ones(2)
    nested = {"encoder": {"w": ones, "b": ones}, "decoder": ones}
    network, prior = jaxbnn.mlp((2, 3, 1)), dist.Normal(0.0, 1.0)
    log_density = lambda x: -jnp.sum(x**2)  # noqa: E731
    calls = {
        'on_block(..., ("encoder", "w"))': lambda: _moved(nested, ("encoder", "w")),
        'on_block(..., ["encoder", "decoder"])': lambda: _moved(nested, ["encoder", "decoder"]),
        'on_block(..., "w") of a dataclass': lambda: _moved(_Layer(ones, ones), "w"),
        "networks.init(network, key)": lambda: networks.init(network, KEY),
        "networks.init(0, network)": lambda: networks.init(0, network),
        "symmetry_moves(function, prior)": lambda: jaxbnn.symmetry_moves(log_density, prior),
        "redraw_units(network, log_likelihood, prior)": lambda: jaxbnn.redraw_units(
            network, prior, prior
        ).init(networks.init(KEY, network)),
        "cycle([kernel, kernel])": lambda: jaxbnn.cycle([jaxbnn.pcn(log_density, 0.5)] * 2).init(
            ones
        ),
        "pcn(0.5, log_likelihood)": lambda: jaxbnn.pcn(0.5, log_density),
        "smmala of terms": lambda: jaxbnn.smmala(lambda x: -(x**2), 0.5).init(ones),
        'Dense(3, "relu")': lambda: networks.Dense(3, "relu"),
        "jittered with step_size=1": lambda: bool(
            jaxbnn.jittered(lambda eps: jaxbnn.pcn(log_density, eps / 2), 1)
            .step(KEY, jaxbnn.pcn(log_density, 0.5).init(ones))[1]
            .is_accepted
        ),
    }
    return [(name, _told(call)) for name, call in calls.items()]
