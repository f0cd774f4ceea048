"""Running sums that keep what their roundings lose."""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, PyTree


class TwoFloats(NamedTuple):
    """Numbers, each the sum of two floats: `low` is what `high` has no digits for.

    In float32 a number has 48 binary digits, in float64 106. Each addition normalises the pair
    (Dekker 1971), so that `high` is the number rounded. What is added meets `low` first, and their
    sum is rounded: algorithm 4 of Joldes, Muller and Popescu (2017) would keep that rounding, too.
    A sum that keeps what was lost without normalising (Neumaier 1974) stands still in its turn,
    once what was lost is as large as the sum.
    """

    high: Array
    low: Array

    @classmethod
    def of(cls, x: Array) -> "TwoFloats":
        """Return floats as they are."""
        return cls(x, jnp.zeros_like(x))

    def minus(self, other: "TwoFloats") -> Array:
        """Return the difference, rounded to one float."""
        return (self.high - other.high) + (self.low - other.low)

    def plus(self, x: Array) -> "TwoFloats":
        """Add floats (Knuth's sum of two); what is infinite or NaN then is so in `high` alone."""
        added = x + self.low
        high = self.high + added
        taken = high - self.high
        low = (self.high - (high - taken)) + (added - taken)
        return TwoFloats(high, jnp.where(jnp.isfinite(high), low, jnp.zeros_like(high)))

    def rounded(self) -> Array:
        """Return one float each."""
        return self.high + self.low


def map_pairs(function: Callable, *trees: PyTree) -> PyTree:
    """Map over the `TwoFloats` of trees."""
    return jax.tree.map(function, *trees, is_leaf=lambda node: isinstance(node, TwoFloats))
