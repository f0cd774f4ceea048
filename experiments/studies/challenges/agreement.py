"""Agreement of samplers on means and covariances, within their Monte Carlo errors."""

from collections.abc import Mapping

import numpy as np

from jaxbnn import diagnostics

Found = Mapping[str, np.ndarray]  # by group of quantities, (chain, draw, dim)

GROUPS = ("log density", "predictions", "sorted norms", "raw parameters")


def moments_of(found: Found) -> dict[str, np.ndarray]:
    """Return means of every group and the raw covariance, each with its Monte Carlo error.

    Keys "<group>" and "<group> error"; the covariance, "raw covariance", as its lower triangle.
    """
    series = {group: np.asarray(found[group], np.float64) for group in GROUPS}
    raw = series["raw parameters"]
    away = raw - raw.mean(axis=(0, 1))
    rows, columns = np.tril_indices(raw.shape[-1])
    series["raw covariance"] = away[..., rows] * away[..., columns]
    moments = {}
    for name, values in series.items():
        moments[name] = values.mean(axis=(0, 1))
        moments[f"{name} error"] = np.asarray(diagnostics.mcse(values.astype(np.float32)))
    return moments


def scores_between(a: Mapping[str, np.ndarray], b: Mapping[str, np.ndarray]) -> dict:
    """Return z-scores of the differences, a key for each group of `moments_of`."""
    return {
        name: (a[name] - b[name]) / np.hypot(a[f"{name} error"], b[f"{name} error"])
        for name in (*GROUPS, "raw covariance")
    }


def largest_by_chance(count: int) -> float:
    """Return what the largest of `count` standard normal scores stays below 99 times in 100."""
    from scipy.stats import norm

    return float(norm.isf(0.005 / count))
