"""Predictive distributions of the targets, from Gaussian outputs or from draws of outputs."""

from typing import Literal

import jax
import jax.numpy as jnp
import numpyro.distributions as dist
from jaxtyping import Array, Float, PRNGKeyArray

from jaxbnn.dvi.choices import check_choice
from jaxbnn.dvi.expected import (
    Noise,
    checked_outputs,
    deviation_of,
    draw_outputs,
    given,
    pair_moments,
)
from jaxbnn.dvi.gaussian_average import gaussian_average
from jaxbnn.dvi.hermite import gauss_hermite
from jaxbnn.dvi.likelihood_kinds import columns, kind_of
from jaxbnn.dvi.moments import Moments
from jaxbnn.targets import Likelihood
from jaxbnn.targets.likelihoods import check_likelihood

Density = Literal["closed_form", "quadrature", "monte_carlo"]

_GUARD = 1e-3


def predictive(
    likelihood: Likelihood,
    outputs: Moments,
    rank: int = 1,
    *,
    density: Density | None = None,
    noise: Noise | None = None,
    num_nodes: int = 32,
    rng_key: PRNGKeyArray | None = None,
    num_samples: int = 1000,
) -> dist.Distribution:
    """Return the distribution of the targets, p(y) = E[p(y | a)] for Gaussian outputs a.

    Parameters
    ----------
    likelihood
        A regression likelihood, bernoulli, categorical or cross_entropy.
    outputs
        Moments of the outputs.
    rank
        Of y: 1 for targets (n,), 2 for (n, k). Several columns are independent of each other,
        except under "monte_carlo".
    density
        "closed_form": the normal (9), which has the right mean and variance but is not the
        predictive density; for categorical the second order (23), its factors kept above
        1e-3 and renormalised. "quadrature": the density itself, by Gauss-Hermite over l (exact
        without one); not for categorical. "monte_carlo": draws of the outputs, with
        `rng_key` (DVI-MC). By default "quadrature", for classes "closed_form".
    noise
        For learned_gaussian: mean and variance of log_noise_scale.
    num_nodes, num_samples
        Of the quadrature over l, or of the draws.

    Returns
    -------
    A NumPyro distribution of batch shape (n,): `.log_prob(y)` is one score a datum.

    Raises
    ------
    ValueError
        If the density is not there for the likelihood, or Monte Carlo has no key; moments that are
        none; outputs that are not those of targets of this rank.

    Notes
    -----
    Source: Wu et al., (9) and (23); errata C4 (which density is scored), C7.

    Examples
    --------
    >>> from jaxbnn.targets import heteroscedastic_gaussian
    >>> outputs = Moments(jnp.zeros((1, 2)), jnp.ones((1, 2)))
    >>> for density in ("closed_form", "quadrature"):
    ...     p = predictive(heteroscedastic_gaussian(), outputs, density=density)
    ...     print(round(float(p.variance[0]), 4), round(float(p.log_prob(jnp.zeros(1))[0]), 3))
    2.6487 -1.406
    2.6487 -1.291
    """
    check_likelihood(likelihood)
    return predictive_of(
        likelihood,
        checked_outputs(outputs),
        rank,
        density=density,
        noise=noise,
        num_nodes=num_nodes,
        rng_key=rng_key,
        num_samples=num_samples,
    )


def predictive_of(
    likelihood: Likelihood,
    outputs: Moments,
    rank: int,
    *,
    density: Density | None,
    noise: Noise | None,
    num_nodes: int,
    rng_key: PRNGKeyArray | None,
    num_samples: int,
) -> dist.Distribution:
    """Do what `predictive` does, without its checks of the numbers."""
    if density is not None:
        check_choice("density", density, Density)
    kind = kind_of(likelihood)
    _check_rank(kind, outputs.mean.shape[1], rank)
    if density is None:
        density = "closed_form" if kind in ("categorical", "cross_entropy") else "quadrature"
    if density == "monte_carlo":
        if rng_key is None:
            raise ValueError("the Monte Carlo predictive needs rng_key; give one.")
        key_outputs, key_noise = jax.random.split(rng_key)
        draws = draw_outputs(key_outputs, outputs, num_samples)
        scales = None
        if likelihood.learns_noise:
            mean, variance = given(noise)
            normal = jax.random.normal(key_noise, (num_samples,), outputs.mean.dtype)
            scales = jnp.exp(mean + jnp.sqrt(variance) * normal)
        return mixture(likelihood, draws, rank, scales)
    match kind:
        case "gaussian":
            return _known_noise(likelihood, outputs, rank)
        case "learned_gaussian" | "heteroscedastic_gaussian" | "softplus_gaussian":
            return _uncertain_noise(kind, outputs, rank, noise, density, num_nodes)
        case "bernoulli":
            assert outputs.variance is not None
            p = gaussian_average(jax.nn.sigmoid, outputs.mean, outputs.variance)
            return dist.Bernoulli(probs=columns(p, rank)).to_event(rank - 1)
        case "categorical" | "cross_entropy" if density == "closed_form":
            return dist.Categorical(probs=categorical_probabilities(outputs))
    raise ValueError(
        f"there is no predictive by {density} for this likelihood; use density='monte_carlo'"
        + (" or 'closed_form'." if kind in ("categorical", "cross_entropy") else ".")
    )


