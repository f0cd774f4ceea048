"""Kernel density estimates fast enough for a million draws.

Up to `NUM_BINS` draws are summed exactly; more are first counted in bins, each much narrower than
the bandwidth: in `NUM_BINS` of them, unless a few draws lie so far out that these are too wide.
"""

import math

import numpy as np
from jaxtyping import Float

NUM_BINS = 2000
_BINS_PER_BANDWIDTH = 4
_REACH = 9.0  # bandwidths, beyond which a normal kernel is nothing


def gaussian_estimate(
    draws: Float[np.ndarray, " draws"],
    grid: Float[np.ndarray, " points"],
    bandwidth: float | int | None = None,
) -> Float[np.ndarray, " points"]:
    """(1 / n h) sum_i phi((x - x_i) / h), by default with Silverman's rule for h.

    h = 0.9 min(standard deviation, interquartile range / 1.34) n^(-1/5).

    No h is below half the distance of neighbouring points of the grid, between which a narrower
    kernel would not be seen.
    """
    h = silverman_bandwidth(draws) if bandwidth is None else bandwidth
    h = max(h, float(np.max(np.diff(grid), initial=0.0)) / 2)
    low, high = float(draws.min()), float(draws.max())
    if len(draws) <= NUM_BINS or (high - low) * _BINS_PER_BANDWIDTH <= NUM_BINS * h:
        parts = [_weighted_points(draws, low, high)]
    else:
        ends = float(grid.min()) - _REACH * h, float(grid.max()) + _REACH * h
        parts = _narrow_bins(draws, *ends, h / _BINS_PER_BANDWIDTH)
    total = np.zeros(len(grid))
    for weights, points in parts:
        z = (grid[:, None] - points) / h
        total += np.exp(-0.5 * z**2) @ weights
    return total / (h * math.sqrt(2 * math.pi))


def beta_estimate(
    draws: Float[np.ndarray, " draws"],
    grid: Float[np.ndarray, " points"],
    bounds: tuple[float | int, float | int],
    bandwidth: float | int | None = None,
) -> Float[np.ndarray, " points"]:
    """Mean over draws of the Beta(u / b + 1, (1 - u) / b + 1) density, u the rescaled x.

    It puts no mass outside the bounds and does not sag towards them, as a Gaussian kernel
    would. This is the first estimator of Chen (1999), "Beta kernel estimators for density
    functions"; b is by default the standard deviation of the rescaled draws times n^(-2/5).
    """
    low, high = bounds
    unit = (draws - low) / (high - low)
    b = bandwidth or max(float(np.std(unit)), 1e-3) * len(draws) ** -0.4
    weights, points = _weighted_points(unit, 0.0, 1.0)
    points = np.clip(points, 1e-9, 1 - 1e-9)  # a draw on a bound has a finite logarithm
    u = (grid - low) / (high - low)
    log_norm = np.array(
        [math.lgamma(1 / b + 2) - math.lgamma(v / b + 1) - math.lgamma((1 - v) / b + 1) for v in u]
    )
    log_kernel = (u[:, None] * np.log(points) + (1 - u)[:, None] * np.log1p(-points)) / b
    return np.exp(log_norm[:, None] + log_kernel) @ weights / (high - low)


def silverman_bandwidth(draws: Float[np.ndarray, " draws"]) -> float:
    """Silverman's rule of thumb; of draws that are all equal, a width that shows as a spike."""
    quartiles = np.quantile(draws, [0.25, 0.75])
    spreads = [float(np.std(draws)), float(quartiles[1] - quartiles[0]) / 1.34]
    spread = min((s for s in spreads if s > 0), default=0.0)
    rule = 0.9 * spread * len(draws) ** -0.2
    return rule if rule > 0 else 1e-3 * max(abs(float(draws[0])), 1e-3)


def _weighted_points(
    values: Float[np.ndarray, " draws"], low: float | int, high: float | int
) -> tuple[Float[np.ndarray, " points"], Float[np.ndarray, " points"]]:
    if len(values) <= NUM_BINS or high <= low:
        return np.full(len(values), 1 / len(values)), values
    counts, edges = np.histogram(values, NUM_BINS, (low, high))
    return counts / len(values), (edges[1:] + edges[:-1]) / 2


def _narrow_bins(
    values: Float[np.ndarray, " draws"], low: float, high: float, width: float
) -> list[tuple[Float[np.ndarray, " points"], Float[np.ndarray, " points"]]]:
    """Count the values between low and high, in parts of at most `NUM_BINS` bins that hold any."""
    inside = values[(values >= low) & (values <= high)]
    index, counts = np.unique(np.floor((inside - low) / width), return_counts=True)
    weights, points = counts / len(values), low + (index + 0.5) * width
    starts = range(0, len(points), NUM_BINS)
    return [(weights[i : i + NUM_BINS], points[i : i + NUM_BINS]) for i in starts]
