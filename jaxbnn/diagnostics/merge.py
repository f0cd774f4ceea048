"""The teacher-student criterion on series: when an uninformed chain joins an informed one."""

import numpy as np
from jaxtyping import ArrayLike

from jaxbnn.diagnostics import settling
from jaxbnn.diagnostics.settling import SettlingTime


def merge_time(
    uninformed: ArrayLike,
    informed: ArrayLike,
    steps: ArrayLike,
    *,
    informed_steps: ArrayLike | None = None,
    false_alarm_rate: float = 0.01,
    judged_fraction: float = 0.5,
) -> SettlingTime:
    """Lower bound of the thermalization time from a chain that starts in equilibrium.

    Piccioli et al., section II, with the eye replaced by a rule. The records in the last
    `judged_fraction` of the steps are judged. The series have merged if

    1. the informed series shows no drift there (t test of the slope of ten batch means);
    2. the two means there agree (Welch's t test of ten batch means each);
    3. all judged records of the uninformed series lie in a band around the informed level
       (Student's prediction interval for each record, Bonferroni's bound for all of them).

    They merged after the last record outside the band. Two series in equilibrium from the
    start fail to give time 0 with probability at most `false_alarm_rate`, a third of it for
    each part. This was measured for Gaussian series (AR(1), geometric records, see the tests)
    whose autocorrelation time is at most one hundredth of the judged part; at a twentieth the
    rate 0.01 becomes 0.04. Give the logarithm of an observable that is positive and skewed, as
    a mean squared error.

    Passing is no proof: it says that this observable sees no difference.

    Parameters
    ----------
    uninformed, informed
        Series (..., record) of one observable under the two starts. A run cut short is filled
        up with NaN, and has not merged.
    steps
        The step of each record, increasing; typically in geometric progression.
    informed_steps
        Those of the informed series, if they are others: that run may be shorter or longer.
    false_alarm_rate
        Between 0 and 1.
    judged_fraction
        Which last part of the run is judged, between 0 and 1.

    Returns
    -------
    SettlingTime
        Numbers for one pair of series, arrays for several.

    Raises
    ------
    ValueError
        Shapes that do not fit, steps that do not increase, fewer than 20 judged records, or
        rates outside (0, 1).

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> steps = np.arange(1, 1001)
    >>> informed, noise = rng.normal(size=(2, 1000))
    >>> found = merge_time(noise + 30 * np.exp(-steps / 50), informed, steps)
    >>> found.is_passed, bool(50 < found.lower_bound < 200)
    (True, True)
    >>> merge_time(noise + 3, informed, steps)[:2]
    (1000.0, False)
    """
    settling.check_rates("merge_time", false_alarm_rate, judged_fraction)
    chain, times = settling.check_series("merge_time", uninformed, steps)
    own_steps = steps if informed_steps is None else informed_steps
    reference, own_times = settling.check_series("merge_time", informed, own_steps)
    first = settling.judged_records("merge_time", times, judged_fraction)
    own_first = settling.judged_records("merge_time", own_times, judged_fraction)
    try:
        np.broadcast_shapes(chain.shape[:-1], reference.shape[:-1])
    except ValueError:
        raise ValueError(
            "merge_time needs as many informed series as uninformed ones, or one, but the shapes "
            f"are {chain.shape} and {reference.shape}; give one informed series for each."
        ) from None
    rate = false_alarm_rate / 3
    level = settling.level_of(reference[..., own_first:])
    other = settling.level_of(chain[..., first:])
    low, high = settling.band(level, len(times), rate)
    count = settling.settled_after(chain, low, high)
    difference = other.mean - level.mean
    is_passed = (
        settling.has_no_slope(level, rate)
        & settling.differs_by_chance(difference, level.error, other.error, rate=rate)
        & (count <= first)
    )
    bound = settling.lower_bound(count, is_passed, times)
    error = np.hypot(level.error, other.error)
    levels = (level.mean, level.error, difference, error)
    return settling.as_result(bound, is_passed, *levels, (low, high))
