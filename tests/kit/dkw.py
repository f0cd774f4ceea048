"""Distances between distribution functions, with both error rates known in advance.

The Dvoretzky-Kiefer-Wolfowitz inequality with Massart's constant bounds the distance of an
empirical distribution function F_n of n independent draws from its own F:

    P(sup |F_n - F| > t) <= 2 exp(-2 n t^2).

Two samples of equal size n (n >= 458) obey the same bound with n / 2 in place of n (Wei and
Dudley 2012, "Two-sample Dvoretzky-Kiefer-Wolfowitz inequalities", theorem 1). A test of m
functions shares the false-alarm rate among them (Bonferroni). A true distance d is missed only
where the empirical function is off by d - t at one point, on one side: with probability
exp(-2 n (d - t)^2) at most, by Hoeffding.
"""

import math
from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np

from tests.long.comparisons import record

FALSE_ALARM = 1e-6
MISS = 1e-6
DISTANCE = 0.005


def threshold(
    num_chains: int,
    num_functions: int = 1,
    *,
    two_sample: bool = False,
    false_alarm: float = FALSE_ALARM,
) -> float:
    """Return the sup-distance that a right kernel exceeds with probability `false_alarm` at most.

    >>> round(threshold(1_200_000), 6)
    0.002459
    """
    effective = num_chains / 2 if two_sample else num_chains
    return math.sqrt(math.log(2 * num_functions / false_alarm) / (2 * effective))


def detectable_distance(
    num_chains: int,
    num_functions: int = 1,
    *,
    two_sample: bool = False,
    false_alarm: float = FALSE_ALARM,
    miss: float = MISS,
) -> float:
    """Return the power: the true sup-distance that is found with probability 1 - `miss`.

    >>> round(detectable_distance(1_200_000, num_functions=5), 5)
    0.00499
    """
    effective = num_chains / 2 if two_sample else num_chains
    alarm = threshold(num_chains, num_functions, two_sample=two_sample, false_alarm=false_alarm)
    return alarm + math.sqrt(math.log(1 / miss) / (2 * effective))


def chains_needed(
    num_functions: int = 1,
    *,
    distance: float = DISTANCE,
    two_sample: bool = False,
    false_alarm: float = FALSE_ALARM,
    miss: float = MISS,
) -> int:
    """Return how many chains find a true sup-distance of `distance`, both error rates kept.

    >>> chains_needed(5), chains_needed(5, two_sample=True)
    (1195571, 2391141)
    """
    roots = math.sqrt(math.log(2 * num_functions / false_alarm)) + math.sqrt(math.log(1 / miss))
    return math.ceil((2 if two_sample else 1) * roots**2 / (2 * distance**2))


def distance_to_cdf(values: np.ndarray, cdf: Callable[[np.ndarray], np.ndarray]) -> float:
    """Return sup |F_n - F| for a continuous F; NaN values count as +infinity.

    >>> distance_to_cdf(np.array([0.25, 0.75]), lambda x: x)
    0.25
    """
    ordered = np.sort(np.where(np.isnan(values), np.inf, values))
    exact = np.where(np.isposinf(ordered), 1.0, cdf(ordered.astype(np.float64)))
    n = len(ordered)
    above = np.arange(1, n + 1) / n - exact
    below = exact - np.arange(n) / n
    return float(max(above.max(), below.max()))


def distance_of_samples(first: np.ndarray, second: np.ndarray) -> float:
    """Return sup |F_n - G_n| of two samples, ties allowed; NaN values count as +infinity.

    >>> distance_of_samples(np.array([1.0, 2.0]), np.array([2.0, 3.0]))
    0.5
    """
    first = np.sort(np.where(np.isnan(first), np.inf, first))
    second = np.sort(np.where(np.isnan(second), np.inf, second))
    # F_n - G_n is a step function that is extreme at or just before a jump of either sample.
    up = np.searchsorted(second, first, side="right") / len(second)
    down = np.searchsorted(first, second, side="right") / len(first)
    at_first = np.searchsorted(first, first, side="right") / len(first)
    at_second = np.searchsorted(second, second, side="right") / len(second)
    return float(max(np.abs(at_first - up).max(), np.abs(down - at_second).max()))


class Comparison(NamedTuple):
    """Distances of all test functions with the thresholds they had to keep.

    Attributes
    ----------
    distances, thresholds
        One number a test function.
    num_chains
        Independent chains that were compared.
    detectable
        The power: the largest over the functions of the true sup-distances that this test
        finds with probability 1 - `MISS`.
    num_nan
        Test-function values that were NaN.
    moved
        Fraction of the chains whose position is not the one they started from; a kernel that
        never moves leaves every target invariant and proves nothing.
    """

    distances: Mapping[str, float]
    thresholds: Mapping[str, float]
    num_chains: int
    detectable: float
    num_nan: int
    moved: float

    @property
    def passes(self) -> bool:
        """Whether every function keeps its threshold, nothing is NaN and chains moved."""
        keeps = all(self.distances[name] <= self.thresholds[name] for name in self.distances)
        return keeps and self.num_nan == 0 and self.moved > 0.1

    def __str__(self):
        lines = [
            f"{self.num_chains} chains, {self.moved:.1%} moved, {self.num_nan} NaN, finds a "
            f"distance of {self.detectable:.4f}"
        ]
        for name, distance in self.distances.items():
            mark = "" if distance <= self.thresholds[name] else "   EXCEEDED"
            lines.append(f"  {name:24s} {distance:.5f} (<= {self.thresholds[name]:.5f}){mark}")
        return "\n".join(lines)


def compare(
    after: Mapping[str, np.ndarray],
    reference: Mapping[str, np.ndarray],
    cdfs: Mapping[str, Callable[[np.ndarray], np.ndarray]],
    moved: float,
) -> Comparison:
    """Compare each function with its exact distribution function, else with exact draws.

    Parameters
    ----------
    after
        Values of each test function, one a chain.
    reference
        Values at independent exact draws, as many, for the functions without a cdf.
    cdfs
        Exact distribution functions (NumPy, vectorised), where known.
    moved
        Fraction of the chains that moved.
    """
    num_functions = len(after)
    num_chains = len(next(iter(after.values())))
    distances, thresholds, sizes, detectable = {}, {}, {}, 0.0
    for name, values in after.items():
        two_sample = name not in cdfs
        if two_sample:
            if len(values) < 458:
                raise ValueError("the two-sample bound holds from 458 chains on; use more chains.")
            distances[name] = distance_of_samples(values, reference[name])
        else:
            distances[name] = distance_to_cdf(values, cdfs[name])
        sizes[name] = num_chains / 2 if two_sample else num_chains
        thresholds[name] = threshold(num_chains, num_functions, two_sample=two_sample)
        power = detectable_distance(num_chains, num_functions, two_sample=two_sample)
        detectable = max(detectable, power)
    num_nan = sum(int(np.isnan(values).sum()) for values in after.values())
    comparison = Comparison(distances, thresholds, num_chains, detectable, num_nan, moved)
    record(comparison, sizes)
    return comparison
