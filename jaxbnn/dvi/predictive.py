"""Predictive distributions of the targets, from Gaussian outputs or from draws of outputs."""

import functools
from collections.abc import Callable
from typing import Literal, get_args

import jax
import jax.numpy as jnp
import numpyro.distributions as dist
from jax.scipy.special import logsumexp
from jaxtyping import Array, Float, PRNGKeyArray

from jaxbnn.dvi.expected import checked_outputs, pair_moments
from jaxbnn.dvi.gaussian_average import SIGMOID_BREAKS, gaussian_average
from jaxbnn.dvi.hermite import gauss_hermite
from jaxbnn.dvi.learned import Learned, Noise, draw_learned, learned_moments, moments_given
from jaxbnn.dvi.moments import GaussianMoments, check_rule, deviation_of
from jaxbnn.dvi.monte_carlo import draw_outputs
from jaxbnn.dvi.noise_likelihoods import FlooredGaussian
from jaxbnn.numerics import check_count
from jaxbnn.numerics.arguments import check_key, check_word
from jaxbnn.targets import (
    Bernoulli,
    Categorical,
    Gaussian,
    HeteroscedasticGaussian,
    LearnedGaussian,
    Likelihood,
    NoiseFromOutputs,
)
from jaxbnn.targets.likelihoods import check_likelihood, lay_out

Density = Literal["closed_form", "quadrature", "monte_carlo"]

_GUARD, _TINY = 1e-3, 1e-30
_TILTED_BREAKS = (-256.0, -128.0, -64.0, -32.0, *SIGMOID_BREAKS, 32.0, 64.0, 128.0, 256.0)


def predictive(
    likelihood: Likelihood,
    outputs: GaussianMoments,
    rank: int = 1,
    *,
    density: Density | None = None,
    noise: Noise | Learned | None = None,
    num_nodes: int = 32,
    rng_key: PRNGKeyArray | None = None,
    num_samples: int = 1000,
) -> dist.Distribution:
    """Return the distribution of the targets, p(y) = E[p(y | a)] for Gaussian outputs a.

    Parameters
    ----------
    likelihood
        A regression likelihood, Bernoulli, Categorical or CrossEntropy.
    outputs
        Moments of the outputs.
    rank
        Of y: 1 for targets (n,), 2 for (n, k). Several columns are independent of each other,
        except under "monte_carlo", where they are so given the draw that they share.
    density
        "closed_form": the normal (9), which has the right mean and variance but is not the
        predictive density; for Categorical the second order (23), its factors kept above
        1e-3 and renormalised. "quadrature": the density itself, by Gauss-Hermite over l (exact
        without one; see the Notes); not for Categorical. "monte_carlo": draws of the outputs, with
        `rng_key` (DVI-MC). By default "quadrature", for classes "closed_form".
    noise
        For LearnedGaussian: mean and variance of log_noise_scale. Of what another likelihood
        learns the same, in a dict by its names.
    num_nodes, num_samples
        Of the quadrature over l, 2 to 300, or of the draws.

    Returns
    -------
    A NumPyro distribution of batch shape (n,): `.log_prob(y)` is one score a datum, of y of this
    rank. Targets (n, 1) need rank=2, or y[:, 0]: NumPyro broadcasts them against (n,) to (n, n).

    Raises
    ------
    ValueError
        If the density is not there for the likelihood, or Monte Carlo has no key; too few draws,
        too few or too many nodes; moments, of the outputs or of the noise, that are not those of a
        Gaussian; noise of a likelihood that does not learn it; outputs that are not those of
        targets of this rank.
    TypeError
        Numbers that are not real, or of draws or nodes that are not whole.

    Notes
    -----
    Source: Wu et al., (9) and (23); errata C4 (which density is scored), C7.

    Of noise variances e^l, with l of variance v, the log densities of "quadrature" are right to
    7e-4 at v = 1, .01 at 4, .03 at 9, .12 at 25 and .6 at 100 with 32 nodes; to 1e-4 at 25 and
    .02 at 100 with 300. (Means with variances of .01 to 1, targets within 30 of them.)

    Examples
    --------
    >>> from jaxbnn.targets import HeteroscedasticGaussian
    >>> outputs = GaussianMoments(jnp.zeros((1, 2)), jnp.ones((1, 2)))
    >>> for density in ("closed_form", "quadrature"):
    ...     p = predictive(HeteroscedasticGaussian(), outputs, density=density)
    ...     print(round(float(p.variance[0]), 4), round(float(p.log_prob(jnp.zeros(1))[0]), 3))
    2.6487 -1.406
    2.6487 -1.291
    """
    if rng_key is not None:
        check_key("rng_key", rng_key)
    check_count("num_samples", num_samples)
    check_likelihood(likelihood)
    outputs = checked_outputs(outputs)
    if density is not None:
        check_word("density", density, get_args(Density))
    _check_rank(likelihood, outputs.mean.shape[1], rank)
    check_rule("gauss_hermite", num_nodes)
    learned = learned_moments(likelihood, noise)
    if density != "monte_carlo":
        return predictive_of(likelihood, outputs, rank, density, learned, num_nodes)
    if rng_key is None:
        raise ValueError("the Monte Carlo predictive needs rng_key; give one.")
    key_outputs, key_learned = jax.random.split(rng_key)
    draws = draw_outputs(key_outputs, outputs, num_samples)
    learned = moments_given(likelihood, learned, columns_of(likelihood, draws, rank))
    own = draw_learned(key_learned, learned, num_samples)
    return mixture(likelihood, draws, rank, own)


