"""A random step size for each step, so that no trajectory fits a period of the target.

    eps ~ U((1 - jitter) step_size, (1 + jitter) step_size), then one step with eps.

HMC of a fixed length comes back to where it started wherever the length is a multiple of a
period, and is stuck where the curvature makes the step unstable; a random step size is known to
cure the first (Neal 2011, section 5.4.2.2) and to soften the second. As a mixture of kernels, with
weights that do not look at the state, it leaves the target invariant.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from blackjax.base import SamplingAlgorithm
from jaxtyping import Array, ArrayLike, Float

from jaxbnn.kernels.arguments import check_kernel, check_one_number, check_step, check_step_size
from jaxbnn.numerics import is_concrete
from jaxbnn.numerics.arguments import check_function


def jittered(
    make_kernel: Callable[[Array], SamplingAlgorithm],
    step_size: ArrayLike,
    *,
    jitter: ArrayLike = 0.5,
) -> SamplingAlgorithm:
    """Run a kernel with a new step size in each step, uniform around `step_size`.

    Parameters
    ----------
    make_kernel
        `make_kernel(step_size) -> SamplingAlgorithm`, with the same target and the same kind of
        state for all step sizes: what a state caches must not depend on the step size.
    step_size
        The middle, positive; may be traced, and tuned by `dual_averaging` or `window_adaptation`.
    jitter
        Half the width of the interval over its middle, 0 <= jitter < 1. May be traced.

    Returns
    -------
    The kernel, with the state and Info of `make_kernel`'s.

    Raises
    ------
    ValueError
        A step size that is not positive, a jitter outside [0, 1).

    Notes
    -----
    What does not depend on the step size is best made once, outside of `make_kernel`: for
    BlackJAX's HMC, pass the `Metric` and not the matrix.

    Examples
    --------
    >>> import blackjax
    >>> from blackjax.mcmc.metrics import default_metric
    >>> metric, log_density = default_metric(jnp.ones(2)), lambda x: -jnp.sum(x**2) / 2
    >>> kernel = jittered(lambda eps: blackjax.hmc(log_density, eps, metric, 8), 0.7)
    >>> state, info = jax.jit(kernel.step)(jax.random.key(0), kernel.init(jnp.zeros(2)))
    >>> float(info.acceptance_rate) > 0.5
    True
    """
    check_function("make_kernel", make_kernel, "give a function from a step size to a kernel")
    check_step_size(step_size)
    check_one_number("jitter", jitter)
    if is_concrete(jitter) and not 0 <= np.asarray(jitter) < 1:
        raise ValueError(f"jitter must be at least 0 and less than 1, but is {jitter}.")

    def at(size):
        kernel = make_kernel(size)
        check_kernel("what make_kernel returns", kernel)
        return kernel

    def init(position, rng_key=None):
        return at(as_float(step_size)).init(position, rng_key)

    def step(rng_key, state):
        check_step(rng_key, state)
        key_size, key_step = jax.random.split(rng_key)
        middle = as_float(step_size)
        away = jax.random.uniform(key_size, (), middle.dtype, minval=-1, maxval=1)
        factor = 1 + jnp.asarray(jitter, middle.dtype) * away
        return at(middle * factor).step(key_step, state)

    return SamplingAlgorithm(init, step)


def as_float(number: ArrayLike) -> Float[Array, ""]:
    """Return a number in its own floating-point type; a whole number in the default one."""
    array = jnp.asarray(number)
    is_float = jnp.issubdtype(array.dtype, jnp.floating)
    return array if is_float else array.astype(jnp.result_type(float))
