"""Where a recorded series has settled: the rule that merge, stationarity and score times share.

The last part of the run is *judged*: its records are cut into ten batches, whose means are
compared by t tests, and its mean and spread give a band. A series has settled after the last
record outside the band. Everything works on many series at once, (..., record), in float64 on
the host; a record that is not finite lies outside every band, so that a run cut short (NaN from
there on) never passes.
"""

from typing import Any, NamedTuple

import numpy as np
from jaxtyping import ArrayLike, Bool, Float, Int
from scipy.special import stdtrit

from jaxbnn.numerics import check_fraction, check_real
from jaxbnn.numerics.checks import check_outside

NUM_BATCHES = 10

# NumPy reduces arrays without axes to scalars.
Number = Float[np.ndarray, "..."] | np.floating
Flag = Bool[np.ndarray, "..."] | np.bool_
Count = Int[np.ndarray, "..."] | np.integer


class SettlingTime(NamedTuple):
    """What `merge_time`, `stationarity_time` and `score_time` found, for each series.

    Attributes
    ----------
    lower_bound
        Lower bound of the thermalization time in steps: the last record outside the band (0: all
        lie inside); the length of the run if the criterion is not passed.
    is_passed
        Whether the series has settled at the end of the run.
    level, level_error
        Mean over the judged records, with its standard error: those of the informed series in
        `merge_time`, of the series itself in the others.
    difference, difference_error
        How far the judged records are, in the mean, from what they are compared with, with its
        standard error: from the informed series in `merge_time`, from zero in `score_time`. None in
        `stationarity_time`, which compares a series with itself.
    band
        (low, high): where all records of the series lie after `lower_bound`.
    """

    lower_bound: float | Float[np.ndarray, "..."]
    is_passed: bool | Bool[np.ndarray, "..."]
    level: float | Float[np.ndarray, "..."]
    level_error: float | Float[np.ndarray, "..."]
    difference: float | Float[np.ndarray, "..."] | None
    difference_error: float | Float[np.ndarray, "..."] | None
    band: tuple


class Level(NamedTuple):
    """What the judged records say: mean, its standard error, spread, and how many they are worth.

    `slope_t` is the t statistic (8 degrees of freedom) of the batch means' slope in time.
    """

    mean: Number
    error: Number
    spread: Number
    worth: Number
    slope_t: Number


def check_series(
    name: str, series: ArrayLike, steps: ArrayLike
) -> tuple[Float[np.ndarray, "... records"], Float[np.ndarray, " records"]]:
    """Return series (..., record) and their steps as float64, or raise one clear sentence."""
    check_outside(name, "it judges numbers on the host; call it outside", series, steps)
    check_real(f"the series of {name}", series)
    check_real(f"the steps of {name}", steps)
    values, times = np.asarray(series, float), np.asarray(steps, float)
    if times.ndim != 1 or values.ndim < 1 or values.shape[-1] != len(times):
        raise ValueError(
            f"{name} needs series (..., record) and one step a record, but the shapes are "
            f"{values.shape} and {times.shape}; put the records on the last axis."
        )
    if values.size == 0:
        raise ValueError(f"{name} got no records: the shape of the series is {values.shape}.")
    if not (np.isfinite(times).all() and (np.diff(times) > 0).all() and times[0] >= 0):
        raise ValueError(f"{name} needs steps that increase from 0 or more; sort the records.")
    return values, times


def check_rates(name: str, false_alarm_rate: float, judged_fraction: float) -> None:
    """Refuse numbers outside (0, 1)."""
    for what, value in (
        ("false_alarm_rate", false_alarm_rate),
        ("judged_fraction", judged_fraction),
    ):
        check_fraction(f"{what} of {name}", value)


def judged_records(
    name: str,
    steps: Float[np.ndarray, " records"],
    fraction: float,
    kind: str = "records",
    advice: str = "record",
) -> int:
    """Return the first record of the last `fraction` of the run's steps; 20 must follow it."""
    first = int(np.searchsorted(steps, (1 - fraction) * steps[-1], side="right"))
    number = len(steps) - first
    if number < 2 * NUM_BATCHES:
        raise ValueError(
            f"{name} judges the {kind} in the last {fraction:.0%} of the steps and needs at least "
            f"{2 * NUM_BATCHES} there, but there are {number}; {advice} more often."
        )
    return first