@functools.singledispatch
def predictive_of(
    likelihood: Likelihood,
    outputs: GaussianMoments,
    rank: int,
    density: Density | None,
    learned: Learned,
    num_nodes: int,
) -> dist.Distribution:
    """Return the predictive distribution without draws; a class of likelihoods registers its own.

    Parameters
    ----------
    likelihood
        `predictive_of.register(Class)` adds one.
    outputs, rank, num_nodes
        As in `predictive`, checked.
    density
        "closed_form", "quadrature", or None for what suits the likelihood.
    learned
        Mean and variance of the likelihood's own parameters under q, by name.

    Raises
    ------
    ValueError
        No such density of this likelihood.

    Examples
    --------
    >>> one = jnp.ones((1, 1))
    >>> found = predictive_of(Gaussian(1.0), GaussianMoments(one, one), 1, None, {}, 8)
    >>> round(float(found.variance[0]), 4)
    2.0
    """
    raise _no_density(density or "quadrature", "use density='monte_carlo'.")


def _no_density(density: str, advice: str) -> ValueError:
    return ValueError(f"there is no predictive by {density} for this likelihood; {advice}")


def mixture(
    likelihood: Likelihood,
    draws: Float[Array, "s n k"],
    rank: int,
    own: dict[str, Float[Array, "s ..."]] | None = None,
) -> dist.Distribution:
    """Return the equal mixture of the predictives of draws of the outputs.

    Parameters
    ----------
    likelihood
        One whose predictive distribution is normal, Bernoulli or categorical.
    draws
        Outputs of the network, one leading axis of draws.
    rank
        Of y.
    own
        Draws of the parameters that the likelihood learns, by name.

    Raises
    ------
    ValueError
        A predictive distribution of another family.

    Examples
    --------
    >>> from jaxbnn.targets import Gaussian
    >>> p = mixture(Gaussian(1.0), jnp.zeros((10, 3, 1)), 1)
    >>> p.batch_shape, round(float(p.variance[0]), 4)
    ((3,), 1.0)
    """
    _check_rank(likelihood, draws.shape[-1], rank)
    own = {} if own is None else own

    def component(outputs: Array, values: dict) -> dist.Distribution:
        one = likelihood.given(values).predictive(outputs, rank)
        while isinstance(one, dist.Independent):
            one = one.base_dist
        return one

    def over_draws(parameters_of, out_axes: int):
        return jax.vmap(lambda a, v: parameters_of(component(a, v)), out_axes=out_axes)(draws, own)

    family = component(draws[0], {name: values[0] for name, values in own.items()})
    if isinstance(family, dist.BernoulliLogits):
        logits = over_draws(lambda d: d.logits, 0)
        if rank > 1 and logits.shape[-1] > 1:  # draws that labels of several columns share
            parts = dist.Bernoulli(logits=jnp.moveaxis(logits, 0, 1)).to_event(rank - 1)
            return _equal_mixture(parts, logits.dtype)
        # The logarithms of both probabilities: of one next to 1 there is no other in float32.
        yes, no = (logsumexp(jax.nn.log_sigmoid(sign * logits), axis=0) for sign in (1, -1))
        return dist.Bernoulli(logits=yes - no).to_event(rank - 1)
    if isinstance(family, dist.CategoricalLogits):
        each = over_draws(lambda d: jax.nn.log_softmax(d.logits, axis=-1), 0)
        return dist.Categorical(logits=logsumexp(each, axis=0))  # normalised there
    if not isinstance(family, dist.Normal):
        raise ValueError(
            "there is no mixture of predictive distributions of the family "
            f"{type(family).__name__} here; mix posterior.predictive over draws of the weights."
        )
    loc, scale = over_draws(lambda d: jnp.broadcast_arrays(d.loc, d.scale), 1)
    return _equal_mixture(dist.Normal(loc, scale).to_event(rank - 1), loc.dtype)


