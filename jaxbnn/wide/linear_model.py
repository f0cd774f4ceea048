r"""The linear model of a read-out: Y = Psi theta + sigma xi with theta ~ N(0, I), column by column.

With Psi (n, p), Y (n, k), K = Psi Psi^T + sigma^2 I and P = I + Psi^T Psi / sigma^2, each column
of theta given Y is N(mu, Sigma), Sigma = P^-1, mu = Sigma Psi^T Y / sigma^2 = Psi^T K^-1 Y. Any
A with A A^T = Sigma makes theta = A phi + mu a bijection whose phi is standard normal given Y.

Two forms, each one Cholesky factorisation and triangular solves, hence safe to differentiate:

    "data", n x n, Lc Lc^T = K:
        A = I - Psi^T Lc^-T (Lc + sigma I)^-1 Psi
        A^-1 = I + Psi^T (Lc^T + sigma I)^-1 Psi / sigma
    "features", p x p, L L^T = P:
        A = L^-T
        A^-1 = L^T

They have different A, so that a phi belongs to the form that made it. Products run at the highest
precision, since a TF32 product in a Gram matrix is an error in the posterior.

Source: Pezzetti et al., (2)-(3) (erratum B2); the density of the inner weights
in appendices A-C is wrong as printed (erratum B3); the "data" bijection is the square-root Kalman
form (erratum B4).
"""

import math
from typing import Literal

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxbnn.numerics import solve_triangular
from jaxbnn.numerics.products import product

Form = Literal["data", "features"]
Design = Float[Array, "n p"]
Targets = Float[Array, "n k"]
ReadOut = Float[Array, "p k"]
Scalar = Float[Array, ""]


def cheaper_form(num_data: int, num_features: int) -> Form:
    """Return "data" (n^2 p + n^3 / 3 operations) or "features" (n p^2 + p^3 / 3).

    Examples
    --------
    >>> cheaper_form(256, 2049), cheaper_form(256, 33)
    ('data', 'features')
    """
    return "data" if num_data <= num_features else "features"


def log_marginal_terms(
    psi: Design, y: Targets, noise_scale: Scalar, form: Form
) -> Float[Array, " terms"]:
    """Return terms whose sum is l = sum_k log N(y_k; 0, K), the read-out integrated out.

        data:      -|(Lc^-1 Y)_i|^2 / 2 - k log Lc_ii - k log(2 pi) / 2
        features:  -|(Y - Psi mu)_i|^2 / (2 sigma^2) - k log(2 pi sigma^2) / 2
                   and -|mu_j|^2 / 2 - k log L_jj

    one per datum i (in the first, log p(y_i) given the data before it) and one per feature j. In
    the second, |Y|^2 - tr(Y^T Psi mu) of erratum B3 is the sum of squares
    |Y - Psi mu|^2 + sigma^2 |mu|^2, which does not cancel and is stationary in mu.

    Parameters
    ----------
    psi
        Psi, the read-out's inputs, scaled, with the bias column.
    y
        Y, one column per output.
    noise_scale
        sigma > 0.
    form
        Of the linear algebra; static.

    Examples
    --------
    >>> psi, y = jnp.array([[1.0]]), jnp.array([[2.0]])
    >>> for form in ("data", "features"):  # log N(2; 0, 1 + 1)
    ...     print(round(float(log_marginal_terms(psi, y, jnp.array(1.0), form).sum()), 4))
    -2.2655
    -2.2655
    """
    num_outputs = y.shape[1]
    cholesky = _cholesky(psi, noise_scale, form)
    log_diagonal = num_outputs * jnp.log(jnp.diagonal(cholesky))
    constant = num_outputs * math.log(2 * math.pi) / 2
    if form == "data":
        return -_row_squares(solve_triangular(cholesky, y)) / 2 - log_diagonal - constant
    mean = solve_triangular(
        cholesky, _whitened_mean(cholesky, psi, y, noise_scale), transposed=True
    )
    residual = (y - product(psi, mean)) / noise_scale
    of_data = -_row_squares(residual) / 2 - num_outputs * jnp.log(noise_scale) - constant
    return jnp.concatenate([of_data, -_row_squares(mean) / 2 - log_diagonal])


