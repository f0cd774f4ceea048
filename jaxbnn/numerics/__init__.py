"""Normal tails, truncated normals, metrics and sums that hold in float32; checks of arguments."""

from jaxbnn.numerics.checks import (
    check_count,
    check_finite,
    check_floating,
    check_fraction,
    check_positive,
    check_real,
    is_concrete,
)
from jaxbnn.numerics.gaussians import (
    gaussian_from_noise,
    gaussian_log_density,
    sample_from_precision,
)
from jaxbnn.numerics.generalised_inverse_gaussian import generalised_inverse_gaussian
from jaxbnn.numerics.jaxlib_faults import warn_of_wrong_sums
from jaxbnn.numerics.random_numbers import standard_normal
from jaxbnn.numerics.softabs import (
    SoftAbsMetric,
    metric_inverse_sqrt,
    metric_log_det,
    metric_quadratic,
    metric_solve,
    softabs,
    softabs_metric,
)
from jaxbnn.numerics.sums import sum_of_differences
from jaxbnn.numerics.tails import (
    hazard,
    log_mass_from_mode,
    log_mills,
    log_ndtr,
    log_normal_interval,
)
from jaxbnn.numerics.triangular import solve_triangular
from jaxbnn.numerics.truncated_normal import (
    truncated_normal,
    truncated_normal_from_mode,
    truncated_normal_from_uniform,
    uniform_open,
)

__all__ = [
    "hazard",
    "log_mass_from_mode",
    "log_mills",
    "log_ndtr",
    "log_normal_interval",
    "softabs",
    "softabs_metric",
    "solve_triangular",
    "standard_normal",
    "sum_of_differences",
    "truncated_normal",
    "truncated_normal_from_mode",
    "truncated_normal_from_uniform",
    "uniform_open",
]

warn_of_wrong_sums()