def level_of(judged: Float[np.ndarray, "... records"]) -> Level:
    """Estimate the level of judged records by ten batch means."""
    length = judged.shape[-1] // NUM_BATCHES
    scale = _scale(judged, -1)
    judged = judged / np.expand_dims(scale, -1)
    # Records left over are the earliest.
    batches = judged[..., -NUM_BATCHES * length :].reshape(*judged.shape[:-1], NUM_BATCHES, length)
    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
        means = batches.mean(axis=-1)
        mean, spread = means.mean(axis=-1), batches.std(axis=(-2, -1), ddof=1)
        error = means.std(axis=-1, ddof=1) / np.sqrt(NUM_BATCHES)
        number = NUM_BATCHES * length
        worth = np.clip((spread / error) ** 2, NUM_BATCHES / 2, number)
        # The spread of correlated records around their own mean is too small by this.
        spread = spread * np.sqrt(worth / (worth - 1))
        slope_t = _slope_t(means)
    # Identical records know their level exactly, which a mean of them may miss by rounding.
    is_constant = (judged == judged[..., :1]).all(axis=-1)
    return Level(
        scale * np.where(is_constant, judged[..., 0], mean),
        scale * np.where(is_constant, 0.0, error),
        scale * np.where(is_constant, 0.0, spread),
        np.where(is_constant, float(number), worth),
        np.where(is_constant, 0.0, slope_t),
    )


def _scale(values: Number, axis: int) -> Number:
    """Return 1, or a power of two near numbers whose fourth powers over- or underflow."""
    largest = np.max(np.abs(values), axis=axis, where=np.isfinite(values), initial=0.0)
    power = np.frexp(largest)[1]
    return np.ldexp(1.0, np.where(np.abs(power) > 200, np.clip(power, -1000, 1000), 0))


def _student_t_bound(freedom: ArrayLike, probability: float) -> Number:
    """Return the t > 0 that |T| exceeds with this probability."""
    return -stdtrit(np.maximum(freedom, 1.0), probability / 2)


def _slope_t(means):
    centred = np.arange(NUM_BATCHES) - (NUM_BATCHES - 1) / 2
    squares = (centred**2).sum()
    slope = (means * centred).sum(axis=-1) / squares
    fitted = means.mean(axis=-1, keepdims=True) + slope[..., None] * centred
    residual = ((means - fitted) ** 2).sum(axis=-1) / (NUM_BATCHES - 2)
    return slope / np.sqrt(residual / squares)


def has_no_slope(level: Level, rate: float) -> Flag:
    """Whether the judged records show no drift, at this error rate."""
    return np.abs(level.slope_t) <= _student_t_bound(NUM_BATCHES - 2, rate)


def differs_by_chance(difference: Number, *errors: Number, rate: float) -> Flag:
    """Whether a difference of levels with these standard errors is small, by Welch's t test."""
    together = np.stack(np.broadcast_arrays(*errors))
    scale = _scale(together, 0)
    variances = (together / scale) ** 2
    total = variances.sum(axis=0)
    with np.errstate(invalid="ignore", divide="ignore"):
        freedom = (NUM_BATCHES - 1) * total**2 / (variances**2).sum(axis=0)
    freedom = np.where(total > 0, freedom, 1.0)
    return np.abs(difference) <= _student_t_bound(freedom, rate) * np.sqrt(total) * scale


def band(level: Level, num_records: int, rate: float) -> tuple[Number, Number]:
    """Return bounds that no one of `num_records` settled records leaves, but for this rate.

    A prediction interval for each record, by Bonferroni's inequality: it holds however the
    records depend on each other, for records that are roughly normal.
    """
    bound = _student_t_bound(level.worth - 1, rate / num_records)
    width = bound * level.spread * np.sqrt(1 + 1 / level.worth)
    return level.mean - width, level.mean + width


def settled_after(
    values: Float[np.ndarray, "... records"],
    low: Number,
    high: Number,
) -> Count:
    """Return how many records precede the settled ones: the last one outside, and all before."""
    low, high = np.asarray(low)[..., None], np.asarray(high)[..., None]
    # A band about infinity holds infinity.
    inside = (values >= low) & (values <= high) & np.isfinite(values)
    trailing = np.argmin(inside[..., ::-1], axis=-1)
    return np.where(inside.all(axis=-1), 0, values.shape[-1] - trailing)


def lower_bound(
    count: Count,
    is_passed: Flag,
    steps: Float[np.ndarray, " records"],
) -> Number:
    """Return the step of the last unsettled record: 0 if all settled, the last if not passed."""
    with_zero = np.concatenate([[0.0], steps])
    return np.where(is_passed, with_zero[count], steps[-1])


def as_result(*fields: Any) -> SettlingTime:
    """Return the result of these fields, arrays without axes as Python scalars; in tuples too."""
    return SettlingTime(*(_as_python(field) for field in fields))


def _as_python(value: Any) -> Any:
    if isinstance(value, tuple):
        return tuple(_as_python(entry) for entry in value)
    return np.asarray(value).item() if np.ndim(value) == 0 else value
