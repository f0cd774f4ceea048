"""Samplers of MLP(4, h, 3) on Iris, with and without the moves that make them converge."""

from collections.abc import Callable
from typing import Any, Literal

import blackjax
import jax
import jax.numpy as jnp
import numpy as np
from blackjax.base import SamplingAlgorithm
from blackjax.mcmc.metrics import gaussian_euclidean
from jaxtyping import Array, Float, PyTree

from jaxbnn import (
    Adaptation,
    Categorical,
    Posterior,
    cycle,
    diagnostics,
    dual_averaging,
    gauss_newton_metric,
    kernels,
    mlp,
    normal_prior,
    num_parameters,
    smmala,
    symmetry_moves,
    window_adaptation,
)

Sampler = Literal["HMC", "NUTS", "MALA", "SMMALA"]

LEAPFROG_STEPS = 8
JITTER = 0.5
# What each sampler's step size is tuned to.
TARGET_ACCEPTANCE = {"HMC": 0.75, "NUTS": 0.8, "MALA": 0.574, "SMMALA": 0.574}
START_STEP_SIZE = 0.05


def iris_posterior(hidden: int, prior_variance: float, data: PyTree) -> Posterior:
    """Return the posterior of MLP(4, hidden, 3) on all of Iris, raw features."""
    network = mlp((4, hidden, 3), activation="sigmoid")
    precision = 1 / prior_variance
    prior = normal_prior(network, weight_precision=precision, bias_precision=precision)
    return Posterior(network, prior, Categorical(), data["x"], data["y"])


def kernel_on(
    target: Posterior, sampler: Sampler, parameters: PyTree, *, with_moves: bool
) -> SamplingAlgorithm:
    """Return a sampler of a posterior, tempered or not, in a cycle with the moves if asked for.

    The moves: redraw each hidden unit's incoming weights from the prior, shift the classes, flip
    and permute the hidden units.
    """
    kernel = _sampler(target, sampler, parameters)
    if not with_moves:
        return kernel
    network: Any = target.network
    return cycle(
        kernel,
        kernels.redraw_units(network, target.prior, target.log_likelihood),
        symmetry_moves(network, target.prior, softmax=True),
    )


def _sampler(target: Posterior, sampler: Sampler, parameters: PyTree) -> SamplingAlgorithm:
    log_density, step_size = target.log_density, parameters["step_size"]
    if sampler == "MALA" and "inverse_mass_matrix" not in parameters:
        return blackjax.mala(log_density, step_size**2 / 2)  # its step is eps^2 / 2
    match sampler:
        case "HMC":
            metric = gaussian_euclidean(parameters["inverse_mass_matrix"])
            return kernels.jittered(
                lambda eps: blackjax.hmc(log_density, eps, metric, LEAPFROG_STEPS),
                step_size,
                jitter=JITTER,
            )
        case "NUTS":
            return blackjax.nuts(log_density, step_size, parameters["inverse_mass_matrix"])
        case "MALA":  # one leapfrog step of HMC, which has room for a metric
            metric = gaussian_euclidean(parameters["inverse_mass_matrix"])
            return blackjax.hmc(log_density, step_size, metric, 1)
        case _:
            metric = gauss_newton_metric(target)
            return smmala(log_density, step_size, softabs=None, metric=metric)


def _has_metric(sampler: Sampler, with_moves: bool) -> bool:
    """SMMALA has its own; MALA without the moves is the paper's."""
    return sampler != "SMMALA" and (with_moves or sampler != "MALA")


def start_parameters(sampler: Sampler, hidden: int, *, with_moves: bool) -> dict:
    """Return what is tuned, for one chain: a dense metric for the moves, else NUTS's diagonal."""
    parameters: dict = {"step_size": np.float32(START_STEP_SIZE)}
    if _has_metric(sampler, with_moves):
        dim = num_parameters(mlp((4, hidden, 3)))
        metric = np.eye(dim) if with_moves else np.ones(dim)
        parameters["inverse_mass_matrix"] = metric.astype(np.float32)
    return parameters


def tuning_of(
    sampler: Sampler, num_warmup: int, *, with_moves: bool, is_pooled: bool = True
) -> Adaptation:
    """Return how the library tunes a sampler in warm-up.

    With the moves, chains visit all copies of a mode, so that the metric comes from the gradients;
    without them, it is the usual warm-up, each chain for itself.
    """
    rate, component = TARGET_ACCEPTANCE[sampler], 0 if with_moves else None
    if not _has_metric(sampler, with_moves):
        return dual_averaging(rate, is_pooled=is_pooled, component=component)
    if not with_moves:
        return window_adaptation(num_warmup, target_acceptance_rate=rate)
    return window_adaptation(
        num_warmup,
        target_acceptance_rate=rate,
        metric="gradients",
        is_pooled=is_pooled,
        component=component,
    )


def starts_of(target: Posterior, key: Array, shape: tuple[int, ...], scale: float) -> PyTree:
    """Return starts: draws of the prior, shrunk by `scale`."""
    return jax.tree.map(lambda leaf: leaf * scale, target.sample_prior(key, shape))


def invariants_of(target: Posterior, x: Float[Array, "n d"]) -> Callable[[PyTree], dict]:
    """Return the function of the parameters that gives what does not tell the copies apart.

    The log density, all predicted probabilities, and the sorted norms of the units' incoming and
    outgoing weights. No permutation changes them, and no symmetry the predictions.
    """
    network: Any = target.network

    def invariants(params):
        incoming = jnp.sqrt(jnp.sum(params[0]["w"] ** 2, axis=0))
        outgoing = jnp.sqrt(jnp.sum(params[2]["w"] ** 2, axis=1))
        return {
            "log density": target.log_density(params),
            "predictions": jax.nn.softmax(network.apply(params, x), axis=-1).ravel(),
            "sorted norms": jnp.concatenate([jnp.sort(incoming), jnp.sort(outgoing)]),
        }

    return invariants


def every_draw(num_draws: int, most_draws: int) -> int:
    """Return which draws are kept of a run: every second, third, ... from twice `most_draws` on."""
    return max(1, num_draws // most_draws)


def measured(target: Posterior, positions: PyTree, most_draws: int) -> dict[str, np.ndarray]:
    """Return invariants and raw parameters of draws, thinned: leaves (chain, draw, dim)."""
    every = every_draw(jax.tree.leaves(positions)[0].shape[1], most_draws)
    positions = jax.tree.map(lambda leaf: leaf[:, ::every], positions)
    found = diagnostics.evaluate(invariants_of(target, target.x), positions)
    flat = [leaf.reshape(*leaf.shape[:2], -1) for leaf in jax.tree.leaves(positions)]
    arrays = {name: np.asarray(value) for name, value in found.items()}
    arrays["log density"] = arrays["log density"][..., None]
    return arrays | {"raw parameters": np.concatenate(flat, axis=-1)}
