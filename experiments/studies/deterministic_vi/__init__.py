"""Deterministic variational inference (Wu et al.): its tables and figures, and long MCMC runs."""

from experiments.studies.deterministic_vi.against_mcmc import AgainstSettings, run_against
from experiments.studies.deterministic_vi.curves import CurvesSettings, run_curves
from experiments.studies.deterministic_vi.gradients import GradientSettings, run_gradients
from experiments.studies.deterministic_vi.layer_times import RuntimeSettings, run_runtime
from experiments.studies.deterministic_vi.moments import MomentsSettings, run_moments
from experiments.studies.deterministic_vi.toy import ToySettings, run_toy
from experiments.studies.deterministic_vi.uci import UCISettings, run_uci
from experiments.studies.deterministic_vi.variations import VariationSettings, run_variations
from experiments.study import Experiment

EXPERIMENTS = {
    "uci": Experiment(UCISettings, run_uci),
    "variations": Experiment(VariationSettings, run_variations),
    "toy": Experiment(ToySettings, run_toy),
    "moments": Experiment(MomentsSettings, run_moments),
    "runtime": Experiment(RuntimeSettings, run_runtime),
    "curves": Experiment(CurvesSettings, run_curves),
    "variance": Experiment(GradientSettings, run_gradients),
    "against_mcmc": Experiment(AgainstSettings, run_against),
}
