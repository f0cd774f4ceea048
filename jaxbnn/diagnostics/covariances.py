"""Whether chains agree on the covariance of their target, with each other or with a reference.

The diagnostic that section 6.1.6 of Papamarkou et al. asks for beside R-hat and the effective
sample size: those look at one coordinate at a time, and a chain that holds a wrong covariance
structure can pass both.

How far two covariances may lie apart by chance is learned from the chains themselves: each is cut
into blocks, and the second moments of the blocks of one chain differ by chance alone,
autocorrelation included, as long as a block is much longer than the chain's memory. Two sums of
squares are tested, because each is blind where the other sees: that of all second moments, in
coordinates whitened by one covariance matrix, which no linear map of the coordinates changes; and
that of the variances of the coordinates, which finds one wrong scale among many right ones.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Float

from jaxbnn.diagnostics.covariance_distances import (
    check_symmetric,
    covariance_distance,
    whiten,
)
from jaxbnn.diagnostics.draws import check_draws
from jaxbnn.diagnostics.moment_blocks import (
    Moments,
    block_moments,
    judge_groups,
    judge_offset,
    rows_of,
    side_of,
)
from jaxbnn.numerics import check_count, check_real, is_concrete, solve_triangular
from jaxbnn.numerics.arrays import widened

# Below these the p-values were seen to be wrong (docs/covariance_agreement.md).
_DRAWS_PER_COORDINATE = 5
_DRAWS_PER_BLOCK = 3
_FEWEST_BLOCKS = 4


class CovarianceAgreement(NamedTuple):
    """How well covariances agree, and how well they should.

    Attributes
    ----------
    ratio, variance_ratio
        Mean square distance over what chance explains, of all second moments and of the
        coordinates' variances: about 1 where the covariances agree.
    p_value
        From both ratios: uniform between 0 and 1 if the covariances are equal.
    distances
        `covariance_distance` between the covariances of chains (chain, chain), or of each
        chain from the reference (chain,).
    null_distance
        The distance that chance explains, root mean square, in small distances.
    neighbour_correlation
        Correlation between the second moments of neighbouring blocks. Well above 0, the blocks
        are no longer than the chain's memory, and the p-value is too small.
    effective_draws
        The number of independent Gaussian draws whose means and second moments would be known as
        well, over all chains; of draws and a reference, the smaller number.
    """

    ratio: Float[Array, ""]
    variance_ratio: Float[Array, ""]
    p_value: Float[Array, ""]
    distances: Float[Array, "*chains"]
    null_distance: Float[Array, ""]
    neighbour_correlation: Float[Array, ""]
    effective_draws: Float[Array, ""]


def covariance_agreement(
    draws: ArrayLike, reference: ArrayLike | None = None, *, num_blocks: int = 10
) -> CovarianceAgreement:
    """Test whether the chains have one covariance; or whether it is that of a reference.

    Each of M chains is cut into B blocks, of which the first fifth is left out, so that blocks
    are independent. With C_ck the second moments of block k of chain c about the mean of all
    chains (see `moment_blocks`), whitened by their mean, C_c their mean over k and C over both,

        T = B/(M-1) sum_c |C_c - C|_F^2   and   V = 1/(M(B-1)) sum_ck |C_ck - C_c|_F^2

    have one expectation if the chains have one law, and T / V is F-distributed to a good
    approximation, with degrees of freedom that follow from the permutations of the blocks
    (`judge_groups`). The same is done with the diagonals of C_ck in the coordinates given, and
    both p-values become one, cot(pi p) = (cot(pi p_1) + cot(pi p_2)) / 2. Against a reference, T
    compares the mean over chains with the matrix, or with the mean over the reference's blocks,
    and V is the sum of both sides' errors (`judge_offset`).

    The level was measured for independent draws, AR(1) chains and skewed and heavy-tailed draws:
    docs/covariance_agreement.md. Chains whose means lie d standard deviations apart differ
    in these second moments by about d^2; R-hat sees them first.

    Parameters
    ----------
    draws
        Array (chain, draw, ...); the trailing axes are flattened to p coordinates.
    reference
        None, to compare the chains with each other; a covariance matrix (p, p) known exactly; or
        draws (chain, draw, ...) of another sampler, of which error is expected too. A reference
        run in one array (draw, p) is `run[None]`; of one coordinate, (1, 1) is the variance and
        any other (chain, draw) are draws.
    num_blocks
        B, of each chain, at least 4. Draws at the start of a chain that fill no block are left
        out.

    Returns
    -------
    `CovarianceAgreement`. NaN throughout if any draw is NaN, or the covariance that whitens is
    singular to rounding, or two covariances lie too far apart for one floating-point type;
    infinite distances from a chain whose own covariance is singular, a frozen one say, and NaN
    between two such chains. Inside `jit` and `vmap`, where nothing can be raised, a p-value that
    would be wrong is NaN.

    Raises
    ------
    ValueError
        One chain and no reference; fewer than two draws a block, or four blocks; a reference with
        other coordinates, or that is not a covariance matrix; effective draws of either side
        fewer than five times the coordinates, or fewer than three in each of its blocks, where the
        p-value would be wrong.

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
    # A maximum may pass over a NaN, and a gap between blocks over a draw.
    unit = jnp.where(jnp.isfinite(chains).all(axis=(0, 1)), jnp.where(unit > 0, unit, 1), jnp.nan)
    chains = chains / unit[None, None]
    dim = chains.shape[2]
    if reference is None:
        found = _between(chains, num_blocks)
        return _refuse(found, [(found.effective_draws, len(chains))], dim, num_blocks)
    if np.ndim(reference) == 2 and (dim > 1 or np.shape(reference) == (1, 1)):
        if np.shape(reference) != (dim, dim):
            raise ValueError(
                f"{name} needs the reference covariance of all {dim} coordinates, but its shape is "
                f"{np.shape(reference)}; give draws as (chain, draw, ...)."
            )
        check_real("the reference covariance", reference)
        check_symmetric("the reference covariance", reference)
        if is_concrete(
            (reference, unit)
        ):  # in double precision, which holds the squares of small units
            units = np.asarray(unit, float)
            reference = np.asarray(reference, float) / units[:, None] / units
            matrix = jnp.asarray(reference, chains.dtype)
        else:
            matrix = jnp.asarray(reference, chains.dtype) / unit[:, None] / unit[None]
        found = _against_matrix(chains, matrix, num_blocks)
        return _refuse(found, [(found.effective_draws, len(chains))], dim, num_blocks)
    others = _check(name, reference, num_blocks, 1)
    if others.shape[2] != dim:
        raise ValueError(
            f"{name} needs draws and reference of the same coordinates, but they have {dim} and "
            f"{others.shape[2]}."
        )
    others = others.astype(chains.dtype) / unit[None, None]
    found, effective = _against_draws(chains, others, num_blocks)
    sides = list(zip(effective, (len(chains), len(others)), strict=True))
    return _refuse(found, sides, dim, num_blocks)


