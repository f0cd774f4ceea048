"""Expected log likelihoods under Gaussian outputs, E[log p(y | a)], one term a datum."""

import functools
import math
from collections.abc import Callable
from typing import Any, Literal, get_args

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray, Shaped

from jaxbnn.dvi.gaussian_average import (
    SMALL_VARIANCE,
    gaussian_average,
    normal_pieces,
    two_derivatives,
)
from jaxbnn.dvi.learned import Learned, Noise, draw_learned, learned_moments, moments_given
from jaxbnn.dvi.moments import GaussianMoments, check_moments, floating
from jaxbnn.dvi.monte_carlo import draw_outputs
from jaxbnn.dvi.noise_likelihoods import FlooredGaussian, SoftplusGaussian
from jaxbnn.numerics import check_count
from jaxbnn.numerics.arguments import check_key, check_word
from jaxbnn.numerics.arrays import as_array
from jaxbnn.numerics.data import finite_array
from jaxbnn.targets import (
    Bernoulli,
    Categorical,
    CrossEntropy,
    Gaussian,
    HeteroscedasticGaussian,
    LearnedGaussian,
    Likelihood,
)
from jaxbnn.targets.likelihoods import check_likelihood, lay_out, per_datum

Terms = Float[Array, " n"]
Expectation = Literal["closed_form", "monte_carlo"]

_LARGEST_EXPONENT = 30.0
# 1 / softplus falls like an exponential from the floor at -30 to zero, then like 1 / l; and the
# logarithm of softplus has no scale there.
_SOFTPLUS_BREAKS = tuple(
    float(cut) for cut in (-30, -22, -16, -10, -6, -3, 0, 3, 10, 30, 100, 300, 1000, 3000)
)
# From the logarithm of the floor on, where noise variances turn from constant to exponential.
_FLOOR_BREAKS = (-30.0, -22.0, -16.0, -10.0, -6.0, -3.0, 0.0, 3.0, 6.0, 10.0, 16.0, 22.0, 30.0)
_LOG_2_PI = math.log(2 * math.pi)


def expected_log_likelihood(
    likelihood: Likelihood,
    outputs: GaussianMoments,
    y: Shaped[Array, "n *columns"],
    *,
    noise: Noise | Learned | None = None,
    expectation: Expectation = "closed_form",
    rng_key: PRNGKeyArray | None = None,
    num_samples: int = 10,
) -> Terms:
    """Return E[log p(y_i | a_i)] for a_i ~ N(outputs.mean_i, outputs.covariance_i).

    Parameters
    ----------
    likelihood
        Gaussian, LearnedGaussian, HeteroscedasticGaussian (equation 8): exact. SoftplusGaussian,
        FlooredGaussian and Bernoulli: by quadrature, right to rounding at any mean and variance.
        Categorical and CrossEntropy: the second order (21), an expansion for small variances, 14 %
        off in the correction where logits have variances of one, and of no use where they have a
        hundred.
        Others: only by "monte_carlo", or what they register with `expected_terms`.
    outputs
        Moments of the network's outputs; without a covariance they are uncorrelated, without
        variances not random.
    y
        Targets as in a `Posterior`.
    noise
        For LearnedGaussian: mean and variance of log_noise_scale. Of what another likelihood
        learns the same, in a dict by its names.
    expectation
        "monte_carlo" draws the outputs, for any likelihood; needs `rng_key`.
    num_samples
        Of the draws.

    Raises
    ------
    ValueError
        If the likelihood has no closed form, or Monte Carlo has no key or no draws; moments, of
        the outputs or of the noise, that are not those of a Gaussian; noise of a likelihood that
        does not learn it; targets that do not fit the outputs or the likelihood.
    TypeError
        Numbers that are not real, or of draws that are not whole.

    Notes
    -----
    Source: Wu et al., (8) and (21), errata C4 and C7. For learned noise l = 2
    log_noise_scale is independent of the outputs, hence (8) with its mean and variance and
    Sigma_ml = 0. Above e^30 the exponential in (8) is continued as a straight line, and softplus
    variances are at least e^-30: fits of data stay far from both, and a wide q at the start needs
    them.

    Examples
    --------
    >>> from jaxbnn.targets import Gaussian
    >>> outputs = GaussianMoments(jnp.zeros((1, 1)), jnp.ones((1, 1)))
    >>> terms = expected_log_likelihood(Gaussian(1.0), outputs, jnp.zeros(1))
    >>> round(float(terms[0]), 4)  # log N(0 | 0, 1) - 1 / 2
    -1.4189
    """
    if rng_key is not None:
        check_key("rng_key", rng_key)
    check_count("num_samples", num_samples)
    check_likelihood(likelihood)
    check_word("expectation", expectation, get_args(Expectation))
    outputs = checked_outputs(outputs)
    finite_array("y", y)
    if np.shape(y)[:1] != np.shape(outputs.mean)[:1]:
        raise ValueError(
            f"y must have a row for each of {len(outputs.mean)} outputs, but has shape "
            f"{np.shape(y)}."
        )
    likelihood.check(np.shape(outputs.mean), y)
    y = as_array(y)
    learned = learned_moments(likelihood, noise)
    if expectation == "closed_form":
        return expected_terms(likelihood, outputs, y, learned)
    if rng_key is None:
        raise ValueError("the Monte Carlo expectation needs rng_key; give one.")
    key_outputs, key_learned = jax.random.split(rng_key)
    draws = draw_outputs(key_outputs, outputs, num_samples)
    return mean_over_draws(key_learned, likelihood, draws, y, learned)


