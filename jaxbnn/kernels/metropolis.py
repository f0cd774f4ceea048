"""The Metropolis accept step, once, for all kernels.

Accepts with probability min(1, exp(log_ratio)). A log ratio that is NaN is never
accepted.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, DTypeLike, Float, PRNGKeyArray, PyTree

from jaxbnn.numerics import check_real
from jaxbnn.numerics.arguments import check_key
from jaxbnn.numerics.arrays import float_dtype


class MetropolisInfo(NamedTuple):
    """What happened in one step of a kernel that accepts by `metropolis`.

    Attributes
    ----------
    acceptance_rate
        min(1, exp(log_ratio)), 0 where the log ratio is NaN.
    is_accepted
        Whether the proposal became the new state.
    is_divergent
        Whether the log ratio is NaN: a log density, gradient, factor or moment of the proposal is
        no number. `jaxbnn.summary` counts such steps, as it does BlackJAX's divergences, and
        `jaxbnn.sample(..., debug=True)` stops at the first.
    """

    acceptance_rate: Float[Array, ""]
    is_accepted: Bool[Array, ""]
    is_divergent: Bool[Array, ""]


def metropolis(
    rng_key: PRNGKeyArray,
    log_ratio: Float[Array, ""],
    state: PyTree,
    proposal: PyTree,
    make_info: Callable[[Array, Array, Array], Any] = MetropolisInfo,
) -> tuple[PyTree, Any]:
    """Accept `proposal` with probability min(1, exp(log_ratio)), else keep `state`.

    Parameters
    ----------
    rng_key
        Key of the one uniform that is drawn.
    log_ratio
        Log of the Metropolis-Hastings ratio, a scalar. NaN rejects.
    state, proposal
        PyTrees of the same structure; whole states, so that caches move with positions.
    make_info
        Called with (acceptance_rate, is_accepted, is_divergent); the kernel's Info class.

    Returns
    -------
    The new state and the info.

    Raises
    ------
    TypeError
        A log ratio that is not a real number, or a key that is not a key.
    ValueError
        More than one log ratio.

    Notes
    -----
    Uniforms are multiples of 2^-23 in float32, in which log ratios of fewer bits are judged too:
    where the ratio is smaller than that, down to exp(-87), one proposal in 2^23 is accepted. A
    density that is infinite somewhere has no distribution: a chain that comes there stays.

    Examples
    --------
    >>> import jax
    >>> import jax.numpy as jnp
    >>> new, info = metropolis(jax.random.key(0), jnp.array(jnp.nan), jnp.zeros(2), jnp.ones(2))
    >>> new.tolist(), bool(info.is_accepted), float(info.acceptance_rate), bool(info.is_divergent)
    ([0.0, 0.0], False, 0.0, True)
    """
    check_key("rng_key", rng_key)
    check_real("log_ratio", log_ratio)
    if np.ndim(log_ratio) != 0:
        raise ValueError(
            f"log_ratio must be one number, but has shape {np.shape(log_ratio)}; chains go through "
            "jax.vmap."
        )
    probability = acceptance_probability(log_ratio)
    is_accepted = happens(uniforms(rng_key, (), probability.dtype), probability)
    new_state = jax.tree.map(lambda new, old: jnp.where(is_accepted, new, old), proposal, state)
    return new_state, make_info(probability, is_accepted, jnp.isnan(log_ratio))


def acceptance_probability(log_ratio: Float[Array, "..."]) -> Float[Array, "..."]:
    """Return min(1, exp(log_ratio)), 0 where it is NaN.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> acceptance_probability(jnp.array([1.0, -jnp.inf, jnp.nan])).tolist()
    [1.0, 0.0, 0.0]
    """
    return jnp.where(jnp.isnan(log_ratio), 0.0, jnp.exp(jnp.minimum(log_ratio, 0.0)))


def uniforms(
    rng_key: PRNGKeyArray, shape: tuple[int, ...], dtype: DTypeLike
) -> Float[Array, "..."]:
    """Draw from [0, 1) in `dtype`, or in float32 where that has fewer bits.

    In bfloat16 uniforms are multiples of 2^-7: an event of probability 0.003 happened at a rate of
    0.008.
    """
    return jax.random.uniform(rng_key, shape, float_dtype(dtype))


def happens(uniform: Float[Array, "..."], probability: Float[Array, "..."]) -> Bool[Array, "..."]:
    """Return whether the uniform is below the probability: never for 0, and always for 1.

    Examples
    --------
    >>> happens(jnp.array([0.2, 0.7]), jnp.array([0.5, 0.5], jnp.bfloat16)).tolist()
    [True, False]
    """
    return uniform < probability.astype(uniform.dtype)