def _check(
    name: str, draws: ArrayLike, num_blocks: int, min_chains: int
) -> Float[Array, "chain draw coordinate"]:
    check_count("num_blocks", num_blocks)
    if num_blocks < _FEWEST_BLOCKS:
        raise ValueError(
            f"{name} needs at least {_FEWEST_BLOCKS} blocks a chain, but num_blocks is "
            f"{num_blocks}; ten is usual."
        )
    checked = check_draws(name, draws, min_chains=min_chains, min_draws=2 * num_blocks)
    flat = checked.reshape(*checked.shape[:2], math.prod(checked.shape[2:]))
    return widened(flat)


def _refuse(
    found: CovarianceAgreement,
    sides: Sequence[tuple[Float[Array, ""], int]],
    dim: int,
    num_blocks: int,
) -> CovarianceAgreement:
    """Raise where the p-value would be wrong, or make it NaN where nothing can be raised.

    Each side's effective draws must do for its own chains.
    """
    for effective, chains in sides:
        found = _refuse_side(found, effective, chains, dim, num_blocks)
    return found


def _refuse_side(
    found: CovarianceAgreement, effective: Float[Array, ""], chains: int, dim: int, num_blocks: int
) -> CovarianceAgreement:
    per_coordinate, blocks = _DRAWS_PER_COORDINATE * dim, _DRAWS_PER_BLOCK * chains * num_blocks
    if not is_concrete(effective):
        # Written so that NaN draws, whose p-value is NaN already, are left alone.
        is_wrong = effective < max(per_coordinate, blocks)
        return found._replace(p_value=jnp.where(is_wrong, jnp.nan, found.p_value))
    if effective < per_coordinate:
        raise ValueError(
            f"covariance_agreement of {dim} coordinates needs {per_coordinate} effective draws, "
            f"but there are about {float(effective):.0f}; run the chains longer, or judge fewer "
            "coordinates."
        )
    if effective < blocks:
        raise ValueError(
            f"covariance_agreement needs {_DRAWS_PER_BLOCK} effective draws in a block, {blocks} "
            f"in all of {chains} chain{'s' * (chains > 1)}, but there are about "
            f"{float(effective):.0f}; take fewer blocks, or run the chains longer."
        )
    return found


