"""Bad draws and series for the diagnostics."""

import jax.numpy as jnp
import numpy as np

from jaxbnn import diagnostics
from tests.kit.bad_arrays import EXTREME, KINDS
from tests.kit.hostile_slots import Tried, array, count, family, fixed, fraction, number, word

CHAINS, DRAWS, COORDINATES, RUNGS, RECORDS = 4, 12, 2, 3, 60
LADDER = np.linspace(0, 1, RUNGS).astype(np.float32)
STEPS = np.arange(1, RECORDS + 1)
# Documented: NaN for a coordinate that holds one, or whose draws are all equal (numbers below
# the smallest normal float are zero to XLA).
UNDEFINED = ("NaN", "infinity", "zeros", "constant column", "subnormal", "booleans")
DRAWN = array(CHAINS, DRAWS, COORDINATES)
LADDER_DRAWS = array(CHAINS, DRAWS, RUNGS)
RATES = (fraction(0.01), fraction(0.5))
SERIES = (array(RECORDS), fixed(STEPS))


def _rates(function, series: int):
    def call(*values):
        *values, rate, judged = values
        return function(*values, false_alarm_rate=rate, judged_fraction=judged)

    return Tried(call, (*(array(RECORDS),) * series, fixed(STEPS), *RATES))


LADDERS = {
    "thermodynamic_integration": diagnostics.thermodynamic_integration,
    "bennett_acceptance_ratio": diagnostics.bennett_acceptance_ratio,
    "swap_acceptance": diagnostics.swap_acceptance,
}
TRIED = {
    name: Tried(
        function,
        (LADDER_DRAWS, fixed(LADDER)),
        is_checked=name != "swap_acceptance",
        # The error of log likelihoods that do not vary to rounding.
        undefined=("zeros", "tiny (1e-30)", "subnormal", "duplicated columns", "constant column"),
    )
    for name, function in LADDERS.items()
} | {
    "equalise_rejections": Tried(
        diagnostics.equalise_rejections, (fixed(LADDER), fixed(np.full(RUNGS - 1, 0.4)))
    ),
    "by_replica": Tried(
        diagnostics.by_replica,
        (array(DRAWS, RUNGS), fixed(np.tile(np.arange(3), (DRAWS, 1)))),
        False,
    ),
    "merge_time": _rates(diagnostics.merge_time, 2),
    "score_time": _rates(diagnostics.score_time, 1),
    "stationarity_time": _rates(diagnostics.stationarity_time, 1),
    "blockwise_rhat": Tried(
        lambda draws, steps, length, threshold: diagnostics.blockwise_rhat(
            draws, steps, block_length=length, threshold=threshold
        ),
        (array(CHAINS, 120, COORDINATES), fixed(np.arange(120)), count(3), number(1.44)),
        undefined=(*UNDEFINED, "integers"),
    ),
    "covariance_distance": Tried(
        diagnostics.covariance_distance,
        (fixed(np.eye(COORDINATES)), fixed(np.eye(COORDINATES) / 2)),
        # Documented: infinite or NaN where a matrix is not positive definite.
        undefined=tuple(KINDS),
    ),
    "covariance_agreement": Tried(
        lambda draws, reference, blocks: diagnostics.covariance_agreement(
            draws, reference, num_blocks=blocks
        ),
        (array(CHAINS, 40, COORDINATES), array(CHAINS, 40, COORDINATES), count(10)),
        # One draw of mixed scales outweighs all others: singular to rounding.
        # And no type holds the covariances of two sets whose units differ by 1e15.
        undefined=(*UNDEFINED, "duplicated columns", *EXTREME),
    ),
    "kernel_stein_discrepancy": Tried(
        lambda draws, scores, scale, blocks: diagnostics.kernel_stein_discrepancy(
            draws, scores, length_scale=scale, num_blocks=blocks
        ),
        (array(CHAINS, 100, 2), array(CHAINS, 100, 2), number(1.0), count(16)),
        is_checked=False,
    ),
    "kernel_stein_discrepancy in its own unit": Tried(
        diagnostics.kernel_stein_discrepancy,
        (array(CHAINS, 100, 2), array(CHAINS, 100, 2)),
        is_checked=False,
    ),
    "maximum_mean_discrepancy in its own unit": Tried(
        diagnostics.maximum_mean_discrepancy,
        (array(CHAINS, 100, 2), array(CHAINS, 100, 2)),
        is_checked=False,
    ),
    "maximum_mean_discrepancy": Tried(
        lambda draws, others, scale, blocks: diagnostics.maximum_mean_discrepancy(
            draws, others, length_scale=scale, num_blocks=blocks
        ),
        (array(CHAINS, 100, 2), array(CHAINS, 100, 2), number(1.0), count(16)),
        is_checked=False,
    ),
    "evaluate": Tried(
        lambda positions, size: diagnostics.evaluate(
            lambda p: jnp.sum(p), positions, batch_size=size
        ),
        (DRAWN, count(3)),
        is_checked=False,
    ),
    "autocorrelation": Tried(diagnostics.autocorrelation, (DRAWN, count(5)), undefined=UNDEFINED),
    "ess_tail": Tried(diagnostics.ess_tail, (DRAWN, fraction(0.9)), undefined=UNDEFINED),
    "mcse": Tried(diagnostics.mcse, (DRAWN, word("mean")), undefined=UNDEFINED),
    "multivariate_ess": Tried(
        diagnostics.multivariate_ess,
        (DRAWN, count(3)),
        undefined=(*UNDEFINED, "duplicated columns"),
    ),
    "summary": Tried(
        lambda draws, rate, density: diagnostics.summary(
            draws, acceptance_rate=rate, log_density=density
        ),
        (DRAWN, fixed(np.full((CHAINS, DRAWS), 0.5)), array(CHAINS, DRAWS)),
        # A log density of equal columns never changes: its R-hat is infinite, and warnings say so.
        undefined=(*UNDEFINED, "duplicated columns"),
    ),
}

FAMILIES = {"series, ladders and options of diagnostics": family(TRIED)}
