"""Gibbs sampling and the teacher-student criterion (Piccioli et al.): figures 1 to 4, and more."""

from experiments.studies.thermalization.criteria import CriteriaSettings, run_criteria
from experiments.studies.thermalization.faster import run_faster
from experiments.studies.thermalization.faster_settings import FasterSettings
from experiments.studies.thermalization.mnist import MnistSettings, run_mnist
from experiments.studies.thermalization.mnist_starts import StartsSettings, run_starts
from experiments.studies.thermalization.samplers import SamplersSettings, run_samplers
from experiments.study import Experiment

EXPERIMENTS = {
    "criteria": Experiment(CriteriaSettings, run_criteria),
    "faster": Experiment(FasterSettings, run_faster),
    "mnist": Experiment(MnistSettings, run_mnist),
    "mnist_starts": Experiment(StartsSettings, run_starts),
    "samplers": Experiment(SamplersSettings, run_samplers),
}