@jax.jit(static_argnums=1)
def _between(draws, num_blocks):
    chains = len(draws)
    moments = block_moments(draws, num_blocks)
    metric = jnp.mean(moments.second, axis=(0, 1))
    white, scaled = _whitened(moments, metric), _scaled(moments, metric)
    by_chain = white.second.reshape(chains, num_blocks, -1)
    ratio, p_all, noise = judge_groups(by_chain)
    variances = jnp.diagonal(scaled, axis1=2, axis2=3)
    variance_ratio, p_variances, _ = judge_groups(variances)
    per_chain = jnp.mean(moments.second, axis=1)
    distances = covariance_distance(per_chain[:, None], per_chain[None])
    # Whitening by a singular covariance gives NaN; by the other one of the pair, infinity.
    distances = jnp.fmax(distances, distances.T)
    return CovarianceAgreement(
        ratio,
        variance_ratio,
        _either(p_all, p_variances),
        jnp.where(jnp.eye(chains, dtype=bool), 0, distances),
        jnp.sqrt(2 * noise / num_blocks),
        _neighbours(white.second),
        _effective_draws(white),
    )


@jax.jit(static_argnums=2)
def _against_matrix(draws, reference, num_blocks):
    moments = block_moments(draws, num_blocks)
    distances = covariance_distance(reference[None], jnp.mean(moments.second, axis=1))
    white, scaled = _whitened(moments, reference), _scaled(moments, reference)
    identity = jnp.eye(len(reference), dtype=draws.dtype)
    mean, side = side_of(rows_of(white.second, diagonal=False))
    ratio, p_all, noise = judge_offset(mean - identity.reshape(-1), [side], _free(len(reference)))
    mean, side = side_of(rows_of(scaled, diagonal=True))
    variance_ratio, p_variances, _ = judge_offset(mean - 1, [side], len(reference))
    return CovarianceAgreement(
        ratio,
        variance_ratio,
        _either(p_all, p_variances),
        distances,
        jnp.sqrt(noise),
        _neighbours(white.second),
        _effective_draws(white),
    )


