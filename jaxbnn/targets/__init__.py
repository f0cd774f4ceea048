"""Priors, likelihoods with one term a datum, and the posterior made of them."""

from jaxbnn.targets.curvature import gauss_newton_metric, posterior_hessian
from jaxbnn.targets.gaussian_noise import (
    Gaussian,
    HeteroscedasticGaussian,
    LearnedGaussian,
    NoiseFromOutputs,
)
from jaxbnn.targets.labels import Bernoulli, Categorical, CrossEntropy
from jaxbnn.targets.likelihoods import Likelihood
from jaxbnn.targets.posterior import Posterior
from jaxbnn.targets.prior_trees import expand_prior
from jaxbnn.targets.priors import normal_prior, uniform_prior

__all__ = [
    "Bernoulli",
    "Categorical",
    "CrossEntropy",
    "Gaussian",
    "HeteroscedasticGaussian",
    "LearnedGaussian",
    "Likelihood",
    "NoiseFromOutputs",
    "Posterior",
    "expand_prior",
    "gauss_newton_metric",
    "normal_prior",
    "posterior_hessian",
    "uniform_prior",
]
