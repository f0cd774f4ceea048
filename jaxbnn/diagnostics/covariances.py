"""Whether chains agree on the covariance of their target, with each other or with a reference.

The diagnostic that section 6.1.6 of Papamarkou et al. asks for beside R-hat and the effective
sample size: those look at one coordinate at a time, and a chain that holds a wrong covariance
structure can pass both.

All coordinates are whitened by one covariance matrix, so that nothing depends on their units or on
linear maps of them. How far two covariances may lie apart by chance is learned from the chains
themselves: each is cut into blocks, and the second moments of the blocks of one chain differ by
chance alone, autocorrelation included, as long as a block is much longer than its time.
"""

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Float

from jaxbnn.diagnostics.draws import check_draws, float_dtype
from jaxbnn.numerics import check_count, check_real, solve_triangular


class CovarianceAgreement(NamedTuple):
    """How well covariances agree, and how well they should.

    Attributes
    ----------
    ratio
        Mean square distance over what chance explains: about 1 where the covariances agree.
    p_value
        Probability of so large a ratio if they are equal.
    distances
        `covariance_distance` between the covariances of chains (chain, chain), or of each
        chain from the reference (chain,).
    null_distance
        The distance that chance explains, root mean square, in small distances.
    neighbour_correlation
        Correlation between the second moments of neighbouring blocks. Well above 0, the blocks
        are no longer than the chain's memory, and the p-value is too small.
    """

    ratio: Float[Array, ""]
    p_value: Float[Array, ""]
    distances: Float[Array, "*chains"]
    null_distance: Float[Array, ""]
    neighbour_correlation: Float[Array, ""]


def covariance_agreement(
    draws: ArrayLike, reference: ArrayLike | None = None, *, num_blocks: int = 10
) -> CovarianceAgreement:
    """Test whether the chains have one covariance; or whether it is that of a reference.

    With z the draws about their chain's mean, whitened by the mean covariance of the chains (or
    by that of the reference), C_ck the mean of z z^T in block k of B of chain c, and C_c its mean
    over k, the ratio of

        T = B/(M-1) sum_c |C_c - C|_F^2   and   V = 1/(M(B-1)) sum_ck |C_ck - C_c|_F^2

    is F-distributed to a good approximation, with (M-1) v and M(B-1) v degrees of freedom,
    v = (tr G)^2 / tr G^2 for the covariance G of C_ck - C_c (Satterthwaite, as in the
    one-way analysis of variance). Against a reference, T compares the mean over chains with the
    identity (a matrix) or with the mean over the reference's blocks (draws), and V is the sum of
    both sides' errors. Differences between means are not looked at: R-hat does that.

    Parameters
    ----------
    draws
        Array (chain, draw, ...); the trailing axes are flattened to p coordinates.
    reference
        None, to compare the chains with each other; a covariance matrix (p, p) known exactly; or
        draws (chain, draw, ...) of another sampler, of which error is expected too. A reference
        run in one array (draw, p) is `run[None]`.
    num_blocks
        B, of each chain. Ten leave blocks long enough for chains worth a hundred draws or more.
        Draws at the start of a chain that fill no block are left out.

    Returns
    -------
    `CovarianceAgreement`. NaN throughout if any draw is NaN, or the covariance that whitens is
    singular to rounding, or two covariances lie too far apart for one floating-point type;
    infinite distances from a chain whose own covariance is, a frozen one say.

    Raises
    ------
    ValueError
        One chain and no reference; fewer than two draws a block, or two blocks; a reference with
        other coordinates, or no covariance matrix.

    Notes
    -----
    It costs a few passes over the draws and (chains x blocks) matrices of p x p numbers.

    Examples
    --------
    >>> draws = jax.random.normal(jax.random.key(0), (4, 10_000, 3))
    >>> bool(covariance_agreement(draws).p_value > 1e-3)
    True
    >>> other = draws @ jnp.array([[1.0, 0.2, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]])
    >>> bool(covariance_agreement(draws, other).p_value < 1e-6)
    True
    """
    name = "covariance_agreement"
    chains = _check(name, draws, num_blocks, 2 if reference is None else 1)
    # No unit matters to the test, but products of numbers around 1e20 overflow.
    unit = jnp.max(jnp.abs(chains - chains[:1, :1]), axis=(0, 1))
    unit = jnp.where(unit > 0, unit, 1)
    chains = chains / unit[None, None]
    if reference is None:
        return _between(chains, num_blocks)
    dim = chains.shape[2]
    if np.ndim(reference) == 2:
        if np.shape(reference) != (dim, dim):
            raise ValueError(
                f"{name} needs the reference covariance of all {dim} coordinates, but its shape is "
                f"{np.shape(reference)}; give draws as (chain, draw, ...)."
            )
        check_real("the reference covariance", reference)
        matrix = jnp.asarray(reference, chains.dtype) / unit[:, None] / unit[None]
        return _against_matrix(chains, matrix, num_blocks)
    others = _check(name, reference, num_blocks, 1)
    if others.shape[2] != dim:
        raise ValueError(
            f"{name} needs draws and reference of the same coordinates, but they have {dim} and "
            f"{others.shape[2]}."
        )
    others = others.astype(chains.dtype) / unit[None, None]
    return _against_draws(chains, others, num_blocks)


