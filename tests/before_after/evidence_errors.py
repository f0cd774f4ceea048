"""Errors of the log evidence of a conjugate model, and the errors that are stated."""

import jax
import numpy as np
from scipy import stats
from scipy.signal import lfilter

from jaxbnn.diagnostics import bennett_acceptance_ratio, thermodynamic_integration

TITLE = "error of `thermodynamic_integration`"
RUNS, CHAINS, DRAWS, PRECISION = 300, 4, 250, 3.0


def measure():
    """Coverage and stated errors over 300 data sets of draws, 5, 8 and 16 rungs."""
    rows = []
    estimates = {"TI": thermodynamic_integration, "Bennett": bennett_acceptance_ratio}
    for rungs in (5, 8, 16):
        for phi in (0.0, 0.9):
            draws, ladder, exact = _draws(rungs, phi)
            for name, estimate in estimates.items():
                found = jax.lax.map(lambda one, e=estimate, t=ladder: e(one, t), draws)
                error = np.asarray(found.log_evidence) - exact
                stated = np.asarray(found.standard_error)
                text = (
                    f"{name}, {rungs} rungs, AR(1) at {phi:g}: P(|z| > 1.96), stated / true error"
                )
                beyond = np.mean(np.abs(error / stated) > 1.96)
                rows.append(
                    (text, f"{beyond:.3f}, {stated.mean() / np.sqrt(np.mean(error**2)):.2f}")
                )
    return rows


def _draws(rungs, phi):
    """Exact draws of each tempered posterior: AR(1) in whitened weights."""
    rng = np.random.default_rng(2)
    x, y = rng.normal(size=(7, 2)), rng.normal(size=7)
    exact = stats.multivariate_normal.logpdf(y, np.zeros(7), x @ x.T + np.eye(7) / PRECISION)
    ladder = np.linspace(0, 1, rungs) ** 3
    columns = []
    for t in ladder:
        root = np.linalg.cholesky(np.linalg.inv(np.eye(2) + t * PRECISION * x.T @ x))
        noise = rng.standard_normal((RUNS, CHAINS, DRAWS, 2))
        noise[:, :, 0] /= np.sqrt(1 - phi**2)
        z = lfilter([1.0], [1.0, -phi], np.sqrt(1 - phi**2) * noise, axis=2)
        w = root @ root.T @ (t * PRECISION * x.T @ y) + z @ root.T
        columns.append(stats.norm.logpdf(y, w @ x.T, PRECISION**-0.5).sum(axis=-1))
    return np.stack(columns, axis=-1).astype(np.float32), ladder, exact