@functools.singledispatch
def expected_terms(
    likelihood: Likelihood, outputs: GaussianMoments, y: Array, learned: Learned
) -> Terms:
    """Return E[log p(y_i | a_i)] in closed form; a class of likelihoods registers its own.

    Parameters
    ----------
    likelihood
        `expected_terms.register(Class)` adds one.
    outputs
        Moments of the outputs; variances are there, a covariance may be.
    y
        Targets that fit.
    learned
        Mean and variance of the likelihood's own parameters under q, by name.

    Raises
    ------
    ValueError
        The class of the likelihood, and its base classes, have not registered.

    Examples
    --------
    >>> outputs = GaussianMoments(jnp.ones((1, 1)), jnp.ones((1, 1)))
    >>> terms = expected_terms(Gaussian(1.0), outputs, jnp.ones(1), {})
    >>> round(float(terms[0]), 4)
    -1.4189
    """
    raise ValueError(
        f"the expectation of {type(likelihood).__name__} has no closed form here; use "
        "expectation='monte_carlo', or method='mcvi'."
    )


def checked_outputs(outputs: GaussianMoments) -> GaussianMoments:
    """Return the moments as floats, with variances; raise unless they are those of a Gaussian.

    Examples
    --------
    >>> checked_outputs(GaussianMoments(jnp.ones((1, 2)))).variance.tolist()
    [[0.0, 0.0]]
    """
    check_moments(outputs, may_be_zero=True)
    outputs = floating(outputs)
    if outputs.variance is None:
        return outputs._replace(variance=jnp.zeros_like(outputs.mean))
    return outputs


def mean_over_draws(
    rng_key: PRNGKeyArray,
    likelihood: Likelihood,
    draws: Float[Array, "s n *k"],
    y: Array,
    learned: Learned,
) -> Terms:
    """Return the mean of the terms over draws of outputs and of the likelihood's parameters."""
    own = draw_learned(rng_key, moments_given(likelihood, learned, y.shape[1:]), len(draws))
    terms = jax.vmap(lambda a, values: likelihood.given(values).log_prob(a, y))(draws, own)
    return jnp.mean(terms, axis=0)


