"""Gaussians given by their precision matrix.

A Gaussian conditional comes as exp(-x^T P x / 2 + h^T x): precision P and linear term h, so
that its mean is P^-1 h. With P = L L^T everything is one Cholesky and triangular solves;
the covariance is never formed. Matrix products ask for full float32, since a TF32 product
in a precision matrix is an error in the posterior.
"""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from jaxbnn.numerics.checks import check_float
from jaxbnn.numerics.products import product
from jaxbnn.numerics.random_numbers import standard_normal
from jaxbnn.numerics.triangular import solve_triangular


def sample_from_precision(
    key: PRNGKeyArray,
    precision: Float[Array, "*batch d d"],
    linear: Float[Array, "*more d"],
) -> Float[Array, "*more d"]:
    """Draw from N(P^-1 h, P^-1).

    Parameters
    ----------
    key
        A PRNG key.
    precision
        P, symmetric positive definite: one for all rows of `linear`, or one for each. A
        singular one gives NaN.
    linear
        h, with any leading axes.

    Raises
    ------
    ValueError
        Arrays whose shapes do not fit each other.
    TypeError
        Arrays that are neither float32 nor float64.

    Examples
    --------
    >>> P, h = jnp.array([[4.0]]), jnp.full((100_000, 1), 8.0)
    >>> draws = sample_from_precision(jax.random.key(0), P, h)
    >>> round(float(draws.mean()), 1), round(float(draws.std()), 1)
    (2.0, 0.5)
    """
    _check("sample_from_precision", precision, linear=linear)
    linear = jnp.asarray(linear)
    noise = standard_normal(key, linear.shape, linear.dtype)
    return gaussian_from_noise(noise, jnp.linalg.cholesky(precision), linear)


def gaussian_from_noise(
    noise: Float[Array, "*more d"],
    cholesky: Float[Array, "*batch d d"],
    linear: Float[Array, "*more d"],
) -> Float[Array, "*more d"]:
    """Return P^-1 h + L^-T noise for P = L L^T: a draw, for standard normal noise.

    A pure function for a factor that serves many draws and noise drawn in bulk.

    Parameters
    ----------
    noise
        Standard normals, of the shape of `linear`; zeros give the mean.
    cholesky
        Lower factor L of the precision: one for all rows, or one for each.
    linear
        h, as in `sample_from_precision`.

    Raises
    ------
    ValueError
        Arrays whose shapes do not fit each other.
    TypeError
        Arrays that are neither float32 nor float64.

    Examples
    --------
    >>> gaussian_from_noise(jnp.zeros(1), jnp.array([[2.0]]), jnp.array([8.0]))
    Array([2.], dtype=float32)
    """
    _check("gaussian_from_noise", cholesky, noise=noise, linear=linear)
    whitened = _solve(cholesky, linear, transposed=False)
    return _solve(cholesky, whitened + noise, transposed=True)


def gaussian_log_density(
    x: Float[Array, "*more d"],
    mean: Float[Array, "*more d"],
    cholesky: Float[Array, "*batch d d"],
) -> Float[Array, "*more"]:
    """Log density of N(mean, (L L^T)^-1) at x.

        sum_i log L_ii - |L^T (x - mean)|^2 / 2 - d log(2 pi) / 2

    Parameters
    ----------
    x, mean
        Points, with any leading axes.
    cholesky
        Lower factor L of the precision matrix: one for all points, or one for each.

    Raises
    ------
    ValueError
        Arrays whose shapes do not fit each other.
    TypeError
        Arrays that are neither float32 nor float64.

    Examples
    --------
    >>> round(float(gaussian_log_density(jnp.zeros(1), jnp.zeros(1), jnp.eye(1))), 4)
    -0.9189
    """
    _check("gaussian_log_density", cholesky, x=x, mean=mean)
    cholesky = jnp.tril(cholesky)  # SciPy's factors hold something else above
    if cholesky.ndim == 2:
        whitened = product(x - mean, cholesky)
    else:
        whitened = jnp.einsum(
            "...ij,...i->...j", cholesky, x - mean, precision=jax.lax.Precision.HIGHEST
        )
    log_det = jnp.sum(jnp.log(jnp.diagonal(cholesky, axis1=-2, axis2=-1)), axis=-1)
    return (
        log_det - (jnp.sum(jnp.square(whitened), -1) + x.shape[-1] * float(np.log(2 * np.pi))) / 2
    )


def _check(name: str, matrix: Array, **rows: Array) -> None:
    """Raise unless there is a matrix (..., d, d) with rows (..., d). Costs nothing once traced."""
    check_float(f"the matrix of {name}", matrix)
    dim = np.shape(matrix)[-1:]
    shapes = {what: np.shape(values) for what, values in rows.items()}
    for what, values in rows.items():
        check_float(what, values, like=matrix)
    leading = np.shape(matrix)[:-2]
    fits = all(shape[-1:] == dim and leading in ((), shape[:-1]) for shape in shapes.values())
    if np.shape(matrix)[-2:] != 2 * dim or 0 in dim or not fits or len(set(shapes.values())) > 1:
        found = " and ".join(f"{what} {shape}" for what, shape in shapes.items())
        raise ValueError(
            f"{name} needs a matrix (d, d), or one for each row, and rows (..., d) of one shape, "
            f"but the matrix has shape {np.shape(matrix)}, {found}."
        )


def _solve(cholesky: Array, rows: Array, *, transposed: bool) -> Array:
    """Solve L y = row, or L^T y = row, for each row."""
    if cholesky.ndim > 2:
        return solve_triangular(cholesky, rows[..., None], transposed=transposed)[..., 0]
    # One factor: all rows are right-hand sides of one solve, not a batch of solves.
    columns = solve_triangular(cholesky, rows.reshape(-1, rows.shape[-1]).T, transposed=transposed)
    return columns.T.reshape(rows.shape)
