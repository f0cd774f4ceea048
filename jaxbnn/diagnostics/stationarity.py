"""When a series begins to oscillate around a constant."""

from jaxtyping import ArrayLike

from jaxbnn.diagnostics import settling
from jaxbnn.diagnostics.settling import SettlingTime


def stationarity_time(
    series: ArrayLike,
    steps: ArrayLike,
    *,
    false_alarm_rate: float = 0.01,
    judged_fraction: float = 0.5,
) -> SettlingTime:
    """Lower bound of the thermalization time: the step from which a series is stationary.

    Piccioli et al., section V.1. As `merge_time`, with the series' own level in place of an
    informed one's: it is stationary if the records in the last `judged_fraction` of the steps
    show no drift and lie in a band around their mean, and has been so since the last record
    outside that band. A plateau far from equilibrium passes too.

    A series that is stationary throughout fails to give time 0 with probability at most
    `false_alarm_rate`, under the conditions of `merge_time`: records that are roughly normal. The
    log density of a few coordinates is skewed: asked for .6 %, it fails in 3.6 % of runs with ten
    of them, in 16 % with three.

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
    >>> import numpy as np
    >>> steps = np.arange(1, 1001)
    >>> noise = np.random.default_rng(0).normal(size=1000)
    >>> found = stationarity_time(noise + 30 * np.exp(-steps / 50), steps)
    >>> found.is_passed, bool(50 < found.lower_bound < 200)
    (True, True)
    >>> stationarity_time(noise + steps / 100, steps).is_passed
    False
    """
    settling.check_rates("stationarity_time", false_alarm_rate, judged_fraction)
    values, times = settling.check_series("stationarity_time", series, steps)
    first = settling.judged_records("stationarity_time", times, judged_fraction)
    rate = false_alarm_rate / 2
    level = settling.level_of(values[..., first:])
    low, high = settling.band(level, len(times), rate)
    count = settling.settled_after(values, low, high)
    is_passed = settling.has_no_slope(level, rate) & (count <= first)
    bound = settling.lower_bound(count, is_passed, times)
    levels = (level.mean, level.error, None, None)
    return settling.as_result(bound, is_passed, *levels, (low, high))
