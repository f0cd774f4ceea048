"""Second moments of blocks of draws, and how large a difference between them chance explains."""

from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxbnn.numerics.products import product

# Part of each block that is left out at its start, so that blocks are independent of each other.
_GAP = 0.2


class Moments(NamedTuple):
    """Estimates of one covariance matrix, one a block, and the means of the blocks.

    Attributes
    ----------
    second
        (chain, block, p, p). Their mean is the unbiased covariance of all draws.
    first
        (chain, block, p) about the mean of all draws.
    """

    second: Float[Array, "chain block p p"]
    first: Float[Array, "chain block p"]


class Side(NamedTuple):
    """What is known of the error of a mean over blocks.

    Attributes
    ----------
    rest
        (block, entry) deviations from the mean, scaled so that their sum of squares estimates
        the mean square error of the mean over all blocks.
    freedom
        Degrees of freedom of each entry's error.
    """

    rest: Float[Array, "block entry"]
    freedom: int


def block_moments(draws: Float[Array, "chain draw p"], num_blocks: int) -> Moments:
    """Estimate the covariance from each block, about the mean of all chains.

    About the mean of its own chain, the blocks of a chain would share the error of that mean, and
    the spread between chains would not be that between blocks. With C_k the second moments of
    block k of n about the mean of all draws, s_k its mean and Q = sum_k s_k s_k^T, the estimates
    are

        C_k + 2 s_k s_k^T / (n - 2) - Q / ((n - 1)(n - 2)),

    the jackknife's pseudo-values of the unbiased estimate, the mean of C_k less that of s_k s_l^T
    over k != l.
    """
    chains, length, dim = draws.shape
    size = length // num_blocks
    kept = draws[:, length - num_blocks * size :].reshape(chains, num_blocks, size, dim)
    kept = kept[:, :, int(_GAP * size) :]
    # Two passes: the sum of many float32 numbers is not their mean to rounding.
    shifted = kept - kept[:1, :1, :1]
    shifted = shifted - jnp.mean(shifted, axis=(0, 1, 2), keepdims=True)

    def one_chain(chain):
        second = product(jnp.swapaxes(chain, 1, 2), chain)
        return second / chain.shape[1], jnp.mean(chain, axis=1)

    second, first = jax.lax.map(one_chain, shifted)
    first = first - jnp.mean(first, axis=(0, 1), keepdims=True)
    count = chains * num_blocks
    outer = first[..., :, None] * first[..., None, :]
    total = jnp.sum(outer, axis=(0, 1), keepdims=True)
    return Moments(second + 2 * outer / (count - 2) - total / ((count - 1) * (count - 2)), first)


def rows_of(
    blocks: Float[Array, "chain block p p"], *, diagonal: bool
) -> Float[Array, "row entry"]:
    """Return one row a block: all entries of the matrices, or their diagonals."""
    if diagonal:
        blocks = jnp.diagonal(blocks, axis1=2, axis2=3)
    return blocks.reshape(blocks.shape[0] * blocks.shape[1], -1)


def side_of(rows: Float[Array, "block entry"]) -> tuple[Float[Array, " entry"], Side]:
    """Return the mean over independent blocks, and its error."""
    count = rows.shape[0]
    mean = jnp.mean(rows, axis=0)
    return mean, Side((rows - mean[None]) / (count * (count - 1)) ** 0.5, count - 1)


def judge_offset(
    offset: Float[Array, " entry"], sides: Sequence[Side], num_free: int
) -> tuple[Float[Array, ""], Float[Array, ""], Float[Array, ""]]:
    """Compare |offset|^2 with the sum of the sides' errors: ratio, p-value and errors' trace.

    The ratio is F-distributed to a good approximation, with (tr G)^2 / tr G^2 degrees of freedom
    for the covariance G = sum_i G_i of the offset, and (tr G)^2 / sum_i tr(G_i^2) / v_i, v_i the
    side's (Satterthwaite and Welch, as in the one-way analysis of variance).

    Parameters
    ----------
    num_free
        Number of entries that can differ, of which (tr G)^2 / tr G^2 cannot exceed it.
    """
    found = [_trace_and_square(side) for side in sides]
    noise = sum((trace for trace, _ in found[1:]), start=found[0][0])
    squares = [jnp.maximum(square, trace**2 / num_free) for trace, square in found]
    total = sum(squares[1:], start=squares[0])
    for i, one in enumerate(sides):
        for other in sides[:i]:
            cross = product(one.rest, other.rest.T)
            total = total + 2 * jnp.sum(cross**2)
    total = jnp.maximum(total, noise**2 / num_free)
    errors = [square / side.freedom for square, side in zip(squares, sides, strict=True)]
    ratio = jnp.sum(offset**2) / noise
    p_value = f_tail(ratio, noise**2 / total, noise**2 / sum(errors[1:], start=errors[0]))
    return ratio, p_value, noise


def judge_groups(
    rows: Float[Array, "chain block entry"], num_free: int
) -> tuple[Float[Array, ""], Float[Array, ""], Float[Array, ""]]:
    """Compare the spread between chains with that within: ratio, p-value, trace within."""
    chains, count, _ = rows.shape
    mean = jnp.mean(rows, axis=1)
    overall = jnp.mean(mean, axis=0)
    between = count * jnp.sum((mean - overall[None]) ** 2) / (chains - 1)
    freedom = chains * (count - 1)
    rest = (rows - mean[:, None]).reshape(chains * count, -1)
    trace, square = _trace_and_square(Side(rest / freedom**0.5, freedom))
    # Degrees of freedom of one draw of the noise: between 1 and the number of entries.
    components = trace**2 / jnp.maximum(square, trace**2 / num_free)
    ratio = between / trace
    return ratio, f_tail(ratio, (chains - 1) * components, freedom * components), trace


def _trace_and_square(side: Side) -> tuple[Float[Array, ""], Float[Array, ""]]:
    """Estimate tr G and tr G^2 without bias from fewer rows than entries.

    The plain tr S^2 counts the noise of S too, (tr G)^2 / v of it: with more entries than rows
    nothing else is left. Bai and Saranadasa (1996), section 3.
    """
    gram = product(side.rest, side.rest.T)
    trace, v = jnp.trace(gram), side.freedom
    return trace, v**2 / ((v - 1) * (v + 2)) * (jnp.sum(gram**2) - trace**2 / v)


def f_tail(
    ratio: Float[Array, ""], numerator: Float[Array, ""], denominator: Float[Array, ""]
) -> Float[Array, ""]:
    """P(F > ratio) for an F variable with so many degrees of freedom."""
    x = denominator / (denominator + numerator * ratio)
    return jax.scipy.special.betainc(denominator / 2, numerator / 2, x)
