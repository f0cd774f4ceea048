"""The way in: unadjusted microcanonical chains, tuned and tuned again, until they have settled.

From where a network is trained to where its posterior's mass is, curvature and scales change: a
step size that was right at the start has four times its energy error further in. So each part of
the way begins with tuning, in the metric that the scores of the part before tell
(`likelihood_metric`), and is as long as all before it; the last also takes what would be left.
"""

import functools
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, PyTree
from scipy.special import stdtr

from jaxbnn.diagnostics import energy_error_in_words, stationarity_time
from jaxbnn.ensembles.energy_error import energy_errors
from jaxbnn.ensembles.likelihood_metric import first_metric, metrics
from jaxbnn.ensembles.metric import DIAGONAL, METRIC
from jaxbnn.ensembles.microcanonical import microcanonical, microcanonical_parameters
from jaxbnn.ensembles.microcanonical_adaptation import SHORTENED, microcanonical_adaptation
from jaxbnn.numerics.outside import reading_anew
from jaxbnn.sampling import Draws

# Records of the log density that each part leaves, unless it is shorter: as many in each, so that
# all parts share one compiled program.
_RECORDS = 200
# Numbers of a part's scores, all chains together: with more, scores are not kept, and the metric
# stays that of the prior.
_MOST_SCORES = 2**25
_WANTED = ("energy_error", "start_energy_error")
# `stationarity_time` judges so many at least, in the last half of them.
_FEWEST = 20
# Of a part, after its tuning.
_SHORTEST = 4 * _FEWEST
# Steps are undone whose energy changes by so many times what is wanted of a typical one, and no
# chain has settled while so large a share of them is.
_LARGEST_CHANGE = 10.0
_MOST_UNDONE_OF_SETTLED = 0.01
# The decoherence length is this part of sqrt(d), the size of a target of unit variances.
_LENGTH_SHARE = 0.5
# Settled chains are taken for drifting ones by this share of tests, and go on for nothing. A look
# is three tests. With few parameters log densities are skewed, and the share is larger: of looks
# at eight chains .15 with 100 parameters or more, .21 with 30, .35 with 10, .8 with 3.
_FALSE_ALARM = 0.05


class Tuning(NamedTuple):
    """How each part of the way is tuned; arguments of `sample_ensemble`."""

    num_tuning: int
    energy_error: float
    start_energy_error: float
    is_preconditioned: bool
    num_directions: int


# The tuning finds its step size by a few blow-ups; a larger part is told of.
MOST_BLOW_UPS = 0.05


class WayIn(NamedTuple):
    """What happened before the kept draws.

    Attributes
    ----------
    num_steps
        Unadjusted steps of each chain, tuning included; a step is two gradients.
    energy_error
        (part, chain): mean of Delta E^2 / d in each part, after its tuning; no units.
    num_blow_ups
        (chain,): steps that blew up and were undone, tuning included.
    parameters
        Those of `microcanonical` as tuned in the last part: leaves (chain, ...).
    steps, log_density
        (record,) and (chain, record): the log density on the way, but for the tuning.
    is_settled
        (chain,): whether the chain's log density was stationary over the last part, the chains had
        not moved together, and few of that part's steps were undone; none after a single part.
    metric
        Of the scores of the last part, in which no step size has been tuned yet: entries of the
        parameters, as `likelihood_metric` returns them. Where no scores were kept, the prior's at
        the end; ones if no metric was wanted.
    is_undone
        (chain,): whether more than a hundredth of the last part's steps were undone.
    """

    num_steps: int
    energy_error: Float[np.ndarray, "part chain"]
    num_blow_ups: Int[np.ndarray, " chain"]
    parameters: dict[str, Array]
    steps: Int[np.ndarray, " record"]
    log_density: Float[np.ndarray, "chain record"]
    is_settled: Bool[np.ndarray, " chain"]
    metric: dict[str, Array]
    is_undone: Bool[np.ndarray, " chain"]

    @property
    def unsettled(self) -> Int[np.ndarray, " some"]:
        """The chains that had not settled at the end."""
        return np.flatnonzero(~self.is_settled)

    @property
    def blown_up(self) -> Int[np.ndarray, " some"]:
        """The chains whose energy blew up in more than MOST_BLOW_UPS of their steps."""
        return np.flatnonzero(self.num_blow_ups > MOST_BLOW_UPS * self.num_steps)


