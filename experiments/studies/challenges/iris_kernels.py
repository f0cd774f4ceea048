"""The samplers of the Iris experiments, as `make_kernel(parameters, data)`; step sizes are eps."""

import functools
from collections.abc import Callable

import blackjax
import numpy as np

from jaxbnn import (
    Categorical,
    Posterior,
    mlp,
    normal_prior,
    posterior_hessian,
    power_posterior,
    smmala,
)

NETWORK = mlp((4, 3, 3), activation="sigmoid")
NUM_PARAMETERS = 27
SOFTABS = 1000.0  # the authors' alpha


def posterior(prior_variance: float, data) -> Posterior:
    """Return the posterior of MLP(4, 3, 3) on all of Iris, raw features."""
    precision = 1 / prior_variance
    prior = normal_prior(NETWORK, weight_precision=precision, bias_precision=precision)
    return Posterior(NETWORK, prior, Categorical(), data["x"], data["y"])


@functools.cache  # one object for all seeds, so that it is compiled once
def kernel_factory(
    sampler: str, prior_variance: float, num_replicas: int, swap_every: int
) -> Callable:
    """Return `make_kernel(parameters, data)` of a sampler.

    Parameters
    ----------
    sampler
        "MALA", "SMMALA" or "NUTS"; or "P-MALA" or "P-SMMALA", power posteriors of them with all
        temperatures 1, as in the paper.
    prior_variance
        Of the normal prior.
    num_replicas, swap_every
        Of the power posteriors: replicas, and steps from one round of swaps to the next.
    """

    def simple(target, parameters, name):
        if name == "NUTS":
            metric = parameters["inverse_mass_matrix"]
            return blackjax.nuts(target.log_density, parameters["step_size"], metric)
        if name == "MALA":  # BlackJAX's step is eps^2 / 2
            return blackjax.mala(target.log_density, parameters["step_size"] ** 2 / 2)
        metric = posterior_hessian(target)
        return smmala(target.log_density, parameters["step_size"], softabs=SOFTABS, metric=metric)

    def make_kernel(parameters, data):
        target = posterior(prior_variance, data)
        if not sampler.startswith("P-"):
            return simple(target, parameters, sampler)
        return power_posterior(
            lambda temperature, _: simple(target, parameters, sampler.removeprefix("P-")),
            target.log_prior,
            target.log_likelihood,
            np.ones(num_replicas, np.float32),
            swap_every=swap_every,
        )

    return make_kernel
