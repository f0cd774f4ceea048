"""Checks of the draws that a diagnostic is given; a walk over coordinates that bounds the memory.

A diagnostic is written once, for one coordinate, as a function of an array
(chain, draw). `per_coordinate` applies it to arrays of any trailing shape, a block of
coordinates at a time: the work arrays (sorted draws, Fourier transforms) of one block stay
below a fixed size, whatever the number of coordinates, and the draws are never copied whole.
"""

import functools
import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PyTree, Shaped

from jaxbnn.numerics import check_real, is_concrete
from jaxbnn.numerics.arrays import as_array, float_dtype

# A block's draws are at most 1/16 of this; sorting and transforming them takes several copies.
_WORKSPACE_BYTES = 2**28
_LONG_COORDINATE = 2**16
# Rounding by this part of a standard deviation adds some 1e-4 to a variance.
_LOSS = 0.02

# NumPy reduces arrays without axes to scalars.
_Numbers = Float[np.ndarray, "..."] | np.floating


def check_draws(
    name: str, draws: Any, *, min_chains: int = 1, min_draws: int = 2
) -> Shaped[Array, "chain draw ..."]:
    """Return `draws` as a JAX array (chain, draw, ...), or raise one clear sentence.

    Parameters
    ----------
    name
        The diagnostic that asks, for the message.
    draws
        What the user gave.
    min_chains, min_draws
        Fewest chains, and draws per chain, for which the diagnostic is defined.

    Raises
    ------
    ValueError
        Too few axes, chains or draws; numbers of 64 bits that lose their spread in 32.
    TypeError
        No array, or not of real numbers.
    """
    if not hasattr(draws, "dtype") and isinstance(draws, dict | tuple | list):
        raise TypeError(
            f"{name} takes one array (chain, draw, ...), not a {type(draws).__name__}; "
            "use jax.tree.map for a PyTree, or summary, which takes PyTrees."
        )
    if np.iscomplexobj(draws):
        raise TypeError(f"{name} takes real draws; give real and imaginary parts separately.")
    check_real(f"the draws given to {name}", draws)
    draws = in_doubles(draws)
    check_rounding(f"the draws given to {name}", draws)
    array = as_array(draws)
    if array.ndim < 2:
        raise ValueError(
            f"{name} needs an array (chain, draw, ...), but its shape is {array.shape}; "
            "put a chain axis first, with draws[None] for a single chain."
        )
    chains, length = array.shape[:2]
    if chains < min_chains:
        raise ValueError(
            f"{name} needs at least {min_chains} chains, but there are {chains}; run more chains, "
            "or check that the axes are (chain, draw, ...)."
        )
    if length < min_draws:
        raise ValueError(
            f"{name} needs at least {min_draws} draws per chain, but there are {length}; "
            "keep more draws, or check that the axes are (chain, draw, ...)."
        )
    if array.size == 0:
        raise ValueError(f"{name} got no coordinates: the shape of the draws is {array.shape}.")
    return array


def in_doubles(draws: Any) -> Any:
    """Return NumPy's long doubles, which JAX does not know, as float64; others as they are."""
    if getattr(draws, "dtype", None) != np.longdouble:
        return draws
    with np.errstate(over="ignore"):  # What no double holds is infinite, and told as such.
        return np.asarray(draws, float)


def check_rounding(what: str, draws: Any) -> None:
    """Raise where numbers of 64 bits lose their spread in floats of 32, in which JAX judges them.

    Draws that spread by 1 around 1e8 would seem to stand still; whole numbers do so from 32 bits
    on. Without `jax_enable_x64` only. Floats of JAX have been rounded already, where they were
    made; traced draws are not looked at.

    Parameters
    ----------
    what
        What they are, for the message.
    draws
        (chain, draw, ...).
    """
    if np.ndim(draws) < 2 or not is_concrete(draws):
        return
    if isinstance(draws, jax.Array) and not jnp.issubdtype(draws.dtype, jnp.integer):
        return
    kind, default = np.asarray(draws).dtype, np.dtype(float_dtype(np.dtype(int)))
    if kind.itemsize < 4 or kind.kind not in "iuf" or np.can_cast(kind, default):
        return
    values = np.asarray(draws)
    with np.errstate(over="ignore", invalid="ignore"):
        # A chain at a time, so that the draws are never copied whole.
        lost = [np.abs(chain - chain.astype(default)).max(axis=0, initial=0) for chain in values]
        loss = np.max(lost, axis=0, initial=0)
        if not (loss > 0).any():
            return
        spread = _spread(values)
        # NaNs compare false: such draws are found later.
        too_much = (loss > _LOSS * spread) & (spread > 0)
    if too_much.any():
        at = np.flatnonzero(too_much)[0]
        deviation, most = np.ravel(spread)[at], np.ravel(loss)[at]
        is_held = np.isfinite(most) and deviation > np.finfo(default).tiny
        raise ValueError(
            f"{what} lose their spread in {default.name}: coordinate {at} has a standard "
            f"deviation of {deviation:.2g} and is rounded by up to {most:.2g}; "
            f"{'subtract its mean' if is_held else 'scale it'}, or set jax_enable_x64."
        )


def _spread(values: Shaped[np.ndarray, "chain draw ..."]) -> _Numbers:
    """Return the standard deviations within chains; where all stand still, that of their places."""
    reach = np.max([_reach(chain) for chain in values], axis=0)
    places = values[:, 0]
    within = _deviation(values, reach)
    between = _deviation(places[None], _reach(places))
    return np.where(reach > 0, within, between)


