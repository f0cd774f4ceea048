"""Monte Carlo standard errors: how far an estimate from these draws may be off."""

import math

import jax
import jax.numpy as jnp
from jaxtyping import Array, ArrayLike, Float

from jaxbnn.diagnostics.draws import check_draws, per_coordinate, split_chains, standardise
from jaxbnn.diagnostics.ess import ess_of, tail_indicator
from jaxbnn.diagnostics.ranks import sorted_draws
from jaxbnn.numerics import check_fraction
from jaxbnn.numerics.arguments import check_word


def mcse(
    draws: ArrayLike,
    of: str = "mean",
    probability: float | None = None,
) -> Float[Array, "..."]:
    """Monte Carlo standard error of the mean, the standard deviation or a quantile.

    Vehtari et al. (2021), section 4.4, as in ArviZ, with S the ESS of split chains:

    * mean: sd / sqrt(S);
    * sd: sqrt(var((x - xbar)^2) / S) / (2 sd), S of (x - xbar)^2 (the delta method);
    * quantile: half the distance of the order statistics at the 15.9 % and 84.1 % quantiles of
      Beta(S p + 1, S (1-p) + 1), S of the indicator of the draws beyond the quantile.

    Parameters
    ----------
    draws
        Array (chain, draw, ...), at least four draws per chain. One chain suffices.
    of
        "mean", "sd" or "quantile".
    probability
        Which quantile, in (0, 1); needed for "quantile" and only there.

    Returns
    -------
    Array of the trailing shape, in the units of the draws. NaN where all draws are equal and, of
    a quantile, where so many draws are equal that none lies beyond it.

    Raises
    ------
    ValueError
        Fewer than four draws, no chain axis, an unknown `of`, or a probability missing or
        outside (0, 1).

    Examples
    --------
    >>> import jax
    >>> draws = jax.random.normal(jax.random.key(0), (4, 10_000))
    >>> bool(abs(mcse(draws) - 1 / 200) < 5e-4)
    True
    >>> bool(mcse(draws, "quantile", 0.05) > mcse(draws, "quantile", 0.5))
    True
    """
    check_word("of", of, ("mean", "sd", "quantile"))
    checked = check_draws("mcse", draws, min_draws=4)
    if of != "quantile":
        if probability is not None:
            raise ValueError(f"mcse of the {of} takes no probability; leave it out.")
        return per_coordinate(_mcse_mean if of == "mean" else _mcse_sd, checked)
    if probability is None:
        raise ValueError("mcse of a quantile needs its probability; give one between 0 and 1.")
    check_fraction("probability", probability, "; mcse of a quantile needs its probability")
    return per_coordinate(_mcse_quantile, checked, float(probability))


def _mcse_mean(x):
    _, sd = pooled_moments(x)
    return sd / jnp.sqrt(ess_of(split_chains(x)))


def _mcse_sd(x):
    mean, sd = pooled_moments(x)
    squares = ((x - mean) / sd) ** 2
    return mcse_of_sd(squares, sd, ess_of(split_chains(squares)))


def mcse_of_sd(
    squares: Float[Array, "chain draw"], sd: Float[Array, ""], ess: Float[Array, ""]
) -> Float[Array, ""]:
    """Estimate the standard error of `sd` from `squares`, ((x - mean) / sd)^2, and their ESS.

    In units of sd the fourth powers stay in the range of float32.
    """
    biased = math.sqrt((squares.size - 1) / squares.size)
    return sd / (2 * biased) * jnp.std(squares) / jnp.sqrt(ess)


def pooled_moments(x: Float[Array, "chain draw"]) -> tuple[Float[Array, ""], Float[Array, ""]]:
    """Mean and unbiased standard deviation of all draws of one coordinate."""
    first = x[0, 0]
    scale = jnp.max(jnp.abs(x - first))
    unit = standardise(x)
    mean = jnp.mean(unit)
    mean = mean + jnp.mean(unit - mean)
    sd = jnp.sqrt(jnp.sum((unit - mean) ** 2) / (x.size - 1))
    return first + scale * mean, scale * sd


def _mcse_quantile(x, probability):
    ordered = sorted_draws(x)
    size = ess_of(tail_indicator(x, ordered, probability))
    a, b = size * probability + 1, size * (1 - probability) + 1
    last = x.size - 1
    low = jnp.floor(jnp.maximum(_beta_quantile(a, b, 1.0) * x.size - 1, 0))
    high = jnp.ceil(jnp.minimum(_beta_quantile(a, b, -1.0) * x.size - 1, last))
    # The index of a NaN is arbitrary; the value is replaced below.
    between = ordered[high.astype(int)] - ordered[low.astype(int)]
    return jnp.where(jnp.isnan(size), jnp.nan, between / 2)


def _beta_quantile(a, b, y):
    """Beta(a, b) quantile at the normal deviate y of its upper tail, by bisection.

    JAX has no inverse of the incomplete beta function, and in float32 the function itself is
    too coarse for large a and b; there a normal approximation is right to 1 % of the
    distribution's width (Abramowitz and Stegun 26.5.22).
    """
    level = jax.scipy.special.ndtr(jnp.asarray(-y, a.dtype))

    def halve(_, bounds):
        low, high = bounds
        middle = (low + high) / 2
        is_low = jax.scipy.special.betainc(a, b, middle) < level
        return jnp.where(is_low, middle, low), jnp.where(is_low, high, middle)

    low, high = jax.lax.fori_loop(0, 30, halve, (jnp.zeros_like(a), jnp.ones_like(a)))
    u, v = 1 / (2 * a - 1), 1 / (2 * b - 1)
    h = 2 / (u + v)
    curvature = (y**2 - 3) / 6
    w = y * jnp.sqrt(h + curvature) / h - (v - u) * (curvature + 5 / 6 - 2 / (3 * h))
    return jnp.where(jnp.minimum(a, b) < 50, (low + high) / 2, a / (a + b * jnp.exp(2 * w)))