def _equal_mixture(parts: dist.Distribution, dtype: jnp.dtype) -> dist.MixtureSameFamily:
    """Return the equal mixture over the second axis of parts of batch shape (n, draws)."""
    # Behind the barrier XLA does not sum thousands of rows of constants while it compiles.
    weights = jax.lax.optimization_barrier(
        jnp.full(parts.batch_shape, 1 / parts.batch_shape[1], dtype)
    )
    return dist.MixtureSameFamily(dist.Categorical(probs=weights), parts)


def categorical_log_probabilities(outputs: GaussianMoments) -> Float[Array, "n k"]:
    """Return log E softmax(a) to second order (23), the expectation kept positive.

    The factor on each softmax entry is kept above 1e-3, then the vector is renormalised.

    Examples
    --------
    >>> outputs = GaussianMoments(jnp.zeros((1, 2)), jnp.ones((1, 2)))
    >>> jnp.exp(categorical_log_probabilities(outputs))[0].tolist()
    [0.5, 0.5]
    """
    log_p = jax.nn.log_softmax(outputs.mean, axis=1)  # of few a float32 holds more than e^-88
    p = jnp.exp(log_p)
    assert outputs.variance is not None
    product = jnp.einsum("nij,nj->ni", outputs.matrix(), p, precision="highest")
    quadratic = jnp.sum(p * product, axis=1, keepdims=True)
    spread = jnp.sum(p * outputs.variance, axis=1, keepdims=True)
    factor = 1 + quadratic - product + 0.5 * outputs.variance - 0.5 * spread
    return jax.nn.log_softmax(log_p + jnp.log(jnp.maximum(factor, _GUARD)), axis=1)


@predictive_of.register(Gaussian)
def _known_noise(likelihood, outputs, rank, density, learned, num_nodes) -> dist.Distribution:
    mean, variance = lay_out(outputs.mean, rank), lay_out(outputs.variance, rank)
    scale = jnp.asarray(likelihood.noise_scale, mean.dtype)
    scale = scale if scale.ndim == 0 else lay_out(scale[None], rank)
    return dist.Normal(mean, jnp.sqrt(variance + jnp.square(scale))).to_event(rank - 1)


@predictive_of.register(LearnedGaussian)
def _learned_noise(likelihood, outputs, rank, density, learned, num_nodes) -> dist.Distribution:
    m, var_m = lay_out(outputs.mean, rank), lay_out(outputs.variance, rank)
    mean, variance = moments_given(likelihood, learned, m.shape[1:])["log_noise_scale"]
    pair = m, jnp.full_like(m, 2 * mean), var_m, jnp.full_like(m, 4 * variance), jnp.zeros_like(m)
    if density == "closed_form":
        return _normal_by_exponential(pair, rank)
    return _over_noise(jnp.exp, pair, rank, num_nodes)


@predictive_of.register(HeteroscedasticGaussian)
def _exponential(likelihood, outputs, rank, density, learned, num_nodes) -> dist.Distribution:
    pair = pair_moments(outputs, rank)
    if density == "closed_form":
        return _normal_by_exponential(pair, rank)
    return _over_noise(likelihood.variance, pair, rank, num_nodes)


