"""The way in and then the law: unadjusted chains until they have settled, then an exact kernel.

Unadjusted microcanonical chains come from an optimised start to where the posterior's mass is with
an eighth of the gradients that HMC needs, and then draw from a law that is not quite the
posterior's. An exact kernel that starts there needs no long warm-up, and no metric of its own.
"""

import math
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal, NamedTuple

import blackjax
import jax
import jax.numpy as jnp
import numpy as np
from blackjax.base import SamplingAlgorithm
from blackjax.mcmc.metrics import default_metric
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, PyTree
from scipy.special import stdtr

from jaxbnn.diagnostics import stationarity_time
from jaxbnn.ensembles.energy_error import energy_errors
from jaxbnn.ensembles.microcanonical import (
    adjusted_microcanonical,
    microcanonical,
    microcanonical_parameters,
    num_integration_steps,
)
from jaxbnn.ensembles.microcanonical_adaptation import (
    SHORTEST_WARMUP,
    microcanonical_adaptation,
)
from jaxbnn.kernels import jittered
from jaxbnn.numerics import check_count
from jaxbnn.numerics.arguments import a_or_an, check_key
from jaxbnn.sampling import Draws, dual_averaging, sample
from jaxbnn.targets import Posterior

# Records of the log density that each part of the way in leaves; half of all are judged.
_RECORDS = 200
# Settled chains are taken for drifting ones in this share of looks, and go on for nothing.
_FALSE_ALARM = 0.05
# The exact step size is found from this part of the unadjusted one.
_EXACT_SHARE = 0.4
_TARGETS = {"adjusted_microcanonical": 0.9, "hmc": 0.8}


class WayIn(NamedTuple):
    """What happened before the kept draws.

    Attributes
    ----------
    num_steps
        Unadjusted steps of each chain, tuning included; a step is two gradients.
    energy_error
        (part, chain): mean of Delta E^2 / d in each part after the tuning; no units.
    num_blow_ups
        (chain,): steps that blew up, tuning included.
    step_size, decoherence_length
        (chain,): as tuned.
    steps, log_density
        (record,) and (chain, record): the log density on the way, after the tuning.
    is_settled
        (chain,): whether the chain's log density was stationary at the end.
    """

    num_steps: int
    energy_error: Float[np.ndarray, "part chain"]
    num_blow_ups: Int[np.ndarray, " chain"]
    step_size: Float[np.ndarray, " chain"]
    decoherence_length: Float[np.ndarray, " chain"]
    steps: Int[np.ndarray, " record"]
    log_density: Float[np.ndarray, "chain record"]
    is_settled: Bool[np.ndarray, " chain"]


class EnsembleDraws(NamedTuple):
    """What `sample_ensemble` returns.

    Attributes
    ----------
    draws
        Those of the exact kernel, as `sample` returns them.
    way_in
        What happened before.
    warnings
        Sentences: what did not go as it should.
    """

    draws: Draws
    way_in: WayIn
    warnings: tuple[str, ...]


