"""When a component of the score begins to oscillate around zero."""

from typing import NamedTuple

import numpy as np
from jaxtyping import ArrayLike, Bool, Float

from jaxbnn.diagnostics import settling


class ScoreTime(NamedTuple):
    """What `score_time` found, for each series.

    Attributes
    ----------
    lower_bound
        Lower bound of the thermalization time in steps: the last record outside a band around
        zero; the length of the run if the mean is not zero.
    is_passed
        Whether the series oscillates around zero at the end of the run.
    mean, mean_error
        Mean over the judged records, with its standard error.
    band
        (low, high), symmetric: where all records lie after `lower_bound`.
    """

    lower_bound: float | Float[np.ndarray, "..."]
    is_passed: bool | Bool[np.ndarray, "..."]
    mean: float | Float[np.ndarray, "..."]
    mean_error: float | Float[np.ndarray, "..."]
    band: tuple


def score_time(
    series: ArrayLike,
    steps: ArrayLike,
    *,
    false_alarm_rate: float = 0.01,
    judged_fraction: float = 0.5,
) -> ScoreTime:
    """Lower bound of the thermalization time from the score, whose posterior mean is zero.

    E[d log p / d theta] = 0 under a density p that vanishes at infinity (Piccioli et al.,
    section V.1; Fan et al., 2006), so each component, and any fixed linear combination such as
    `jaxbnn.thermalization.score_statistic`, must oscillate around zero in equilibrium. It
    passes if the mean of the records in the last `judged_fraction` of the steps is zero by a t
    test of ten batch means and those records lie in a band around zero, as in `merge_time`.
    The converse fails badly: the score is often quiet long before anything else.

    A series that oscillates around zero throughout fails to give time 0 with probability at
    most `false_alarm_rate`, under the conditions of `merge_time`.

    Parameters
    ----------
    series
        Series (..., record).
    steps, false_alarm_rate, judged_fraction
        As in `merge_time`.

    Raises
    ------
    ValueError
        As `merge_time`.

    Examples
    --------
    >>> steps = np.arange(1, 1001)
    >>> noise = np.random.default_rng(0).normal(size=1000)
    >>> score_time(noise, steps)[:2], score_time(noise + 0.5, steps)[:2]
    ((0.0, True), (1000.0, False))
    """
    settling.check_rates("score_time", false_alarm_rate, judged_fraction)
    values, times = settling.check_series("score_time", series, steps)
    first = settling.judged_records("score_time", times, judged_fraction)
    rate = false_alarm_rate / 2
    level = settling.level_of(values[..., first:])
    # The mean is known: only the spread is estimated.
    low, high = settling.band(level._replace(mean=np.zeros_like(level.mean)), len(times), rate)
    count = settling.settled_after(values, low, high)
    is_zero = settling.differs_by_chance(level.mean, level.error, rate=rate)
    is_passed = is_zero & (count <= first)
    bound = settling.lower_bound(count, is_passed, times)
    numbers = (bound, is_passed, level.mean, level.error, (low, high))
    return ScoreTime(*settling.as_results(*numbers))
