"""The devices that a fit's chains are spread over: all that JAX has here, as far as they divide."""

import jax
from jax.sharding import Mesh

from jaxbnn.sampling.devices.placement import CHAIN


def devices_for(num_chains: int) -> int:
    """Return how many of this process's devices take equally many chains each.

    Examples
    --------
    >>> devices_for(1)
    1
    """
    most = min(jax.local_device_count(), num_chains)
    return next(number for number in range(most, 0, -1) if num_chains % number == 0)


def mesh_for(num_chains: int) -> Mesh | None:
    """Return a mesh of `devices_for` devices, as `sample` takes it; None of a single one."""
    number = devices_for(num_chains)
    if number == 1:
        return None
    return jax.make_mesh((number,), (CHAIN,), devices=jax.local_devices()[:number])
