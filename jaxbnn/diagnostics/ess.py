"""Effective sample size: the number of independent draws that would do as well.

`ess_geyer` and `ess_tfp` judge each chain by itself, (chains, ...), and cannot see that chains
disagree; `ess_bulk` and `ess_tail` pool the chains, (...), and lose draws where they disagree
(erratum D7). To compare, multiply the mean of a per-chain ESS by the number of chains.
"""

import math

import jax
import jax.numpy as jnp
from jax.lax import cummin
from jaxtyping import Array, ArrayLike, Float

from jaxbnn.diagnostics.autocovariance import autocorrelations, mean_autocovariance
from jaxbnn.diagnostics.draws import (
    chain_moments,
    check_draws,
    per_coordinate,
    split_chains,
    standardise,
)
from jaxbnn.diagnostics.ranks import normal_scores, quantile, sorted_draws
from jaxbnn.numerics import check_fraction


def ess_geyer(draws: ArrayLike) -> Float[Array, "chain ..."]:
    """ESS of each chain by Geyer's (1992) initial monotone sequence.

    Papamarkou et al., (3.8), with the asymptotic variance as erratum D7 reads it: with
    gamma_k = (1/v) sum_i (x_i - xbar)(x_{i+k} - xbar) and G_m = gamma_2m + gamma_{2m+1},

        S = v * [sum_i (x_i - xbar)^2 / (v-1)] / (-gamma_0 + 2 sum_{m<M} min(G_0, ..., G_m)),

    M the first m with G_m <= 0, and at least 1. Antithetic chains give S > v.

    Parameters
    ----------
    draws
        Array (chain, draw, ...), at least four draws per chain.

    Returns
    -------
    Array (chain, ...). NaN for a constant chain; infinite where the estimated asymptotic
    variance is not positive (a chain that alternates; about every second one of 1,000 draws of an
    autoregression of -0.9).

    Raises
    ------
    ValueError
        Fewer than four draws, or no chain axis.

    Examples
    --------
    >>> import jax
    >>> draws = jax.random.normal(jax.random.key(0), (2, 10_000))
    >>> ess = ess_geyer(draws)
    >>> ess.shape, bool(((ess > 9_000) & (ess < 11_000)).all())
    ((2,), True)
    """
    return per_coordinate(_ess_geyer, check_draws("ess_geyer", draws, min_draws=4))


def ess_tfp(draws: ArrayLike) -> Float[Array, "chain ..."]:
    """ESS of each chain from its autocorrelations up to the first negative one.

    Pezzetti et al., section 4.2, the rule of TensorFlow Probability: with R_i normalised by
    N - i terms, so that (1 - i/N) R_i is the autocorrelation normalised by N,

        ESS = N / (1 + 2 sum_i (1 - i/N) R_i),   i from 1 to before the first R_i < 0.

    It cannot exceed N, whatever the chain (erratum B9): 1e5 for an antithetic chain that is
    worth 3e5.

    Parameters
    ----------
    draws
        Array (chain, draw, ...), at least four draws per chain.

    Returns
    -------
    Array (chain, ...). NaN for a constant chain.

    Raises
    ------
    ValueError
        Fewer than four draws, or no chain axis.

    Examples
    --------
    >>> import jax
    >>> draws = jax.random.normal(jax.random.key(0), (2, 10_000))
    >>> bool((ess_tfp(draws) <= 10_000).all())
    True
    """
    return per_coordinate(_ess_tfp, check_draws("ess_tfp", draws, min_draws=4))


def ess_bulk(draws: ArrayLike) -> Float[Array, "..."]:
    """Bulk ESS over all chains: of the rank-normalised draws of split chains.

    Vehtari et al. (2021), sections 3.1 and 4.3: rho_t = 1 - (W - mean of s_m^2 rho_mt)/sigma_+^2,
    summed by Geyer's initial monotone sequence; ESS at most n log10(n) for n draws in all.

    Parameters
    ----------
    draws
        Array (chain, draw, ...), at least four draws per chain. One chain suffices.

    Returns
    -------
    Array of the trailing shape. NaN where all draws are equal; the number of chains, about,
    where each is frozen at a value of its own.

    Raises
    ------
    ValueError
        Fewer than four draws, or no chain axis.

    Examples
    --------
    >>> import jax
    >>> draws = jax.random.cauchy(jax.random.key(0), (4, 1000, 3))
    >>> ess = ess_bulk(draws)
    >>> ess.shape, bool((ess > 3_000).all())
    ((3,), True)
    """
    return per_coordinate(_ess_bulk, check_draws("ess_bulk", draws, min_draws=4))


