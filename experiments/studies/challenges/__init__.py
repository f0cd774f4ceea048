"""Challenges in MCMC for neural networks (Papamarkou et al.): XOR and Iris."""

from experiments.studies.challenges.converged import ConvergedSettings, run_converged
from experiments.studies.challenges.evidence import EvidenceSettings, run_evidence
from experiments.studies.challenges.first_look import FirstLookSettings, run_first_look
from experiments.studies.challenges.gradient_descent import (
    GradientDescentSettings,
    run_gradient_descent,
)
from experiments.studies.challenges.iris import IrisSettings, run_iris
from experiments.studies.challenges.xor import XorSettings, run_xor
from experiments.study import Experiment

EXPERIMENTS = {
    "xor": Experiment(XorSettings, run_xor),
    "gradient_descent": Experiment(GradientDescentSettings, run_gradient_descent),
    "first_look": Experiment(FirstLookSettings, run_first_look),
    "iris": Experiment(IrisSettings, run_iris),
    "evidence": Experiment(EvidenceSettings, run_evidence),
    "iris_converged": Experiment(ConvergedSettings, run_converged),
}
