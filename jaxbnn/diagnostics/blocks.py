"""Squared discrepancies estimated from pairs of blocks of chains, with errors and a null.

A kernel discrepancy is the squared length of a mean m = E f in a space of functions. With f_k the
mean of f over block k of a chain, blocks longer than the chain's memory are nearly independent, and

    mean over pairs k, l of <f_k, f_l>,   k and l different and no neighbours,

is unbiased for |m|^2 whatever the autocorrelation inside blocks. A fifth of each block is left out
at its start, so that neighbours are independent too. Where m = 0 each f_k is as likely as -f_k, so
that the null is the law of sum_kl e_k e_l <f_k, f_l> with random signs e. Its tail is taken with
normal e_k, a weighted sum of chi-squares, by the saddlepoint approximation (Lugannani and Rice,
1980): no resampling, and small probabilities as well as large ones.
"""

import math
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Bool, Float, Int

from jaxbnn.diagnostics.draws import check_draws
from jaxbnn.diagnostics.ranks import quantile, sorted_draws
from jaxbnn.numerics import check_count, is_concrete
from jaxbnn.numerics.arrays import widened
from jaxbnn.numerics.products import product

# Part of each block that is left out at its start. Without it neighbours of 62 draws of an AR(1)
# chain at .9 have correlation .13, and P(p < .05) is .08.
_GAP = 0.2
# With fewer the gap is too short: P(p < .05) was seen at .07.
_DRAWS_PER_BLOCK = 3
_HALVINGS = 60
# Pairs of points of which the kernel is held in memory at once.
_TILE = 2**20
_SOME = 256
# Of squared distances in a kernel of length scale 1.
_PRODUCT_ERROR = 1e-3


class Discrepancy(NamedTuple):
    """An estimate of a squared discrepancy, and whether it is zero.

    NaN throughout if a draw or a score, used or not, is NaN or infinite.

    Attributes
    ----------
    squared
        Unbiased, hence negative now and then where the truth is zero.
    standard_error
        Monte Carlo error of `squared`, by the jackknife over blocks, at the length scale used:
        one taken from the draws differs between data sets. Where the truth is zero, it is some
        1.4 times too large: the jackknife counts the variance of pairs twice.
    p_value
        Probability of so large a value if the discrepancy is zero; NaN inside `jit` and `vmap`,
        where nothing can be raised, where a block is worth fewer than three draws. Its level was
        measured: tests/CALIBRATION.md.
    neighbour_correlation
        Correlation between neighbouring blocks, about 0 where they are longer than the chain's
        memory.
    """

    squared: Float[Array, ""]
    standard_error: Float[Array, ""]
    p_value: Float[Array, ""]
    neighbour_correlation: Float[Array, ""]


def check_flat(name: str, draws: ArrayLike, min_draws: int = 2) -> Float[Array, "chain draw p"]:
    """Draws with their trailing axes flattened, as floats."""
    checked = check_draws(name, draws, min_draws=min_draws)
    flat = checked.reshape(*checked.shape[:2], math.prod(checked.shape[2:]))
    return widened(flat)


