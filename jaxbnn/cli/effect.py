"""How far a fraction of rows is from what was claimed, and whether so many rows can tell.

A difference counts by its size and its interval, not by its significance: of many rows any
difference is significant, of few none is.
"""

import math
from typing import Literal, NamedTuple

# Differences up to so much are of no consequence.
_LITTLE = 0.05
# An interval that reaches further than so much from the claim leaves it open.
_WIDE = 0.10
_Z = 1.959964  # of an interval of 95 %


class Effect(NamedTuple):
    """A judgement, and the 95 % interval of the true fraction."""

    judgement: Literal["fits", "little", "below", "above", "open"]
    lower: float
    upper: float

    def __str__(self) -> str:
        """Return the interval, for a sentence."""
        return f"95 % interval {self.lower:.0%} to {self.upper:.0%}"


def weigh(fraction: float, num_rows: int, claimed: float) -> Effect:
    """Judge an observed fraction of rows against the probability that was claimed.

    "fits": the interval holds the claim and reaches no further than ten points from it; "open": it
    holds the claim but reaches further, so that there are too few rows to judge; "little": it does
    not hold the claim, but the difference is five points at most; else "below" or "above".

    The interval is Wilson's (1927), which holds for few rows and fractions near 0 and 1.

    Examples
    --------
    >>> weigh(0.70, 20, 0.9).judgement, weigh(0.905, 60_000, 0.9).judgement
    ('below', 'little')
    >>> weigh(0.85, 20, 0.9).judgement, str(weigh(0.85, 20, 0.9))
    ('open', '95 % interval 64% to 95%')
    """
    shrunk = 1 + _Z**2 / num_rows
    centre = (fraction + _Z**2 / (2 * num_rows)) / shrunk
    spread = fraction * (1 - fraction) / num_rows + _Z**2 / (4 * num_rows**2)
    half = _Z * math.sqrt(spread) / shrunk
    lower, upper = max(centre - half, 0.0), min(centre + half, 1.0)
    if lower <= claimed <= upper:
        is_open = max(claimed - lower, upper - claimed) > _WIDE
        return Effect("open" if is_open else "fits", lower, upper)
    if abs(fraction - claimed) <= _LITTLE:
        return Effect("little", lower, upper)
    return Effect("below" if fraction < claimed else "above", lower, upper)
