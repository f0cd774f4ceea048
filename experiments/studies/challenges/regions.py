"""The regions of theta_4 that section 6.1.3 of Papamarkou et al. names in words, as numbers.

The paper reads them off its figures, in round numbers. Here a region of most of the mass, on one
side of zero, is where the central nine tenths of that side's draws lie; a modal region is the
shortest stretch that holds half of them; and between the two sides' central regions there is
little.
"""

from collections.abc import Callable, Mapping

import numpy as np

from experiments.study import Row

SOURCE = "004 Section 6.1.3"
NUM_GROUPS = 10
# How fast the ends of a region come to rest, as the power of the number of draws by which their
# errors fall: quantiles as means do, the ends of a shortest half only as n^(-1/3) (Andrews and
# others, 1972, on the shorth). So an end of all draws varies 10^(1/6) times as much as the mean of
# its values in ten groups.
QUANTILE_RATE, SHORTEST_RATE = 1 / 2, 1 / 3
Ends = tuple[float, float]


def central_region(values: np.ndarray) -> Ends:
    """Return the 5 % and 95 % quantiles."""
    low, high = np.quantile(values, [0.05, 0.95])
    return float(low), float(high)


def shortest_region(values: np.ndarray) -> Ends:
    """Return the ends of the shortest interval that holds half of the values."""
    ordered = np.sort(values)
    half = len(ordered) // 2
    at = int(np.argmin(ordered[half:] - ordered[: len(ordered) - half]))
    return float(ordered[at]), float(ordered[at + half])


def on_side(side: str, region: Callable[[np.ndarray], Ends]) -> Callable[[np.ndarray], Ends]:
    """Return `region` of the values on one side of zero; NaN if it has none."""

    def of(values):
        chosen = values[values > 0] if side == "positive" else values[values < 0]
        return region(chosen) if len(chosen) > 1 else (np.nan, np.nan)

    return of


def between_sides(values: np.ndarray) -> Ends:
    """Return where the negative side's central region ends and the positive side's begins."""
    return (
        on_side("negative", central_region)(values)[1],
        on_side("positive", central_region)(values)[0],
    )


def region_rows(
    quantity: str,
    setting: str,
    region: Callable[[np.ndarray], Ends],
    groups: np.ndarray,
    rate: float = QUANTILE_RATE,
) -> list[Row]:
    """Return rows for both ends of a region of all `groups` (group, draw), with standard errors.

    The error comes from the spread between groups, which must be independent: chains, or parts of
    independent draws. Errors of the region's ends fall as the number of draws to the power `rate`.
    """
    ends = region(groups.ravel())
    errors = _errors(np.array([region(group) for group in groups]), rate)
    return [
        Row(f"{quantity}_{name}", setting, end, float(error), SOURCE)
        for name, end, error in zip(("low", "high"), ends, errors, strict=True)
    ]


def _errors(of_groups: np.ndarray, rate: float) -> np.ndarray:
    """Return the standard errors of what all groups tell, from each one's own (group, ends)."""
    number = len(of_groups)
    of_the_mean = of_groups.std(axis=0, ddof=1) / np.sqrt(number)
    return of_the_mean * number ** (QUANTILE_RATE - rate)


def in_groups(values: np.ndarray) -> np.ndarray:
    """Cut independent draws into groups, (group, draw)."""
    size = len(values) // NUM_GROUPS
    return values[: NUM_GROUPS * size].reshape(NUM_GROUPS, size)


def gradient_descent_rows(thetas: Mapping[str, np.ndarray], normal: str) -> list[Row]:
    """Return the regions of figures 1a and 1b from theta_4 of each prior's solutions.

    Figure 1a is about the prior `normal`. Of "both priors", the mode's region is where either has
    its own, and the low mass is where both have little.
    """
    rows = []
    groups = {prior: in_groups(values) for prior, values in thetas.items()}
    both = np.stack(list(groups.values()), axis=1)  # (group, prior, draw)
    start = "gradient descent, Figure 1b, theta_4"
    for side in ("negative", "positive"):
        mass, mode = on_side(side, central_region), on_side(side, shortest_region)
        for prior, values in groups.items():
            rows += region_rows("mass_region", f"{start}, {prior}, {side} side", mass, values)
        crowded = f"gradient descent, Figure 1a, theta_4, {side} side"
        rows += region_rows("crowded_region", crowded, mass, groups[normal])
        setting = f"{start}, {normal}, {side} side"
        rows += region_rows("mode_region", setting, mode, groups[normal], SHORTEST_RATE)
        setting = f"{start}, both priors, {side} side"
        rows += _rows_of_both("mode_region", setting, mode, both, True, SHORTEST_RATE)
    setting = f"{start}, both priors"
    return rows + _rows_of_both(
        "low_mass_region", setting, between_sides, both, False, QUANTILE_RATE
    )


def _rows_of_both(quantity, setting, region, both, union, rate):
    outer, inner = (min, max) if union else (max, min)

    def of_both(priors):
        ends = [region(values) for values in priors]
        return outer(low for low, _ in ends), inner(high for _, high in ends)

    whole = of_both(np.moveaxis(both, 1, 0).reshape(both.shape[1], -1))
    errors = _errors(np.array([of_both(group) for group in both]), rate)
    return [
        Row(f"{quantity}_{name}", setting, end, float(error), SOURCE)
        for name, end, error in zip(("low", "high"), whole, errors, strict=True)
    ]


def chain_rows(theta: np.ndarray, setting: str) -> list[Row]:
    """Return the regions of figure 1c from theta_4 of chains (chain, draw)."""
    start = f"{setting}, Figure 1c, theta_4"
    rows = region_rows("little_explored_region", start, between_sides, theta)
    for side in ("negative", "positive"):
        mass = on_side(side, central_region)
        rows += region_rows("explored_region", f"{start}, {side} side", mass, theta)
    return rows
