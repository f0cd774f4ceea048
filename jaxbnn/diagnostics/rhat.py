"""R-hat: whether the chains agree on where, and how spread out, a quantity is.

With M chains of N draws, s_m^2 and xbar_m the variance and mean of chain m,

    W = mean of s_m^2,   B = N * variance of xbar_m,   sigma_+^2 = (N-1)/N W + B/N,

the family differs in what is compared, on which scale, and after which transformation of the
draws. A threshold belongs to one member: 1.2 on the square root is 1.44 on the variance
scale of `rhat_brooks_gelman` (erratum A12).

All take draws (chain, draw, ...) and return the trailing shape. All need two chains. A
coordinate that holds a NaN or an infinity gives NaN, and so does one whose draws are all equal;
chains that are each frozen, at different values, give infinity.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, ArrayLike, Float

from jaxbnn.diagnostics.draws import (
    chain_moments,
    check_draws,
    per_coordinate,
    split_chains,
    standardise,
)
from jaxbnn.diagnostics.ranks import fold, normal_scores


def rhat_brooks_gelman(draws: ArrayLike) -> Float[Array, "..."]:
    """R-hat of Piccioli et al., on the variance scale: (M+1)/M sigma_+^2/W - (N-1)/(M N).

    Piccioli et al., (16); equal to Vhat/W with Vhat = sigma_+^2 + B/(M N), which is
    Brooks and Gelman's (1998) R without a square root (erratum A12). Never compare it with a
    threshold meant for the root.

    Parameters
    ----------
    draws
        Array (chain, draw, ...), at least two chains of two draws.

    Returns
    -------
    Array of the trailing shape.

    Raises
    ------
    ValueError
        Fewer than two chains or two draws, or no chain axis.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> float(rhat_brooks_gelman(jnp.array([[0.0, 1.0, 2.0], [1.0, 2.0, 3.0]])))  # 2/3 + 1.5 * 0.5
    1.4166...
    """
    return per_coordinate(_brooks_gelman, check_draws("rhat_brooks_gelman", draws, min_chains=2))


def rhat_variance_ratio(draws: ArrayLike) -> Float[Array, "..."]:
    """Return sigma_+^2 / W, the square of the R-hat of Stan before it split chains.

    The statistic printed in Pezzetti et al., section 4.3, with its parentheses restored
    (erratum B9); the paper's threshold of 1.2 belongs to the square root.

    Parameters
    ----------
    draws
        Array (chain, draw, ...), at least two chains of two draws.

    Returns
    -------
    Array of the trailing shape.

    Raises
    ------
    ValueError
        Fewer than two chains or two draws, or no chain axis.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> float(rhat_variance_ratio(jnp.array([[0.0, 1.0, 2.0], [1.0, 2.0, 3.0]])))  # 2/3 + 0.5
    1.1666...
    """
    return per_coordinate(_variance_ratio, check_draws("rhat_variance_ratio", draws, min_chains=2))


def gelman_rubin(draws: ArrayLike) -> Float[Array, "..."]:
    """Gelman and Rubin's (1992) potential scale reduction factor, sqrt(Vhat/W df/(df-2)).

    Vhat = sigma_+^2 + B/(M N); df = 2 Vhat^2 / var(Vhat) by the method of moments:

        var(Vhat) = ((N-1)/N)^2 var(s^2)/M + ((M+1)/(M N))^2 2 B^2/(M-1)
                    + 2 (M+1)(N-1)/(M^2 N) [cov(s^2, xbar^2) - 2 mean(xbar) cov(s^2, xbar)].

    Infinite where df <= 2: Student's t, which the factor stands for, has no variance there.
    This happens with two chains far apart.

    Parameters
    ----------
    draws
        Array (chain, draw, ...), at least two chains of two draws.

    Returns
    -------
    Array of the trailing shape.

    Raises
    ------
    ValueError
        Fewer than two chains or two draws, or no chain axis.

    Examples
    --------
    >>> import jax
    >>> draws = jax.random.normal(jax.random.key(0), (4, 1000, 2))
    >>> (gelman_rubin(draws) < 1.01).tolist()
    [True, True]
    """
    return per_coordinate(_gelman_rubin, check_draws("gelman_rubin", draws, min_chains=2))


def split_rhat(draws: ArrayLike) -> Float[Array, "..."]:
    """Split R-hat: sqrt(sigma_+^2/W) of the half chains (Gelman et al., 2013).

    Halving lets it see a drift that all chains share.

    Parameters
    ----------
    draws
        Array (chain, draw, ...), at least two chains of four draws.

    Returns
    -------
    Array of the trailing shape.

    Raises
    ------
    ValueError
        Fewer than two chains or four draws, or no chain axis.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> drift = jnp.arange(100.0) + jnp.zeros((2, 1))
    >>> bool(rhat_brooks_gelman(drift) < 1), bool(split_rhat(drift) > 1.5)
    (True, True)
    """
    checked = check_draws("split_rhat", draws, min_chains=2, min_draws=4)
    return per_coordinate(_split_rhat, checked)


def folded_split_rhat(draws: ArrayLike) -> Float[Array, "..."]:
    """Split R-hat of the rank-normalised folded draws |x - median|.

    Sees chains that agree in location and differ in scale. This is the statistic that
    section 3.2.1 of Papamarkou et al. reports beside `split_rhat`; the larger of
    it and the rank-normalised split R-hat of the draws themselves is `rank_rhat`. NaN where all
    draws are equally far from the median, as those of two values held equally often.

    Parameters
    ----------
    draws
        Array (chain, draw, ...), at least two chains of four draws.

    Returns
    -------
    Array of the trailing shape.

    Raises
    ------
    ValueError
        Fewer than two chains or four draws, or no chain axis.

    Examples
    --------
    >>> import jax
    >>> import jax.numpy as jnp
    >>> draws = jnp.array([[1.0], [3.0]]) * jax.random.normal(jax.random.key(0), (2, 1000))
    >>> bool(split_rhat(draws) < 1.01), bool(folded_split_rhat(draws) > 1.1)
    (True, True)
    """
    checked = check_draws("folded_split_rhat", draws, min_chains=2, min_draws=4)
    return per_coordinate(_folded_split_rhat, checked)


def rank_rhat(draws: ArrayLike) -> Float[Array, "..."]:
    """Rank-normalised R-hat: the larger of the split R-hats of normal scores, plain and folded.

    Vehtari et al. (2021), section 4: the R-hat of current Stan and ArviZ. Above 1.01 the
    chains should not be pooled. Where the folded one is NaN, the plain one counts alone.

    Parameters
    ----------
    draws
        Array (chain, draw, ...), at least two chains of four draws.

    Returns
    -------
    Array of the trailing shape.

    Raises
    ------
    ValueError
        Fewer than two chains or four draws, or no chain axis.

    Examples
    --------
    >>> import jax
    >>> draws = jax.random.cauchy(jax.random.key(0), (4, 1000, 2))
    >>> (rank_rhat(draws) < 1.02).tolist()
    [True, True]
    """
    checked = check_draws("rank_rhat", draws, min_chains=2, min_draws=4)
    return per_coordinate(_rank_rhat, checked)


def _components(x):
    """Return W, B/N, and what they are made of."""
    mean, variance, _ = chain_moments(standardise(x))
    return jnp.mean(variance), jnp.var(mean, ddof=1), mean, variance


def _variance_ratio(x):
    within, between, _, _ = _components(x)
    n = x.shape[1]
    return (n - 1) / n + between / within


def _brooks_gelman(x):
    chains, n = x.shape
    return (chains + 1) / chains * _variance_ratio(x) - (n - 1) / (chains * n)


def _gelman_rubin(x):
    chains, n = x.shape
    within, between, mean, variance = _components(x)
    pooled = (n - 1) / n * within + (chains + 1) / chains * between
    # cov(s^2, xbar^2) - 2 mean(xbar) cov(s^2, xbar) is cov(s^2, (xbar - mean(xbar))^2), without
    # the cancellation.
    squares = (mean - jnp.mean(mean)) ** 2
    covariance = jnp.sum((variance - within) * (squares - jnp.mean(squares))) / (chains - 1)
    pooled_variance = (
        ((n - 1) / n) ** 2 * jnp.var(variance, ddof=1) / chains
        + ((chains + 1) / chains) ** 2 * 2 / (chains - 1) * between**2
        + 2 * (chains + 1) * (n - 1) / (chains**2 * n) * covariance
    )
    freedom = 2 * pooled**2 / pooled_variance
    # Written without df, which is infinite when all chains have the same variance and mean.
    inflation = 1 / (1 - 2 / freedom)
    factor = jnp.sqrt(pooled / within * jnp.where(freedom > 2, inflation, 1))
    return jnp.where(freedom <= 2, jnp.inf, factor)


def split_rhat_of(halves: Float[Array, "half_chain half_draw"]) -> Float[Array, ""]:
    """sqrt(sigma_+^2/W) of chains that have been split already."""
    return jnp.sqrt(_variance_ratio(halves))


def _split_rhat(x):
    return split_rhat_of(split_chains(x))


def _folded_split_rhat(x):
    return split_rhat_of(normal_scores(fold(split_chains(x))))


def _rank_rhat(x):
    halves = split_chains(x)
    scores = jax.vmap(normal_scores)(jnp.stack([halves, fold(halves)]))
    return larger_rhat(jax.vmap(split_rhat_of)(scores))


def larger_rhat(plain_and_folded: Float[Array, " 2"]) -> Float[Array, ""]:
    """Return the larger of the R-hats of the draws' and the folded draws' scores.

    Where two values are held equally often all draws are equally far from the median, and the
    folded R-hat, 0 / 0, says nothing; where all draws are equal neither does.
    """
    return jnp.fmax(*plain_and_folded)
