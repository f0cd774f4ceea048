"""P-values and rates of false alarms where there is nothing to be found."""

import jax
import numpy as np
from scipy import stats

from jaxbnn.diagnostics import (
    blockwise_rhat,
    kernel_stein_discrepancy,
    maximum_mean_discrepancy,
    merge_time,
    score_time,
    stationarity_time,
    summary,
)
from jaxbnn.thermalization import compare
from tests.diagnostics.covariance_laws import MODES, NORMAL, Law, _heavy, p_values
from tests.diagnostics.null_rows import covers, false_alarms, p_value, share, stated_over_true

CHAINS, LENGTH = 4, 1000


def agreement(runs):
    """Some cells of `covariance_agreement`."""
    for dim, law in ((3, "independent"), (27, "AR(1), 0.9")):
        for mode in MODES:
            rng = np.random.default_rng([dim, MODES.index(mode)])
            p = p_values(rng, NORMAL[law], (CHAINS, LENGTH, dim), mode, runs)
            what = {"chains": "between chains", "matrix": "a matrix", "draws": "other draws"}[mode]
            yield p_value(f"covariance_agreement, {what}", f"{law}, {dim} coordinates", p)


def discrepancies(runs):
    """KSD and MMD: p-values where they are zero, standard errors where they are not."""
    laws = {**NORMAL, "heavy tails, kurtosis 7, AR(1), 0.9": Law(0.9, _heavy)}
    for name, law in laws.items():
        for dim in (1, 10) if name == "AR(1), 0.5" else (3,):
            rng = np.random.default_rng([dim, len(name)])
            shape = (5 * runs // 3, CHAINS, LENGTH, dim)
            draws, others = (law.draw(rng, shape).astype(np.float32) for _ in range(2))
            label = f"{name}, {dim} coordinate{'s' * (dim > 1)}, 512 of 4000 draws"
            if "heavy" not in name:
                yield from _judged("kernel_stein_discrepancy", label, _stein, draws, draws)
            yield from _judged("maximum_mean_discrepancy", label, _mmd, draws, others)


def _judged(function, law, discrepancy, draws, others):
    found = discrepancy(draws, others, None)
    yield p_value(function, law, found.p_value)
    # With a scale of its own each data set has a truth of its own.
    few = len(draws) // 3
    far = discrepancy(draws[:few] + np.float32(0.7), others[:few], 1.0)
    error = np.asarray(far.squared) - np.mean(far.squared)
    what = "standard_error, means 0.7 sd off, length scale 1"
    yield stated_over_true(function, what, law, far.standard_error, error)


@jax.jit(static_argnums=2)
def _stein(draws, _, scale):
    options = {"length_scale": scale, "max_draws": 512}
    return jax.lax.map(lambda x: kernel_stein_discrepancy(x, -x, **options), draws)


@jax.jit(static_argnums=2)
def _mmd(draws, others, scale):
    options = {"length_scale": scale, "max_draws": 512}
    return jax.lax.map(lambda both: maximum_mean_discrepancy(*both, **options), (draws, others))


def settling(runs):
    """Merge, stationarity and score times of series in equilibrium from the start."""
    runs, rate = 2 * runs, 0.05
    for phi in (0.0, 0.5, 0.9):
        rng = np.random.default_rng([round(10 * phi)])
        a, b = np.moveaxis(Law(phi).draw(rng, (4000, 2 * runs)).reshape(4000, 2, runs), 0, -1)
        steps, law = np.arange(1, 4001), f"AR(1), {phi:g}, 4000 records"
        merged = merge_time(a, b, steps, false_alarm_rate=rate)
        still = stationarity_time(a, steps, false_alarm_rate=rate)
        score = score_time(a, steps, false_alarm_rate=rate)
        found = {"merge_time": merged, "stationarity_time": still, "score_time": score}
        for name, one in found.items():
            alarm = np.asarray(one.lower_bound) > 0
            yield false_alarms(name, "false_alarm_rate", law, alarm, rate)
        errors = {
            ("merge_time", "level_error"): (merged.level, merged.level_error, 9),
            ("merge_time", "difference_error"): (merged.difference, merged.difference_error, 18),
            ("stationarity_time", "level_error"): (still.level, still.level_error, 9),
            ("score_time", "level_error"): (score.level, score.level_error, 9),
        }
        for (name, what), (value, error, freedom) in errors.items():
            yield stated_over_true(name, what, law, error, value)
            inside = np.abs(value) < stats.t.ppf(0.95, freedom) * np.asarray(error)
            yield covers(name, f"{what}, Student's t", law, inside)
        yield from _comparison(law, a, b, steps)


def _comparison(law, a, b, steps):
    alarms = []
    for one, other in zip(a, b, strict=True):
        mse = {"informed": np.exp(0.1 * one), "zero": np.exp(0.1 * other)}
        alarms += [
            [e.lower_bound > 0 for e in compare(steps, mse, false_alarm_rate=0.05).estimates[:2]]
        ]
    merged, still = np.transpose(alarms)
    for what, alarm in (("teacher-student", merged), ("stationarity", still)):
        yield false_alarms("thermalization.compare", what, law, alarm, 0.05)


def rhat_by_blocks(runs):
    """The level of R-hat of chains in equilibrium, and its error."""
    for phi in (0.0, 0.5, 0.9):
        rng = np.random.default_rng([1, round(10 * phi)])
        draws = (Law(phi).draw(rng, (2, 4000, 10)) for _ in range(5 * runs // 3))
        found = [blockwise_rhat(one, np.arange(1, 4001), threshold=10.0) for one in draws]
        level, error = np.array([(f.level, f.level_error) for f in found]).T
        law = f"AR(1), {phi:g}, 2 x 4000 records of 10 outputs"
        # The geometric mean that it estimates, over as many data sets.
        away = level - np.exp(np.mean(np.log(level)))
        yield stated_over_true("blockwise_rhat", "level_error", law, error, away)
        alarms = [f.lower_bound > 0 for f in found]
        yield false_alarms("blockwise_rhat", "false_alarm_rate 0.01", law, alarms, 0.01)


def warnings(runs):
    """How often `summary` warns of chains with nothing wrong, 20 coordinates."""
    runs //= 20
    for phi, length in ((0.0, 1000), (0.5, 2000), (0.9, 4000)):
        rng = np.random.default_rng([2, round(10 * phi)])
        warned = [
            bool(summary(Law(phi).draw(rng, (CHAINS, length, 20)).astype(np.float32)).warnings)
            for _ in range(runs)
        ]
        law = f"AR(1), {phi:g}, 4 x {length}, 20 coordinates"
        note = "nothing: R-hat of 1.01 is a threshold, not a test"
        yield share("summary", "any warning", law, warned, 0, 0, 0, note)


MEASURES = {
    "covariance_agreement": agreement,
    "discrepancy": discrepancies,
    "settling": settling,
    "blockwise_rhat": rhat_by_blocks,
    "summary": warnings,
}
