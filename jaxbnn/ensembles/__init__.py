"""Ensembles of networks: trained starts, microcanonical chains from there, and then exact ones."""

from jaxbnn.ensembles.energy_error import EnergyError, energy_errors
from jaxbnn.ensembles.microcanonical import (
    adjusted_microcanonical,
    microcanonical,
    microcanonical_parameters,
)
from jaxbnn.ensembles.microcanonical_adaptation import microcanonical_adaptation
from jaxbnn.ensembles.recipe import EnsembleDraws, sample_ensemble
from jaxbnn.ensembles.training import OptimisedStarts, TrainingDiverged, optimised_starts
from jaxbnn.ensembles.way_in import WayIn

__all__ = [
    "OptimisedStarts",
    "TrainingDiverged",
    "adjusted_microcanonical",
    "energy_errors",
    "microcanonical",
    "microcanonical_adaptation",
    "microcanonical_parameters",
    "optimised_starts",
    "sample_ensemble",
]
