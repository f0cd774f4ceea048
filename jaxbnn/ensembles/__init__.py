"""Ensembles of networks: microcanonical chains from trained starts, tuned, and then exact ones."""

from jaxbnn.ensembles.energy_error import EnergyError, energy_errors
from jaxbnn.ensembles.microcanonical import (
    adjusted_microcanonical,
    microcanonical,
    microcanonical_parameters,
)
from jaxbnn.ensembles.microcanonical_adaptation import microcanonical_adaptation
from jaxbnn.ensembles.way_in import EnsembleDraws, WayIn, sample_ensemble

__all__ = [
    "adjusted_microcanonical",
    "energy_errors",
    "microcanonical",
    "microcanonical_adaptation",
    "microcanonical_parameters",
    "sample_ensemble",
]