def go_in(
    key: PRNGKeyArray,
    run: Callable[..., Draws],
    keep: Callable[[str, PyTree, Callable[[], dict]], dict],
    posterior: Any,
    positions: PyTree,
    tuning: Tuning,
    most_steps: int,
) -> tuple[PyTree, WayIn]:
    """Go on until the chains have settled; returns their positions, and what happened.

    `run(key, phase, kernel, positions, num_samples, **options)` samples one part of the way to the
    posterior. `keep(name, given, find)` returns what `find()` finds from what is given, or what it
    found in the run that is gone on with: a metric's last digits depend on the number of threads.
    """
    num_tuning = tuning.num_tuning
    adapt = microcanonical_adaptation(
        num_tuning,
        # The metric is found between the parts.
        is_preconditioned=False,
        # On the way in, the time in which a chain forgets where it was says nothing yet.
        is_length_tuned=False,
    )
    parameters = microcanonical_parameters(positions)
    parameters["decoherence_length"] *= _LENGTH_SHARE
    parameters[SHORTENED] = jnp.zeros_like(parameters["step_size"])
    num_chains, size = parameters[DIAGONAL].shape
    lengths = _part_lengths(num_tuning, most_steps)
    num_directions = 0
    if tuning.is_preconditioned:
        if num_chains * _RECORDS * size <= _MOST_SCORES:
            fewest = min(*lengths, _RECORDS)
            num_directions = min(tuning.num_directions, fewest // 2, size // 2)
        with reading_anew([first_metric, metrics], posterior):
            parameters |= first_metric(posterior, positions, num_directions)
    metric = {name: parameters[name] for name in METRIC if name in parameters}
    parts: list[Draws] = []
    ends = [0]
    num_blow_ups = np.zeros(num_chains)
    for length in lengths:
        start = tuning.energy_error if parts else tuning.start_energy_error
        largest = _LARGEST_CHANGE * math.sqrt(max(start, tuning.energy_error) * size)
        # As numbers of the run, so that all parts share one compiled tuning.
        values = (tuning.energy_error, start, largest)
        dtype = parameters["step_size"].dtype
        parameters |= metric | {
            name: jnp.full(num_chains, value, dtype)
            for name, value in zip((*_WANTED, "largest_energy_change"), values, strict=True)
        }
        drawn = run(
            jax.random.fold_in(key, len(parts)),
            f"way_in_{len(parts)}",
            microcanonical,
            positions,
            min(length, _RECORDS),
            parameters=parameters,
            num_warmup=num_tuning,
            thinning=_record_steps(length),
            adapt=adapt,
            collect=_with_scores if num_directions else _log_density,
            reduce={"energy": energy_errors()},
        )
        if drawn.interrupted:
            raise KeyboardInterrupt
        positions = drawn.final_state.position
        parameters = {k: v for k, v in drawn.parameters.items() if k not in _WANTED}
        check_tuned(parameters, num_tuning)
        undone = drawn.reduced["energy"].per_chain.num_blow_ups
        num_blow_ups += parameters["num_blow_ups"] + undone
        if num_directions:
            seen = drawn.positions["places"], drawn.positions["scores"]
            find = functools.partial(metrics, posterior, positions, *seen, num_directions)
            metric = keep(f"metric_{len(parts)}", seen, find)
        elif tuning.is_preconditioned:  # a hierarchical prior's precisions have moved
            metric = first_metric(posterior, positions, 0)
        parts.append(drawn._replace(positions=np.asarray(drawn.positions["log_density"])))
        ends.append(ends[-1] + num_tuning + int(drawn.steps[-1]))
        before = parts[-2].positions if len(parts) > 1 else None
        is_settled = settled(drawn.steps, parts[-1].positions, before)
        is_undone = undone > _MOST_UNDONE_OF_SETTLED * drawn.steps[-1]
        is_settled &= ~is_undone
        # The first part alone, in which the energy error falls, cannot tell.
        is_settled &= len(parts) > 1
        if is_settled.all():
            break
    starts = [end + num_tuning for end in ends[:-1]]
    return positions, WayIn(
        num_steps=ends[-1],
        energy_error=np.stack([part.reduced["energy"].per_chain.energy_error for part in parts]),
        num_blow_ups=num_blow_ups.astype(int),
        parameters=parameters,
        steps=np.concatenate([p.steps + start for p, start in zip(parts, starts, strict=True)]),
        log_density=np.concatenate([part.positions for part in parts], axis=1),
        is_settled=is_settled,
        metric=metric,
        is_undone=np.asarray(is_undone),
    )


def _part_lengths(num_tuning: int, most_steps: int) -> list[int]:
    """Return the steps of each part after its tuning: as many as there are before it.

    What would be left for a last part is too little to be judged by: the one before takes it.
    """
    lengths: list[int] = []
    done = 0
    while not lengths or most_steps - done >= num_tuning + _SHORTEST:
        length, left = max(done, num_tuning), most_steps - done - num_tuning
        enough = 2 * num_tuning if done else num_tuning + _SHORTEST
        lengths.append(max(left if left - length < enough else length, _SHORTEST))
        done += num_tuning + lengths[-1]
    return lengths


def _record_steps(length: int) -> Int[np.ndarray, " record"]:
    """Return the steps after which a part of this length is recorded: evenly, and the last."""
    num_records = min(length, _RECORDS)
    return length * np.arange(1, num_records + 1) // num_records


def _log_density(state: Any, info: Any) -> dict[str, Array]:
    return {"log_density": state.vector.logdensity}


def _with_scores(state: Any, info: Any) -> dict[str, Array]:
    at = state.vector
    return _log_density(state, info) | {"places": at.position, "scores": at.logdensity_grad}


def settled(
    steps: Int[np.ndarray, " record"],
    log_density: Float[np.ndarray, "chain record"],
    before: Float[np.ndarray, "chain earlier"] | None = None,
) -> Bool[np.ndarray, " chain"]:
    """Return which chains' log density has settled; none has while all of them still drift.

    A chain's own must be stationary over the last half of its records (`stationarity_time`). And
    the chains must not have moved together, from the third quarter of the records to the fourth,
    nor from the part `before` to the second half of this one: t tests with the chains for sample,
    which see a drift that each chain's own noise hides, and one that slows down as it goes.
    """
    num_chains, num_records = log_density.shape
    rate = _FALSE_ALARM / num_chains
    found = stationarity_time(log_density, steps, false_alarm_rate=rate)
    half, quarter = num_records // 2, num_records // 4
    fourth = log_density[:, -quarter:].mean(axis=1)
    is_drift = _differ(log_density[:, -2 * quarter : -quarter].mean(axis=1), fourth)
    if before is not None:
        is_drift |= _differ(before.mean(axis=1), log_density[:, -half:].mean(axis=1))
    return np.asarray(found.is_passed) & (not is_drift)


def _differ(one: Float[np.ndarray, " chain"], other: Float[np.ndarray, " chain"]) -> bool:
    change = other - one
    if len(change) < 2 or not change.std() > 0:
        return False
    t = change.mean() / (change.std(ddof=1) / math.sqrt(len(change)))
    return bool(2 * stdtr(len(change) - 1, -abs(t)) < _FALSE_ALARM)


def bias_in_words(draws: Draws) -> tuple[str, ...]:
    """Say what the energy error of unadjusted draws implies, and in how many steps it blew up.

    The draws were made with `energy_errors` as the reducer "energy", which sees all steps.
    """
    infos = draws.infos
    size = draws.parameters[DIAGONAL].shape[1]
    is_whole = np.asarray(infos.nonans) & np.isfinite(infos.energy_change)
    found = energy_error_in_words(infos.energy_change, size, is_whole=is_whole)
    found = found[: int(is_whole.any())]
    num_blow_ups = draws.reduced["energy"].per_chain.num_blow_ups
    if (blown := np.flatnonzero(num_blow_ups)).size:
        found += (
            f"The energy of {chains_in_words(blown)} blew up in "
            f"{', '.join(str(num_blow_ups[c]) for c in blown)} of {draws.steps[-1]} steps, which "
            "were undone, with shorter ones after them: where the posterior is narrow these chains "
            "moved slowly, and stayed for too many draws; tune for a smaller energy error.",
        )
    return found


def chains_in_words(numbers: Int[np.ndarray, " some"]) -> str:
    """Return "chain 3", or "chains 3, 4"."""
    return f"chain{'s' * (len(numbers) > 1)} {', '.join(map(str, numbers))}"


class EnergyBlewUp(ValueError):
    """A chain's energy blew up in most of the steps of its tuning."""


def check_tuned(parameters: dict[str, Array], num_tuning: int) -> None:
    """Raise EnergyBlewUp, one clear sentence, if a chain's energy did so in most of its steps."""
    num_blow_ups = np.asarray(parameters["num_blow_ups"])
    if (bad := np.flatnonzero(num_blow_ups > num_tuning / 2)).size:
        chain = int(bad[0])
        raise EnergyBlewUp(
            f"the energy of chain {chain} blew up in {num_blow_ups[chain]:.0f} of {num_tuning} "
            f"steps, down to a step size of {parameters['step_size'][chain]:.1e}: its log density "
            "or gradient is not finite around its start, or changes too fast for any step size; "
            "start it elsewhere, or see sample(..., debug=True)."
        )
