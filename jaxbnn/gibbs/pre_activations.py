"""The conditional of a pre-activation, for any piecewise-linear activation.

    p(z) ∝ exp[-(z - mean)^2 / (2 D_z) - (sigma(z) - x)^2 / (2 D_x)]

with sigma(z) = a_k z + c_k on piece k is a mixture of truncated normals (Piccioli et al.,
appendix E, whose exponentials overflow). Here every piece is seen from its own mode
(erratum A1), so that what the pieces share cancels exactly, and float32 serves down to
variances of 1e-5 and below. One uniform a draw chooses the piece and the point in it.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Bool, Float, PRNGKeyArray

from jaxbnn.gibbs.arguments import check_arrays, check_numbers
from jaxbnn.gibbs.pieces import Piece, PiecewiseLinear
from jaxbnn.numerics import (
    log_mass_from_mode,
    standard_normal,
    truncated_normal_from_mode,
    uniform_open,
)
from jaxbnn.numerics.arguments import check_key, check_type


def sample_pre_activations(
    key: PRNGKeyArray,
    activation: PiecewiseLinear,
    mean: Float[Array, "*shape"],
    post: Float[Array, "*shape"],
    noise_variance: ArrayLike,
    next_noise_variance: ArrayLike,
) -> Float[Array, "*shape"]:
    """Draw z ~ N(mean, D_z) given post = sigma(z) + N(0, D_x), elementwise.

    Parameters
    ----------
    key
        A PRNG key.
    activation
        sigma, by its pieces: `activation_pieces("relu")`, or one's own.
    mean
        What the layer before gives without noise, its bias included.
    post
        The post-activation x, with its noise.
    noise_variance, next_noise_variance
        D_z and D_x. May be traced.

    Returns
    -------
    A draw for each entry. Source: Piccioli et al., (10), (26)-(47), with erratum A1.

    Raises
    ------
    ValueError
        Arrays of two shapes; variances that are not one positive number each.
    TypeError
        Arrays that are not float32 or float64.

    Examples
    --------
    >>> from jaxbnn.gibbs import activation_pieces
    >>> mean, post = jnp.full(10_000, -3.0), jnp.full(10_000, 3.0)
    >>> z = sample_pre_activations(
    ...     jax.random.key(0), activation_pieces("relu"), mean, post, 1e-5, 1e-5
    ... )
    >>> bool(jnp.isfinite(z).all())
    True
    """
    check_key("key", key)
    check_type("activation", activation, PiecewiseLinear, "write activation_pieces(activation)")
    check_arrays(mean=mean, post=post)
    if np.shape(mean) != np.shape(post):
        raise ValueError(
            f"mean and post must have one shape, but have {np.shape(mean)} and {np.shape(post)}; "
            "give one post-activation for each mean."
        )
    check_numbers(noise_variance=noise_variance, next_noise_variance=next_noise_variance)
    dtype = mean.dtype
    noise_variance = jnp.asarray(noise_variance, dtype)
    next_noise_variance = jnp.asarray(next_noise_variance, dtype)
    pieces = [Piece(*piece) for piece in activation.pieces]
    if len(pieces) == 1:
        [mode] = (_mode(piece, mean, post, noise_variance, next_noise_variance) for piece in pieces)
        return mode.centre + mode.scale * standard_normal(key, mean.shape, dtype)
    uniform = uniform_open(key, mean.shape, dtype)
    if len(pieces) == 2:
        return _from_two(uniform, pieces, mean, post, noise_variance, next_noise_variance)
    return _from_many(uniform, pieces, mean, post, noise_variance, next_noise_variance)


class _Mode(NamedTuple):
    """A piece's normal law before truncation, its mode after it, and the activation there."""

    centre: Float[Array, "*shape"]
    scale: Float[Array, ""]
    log_scale: Float[Array, ""]
    point: Float[Array, "*shape"]
    value: Float[Array, "*shape"]


def _mode(piece: Piece, mean, post, noise_variance, next_noise_variance) -> _Mode:
    a, c = piece.slope, piece.intercept
    ratio = noise_variance / (next_noise_variance + a * a * noise_variance)
    centre = mean if a == 0 else mean + a * ratio * (post - c - a * mean)
    point = jnp.clip(centre, piece.low, piece.high)
    scale = jnp.sqrt(next_noise_variance * ratio)
    return _Mode(centre, scale, jnp.log(scale), point, a * point + c)


def _log_density_difference(
    new: _Mode, old: _Mode, mean, post, noise_variance, next_noise_variance
):
    """Log of the unnormalised density at one mode over that at another.

    As products of differences: exactly zero where the two modes are one point of a continuous
    activation.
    """
    in_z = (old.point - new.point) * (old.point + new.point - 2 * mean)
    in_x = (old.value - new.value) * (old.value + new.value - 2 * post)
    return in_z / (2 * noise_variance) + in_x / (2 * next_noise_variance)