def block_index(
    name: str, chains: int, length: int, num_blocks: int, max_draws: int
) -> Int[np.ndarray, "block point"]:
    """Return which draws make up each block: evenly spaced ones, numbered chain after chain.

    `num_blocks` in all are cut from the chains, the same number from each; at most `max_draws`
    draws are used, none of them in the gaps between blocks.
    """
    check_count("num_blocks", num_blocks)
    check_count("max_draws", max_draws)
    per_chain, size, gap = _cut(chains, length, num_blocks)
    if chains * per_chain < 8 or size < 1:
        raise ValueError(
            f"{name} needs at least 8 blocks, but {num_blocks} blocks of {chains} chains of "
            f"{length} draws are {chains * per_chain} blocks of {size} draws; keep more draws or "
            "give more blocks."
        )
    points = max(1, min(size - gap, max_draws // (chains * per_chain)))
    inside = np.linspace(gap, size - 1, points).round().astype(int)
    starts = np.arange(chains)[:, None] * length + length - per_chain * size
    starts = (starts + np.arange(per_chain) * size).ravel()
    return starts[:, None] + inside


def _cut(chains: int, length: int, num_blocks: int) -> tuple[int, int, int]:
    """Return blocks a chain, draws a block, and how many of these are left out at its start."""
    per_chain = max(1, round(num_blocks / chains))
    size = length // per_chain
    # Chains are independent: one block of each needs no gap.
    return per_chain, size, int(_GAP * size) if per_chain > 1 else 0


def effective_draws(draws: Float[Array, "chain draw p"], num_blocks: int) -> Float[Array, ""]:
    """Return the number of independent draws whose mean would vary like that of one block.

    The harmonic mean over coordinates, about each chain's own mean; or, if smaller, the number for
    the slowest coordinate, raised by what chance alone makes the slowest of so many look slower.
    Infinite where each chain is one block.
    """
    chains, length, dim = draws.shape
    per_chain, size, gap = _cut(chains, length, num_blocks)
    if per_chain == 1:
        return jnp.asarray(jnp.inf, draws.dtype)
    kept = draws[:, length - per_chain * size :].reshape(chains, per_chain, size, dim)[:, :, gap:]
    # The squares of draws around 1e20 overflow.
    kept = kept - kept[:1, :1, :1]
    unit = jnp.max(jnp.abs(kept), axis=(0, 1, 2), keepdims=True)
    kept = kept / jnp.where(unit > 0, unit, 1)
    means = jnp.mean(kept, axis=2)
    of_draws = jnp.mean(jnp.var(kept, axis=(1, 2)), axis=0)
    of_means = jnp.mean(jnp.var(means, axis=1, ddof=1), axis=0)
    # Coordinates that never move say nothing.
    moves = of_draws > 0
    ratio = jnp.where(moves, of_means / jnp.where(moves, of_draws, 1), 0)
    harmonic_mean = jnp.sum(moves, dtype=ratio.dtype) / jnp.sum(ratio)
    # The variance of so few means is known to a part (2 / freedom)^(1/2), and the largest of n
    # normal variables is about (2 log n)^(1/2): of those that may be as slow.
    slow = jnp.sum(ratio >= jnp.max(ratio) / 3, dtype=ratio.dtype)
    by_chance = 1 + 2 * jnp.sqrt(jnp.log(jnp.maximum(slow, 1)) / (chains * (per_chain - 1)))
    return jnp.minimum(harmonic_mean, by_chance / jnp.max(ratio))


def refuse_short_blocks(
    name: str, found: Discrepancy, draws_per_block: Float[Array, ""]
) -> Discrepancy:
    """Raise where the p-value would be wrong, or make it NaN where nothing can be raised."""
    # Written so that NaN draws, whose p-value is NaN already, are left alone.
    is_wrong = draws_per_block < _DRAWS_PER_BLOCK
    if not is_concrete(is_wrong):
        return found._replace(p_value=jnp.where(is_wrong, jnp.nan, found.p_value))
    if is_wrong:
        raise ValueError(
            f"{name} needs blocks worth {_DRAWS_PER_BLOCK} independent draws, but they are worth "
            f"about {float(draws_per_block):.1f}: give fewer num_blocks, or run the chains longer."
        )
    return found


def neighbours(chains: int, blocks: int) -> Bool[np.ndarray, "block block"]:
    """Which blocks touch: consecutive ones of the same chain."""
    chain = np.arange(blocks) // (blocks // chains)
    order = np.arange(blocks)
    return (np.abs(order[:, None] - order) == 1) & (chain[:, None] == chain)


def pair_means(
    kernel: Callable[..., Float[Array, "m n"]],
    left: Float[Array, "block m p"],
    right: Float[Array, "block n p"],
) -> Float[Array, "block block"]:
    """Mean of `kernel` over the pairs of points of each pair of blocks, one tile at a time."""
    blocks, points, dim = right.shape
    tile = left.shape[1] * points
    fitting = [g for g in range(2, blocks + 1) if blocks % g == 0 and g * tile <= _TILE]
    group = max(fitting, default=1)
    grouped = right.reshape(blocks // group, group * points, dim)

    def row(one):
        def part(others):
            means = jnp.mean(kernel(one, others), axis=0)
            return jnp.mean(means.reshape(group, points), axis=1)

        return jax.lax.map(part, grouped).reshape(blocks)

    return jax.lax.map(row, left)


def median_scale(points: Float[Array, "block point p"]) -> Float[Array, " p"]:
    """Length scales: each coordinate's standard deviation times a common factor.

    The factor is the root of the median squared distance of some 250 standardised points.
    """
    flat = points.reshape(-1, points.shape[-1])
    # The squares of draws around 1e20 overflow.
    unit = jnp.max(jnp.abs(flat - flat[:1]), axis=0)
    unit = jnp.where(unit > 0, unit, 1)
    deviation = unit * jnp.std((flat - flat[:1]) / unit[None], axis=0)
    deviation = jnp.where(deviation > 0, deviation, 1)
    some = flat[np.linspace(0, len(flat) - 1, min(_SOME, len(flat))).round().astype(int)]
    some = (some - jnp.mean(flat, axis=0)[None]) / deviation[None]
    squared = squared_distances(some, some)
    above = squared[np.triu_indices(len(some), 1)]
    middle = quantile(sorted_draws(above), 0.5)
    # Where most points are equal any scale will do that is not zero.
    return deviation * jnp.sqrt(jnp.where(middle == 0, 1, middle))


def squared_distances(x: Float[Array, "m p"], y: Float[Array, "n p"]) -> Float[Array, "m n"]:
    """|x_i - y_j|^2, in units of a length scale, with an error of at most a thousandth or so.

    By one matrix product, |x|^2 + |y|^2 - 2 x.y, where that leaves enough digits; by differences,
    one coordinate after the other, where some points lie too far from the origin.
    """
    of_x, of_y = (jnp.sum(v**2, axis=1) for v in (x, y))

    def by_product():
        return jnp.maximum(of_x[:, None] + of_y[None] - 2 * product(x, y.T), 0)

    def by_differences():
        def add(total, coordinate):
            a, b = coordinate
            return total + jnp.square(a[:, None] - b[None]), None

        zeros = jnp.zeros((len(x), len(y)), x.dtype)
        return jax.lax.scan(add, zeros, (x.T, y.T), unroll=8)[0]

    error = jnp.finfo(x.dtype).eps * (jnp.max(of_x) + jnp.max(of_y))
    return jax.lax.cond(error < _PRODUCT_ERROR, by_product, by_differences)


def judge_blocks(
    products: Float[Array, "block block"], touching: Bool[np.ndarray, "block block"]
) -> Discrepancy:
    """Estimate, error and p-value from the inner products <f_k, f_l> of all blocks."""
    blocks = len(products)
    used = ~touching & ~np.eye(blocks, dtype=bool)
    pairs = float(used.sum())
    row_pairs = jnp.asarray(used.sum(axis=1), products.dtype)
    kept = jnp.where(used, (products + products.T) / 2, 0)
    total = jnp.sum(kept)
    left_out = (total - 2 * jnp.sum(kept, axis=1)) / (pairs - 2 * row_pairs)
    error = jnp.sqrt((blocks - 1) / blocks * jnp.sum((left_out - jnp.mean(left_out)) ** 2))
    squared = total / pairs
    own = jnp.mean(jnp.diagonal(products)) - squared
    beside = jnp.sum(jnp.where(touching, products, 0)) / max(1.0, float(touching.sum())) - squared
    correlation = beside / own if touching.any() else jnp.zeros_like(own)
    p_value = _quadratic_tail(jnp.linalg.eigvalsh(kept), total)
    return Discrepancy(squared, error, p_value, correlation)


def _quadratic_tail(weights: Float[Array, " n"], value: Float[Array, ""]) -> Float[Array, ""]:
    """P(sum_i w_i Z_i^2 > value), Z_i independent standard normal, for weights that add up to 0.

    With K(s) = -1/2 sum log(1 - 2 s w_i) and K'(s) = value: Phi(-r), r = a + log(b / a) / a,
    a = sign(s) sqrt(2 (s value - K)), b = s sqrt(K''(s)) (Barndorff-Nielsen, 1990).
    """
    largest = jnp.max(jnp.abs(weights))
    w, t = weights / largest, value / largest
    eps = jnp.finfo(w.dtype).eps
    low, high = (1 - 4 * eps) / (2 * jnp.min(w)), (1 - 4 * eps) / (2 * jnp.max(w))

    def halve(_, bounds):
        low, high = bounds
        middle = low + (high - low) / 2
        is_below = jnp.sum(w / (1 - 2 * middle * w)) < t
        return jnp.where(is_below, middle, low), jnp.where(is_below, high, middle)

    low, high = jax.lax.fori_loop(0, _HALVINGS, halve, (low, high))
    s = low + (high - low) / 2
    rest = 1 - 2 * s * w
    cumulant = -jnp.sum(jnp.log(rest)) / 2
    curvature = 2 * jnp.sum((w / rest) ** 2)
    a = jnp.sign(s) * jnp.sqrt(jnp.maximum(2 * (s * t - cumulant), 0))
    b = s * jnp.sqrt(curvature)
    # At the mean both vanish; there log(b / a) / a is a sixth of the skewness.
    is_near = jnp.abs(a) < 0.1
    safe_a, ratio = jnp.where(is_near, 1, a), jnp.where(is_near, 1, b / jnp.where(is_near, 1, a))
    second = 2 * jnp.sum(w**2)
    skewness = 8 * jnp.sum(w**3) / second**1.5
    r = jnp.where(is_near, t / jnp.sqrt(second) + skewness / 6, a + jnp.log(ratio) / safe_a)
    return jax.scipy.special.ndtr(-r)
