"""Kernel density estimates fast enough for a million draws.

Up to `NUM_BINS` draws are summed exactly; more are first counted in bins, each much narrower than
the bandwidth: in `NUM_BINS` of them, unless these are too wide, as where a few draws lie far out.
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
    functions"; b is by default that of `_beta_bandwidth`.
    """
    low, high = bounds
    unit, u = (draws - low) / (high - low), (grid - low) / (high - low)
    b = bandwidth or _beta_bandwidth(unit, float(np.max(np.diff(u), initial=0.0)) / 2)
    narrowest = math.sqrt(b * (float(np.min(unit * (1 - unit))) + b))
    if len(unit) <= NUM_BINS or narrowest * NUM_BINS >= _BINS_PER_BANDWIDTH:
        parts = [_weighted_points(unit, 0.0, 1.0)]
    else:
        parts = _narrow_bins(unit, 0.0, 1.0, narrowest / _BINS_PER_BANDWIDTH)
    log_norm = np.array(
        [math.lgamma(1 / b + 2) - math.lgamma(v / b + 1) - math.lgamma((1 - v) / b + 1) for v in u]
    )
    total = np.zeros(len(grid))
    for weights, points in parts:
        points = np.clip(points, 1e-9, 1 - 1e-9)  # a draw on a bound has a finite logarithm
        log_kernel = (u[:, None] * np.log(points) + (1 - u)[:, None] * np.log1p(-points)) / b
        total += np.exp(log_norm[:, None] + log_kernel) @ weights
    return total / (high - low)


def silverman_bandwidth(draws: Float[np.ndarray, " draws"]) -> float:
    """Silverman's rule of thumb; zero for draws that are all equal."""
    if draws.min() == draws.max():  # their standard deviation may be a rounding error
        return 0.0
    quartiles = np.quantile(draws, [0.25, 0.75])
    spreads = [float(np.std(draws)), float(quartiles[1] - quartiles[0]) / 1.34]
    spread = min((s for s in spreads if s > 0), default=0.0)
    return 0.9 * spread * len(draws) ** -0.2


def _beta_bandwidth(unit: Float[np.ndarray, " draws"], smallest: float | int) -> float:
    """Return b for draws on the unit interval, by a rule of thumb.

    The standard deviation times n^(-2/5), but not more than makes the kernel as wide as Silverman's
    rule wants it: narrow draws inside the interval would be smeared otherwise. No kernel is
    narrower than `smallest`, between the grid's points.
    """
    n = len(unit)
    inside = float(np.mean(unit * (1 - unit)))

    def as_wide_as(h):
        # Beta(u / b + 1, (1 - u) / b + 1) has the variance b (u (1 - u) + b) for small b.
        return 2 * h**2 / (inside + math.hypot(inside, 2 * h)) if h > 0 else 0.0

    b = min(float(np.std(unit)) * n**-0.4, as_wide_as(silverman_bandwidth(unit)))
    # The logarithms of yet narrower kernels are lost in rounding.
    return max(b, as_wide_as(smallest), 1e-12)


def _weighted_points(
    values: Float[np.ndarray, " draws"], low: float | int, high: float | int
) -> tuple[Float[np.ndarray, " points"], Float[np.ndarray, " points"]]:
    if len(values) <= NUM_BINS or high <= low:
        return np.full(len(values), 1 / len(values)), values
    if (high - low) / NUM_BINS < np.spacing(max(abs(low), abs(high))):
        # Draws that differ by rounding: there are fewer numbers between them than bins.
        points, counts = np.unique(values, return_counts=True)
        return counts / len(values), points
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
