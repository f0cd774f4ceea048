"""Streaming reducers: what a run keeps when it cannot keep its draws.

A reducer sees each kept draw once and holds no more than its own state. There is one a
chain; the chains' states are merged at the end. Every factory returns the same object for
the same arguments, so that a second run does not compile anew.

Means and sums of squares follow Welford (1962), and those of merged chains Chan, Golub and
LeVeque (1983). Each is held as two floats, so that what an addition would round away stays,
however small against the sum: in float32 a mean is as exact as one rounding of the draws'
deviations from it, and a variance to about seven digits, of any number of draws that the
counter holds. It is an int32: chains have fewer than 2^31 draws, all together.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float, Inexact, Int, PyTree

from jaxbnn.numerics import check_count
from jaxbnn.numerics.arguments import check_function, kept
from jaxbnn.sampling.reducer import Reducer
from jaxbnn.sampling.two_floats import TwoFloats, map_pairs
from jaxbnn.sampling.welford import Welford, merged_mean, moved, outer_product


class Moments(NamedTuple):
    """What `moments` finds; leaves are shaped like what was collected.

    Attributes
    ----------
    num_draws
        How many were seen.
    mean
        Theirs.
    variance
        With the divisor num_draws - 1; of complex numbers E |z - E z|^2, which is real.
    """

    num_draws: Int[Array, "..."]
    mean: PyTree
    variance: PyTree


def _as_float(tree: PyTree) -> PyTree:
    """Booleans and integers become floats, and half precision single: it cannot hold a count."""

    def as_float(x):
        if not jnp.issubdtype(x.dtype, jnp.inexact):
            return x.astype(jnp.result_type(float))
        return x.astype(jnp.float32) if x.dtype.itemsize < 4 else x

    return jax.tree.map(as_float, jax.tree.map(jnp.asarray, tree))


def _check_function(function: object) -> None:
    if function is not None:
        check_function("function", function, "give collected -> value, or None for all of it")


def _as_pairs(tree: PyTree) -> PyTree:
    return jax.tree.map(TwoFloats.of, _as_float(tree))


@kept
def moments(function: Callable[[PyTree], PyTree] | None = None) -> Reducer:
    """Mean and variance of each entry of what is collected, or of a function of it.

    Welford's recursion (1962) on numbers of two floats, so that both hold in float32 after millions
    of draws; chains are merged after Chan, Golub and LeVeque (1983). Result: `Moments`.

    Parameters
    ----------
    function
        Applied to each collected value first; None: the value itself.

    Raises
    ------
    TypeError
        What is no function of one argument.

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
    _check_function(function)

    def value(collected):
        return _as_pairs(collected if function is None else function(collected))

    def init(example):
        return Welford.of_none(value(example))

    def update(r, collected):
        return r.see(value(collected))

    def finalise(r):
        return Moments(r.number, map_pairs(TwoFloats.rounded, r.mean), r.variance())

    return Reducer(init, update, Welford.merge, finalise)


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
        (d, d), with the divisor num_draws - 1; of complex numbers E (z - E z) conj(z - E z)^T.
    """

    num_draws: Int[Array, "..."]
    mean: Inexact[Array, "... d"]
    covariance: Inexact[Array, "... d d"]


@kept
def covariance(function: Callable[[PyTree], PyTree] | None = None) -> Reducer:
    """Covariance matrix of all entries of what is collected, ravelled in PyTree order.

    Needs 2 d^2 numbers a chain. Result: `Covariance`. Of numbers whose products no float of their
    type holds (beyond about 1e19 in float32) variances are infinite and covariances may be NaN.

    Parameters
    ----------
    function
        Applied to each collected value first; None: the value itself.

    Raises
    ------
    TypeError
        What is no function of one argument.

    Examples
    --------
    >>> reducer = covariance()
    >>> r = reducer.init(jnp.zeros(2))
    >>> for x in ([1.0, 0.0], [3.0, 4.0]):
    ...     r = reducer.update(r, jnp.array(x))
    >>> reducer.finalise(r).covariance.tolist()
    [[2.0, 4.0], [4.0, 8.0]]
    """
    _check_function(function)

    def value(collected):
        x = _as_float(collected if function is None else function(collected))
        return TwoFloats.of(ravel_pytree(x)[0])

    def init(example):
        none = Welford.of_none(value(example))
        return none._replace(squares=jax.tree.map(lambda m: outer_product(m, m), none.mean))

    def update(r, collected):
        count = r.number + 1
        delta = value(collected).minus(r.mean)
        mean = moved(r.mean, delta, count)
        # The shrunken outer product keeps the matrix symmetric to the last bit; that of the first
        # draw is zero, also where it would overflow.
        share = 1 - 1 / count.astype(delta.dtype)
        delta = jnp.where(count == 1, share * delta, delta)
        return Welford(count, mean, r.squares.plus(share * outer_product(delta, delta)))

    def merge(a, b):
        return a.merge(b, outer_product)

    def finalise(r):
        return Covariance(r.number, r.mean.rounded(), r.variance())

    return Reducer(init, update, merge, finalise)


class BatchMeans(NamedTuple):
    """What `batch_means` finds; leaves are shaped like what was collected.

    Attributes
    ----------
    mean
        Of all draws.
    standard_error
        The mean's Monte Carlo standard error; of complex numbers the root of E |mean - E z|^2.
    num_batches
        Finished batches that the error rests on.
    """

    mean: PyTree
    standard_error: PyTree
    num_batches: Int[Array, "..."]


class _BatchState(NamedTuple):
    number: Array  # every draw
    mean: PyTree  # theirs, as `TwoFloats`
    within: Array  # draws in the batch under way
    batch: PyTree  # their mean
    batches: Welford  # means of finished batches


@kept
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
    _check_function(function)

    def value(collected):
        return _as_pairs(collected if function is None else function(collected))

    def init(example):
        none = Welford.of_none(value(example))
        return _BatchState(none.number, none.mean, none.number, none.mean, none)

    def update(r, collected):
        x = value(collected)
        number, within = r.number + 1, r.within + 1
        mean = map_pairs(lambda v, m: moved(m, v.minus(m), number), x, r.mean)
        batch = map_pairs(lambda v, m: moved(m, v.minus(m), within), x, r.batch)
        is_full = within == batch_size
        batches = r.batches.see(batch, is_full)
        batch = jax.tree.map(lambda m: jnp.where(is_full, jnp.zeros_like(m), m), batch)
        return _BatchState(number, mean, jnp.where(is_full, 0, within), batch, batches)

    def merge(a, b):
        # Unfinished batches of different chains have nothing to do with each other.
        mean = map_pairs(lambda m1, m2: merged_mean(m1, m2, a.number, b.number), a.mean, b.mean)
        batches = a.batches.merge(b.batches)
        return a._replace(number=a.number + b.number, mean=mean, batches=batches)

    def finalise(r):
        error = jax.tree.map(
            lambda v: jnp.sqrt(v * batch_size / jnp.maximum(r.number, 1).astype(v.dtype)),
            r.batches.variance(),
        )
        return BatchMeans(map_pairs(TwoFloats.rounded, r.mean), error, r.batches.number)

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


class _AcceptanceState(NamedTuple):
    number: Array
    mean: TwoFloats
    num_nan: Array


@kept
def acceptance() -> Reducer:
    """Mean acceptance rate over every step of the kernel, kept or not, a number of two floats.

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
        zero = jnp.zeros((), jnp.int32)
        return _AcceptanceState(zero, TwoFloats.of(jnp.zeros((), _as_float(example).dtype)), zero)

    def update(r, rate):
        rate = _as_float(rate)
        is_nan = jnp.isnan(rate)
        count = r.number + 1
        clean = TwoFloats.of(jnp.where(is_nan, jnp.zeros_like(rate), rate))
        mean = moved(r.mean, clean.minus(r.mean), count)
        return _AcceptanceState(count, mean, r.num_nan + is_nan.astype(jnp.int32))

    def merge(a, b):
        mean = merged_mean(a.mean, b.mean, a.number, b.number)
        return _AcceptanceState(a.number + b.number, mean, a.num_nan + b.num_nan)

    def finalise(r):
        return Acceptance(r.mean.rounded(), r.number, r.num_nan)

    return Reducer(init, update, merge, finalise, collect=acceptance_rate, every_step=True)
