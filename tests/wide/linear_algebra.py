"""The read-out's linear model a second time, in NumPy and SciPy, from its definition."""

import numpy as np
from scipy import stats


def posterior_of_read_out(psi, y, noise_scale):
    """Return (Sigma, mu) by inverting the precision."""
    covariance = np.linalg.inv(np.eye(psi.shape[1]) + psi.T @ psi / noise_scale**2)
    return covariance, covariance @ psi.T @ y / noise_scale**2


def log_marginal(psi, y, noise_scale):
    """Return sum_k log N(y_k; 0, Psi Psi^T + sigma^2 I)."""
    gram = psi @ psi.T + noise_scale**2 * np.eye(len(psi))
    return stats.multivariate_normal.logpdf(y.T, np.zeros(len(psi)), gram).sum()


def log_joint(theta, psi, y, noise_scale):
    """Return log N(theta; 0, I) + log p(Y | theta)."""
    errors = stats.norm.logpdf(y, psi @ theta, noise_scale)
    return stats.norm.logpdf(theta).sum() + errors.sum()


def standard_normal(phi):
    return stats.norm.logpdf(phi).sum()