def _from_two(uniform, pieces, mean, post, noise_variance, next_noise_variance) -> Array:
    """Two half lines that meet: no interval has two ends, which is a third of the cost."""
    border = pieces[0].high
    left, right = (
        _mode(piece, mean, post, noise_variance, next_noise_variance) for piece in pieces
    )
    # Each half line as seen from its mode: the distance of the border, positive if beyond.
    left_edge = (left.centre - border) / left.scale
    right_edge = (border - right.centre) / right.scale
    log_odds = (
        _log_density_difference(right, left, mean, post, noise_variance, next_noise_variance)
        + (log_mass_from_mode(right_edge) - log_mass_from_mode(left_edge))
        + (right.log_scale - left.log_scale)
    )
    is_right, uniform = _choose(uniform, jax.nn.sigmoid(log_odds))
    offset = truncated_normal_from_mode(uniform, jnp.where(is_right, right_edge, left_edge))
    return jnp.where(
        is_right,
        jnp.maximum(right.point + right.scale * offset, border),
        jnp.minimum(left.point - left.scale * offset, border),
    )


def _choose(uniform: Array, probability: Array) -> tuple[Bool[Array, "..."], Array]:
    """Return whether uniform < probability, and the uniform that is left in either case."""
    chosen = uniform < probability
    rest = jnp.where(chosen, uniform, uniform - probability)
    share = jnp.where(chosen, probability, 1 - probability)
    return chosen, _inside(rest / jnp.where(share > 0, share, 1))


def _inside(uniform: Array) -> Array:
    """Keep a rounded uniform off both ends, by no less than the uniforms' own steps."""
    info = jnp.finfo(uniform.dtype)
    return jnp.clip(uniform, 2.0 ** -(info.bits + 1), float(1 - info.epsneg))


def _from_many(uniform, pieces, mean, post, noise_variance, next_noise_variance) -> Array:
    """Any number of pieces: masses relative to the highest mode, then one draw in the chosen."""
    modes = [_mode(piece, mean, post, noise_variance, next_noise_variance) for piece in pieces]
    edges, widths, signs, rests = [], [], [], []
    for piece, mode in zip(pieces, modes, strict=True):
        low, high = (piece.low - mode.centre) / mode.scale, (piece.high - mode.centre) / mode.scale
        on_left = low + high < 0
        edges.append(jnp.where(on_left, -high, low))
        widths.append(jnp.broadcast_to((piece.high - piece.low) / mode.scale, mean.shape))
        signs.append(jnp.where(on_left, -1, 1).astype(mean.dtype))
        rests.append(log_mass_from_mode(edges[-1], widths[-1]) + mode.log_scale)

    # Each entry's own: relative to a far lower mode, heights would round by more than they differ.
    highest = modes[0]
    for mode in modes[1:]:
        gain = _log_density_difference(
            mode, highest, mean, post, noise_variance, next_noise_variance
        )
        highest = highest._replace(
            point=jnp.where(gain > 0, mode.point, highest.point),
            value=jnp.where(gain > 0, mode.value, highest.value),
        )
    heights = [
        _log_density_difference(mode, highest, mean, post, noise_variance, next_noise_variance)
        for mode in modes
    ]
    masses = jax.nn.softmax(
        jnp.stack([height + rest for height, rest in zip(heights, rests, strict=True)]), axis=0
    )
    # Piece by piece, given that none before was chosen. What the pieces after it have is added up
    # from the last: as a difference from 1, rounding would leave pieces of no mass a share.
    after = [masses[-1]]
    for mass in masses[-2:0:-1]:
        after.insert(0, mass + after[0])
    state = [modes[-1].point, modes[-1].scale + jnp.zeros_like(mean), edges[-1], widths[-1]]
    state += [signs[-1], jnp.full_like(mean, pieces[-1].low), jnp.full_like(mean, pieces[-1].high)]
    done = jnp.zeros(mean.shape, bool)
    for k, (piece, mode) in enumerate(zip(pieces[:-1], modes[:-1], strict=True)):
        probability = masses[k] / jnp.maximum(masses[k] + after[k], jnp.finfo(mean.dtype).tiny)
        chosen, left = _choose(uniform, probability)
        uniform = jnp.where(done, uniform, left)
        now = chosen & ~done
        here = (mode.point, mode.scale, edges[k], widths[k], signs[k], piece.low, piece.high)
        state = [jnp.where(now, a, b) for a, b in zip(here, state, strict=True)]
        done = done | chosen
    point, scale, edge, width, sign, low, high = state
    offset = truncated_normal_from_mode(uniform, edge, width)
    return jnp.clip(point + sign * scale * offset, low, high)
