"""Ensembles of microcanonical chains: what the energy error of unadjusted ones does to draws."""

from experiments.studies.ensembles.bias import BiasSettings, run_bias
from experiments.study import Experiment

EXPERIMENTS = {"bias": Experiment(BiasSettings, run_bias)}
