"""The posterior of a table by an ensemble: trained networks, and exact chains from each of them."""

from typing import Any

import jax
import numpy as np
from jaxtyping import Bool, Int, PRNGKeyArray

from jaxbnn import ensembles
from jaxbnn.ensembles.microcanonical_adaptation import SHORTEST_WARMUP
from jaxbnn.ensembles.way_in import MOST_BLOW_UPS, EnergyBlewUp, WayIn
from jaxbnn.tabular.devices import mesh_for
from jaxbnn.tabular.fitted import Fitted
from jaxbnn.tabular.settings import Settings
from jaxbnn.tabular.trained import trained
from jaxbnn.targets import Posterior

# Unadjusted steps of each tuning, of the way in at most, and of its two parts, which there always
# are, for each draw of the warm-up that is asked for.
_TUNING, _WAY_IN, TWO_PARTS = 4, 100, 20
# With more rows the way in is shorter in proportion, but for two parts, so that all fits take about
# as long; noise, of which such tables have more, is met sooner than where there is little.
_MOST_ROWS = 800
# Of the exact kernel: the least warm-up, in which a step size can be found.
_SHORTEST_LAW = 20
# The part of its rows by which a network stops.
_STOPS_BY = 0.1


def by_ensemble(
    key: PRNGKeyArray, posterior: Posterior, settings: Settings, watch: dict[str, Any]
) -> Fitted:
    """Train networks, and let adjusted microcanonical chains go on from them."""
    key_start, key_run = jax.random.split(key)
    folder, num_networks = watch["checkpoint"], settings.chains_of("ensemble")
    more = {"mesh": mesh_for(num_networks), "progress": watch["progress"]}
    try:
        found = trained(
            key_start,
            posterior,
            num_networks,
            # Of fewer than ten rows, one at least.
            validation=max(_STOPS_BY, 1 / len(posterior.x)),
            checkpoint=None if folder is None else folder / "starts",
            **more,
        )
        run = ensembles.sample_ensemble(
            key_run,
            posterior,
            found.positions,
            settings.samples,
            num_tuning=max(_TUNING * settings.warmup, SHORTEST_WARMUP),
            most_steps=max(most_on_the_way(len(posterior.x)) * settings.warmup, SHORTEST_WARMUP),
            num_warmup=exact_warmup(settings.warmup),
            checkpoint=folder,
            **more,
        )
    except (ensembles.TrainingDiverged, EnergyBlewUp) as error:
        raise ValueError(
            "the ensemble's networks or chains diverged on these rows; take the sampler nuts, or "
            "fewer hidden units."
        ) from error
    notes = ensemble_notes(run.way_in, found.diverged, run.rejecting)
    return Fitted(run.draws.positions, run.draws, notes)


def most_on_the_way(num_data: int) -> int:
    """Return the ensemble's unadjusted steps, at most, for each draw of the warm-up asked for.

    Examples
    --------
    >>> most_on_the_way(500), most_on_the_way(1600), most_on_the_way(10**6)
    (100, 50, 20)
    """
    return max(round(_WAY_IN * min(1.0, _MOST_ROWS / num_data)), TWO_PARTS)


def exact_warmup(warmup: int) -> int:
    """Return the trajectories of the exact kernel before its kept draws.

    Examples
    --------
    >>> exact_warmup(400), exact_warmup(10)
    (50, 20)
    """
    return max(warmup // 8, _SHORTEST_LAW)


def ensemble_notes(
    way_in: WayIn, diverged: Bool[np.ndarray, " chain"], rejecting: Int[np.ndarray, " some"]
) -> list[str]:
    """Say of how many chains training or the way in failed, or a step size was not found."""
    notes, number = [], len(way_in.is_settled)
    if diverged.any():
        notes.append(
            f"The training of {diverged.sum()} of {number} networks diverged: these chains began "
            "where it had been best before."
        )
    if moving := len(way_in.unsettled):
        notes.append(
            f"{moving} of {number} chains had not settled after {way_in.num_steps} steps on the "
            "way in, before the kept draws; a longer warm-up gives them more."
        )
    if blown := len(way_in.blown_up):
        notes.append(
            f"The energy of {blown} of {number} chains blew up in more than {MOST_BLOW_UPS:.0%} "
            "of their steps on the way in, which were undone: they moved slowly where the "
            "posterior is narrow; a longer warm-up tunes them for longer."
        )
    if len(rejecting):
        notes.append(
            f"{len(rejecting)} of {number} chains accepted less than half as many steps as they "
            "were tuned to, and hardly moved; a longer warm-up tunes them for longer."
        )
    return notes