def sample_ensemble(
    key: PRNGKeyArray,
    posterior: Posterior,
    positions: PyTree,
    num_samples: int,
    *,
    kernel: Literal["adjusted_microcanonical", "hmc"] = "adjusted_microcanonical",
    num_tuning: int = 2000,
    most_steps: int = 50_000,
    energy_error: float = 0.1,
    start_energy_error: float = 0.5,
    num_warmup: int = 200,
    trajectory_steps: int = 50,
    thinning: int = 1,
    checkpoint: str | os.PathLike | None = None,
    progress: bool | Callable = True,
) -> EnsembleDraws:
    """Sample a network's posterior from several starts: unadjusted chains in, then an exact kernel.

    Three phases, each of all chains at once. Tuning: `num_tuning` steps of `microcanonical`, whose
    energy error falls to `energy_error`. The way in: as many steps again and again, always as many
    as all before, until every chain's log density is stationary (`stationarity_time` of its last
    half) and the chains no longer drift together, or `most_steps` are done. The law: `num_warmup`
    steps in which dual averaging tunes the exact kernel's step size, with the metric of the way in,
    then the kept draws.

    Parameters
    ----------
    key
        The run's key.
    posterior
        The posterior.
    positions
        The starts, leaves (chain, ...): trained networks, `optimised_starts` say.
    num_samples
        Draws kept of each chain.
    kernel
        The exact kernel: "adjusted_microcanonical", or "hmc" with a random step size.
    num_tuning
        Steps of the tuning, at least 100.
    most_steps
        Steps of the way in, at most; chains that have not settled by then are told of.
    energy_error, start_energy_error
        As in `microcanonical_adaptation`.
    num_warmup
        Steps of the exact kernel before the first kept draw.
    trajectory_steps
        Integration steps of a trajectory of the exact kernel, about; each is two gradients of the
        adjusted microcanonical kernel, and one of HMC.
    thinning
        Trajectories from one kept draw to the next.
    checkpoint
        A folder, in which each phase has one of its own: a call with the same arguments goes on
        where the run was stopped.
    progress
        As in `sample`.

    Returns
    -------
    The draws, and what happened on the way in.

    Raises
    ------
    ValueError
        As `sample`; a position of one number; a chain whose energy blows up throughout.
    TypeError
        No key, or no `Posterior`.
    KeyboardInterrupt
        Ctrl-C before the first kept draw; later it ends the run with the draws made so far.

    Notes
    -----
    The exact kernels leave the posterior invariant; that chains settled says nothing of modes that
    none of them saw. Optimised starts with unadjusted microcanonical chains: Sommer et al. (2025).

    Examples
    --------
    >>> import jaxbnn
    >>> network = jaxbnn.mlp((1, 3, 1))
    >>> x = jnp.linspace(-1, 1, 20)[:, None]
    >>> prior = jaxbnn.normal_prior(network)
    >>> posterior = jaxbnn.Posterior(network, prior, jaxbnn.Gaussian(0.3), x, x**2)
    >>> starts = posterior.sample_prior(jax.random.key(0), (4,))
    >>> found = sample_ensemble(
    ...     jax.random.key(1), posterior, starts, 50, num_tuning=500, trajectory_steps=10,
    ...     progress=False,
    ... )
    >>> found.draws.positions[0]["w"].shape
    (4, 50, 1, 3)
    """
    _check_what(key, posterior, kernel)
    check_count("num_tuning", num_tuning, SHORTEST_WARMUP)
    check_count("most_steps", most_steps)
    check_count("num_warmup", num_warmup)
    check_count("trajectory_steps", trajectory_steps)
    folder = None if checkpoint is None else Path(checkpoint)
    key_in, key_exact = jax.random.split(key)

    def run(key, phase, *arguments, **options):
        path = None if folder is None else folder / phase
        return sample(
            key, *arguments, data=posterior, checkpoint=path, progress=progress, **options
        )

    state, way_in = _go_in(
        key_in, run, positions, num_tuning, most_steps, energy_error, start_energy_error
    )
    draws = run(
        key_exact,
        "law",
        _EXACT[kernel],
        state.position,
        num_samples,
        parameters=_exact_parameters(way_in, state.position, trajectory_steps),
        num_warmup=num_warmup,
        thinning=thinning,
        adapt=dual_averaging(_TARGETS[kernel], is_pooled=False),
    )
    return EnsembleDraws(draws, way_in.told, _warnings(way_in.told, draws))


def _check_what(key: Any, posterior: Any, kernel: Any) -> None:
    check_key("key", key)
    if not isinstance(posterior, Posterior):
        raise TypeError(
            f"posterior must be a Posterior, but is {a_or_an(posterior)}; write "
            "Posterior(network, prior, likelihood, x, y)."
        )
    if not isinstance(kernel, str) or kernel not in _TARGETS:
        raise ValueError(f"kernel must be one of {list(_TARGETS)}, but is {kernel!r:.80}.")


class _Arrived(NamedTuple):
    """Where the way in ended, and how."""

    told: WayIn
    inverse_mass_matrix: Array


def _collect(state: Any, info: Any) -> Array:
    return state.logdensity


