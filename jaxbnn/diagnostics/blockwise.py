"""R-hat of consecutive blocks of records: how the agreement of chains evolves."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import ArrayLike, Float

from jaxbnn.diagnostics import settling
from jaxbnn.diagnostics.draws import check_draws
from jaxbnn.diagnostics.rhat import rhat_brooks_gelman
from jaxbnn.diagnostics.stationarity import stationarity_time
from jaxbnn.numerics import check_count, check_finite, check_real
from jaxbnn.numerics.checks import check_outside, check_positive_number


class BlockwiseRhat(NamedTuple):
    """What `blockwise_rhat` found.

    Attributes
    ----------
    steps
        Mean step of each block.
    mean
        R-hat of each block, averaged over coordinates; NaN where a coordinate does not vary.
    percentiles
        (percentile, block): of R-hat over coordinates.
    level, level_error
        Mean of `mean` over the judged blocks (geometric), and its standard error.
    lower_bound
        Lower bound of the thermalization time in steps: the end of the last block before
        `mean` was stationary; the length of the run if it is not, or if its level is high.
    is_passed
        Whether `mean` is stationary at the end of the run, at a level below the threshold.
    """

    steps: Float[np.ndarray, " blocks"]
    mean: Float[np.ndarray, " blocks"]
    percentiles: Float[np.ndarray, "percentiles blocks"]
    level: float
    level_error: float
    lower_bound: float
    is_passed: bool


def blockwise_rhat(
    draws: ArrayLike,
    steps: ArrayLike,
    *,
    block_length: int = 50,
    percentiles: Sequence[float | int] = (25.0, 50.0, 75.0, 95.0),
    threshold: float | int = 1.44,
    false_alarm_rate: float = 0.01,
    judged_fraction: float = 0.5,
) -> BlockwiseRhat:
    """R-hat of blocks of consecutive records, and the time it takes to come near 1.

    Piccioli et al., appendix B.3: `rhat_brooks_gelman` (equation 16, a ratio of variances) of every
    `block_length` records of the outputs on test inputs, averaged over the inputs. "Approaches
    1 and becomes stationary" is read as: the cube root of that average R less its least value,
    (n-1)/n for blocks of n, passes `stationarity_time`, and its level is below `threshold`. In
    equilibrium R less (n-1)/n is nearly a multiple of a chi-square, skewed, and its cube root
    nearly normal (Wilson and Hilferty, 1931), as the bands of `stationarity_time` take it for. The
    threshold is on the scale of
    variances, 1.44 for the customary 1.2 on the root (erratum A12). Records of one block are
    correlated, so that R-hat of chains in equilibrium may well be above it; and chains stuck
    together on a plateau pass.

    Parameters
    ----------
    draws
        Array (chain, record, ...), at least two chains; invariant to the network's symmetries.
    steps
        The step of each record, equally spaced.
    block_length
        Records a block; records left over at the end are not used.
    percentiles
        Between 0 and 100.
    threshold
        Highest level that passes.
    false_alarm_rate, judged_fraction
        As in `stationarity_time`.

    Raises
    ------
    ValueError
        Fewer than two chains, blocks of fewer than two records, fewer than 20 judged blocks, or
        steps that do not fit.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> steps = 100 * np.arange(1, 2001)
    >>> apart = np.array([[5.0], [-5.0]]) * np.exp(-steps / 2e4)
    >>> found = blockwise_rhat(apart[..., None] + rng.normal(size=(2, 2000, 30)), steps)
    >>> found.is_passed, found.mean.shape, bool(2e4 < found.lower_bound < 8e4)
    (True, (40,), True)
    """
    check_outside("blockwise_rhat", "it judges numbers on the host; call it outside", draws, steps)
    values = np.asarray(check_draws("blockwise_rhat", draws, min_chains=2))
    chains, length = values.shape[:2]
    _, times = settling.check_series("blockwise_rhat", np.zeros(length), steps)
    check_count("block_length", block_length)
    check_positive_number("threshold", threshold)
    check_real("percentiles", percentiles)
    check_finite("percentiles", np.asarray(percentiles), "give numbers from 0 to 100")
    if not all(0 <= p <= 100 for p in percentiles):
        raise ValueError(f"percentiles must lie between 0 and 100, but are {list(percentiles)}.")
    if not 2 <= block_length <= length:
        raise ValueError(
            f"block_length must be from 2 to the number of records, {length}, but is "
            f"{block_length}; use shorter blocks or record more."
        )
    if not np.allclose(np.diff(times), times[1] - times[0]):
        raise ValueError(
            "blockwise_rhat needs equally spaced records; thin by a number, not by a schedule."
        )
    blocks = length // block_length
    used = values[:, : blocks * block_length].reshape(chains, blocks, block_length, -1)
    ends = times[: blocks * block_length].reshape(blocks, block_length)[:, -1]
    settling.check_rates("blockwise_rhat", false_alarm_rate, judged_fraction)
    first = settling.judged_records(
        "blockwise_rhat", ends, judged_fraction, "blocks", "take a smaller block_length, or record"
    )
    rhat = np.asarray(rhat_brooks_gelman(np.swapaxes(used, 1, 2)), float)
    block_steps = times[: blocks * block_length].reshape(blocks, block_length)
    mean = rhat.mean(axis=1)
    with np.errstate(divide="ignore", invalid="ignore"):
        # Rounding may leave equal means a little below the least value.
        between = np.maximum(mean - (block_length - 1) / block_length, 0)
        found = stationarity_time(
            np.cbrt(between),
            ends,
            false_alarm_rate=false_alarm_rate,
            judged_fraction=judged_fraction,
        )
        judged = settling.level_of(np.log(mean[first:]))
        level = float(np.exp(judged.mean))
    is_passed = bool(found.is_passed and level <= threshold)
    return BlockwiseRhat(
        block_steps.mean(axis=1),
        mean,
        np.percentile(rhat, list(percentiles), axis=1),
        level,
        float(level * judged.error),
        float(found.lower_bound if is_passed else times[-1]),
        is_passed,
    )