def mixture(
    likelihood: Likelihood,
    draws: Float[Array, "s n k"],
    rank: int,
    scales: Float[Array, " s"] | None = None,
) -> dist.Distribution:
    """Return the equal mixture of the predictives of draws of the outputs.

    Parameters
    ----------
    likelihood
        As in `predictive`.
    draws
        Outputs of the network, one leading axis of draws.
    rank
        Of y.
    scales
        For learned_gaussian: a noise scale a draw.

    Examples
    --------
    >>> from jaxbnn.targets import gaussian
    >>> p = mixture(gaussian(1.0), jnp.zeros((10, 3, 1)), 1)
    >>> p.batch_shape, round(float(p.variance[0]), 4)
    ((3,), 1.0)
    """
    kind = kind_of(likelihood)
    _check_rank(kind, draws.shape[-1], rank)
    if kind in ("bernoulli", "categorical", "cross_entropy"):
        if kind == "bernoulli":
            p = jnp.mean(jax.nn.sigmoid(draws), axis=0)
            return dist.Bernoulli(probs=columns(p, rank)).to_event(rank - 1)
        return dist.Categorical(probs=jnp.mean(jax.nn.softmax(draws, axis=-1), axis=0))
    if kind == "other":
        raise ValueError(
            "there is no predictive distribution of this likelihood here; mix "
            "posterior.predictive over draws of the weights."
        )

    def component(outputs, scale):
        normal = likelihood.predictive(outputs, rank, scale)
        normal = normal.base_dist if rank > 1 else normal
        loc = jnp.broadcast_to(normal.loc, normal.batch_shape)
        return loc, jnp.broadcast_to(normal.scale, loc.shape)

    if scales is None:
        loc, scale = jax.vmap(lambda a: component(a, likelihood.parameter), out_axes=1)(draws)
    else:
        loc, scale = jax.vmap(component, out_axes=1)(draws, scales)
    weights = jnp.full(loc.shape[:2], 1 / loc.shape[1], loc.dtype)
    parts = dist.Normal(loc, scale).to_event(rank - 1)
    return dist.MixtureSameFamily(dist.Categorical(probs=weights), parts)


def categorical_probabilities(outputs: Moments) -> Float[Array, "n k"]:
    """Return E softmax(a) to second order (23), kept positive.

    The factor on each softmax entry is kept above 1e-3, then the vector is renormalised.

    Examples
    --------
    >>> outputs = Moments(jnp.zeros((1, 2)), jnp.ones((1, 2)))
    >>> categorical_probabilities(outputs)[0].tolist()
    [0.5, 0.5]
    """
    p = jax.nn.softmax(outputs.mean, axis=1)
    assert outputs.variance is not None
    product = jnp.einsum("nij,nj->ni", outputs.matrix(), p, precision="highest")
    quadratic = jnp.sum(p * product, axis=1, keepdims=True)
    spread = jnp.sum(p * outputs.variance, axis=1, keepdims=True)
    factor = 1 + quadratic - product + 0.5 * outputs.variance - 0.5 * spread
    guarded = p * jnp.maximum(factor, _GUARD)
    return guarded / jnp.sum(guarded, axis=1, keepdims=True)


def _known_noise(likelihood: Likelihood, outputs: Moments, rank: int) -> dist.Distribution:
    assert outputs.variance is not None
    mean, variance = columns(outputs.mean, rank), columns(outputs.variance, rank)
    scale = jnp.asarray(likelihood.parameter, mean.dtype)
    scale = scale if scale.ndim == 0 else columns(scale[None], rank)
    return dist.Normal(mean, jnp.sqrt(variance + jnp.square(scale))).to_event(rank - 1)


def _uncertain_noise(kind, outputs, rank, noise, density, num_nodes) -> dist.Distribution:
    if kind == "learned_gaussian":
        mean, variance = given(noise)
        m, var_m = columns(outputs.mean, rank), columns(outputs.variance, rank)
        raw, var_l = jnp.full_like(m, 2 * mean), jnp.full_like(m, 4 * variance)
        cross = jnp.zeros_like(m)
    else:
        m, raw, var_m, var_l, cross = pair_moments(outputs, rank)
    to_variance = jax.nn.softplus if kind == "softplus_gaussian" else jnp.exp
    if density == "closed_form":
        if kind == "softplus_gaussian":
            scale = jnp.sqrt(var_m + gaussian_average(to_variance, raw, var_l))
        else:
            # Far from the data e^l has means beyond float32; its root is within for twice as long.
            scale = jnp.exp(0.5 * jnp.logaddexp(jnp.log(var_m), raw + 0.5 * var_l))
        return dist.Normal(m, scale).to_event(rank - 1)
    nodes, weights = (jnp.asarray(v, m.dtype) for v in gauss_hermite(num_nodes))
    along = nodes.reshape(*(1,) * m.ndim, num_nodes)
    deviation = deviation_of(var_l)
    slope = cross / deviation
    loc = m[..., None] + slope[..., None] * along
    rest = jnp.maximum(var_m - jnp.square(slope), 0)
    scale = jnp.sqrt(rest[..., None] + to_variance(raw[..., None] + deviation[..., None] * along))
    weights = jnp.broadcast_to(weights.reshape(along.shape), loc.shape)
    parts = dist.MixtureSameFamily(dist.Categorical(probs=weights), dist.Normal(loc, scale))
    return parts.to_event(rank - 1)


def _check_rank(kind: str, width: int, rank: int) -> None:
    """Raise if y of this rank cannot have this many outputs."""
    if kind in ("categorical", "cross_entropy", "other"):
        return
    per_column = 2 if kind in ("heteroscedastic_gaussian", "softplus_gaussian") else 1
    columns_of_y, left = divmod(width, per_column)
    if left or rank not in (1, 2) or (rank == 1 and columns_of_y != 1):
        raise ValueError(
            f"{width} outputs are not those of targets of rank {rank}, with {per_column} for each "
            "column; rank is 1 for y of shape (n,), 2 for (n, k)."
        )
