"""Expected log likelihoods under Gaussian outputs, E[log p(y | a)], one term a datum."""

import math
from typing import Literal

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray, Shaped

from jaxbnn.dvi.choices import check_choice
from jaxbnn.dvi.gaussian_average import (
    SMALL_VARIANCE,
    gaussian_average,
    normal_pieces,
    two_derivatives,
)
from jaxbnn.dvi.likelihood_kinds import columns, kind_of
from jaxbnn.dvi.moments import SMALLEST_VARIANCE, Moments, check_moments
from jaxbnn.numerics import check_finite
from jaxbnn.targets import Likelihood
from jaxbnn.targets.likelihoods import check_likelihood

Terms = Float[Array, " n"]
Expectation = Literal["closed_form", "monte_carlo"]
# Mean and variance of log_noise_scale under q, for learned_gaussian.
Noise = tuple[Float[Array, ""], Float[Array, ""]]

_LARGEST_EXPONENT = 30.0
# 1 / softplus falls like an exponential from the floor at -30 to zero, then like 1 / l; and the
# logarithm of softplus has no scale there.
_SOFTPLUS_BREAKS = (
    -30.0,
    -22.0,
    -16.0,
    -10.0,
    -6.0,
    -3.0,
    0.0,
    3.0,
    10.0,
    30.0,
    1e2,
    3e2,
    1e3,
    3e3,
)
_LOG_2_PI = math.log(2 * math.pi)


def expected_log_likelihood(
    likelihood: Likelihood,
    outputs: Moments,
    y: Shaped[Array, "n *columns"],
    *,
    noise: Noise | None = None,
    expectation: Expectation = "closed_form",
    rng_key: PRNGKeyArray | None = None,
    num_samples: int = 10,
) -> Terms:
    """Return E[log p(y_i | a_i)] for a_i ~ N(outputs.mean_i, outputs.covariance_i).

    Parameters
    ----------
    likelihood
        gaussian, learned_gaussian, heteroscedastic_gaussian (equation 8): exact. softplus_gaussian
        and bernoulli: by quadrature, right to rounding at any mean and variance. categorical and
        cross_entropy: the second order (21), an expansion for small variances, 14 % off in the
        correction where logits have variances of one, and of no use where they have a hundred.
        Others: only by "monte_carlo".
    outputs
        Moments of the network's outputs; without a covariance they are uncorrelated, without
        variances not random.
    y
        Targets as in a `Posterior`.
    noise
        For learned_gaussian: mean and variance of log_noise_scale.
    expectation
        "monte_carlo" draws the outputs, for any likelihood; needs `rng_key`.
    num_samples
        Of the draws.

    Raises
    ------
    ValueError
        If the likelihood has no closed form, or Monte Carlo has no key; moments that are none;
        targets that do not fit the outputs or the likelihood.

    Notes
    -----
    Source: Wu et al., (8) and (21), errata C4 and C7. For learned noise l = 2
    log_noise_scale is independent of the outputs, hence (8) with its mean and variance and
    Sigma_ml = 0. The exponential in (8) goes on as a straight line from e^30, where nothing but
    a start from afar ever is; softplus variances stop at e^-30.

    Examples
    --------
    >>> from jaxbnn.targets import gaussian
    >>> outputs = Moments(jnp.zeros((1, 1)), jnp.ones((1, 1)))
    >>> terms = expected_log_likelihood(gaussian(1.0), outputs, jnp.zeros(1))
    >>> round(float(terms[0]), 4)  # log N(0 | 0, 1) - 1 / 2
    -1.4189
    """
    check_likelihood(likelihood)
    check_choice("expectation", expectation, Expectation)
    outputs = checked_outputs(outputs)
    check_finite("y", y)
    if np.shape(y)[:1] != np.shape(outputs.mean)[:1]:
        raise ValueError(
            f"y must have a row for each of {len(outputs.mean)} outputs, but has shape "
            f"{np.shape(y)}."
        )
    likelihood.check(np.shape(outputs.mean), y, likelihood.parameter)
    return expected_terms(
        likelihood,
        outputs,
        y,
        noise=noise,
        expectation=expectation,
        rng_key=rng_key,
        num_samples=num_samples,
    )