def pair_moments(outputs: GaussianMoments, rank: int) -> tuple[Array, Array, Array, Array, Array]:
    """Return E m, E l, Var m, Var l, Cov(m, l), laid out as y is, of outputs (m, l).

    Examples
    --------
    >>> outputs = GaussianMoments(jnp.array([[1.0, -2.0]]), jnp.ones((1, 2)))
    >>> [float(v[0]) for v in pair_moments(outputs, 1)]
    [1.0, -2.0, 1.0, 1.0, 0.0]
    """
    m, raw = jnp.split(outputs.mean, 2, axis=1)
    assert outputs.variance is not None
    var_m, var_l = jnp.split(outputs.variance, 2, axis=1)
    width = m.shape[1]
    if outputs.covariance is None:
        cross = jnp.zeros_like(m)
    else:
        cross = jnp.diagonal(outputs.covariance[:, :width, width:], axis1=1, axis2=2)
    m, raw, var_m, var_l, cross = (lay_out(v, rank) for v in (m, raw, var_m, var_l, cross))
    return m, raw, var_m, var_l, cross


@expected_terms.register(Gaussian)
def _gaussian(likelihood: Gaussian, outputs: GaussianMoments, y: Array, learned: Learned) -> Terms:
    mean, variance = _laid_out(outputs, y)
    scale = jnp.asarray(likelihood.noise_scale, mean.dtype)
    scale = scale if scale.ndim == 0 else lay_out(scale[None], y.ndim)
    squares = (variance + jnp.square(y.astype(mean.dtype) - mean)) / jnp.square(scale)
    return -0.5 * per_datum(squares + _LOG_2_PI + 2 * jnp.log(scale))


@expected_terms.register(LearnedGaussian)
def _learned_gaussian(
    likelihood: LearnedGaussian, outputs: GaussianMoments, y: Array, learned: Learned
) -> Terms:
    mean, variance = _laid_out(outputs, y)
    moments: Any = moments_given(likelihood, learned, y.shape[1:])
    log_scale, log_scale_variance = moments["log_noise_scale"]
    log_variance, spread = 2 * log_scale, 4 * log_scale_variance
    squares = variance + jnp.square(y.astype(mean.dtype) - mean)
    scaled = squares * _precision(spread / 2 - log_variance)
    return -0.5 * per_datum(scaled + _LOG_2_PI + log_variance)


@expected_terms.register(HeteroscedasticGaussian)
def _heteroscedastic(
    likelihood: HeteroscedasticGaussian, outputs: GaussianMoments, y: Array, learned: Learned
) -> Terms:
    m, log_variance, var_m, var_l, cross = pair_moments(outputs, y.ndim)
    squares = var_m + jnp.square(m - cross - y.astype(m.dtype))
    scaled = squares * _precision(var_l / 2 - log_variance)
    return -0.5 * per_datum(scaled + log_variance + _LOG_2_PI)


def _precision(exponent: Array) -> Array:
    """Return exp(exponent), going on as a straight line from exp(30).

    No data have a noise scale of e^-15, but a wide q at the start does ask for the exponential of
    hundreds: with a line there is an ELBO, and a slope that leads away.
    """
    below = jnp.minimum(exponent, _LARGEST_EXPONENT)
    return jnp.exp(below) * (1 + (exponent - below))


@expected_terms.register(SoftplusGaussian)
def _softplus(
    likelihood: SoftplusGaussian, outputs: GaussianMoments, y: Array, learned: Learned
) -> Terms:
    return _by_quadrature(_log_softplus, jnp.asarray(_SOFTPLUS_BREAKS), outputs, y)


@expected_terms.register(FlooredGaussian)
def _floored(
    likelihood: FlooredGaussian, outputs: GaussianMoments, y: Array, learned: Learned
) -> Terms:
    log_floor = 2 * jnp.log(jnp.asarray(likelihood.floor, outputs.mean.dtype))
    breaks = log_floor + jnp.asarray(_FLOOR_BREAKS, log_floor.dtype)
    return _by_quadrature(likelihood.log_variance, breaks, outputs, y)


