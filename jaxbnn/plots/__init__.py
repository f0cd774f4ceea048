"""The pictures people expect of chains: stacked arrays and axes in, axes out."""

from jaxbnn.plots._canvas import COLORS
from jaxbnn.plots.chains import autocorrelation, running_mean, trace
from jaxbnn.plots.coordinates import covariance_heat_map, parallel_coordinates
from jaxbnn.plots.densities import density
from jaxbnn.plots.predictions import calibration, observed_against_predicted
from jaxbnn.plots.thermalization import rhat_percentiles, thermalization_criteria
from jaxbnn.plots.tuning import acceptance_against, ess_against

__all__ = [
    "COLORS",
    "acceptance_against",
    "autocorrelation",
    "calibration",
    "covariance_heat_map",
    "density",
    "ess_against",
    "observed_against_predicted",
    "parallel_coordinates",
    "rhat_percentiles",
    "running_mean",
    "thermalization_criteria",
    "trace",
]
