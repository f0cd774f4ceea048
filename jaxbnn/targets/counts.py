"""Counts: Poisson, and negative binomial for those that vary more; the outputs are log means."""

import dataclasses
import math
from collections.abc import Mapping
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpyro.distributions as dist
from jax.scipy.special import gammaln
from jaxtyping import Array, ArrayLike, Float, Shaped
from numpyro.distributions.util import validate_sample

from jaxbnn.targets.likelihoods import Likelihood, Outputs, Targets, Terms, lay_out, per_datum
from jaxbnn.targets.own_parameters import FARTHEST_COUNT, PositiveNumbers, check_whole
from jaxbnn.targets.stirling import stirling_rest

# Counts from which Stirling's formula, with two terms of its series, serves.
_MANY = 20
# Below this size x - log(1 + x) is a series, of which float64 needs so many terms.
_SMALL, _NUM_TERMS = 1 / 3, 11


@dataclasses.dataclass(frozen=True)
class Poisson(Likelihood):
    """Counts with mean and variance exp(f(x)), any number of columns.

    Raises
    ------
    ValueError
        `check`, if y holds what is no count.

    Examples
    --------
    >>> terms = Poisson().log_prob(jnp.zeros((2, 1)), jnp.array([0, 1]))
    >>> [round(float(term), 4) for term in terms]
    [-1.0, -1.0]
    """

    def log_prob(self, outputs: Outputs, y: Targets) -> Terms:
        """Return one log-likelihood term a datum."""
        return per_datum(_poisson(lay_out(outputs, y.ndim), y))

    def predictive(self, outputs: Outputs, rank: int) -> dist.Distribution:
        """Return the Poisson distribution."""
        return _PoissonLaw(_mean(lay_out(outputs, rank))).to_event(rank - 1)

    def check(self, outputs: tuple[int, ...], y: ArrayLike) -> None:
        """Raise ValueError unless the widths agree and y holds counts."""
        super().check(outputs, y)
        check_whole("Poisson", "counts", y)


@dataclasses.dataclass(frozen=True)
class NegativeBinomial(PositiveNumbers):
    """Counts with mean m = exp(f(x)) and variance m + m^2 / concentration.

    A Poisson variable whose mean has a Gamma distribution: the smaller the concentration, the
    more the counts vary beside their mean. Terms are in the form of Loader (2000, "Fast and
    accurate computation of binomial probabilities"), which keeps their digits where counts and
    concentration are large.

    Parameters
    ----------
    concentration
        A positive number, a leaf that may be traced; None, the default, learns
        log_concentration, and the position is {"network": params, "log_concentration": ...}.

    Raises
    ------
    ValueError
        If the concentration is not positive; `check`, if y holds what is no count.

    Examples
    --------
    >>> terms = NegativeBinomial(1.0).log_prob(jnp.zeros((2, 1)), jnp.array([0, 1]))
    >>> [round(float(term), 4) for term in terms]  # log(1 / 2), log(1 / 4)
    [-0.6931, -1.3863]
    """

    concentration: ArrayLike | None = None
    logarithms: ClassVar[Mapping[str, str]] = {"concentration": "log_concentration"}
    farthest: ClassVar[Mapping[str, float]] = {"concentration": FARTHEST_COUNT}

    def log_prob(self, outputs: Outputs, y: Targets) -> Terms:
        """Return one log-likelihood term a datum."""
        log_mean = lay_out(outputs, y.ndim)
        (r,) = self.known(log_mean.dtype)
        return per_datum(_negative_binomial(log_mean, r, y))

    def predictive(self, outputs: Outputs, rank: int) -> dist.Distribution:
        """Return the negative binomial distribution."""
        log_mean = lay_out(outputs, rank)
        (r,) = self.known(log_mean.dtype)
        # NumPyro divides r by the mean.
        mean = jnp.maximum(_mean(log_mean), r / float(jnp.finfo(log_mean.dtype).max))
        return _NegativeBinomialLaw(mean, jnp.broadcast_to(r, mean.shape)).to_event(rank - 1)

    def check(self, outputs: tuple[int, ...], y: ArrayLike) -> None:
        """Raise ValueError unless the widths agree and y holds counts."""
        super().check(outputs, y)
        check_whole("NegativeBinomial", "counts", y)


def _mean(log_mean: Float[Array, "..."]) -> Float[Array, "..."]:
    """Return exp(log_mean), the smallest number where that is 0: a count of 0 had 0 log(0), NaN."""
    mean = jnp.exp(log_mean)
    return jnp.where(mean == 0, float(jnp.finfo(mean.dtype).tiny), mean)


class _PoissonLaw(dist.Poisson):
    """NumPyro's distribution, but of log probabilities that keep their digits at large counts."""

    @validate_sample
    def log_prob(self, value: ArrayLike) -> ArrayLike:
        # Of an infinite rate two terms are infinite, and their difference is NaN.
        rate = jnp.minimum(self.rate, float(jnp.finfo(jnp.result_type(self.rate)).max))
        return _poisson(*jnp.broadcast_arrays(jnp.log(rate), value))


