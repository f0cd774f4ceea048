"""Covariances of piecewise linear functions of two Gaussians, by conditional quadrature in float64.

f(z) = a z + b relu(z) + c heaviside(z) + k. One variable is integrated numerically between
breakpoints, the other in closed form given the first: nothing is shared with the code under test.
"""

import numpy as np
from scipy.special import ndtr


def density(x):
    return np.exp(-(x**2) / 2) / np.sqrt(2 * np.pi)


def expectation(parts, mean, scale):
    a, b, c, k = parts
    mu = mean / scale
    relu = scale * (density(mu) + mu * ndtr(mu))
    return a * mean + b * relu + c * ndtr(mu) + k


def covariance(parts, mu1, mu2, rho, panels=40):
    """Return Cov(f(z1), f(z2)) for unit variances; mu1, mu2 of shape (m,), rho a number."""
    a, b, c, k = parts
    rest = np.sqrt((1 - rho) * (1 + rho))
    # Where the mean of z2 given z1 changes sign, and how fast.
    centre, width = mu1 - mu2 / rho, rest / abs(rho)
    low, high = mu1 - 9, mu1 + 9
    edges = [low, high, 0 * mu1] + [centre + s * width for s in (-40, -6, 0, 6, 40)]
    edges = np.sort(np.clip(np.stack(edges), low, high), axis=0)
    nodes, weights = np.polynomial.legendre.leggauss(panels)
    half = (edges[1:] - edges[:-1])[..., None] / 2
    z1 = edges[:-1, :, None] + half * (nodes + 1)
    first = a * z1 + b * np.maximum(z1, 0) + c * (z1 > 0) + k
    second = expectation(parts, mu2[:, None] + rho * (z1 - mu1[:, None]), rest)
    product = first - expectation(parts, mu1, 1.0)[:, None]
    integrand = product * second * density(z1 - mu1[:, None])
    return np.sum(half * weights * integrand, axis=(0, 2))