@predictive_of.register(FlooredGaussian)
def _floored(likelihood, outputs, rank, density, learned, num_nodes) -> dist.Distribution:
    m, raw, var_m, var_l, cross = pair_moments(outputs, rank)
    if density == "closed_form":
        var_m = var_m + jnp.square(jnp.asarray(likelihood.floor, m.dtype))
        return _normal_by_exponential((m, raw, var_m, var_l, cross), rank)
    return _over_noise(likelihood.variance, (m, raw, var_m, var_l, cross), rank, num_nodes)


@predictive_of.register(NoiseFromOutputs)
def _noise_of_outputs(likelihood, outputs, rank, density, learned, num_nodes) -> dist.Distribution:
    pair = pair_moments(outputs, rank)
    if density == "closed_form":
        m, raw, var_m, var_l, _ = pair
        noise = gaussian_average(likelihood.variance, raw, var_l)
        return dist.Normal(m, jnp.sqrt(var_m + noise)).to_event(rank - 1)
    return _over_noise(likelihood.variance, pair, rank, num_nodes)


@predictive_of.register(Bernoulli)
def _two_classes(likelihood, outputs, rank, density, learned, num_nodes) -> dist.Distribution:
    yes, no = (_log_mean_sigmoid(sign * outputs.mean, outputs.variance) for sign in (1, -1))
    return dist.Bernoulli(logits=lay_out(yes - no, rank)).to_event(rank - 1)


def _log_mean_sigmoid(mean: Array, variance: Array) -> Array:
    """Return log E sigmoid(a), a ~ N(mean, variance), of means that no float32 holds too.

    With a factor e^(t a), 0 <= t <= 1, in the Gaussian, which then lies where the average is made:
    e^(t mean + t^2 variance / 2) E[sigmoid(a) e^(-t a)], a ~ N(mean + t variance, variance).
    """
    below = jnp.maximum(-mean, 0)
    t = jax.lax.stop_gradient(jnp.minimum(below / jnp.maximum(variance, _TINY), 1))
    average = gaussian_average(
        lambda a: jnp.exp(jax.nn.log_sigmoid(a) - t[None] * a),
        mean + t * variance,
        variance,
        _TILTED_BREAKS,
    )
    return t * (mean + t * variance / 2) + jnp.log(average)


@predictive_of.register(Categorical)
def _classes(likelihood, outputs, rank, density, learned, num_nodes) -> dist.Distribution:
    if density == "quadrature":
        raise _no_density(density, "use density='monte_carlo' or 'closed_form'.")
    return dist.Categorical(logits=categorical_log_probabilities(outputs))


def _normal_by_exponential(pair: tuple, rank: int) -> dist.Distribution:
    """Return the normal (9), of the right mean and variance, with noise variance e^l."""
    m, raw, var_m, var_l, _ = pair
    # Far from the data e^l has means beyond float32; its root is within for twice as long.
    scale = jnp.exp(0.5 * jnp.logaddexp(jnp.log(var_m), raw + 0.5 * var_l))
    return dist.Normal(m, scale).to_event(rank - 1)


def _over_noise(to_variance: Callable, pair: tuple, rank: int, num_nodes: int) -> dist.Distribution:
    """Return the density of a target with noise variance to_variance(l), by a rule over l."""
    m, raw, var_m, var_l, cross = pair
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


def columns_of(likelihood: Likelihood, outputs: Array, rank: int) -> tuple[int, ...]:
    """Return the shape of a row of y, of this rank, for outputs (..., k)."""
    return () if rank == 1 else (outputs.shape[-1] // (likelihood.outputs_per_column or 1),)


def _check_rank(likelihood: Likelihood, width: int, rank: int) -> None:
    """Raise if y of this rank cannot have this many outputs."""
    per_column = likelihood.outputs_per_column
    check_count("rank", rank)
    if isinstance(likelihood, Categorical) and rank != 1:
        raise ValueError(f"labels of classes have shape (n,), of rank 1, but rank is {rank}.")
    if per_column is None:
        return
    columns, left = divmod(width, per_column)
    if left or rank not in (1, 2) or (rank == 1 and columns != 1):
        raise ValueError(
            f"{width} outputs are not those of targets of rank {rank}, with {per_column} for each "
            "column; rank is 1 for y of shape (n,), 2 for (n, k)."
        )
