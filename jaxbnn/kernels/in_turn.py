"""Chains that take their steps one after another, where each has more data than a cache holds."""

import jax
import jax.extend
from blackjax.base import SamplingAlgorithm
from jax.custom_batching import sequential_vmap

from jaxbnn.kernels.arguments import check_kernel, check_step


def in_turn(kernel: SamplingAlgorithm) -> SamplingAlgorithm:
    """Have chains under `jax.vmap` take the step one after another instead of all at once.

    The law and the random numbers of each chain are those of the kernel given (the law alone with
    keys of "rbg", of which JAX draws a whole batch from the first); sums may be rounded otherwise.
    On a CPU it pays where what all chains read in a step is more than the cache holds (a data set a
    chain, Gibbs latents), or where chains wait for the longest (trees of NUTS), and each step is
    long: wrap the kernel in `repeat` first. On a GPU, and for small networks on the same data,
    chains that step together are faster.

    Parameters
    ----------
    kernel
        Any; what it has computed of data or parameters, other for each chain or not, is not
        computed again.

    Returns
    -------
    The kernel, with the same State and Info. Its chains are to live on one device.

    Raises
    ------
    TypeError
        kernel is not a kernel.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> from jaxbnn import pcn, repeat
    >>> kernel = in_turn(repeat(pcn(lambda u: -u[0], 0.5), 50))
    >>> states = jax.vmap(kernel.init)(jnp.zeros((4, 2)))
    >>> states, infos = jax.vmap(kernel.step)(jax.random.split(jax.random.key(0), 4), states)
    >>> infos.infos.is_accepted.shape
    (4, 50)
    """
    check_kernel("kernel", kernel)

    def step(rng_key, state):
        check_step(rng_key, state)
        # What the step closes over may differ from chain to chain, so that it must be an argument.
        traced, shapes = jax.make_jaxpr(kernel.step, return_shape=True)(rng_key, state)

        @sequential_vmap
        def run(constants, leaves):
            return jax.extend.core.jaxpr_as_fun(traced.replace(consts=constants))(*leaves)

        leaves = run(list(traced.consts), jax.tree.leaves((rng_key, state)))
        return jax.tree.unflatten(jax.tree.structure(shapes), leaves)

    return SamplingAlgorithm(kernel.init, step)
