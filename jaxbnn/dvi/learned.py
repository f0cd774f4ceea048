"""What a likelihood learns beside the network, under a Gaussian q: moments and draws, by name."""

from collections.abc import Mapping

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, PRNGKeyArray

from jaxbnn.numerics import check_finite, is_concrete, standard_normal
from jaxbnn.numerics.tails import as_floats
from jaxbnn.targets import Likelihood
from jaxbnn.targets.likelihoods import check_learned

# Mean and variance under q of a parameter that the likelihood learns; and these by its name.
Noise = tuple[ArrayLike, ArrayLike]
Learned = Mapping[str, Noise]


def learned_moments(likelihood: Likelihood, noise: Noise | Learned | None) -> Learned:
    """Return the moments that were given by name; raise unless they are of what is learnt.

    Examples
    --------
    >>> from jaxbnn.targets import NegativeBinomial
    >>> list(learned_moments(NegativeBinomial(), (0.0, 0.1)))
    ['log_concentration']
    """
    if noise is None:
        return {}
    names = likelihood.learned
    if not isinstance(noise, Mapping):
        if len(names) != 1 or not isinstance(noise, tuple | list) or len(noise) != 2:
            raise ValueError(_wanted(likelihood))
        noise = {names[0]: (noise[0], noise[1])}
    if set(noise) != set(names):
        raise ValueError(_wanted(likelihood))
    for name, (mean, variance) in noise.items():
        check_finite(f"the mean of {name}", mean, "give a number, or one a column")
        check_finite(f"the variance of {name}", variance, "give a number, or one a column")
        if np.shape(mean) != np.shape(variance):
            raise ValueError(
                f"mean and variance of {name} must have one shape, but have {np.shape(mean)} and "
                f"{np.shape(variance)}; give as many of both."
            )
        if is_concrete(variance) and np.any(np.asarray(variance) < 0):
            raise ValueError(
                f"the variance of {name} must not be negative, but is {variance}; give q's, which "
                "is not its logarithm."
            )
    return noise


def _wanted(likelihood: Likelihood) -> str:
    """Return the sentence on noise that a likelihood does not take."""
    cls, names = type(likelihood).__name__, likelihood.learned
    if not names:
        return f"{cls} learns no noise, but noise was given; leave it out."
    own = ", ".join(f'"{name}": (mean, variance)' for name in names)
    pair = "(mean, variance), or " if len(names) == 1 else ""
    return f"noise of {cls} must be {pair}{{{own}}}; give it in that form."


def moments_given(likelihood: Likelihood, learned: Learned, columns: tuple[int, ...]) -> Learned:
    """Return the moments of all that a likelihood learns; raise if missing, or of other shapes."""
    for name in likelihood.learned:
        if name not in learned:
            raise ValueError(
                f"{type(likelihood).__name__} needs the mean and the variance of {name}; give "
                "noise."
            )
    check_learned(likelihood, {name: jnp.shape(m) for name, (m, _) in learned.items()}, columns)
    return {name: learned[name] for name in likelihood.learned}


def draw_learned(rng_key: PRNGKeyArray, learned: Learned, count: int) -> dict[str, Array]:
    """Return draws of a likelihood's own parameters from q, by name."""
    keys = [rng_key] if len(learned) == 1 else jax.random.split(rng_key, max(len(learned), 1))
    drawn = {}
    for (name, moments), key in zip(learned.items(), keys, strict=False):
        mean, variance = as_floats(*moments)
        noise = standard_normal(key, (count, *mean.shape), mean.dtype)
        drawn[name] = mean + jnp.sqrt(variance) * noise
    return drawn
