"""Streaming reducers: what a run keeps when it cannot keep its draws.

A reducer sees each kept draw once and holds no more than its own state. There is one a
chain; the chains' states are merged at the end. Every factory returns the same object for
the same arguments, so that a second run does not compile anew.
"""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float, Int, PyTree

from jaxbnn.numerics import check_count


class Reducer(NamedTuple):
    """A streaming reduction; `moments` returns one, for instance.

    Attributes
    ----------
    init
        `init(example) -> r`, called with one collected value (its numbers mean nothing).
    update
        `update(r, collected) -> r`.
    merge
        `merge(r1, r2) -> r` of two chains.
    finalise
        `finalise(r)` -> the result, a PyTree.
    collect
        `collect(state, info)`, what this reducer looks at; None: what the run collects.
    every_step
        Whether it sees every step, not only the kept ones.
    """

    init: Callable[[PyTree], PyTree]
    update: Callable[[PyTree, PyTree], PyTree]
    merge: Callable[[PyTree, PyTree], PyTree]
    finalise: Callable[[PyTree], Any]
    collect: Callable[[Any, Any], PyTree] | None = None
    every_step: bool = False


class Moments(NamedTuple):
    """What `moments` finds; leaves are shaped like what was collected.

    Attributes
    ----------
    num_draws
        How many were seen.
    mean
        Theirs.
    variance
        With the divisor num_draws - 1.
    """

    num_draws: Int[Array, "..."]
    mean: PyTree
    variance: PyTree


class _Welford(NamedTuple):
    number: Array
    mean: PyTree
    squares: PyTree  # sums of squared deviations (moments) or of outer products (covariance)


def _weight(numerator: Array, denominator: Array, like: Array) -> Array:
    return numerator.astype(like.dtype) / jnp.maximum(denominator, 1).astype(like.dtype)


def _as_float(tree: PyTree) -> PyTree:
    """Booleans and integers become floats: a mean of them is wanted."""
    return jax.tree.map(
        lambda x: x if jnp.issubdtype(x.dtype, jnp.inexact) else x.astype(jnp.result_type(float)),
        jax.tree.map(jnp.asarray, tree),
    )


def _merge_welford(a: _Welford, b: _Welford, product: Callable) -> _Welford:
    """Chan, Golub and LeVeque's pairwise update."""
    count = a.number + b.number
    delta = jax.tree.map(jnp.subtract, b.mean, a.mean)
    mean = jax.tree.map(lambda m, d: m + d * _weight(b.number, count, m), a.mean, delta)
    squares = jax.tree.map(
        lambda s1, s2, d: (
            s1 + s2 + product(d, d) * (_weight(b.number, count, d) * a.number.astype(d.dtype))
        ),
        a.squares,
        b.squares,
        delta,
    )
    return _Welford(count, mean, squares)


@functools.lru_cache(maxsize=64)
def moments(function: Callable[[PyTree], PyTree] | None = None) -> Reducer:
    """Mean and variance of each entry of what is collected, or of a function of it.

    Welford's recursion, stable in float32. Result: `Moments`.

    Parameters
    ----------
    function
        Applied to each collected value first; None: the value itself.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> reducer = moments()
    >>> r = reducer.init(jnp.zeros(2))
    >>> for x in ([1.0, 0.0], [3.0, 0.0]):
    ...     r = reducer.update(r, jnp.array(x))
    >>> reducer.finalise(r).mean.tolist(), reducer.finalise(r).variance.tolist()
    ([2.0, 0.0], [2.0, 0.0])
    """

    def value(collected):
        return _as_float(collected if function is None else function(collected))

    def init(example):
        zeros = jax.tree.map(jnp.zeros_like, value(example))
        return _Welford(jnp.zeros((), jnp.int32), zeros, zeros)

    def update(r, collected):
        x = value(collected)
        count = r.number + 1
        delta = jax.tree.map(jnp.subtract, x, r.mean)
        mean = jax.tree.map(lambda m, d: m + d / count.astype(d.dtype), r.mean, delta)
        squares = jax.tree.map(lambda s, d, new, m: s + d * (new - m), r.squares, delta, x, mean)
        return _Welford(count, mean, squares)

    def finalise(r):
        variance = jax.tree.map(
            lambda s: jnp.where(
                r.number > 1, s / jnp.maximum(r.number - 1, 1).astype(s.dtype), jnp.nan
            ),
            r.squares,
        )
        return Moments(r.number, r.mean, variance)

    return Reducer(init, update, lambda a, b: _merge_welford(a, b, jnp.multiply), finalise)


