"""Quantiles of Student's t distribution, for tests on recorded series."""

import math

import numpy as np
from jaxtyping import ArrayLike, Float

# The continued fraction converges in O(sqrt(freedom)) terms where it is used.
_LARGEST_FREEDOM = 1e4
_TERMS = 200


def student_t_bound(freedom: ArrayLike, probability: float) -> Float[np.ndarray, "..."]:
    """Return the t > 0 with P(|T| > t) = `probability`, by bisection.

    Parameters
    ----------
    freedom
        Degrees of freedom, at least 1, of any shape; need not be whole.
    probability
        In (0, 1).

    Examples
    --------
    >>> student_t_bound(np.array([1.0, 9.0]), 0.05).round(3).tolist()
    [12.706, 2.262]
    """
    nu = np.atleast_1d(np.clip(np.asarray(freedom, float), 1.0, _LARGEST_FREEDOM))
    log_low, log_high = np.full(nu.shape, -40.0), np.full(nu.shape, 40.0)
    for _ in range(48):
        middle = (log_low + log_high) / 2
        is_low = _two_sided(nu, np.exp(middle)) > probability
        log_low, log_high = np.where(is_low, middle, log_low), np.where(is_low, log_high, middle)
    return np.exp((log_low + log_high) / 2).reshape(np.shape(freedom))


def _two_sided(nu, t):
    """P(|T| > t), the regularised incomplete beta function I_x(nu/2, 1/2), x = nu/(nu + t^2)."""
    x, complement = 1 / (1 + t**2 / nu), 1 / (1 + nu / t**2)
    a, half = nu / 2, np.full_like(nu, 0.5)
    in_tail = x < (a + 1) / (a + 2.5)
    p, q = np.where(in_tail, a, half), np.where(in_tail, half, a)
    first, second = np.where(in_tail, x, complement), np.where(in_tail, complement, x)
    value = _incomplete_beta(p, q, first, second)
    return np.where(in_tail, value, 1 - value)


def _incomplete_beta(p, q, x, complement):
    """I_x(p, q) by Lentz's continued fraction, for x < (p + 1) / (p + q + 2)."""
    log_gamma = np.vectorize(math.lgamma, otypes=[float])
    log_beta = log_gamma(p) + log_gamma(q) - log_gamma(p + q)
    front = np.exp(p * np.log(x) + q * np.log(complement) - log_beta) / p
    c = np.ones_like(x)
    d = 1 / (1 - (p + q) * x / (p + 1))
    value = d.copy()
    for m in range(1, _TERMS):
        even = m * (q - m) * x / ((p + 2 * m - 1) * (p + 2 * m))
        odd = -(p + m) * (p + q + m) * x / ((p + 2 * m) * (p + 2 * m + 1))
        for term in (even, odd):
            d, c = 1 / (1 + term * d), 1 + term / c
            value = value * (c * d)
        if (np.abs(c * d - 1) < 1e-13).all():
            break
    return front * value