def expected_terms(
    likelihood: Likelihood,
    outputs: Moments,
    y: Shaped[Array, "n *columns"],
    *,
    noise: Noise | None,
    expectation: Expectation,
    rng_key: PRNGKeyArray | None,
    num_samples: int,
) -> Terms:
    """Do what `expected_log_likelihood` does, without its checks of the numbers."""
    if expectation == "monte_carlo":
        if rng_key is None:
            raise ValueError("the Monte Carlo expectation needs rng_key; give one.")
        return _by_draws(likelihood, outputs, y, noise, rng_key, num_samples)
    match kind_of(likelihood):
        case "gaussian":
            return _gaussian(outputs, y, jnp.asarray(likelihood.parameter, outputs.mean.dtype))
        case "learned_gaussian":
            return _learned_gaussian(outputs, y, noise)
        case "heteroscedastic_gaussian":
            return _heteroscedastic(outputs, y)
        case "softplus_gaussian":
            return _softplus(outputs, y)
        case "bernoulli":
            return _bernoulli(outputs, y)
        case "categorical":
            return _categorical(outputs, y)
        case "cross_entropy":
            delta = jnp.asarray(likelihood.parameter, outputs.mean.dtype)
            return _categorical(outputs, y) / (2 * delta)
    raise ValueError(
        "the expectation of this likelihood has no closed form here; use "
        "expectation='monte_carlo', or method='mcvi'."
    )


def checked_outputs(outputs: Moments) -> Moments:
    """Return the moments, with variances; raise if they are none.

    Examples
    --------
    >>> checked_outputs(Moments(jnp.ones((1, 2)))).variance.tolist()
    [[0.0, 0.0]]
    """
    check_moments(outputs, may_be_zero=True)
    if outputs.variance is None:
        return outputs._replace(variance=jnp.zeros_like(outputs.mean))
    return outputs


def given(noise: Noise | None) -> Noise:
    """Return mean and variance of log_noise_scale; raise if there are none."""
    if noise is None:
        raise ValueError(
            "learned_gaussian needs the mean and the variance of log_noise_scale; give noise."
        )
    return noise


def deviation_of(variance: Array) -> Array:
    """Return the square root, kept above zero, where it has no derivative.

    An output without noise is met by a network without biases at x = 0.
    """
    return jnp.sqrt(jnp.maximum(variance, SMALLEST_VARIANCE))


