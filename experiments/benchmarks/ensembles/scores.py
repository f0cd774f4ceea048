"""Scores of draws of a Gaussian a row, the same for every method."""

import numpy as np
from jaxtyping import Float
from scipy.special import logsumexp, ndtr

from jaxbnn.diagnostics import rank_rhat

QUANTITIES = (
    "nll", "nll_worst_row", "lppd", "rmse", "rmse_chain", "coverage", "rhat_median", "rhat_95",
)  # fmt: skip


def scores_of(
    mean: Float[np.ndarray, "chain draw row"],
    sd: Float[np.ndarray, "chain draw row"],
    y: Float[np.ndarray, " row"],
) -> dict[str, float]:
    """Return the scores of the mixture of all draws, in units of the standardised target.

    "nll" is that of the one Gaussian that has the mixture's mean and variance, as bde's benchmark
    has it, "nll_worst_row" what the row with the most adds to that mean, and "lppd" the mean log
    density of the mixture itself. "rmse" is that of the mean of all draws, "rmse_chain" the root
    mean square of those of the chains' own means, which is larger where the chains disagree.
    "coverage" is that of the mixture's central 90 % interval. "rhat_median" and "rhat_95" are
    quantiles over the rows of the rank-normalised R-hat of the predictive means: where they are
    above 1.01, the chains do not agree, and a single draw a chain has none.
    """
    all_mean, all_sd = (np.asarray(a, float).reshape(-1, a.shape[-1]) for a in (mean, sd))
    centre = all_mean.mean(axis=0)
    variance = (all_sd**2).mean(axis=0) + all_mean.var(axis=0)
    z = (y - all_mean) / all_sd
    densities = -0.5 * z**2 - np.log(all_sd) - 0.5 * np.log(2 * np.pi)
    below = ndtr(z).mean(axis=0)
    terms = 0.5 * np.log(2 * np.pi * variance) + (y - centre) ** 2 / variance / 2
    found = {
        "nll": float(np.mean(terms)),
        "nll_worst_row": float(np.max(terms) / len(y)),
        "lppd": float(np.mean(logsumexp(densities, axis=0) - np.log(len(all_mean)))),
        "rmse": float(np.sqrt(np.mean((y - centre) ** 2))),
        "rmse_chain": float(np.sqrt(np.mean((y - np.asarray(mean, float).mean(axis=1)) ** 2))),
        "coverage": float(np.mean((below >= 0.05) & (below <= 0.95))),
    }
    if mean.shape[1] >= 4:
        rhat = np.asarray(rank_rhat(mean))
        found["rhat_median"] = float(np.median(rhat))
        found["rhat_95"] = float(np.quantile(rhat, 0.95))
    return found