@jax.jit(static_argnums=2)
def _against_draws(draws, others, num_blocks):
    ours, theirs = block_moments(draws, num_blocks), block_moments(others, num_blocks)
    metric = _weighted_metric(ours, theirs)
    dim = metric.shape[0]
    sides = [_whitened(moments, metric) for moments in (ours, theirs)]
    (mean, ours_side), (other_mean, theirs_side) = (
        side_of(rows_of(side.second, diagonal=False)) for side in sides
    )
    ratio, p_all, noise = judge_offset(mean - other_mean, [ours_side, theirs_side], _free(dim))
    (mean, ours_side), (other_mean, theirs_side) = (
        side_of(rows_of(_scaled(moments, metric), diagonal=True)) for moments in (ours, theirs)
    )
    variance_ratio, p_variances, _ = judge_offset(mean - other_mean, [ours_side, theirs_side], dim)
    reference = jnp.mean(theirs.second, axis=(0, 1))
    effective = tuple(_effective_draws(side) for side in sides)
    found = CovarianceAgreement(
        ratio,
        variance_ratio,
        _either(p_all, p_variances),
        covariance_distance(reference[None], jnp.mean(ours.second, axis=1)),
        jnp.sqrt(noise),
        jnp.maximum(*(_neighbours(side.second) for side in sides)),
        jnp.minimum(*effective),
    )
    return found, effective


def _weighted_metric(ours: Moments, theirs: Moments) -> Float[Array, "p p"]:
    """Mean of both covariances by their precision.

    It is not correlated with their difference, so whitening by it shrinks the difference no more
    than the noise.
    """
    means = [jnp.mean(side.second, axis=(0, 1)) for side in (ours, theirs)]
    noises = []
    for side, mean in zip((ours, theirs), means, strict=True):
        _, error = side_of(rows_of(_whitened(side, mean).second, diagonal=False))
        noises.append(jnp.sum(error.rest**2))
    return (means[0] * noises[1] + means[1] * noises[0]) / (noises[0] + noises[1])


def _whitened(moments: Moments, metric: Float[Array, "p p"]) -> Moments:
    factor = jnp.linalg.cholesky(metric)
    first = solve_triangular(factor, moments.first.reshape(-1, len(metric)).T).T
    return Moments(whiten(factor[None, None], moments.second), first.reshape(moments.first.shape))


def _scaled(moments: Moments, metric: Float[Array, "p p"]) -> Float[Array, "chain block p p"]:
    """Second moments in units of the metric's standard deviations."""
    scale = jnp.sqrt(jnp.diagonal(metric))
    return moments.second / (scale[:, None] * scale[None])[None, None]


def _free(dim: int) -> int:
    """Entries of a symmetric matrix that can differ."""
    return dim * (dim + 1) // 2


def _either(p_all: Float[Array, ""], p_variances: Float[Array, ""]) -> Float[Array, ""]:
    """Combine two p-values by the mean of cot(pi p) (Liu and Xie, 2020).

    Each is a standard Cauchy variable, and so is their mean, in the tail whatever the dependence.
    """
    # Of two p-values near 0 and 1 the second would cancel the first.
    both = jnp.minimum(jnp.stack([p_all, p_variances]), 0.99)
    mean = jnp.mean(1 / jnp.tan(jnp.pi * both))
    return jnp.arctan2(jnp.ones_like(mean), mean) / jnp.pi


def _effective_draws(white: Moments) -> Float[Array, ""]:
    """Independent Gaussian draws that would have such errors of means and second moments."""
    chains, num_blocks, dim = white.first.shape
    # A float, since these products are more than an int32 holds.
    freedom, count = float(chains * (num_blocks - 1)), chains * num_blocks
    within = white.first - jnp.mean(white.first, axis=1, keepdims=True)
    of_means = dim * count * freedom / jnp.sum(within**2)
    within = white.second - jnp.mean(white.second, axis=1, keepdims=True)
    of_squares = dim * (dim + 1) * count * freedom / jnp.sum(within**2)
    return jnp.minimum(of_means, of_squares)


def _neighbours(second: Float[Array, "chain block p p"]) -> Float[Array, ""]:
    # Residuals about a mean of B blocks have correlation -1/(B-1) by themselves.
    rest = second - jnp.mean(second, axis=1, keepdims=True)
    blocks = rest.shape[1]
    products = jnp.mean(jnp.sum(rest[:, 1:] * rest[:, :-1], axis=(2, 3)))
    return products / jnp.mean(jnp.sum(rest**2, axis=(2, 3))) + 1 / (blocks - 1)
