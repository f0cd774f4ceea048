"""Functional sampling of Bayesian neural-network posteriors in JAX.

A kernel is a pair `init(position, rng_key=None) -> state`, `step(rng_key, state) ->
(state, info)`: ours, BlackJAX's, or your own. `sample` runs any of them on many chains;
`diagnostics` and `plots` judge the draws.
"""

from jaxbnn import diagnostics, kernels, networks, numerics, plots, sampling, targets
from jaxbnn.diagnostics import summary
from jaxbnn.kernels import cycle, mix, on_block, pcn, pcnl, refresh, repeat, underdamped_langevin
from jaxbnn.networks import (
    Activation,
    AvgPool,
    Conv,
    Dense,
    Flatten,
    Network,
    Residual,
    mlp,
    network_summary,
    num_parameters,
)
from jaxbnn.sampling import (
    Adaptation,
    Draws,
    Reducer,
    acceptance,
    batch_means,
    complete,
    covariance,
    dual_averaging,
    moments,
    predictive_mean,
    sample,
    schedule,
    window_adaptation,
)
from jaxbnn.targets import (
    Posterior,
    bernoulli,
    categorical,
    cross_entropy,
    gaussian,
    heteroscedastic_gaussian,
    learned_gaussian,
    normal_prior,
    uniform_prior,
)

__version__ = "0.1.0"

__all__ = [
    "Activation",
    "Adaptation",
    "AvgPool",
    "Conv",
    "Dense",
    "Draws",
    "Flatten",
    "Network",
    "Posterior",
    "Reducer",
    "Residual",
    "acceptance",
    "batch_means",
    "bernoulli",
    "categorical",
    "complete",
    "covariance",
    "cross_entropy",
    "cycle",
    "diagnostics",
    "dual_averaging",
    "gaussian",
    "heteroscedastic_gaussian",
    "kernels",
    "learned_gaussian",
    "mix",
    "mlp",
    "moments",
    "network_summary",
    "networks",
    "normal_prior",
    "num_parameters",
    "numerics",
    "on_block",
    "pcn",
    "pcnl",
    "plots",
    "predictive_mean",
    "refresh",
    "repeat",
    "sample",
    "sampling",
    "schedule",
    "summary",
    "targets",
    "underdamped_langevin",
    "uniform_prior",
    "window_adaptation",
]
