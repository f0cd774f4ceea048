"""When a component of the score begins to oscillate around zero."""

import numpy as np
from jaxtyping import ArrayLike

from jaxbnn.diagnostics import settling
from jaxbnn.diagnostics.settling import SettlingTime


def score_time(
    series: ArrayLike,
    steps: ArrayLike,
    *,
    false_alarm_rate: float = 0.01,
    judged_fraction: float = 0.5,
) -> SettlingTime:
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
    levels = (level.mean, level.error) * 2
    return settling.as_result(bound, is_passed, *levels, (low, high))
