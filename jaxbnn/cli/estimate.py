"""How long a run will take, told before it begins where that is long, and what would be quicker."""

import time

import jax
import numpy as np

from jaxbnn.tabular.devices import devices_for
from jaxbnn.tabular.ensemble import TWO_PARTS, exact_warmup, most_on_the_way
from jaxbnn.tabular.kinds import NEWER
from jaxbnn.tabular.settings import Settings
from jaxbnn.targets import Posterior

# Data times parameters times draws of all chains from which a gradient is timed: minutes, at least.
_LEAST = 2e10
_LONG = 1800.0
# Gradients that a trajectory of NUTS takes; with six doublings 63 at most.
_FEWEST, _MOST = 15, 63
# Of an ensemble: of a trajectory of 50 steps, and of a step.
_A_TRAJECTORY, _A_STEP = 100, 2
_REPEATS = 3


def warning(sampler: str, settings: Settings, posterior: Posterior) -> str | None:
    """Return a sentence on a run of half an hour or more; None of a shorter one, or unknown.

    For nuts and ensemble, from the time that the gradient of the log density takes here and now,
    for all chains of a device.
    """
    num_data, num_features = posterior.x.shape
    draws = settings.warmup + settings.samples
    work = num_data * settings.size(num_features) * draws * settings.chains_of(sampler)
    if sampler not in ("nuts", "ensemble") or work < _LEAST:
        return None
    chains = settings.chains_of(sampler)
    # Devices do not wait for each other.
    seconds = _seconds_of_gradient(posterior, chains // devices_for(chains))
    fewest, most = _FEWEST * draws, _MOST * draws
    if sampler == "ensemble":
        law = _A_TRAJECTORY * (exact_warmup(settings.warmup) + settings.samples)
        ways = (TWO_PARTS, most_on_the_way(num_data))
        fewest, most = (law + _A_STEP * steps * settings.warmup for steps in ways)
    knows_dvi = settings.likelihood not in NEWER and not settings.relevance
    return sentence(fewest * seconds, most * seconds, knows_dvi=knows_dvi)


def sentence(fewest: float, most: float, *, knows_dvi: bool = True) -> str | None:
    """Return the sentence on so many seconds; `knows_dvi`: whether dvi takes what is asked for.

    Examples
    --------
    >>> print(sentence(1000.0, 9000.0))
    this will take between 17 minutes and 2.5 hours; quicker are --sampler dvi, fewer --hidden units, fewer --samples and --warmup, or fewer rows (Ctrl-C keeps what is drawn).
    >>> sentence(10.0, 100.0)
    """  # noqa: E501
    if most < _LONG:
        return None
    dvi = "--sampler dvi, " if knows_dvi else ""
    return (
        f"this will take between {_spoken(fewest)} and {_spoken(most)}; quicker are {dvi}"
        "fewer --hidden units, fewer --samples and --warmup, or fewer rows (Ctrl-C keeps what is "
        "drawn)."
    )


def _spoken(seconds: float) -> str:
    if seconds < 5400:
        return f"{max(seconds / 60, 1):.0f} minutes"
    return f"{seconds / 3600:.2g} hours" if seconds < 345_600 else f"{seconds / 86400:.0f} days"


def _seconds_of_gradient(posterior: Posterior, chains: int) -> float:
    starts = posterior.sample_prior(jax.random.key(0), (chains,))
    gradient = jax.jit(jax.vmap(jax.grad(posterior.log_density)))
    jax.block_until_ready(gradient(starts))
    times = []
    for _ in range(_REPEATS):
        begun = time.perf_counter()
        jax.block_until_ready(gradient(starts))
        times.append(time.perf_counter() - begun)
    return float(np.median(times))
