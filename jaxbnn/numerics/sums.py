"""Sums that do not cancel.

The difference of two log likelihoods of N terms is computed as the sum of the N
differences: in float32 with N = 50,000 the difference of two totals was wrong by 0.3
nats where the sum of differences was right to 1e-5.
"""

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxbnn.numerics.arrays import widened
from jaxbnn.numerics.checks import check_real


def sum_of_differences(
    proposed: Float[Array, "..."], current: Float[Array, "..."]
) -> Float[Array, ""]:
    """Return sum_i (proposed_i - current_i), the log ratio of two products of terms.

    Parameters
    ----------
    proposed, current
        One log-likelihood term per datum, of equal shapes. A scalar is one term. Whole numbers and
        those of fewer than 32 bits are summed in float32.

    Returns
    -------
    The sum of the differences, a scalar: -inf where a proposed term is -inf and the current
    ones are finite, NaN where either side holds a NaN or both are infinite.

    Raises
    ------
    ValueError
        Terms of different shapes.
    TypeError
        Terms that are not real numbers.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> float(sum_of_differences(jnp.array([1e8, 2.0]), jnp.array([1e8, 1.5])))
    0.5
    """
    check_real("proposed", proposed)
    check_real("current", current)
    if any(jnp.asarray(terms).dtype == bool for terms in (proposed, current)):
        raise TypeError(
            "sum_of_differences takes log-likelihood terms, but was given booleans; give floats."
        )
    shapes = {np.shape(proposed), np.shape(current)}
    if len(shapes) > 1 and shapes != {(), (1,)}:
        raise ValueError(
            "sum_of_differences needs as many proposed as current terms, one a datum, in one "
            f"shape, but their shapes are {np.shape(proposed)} and {np.shape(current)}."
        )
    return jnp.sum(widened(proposed) - widened(current))
