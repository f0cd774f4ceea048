"""P-values of covariances that agree, and of one wrong scale."""

import jax
import jax.numpy as jnp
import numpy as np
from scipy.signal import lfilter

from jaxbnn.diagnostics import covariance_agreement

TITLE = "p-values of `covariance_agreement`"
RUNS, BATCH = 200, 25


def measure():
    """Level and power between four chains of 1,000 draws."""
    rows = []
    for dim in (3, 10, 27, 60):
        p = _p_values(dim)
        quantiles = "/".join(f"{q:.2f}" for q in np.quantile(p, [0.05, 0.5, 0.95]))
        rows.append((f"5/50/95 % of p, {dim} coordinates, independent draws", quantiles))
        rows.append((f"P(p < .05), {dim} coordinates", f"{np.mean(p < 0.05):.3f}"))
    for mode in ("chains", "matrix", "draws"):
        p = _p_values(27, mode, phi=0.9)
        text = f"P(p < .05), 27 coordinates, AR(1) at 0.9, {mode}"
        rows.append((text, f"{np.mean(p < 0.05):.3f}"))
    p = _p_values(27, factor=1.2)
    rows.append(
        ("P(p < .05), 27 coordinates, one sd of one chain x 1.2", f"{np.mean(p < 0.05):.3f}")
    )
    return rows


def _p_values(dim, mode="chains", phi=0.0, factor=1.0):
    rng = np.random.default_rng(dim)
    found = []
    for _ in range(RUNS // BATCH):
        draws, others = _draw(rng, dim, phi), _draw(rng, dim, phi)
        draws[:, 0, :, 0] *= factor
        if mode == "draws":
            p = jax.lax.map(lambda both: covariance_agreement(*both).p_value, (draws, others))
        else:
            truth = jnp.eye(dim) if mode == "matrix" else None
            p = jax.lax.map(lambda x, t=truth: covariance_agreement(x, t).p_value, draws)
        found.append(np.asarray(p))
    return np.concatenate(found)


def _draw(rng, dim, phi):
    noise = rng.standard_normal((BATCH, 4, 1000, dim))
    noise[:, :, 0] /= np.sqrt(1 - phi**2)
    chains = lfilter([1.0], [1.0, -phi], np.sqrt(1 - phi**2) * noise, axis=2)
    return chains.astype(np.float32)