def covariance_distance(a: ArrayLike, b: ArrayLike) -> Float[Array, "*batch"]:
    """Distance of two covariance matrices that no linear map of the coordinates changes.

    (sum_i log(l_i)^2)^(1/2), l_i the eigenvalues of a^-1 b (Foerstner and Moonen, 1999): the
    length of the shortest path between them in the affine-invariant geometry. The standard
    deviation of one coordinate doubled is 2 log 2 = 1.39 away.

    Parameters
    ----------
    a, b
        (..., p, p), symmetric; their leading axes are broadcast.

    Returns
    -------
    (...); infinite where b is singular, NaN where a is not positive definite.

    Raises
    ------
    ValueError
        Matrices that are not square, or not of one size.

    Examples
    --------
    >>> round(float(covariance_distance(jnp.eye(3), jnp.diag(jnp.array([1.0, 1.0, 4.0])))), 2)
    1.39
    """
    for matrix in (a, b):
        check_real("a covariance matrix", matrix)
    shapes = np.shape(a), np.shape(b)
    if any(len(shape) < 2 or shape[-2:] != (shapes[0][-1],) * 2 or 0 in shape for shape in shapes):
        raise ValueError(
            "covariance_distance needs square matrices (..., p, p) of one size, but the shapes "
            f"are {shapes[0]} and {shapes[1]}."
        )
    left, right = jnp.asarray(a), jnp.asarray(b)
    dtype = jnp.promote_types(float_dtype(left.dtype), float_dtype(right.dtype))
    batch = jnp.broadcast_shapes(left.shape, right.shape)
    factor = jnp.linalg.cholesky(jnp.broadcast_to(left.astype(dtype), batch))
    inner = _whiten(factor, jnp.broadcast_to(right.astype(dtype), batch))
    eigenvalues = jnp.linalg.eigvalsh((inner + jnp.swapaxes(inner, -1, -2)) / 2)
    # Rounding may put the eigenvalues of a singular matrix on either side of zero.
    floor = jnp.finfo(dtype).eps * jnp.max(jnp.abs(eigenvalues), axis=-1, keepdims=True)
    logs = jnp.where(eigenvalues > floor, jnp.log(jnp.maximum(eigenvalues, floor)), jnp.inf)
    logs = jnp.where(jnp.isnan(eigenvalues), jnp.nan, logs)
    return jnp.sqrt(jnp.sum(logs**2, axis=-1))


def _check(
    name: str, draws: ArrayLike, num_blocks: int, min_chains: int
) -> Float[Array, "chain draw coordinate"]:
    check_count("num_blocks", num_blocks)
    if num_blocks < 2:
        raise ValueError(
            f"{name} needs at least 2 blocks a chain, but num_blocks is {num_blocks}; ten is usual."
        )
    checked = check_draws(name, draws, min_chains=min_chains, min_draws=2 * num_blocks)
    flat = checked.reshape(*checked.shape[:2], math.prod(checked.shape[2:]))
    return flat.astype(float_dtype(checked.dtype))


@jax.jit(static_argnums=1)
def _between(draws, num_blocks):
    chains = draws.shape[0]
    blocks = _block_moments(draws, num_blocks)
    per_chain = jnp.mean(blocks, axis=1)
    blocks = _whiten(jnp.linalg.cholesky(jnp.mean(per_chain, axis=0))[None, None], blocks)
    white = jnp.mean(blocks, axis=1)
    between = num_blocks * jnp.sum((white - jnp.mean(white, axis=0)[None]) ** 2) / (chains - 1)
    rest = blocks - white[:, None]
    freedom = chains * (num_blocks - 1)
    noise = jnp.sum(rest**2) / freedom
    components = _components(rest.reshape(chains * num_blocks, -1))
    ratio = between / noise
    p_value = _f_tail(ratio, (chains - 1) * components, freedom * components)
    distances = covariance_distance(per_chain[:, None], per_chain[None])
    null = jnp.sqrt(2 * noise / num_blocks)
    off_diagonal = jnp.where(jnp.eye(chains, dtype=bool), 0, distances)
    return CovarianceAgreement(ratio, p_value, off_diagonal, null, _neighbours(rest))


