"""Priors, likelihoods with one term a datum, and the posterior made of them."""

from jaxbnn.targets.curvature import gauss_newton_metric, posterior_hessian
from jaxbnn.targets.likelihoods import (
    Likelihood,
    bernoulli,
    categorical,
    cross_entropy,
    gaussian,
    heteroscedastic_gaussian,
    learned_gaussian,
)
from jaxbnn.targets.posterior import Posterior
from jaxbnn.targets.prior_trees import expand_prior
from jaxbnn.targets.priors import normal_prior, uniform_prior

__all__ = [
    "Likelihood",
    "Posterior",
    "bernoulli",
    "categorical",
    "cross_entropy",
    "expand_prior",
    "gauss_newton_metric",
    "gaussian",
    "heteroscedastic_gaussian",
    "learned_gaussian",
    "normal_prior",
    "posterior_hessian",
    "uniform_prior",
]
