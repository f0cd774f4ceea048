"""How far draws are from a density (kernel Stein discrepancy) or from other draws (MMD)."""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Float

from jaxbnn.diagnostics.blocks import (
    Discrepancy,
    block_index,
    check_flat,
    effective_draws,
    judge_blocks,
    median_scale,
    neighbours,
    pair_means,
    refuse_short_blocks,
    squared_distances,
)
from jaxbnn.numerics import check_positive, is_concrete
from jaxbnn.numerics.products import product

# Thirty-two blocks can make a p-value as small as 1e-8, and eight of each of four chains are longer
# than the memory of chains worth fifty draws each.
_NUM_BLOCKS = 32


def kernel_stein_discrepancy(
    draws: ArrayLike,
    scores: ArrayLike,
    *,
    length_scale: ArrayLike | None = None,
    num_blocks: int = _NUM_BLOCKS,
    max_draws: int = 8192,
) -> Discrepancy:
    """Squared kernel Stein discrepancy between draws and the density with these scores.

    With s = grad log p, z = x / l and s_z = l s, the mean over pairs of draws of

        u(x, y) = s_z(x).s_z(y) k + s_z(x).grad_y k + s_z(y).grad_x k + tr grad_x grad_y k,

    k = (1 + |z_x - z_y|^2)^(-1/2), the inverse multiquadric, with which it decides convergence
    (Gorham and Mackey, 2017). No normalising constant and no draws of p are needed. Only
    pairs from different blocks that do not touch count (see `Discrepancy`): the estimate is
    unbiased, and its null knows the autocorrelation.

    It sees draws in the wrong places and of the wrong spread. It hardly sees wrong *weights* of
    modes far apart: the scores inside a mode do not know of the others.

    Parameters
    ----------
    draws
        Array (chain, draw, ...); the trailing axes are flattened to p coordinates.
    scores
        grad log p at the draws, of the same shape: `evaluate(jax.grad(log_density), positions)`.
    length_scale
        l, a number or one per coordinate; by default each coordinate's standard deviation times
        the root of the median squared distance of the standardised draws.
    num_blocks
        Blocks in all; each chain is cut into the same number of them, and the first fifth of each
        is left out.
    max_draws
        How many draws are used, evenly spaced: the cost is its square.

    Returns
    -------
    `Discrepancy`.

    Raises
    ------
    ValueError
        Scores of another shape, fewer than 8 blocks, length scales that are not positive; draws
        1e15 length scales apart, or scores as large; blocks worth fewer than three independent
        draws.

    Examples
    --------
    >>> x = jax.random.normal(jax.random.key(0), (4, 2000, 2))
    >>> bool(kernel_stein_discrepancy(x, -x).p_value > 1e-3)
    True
    >>> bool(kernel_stein_discrepancy(x + 0.1, -(x + 0.1)).p_value < 1e-6)
    True
    """
    name = "kernel_stein_discrepancy"
    flat, flat_scores = check_flat(name, draws), check_flat(name, scores)
    if jnp.shape(draws) != jnp.shape(scores):
        raise ValueError(
            f"{name} needs one score for each coordinate of each draw, but the draws have shape "
            f"{jnp.shape(draws)} and the scores {jnp.shape(scores)}."
        )
    chains, length, _ = flat.shape
    index = block_index(name, chains, length, num_blocks, max_draws)
    points, point_scores = _take(flat, index), _take(flat_scores, index)
    scale = _check_scale(length_scale, points)
    _check_size("scores point", point_scores * scale[None, None])
    found = _stein(points, point_scores.astype(points.dtype), scale, chains)
    found = _unless_finite(found, flat, flat_scores)
    return refuse_short_blocks(name, found, _effective_draws(flat, num_blocks))


