"""Our kernels inside BlackJAX's population samplers.

Every kernel here is a `blackjax.SamplingAlgorithm`, so `blackjax.util.run_inference_algorithm` and
`thin_algorithm` take it as it is. SMC makes a kernel anew for each temperature, from parts.
"""

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
from blackjax.base import SamplingAlgorithm
from jaxtyping import ArrayLike


def inner_kernel(
    kernel_of: Callable[..., SamplingAlgorithm], **parameters: ArrayLike
) -> dict[str, Any]:
    """Return a kernel in the parts that BlackJAX's SMC samplers ask for.

    Parameters
    ----------
    kernel_of
        `kernel_of(log_density_fn, **parameters)` is the kernel at one temperature. pCN wants the
        density relative to its Gaussian: `pcn(lambda u: log_density_fn(u) - log_prior(u), ...)`.
    parameters
        Numbers, shared by all particles, or arrays with the particle as their leading axis.

    Returns
    -------
    `mcmc_step_fn`, `mcmc_init_fn` and `mcmc_parameters`, to be passed on by `**`.

    Examples
    --------
    >>> import blackjax, jax, jaxbnn
    >>> parts = inner_kernel(
    ...     lambda log_density, step_size: jaxbnn.underdamped_langevin(log_density, step_size, 1.0),
    ...     step_size=0.5,
    ... )
    >>> smc = blackjax.tempered_smc(
    ...     lambda u: -0.5 * u**2, lambda u: -2.0 * (u - 1) ** 2, num_mcmc_steps=3,
    ...     resampling_fn=blackjax.smc.resampling.systematic, **parts,
    ... )
    >>> state = smc.init(jax.random.normal(jax.random.key(0), (100,)))
    >>> state.particles.shape
    (100,)

    The next is `smc.step(rng_key, state, 0.5)`, at half the likelihood.
    """
    # BlackJAX shares those of length one among all particles.
    arrays = {name: jnp.atleast_1d(jnp.asarray(value)) for name, value in parameters.items()}

    def mcmc_init_fn(position, log_density_fn):
        # What a kernel caches at a position does not depend on its parameters.
        first = {name: value[0] for name, value in arrays.items()}
        return kernel_of(log_density_fn, **first).init(position)

    def mcmc_step_fn(rng_key, state, log_density_fn, **own):
        return kernel_of(log_density_fn, **own).step(rng_key, state)

    return {
        "mcmc_step_fn": mcmc_step_fn,
        "mcmc_init_fn": mcmc_init_fn,
        "mcmc_parameters": arrays,
    }
