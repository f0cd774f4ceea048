"""The SoftAbs metric: a positive definite matrix made from any Hessian.

    M = Q diag(lambda_i coth(alpha lambda_i)) Q^T,        H = Q diag(lambda) Q^T,

(Betancourt 2013; erratum D6 to Papamarkou et al., who use it with alpha = 1000.) It is
even in lambda, so H may be the Hessian of the log density or of its negative. Its
eigenvalues are at least 1/alpha.

Nothing here is meant to be differentiated: the derivative of `eigh` is NaN at repeated
eigenvalues, and simplified manifold MALA only evaluates the metric. `softabs` alone
has right derivatives everywhere.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Float

from jaxbnn.numerics.checks import broadcasts_to, check_float, check_positive, check_real
from jaxbnn.numerics.tails import as_floats


class SoftAbsMetric(NamedTuple):
    """A metric M = Q diag(eigenvalues) Q^T, as `softabs_metric` returns it.

    Attributes
    ----------
    eigenvalues
        Positive.
    eigenvectors
        Q, a column each.
    """

    eigenvalues: Float[Array, "*batch d"]
    eigenvectors: Float[Array, "*batch d d"]


def softabs_metric(hessian: Float[Array, "*batch d d"], alpha: ArrayLike) -> SoftAbsMetric:
    """Decompose the SoftAbs metric of a Hessian.

    Parameters
    ----------
    hessian
        Symmetric matrices; of either sign. The lower and upper halves are averaged.
    alpha
        Sharpness: |lambda| is kept where it is well above 1/alpha, and 1/alpha replaces it
        below. Positive; may be traced.

    Raises
    ------
    ValueError
        If `alpha` is not positive.

    Examples
    --------
    >>> metric = softabs_metric(jnp.diag(jnp.array([-2.0, 0.0])), alpha=10.0)
    >>> [round(float(v), 4) for v in metric.eigenvalues]
    [2.0, 0.1]
    """
    if np.ndim(hessian) < 2 or np.shape(hessian)[-1] != np.shape(hessian)[-2]:
        raise ValueError(
            f"hessian must be a square matrix, (..., d, d), but has shape {np.shape(hessian)}."
        )
    check_float("hessian", hessian)
    eigenvalues, eigenvectors = jnp.linalg.eigh(hessian)
    return SoftAbsMetric(softabs(eigenvalues, alpha), eigenvectors)


def softabs(eigenvalues: Float[Array, "..."], alpha: ArrayLike) -> Float[Array, "..."]:
    """Return lambda coth(alpha lambda), a smooth absolute value, 1/alpha at 0.

    Parameters
    ----------
    eigenvalues
        Any shape. Whole numbers and halves are made floats.
    alpha
        Sharpness, positive; a scalar, or of the shape of `eigenvalues`.

    Raises
    ------
    ValueError
        If `alpha` is not positive, or of a larger shape.
    TypeError
        Eigenvalues that are not real numbers.

    Examples
    --------
    >>> softabs(jnp.array([-3.0, 0.0]), 100.0)
    Array([3.  , 0.01], dtype=float32)
    """
    check_positive("alpha", alpha)
    check_real("eigenvalues", eigenvalues)
    (eigenvalues,) = as_floats(eigenvalues)
    _check_alpha(alpha, eigenvalues.shape)
    alpha = jnp.asarray(alpha, eigenvalues.dtype)
    y = jnp.abs(alpha * eigenvalues)
    # y / tanh(y) is 0 / 0 at 0, so a series is used there. `where` differentiates both branches:
    # each gets arguments at which it and its derivative are finite.
    small = y < 0.03
    y2 = jnp.square(jnp.where(small, y, 0))
    series = (1 + y2 / 3 * (1 - y2 / 15 * (1 - y2 * (2 / 21)))) / alpha
    exact = jnp.abs(eigenvalues) / jnp.tanh(jnp.where(small, 1, y))
    return jnp.where(small, series, exact)


def _check_alpha(alpha: ArrayLike, shape: tuple[int, ...]) -> None:
    given = np.shape(alpha)
    if not broadcasts_to(given, shape):
        raise ValueError(
            f"alpha must be one number, or one an eigenvalue, but has shape {given} for "
            f"eigenvalues of shape {shape}."
        )


def metric_log_det(metric: SoftAbsMetric) -> Float[Array, "*batch"]:
    """Log determinant of M.

    Parameters
    ----------
    metric
        M, from `softabs_metric`.

    Examples
    --------
    >>> metric = SoftAbsMetric(jnp.array([4.0, 1.0]), jnp.eye(2))
    >>> round(float(metric_log_det(metric)), 4)  # log 4
    1.3863
    """
    return jnp.sum(jnp.log(metric.eigenvalues), axis=-1)


def metric_quadratic(
    metric: SoftAbsMetric, vector: Float[Array, "*batch d"]
) -> Float[Array, "*batch"]:
    """Quadratic form v^T M v.

    Parameters
    ----------
    metric
        M, from `softabs_metric`.
    vector
        v.

    Raises
    ------
    ValueError
        A vector of another length than the metric has.
    TypeError
        Entries that are not real numbers.

    Examples
    --------
    >>> metric = SoftAbsMetric(jnp.array([4.0, 1.0]), jnp.eye(2))
    >>> float(metric_quadratic(metric, jnp.array([1.0, 2.0])))
    8.0
    """
    return jnp.sum(metric.eigenvalues * jnp.square(_rotate(metric, vector)), axis=-1)


def metric_solve(
    metric: SoftAbsMetric, vector: Float[Array, "*batch d"]
) -> Float[Array, "*batch d"]:
    """Return M^-1 v, the natural gradient of a gradient v.

    Parameters
    ----------
    metric
        M, from `softabs_metric`.
    vector
        v.

    Raises
    ------
    ValueError
        A vector of another length than the metric has.
    TypeError
        Entries that are not real numbers.

    Examples
    --------
    >>> metric = SoftAbsMetric(jnp.array([4.0, 1.0]), jnp.eye(2))
    >>> metric_solve(metric, jnp.array([1.0, 2.0])).tolist()
    [0.25, 2.0]
    """
    return _unrotate(metric, _rotate(metric, vector) / metric.eigenvalues)


def metric_inverse_sqrt(
    metric: SoftAbsMetric, vector: Float[Array, "*batch d"]
) -> Float[Array, "*batch d"]:
    """Return A v with A A^T = M^-1: a draw from N(0, M^-1) for a standard normal v.

    A = Q diag(eigenvalues^-1/2), one product less than the symmetric root.

    Parameters
    ----------
    metric
        M, from `softabs_metric`.
    vector
        v.

    Raises
    ------
    ValueError
        A vector of another length than the metric has.
    TypeError
        Entries that are not real numbers.

    Examples
    --------
    >>> metric = SoftAbsMetric(jnp.array([4.0, 1.0]), jnp.eye(2))
    >>> metric_inverse_sqrt(metric, jnp.array([1.0, 2.0])).tolist()
    [0.5, 2.0]
    """
    _check_vector(metric, vector)
    return _unrotate(metric, vector / jnp.sqrt(metric.eigenvalues))


def _check_vector(metric: SoftAbsMetric, vector: Array) -> None:
    check_real("vector", vector)
    if np.shape(vector)[-1:] != metric.eigenvalues.shape[-1:]:
        raise ValueError(
            f"vector must have {metric.eigenvalues.shape[-1]} entries on its last axis, as the "
            f"metric has, but has shape {np.shape(vector)}."
        )


def _rotate(metric: SoftAbsMetric, vector: Array) -> Array:
    _check_vector(metric, vector)
    return jnp.einsum(
        "...ji,...j->...i", metric.eigenvectors, vector, precision=jax.lax.Precision.HIGHEST
    )


def _unrotate(metric: SoftAbsMetric, vector: Array) -> Array:
    return jnp.einsum(
        "...ij,...j->...i", metric.eigenvectors, vector, precision=jax.lax.Precision.HIGHEST
    )
