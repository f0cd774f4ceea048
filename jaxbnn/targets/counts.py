"""Counts: Poisson, and negative binomial for those that vary more; the outputs are log means."""

import dataclasses
import math
from collections.abc import Mapping
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpyro.distributions as dist
from jax.scipy.special import betaln, gammaln
from jaxtyping import ArrayLike

from jaxbnn.targets.likelihoods import Likelihood, Outputs, Targets, Terms, lay_out, per_datum
from jaxbnn.targets.own_parameters import PositiveNumbers, check_whole

# Counts from which Stirling's formula, with two terms of its series, serves.
_MANY = 20


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
        log_mean = lay_out(outputs, y.ndim)
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
        return per_datum(jnp.where(is_few, of_few, many * (d - jnp.expm1(d)) - left))

    def predictive(self, outputs: Outputs, rank: int) -> dist.Distribution:
        """Return the Poisson distribution."""
        return dist.Poisson(jnp.exp(lay_out(outputs, rank))).to_event(rank - 1)

    def check(self, outputs: tuple[int, ...], y: ArrayLike) -> None:
        """Raise ValueError unless the widths agree and y holds counts."""
        super().check(outputs, y)
        check_whole("Poisson", "counts", y)


@dataclasses.dataclass(frozen=True)
class NegativeBinomial(PositiveNumbers):
    """Counts with mean m = exp(f(x)) and variance m + m^2 / concentration.

    A Poisson variable whose mean has a Gamma distribution: the smaller the concentration, the
    more the counts vary beside their mean.

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

    def log_prob(self, outputs: Outputs, y: Targets) -> Terms:
        """Return one log-likelihood term a datum."""
        log_mean = lay_out(outputs, y.ndim)
        (r,) = self.known(log_mean.dtype)
        y = y.astype(log_mean.dtype)
        # Gamma(y + r) / (Gamma(r) y!), by a beta function: gammaln(y + r) - gammaln(r) cancels.
        ways = -betaln(jnp.broadcast_to(r, y.shape), y + 1) - jnp.log(y + r)
        logit = log_mean - jnp.log(r)
        return per_datum(ways - r * jax.nn.softplus(logit) - y * jax.nn.softplus(-logit))

    def predictive(self, outputs: Outputs, rank: int) -> dist.Distribution:
        """Return the negative binomial distribution."""
        mean = jnp.exp(lay_out(outputs, rank))
        (r,) = self.known(mean.dtype)
        return dist.NegativeBinomial2(mean, jnp.broadcast_to(r, mean.shape)).to_event(rank - 1)

    def check(self, outputs: tuple[int, ...], y: ArrayLike) -> None:
        """Raise ValueError unless the widths agree and y holds counts."""
        super().check(outputs, y)
        check_whole("NegativeBinomial", "counts", y)