def predictive_mean(predict_fn: Callable[[PyTree], PyTree]) -> Reducer:
    """Posterior mean and variance of a prediction, without keeping weights or predictions.

    Parameters
    ----------
    predict_fn
        Maps a collected position to a prediction, e.g. class probabilities at test inputs.
        Result: `Moments` of the prediction.

    Examples
    --------
    >>> reducer = predictive_mean(lambda w: w @ jnp.array([1.0, 2.0]))
    >>> r = reducer.update(reducer.init(jnp.zeros(2)), jnp.array([3.0, 1.0]))
    >>> float(reducer.finalise(r).mean)
    5.0
    """
    return moments(predict_fn)


class Covariance(NamedTuple):
    """What `covariance` finds, of all entries in a row.

    Attributes
    ----------
    num_draws
        How many were seen.
    mean
        (d,).
    covariance
        (d, d), with the divisor num_draws - 1.
    """

    num_draws: Int[Array, "..."]
    mean: Float[Array, "... d"]
    covariance: Float[Array, "... d d"]


@functools.lru_cache(maxsize=64)
def covariance(function: Callable[[PyTree], PyTree] | None = None) -> Reducer:
    """Covariance matrix of all entries of what is collected, ravelled in PyTree order.

    Needs d^2 numbers a chain. Result: `Covariance`. Of numbers whose products no float of their
    type holds (beyond about 1e19 in float32) variances are infinite and covariances may be NaN.

    Parameters
    ----------
    function
        Applied to each collected value first; None: the value itself.

    Examples
    --------
    >>> reducer = covariance()
    >>> r = reducer.init(jnp.zeros(2))
    >>> for x in ([1.0, 0.0], [3.0, 4.0]):
    ...     r = reducer.update(r, jnp.array(x))
    >>> reducer.finalise(r).covariance.tolist()
    [[2.0, 4.0], [4.0, 8.0]]
    """

    def value(collected):
        return ravel_pytree(_as_float(collected if function is None else function(collected)))[0]

    def init(example):
        zeros = jnp.zeros_like(value(example))
        return _Welford(jnp.zeros((), jnp.int32), zeros, jnp.outer(zeros, zeros))

    def update(r, collected):
        x = value(collected)
        count = r.number + 1
        delta = x - r.mean
        mean = r.mean + delta / count.astype(x.dtype)
        # The shrunken outer product keeps the matrix symmetric to the last bit.
        share = 1 - 1 / count.astype(x.dtype)
        return _Welford(count, mean, r.squares + share * jnp.outer(delta, delta))

    def finalise(r):
        divisor = jnp.maximum(r.number - 1, 1).astype(r.squares.dtype)
        return Covariance(r.number, r.mean, jnp.where(r.number > 1, r.squares / divisor, jnp.nan))

    return Reducer(init, update, lambda a, b: _merge_welford(a, b, jnp.outer), finalise)


class BatchMeans(NamedTuple):
    """What `batch_means` finds; leaves are shaped like what was collected.

    Attributes
    ----------
    mean
        Of all draws.
    standard_error
        The mean's Monte Carlo standard error.
    num_batches
        Finished batches that the error rests on.
    """

    mean: PyTree
    standard_error: PyTree
    num_batches: Int[Array, "..."]


class _BatchState(NamedTuple):
    within: Array  # draws in the batch under way
    total: PyTree  # their sum
    all: _Welford  # every draw
    batches: _Welford  # means of finished batches


