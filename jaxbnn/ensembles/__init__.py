"""Ensembles of networks: starts by optimisation for the chains of an ordinary network."""

from jaxbnn.ensembles.training import OptimisedStarts, optimised_starts

__all__ = ["OptimisedStarts", "optimised_starts"]
