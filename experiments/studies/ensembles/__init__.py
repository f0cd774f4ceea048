"""Ensembles of microcanonical chains: bias of unadjusted ones, more chains, kernels, metrics."""

from experiments.studies.ensembles.between_modes import BetweenModesSettings, run_between_modes
from experiments.studies.ensembles.bias import BiasSettings, run_bias
from experiments.studies.ensembles.exactness import ExactnessSettings, run_exactness
from experiments.studies.ensembles.metric import MetricSettings, run_metric
from experiments.studies.ensembles.modes import ModesSettings, run_modes
from experiments.study import Experiment

EXPERIMENTS = {
    "between_modes": Experiment(BetweenModesSettings, run_between_modes),
    "bias": Experiment(BiasSettings, run_bias),
    "exactness": Experiment(ExactnessSettings, run_exactness),
    "metric": Experiment(MetricSettings, run_metric),
    "modes": Experiment(ModesSettings, run_modes),
}
