"""Deterministic variational inference: Gaussian moments propagated through a network."""

from jaxbnn.dvi.algorithm import DeterministicVI, VIState, deterministic_vi
from jaxbnn.dvi.divergence import EmpiricalBayes, empirical_bayes, fitted_prior, kl_divergence
from jaxbnn.dvi.expected import expected_log_likelihood, expected_terms
from jaxbnn.dvi.families import (
    FactorisedNormal,
    LayerwiseNormal,
    as_distributions,
    initial_position,
    per_fan_in,
)
from jaxbnn.dvi.model import VIInfo
from jaxbnn.dvi.moments import GaussianMoments, activation_moments
from jaxbnn.dvi.monte_carlo import activation_draws, weight_draws
from jaxbnn.dvi.noise_likelihoods import FlooredGaussian, SoftplusGaussian
from jaxbnn.dvi.pairs import nodes_for
from jaxbnn.dvi.predictive import predictive, predictive_of
from jaxbnn.dvi.propagate import propagate
from jaxbnn.dvi.standardise import Standardisation, standardisation
from jaxbnn.dvi.training import Fit, FitProgress, fit

__all__ = [
    "DeterministicVI",
    "Fit",
    "FitProgress",
    "FlooredGaussian",
    "GaussianMoments",
    "SoftplusGaussian",
    "activation_moments",
    "as_distributions",
    "deterministic_vi",
    "empirical_bayes",
    "expected_log_likelihood",
    "expected_terms",
    "fit",
    "fitted_prior",
    "initial_position",
    "kl_divergence",
    "per_fan_in",
    "predictive",
    "predictive_of",
    "propagate",
    "standardisation",
    "weight_draws",
]
