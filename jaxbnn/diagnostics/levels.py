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
    """Two levels: no draw, or none of `chain`, lies strictly between `below` and `above`.

    Attributes
    ----------
    below, above
        Ends of the gap.
    width
        Width of the gap in standard deviations of the wider level.
    shares
        (chain,): part of each chain's draws up to `below`.
    chain
        The chain that alone has the gap, where draws of others fill it; None of all chains.
    """

    below: float
    above: float
    width: float
    shares: Float[np.ndarray, " chain"]
    chain: int | None = None


def separate_levels(series: Float[np.ndarray, "chain draw"]) -> Levels | None:
    """Find the widest gap in all draws, or else in one chain; None if it is no gap.

    At least a hundredth of the draws looked at, and five, lie on either side. Of a chain's gap what
    the others leave of it is taken, if that is a gap. Draws that are not finite are left out.
    """
    values = np.asarray(series, np.float64)
    finite = np.isfinite(values)
    for chosen in [np.arange(len(values)), *np.arange(len(values))[:, None]]:
        gap = _gap(np.sort(values[chosen][finite[chosen]]))
        if gap is not None:
            below, above, spread = gap
            within = np.sort(values[finite & (values >= below) & (values <= above)])
            at = int(np.argmax(np.diff(within)))
            is_left = _is_gap(within[at + 1] - within[at], spread)
            if is_left:
                below, above = float(within[at]), float(within[at + 1])
            low = finite & (values <= below)
            shares = low.sum(axis=1) / np.maximum(finite.sum(axis=1), 1)
            width = (above - below) / max(spread, 1e-3 * (above - below))
            return Levels(below, above, width, shares, None if is_left else int(chosen[0]))
    return None


def on_both_sides(levels: Levels) -> Bool[np.ndarray, " chain"]:
    """Chains that visit both levels; of levels of one chain it alone."""
    if levels.chain is not None:
        return np.arange(len(levels.shares)) == levels.chain
    return (levels.shares > 0) & (levels.shares < 1)


def _gap(ordered: Float[np.ndarray, " draw"]) -> tuple[float, float, float] | None:
    """Return the ends of the widest gap, and the standard deviation of the wider side."""
    fewest = max(_FEWEST, int(np.ceil(_SHARE * len(ordered))))
    if len(ordered) < 2 * fewest:
        return None
    steps = np.diff(ordered)[fewest - 1 : len(ordered) - fewest]
    at = int(np.argmax(steps)) + fewest
    low, high = ordered[:at], ordered[at:]
    spread = max(float(low.std()), float(high.std()))
    if not _is_gap(high[0] - low[-1], spread):
        return None
    return float(low[-1]), float(high[0]), spread


def _is_gap(gap: float, spread: float) -> bool:
    return bool(gap >= _NATS and gap >= _WIDTH * spread)