def _go_in(key, run, positions, num_tuning, most_steps, energy_error, start_energy_error):
    """Tune, and go on until the chains have settled; returns their states and what happened."""
    keys = jax.random.split(key)
    adapt = microcanonical_adaptation(
        num_tuning, energy_error=energy_error, start_energy_error=start_energy_error
    )
    tuned = run(
        keys[0],
        "tuning",
        microcanonical,
        positions,
        1,
        parameters=microcanonical_parameters(positions),
        num_warmup=num_tuning,
        collect=_collect,
        adapt=adapt,
    )
    _stop_if_interrupted(tuned)
    check_tuned(tuned.parameters, num_tuning)
    state, done, part = tuned.final_state, 0, 0
    parts: list[Draws] = []
    is_settled = np.zeros(len(tuned.parameters["step_size"]), bool)
    while done < most_steps and not is_settled.all():
        # Always as many steps as before: the half that is judged was made after the last look.
        length = min(max(done, num_tuning), most_steps - done)
        thinning = max(1, length // _RECORDS)
        drawn = run(
            jax.random.fold_in(keys[1], part),
            f"way_in_{part}",
            microcanonical,
            state.position,
            length // thinning,
            parameters=tuned.parameters,
            thinning=thinning,
            collect=_collect,
            reduce={"energy": energy_errors()},
        )
        _stop_if_interrupted(drawn)
        parts.append(drawn)
        state, done, part = drawn.final_state, done + length, part + 1
        is_settled = settled(*_series(parts))
    energies = [drawn.reduced["energy"].per_chain for drawn in parts]
    blow_ups = np.sum([tuned.parameters["num_blow_ups"], *(e.num_blow_ups for e in energies)], 0)
    steps, log_density = _series(parts)
    told = WayIn(
        num_steps=num_tuning + done,
        energy_error=np.stack([e.energy_error for e in energies]),
        num_blow_ups=blow_ups.astype(int),
        step_size=np.asarray(tuned.parameters["step_size"]),
        decoherence_length=np.asarray(tuned.parameters["decoherence_length"]),
        steps=steps,
        log_density=log_density,
        is_settled=is_settled,
    )
    return state, _Arrived(told, tuned.parameters["inverse_mass_matrix"])


def settled(
    steps: Int[np.ndarray, " record"], log_density: Float[np.ndarray, "chain record"]
) -> Bool[np.ndarray, " chain"]:
    """Return which chains' log density has settled; none has while all of them still drift.

    A chain's own must be stationary over the last half of its records (`stationarity_time`). And
    from the third quarter of the records to the fourth, the chains must not have moved together, by
    a t test with the chains for sample: that sees a drift in which each chain's own noise hides.
    """
    num_chains, num_records = log_density.shape
    rate = _FALSE_ALARM / num_chains
    found = stationarity_time(log_density, steps, false_alarm_rate=rate)
    quarter = num_records // 4
    third, fourth = log_density[:, -2 * quarter : -quarter], log_density[:, -quarter:]
    change = fourth.mean(axis=1) - third.mean(axis=1)
    is_drift = False
    if num_chains > 1 and change.std() > 0:
        t = change.mean() / (change.std(ddof=1) / math.sqrt(num_chains))
        is_drift = 2 * stdtr(num_chains - 1, -abs(t)) < _FALSE_ALARM
    return np.asarray(found.is_passed) & (not is_drift)


def _series(parts: list[Draws]) -> tuple[np.ndarray, np.ndarray]:
    """Return the steps and the log density of all parts, one after the other."""
    ends = np.cumsum([0] + [part.steps[-1] for part in parts])
    steps = np.concatenate([part.steps + end for part, end in zip(parts, ends, strict=False)])
    return steps, np.concatenate([np.asarray(part.positions) for part in parts], axis=1)


def check_tuned(parameters: dict[str, Array], num_tuning: int) -> None:
    """Raise one clear sentence if a chain's energy blew up in most of its steps."""
    num_blow_ups = np.asarray(parameters["num_blow_ups"])
    if (bad := np.flatnonzero(num_blow_ups > num_tuning / 2)).size:
        chain = int(bad[0])
        raise ValueError(
            f"the energy of chain {chain} blew up in {num_blow_ups[chain]:.0f} of {num_tuning} "
            f"steps, down to a step size of {parameters['step_size'][chain]:.1e}: its log density "
            "or gradient is not finite around its start, or changes too fast for any step size; "
            "start it elsewhere, or see sample(..., debug=True)."
        )


def _stop_if_interrupted(draws: Draws) -> None:
    if draws.interrupted:
        raise KeyboardInterrupt


def _warnings(way_in: WayIn, draws: Draws) -> tuple[str, ...]:
    found = []
    if (moving := np.flatnonzero(~way_in.is_settled)).size:
        found.append(
            f"The log density of {_chains(moving)} had not settled after {way_in.num_steps} "
            "unadjusted steps: kept draws may begin on the way in; give more steps (most_steps)."
        )
    if (blown := np.flatnonzero(way_in.num_blow_ups)).size:
        found.append(
            f"The energy of {_chains(blown)} blew up in "
            f"{', '.join(str(way_in.num_blow_ups[c]) for c in blown)} of {way_in.num_steps} steps "
            "on the way in; each of these shrank the step size while it was tuned."
        )
    if draws.interrupted:
        found.append("The run was stopped by Ctrl-C before all draws were made.")
    return tuple(found)


def _chains(numbers: np.ndarray) -> str:
    return f"chain{'s' * (len(numbers) > 1)} {', '.join(map(str, numbers))}"


def _exact_parameters(way_in: _Arrived, positions: PyTree, trajectory_steps: int) -> dict:
    """Return the exact kernel's parameters: the metric of the way in, a smaller step."""
    step_size = jnp.asarray(_EXACT_SHARE * way_in.told.step_size)
    return {
        "step_size": step_size,
        "decoherence_length": trajectory_steps * step_size,
        "inverse_mass_matrix": way_in.inverse_mass_matrix,
        "reference": positions,
    }


def _hmc(parameters: dict[str, Array], posterior: Any) -> SamplingAlgorithm:
    """HMC with a random step size; a microcanonical step in d dimensions is sqrt(d) of its own."""
    log_density = posterior.log_density_from(parameters["reference"])
    metric = default_metric(parameters["inverse_mass_matrix"])
    size = parameters["inverse_mass_matrix"].shape[0]
    num_steps = num_integration_steps(parameters)
    return jittered(
        lambda eps: blackjax.hmc(log_density, eps / math.sqrt(size), metric, num_steps),
        parameters["step_size"],
        jitter=_JITTER,
    )


_JITTER = 0.3
_EXACT = {"adjusted_microcanonical": adjusted_microcanonical, "hmc": _hmc}