def maximum_mean_discrepancy(
    draws: ArrayLike,
    others: ArrayLike,
    *,
    length_scale: ArrayLike | None = None,
    num_blocks: int = _NUM_BLOCKS,
    max_draws: int = 8192,
) -> Discrepancy:
    """Squared maximum mean discrepancy between two sets of draws.

    E k(x, x') + E k(y, y') - 2 E k(x, y) with k = exp(-|z_x - z_y|^2 / 2), z = x / l (Gretton et
    al., 2012). Both sets are cut into the same number of blocks, and block k of one is paired with
    block k of the other; only pairs of blocks that do not touch count (see `Discrepancy`): the
    estimate is unbiased, and its null knows the autocorrelation of both sides.

    Parameters
    ----------
    draws, others
        Arrays (chain, draw, ...) of the same coordinates; chains and draws may differ in number.
    length_scale
        l, a number or one per coordinate; by default as for `kernel_stein_discrepancy`, from
        both sets together.
    num_blocks
        Blocks of each set. Both must give the same number: a multiple of both numbers of
        chains.
    max_draws
        How many draws of each set are used, evenly spaced: the cost is its square.

    Returns
    -------
    `Discrepancy`.

    Raises
    ------
    ValueError
        Different coordinates or numbers of blocks, fewer than 8 blocks, length scales that are not
        positive; draws 1e15 length scales apart; blocks worth fewer than three independent draws.

    Examples
    --------
    >>> keys = jax.random.split(jax.random.key(0), 2)
    >>> x, y = jax.random.normal(keys[0], (4, 2000, 2)), jax.random.normal(keys[1], (2, 3000, 2))
    >>> bool(maximum_mean_discrepancy(x, y).p_value > 1e-3)
    True
    >>> bool(maximum_mean_discrepancy(x, 1.3 * y).p_value < 1e-6)
    True
    """
    name = "maximum_mean_discrepancy"
    ours, theirs = check_flat(name, draws), check_flat(name, others)
    theirs = theirs.astype(ours.dtype)
    if ours.shape[2] != theirs.shape[2]:
        raise ValueError(
            f"{name} needs the same coordinates in both sets, but they have {ours.shape[2]} and "
            f"{theirs.shape[2]}."
        )
    indices = [
        block_index(name, x.shape[0], x.shape[1], num_blocks, max_draws) for x in (ours, theirs)
    ]
    if len(indices[0]) != len(indices[1]):
        raise ValueError(
            f"{name} needs the same number of blocks on both sides, but {num_blocks} blocks of "
            f"{len(ours)} and {len(theirs)} chains are {len(indices[0])} and {len(indices[1])}; "
            "give a multiple of both numbers of chains."
        )
    points = [_take(x, index) for x, index in zip((ours, theirs), indices, strict=True)]
    found = _mmd(*points, _check_scale(length_scale, *points), (len(ours), len(theirs)))
    found = _unless_finite(found, ours, theirs)
    worth = jnp.minimum(*(_effective_draws(x, num_blocks) for x in (ours, theirs)))
    return refuse_short_blocks(name, found, worth)


def _take(flat, index):
    return flat.reshape(-1, flat.shape[2])[index]


def _check_scale(length_scale: ArrayLike | None, *points: Array) -> Float[Array, " p"]:
    """Return one length scale a coordinate, and refuse points too far apart for their squares."""
    dim = points[0].shape[2]
    if length_scale is None:
        scale = _median_scale(points)
    else:
        check_positive("length_scale", length_scale, "give one, or one per coordinate, or none")
        if np.shape(length_scale) not in ((), (dim,)):
            raise ValueError(
                f"length_scale must be one number or one for each of {dim} coordinates, but has "
                f"shape {np.shape(length_scale)}."
            )
        scale = jnp.broadcast_to(jnp.asarray(length_scale, points[0].dtype), (dim,))
    for x in points:
        _check_size("draws lie", (x - points[0][:1, :1]) / scale[None, None])
    return scale


def _check_size(what: str, numbers: Array) -> None:
    if is_concrete(numbers) and jnp.max(jnp.abs(numbers)) > 1e15:
        raise ValueError(
            f"some {what} more than 1e15 length scales away, where squares overflow; look at the "
            "largest ones, or give another length_scale."
        )


@jax.jit
def _unless_finite(found: Discrepancy, *given: Array) -> Discrepancy:
    """NaN where anything given is not finite, also draws in gaps and those that are not used."""
    is_finite = jnp.stack([jnp.isfinite(x).all() for x in given]).all()
    return Discrepancy(*(jnp.where(is_finite, number, jnp.nan) for number in found))


_effective_draws = jax.jit(effective_draws, static_argnums=1)


@jax.jit
def _median_scale(points):
    return median_scale(jnp.concatenate([x.reshape(1, -1, x.shape[2]) for x in points], axis=1))


@jax.jit(static_argnums=3)
def _stein(points, scores, scale, chains):
    origin = jnp.mean(points, axis=(0, 1))
    z = (points - origin[None, None]) / scale[None, None]
    s = scores * scale[None, None]
    both = jnp.concatenate([z, s], axis=2)
    products = pair_means(_stein_kernel, both, both)
    return judge_blocks(products, neighbours(chains, len(points)))


def _stein_kernel(one, other):
    p = one.shape[1] // 2
    x, sx, y, sy = one[:, :p], one[:, p:], other[:, :p], other[:, p:]
    squared = squared_distances(x, y)
    along_x = jnp.sum(sx * x, axis=1)[:, None] - product(sx, y.T)
    along_y = product(x, sy.T) - jnp.sum(sy * y, axis=1)[None]
    q = 1 + squared
    root = jax.lax.rsqrt(q)
    cube = root / q
    # beta = -1/2: grad_y k = (x - y) q^(-3/2), grad_x k = -grad_y k.
    return product(sx, sy.T) * root + (along_x - along_y + p) * cube - 3 * squared * cube / q


@jax.jit(static_argnums=3)
def _mmd(ours, theirs, scale, chains):
    origin = jnp.mean(ours, axis=(0, 1))
    x, y = ((v - origin[None, None]) / scale[None, None] for v in (ours, theirs))
    cross = pair_means(_gaussian_kernel, x, y)
    same = pair_means(_gaussian_kernel, x, x) + pair_means(_gaussian_kernel, y, y)
    touching = neighbours(chains[0], len(ours)) | neighbours(chains[1], len(ours))
    return judge_blocks(same - cross - cross.T, touching)


def _gaussian_kernel(x, y):
    return jnp.exp(-squared_distances(x, y) / 2)
