"""Bad draws and series for the pictures."""

import matplotlib as mpl
import numpy as np

from jaxbnn import plots
from tests.kit.hostile_slots import Tried, array, count, family, fixed, fraction

mpl.use("Agg")
from matplotlib import pyplot

DRAWS = array(3, 10, 2)
ROW = np.arange(1.0, 6.0)
RATES, SIZES = fixed(np.full(5, 0.5)), fixed(np.full(5, 10.0))


def _drawn(function, *slots):
    """Draw the picture to the last pixel: labels and limits fail only then."""

    def call(*values):
        try:
            axes = np.ravel(np.asarray(function(*values), dtype=object))[0]
            axes.figure.canvas.draw()
        finally:
            pyplot.close("all")
        return ()

    return Tried(call, slots)


TRIED = {
    "trace": _drawn(plots.trace, DRAWS),
    "running_mean": _drawn(plots.running_mean, DRAWS),
    "autocorrelation": _drawn(
        lambda d, lag: plots.autocorrelation(d, max_lag=lag), DRAWS, count(5)
    ),
    "density": _drawn(plots.density, DRAWS),
    "covariance_heat_map": _drawn(plots.covariance_heat_map, DRAWS),
    "parallel_coordinates": _drawn(
        lambda d, lines: plots.parallel_coordinates(d, max_lines=lines), DRAWS, count(10)
    ),
    "acceptance_against": _drawn(
        lambda p, r, t: plots.acceptance_against(p, r, target=t), fixed(ROW), RATES, fraction(0.5)
    ),
    "ess_against": _drawn(plots.ess_against, fixed(ROW), SIZES),
    "calibration": _drawn(plots.calibration, RATES, RATES),
    "observed_against_predicted": _drawn(
        plots.observed_against_predicted, array(5), array(5), array(5), array(5)
    ),
    "rhat_percentiles": _drawn(
        lambda s, v: plots.rhat_percentiles(s, v, (25, 75)), fixed(ROW), fixed(np.ones((2, 5)))
    ),
    "thermalization_criteria": _drawn(
        lambda s, v: plots.thermalization_criteria(s, {"zero": v}, score={"zero": v}),
        fixed(ROW),
        SIZES,
    ),
}
FAMILIES = {"plots": family(TRIED)}
