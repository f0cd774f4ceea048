"""How long a run will take, told before it begins where that is long, and what would be quicker."""

import time

import jax
import numpy as np

from jaxbnn.tabular.settings import Settings
from jaxbnn.targets import Posterior

# Data times parameters times draws of all chains from which a gradient is timed: minutes, at least.
_LEAST = 2e10
_LONG = 1800.0
# Gradients that a trajectory of NUTS takes; with six doublings 63 at most.
_FEWEST, _MOST = 15, 63
_REPEATS = 3


def warning(sampler: str, settings: Settings, posterior: Posterior) -> str | None:
    """Return a sentence on a run of half an hour or more; None of a shorter one, or unknown.

    For nuts, from the time that the gradient of the log density takes here and now, for all chains.
    """
    num_data, num_features = posterior.x.shape
    draws = settings.warmup + settings.samples
    work = num_data * settings.size(num_features) * draws * settings.chains_of(sampler)
    if sampler != "nuts" or work < _LEAST:
        return None
    seconds = _seconds_of_gradient(posterior, settings.chains_of(sampler))
    return sentence(_FEWEST * draws * seconds, _MOST * draws * seconds)


def sentence(fewest: float, most: float) -> str | None:
    """Return the sentence on so many seconds.

    Examples
    --------
    >>> print(sentence(1000.0, 9000.0))
    this will take between 17 minutes and 2.5 hours; quicker are --sampler dvi, fewer --hidden units, fewer --samples and --warmup, or fewer rows (Ctrl-C keeps what is drawn).
    >>> sentence(10.0, 100.0)
    """  # noqa: E501
    if most < _LONG:
        return None
    return (
        f"this will take between {_spoken(fewest)} and {_spoken(most)}; quicker are --sampler dvi, "
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