@jax.jit(static_argnums=2)
def _against_matrix(draws, reference, num_blocks):
    blocks = _block_moments(draws, num_blocks)
    distances = covariance_distance(reference[None], jnp.mean(blocks, axis=1))
    factor = jnp.linalg.cholesky(reference)[None, None]
    white = _whiten(factor, blocks)
    rest = white - jnp.mean(white, axis=(0, 1))[None, None]
    offset = jnp.mean(white, axis=(0, 1)) - jnp.eye(len(reference), dtype=draws.dtype)
    count = draws.shape[0] * num_blocks
    scaled = rest.reshape(count, -1) / math.sqrt(count * (count - 1))
    return _judge_offset(offset, [(scaled, count - 1)], distances, _neighbours(rest))


@jax.jit(static_argnums=2)
def _against_draws(draws, others, num_blocks):
    ours, theirs = _block_moments(draws, num_blocks), _block_moments(others, num_blocks)
    reference = jnp.mean(theirs, axis=(0, 1))
    distances = covariance_distance(reference[None], jnp.mean(ours, axis=1))
    # Both sides alike, so that under the null neither has an advantage.
    factor = jnp.linalg.cholesky((reference + jnp.mean(ours, axis=(0, 1))) / 2)[None, None]
    offset, errors, correlations = jnp.zeros_like(reference), [], []
    for sign, blocks in ((1, ours), (-1, theirs)):
        white = _whiten(factor, blocks)
        mean = jnp.mean(white, axis=(0, 1))
        rest = white - mean[None, None]
        offset = offset + sign * mean
        count = blocks.shape[0] * num_blocks
        errors.append((rest.reshape(count, -1) / math.sqrt(count * (count - 1)), count - 1))
        correlations.append(_neighbours(rest))
    return _judge_offset(offset, errors, distances, jnp.maximum(*correlations))


def _judge_offset(offset, errors, distances, correlation) -> CovarianceAgreement:
    """Compare |offset|^2 with the sum of the sides' errors (Welch, where there are two)."""
    traces = [jnp.sum(scaled**2) for scaled, _ in errors]
    noise = sum(traces[1:], start=traces[0])
    components = _components(jnp.concatenate([scaled for scaled, _ in errors]))
    weights = [trace**2 / freedom for trace, (_, freedom) in zip(traces, errors, strict=True)]
    freedom = noise**2 / sum(weights[1:], start=weights[0])
    ratio = jnp.sum(offset**2) / noise
    p_value = _f_tail(ratio, components, freedom * components)
    return CovarianceAgreement(ratio, p_value, distances, jnp.sqrt(noise), correlation)


def _block_moments(draws, num_blocks):
    """Second moments of each block about its chain's mean, (chain, block, p, p)."""
    _, length, dim = draws.shape
    size = length // num_blocks

    def one_chain(chain):
        kept = chain[length - num_blocks * size :]
        first = kept[0]
        shifted = kept - first[None]
        blocks = (shifted - jnp.mean(shifted, axis=0)[None]).reshape(num_blocks, size, dim)
        product = jnp.matmul(jnp.swapaxes(blocks, 1, 2), blocks, precision="highest")
        return product / size

    return jax.lax.map(one_chain, draws)


def _whiten(factor, matrix):
    """L^-1 A L^-T."""
    shape = jnp.broadcast_shapes(factor.shape, matrix.shape)
    factor, matrix = jnp.broadcast_to(factor, shape), jnp.broadcast_to(matrix, shape)
    half = solve_triangular(factor, matrix)
    half = jnp.swapaxes(half, -1, -2)
    return solve_triangular(factor, half)


def _components(rest: Float[Array, "block entry"]) -> Float[Array, ""]:
    """(tr G)^2 / tr G^2 for the covariance G of the rows; too small rather than too large."""
    gram = jnp.matmul(rest, rest.T, precision="highest")
    return jnp.trace(gram) ** 2 / jnp.sum(gram**2)


def _neighbours(rest: Float[Array, "chain block p p"]) -> Float[Array, ""]:
    # Residuals about a mean of B blocks have correlation -1/(B-1) by themselves.
    blocks = rest.shape[1]
    products = jnp.mean(jnp.sum(rest[:, 1:] * rest[:, :-1], axis=(2, 3)))
    return products / jnp.mean(jnp.sum(rest**2, axis=(2, 3))) + 1 / (blocks - 1)


def _f_tail(ratio, numerator, denominator):
    """P(F > ratio) for an F variable with so many degrees of freedom."""
    x = denominator / (denominator + numerator * ratio)
    return jax.scipy.special.betainc(denominator / 2, numerator / 2, x)
