"""What the experiments of this study share: parameters in the paper's order, rows of its tables."""

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np
from jaxtyping import Float, PyTree

from experiments.spreads import spread_name
from experiments.study import Row
from jaxbnn import diagnostics

Matrix = Float[np.ndarray, "chains draws dim"]


def paper_order(positions: PyTree) -> Matrix:
    """Return draws of an MLP's parameters as (chains, draws, dim) in the paper's order.

    Layer by layer, W row by row (a row is one unit's incoming weights), then b.
    """
    parts = []
    for layer in positions:
        if layer:
            weights = np.swapaxes(np.asarray(layer["w"]), -1, -2)
            parts += [weights.reshape(*weights.shape[:2], -1), np.asarray(layer["b"])]
    return np.concatenate(parts, axis=-1)


def parameter_names(dim: int) -> list[str]:
    """Return theta_1, ..., theta_dim, the paper's names."""
    return [f"theta_{i + 1}" for i in range(dim)]


def jackknife(statistic: Callable[[np.ndarray], np.ndarray], draws: np.ndarray) -> np.ndarray:
    """Return the standard error of a statistic of chains, leaving out one at a time."""
    n = len(draws)
    values = np.stack([statistic(np.delete(draws, chain, axis=0)) for chain in range(n)])
    return np.sqrt((n - 1) / n * ((values - values.mean(axis=0)) ** 2).sum(axis=0))


def summarise_ess(ess: Float[np.ndarray, "chains dim"]) -> np.ndarray:
    """Min, median and max over parameters of the mean over chains (section 6)."""
    mean = ess.mean(axis=0)
    return np.array([mean.min(), np.median(mean), mean.max()])


def diagnostics_of(draws: Matrix, acceptance_rate: Float[np.ndarray, " chains"]) -> dict:
    """Return the numbers of the paper's tables 1 and 2 with standard errors.

    Largest split and folded-split R-hat over parameters; per-chain ESS (3.8), averaged over
    chains, min, median and max over parameters; mean acceptance in per cent.
    """
    ess = np.asarray(diagnostics.ess_geyer(draws))

    def rhats(x):
        return np.array(
            [
                np.max(diagnostics.split_rhat(x)),
                np.max(diagnostics.folded_split_rhat(x)),
            ]
        )

    rate = 100 * np.asarray(acceptance_rate)
    values = [*rhats(draws), *summarise_ess(ess), rate.mean()]
    # R-hat's error comes from the chains' means and variances: every few draws tell it as well.
    some = draws[:, :: max(1, draws.shape[1] // 10_000)]
    errors = [
        *jackknife(rhats, some),
        *jackknife(summarise_ess, ess),
        rate.std(ddof=1) / np.sqrt(len(rate)),
    ]
    names = [
        "psrf_split",
        "psrf_folded_split",
        "ess_min",
        "ess_median",
        "ess_max",
        "acceptance_rate",
    ]
    return {
        name: np.array([value, error])
        for name, value, error in zip(names, values, errors, strict=True)
    }


def other_rhats(draws: Matrix) -> dict[str, float]:
    """Return what else the printed R-hats may be, each the largest over parameters.

    Of ranks, as `rstan`, which the authors used, has it today; and of chains that are split before
    they are handed to a function that splits them: of their quarters.
    """
    middle = draws.shape[1] // 2
    halves = np.concatenate([draws[:, :middle], draws[:, middle : 2 * middle]])
    return {
        "psrf_rank": float(np.max(diagnostics.rank_rhat(draws))),
        "psrf_split_of_halves": float(np.max(diagnostics.split_rhat(halves))),
        "psrf_folded_split_of_halves": float(np.max(diagnostics.folded_split_rhat(halves))),
        "psrf_rank_of_halves": float(np.max(diagnostics.rank_rhat(halves))),
    }


def means_of(draws: Matrix) -> dict:
    """Return the Monte Carlo mean of every parameter with its error between chains."""
    means = draws.mean(axis=1, dtype=np.float64)
    error = means.std(axis=0, ddof=1) / np.sqrt(len(means))
    return {"mean": means.mean(axis=0), "mean_error": error}


def table_rows(found: Mapping[str, np.ndarray], setting: str, source: str | None) -> list[Row]:
    """Turn the pairs (value, error) of `diagnostics_of` into rows."""
    return [
        Row(quantity, setting, float(pair[0]), float(pair[1]), source)
        for quantity, pair in found.items()
    ]


def over_seeds(by_seed: Sequence[Sequence[Row]]) -> list[Row]:
    """Return the means over the seeds, each with the error of the mean; of one seed, its rows.

    Every seed has the same rows, in one order, and the means keep their sources. The papers print
    numbers of one seed: the standard deviation over the seeds of each number that has a source is
    a row of its own.
    """
    if len(by_seed) == 1:
        return list(by_seed[0])
    rows, spreads = [], []
    for same in zip(*by_seed, strict=True):
        values = np.array([row.value for row in same])
        spread = float(values.std(ddof=1))
        error = spread / math.sqrt(len(values))
        mean = float(values.mean())
        rows.append(dataclasses.replace(same[0], value=mean, standard_error=error))
        if same[0].source is not None:
            spreads.append(Row(spread_name(same[0].quantity), same[0].setting, spread))
    return rows + spreads
