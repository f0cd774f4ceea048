"""The posterior of a table: numbers with noise to be learnt, counts, or classes."""

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jaxtyping import Array, PyTree

from jaxbnn.networks import mlp
from jaxbnn.tabular.kinds import COUNTS
from jaxbnn.tabular.settings import LEARNING, Settings, check_sampler
from jaxbnn.targets import (
    Categorical,
    Gaussian,
    Laplace,
    LearnedGaussian,
    Likelihood,
    LogGamma,
    NegativeBinomial,
    Ordinal,
    Poisson,
    Posterior,
    SoftplusScaleGaussian,
    StudentT,
    hierarchical_prior,
    normal_prior,
)

# A log mean of counts may lie far from zero.
_SD_OF_LOG_MEAN = 5.0
# Likelihoods of counts, whose outputs are logarithms of means.
OF_COUNTS = (Poisson, NegativeBinomial)


def make_posterior(
    sampler: str, settings: Settings, x: np.ndarray, y: np.ndarray, num_classes: int | None
) -> Posterior:
    """Return the posterior: numbers with noise to be learnt, counts, or classes.

    Weights are N(0, s^2 / (fan_in tau)), with s of the first and the last layer as
    `settings.scales` has them, and s = 1 between. By nuts and ensemble,
    tau is learnt for each layer's weights and for its biases, tau ~ Gamma(2, 4): the standard
    deviations are those at tau = 1 times a factor of median 1.5, between .92 and 3.4 with
    probability .9; with a heavier tail chains of networks take long to settle. Without hidden
    layers those of classes have tau ~ Gamma(1, 1), a factor of median 1.2 between .58 and 4.4.
    Otherwise the factor is `settings.prior_scale`, or 1.
    """
    name = settings.likelihood
    if name == "auto":
        name = "gaussian" if num_classes is None else "categorical"
    check_sampler(sampler, name)
    outputs = {"categorical": num_classes or 1, "heteroscedastic": 2}.get(name, 1)
    widths = (x.shape[1], *settings.hidden, outputs)
    network = mlp(widths, settings.activation_of(sampler))
    likelihood, own = _likelihood(name, sampler, settings, num_classes)
    biases = [1.0] * (len(widths) - 2) + [_SD_OF_LOG_MEAN**-2 if name in COUNTS else 1.0]
    is_class = num_classes is not None
    scales = settings.scales(is_class=is_class)
    precisions: dict[str, Any] = {
        "weight_precision": weight_precision(widths, *scales),
        "bias_precision": biases,
    }
    if settings.learns_precisions(sampler):
        concentration, rate = (1.0, 1.0) if is_class and not settings.hidden else (2.0, 4.0)
        prior: Any = hierarchical_prior(
            network,
            concentration=concentration,
            rate=rate,
            relevance=settings.relevance,
            is_centred=settings.centred(is_class=is_class),
            likelihood=own,
            **precisions,
        )
        return Posterior(network, prior, likelihood, x, y)
    scale = settings.prior_scale or 1.0
    precisions = {key: [p / scale**2 for p in values] for key, values in precisions.items()}
    prior = normal_prior(network, **precisions)
    return Posterior(network, {"network": prior, **own} if own else prior, likelihood, x, y)


def _likelihood(
    name: str, sampler: str, settings: Settings, num_classes: int | None
) -> tuple[Likelihood, dict[str, Any]]:
    """Return a likelihood and priors of what it learns, in standard deviations of the target."""
    log_scale = {"log_noise_scale": dist.Normal(-1.0, 1.0)}
    # Normals where pCN needs them: about as wide as Gamma(2, 0.1) degrees of freedom.
    degrees: Any = LogGamma(2.0, 0.1) if sampler in LEARNING else dist.Normal(2.7, 0.8)
    if name == "ordinal":
        gaps = dist.Normal(jnp.array([-1.0] + [0.0] * ((num_classes or 2) - 2)), 1.5)
        return Ordinal(num_classes or 2), {"cutpoint_gaps": gaps}
    known: dict[str, tuple[Likelihood, dict[str, Any]]] = {
        "categorical": (Categorical(), {}),
        "heteroscedastic": (SoftplusScaleGaussian(settings.least_noise), {}),
        "gaussian": (LearnedGaussian(), log_scale),
        "student-t": (StudentT(), log_scale | {"log_degrees": degrees}),
        "laplace": (Laplace(), log_scale),
        "poisson": (Poisson(), {}),
        "negative-binomial": (NegativeBinomial(), {"log_concentration": dist.Normal(1.0, 1.5)}),
    }
    return (Gaussian(settings.noise), {}) if sampler == "gibbs" else known[name]


def predicted(posterior: Posterior, x: np.ndarray) -> Callable[[PyTree], Array]:
    """Return what a position predicts at x: numbers, mean counts, or probabilities of classes.

    Probabilities, and not logits, which may all rise and fall together for nothing. Where the
    network gives the noise, too, its logarithms are behind the numbers, (n, 2).
    """
    if jnp.issubdtype(posterior.y.dtype, jnp.integer):
        return lambda position: posterior.predictive(position, x).probs
    if isinstance(posterior.likelihood, OF_COUNTS):
        return lambda position: jnp.exp(posterior.outputs(position, x))
    if isinstance(posterior.likelihood, SoftplusScaleGaussian):

        def mean_and_noise(position: PyTree) -> Array:
            law = posterior.predictive(position, x)
            return jnp.stack([law.mean, 0.5 * jnp.log(law.variance)], axis=-1)

        return mean_and_noise
    return lambda position: posterior.outputs(position, x)


def weight_precision(
    widths: tuple[int, ...], first_scale: float = 2.0, last_scale: float = 1.0
) -> list[float]:
    """Return the precision of each layer's weights; of a single layer, by the first scale."""
    scales = [first_scale] + [1.0] * (len(widths) - 3) + [last_scale] * (len(widths) > 2)
    return [fan_in / scale**2 for fan_in, scale in zip(widths[:-1], scales, strict=True)]
