"""Whether the settings of figure 3 find the same covariances (Papamarkou et al., section 6.1.6).

The paper looks at the matrices. Here, for each setting: whether its chains agree on their
covariance, which no setting's R-hat tells; and how its pattern of correlations goes with that of
the other settings. The covariances themselves belong to different posteriors, one a prior.
"""

from collections.abc import Mapping

import numpy as np

from experiments.studies.challenges.common import Matrix, jackknife
from experiments.study import Context, Row
from jaxbnn import diagnostics

SOURCE = "004 Section 6.1.6"
# Of the correlation between one setting's correlations and the mean of the others'.
SIMILAR = 0.7


def covariance_rows(kept: Mapping[str, Matrix], context: Context) -> list[Row]:
    """Write the table of agreement between chains, and return the rows on patterns."""
    lines = []
    for setting, draws in kept.items():
        try:
            found = diagnostics.covariance_agreement(draws)
        except ValueError as refusal:  # too few effective draws for so many coordinates
            lines.append([setting, str(refusal), *[""] * 4])
            continue
        chains = len(draws)
        distances = np.asarray(found.distances)[np.triu_indices(chains, 1)]
        lines.append(
            [
                setting,
                f"{float(found.ratio):.3f}",
                f"{float(found.p_value):.2g}",
                f"{np.sqrt(np.mean(distances**2)):.3g}",
                f"{float(found.null_distance):.3g}",
                f"{float(found.neighbour_correlation):.3f}",
            ]
        )
    header = ["setting", "ratio", "p-value", "distance", "expected", "neighbouring blocks"]
    context.save_table("covariance_agreement", header, lines)
    if len(kept) < 3:
        return []
    names = list(kept)
    # One error for all patterns: chain i of every setting is left out together.
    stacked = np.stack([_second_moments(kept[name]) for name in names], axis=1)

    def patterns(moments):
        return np.append(agreement := _pattern_correlations(moments), (agreement > SIMILAR).sum())

    values, errors = patterns(stacked), jackknife(patterns, stacked)
    rows = [
        Row("pattern_correlation", f"Figure 3, {name}", float(value), float(error))
        for name, value, error in zip(names, values, errors, strict=False)
    ]
    setting = "Figure 3, similar posterior covariance"
    count = Row("num_agreeing_settings", setting, float(values[-1]), float(errors[-1]), SOURCE)
    return [*rows, count]


def _second_moments(draws: Matrix) -> np.ndarray:
    """First and second moments of each chain, (chain, p + 1, p), from which covariances follow."""
    mean = draws.mean(axis=1, dtype=np.float64)
    square = np.stack([chain.T @ chain for chain in draws.astype(np.float64)]) / draws.shape[1]
    return np.concatenate([mean[:, None], square], axis=1)


def _pattern_correlations(moments: np.ndarray) -> np.ndarray:
    """Correlate each setting's off-diagonal correlations with the mean of the others'."""
    mean = moments.mean(axis=0)  # (setting, p + 1, p)
    covariance = mean[:, 1:] - mean[:, 0][:, :, None] * mean[:, 0][:, None]
    deviation = np.sqrt(np.diagonal(covariance, axis1=1, axis2=2))
    correlation = covariance / deviation[:, :, None] / deviation[:, None]
    upper = np.triu_indices(correlation.shape[1], 1)
    pattern = correlation[:, upper[0], upper[1]]
    others = (pattern.sum(axis=0) - pattern) / (len(pattern) - 1)
    return np.array([np.corrcoef(a, b)[0, 1] for a, b in zip(pattern, others, strict=True)])