@functools.lru_cache(maxsize=64)
def batch_means(batch_size: int, function: Callable[[PyTree], PyTree] | None = None) -> Reducer:
    """Mean and its standard error by non-overlapping batch means.

    Var(mean) is estimated by batch_size * Var(batch means) / n, which is right once
    `batch_size` is well above the autocorrelation time. Of merged chains the batches are
    pooled about their common mean, so chains that disagree widen the error.

    Parameters
    ----------
    batch_size
        Kept draws a batch, at least 1; about the square root of their number is usual.
    function
        Applied to each collected value first.

    Raises
    ------
    ValueError
        batch_size < 1.

    Examples
    --------
    >>> reducer = batch_means(2)
    >>> r = reducer.init(jnp.zeros(()))
    >>> for x in (1.0, 3.0, 5.0, 7.0):
    ...     r = reducer.update(r, jnp.array(x))
    >>> found = reducer.finalise(r)  # batch means 2 and 6
    >>> float(found.mean), int(found.num_batches), float(found.standard_error)
    (4.0, 2, 2.0)
    """
    check_count("batch_size", batch_size)
    base = moments()

    def value(collected):
        return _as_float(collected if function is None else function(collected))

    def init(example):
        x = value(example)
        return _BatchState(
            jnp.zeros((), jnp.int32), jax.tree.map(jnp.zeros_like, x), base.init(x), base.init(x)
        )

    def update(r, collected):
        x = value(collected)
        within = r.within + 1
        total = jax.tree.map(jnp.add, r.total, x)
        is_full = within == batch_size
        closed = base.update(r.batches, jax.tree.map(lambda t: t / batch_size, total))
        batches = jax.tree.map(lambda new, old: jnp.where(is_full, new, old), closed, r.batches)
        total = jax.tree.map(lambda t: jnp.where(is_full, jnp.zeros_like(t), t), total)
        return _BatchState(jnp.where(is_full, 0, within), total, base.update(r.all, x), batches)

    def merge(a, b):
        # Unfinished batches of different chains have nothing to do with each other.
        return a._replace(all=base.merge(a.all, b.all), batches=base.merge(a.batches, b.batches))

    def finalise(r):
        between = base.finalise(r.batches).variance
        error = jax.tree.map(
            lambda v: jnp.sqrt(v * batch_size / jnp.maximum(r.all.number, 1).astype(v.dtype)),
            between,
        )
        return BatchMeans(r.all.mean, error, r.batches.number)

    return Reducer(init, update, merge, finalise)


class Acceptance(NamedTuple):
    """What `acceptance` finds.

    Attributes
    ----------
    acceptance_rate
        Mean over the steps.
    num_steps
        How many were seen.
    num_nan
        Steps whose rate was no number; they count as rejected.
    """

    acceptance_rate: Float[Array, "..."]
    num_steps: Int[Array, "..."]
    num_nan: Int[Array, "..."]


@functools.lru_cache(maxsize=1)
def acceptance() -> Reducer:
    """Mean acceptance rate over every step of the kernel, kept or not.

    Steps whose acceptance rate is NaN count as rejected and are counted apart.

    Raises
    ------
    ValueError
        A kernel whose Info has no acceptance rate.

    Examples
    --------
    >>> reducer = acceptance()
    >>> r = reducer.init(jnp.zeros(()))
    >>> for rate in (1.0, 0.5, jnp.nan):
    ...     r = reducer.update(r, jnp.array(rate))
    >>> found = reducer.finalise(r)
    >>> float(found.acceptance_rate), int(found.num_nan)
    (0.5, 1)
    """

    def acceptance_rate(state, info):
        rate = getattr(info, "acceptance_rate", None)
        if rate is None:
            raise ValueError(
                "the acceptance reducer needs an acceptance rate, but the kernel's Info "
                f"({type(info).__name__}) has none; leave it out."
            )
        return rate

    def init(example):
        rate = _as_float(example)
        return Acceptance(
            jnp.zeros((), rate.dtype), jnp.zeros((), jnp.int32), jnp.zeros((), jnp.int32)
        )

    def update(r, rate):
        rate = _as_float(rate)
        is_nan = jnp.isnan(rate)
        count = r.num_steps + 1
        clean = jnp.where(is_nan, jnp.zeros_like(rate), rate)
        mean = r.acceptance_rate + (clean - r.acceptance_rate) / count.astype(rate.dtype)
        return Acceptance(mean, count, r.num_nan + is_nan.astype(jnp.int32))

    def merge(a, b):
        count = a.num_steps + b.num_steps
        weight = _weight(b.num_steps, count, a.acceptance_rate)
        mean = a.acceptance_rate + (b.acceptance_rate - a.acceptance_rate) * weight
        return Acceptance(mean, count, a.num_nan + b.num_nan)

    return Reducer(
        init,
        update,
        merge,
        lambda r: r,
        collect=acceptance_rate,
        every_step=True,
    )
