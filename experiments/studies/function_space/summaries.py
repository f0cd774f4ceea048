"""Numbers of a cell: acceptance, effective sample sizes, R-hat, and the limit of wide networks."""

import itertools
from collections.abc import Mapping, Sequence
from statistics import NormalDist
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from jaxbnn import diagnostics

_NUM_BATCHES = 20  # of acceptance rates
_NUM_BLOCKS = 4


class Estimate(NamedTuple):
    """A number and its standard error."""

    value: float
    error: float


class Ess(NamedTuple):
    """Effective sample size a stored draw: mean, least and largest over directions."""

    mean: Estimate
    low: float
    high: float


def acceptance_of(rates: Float[np.ndarray, "chains draws"]) -> Estimate:
    """Return the mean acceptance rate, with its error by the means of 20 batches a chain."""
    rates = np.asarray(rates, np.float64)
    size = max(rates.shape[1] // _NUM_BATCHES, 1)
    batches = rates[:, : rates.shape[1] // size * size].reshape(-1, size).mean(axis=1)
    return Estimate(float(rates.mean()), float(batches.std(ddof=1) / np.sqrt(len(batches))))


def ess_of(series: Float[np.ndarray, "chains draws k"]) -> Ess:
    """Return the ESS a stored draw of k projections by the paper's rule, averaged over chains.

    The rule (section 4.2) stops at the first negative autocorrelation. The error of the mean is
    from four stretches of each chain: directions share the chain's moves, so that the spread
    over directions would not tell it. A chain that never moved counts as 0.
    """
    each = _ess_per_draw(series)
    num_draws = series.shape[1] // _NUM_BLOCKS
    stretches = [
        _ess_per_draw(series[:, i * num_draws : (i + 1) * num_draws]).mean()
        for i in range(_NUM_BLOCKS)
    ]
    error = float(np.std(stretches, ddof=1) / np.sqrt(_NUM_BLOCKS))
    return Ess(Estimate(float(each.mean()), error), float(each.min()), float(each.max()))


def _ess_per_draw(series: Float[np.ndarray, "chains draws k"]) -> Float[np.ndarray, " k"]:
    sizes = np.nan_to_num(np.asarray(diagnostics.ess_tfp(series), np.float64))
    return sizes.mean(axis=0) / series.shape[1]


def rhats_at(
    series: Float[np.ndarray, "chains draws k"], checkpoints: Sequence[int]
) -> Float[np.ndarray, "checkpoints k"]:
    """Return the R-hat printed in section 4.3 (erratum B9) of the first draws, a direction each.

    On the variance scale: the threshold 1.2 of the paper belongs to its root.
    """
    return np.stack(
        [np.asarray(diagnostics.rhat_variance_ratio(series[:, :n])) for n in checkpoints]
    )


def mean_rhats(
    series: Float[np.ndarray, "chains draws k"], checkpoints: Sequence[int], *, root: bool = False
) -> list[Estimate]:
    """Return the mean over directions of `rhats_at`, or of their roots, at each checkpoint.

    The error is the jackknife's over chains, which all directions share; of two chains none is
    left to judge by, and it is NaN.
    """

    def means(chains: Float[np.ndarray, "chains draws k"]) -> Float[np.ndarray, " checkpoints"]:
        rhats = rhats_at(chains, checkpoints)
        return (np.sqrt(rhats) if root else rhats).mean(axis=1)

    count = len(series)
    errors = np.full(len(checkpoints), np.nan)
    if count > 2:
        left = np.stack([means(np.delete(series, chain, axis=0)) for chain in range(count)])
        errors = np.sqrt((count - 1) * left.var(axis=0))
    return [Estimate(float(m), float(e)) for m, e in zip(means(series), errors, strict=True)]


def infinite_width_acceptance(rates: Mapping[int, Estimate]) -> Estimate:
    """Extrapolate acceptance rates at some widths to infinite width, where they bear it.

    A log ratio that is N(-s^2 / 2, s^2), as reversibility asks of a small normal one, is accepted
    at the rate 2 Phi(-s / 2), and the kernel's fluctuations make s fall like width^(-1/2): a line
    s = s_0 + c width^(-1/2) is fitted to the three widest by weighted least squares, and
    2 Phi(-max(s_0, 0) / 2) returned. A line that the rates reject (chi-squared, at 1e-3), or whose
    s_0 is below zero by more than three errors, which no s can be, gives no limit: NaN. Two rates
    leave nothing to judge a line by, and the error is NaN.
    """
    normal = NormalDist()
    points = []
    for width in sorted(rates)[-3:]:
        value = min(max(rates[width].value, 1e-6), 1 - 1e-9)
        s = -2 * normal.inv_cdf(value / 2)
        points.append((width**-0.5, s, max(rates[width].error, 1e-6) / normal.pdf(s / 2)))
    x, s, error = np.array(points).T
    design = np.stack([np.ones_like(x), x], axis=1) / error[:, None]
    covariance = np.linalg.inv(design.T @ design)
    line = covariance @ design.T @ (s / error)
    s_0, s_0_error = float(line[0]), float(np.sqrt(covariance[0, 0]))
    # Of one degree of freedom: three points, two numbers.
    is_rejected = np.sum((design @ line - s / error) ** 2) > normal.inv_cdf(1 - 1e-3 / 2) ** 2
    if is_rejected or s_0 < -3 * s_0_error:
        return Estimate(float("nan"), float("nan"))
    limit = max(s_0, 0.0)
    stated = normal.pdf(limit / 2) * s_0_error if len(points) > 2 else float("nan")
    return Estimate(2 * normal.cdf(-limit / 2), stated)


def shape_of(rates: Sequence[Estimate]) -> str:
    """Say how rates change from one width to the next: where by more than three errors."""
    words: list[str] = []
    for old, new in itertools.pairwise(rates):
        change, error = new.value - old.value, np.hypot(old.error, new.error)
        word = "constant" if abs(change) <= 3 * error else "rises" if change > 0 else "falls"
        if not words or words[-1] != word:
            words.append(word)
    return ", then ".join(words)
