"""How far a fraction of rows is from what was claimed, and whether so many rows can tell.

A difference counts by its size and its interval, not by its significance: of many rows any
difference is significant, of few none is.
"""

from typing import Literal, NamedTuple

from scipy.special import betaincinv

# Differences up to so much are of no consequence.
_LITTLE = 0.05
# An interval that reaches further than so much from the claim leaves it open.
_WIDE = 0.10
_TAIL = 0.025  # on either side of an interval of 95 %


class Effect(NamedTuple):
    """A judgement, and the 95 % interval of the true fraction."""

    judgement: Literal["fits", "little", "below", "above", "open"]
    lower: float
    upper: float

    def __str__(self) -> str:
        """Return the interval, for a sentence."""
        return f"95 % interval {_percent(self.lower)} to {_percent(self.upper)}"


def weigh(fraction: float, num_rows: int, claimed: float) -> Effect:
    """Judge an observed fraction of rows against the probability that was claimed.

    "fits": the interval holds the claim and reaches no further than ten points from it, and the
    difference is five points at most; "open": it holds the claim, but not so, which few rows alone
    do; "little": it does not hold the claim, but the difference is five points at most; else
    "below" or "above".

    The interval is Clopper and Pearson's (1934), by the binomial law itself: of calibrated
    predictions at most 5 % are called "below" or "above", whatever the number of rows.

    Examples
    --------
    >>> weigh(0.70, 20, 0.9).judgement, weigh(0.905, 60_000, 0.9).judgement
    ('below', 'little')
    >>> weigh(0.85, 20, 0.9).judgement, str(weigh(0.85, 20, 0.9))
    ('open', '95 % interval 62% to 97%')
    >>> weigh(1.0, 20, 0.9).judgement  # 17 to 35 rows, all inside, reach no further than 100%
    'open'
    """
    right = round(fraction * num_rows)
    lower = float(betaincinv(right, num_rows - right + 1, _TAIL)) if right > 0 else 0.0
    upper = 1.0
    if right < num_rows:
        upper = float(betaincinv(right + 1, num_rows - right, 1 - _TAIL))
    if lower <= claimed <= upper:
        is_wide = max(claimed - lower, upper - claimed) > _WIDE
        is_open = is_wide or abs(fraction - claimed) > _LITTLE
        return Effect("open" if is_open else "fits", lower, upper)
    if abs(fraction - claimed) <= _LITTLE:
        return Effect("little", lower, upper)
    return Effect("below" if fraction < claimed else "above", lower, upper)


def _percent(fraction: float) -> str:
    """Return a fraction in whole percent, or with one decimal where it is nearly nothing or all.

    Examples
    --------
    >>> _percent(0.62), _percent(0.996), _percent(1.0)
    ('62%', '99.6%', '100%')
    """
    is_rounded = f"{fraction:.0%}" in ("0%", "100%") and fraction not in (0, 1)
    return f"{fraction:.1%}" if is_rounded else f"{fraction:.0%}"
