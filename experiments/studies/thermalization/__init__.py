"""Gibbs sampling and the teacher-student criterion (Piccioli et al.): figures 1 to 4, two more."""

from experiments.studies.thermalization.criteria import CriteriaSettings, run_criteria
from experiments.studies.thermalization.mnist import MnistSettings, run_mnist
from experiments.studies.thermalization.samplers import SamplersSettings, run_samplers
from experiments.study import Experiment

EXPERIMENTS = {
    "criteria": Experiment(CriteriaSettings, run_criteria),
    "mnist": Experiment(MnistSettings, run_mnist),
    "samplers": Experiment(SamplersSettings, run_samplers),
}
