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
    block k of n about the mean of all draws and s_k its mean, the estimates are

        C_k + s_k s_k^T / (n - 1),

    which is C_k - s_k m_k^T with m_k = -s_k / (n - 1) the mean of the other blocks. Their mean is
    unbiased, as the means of different blocks are independent.
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
    return Moments(second + outer / (count - 1), first)


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
    side's (Satterthwaite and Welch).

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
    rows: Float[Array, "chain block entry"],
) -> tuple[Float[Array, ""], Float[Array, ""], Float[Array, ""]]:
    """Compare the spread between chains with that within: ratio, p-value, trace within.

    If the chains have one law, every assignment of the blocks to chains is as likely as any other.
    Over all of them the share of the sum of squares that lies between chains has the mean
    (M-1)/(n-1) exactly, as it has where the ratio is F-distributed with (M-1) v and (n-M) v
    degrees of freedom; v is chosen so that its variance is right as well (Kazi-Aoual et al.,
    1995), whatever the distribution of the blocks.
    """
    chains, per_chain, _ = rows.shape
    count = chains * per_chain
    flat = (rows - jnp.mean(rows, axis=(0, 1), keepdims=True)).reshape(count, -1)
    gram = jnp.matmul(flat, flat.T, precision="highest")
    trace = jnp.trace(gram)
    # In units of the trace, so that its square does not overflow.
    gram = gram / trace
    between = jnp.sum(
        gram.reshape(chains, per_chain, chains, per_chain).sum(axis=(1, 3)).diagonal()
    )
    share = between / per_chain
    mean, freedom = (chains - 1) / (count - 1), count - chains
    of_one = 2 / (count - 1) * mean * (1 - mean)
    # Below this share of it a variance is rounding. The number of entries is no bound for v:
    # whitened by the covariance of the same blocks, the entries of large matrices repel each
    # other, and the share varies less than that of as many independent numbers.
    least = jnp.finfo(gram.dtype).eps * of_one
    v = of_one / jnp.maximum(_share_variance(gram, chains), least) - 2 / (count - 1)
    v = jnp.maximum(v, 1.0)
    ratio = share / (1 - share) * freedom / (chains - 1)
    p_value = f_tail(ratio, (chains - 1) * v, freedom * v)
    return ratio, p_value, trace * (1 - share) / freedom


def _share_variance(gram: Float[Array, "n n"], chains: int) -> Float[Array, ""]:
    """Variance of the share of squares between groups of equal size, over all permutations.

    That of tr(A P K P^T) for a random permutation P, K a centred Gram matrix of trace 1 and A the
    projection on the means of the groups (Kazi-Aoual et al., 1995, equation 3.7).
    """
    # Floats: of a hundred rows the products below are more than an int32 holds.
    n, rank = float(gram.shape[0]), float(chains - 1)
    squares, fourth = jnp.sum(gram**2), jnp.sum(jnp.diagonal(gram) ** 2)
    first = 2 * ((n - 1) * rank - rank**2) * ((n - 1) * squares - 1)
    second = (n * (n + 1) * rank**2 / n - (n - 1) * (rank**2 + 2 * rank)) * (
        n * (n + 1) * fourth - (n - 1) * (1 + 2 * squares)
    )
    return first / ((n - 1) ** 2 * (n + 1) * (n - 2)) + second / (
        (n + 1) * n * (n - 1) * (n - 2) * (n - 3)
    )


def _trace_and_square(side: Side) -> tuple[Float[Array, ""], Float[Array, ""]]:
    """Estimate tr G and tr G^2 without bias from fewer rows than entries.

    The plain tr S^2 counts the noise of S too, some (tr G)^2 / n of it: with more entries than
    rows nothing else is left. Himeno and Yamada (2014), section 2, for any distribution.
    """
    gram = jnp.matmul(side.rest, side.rest.T, precision="highest")
    n = side.freedom + 1
    # Rows are scaled so that their squares sum up to the trace.
    trace, square = jnp.trace(gram), jnp.sum(gram**2)
    fourth = jnp.sum(jnp.diagonal(gram) ** 2) * (n - 1)
    factor = (n - 1) / (n * (n - 2) * (n - 3))
    return trace, factor * ((n - 1) * (n - 2) * square + trace**2 - n * fourth)


def f_tail(
    ratio: Float[Array, ""], numerator: Float[Array, ""], denominator: Float[Array, ""]
) -> Float[Array, ""]:
    """P(F > ratio) for an F variable with so many degrees of freedom."""
    x = denominator / (denominator + numerator * ratio)
    return jax.scipy.special.betainc(denominator / 2, numerator / 2, x)
