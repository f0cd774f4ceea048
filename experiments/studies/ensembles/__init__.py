"""Ensembles of microcanonical chains: the bias of unadjusted ones, and what more chains say."""

from experiments.studies.ensembles.bias import BiasSettings, run_bias
from experiments.studies.ensembles.modes import ModesSettings, run_modes
from experiments.study import Experiment

EXPERIMENTS = {
    "bias": Experiment(BiasSettings, run_bias),
    "modes": Experiment(ModesSettings, run_modes),
}