def _reach(series: Shaped[np.ndarray, "draw ..."]) -> _Numbers:
    # Differences of finite numbers may overflow.
    apart = np.minimum(np.abs(series - series[:1].astype(float)), np.finfo(float).max)
    return np.max(apart, axis=0, where=np.isfinite(series), initial=0)


def _deviation(values: Shaped[np.ndarray, "chain draw ..."], reach: _Numbers) -> _Numbers:
    # By powers of two, which do not round: squares of what reaches this far over- or underflow.
    scale = np.ldexp(1.0, np.clip(np.frexp(reach)[1], -1000, 1000))
    variances = [np.var(chain / scale, axis=0) for chain in values]
    # That of equal numbers may be a rounding error.
    return np.where(reach > 0, scale * np.sqrt(np.mean(variances, axis=0)), 0)


def per_coordinate(
    diagnostic: Callable[..., PyTree], draws: Shaped[Array, "chain draw ..."], *options: Any
) -> PyTree:
    """Apply `diagnostic` to every coordinate of `draws`.

    Parameters
    ----------
    diagnostic
        Maps one coordinate's draws (chain, draw), and `options`, to a PyTree of arrays. A
        module-level function, so that the compiled program is found again.
    draws
        Array (chain, draw, ...). Integers and booleans are made floats, halves float32.
    options
        Hashable; compiled into the program.

    Returns
    -------
    Leaves shaped like the diagnostic's, followed by the trailing shape of the draws. NaN
    for coordinates that hold a NaN or an infinity; the others are untouched.
    """
    with jax.debug_nans(False):  # NaN stands for what is not known of a coordinate that is bad
        return _map_blocks(diagnostic, options, draws)


@functools.partial(jax.jit, static_argnums=(0, 1))
def _map_blocks(diagnostic, options, draws):
    chains, length, *shape = draws.shape
    count = math.prod(shape)
    flat = draws.reshape(chains, length, count)
    dtype = float_dtype(draws.dtype)
    coordinate_bytes = 16 * chains * length * jnp.dtype(dtype).itemsize
    largest = max(1, min(count, _WORKSPACE_BYTES // coordinate_bytes))
    block = -(-count // -(-count // largest))
    # The last block is moved back to end with the last coordinate, so that all are equal.
    starts = np.minimum(np.arange(0, count, block), count - block)

    def one_coordinate(x):
        return diagnostic(x, *options)

    def one_block(start):
        part = jax.lax.dynamic_slice_in_dim(flat, start, block, axis=2)
        part = jnp.moveaxis(part, 2, 0).astype(dtype)
        is_bad = ~jnp.isfinite(part).all(axis=(1, 2))
        # Long coordinates fill the processor by themselves, and gather faster one at a time.
        if chains * length >= _LONG_COORDINATE:
            values = jax.lax.map(one_coordinate, part)
        else:
            values = jax.vmap(one_coordinate)(part)

        def mark(value):
            return jnp.where(is_bad.reshape(block, *(1,) * (value.ndim - 1)), jnp.nan, value)

        return jax.tree.map(mark, values)

    if len(starts) == 1:
        values = one_block(0)
    else:
        values = jax.lax.map(one_block, jnp.asarray(starts))
        index = np.arange(count)
        rows = index // block

        def pick(value):
            return value[rows, index - starts[rows]]

        values = jax.tree.map(pick, values)
    return jax.tree.map(lambda v: jnp.moveaxis(v, 0, -1).reshape(*v.shape[1:], *shape), values)


def standardise(x: Float[Array, "chain draw"]) -> Float[Array, "chain draw"]:
    """Shift and scale into [-1, 1], for diagnostics that location and scale do not change.

    In float32 the means of chains around 1e4 are known to 1e-3 only, and squares of draws
    around 1e20 overflow. The first draw, not the mean, is subtracted: equal draws stay equal.
    """
    shifted = x - x[0, 0]
    largest = jnp.max(jnp.abs(shifted))
    return shifted / jnp.where(largest > 0, largest, 1)


def chain_moments(
    x: Float[Array, "chain draw"],
) -> tuple[Float[Array, " chain"], Float[Array, " chain"], Float[Array, "chain draw"]]:
    """Mean and unbiased variance of each chain, and the chains with their means removed.

    A constant chain has variance 0 exactly, and the second pass over the draws removes the
    rounding error of a long float32 sum.
    """
    mean = jnp.mean(x, axis=1, keepdims=True)
    mean = mean + jnp.mean(x - mean, axis=1, keepdims=True)
    constant = (x == x[:, :1]).all(axis=1, keepdims=True)
    mean = jnp.where(constant, x[:, :1], mean)
    # A compiler that fuses the scaling of x into this difference leaves its rounding error.
    centred = jnp.where(constant, 0, x - mean)
    variance = jnp.sum(centred**2, axis=1) / (x.shape[1] - 1)
    return mean[:, 0], variance, centred


def split_chains(x: Float[Array, "chain draw"]) -> Float[Array, "half_chain half_draw"]:
    """First and second halves as chains of their own; of an odd number the middle draw is left out.

    For an even number of draws this is a reshape: the pooled draws keep their order.
    """
    chains, length = x.shape
    half = length // 2
    if length % 2:
        x = jnp.concatenate([x[:, :half], x[:, length - half :]], axis=1)
    return x.reshape(2 * chains, half)
