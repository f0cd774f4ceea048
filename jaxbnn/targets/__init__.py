"""Priors, likelihoods with one term a datum, and the posterior made of them."""

from jaxbnn.targets.counts import NegativeBinomial, Poisson
from jaxbnn.targets.curvature import gauss_newton_metric, posterior_hessian
from jaxbnn.targets.gaussian_noise import (
    Gaussian,
    HeteroscedasticGaussian,
    LearnedGaussian,
    NoiseFromOutputs,
    SoftplusScaleGaussian,
)
from jaxbnn.targets.heavy_tails import Laplace, StudentT
from jaxbnn.targets.hierarchical import HierarchicalPrior, hierarchical_prior
from jaxbnn.targets.labels import Bernoulli, Categorical, CrossEntropy
from jaxbnn.targets.likelihoods import Likelihood
from jaxbnn.targets.log_gamma import LogGamma
from jaxbnn.targets.ordinal import Ordinal
from jaxbnn.targets.posterior import Posterior
from jaxbnn.targets.prior_trees import expand_prior
from jaxbnn.targets.priors import normal_prior, uniform_prior

__all__ = [
    "Bernoulli",
    "Categorical",
    "CrossEntropy",
    "Gaussian",
    "HeteroscedasticGaussian",
    "Laplace",
    "LearnedGaussian",
    "Likelihood",
    "LogGamma",
    "NegativeBinomial",
    "NoiseFromOutputs",
    "Ordinal",
    "Poisson",
    "Posterior",
    "SoftplusScaleGaussian",
    "StudentT",
    "expand_prior",
    "gauss_newton_metric",
    "hierarchical_prior",
    "normal_prior",
    "posterior_hessian",
    "uniform_prior",
]
