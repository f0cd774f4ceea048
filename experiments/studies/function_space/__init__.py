"""Function-space MCMC for wide networks (Pezzetti et al.): figures 1 to 4 and more.

Run on CIFAR-10, on reduced inputs; `samplers` holds the chains, `cells` runs them.
"""

from experiments.studies.function_space.cells import GridSettings
from experiments.studies.function_space.grid import (
    ConvergenceSettings,
    run_acceptance,
    run_convergence,
    run_ess,
)
from experiments.studies.function_space.nngp_limit import LimitSettings, run_limit
from experiments.study import Experiment

EXPERIMENTS = {
    "acceptance": Experiment(GridSettings, run_acceptance),
    "ess": Experiment(GridSettings, run_ess),
    "convergence": Experiment(ConvergenceSettings, run_convergence),
    "limit": Experiment(LimitSettings, run_limit),
}