class _NegativeBinomialLaw(dist.NegativeBinomial2):
    """As `_PoissonLaw`."""

    @validate_sample
    def log_prob(self, value: ArrayLike) -> ArrayLike:
        numbers = jnp.log(self.mean), self.concentration, value
        return _negative_binomial(*jnp.broadcast_arrays(*numbers))


def _poisson(
    log_mean: Float[Array, "*columns"], y: Shaped[Array, "*columns"]
) -> Float[Array, "*columns"]:
    """Return the log probability of each count."""
    y = y.astype(log_mean.dtype)
    is_few = y < _MANY
    # Neither form is given the other's data, where its slope may be infinite.
    few = jnp.where(is_few, log_mean, 0)
    of_few = y * few - jnp.exp(few) - gammaln(y + 1)
    # Of many the three terms cancel: y (d - e^d + 1) with d = log(mean / y), and what
    # Stirling's formula leaves of log(y!), to 1e-10.
    many = jnp.maximum(y, _MANY)
    d = jnp.where(is_few, 0, log_mean - jnp.log(many))
    left = jnp.log(2 * math.pi * many) / 2 + 1 / (12 * many) - 1 / (360 * many**3)
    return jnp.where(is_few, of_few, many * (d - jnp.expm1(d)) - left)


def _negative_binomial(
    log_mean: Float[Array, "*columns"], r: Float[Array, "*one"], y: Shaped[Array, "*columns"]
) -> Float[Array, "*columns"]:
    """Return the log probability of each count, of concentration r."""
    y = y.astype(log_mean.dtype)
    at_zero = -r * jax.nn.softplus(log_mean - jnp.log(r))
    some = jnp.maximum(y, 1)
    terms = _log_height(some, r) - _deviance(some, r, log_mean)
    return jnp.where(y == 0, at_zero, terms)


def _log_height(y: Float[Array, "*columns"], r: Float[Array, "*one"]) -> Float[Array, "*columns"]:
    """Return the log probability of y >= 1 where the mean is y, by Stirling's formula."""
    log_width = (jnp.log(2 * math.pi * y) + jnp.log1p(y / r)) / 2
    return stirling_rest(y + r) - stirling_rest(r) - stirling_rest(y) - log_width


@jax.custom_jvp
def _deviance(
    y: Float[Array, "*columns"], r: Float[Array, "*one"], log_mean: Float[Array, "*columns"]
) -> Float[Array, "*columns"]:
    """Return how far the log probability of y >= 1 lies below that of y where the mean is y.

    It is y log(y / m) - (y + r) log((y + r) / (m + r)) = y h(t) + r h(u), neither of them negative,
    with h(x) = x - log(1 + x), 1 + t = (m / y) (y + r) / (m + r) and 1 + u = (y + r) / (m + r).
    """
    excess_of_y, excess_of_r, _ = _excesses(y, r, log_mean)
    return y * excess_of_y + r * excess_of_r


@_deviance.defjvp
def _deviance_jvp(primals, tangents):
    y, r, log_mean = primals
    by_y, by_r, by_log_mean = tangents
    excess_of_y, excess_of_r, u = _excesses(y, r, log_mean)
    slope = (excess_of_y + r * u / y) * by_y + excess_of_r * by_r - r * u * by_log_mean
    return y * excess_of_y + r * excess_of_r, slope


def _excesses(y, r, log_mean):
    """Return h(t), h(u) and u of the deviance."""
    d = log_mean - jnp.log(y)
    is_above = d > 0
    gap = jnp.where(is_above, -d, d)
    # Of t and u one is negative: u where the mean is above y.
    share = jnp.where(is_above, r, y) / (y + r)
    rest = jnp.where(is_above, y, r) / (y + r)
    scaled = jnp.expm1(gap) / (rest + share * jnp.exp(gap))
    negative, positive = rest * scaled, -share * scaled
    log_of_positive = jnp.log1p(positive)
    is_low = negative < -0.9
    log_of_negative = jnp.where(
        is_low, gap + log_of_positive, jnp.log1p(jnp.where(is_low, 0, negative))
    )
    of_negative = _excess(negative, log_of_negative)
    of_positive = _excess(positive, log_of_positive)
    return (
        jnp.where(is_above, of_positive, of_negative),
        jnp.where(is_above, of_negative, of_positive),
        jnp.where(is_above, negative, positive),
    )


def _excess(x: Float[Array, "..."], log1p: Float[Array, "..."]) -> Float[Array, "..."]:
    """Return x - log(1 + x), of which log1p is the logarithm, without their cancellation.

    For small x by log(1 + x) = 2 artanh(v), v = x / (2 + x).
    """
    is_small = jnp.abs(x) < _SMALL
    small = jnp.where(is_small, x, 0)
    v = small / (2 + small)
    series = jnp.asarray([1 / (2 * k + 3) for k in reversed(range(_NUM_TERMS))], x.dtype)
    rest = 2 * v * jnp.square(v) * jnp.polyval(series, jnp.square(v))
    return jnp.where(is_small, small * v - rest, x - log1p)
