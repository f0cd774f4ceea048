"""Running means and sums of squares: Welford's recursion on numbers of two floats.

Welford (1962) adds one number at a time, Chan, Golub and LeVeque (1983) merge two sets of them.
What is added is ever smaller against the mean or the sum, and a float has no digits for all of it:
millions of such roundings, most of them of one sign, add up where what is seen is skewed. Held as
`TwoFloats`, a mean and a sum lose nothing of what is added; what is added has the rounding of a
float, of the size of the deviations from the mean. The square of a complex number is that of its
modulus.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, PyTree

from jaxbnn.sampling.two_floats import TwoFloats, map_pairs


class Welford(NamedTuple):
    """What is known of the numbers seen; leaves of `mean` and `squares` are `TwoFloats`."""

    number: Array
    mean: PyTree
    squares: PyTree  # sums of squared deviations, which are real, or of outer products

    @classmethod
    def of_none(cls, x: PyTree) -> "Welford":
        """Return what is known before the first number; leaves of x are `TwoFloats`."""
        zeros = jax.tree.map(jnp.zeros_like, x)
        return cls(jnp.zeros((), jnp.int32), zeros, jax.tree.map(jnp.real, zeros))

    def see(self, x: PyTree, is_seen: Array | bool = True) -> "Welford":
        """Take one more into account, if `is_seen`; leaves of x are `TwoFloats`."""
        count = self.number + jnp.asarray(is_seen, self.number.dtype)

        def distances(mean: PyTree) -> PyTree:
            return map_pairs(lambda v, m: jnp.where(is_seen, v.minus(m), 0), x, mean)

        delta = distances(self.mean)
        mean = jax.tree.map(lambda d, m: moved(m, d, count), delta, self.mean)
        # The first is the mean: its distance from zero has fewer digits than two floats.
        is_first = jnp.logical_and(is_seen, count == 1)
        mean = jax.tree.map(lambda v, m: jnp.where(is_first, v, m), x, mean)
        squares = jax.tree.map(
            lambda d, e, s: s.plus(real_product(d, e)), delta, distances(mean), self.squares
        )
        return Welford(count, mean, squares)

    def merge(self, other: "Welford", product: Callable | None = None) -> "Welford":
        """Take into account what another has seen; `product` is that which `squares` sums."""
        count, product = self.number + other.number, product or real_product

        def merged_squares(s1, s2, m1, m2):
            delta = m2.minus(m1)
            factor = _share(other.number, count, s1.high) * self.number.astype(s1.high.dtype)
            return s1.plus(s2.high).plus(s2.low).plus(product(delta, delta) * factor)

        mean = map_pairs(
            lambda m1, m2: merged_mean(m1, m2, self.number, other.number), self.mean, other.mean
        )
        squares = map_pairs(merged_squares, self.squares, other.squares, self.mean, other.mean)
        return Welford(count, mean, squares)

    def variance(self) -> PyTree:
        """Return `squares` by one less than how many were seen; NaN of one."""

        def divided(squares: TwoFloats) -> Array:
            total = squares.rounded()
            divisor = jnp.maximum(self.number - 1, 1).astype(total.dtype)
            return jnp.where(self.number > 1, total / divisor, jnp.nan)

        return map_pairs(divided, self.squares)


def real_product(d: Array, e: Array) -> Array:
    """Return the real part of d conj(e), entry by entry: d e of real numbers."""
    if jnp.iscomplexobj(d):
        return d.real * e.real + d.imag * e.imag
    return d * e


def outer_product(d: Array, e: Array) -> Array:
    """Return the matrix d_i conj(e_j)."""
    return jnp.outer(d, jnp.conj(e) if jnp.iscomplexobj(e) else e)


def moved(mean: TwoFloats, delta: Array, count: Array) -> TwoFloats:
    """Return the mean of `count` numbers, the last of them `delta` from the mean of the others."""
    return mean.plus(delta / jnp.maximum(count, 1).astype(delta.dtype))


def merged_mean(a: TwoFloats, b: TwoFloats, a_number: Array, b_number: Array) -> TwoFloats:
    """Return the mean of as many numbers of mean a and as many of mean b."""
    delta = b.minus(a)
    return a.plus(delta * _share(b_number, a_number + b_number, delta))


def _share(part: Array, whole: Array, like: Array) -> Array:
    return part.astype(like.dtype) / jnp.maximum(whole, 1).astype(like.dtype)
