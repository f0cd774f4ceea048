"""Functional sampling of Bayesian neural-network posteriors in JAX."""

from jaxbnn.sampling import *  # noqa: F403