def pair_moments(outputs: Moments, rank: int) -> tuple[Array, Array, Array, Array, Array]:
    """Return E m, E l, Var m, Var l, Cov(m, l), laid out as y is, of outputs (m, l).

    Examples
    --------
    >>> outputs = Moments(jnp.array([[1.0, -2.0]]), jnp.ones((1, 2)))
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
    m, raw, var_m, var_l, cross = (columns(v, rank) for v in (m, raw, var_m, var_l, cross))
    return m, raw, var_m, var_l, cross


def draw_outputs(
    rng_key: PRNGKeyArray, outputs: Moments, num_samples: int
) -> Float[Array, "s n k"]:
    """Return draws of the outputs, s = num_samples.

    Examples
    --------
    >>> outputs = Moments(jnp.ones((3, 2)), jnp.full((3, 2), 1e-20))
    >>> draw_outputs(jax.random.key(0), outputs, 5).shape
    (5, 3, 2)
    """
    assert outputs.variance is not None
    noise = jax.random.normal(rng_key, (num_samples, *outputs.mean.shape), outputs.mean.dtype)
    if outputs.covariance is None:
        return outputs.mean[None] + deviation_of(outputs.variance)[None] * noise
    # A jitter of rounding size: few quadrature nodes leave eigenvalues of -1e-7 times the largest.
    floor = 10 * jnp.finfo(noise.dtype).eps * outputs.mean.shape[1]
    width = outputs.mean.shape[1]
    jitter = floor * jnp.max(outputs.variance, axis=1)[:, None, None] + SMALLEST_VARIANCE
    root = jnp.linalg.cholesky(
        outputs.covariance + jitter * jnp.eye(width, dtype=noise.dtype)[None]
    )
    return outputs.mean[None] + jnp.einsum("nij,snj->sni", root, noise, precision="highest")


def _gaussian(outputs: Moments, y: Array, scale: Array) -> Terms:
    mean, variance = _laid_out(outputs, y)
    scale = scale if scale.ndim == 0 else columns(scale[None], y.ndim)
    squares = (variance + jnp.square(y.astype(mean.dtype) - mean)) / jnp.square(scale)
    return -0.5 * _per_datum(squares + _LOG_2_PI + 2 * jnp.log(scale))


def _learned_gaussian(outputs: Moments, y: Array, noise: Noise | None) -> Terms:
    mean, variance = _laid_out(outputs, y)
    log_scale, log_scale_variance = given(noise)
    log_variance, spread = 2 * log_scale, 4 * log_scale_variance
    squares = variance + jnp.square(y.astype(mean.dtype) - mean)
    scaled = squares * _precision(spread / 2 - log_variance)
    return -0.5 * _per_datum(scaled + _LOG_2_PI + log_variance)


def _heteroscedastic(outputs: Moments, y: Array) -> Terms:
    m, log_variance, var_m, var_l, cross = pair_moments(outputs, y.ndim)
    squares = var_m + jnp.square(m - cross - y.astype(m.dtype))
    scaled = squares * _precision(var_l / 2 - log_variance)
    return -0.5 * _per_datum(scaled + log_variance + _LOG_2_PI)


def _precision(exponent: Array) -> Array:
    """Return exp(exponent), going on as a straight line from exp(30).

    No data have a noise scale of e^-15, but a wide q at the start does ask for the exponential of
    hundreds: with a line there is an ELBO, and a slope that leads away.
    """
    below = jnp.minimum(exponent, _LARGEST_EXPONENT)
    return jnp.exp(below) * (1 + (exponent - below))


def _softplus(outputs: Moments, y: Array) -> Terms:
    m, raw, var_m, var_l, cross = pair_moments(outputs, y.ndim)
    error = m - y.astype(m.dtype)
    # m given l is normal, so that only l = raw + deviation u is left to an average. Regressed on u,
    # not on l: of a slope on l nothing would be left at zero variance.
    deviation = jnp.sqrt(jnp.maximum(var_l, SMALL_VARIANCE))
    slope = cross / deviation
    u, weights = normal_pieces(raw, deviation, _SOFTPLUS_BREAKS)
    squares = jnp.square(error[None] + slope[None] * u) + (var_m - jnp.square(slope))[None]
    log_noise = _log_softplus(raw[None] + deviation[None] * u)
    whole = jnp.sum(weights * (squares * jnp.exp(-log_noise) + log_noise), axis=0)

    # E of the square times the Taylor expansion of 1 / noise, by the moments of (m, l).
    inverse, inverse_slope, inverse_bend = two_derivatives(
        lambda z: jnp.exp(-_log_softplus(z)), raw
    )
    log_noise, _, log_bend = two_derivatives(_log_softplus, raw)
    square = jnp.square(error) + var_m
    small = inverse * square + 2 * error * cross * inverse_slope + log_noise
    bend = inverse_bend * (var_l * square + 2 * jnp.square(cross)) + log_bend * var_l
    terms = jnp.where(var_l < SMALL_VARIANCE, small + 0.5 * bend, whole)
    return -0.5 * _per_datum(terms + _LOG_2_PI)


def _log_softplus(value: Array) -> Array:
    # As for the exponential, a wide q asks at its start for what float32 has no number for.
    return jnp.log(jax.nn.softplus(jnp.maximum(value, -_LARGEST_EXPONENT)))


def _bernoulli(outputs: Moments, y: Array) -> Terms:
    mean, variance = _laid_out(outputs, y)
    sign = 2 * y.astype(mean.dtype) - 1
    return _per_datum(gaussian_average(jax.nn.log_sigmoid, sign * mean, variance))


def _categorical(outputs: Moments, y: Array) -> Terms:
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


def _by_draws(likelihood, outputs, y, noise, rng_key, num_samples) -> Terms:
    key_outputs, key_noise = jax.random.split(rng_key)
    draws = draw_outputs(key_outputs, outputs, num_samples)
    if not likelihood.learns_noise:
        terms = jax.vmap(lambda a: likelihood.log_prob(a, y, likelihood.parameter))(draws)
    else:
        mean, variance = given(noise)
        normal = jax.random.normal(key_noise, (num_samples,), outputs.mean.dtype)
        scales = jnp.exp(mean + jnp.sqrt(variance) * normal)
        terms = jax.vmap(lambda a, s: likelihood.log_prob(a, y, s))(draws, scales)
    return jnp.mean(terms, axis=0)


def _laid_out(outputs: Moments, y: Array) -> tuple[Array, Array]:
    assert outputs.variance is not None
    return columns(outputs.mean, y.ndim), columns(outputs.variance, y.ndim)


def _per_datum(terms: Array) -> Terms:
    return jnp.sum(terms, axis=tuple(range(1, terms.ndim)))
