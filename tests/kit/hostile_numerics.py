"""Bad arrays for the formulas of `numerics`, which do not refuse NaN."""

import jax
import numpy as np

from jaxbnn import numerics
from tests.kit.hostile_slots import Tried, array, count, family, fixed, fraction, number

KEY = jax.random.key(0)
D = 2
FACTOR = np.array([[2.0, 0.0], [1.0, 1.0]], np.float32)
HESSIAN = np.array([[2.0, 1.0], [1.0, -1.0]], np.float32)
ROWS = array(3, D)
# What is no positive definite matrix has no Gaussian: documented to give NaN.
SINGULAR = (
    "zeros",
    "booleans",
    "duplicated columns",
    "constant column",
    "ordinary",
    "integers",
    "double precision",
    "half precision",
    "huge (1e30)",
    "large (1e15)",
    "tiny (1e-30)",
    "subnormal",
    "mixed scales",
)


def _of_metric(function):
    return lambda hessian, vector: function(numerics.softabs_metric(hessian, 10.0), vector)


def _free(function, *slots, undefined=()):
    return Tried(function, slots, is_checked=False, undefined=undefined)


def _check(function):
    """A check returns nothing; what passes it is numbers."""
    return lambda value: (function("value", value), np.asarray(value, float))[1]


TRIED = {
    "sample_from_precision": _free(
        lambda p, h: numerics.sample_from_precision(KEY, p, h),
        fixed(FACTOR @ FACTOR.T),
        ROWS,
        undefined=SINGULAR,
    ),
    "gaussian_from_noise": _free(
        numerics.gaussian_from_noise, ROWS, fixed(FACTOR), ROWS, undefined=SINGULAR
    ),
    "gaussian_log_density": _free(
        numerics.gaussian_log_density, ROWS, ROWS, fixed(FACTOR), undefined=SINGULAR
    ),
    "solve_triangular": _free(
        numerics.solve_triangular,
        fixed(FACTOR),
        array(D, 3),
        undefined=SINGULAR,
    ),
    "metric_solve": _free(_of_metric(numerics.metric_solve), fixed(HESSIAN), array(D)),
    "metric_inverse_sqrt": _free(
        _of_metric(numerics.metric_inverse_sqrt), fixed(HESSIAN), array(D)
    ),
    "metric_quadratic": _free(_of_metric(numerics.metric_quadratic), fixed(HESSIAN), array(D)),
    "metric_log_det": _free(
        lambda h: numerics.metric_log_det(numerics.softabs_metric(h, 10.0)), fixed(HESSIAN)
    ),
    "truncated_normal_from_mode": _free(
        numerics.truncated_normal_from_mode,
        fixed(np.full(3, 0.5, np.float32)),
        fixed(np.full(3, 0.5, np.float32)),
        number(1.0),
    ),
    "truncated_normal_from_uniform": _free(
        numerics.truncated_normal_from_uniform,
        fixed(np.full(3, 0.5, np.float32)),
        fixed(np.full(3, -1.0, np.float32)),
        fixed(np.full(3, 1.0, np.float32)),
        number(0.0),
        number(1.0),
    ),
    "uniform_open": _free(lambda n: numerics.uniform_open(KEY, (n,)), count(3)),
    "standard_normal": _free(lambda n: numerics.standard_normal(KEY, (n,)), count(3)),
    "check_positive": _free(_check(numerics.check_positive), number(1.0)),
    "check_fraction": _free(_check(numerics.check_fraction), fraction(0.5)),
    "check_count": _free(_check(numerics.check_count), count(3)),
    "check_real": _free(_check(numerics.check_real), ROWS),
    "check_finite": Tried(_check(numerics.check_finite), (ROWS,)),
    "is_concrete": _free(lambda x: (numerics.is_concrete(x), numerics.check_real("x", x)), ROWS),
}

FAMILIES = {"linear algebra, truncated normals and checks": family(TRIED)}