def ess_tail(draws: ArrayLike, probability: float = 0.9) -> Float[Array, "..."]:
    """Tail ESS over all chains: the smaller of the ESS of the two tails' indicators.

    Vehtari et al. (2021), section 4.3: the indicators of draws at or below the lower quantile,
    and at or above the upper one. An indicator that is the same for all draws (more than 95 % of
    them are equal) says nothing about its tail and is left out.

    Parameters
    ----------
    draws
        Array (chain, draw, ...), at least four draws per chain. One chain suffices.
    probability
        Of the central interval; 0.9 puts the quantiles at 5 % and 95 %.

    Returns
    -------
    Array of the trailing shape. NaN where all draws are equal.

    Raises
    ------
    ValueError
        Fewer than four draws, no chain axis, or a probability outside (0, 1).

    Examples
    --------
    >>> import jax
    >>> draws = jax.random.normal(jax.random.key(0), (4, 1000))
    >>> bool(ess_tail(draws) > 2_000)
    True
    """
    checked = check_draws("ess_tail", draws, min_draws=4)
    check_fraction("probability", probability)
    return per_coordinate(_ess_tail, checked, float(probability))


def _ess_geyer(x):
    n = x.shape[1]
    rho = autocorrelations(x)
    pairs = _pairs(rho)
    alive = jnp.cumprod(pairs > 0, axis=1, dtype=bool).at[:, 0].set(True)
    total = jnp.sum(jnp.where(alive, cummin(pairs, axis=1), 0), axis=1)
    variance = 2 * total - 1
    # 0 / 0 autocorrelations of a constant chain compare false everywhere, so they are marked here.
    size = jnp.where(variance > 0, n * (n / (n - 1)) / variance, jnp.inf)
    return jnp.where(jnp.isnan(rho[:, 0]), jnp.nan, size)


def _ess_tfp(x):
    n = x.shape[1]
    rho = autocorrelations(x)
    alive = jnp.cumprod(rho >= 0, axis=1, dtype=bool)
    return jnp.where(
        jnp.isnan(rho[:, 0]), jnp.nan, n / (2 * jnp.sum(jnp.where(alive, rho, 0), axis=1) - 1)
    )


def ess_of(x: Float[Array, "chain draw"]) -> Float[Array, ""]:
    """ESS of the mean of all draws, between-chain variance included; chains are taken as they are.

    Vehtari et al. (2021), equations 10 to 13, with the truncation of Stan and ArviZ: all pairs
    rho_2k + rho_{2k+1} before the first that is not positive, made monotone, then rho_2K of
    that pair once, if it is positive.
    """
    chains, n = x.shape
    mean, variance, centred = chain_moments(standardise(x))
    autocovariance = mean_autocovariance(centred)
    total_variance = autocovariance[0]
    if chains > 1:
        total_variance = total_variance + jnp.var(mean, ddof=1)
    rho = (1 - (jnp.mean(variance) - autocovariance) / total_variance).at[0].set(1)
    pairs = _pairs(rho[None])[0]
    last = max(0, (n - 3) // 2)
    pairs, even = pairs[: last + 1], rho[0::2][: last + 1]
    alive = jnp.cumprod(pairs > 0, dtype=bool)
    end = jnp.minimum(jnp.sum(alive), last)
    kept = jnp.arange(last + 1) < end
    rest = jnp.where((pairs[end] >= 0) | (even[end] > 0), even[end], 0)
    tau = 2 * jnp.sum(jnp.where(kept, cummin(pairs), 0)) - 1 + rest
    size = chains * n
    tau = jnp.maximum(tau, 1 / math.log10(size))
    return jnp.where(total_variance > 0, size / tau, jnp.nan)


def tail_indicator(
    x: Float[Array, "chain draw"], ordered: Float[Array, " n"], probability: float
) -> Float[Array, "half_chain half_draw"]:
    """Mark with ones the draws beyond a quantile, in the halves of the chains."""
    at = quantile(ordered, probability)
    # Towards the nearer end: with many draws equal to the largest, x <= at would hold for all.
    beyond = x <= at if probability <= 0.5 else x >= at
    return split_chains(beyond.astype(x.dtype))


def _ess_bulk(x):
    return ess_of(normal_scores(split_chains(x)))


def _ess_tail(x, probability):
    ordered = sorted_draws(x)
    ends = [(1 - probability) / 2, (1 + probability) / 2]
    both = jnp.stack([tail_indicator(x, ordered, end) for end in ends])
    # The ESS of an indicator that is constant is NaN, and then the other's is taken.
    return jnp.fmin(*jax.vmap(ess_of)(both))


def _pairs(rho: Float[Array, "chain lag"]) -> Float[Array, "chain pair"]:
    """Add neighbours, rho_2k + rho_{2k+1}."""
    even = rho.shape[1] // 2 * 2
    return rho[:, :even:2] + rho[:, 1:even:2]
