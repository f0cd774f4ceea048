"""What a block of NumPyro's `Gibbs` may move: its own sites, in supports that it alone moves."""

from collections.abc import Callable, Collection
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpyro.infer import init_to_uniform

from jaxbnn.interop.numpyro_trace import Trace, bijection, check_sites, is_latent
from jaxbnn.numerics import is_concrete

# Values of the other blocks' sites at which supports are compared.
_PLACES = 4


def check_block(
    trace_of: Callable[..., Trace], own: Collection[str], others: Collection[str]
) -> None:
    """Raise ValueError unless a block can move its `own` sites, given those of `others`.

    `trace_of(substitute, key)` is the model's trace, while it has nothing of other blocks.
    """
    traces = [trace_of(_at(own, place), jax.random.key(place)) for place in range(_PLACES)]
    latent = {name for name, site in traces[0].items() if is_latent(site)}
    if set(own) != latent - set(others):
        raise ValueError(
            f"the block is given values of the sites {sorted(own)}, but those that it moves are "
            f"{sorted(latent - set(others))}; give each of them a value, and no other."
        )
    check_sites(traces[0], "unconstrained", own)
    for name in own:
        values = [trace[name]["value"] for trace in traces]
        # A model may hold traced numbers besides its arguments.
        if is_concrete(values) and not all(np.array_equal(values[0], v) for v in values[1:]):
            raise ValueError(
                f"the support of the site {name!r} depends on sites of other blocks, whose moves "
                "would move this site, too; give it and those to one block of Gibbs."
            )


def _at(own: Collection[str], place: int) -> Callable[[dict], Any]:
    """Return what puts own sites at one unconstrained point, and others at one of several."""

    def substitute(site: dict) -> Any:
        if not is_latent(site):
            return None
        fn = site["fn"]
        shape = fn.shape(site["kwargs"]["sample_shape"])
        if fn.support.is_discrete:
            if not fn.has_enumerate_support:
                return None  # drawn, by another key at each place
            values = fn.enumerate_support(expand=False)
            return jnp.broadcast_to(values[place % len(values)], shape)
        way = bijection(site)  # raises where NumPyro has none
        if site["name"] not in own:
            return init_to_uniform(site)
        return way(jnp.full(way.inverse_shape(shape), 0.3))

    return substitute
