"""Many rows and chains on a CPU: the network applied to blocks of rows that stay in the cache.

Chains side by side have the activations of all rows in memory at once, and a gradient reads and
writes them several times. With more of them than the caches hold, a core waits for memory: ten
chains of four layers of 16 units at 14,000 rows take three fifths of the time in blocks of 512
rows. With fewer, blocks cost more than they save.
"""

import dataclasses
import math

import jax
import jax.numpy as jnp
from jax.sharding import Mesh
from jaxtyping import Array, Float, PyTree, Shaped

from jaxbnn.networks import Network, apply, layer_shapes
from jaxbnn.targets import Posterior

_ROWS = 512
# Numbers of the widest layer, all rows and all chains together: 6 MB of float32. Chains are not
# counted by device, so that the draws do not depend on how many devices there are.
_FEWEST_NUMBERS = 1_500_000


def in_row_blocks(posterior: Posterior, num_chains: int, mesh: Mesh | None = None) -> Posterior:
    """Return the posterior with its network applied to a block of rows at a time, where that pays.

    Its log density is the same up to rounding. Gradients compute each block's activations anew.

    Parameters
    ----------
    posterior
        The posterior; as it is where its network is not a `Network`, whose rows might not be
        independent, and where it runs on anything but a CPU.
    num_chains
        Chains that run side by side.
    mesh
        As in `sample`.

    Returns
    -------
    A posterior whose `network` is a function where there are blocks: for kernels, not for what
    needs to know the layers.

    Examples
    --------
    >>> import jaxbnn
    >>> network = jaxbnn.mlp((1, 100, 1))
    >>> x = jnp.linspace(-1, 1, 5000)[:, None]
    >>> prior = jaxbnn.normal_prior(network)
    >>> posterior = jaxbnn.Posterior(network, prior, jaxbnn.Gaussian(0.3), x, x)
    >>> in_row_blocks(posterior, 2) is posterior
    True
    >>> blocked = in_row_blocks(posterior, 10)
    >>> start = posterior.sample_prior(jax.random.key(0))
    >>> bool(jnp.isclose(blocked.log_density(start), posterior.log_density(start), rtol=1e-4))
    True
    """
    device = jax.devices()[0] if mesh is None else mesh.devices.flat[0]
    leaves, network = posterior.tree_flatten()
    if not isinstance(network, Network) or device.platform != "cpu":
        return posterior
    widest = max(map(math.prod, layer_shapes(network)))
    if num_chains * len(posterior.x) * widest < _FEWEST_NUMBERS:
        return posterior
    return Posterior.tree_unflatten(InRowBlocks(network, _ROWS), leaves)


@dataclasses.dataclass(frozen=True)
class InRowBlocks:
    """A network as a function of its parameters and inputs that takes so many rows at a time."""

    network: Network
    num_rows: int

    def __call__(self, params: PyTree, x: Shaped[Array, "n ..."]) -> Float[Array, "n ..."]:
        """Return the outputs, in the order of the rows."""
        num_blocks = -(-len(x) // self.num_rows)
        # Rows to fill the last block up: any, since what comes of them is dropped.
        missing = num_blocks * self.num_rows - len(x)
        whole = jnp.concatenate([x, jnp.repeat(x[:1], missing, axis=0)])
        blocks = whole.reshape(num_blocks, self.num_rows, *x.shape[1:])
        apply_block = jax.checkpoint(lambda block: apply(self.network, params, block))
        outputs = jax.lax.map(apply_block, blocks)
        return outputs.reshape(-1, *outputs.shape[2:])[: len(x)]