def to_read_out(phi: ReadOut, psi: Design, y: Targets, noise_scale: Scalar, form: Form) -> ReadOut:
    """Return theta = A phi + mu: a posterior draw of the read-out, for standard normal phi.

    Parameters
    ----------
    phi
        Standard normal coordinates.
    psi, y, noise_scale, form
        As in `log_marginal_terms`.

    Examples
    --------
    >>> psi, y = jnp.array([[1.0]]), jnp.array([[2.0]])
    >>> round(float(to_read_out(jnp.array([[0.0]]), psi, y, jnp.array(1.0), "data")[0, 0]), 4)
    1.0
    """
    cholesky = _cholesky(psi, noise_scale, form)
    if form == "features":
        whitened = phi + _whitened_mean(cholesky, psi, y, noise_scale)
        return solve_triangular(cholesky, whitened, transposed=True)
    # K = Lc Lc^T enters through Lc + sigma I as well: lower triangular, no eigenvectors needed.
    shrunk = solve_triangular(_plus_diagonal(cholesky, noise_scale), product(psi, phi))
    inner = solve_triangular(cholesky, solve_triangular(cholesky, y) - shrunk, transposed=True)
    return phi + product(psi.T, inner)


def from_read_out(
    theta: ReadOut, psi: Design, y: Targets, noise_scale: Scalar, form: Form
) -> ReadOut:
    """Return phi = A^-1 (theta - mu), the inverse of `to_read_out`.

    Parameters
    ----------
    theta
        The read-out's weights.
    psi, y, noise_scale, form
        As in `log_marginal_terms`.

    Examples
    --------
    >>> psi, y = jnp.array([[1.0]]), jnp.array([[2.0]])
    >>> round(float(from_read_out(jnp.array([[2.0]]), psi, y, jnp.array(1.0), "data")[0, 0]), 4)
    1.4142
    """
    cholesky = _cholesky(psi, noise_scale, form)
    if form == "features":
        return product(cholesky.T, theta) - _whitened_mean(cholesky, psi, y, noise_scale)
    mean = product(
        psi.T, solve_triangular(cholesky, solve_triangular(cholesky, y), transposed=True)
    )
    away = theta - mean
    shifted = _plus_diagonal(cholesky, noise_scale)
    grown = solve_triangular(shifted, product(psi, away), transposed=True)
    return away + product(psi.T, grown) / noise_scale


def _cholesky(psi: Design, noise_scale: Scalar, form: Form) -> Float[Array, "m m"]:
    """Return Lc of the n x n matrix K, or L of the p x p matrix P."""
    if form == "data":
        gram = _plus_diagonal(_gram(psi), noise_scale**2)
    else:
        gram = _plus_diagonal(_gram((psi / noise_scale).T), jnp.ones_like(noise_scale))
    # Symmetric to the last bit: nothing to be averaged.
    return jax.lax.linalg.cholesky(gram, symmetrize_input=False)


@jax.custom_jvp
def _gram(rows: Float[Array, "m q"]) -> Float[Array, "m m"]:
    """Return rows rows^T."""
    return product(rows, rows.T)


@_gram.defjvp
def _gram_jvp(primals, tangents):
    # Written as one product, its transpose is one as well: (C + C^T) rows, where automatic
    # differentiation has C rows + C^T rows, the largest product of a gradient twice.
    (rows,), (tangent,) = primals, tangents
    half = product(tangent, rows.T)
    return _gram(rows), half + half.T


def _whitened_mean(cholesky: Array, psi: Design, y: Targets, noise_scale: Scalar) -> ReadOut:
    """Return L^-1 Psi^T Y / sigma^2 = L^T mu."""
    return solve_triangular(cholesky, product((psi / noise_scale).T, y / noise_scale))


def _plus_diagonal(matrix: Float[Array, "m m"], value: Scalar) -> Float[Array, "m m"]:
    return matrix + value * jnp.eye(matrix.shape[0], dtype=matrix.dtype)


def _row_squares(rows: Float[Array, "rows k"]) -> Float[Array, " rows"]:
    return jnp.sum(jnp.square(rows), axis=1)