def _by_quadrature(
    log_variance: Callable[[Array], Array],
    breaks: Float[Array, " breaks"],
    outputs: GaussianMoments,
    y: Array,
) -> Terms:
    """Return the terms for noise variances exp(log_variance(l)), smooth between the breaks."""
    m, raw, var_m, var_l, cross = pair_moments(outputs, y.ndim)
    error = m - y.astype(m.dtype)
    # m given l is normal, so that only l = raw + deviation u is left to an average. Regressed on u,
    # not on l: of a slope on l nothing would be left at zero variance.
    deviation = jnp.sqrt(jnp.maximum(var_l, SMALL_VARIANCE))
    slope = cross / deviation
    u, weights = normal_pieces(raw, deviation, breaks)
    squares = jnp.square(error[None] + slope[None] * u) + (var_m - jnp.square(slope))[None]
    log_noise = log_variance(raw[None] + deviation[None] * u)
    whole = jnp.sum(weights * (squares * jnp.exp(-log_noise) + log_noise), axis=0)

    # E of the square times the Taylor expansion of 1 / noise, by the moments of (m, l).
    inverse, inverse_slope, inverse_bend = two_derivatives(lambda z: jnp.exp(-log_variance(z)), raw)
    log_noise, _, log_bend = two_derivatives(log_variance, raw)
    square = jnp.square(error) + var_m
    small = inverse * square + 2 * error * cross * inverse_slope + log_noise
    bend = inverse_bend * (var_l * square + 2 * jnp.square(cross)) + log_bend * var_l
    terms = jnp.where(var_l < SMALL_VARIANCE, small + 0.5 * bend, whole)
    return -0.5 * per_datum(terms + _LOG_2_PI)


def _log_softplus(value: Array) -> Array:
    # As for the exponential, a wide q asks at its start for what float32 has no number for.
    return jnp.log(jax.nn.softplus(jnp.maximum(value, -_LARGEST_EXPONENT)))


@expected_terms.register(Bernoulli)
def _bernoulli(
    likelihood: Bernoulli, outputs: GaussianMoments, y: Array, learned: Learned
) -> Terms:
    mean, variance = _laid_out(outputs, y)
    sign = 2 * y.astype(mean.dtype) - 1
    return per_datum(gaussian_average(jax.nn.log_sigmoid, sign * mean, variance))


@expected_terms.register(Categorical)
def _categorical(
    likelihood: Categorical, outputs: GaussianMoments, y: Array, learned: Learned
) -> Terms:
    logits = outputs.mean
    p = jax.nn.softmax(logits, axis=1)
    assert outputs.variance is not None
    spread = jnp.sum(p * outputs.variance, axis=1)
    if outputs.covariance is None:
        together = jnp.sum(jnp.square(p) * outputs.variance, axis=1)
    else:
        together = jnp.einsum("ni,nij,nj->n", p, outputs.covariance, p, precision="highest")
    label = y.astype(jnp.int32)[:, None]
    of_label = jnp.take_along_axis(jax.nn.log_softmax(logits, axis=1), label, axis=1)[:, 0]
    return of_label - 0.5 * (spread - together)


@expected_terms.register(CrossEntropy)
def _cross_entropy(
    likelihood: CrossEntropy, outputs: GaussianMoments, y: Array, learned: Learned
) -> Terms:
    delta = jnp.asarray(likelihood.temperature, outputs.mean.dtype)
    return _categorical(likelihood, outputs, y, learned) / (2 * delta)


def _laid_out(outputs: GaussianMoments, y: Array) -> tuple[Array, Array]:
    assert outputs.variance is not None
    return lay_out(outputs.mean, y.ndim), lay_out(outputs.variance, y.ndim)
