"""Whether a series, the log density above all, falls into levels with nothing between them."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float

# Two levels are told apart by a gap of five standard deviations of the wider one, and five nats:
# in independent draws with an exponential tail, of which five lie below it, a gap of g nats
# has probability exp(-5 g), 1e-11.
_WIDTH = 5.0
_NATS = 5.0
_SHARE = 0.01
_FEWEST = 5


class Levels(NamedTuple):
    """Two levels: no draw lies strictly between `below` and `above`.

    Attributes
    ----------
    below, above
        Ends of the gap.
    width
        Width of the gap in standard deviations of the wider level.
    shares
        (chain,): part of each chain's draws on the lower level.
    """

    below: float
    above: float
    width: float
    shares: Float[np.ndarray, " chain"]


def separate_levels(series: Float[np.ndarray, "chain draw"]) -> Levels | None:
    """Find the widest gap in all draws, or else in one chain; None if it is no gap.

    At least a hundredth of the draws looked at, and five, lie on either side. Draws that are not
    finite are left out.
    """
    values = np.asarray(series, np.float64)
    finite = np.isfinite(values)
    for chosen in [np.arange(len(values)), *np.arange(len(values))[:, None]]:
        gap = _gap(np.sort(values[chosen][finite[chosen]]))
        if gap is not None:
            below, above, width = gap
            low = finite & (values <= below)
            return Levels(below, above, width, low.sum(axis=1) / np.maximum(finite.sum(axis=1), 1))
    return None


def on_both_sides(levels: Levels) -> Bool[np.ndarray, " chain"]:
    """Chains that visit both levels."""
    return (levels.shares > 0) & (levels.shares < 1)


def _gap(ordered: Float[np.ndarray, " draw"]) -> tuple[float, float, float] | None:
    fewest = max(_FEWEST, int(np.ceil(_SHARE * len(ordered))))
    if len(ordered) < 2 * fewest:
        return None
    steps = np.diff(ordered)[fewest - 1 : len(ordered) - fewest]
    at = int(np.argmax(steps)) + fewest
    low, high = ordered[:at], ordered[at:]
    gap = float(high[0] - low[-1])
    spread = max(float(low.std()), float(high.std()))
    if gap < _NATS or gap < _WIDTH * spread:
        return None
    return float(low[-1]), float(high[0]), gap / max(spread, 1e-3 * gap)
