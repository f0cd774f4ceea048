"""The posterior of a table, and four ways to sample it."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import blackjax
import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import optax
from blackjax.base import SamplingAlgorithm
from jaxtyping import Array, PRNGKeyArray, PyTree

from jaxbnn import dvi
from jaxbnn.cli.kinds import COUNTS
from jaxbnn.cli.progress import Progress, of_sampling, of_updates
from jaxbnn.cli.settings import FEWEST_DRAWS, Settings, check_sampler
from jaxbnn.gibbs import IntermediateNoise, gibbs_sampler
from jaxbnn.kernels import cycle, pcn, prior_precisions
from jaxbnn.networks import mlp
from jaxbnn.sampling import Draws, dual_averaging, sample, window_adaptation
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
    StudentT,
    hierarchical_prior,
    normal_prior,
)
from jaxbnn.targets.prior_trees import is_distribution

# An ELBO that rises by more nats a row than this at the end was stopped early.
_STILL_RISING = 1e-3
# A log mean of counts may lie far from zero.
_SD_OF_LOG_MEAN = 5.0
_MOST_SCALES_TOLD = 12
# Stages before the last have little noise: the network is nearly the deterministic one.
_INNER_NOISE_VARIANCE = 0.01


class Fitted(NamedTuple):
    """Draws with leaves (chain, draw, ...), the runner's own where it drew them, and remarks."""

    positions: PyTree
    draws: Draws | None
    notes: list[str]


def make_posterior(
    sampler: str, settings: Settings, x: np.ndarray, y: np.ndarray, num_classes: int | None
) -> Posterior:
    """Return the posterior: numbers with noise to be learnt, counts, or classes.

    Weights are N(0, s^2 / (fan_in tau)), with s = 2 in the first layer, for functions that bend
    within the range of the data, and s = 1 after it. By nuts, tau is learnt for each layer's
    weights and for its biases, tau ~ Gamma(2, 4): the standard deviations are those at tau = 1
    times a factor of median 1.5, between .92 and 3.4 with probability .9; with a heavier tail
    chains take long to settle. Otherwise the factor is `settings.prior_scale`, or 1.
    """
    name = settings.likelihood
    if name == "auto":
        name = "gaussian" if num_classes is None else "categorical"
    check_sampler(sampler, name)
    has_logits = name == "categorical"
    widths = (x.shape[1], *settings.hidden, (num_classes or 1) if has_logits else 1)
    network = mlp(widths, "relu" if sampler in ("gibbs", "dvi") else "tanh")
    likelihood, own = _likelihood(name, sampler, settings, num_classes)
    biases = [1.0] * (len(widths) - 2) + [_SD_OF_LOG_MEAN**-2 if name in COUNTS else 1.0]
    precisions: dict[str, Any] = {
        "weight_precision": _weight_precision(widths),
        "bias_precision": biases,
    }
    if settings.learns_precisions(sampler):
        prior: Any = hierarchical_prior(
            network,
            concentration=2.0,
            rate=4.0,
            relevance=settings.relevance,
            is_centred=False,
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
    degrees: Any = LogGamma(2.0, 0.1) if sampler == "nuts" else dist.Normal(2.7, 0.8)
    if name == "ordinal":
        gaps = dist.Normal(jnp.array([-1.0] + [0.0] * ((num_classes or 2) - 2)), 1.5)
        return Ordinal(num_classes or 2), {"cutpoint_gaps": gaps}
    known: dict[str, tuple[Likelihood, dict[str, Any]]] = {
        "categorical": (Categorical(), {}),
        "gaussian": (LearnedGaussian(), log_scale),
        "student-t": (StudentT(), log_scale | {"log_degrees": degrees}),
        "laplace": (Laplace(), log_scale),
        "poisson": (Poisson(), {}),
        "negative-binomial": (NegativeBinomial(), {"log_concentration": dist.Normal(1.0, 1.5)}),
    }
    return (Gaussian(settings.noise), {}) if sampler == "gibbs" else known[name]


def relevance_note(fitted: Fitted, names: Sequence[str]) -> str:
    """Return a sentence with the learnt scale of each column's weights, the largest first.

    Examples
    --------
    >>> draws = {"log_precision": ({"w": np.log([[[4.0, 0.01]]])},)}
    >>> relevance_note(Fitted(draws, None, []), ["sun", "moon"])
    "Learnt scales of the columns' weights, in units of the usual: moon 10, sun 0.5."
    """
    log_precision = np.asarray(fitted.positions["log_precision"][0]["w"], float)
    scales = np.exp(-0.5 * log_precision).reshape(-1, len(names)).mean(axis=0)
    order = np.argsort(-scales, kind="stable")
    shown = [f"{names[i]} {scales[i]:.2g}" for i in order[:_MOST_SCALES_TOLD]]
    rest = len(order) - len(shown)
    told = ", ".join(shown) + (f", and {rest} columns below" if rest else "")
    return f"Learnt scales of the columns' weights, in units of the usual: {told}."


def predicted(posterior: Posterior, x: np.ndarray) -> Callable[[PyTree], Array]:
    """Return what a position predicts at x: numbers, mean counts, or probabilities of classes.

    Probabilities, and not logits, which may all rise and fall together for nothing.
    """
    if jnp.issubdtype(posterior.y.dtype, jnp.integer):
        return lambda position: posterior.predictive(position, x).probs
    if isinstance(posterior.likelihood, Poisson | NegativeBinomial):
        return lambda position: jnp.exp(posterior.outputs(position, x))
    return lambda position: posterior.outputs(position, x)


def run(
    sampler: str,
    posterior: Posterior,
    settings: Settings,
    progress: Progress | None = None,
    checkpoint: Path | None = None,
) -> Fitted:
    """Sample a posterior; `checkpoint` is a folder from which an interrupted run goes on."""
    key = jax.random.key(settings.seed)
    told = Progress(is_quiet=True) if progress is None else progress
    told.begin("compiling", "the sampler")
    if sampler == "dvi":
        return _dvi(key, posterior, settings, of_updates(told))
    ways = {"nuts": _nuts, "pcn": _pcn, "gibbs": _gibbs}
    watch = {"progress": of_sampling(told), "checkpoint": checkpoint}
    fitted = ways[sampler](key, posterior, settings, watch)
    if fitted.draws is not None and fitted.draws.interrupted:
        kept = len(fitted.draws.steps)
        if kept < FEWEST_DRAWS:
            raise KeyboardInterrupt
        note = f"Interrupted: {kept} of {settings.samples} draws of each chain"
        note += ", and the same command goes on with the rest." if checkpoint else "."
        return fitted._replace(notes=[note, *fitted.notes])
    return fitted


def _weight_precision(widths: tuple[int, ...]) -> list[float]:
    return [widths[0] / 4] + [float(width) for width in widths[1:-1]]


def _nuts(
    key: PRNGKeyArray, posterior: Posterior, settings: Settings, watch: dict[str, Any]
) -> Fitted:
    key_start, key_run = jax.random.split(key)
    starts = posterior.sample_prior(key_start, (settings.chains,))
    learns = settings.learns_precisions("nuts")
    if learns:  # far out in their prior, gradients are too steep to begin with
        near = jax.tree.map(lambda leaf: jnp.clip(leaf, -2.0, 2.0), starts["log_precision"])
        starts = starts | {"log_precision": near}
    dim = sum(leaf[0].size for leaf in jax.tree.leaves(starts))

    def make_kernel(parameters, data):
        origin = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape[1:], leaf.dtype), starts)
        nuts = blackjax.nuts(
            data.log_density_from(origin),
            parameters["step_size"],
            parameters["inverse_mass_matrix"],
            max_num_doublings=6,
        )
        return cycle(nuts, prior_precisions(data)) if learns else nuts

    draws = sample(
        key_run,
        make_kernel,
        starts,
        settings.samples,
        num_warmup=settings.warmup,
        data=posterior,
        parameters={
            "step_size": 0.05,
            "inverse_mass_matrix": jnp.ones((settings.chains, dim)),
        },
        adapt=window_adaptation(settings.warmup, is_pooled=True, component=0 if learns else None),
        **watch,
    )
    divergent = 0 if draws.infos is None else int(np.sum(draws.infos.is_divergent))
    notes = [f"{divergent} of the trajectories diverged."] if divergent else []
    return Fitted(draws.positions, draws, notes)


def _pcn(
    key: PRNGKeyArray, posterior: Posterior, settings: Settings, watch: dict[str, Any]
) -> Fitted:
    key_start, key_run = jax.random.split(key)
    starts = posterior.sample_prior(key_start, (settings.chains,))

    def of_prior(name: str) -> PyTree:
        return jax.tree.map(
            lambda d: jnp.broadcast_to(jnp.asarray(getattr(d, name), jnp.float32), d.shape()),
            posterior.prior,
            is_leaf=is_distribution,
        )

    variance, mean = of_prior("variance"), of_prior("mean")

    def make_kernel(parameters: PyTree, data: Posterior) -> SamplingAlgorithm:
        return pcn(data.log_likelihood, parameters["step_size"], variance, mean=mean)

    draws = sample(
        key_run,
        make_kernel,
        starts,
        settings.samples,
        thinning=20,
        num_warmup=20 * settings.warmup,
        data=posterior,
        parameters={"step_size": 0.05},
        adapt=dual_averaging(0.25),
        **watch,
    )
    return Fitted(draws.positions, draws, ["Each kept draw is 20 steps of pCN."])


def _gibbs(
    key: PRNGKeyArray, posterior: Posterior, settings: Settings, watch: dict[str, Any]
) -> Fitted:
    key_start, key_run = jax.random.split(key)
    network: Any = posterior.network
    stages = [_INNER_NOISE_VARIANCE] * (len(network.layers) - 1) + [settings.noise**2]
    model = IntermediateNoise(
        network, stages, weight_precision=_weight_precision(_widths(posterior))
    )
    x, y = posterior.x, posterior.y
    starts = jax.vmap(lambda k: model.random_position(k, x, y))(
        jax.random.split(key_start, settings.chains)
    )
    draws = sample(
        key_run,
        lambda _, data: gibbs_sampler(model, *data),
        starts,
        settings.samples,
        thinning=5,
        num_warmup=5 * settings.warmup,
        data=(x, y),
        collect=lambda state, info: state.position.params,
        **watch,
    )
    notes = [
        f"The noise of {settings.noise:g} standard deviations of the target was given, not learnt "
        "(--noise); the hidden layers are noisy too, and predictions leave their noise out."
    ]
    return Fitted(draws.positions, draws, notes)


def _dvi(
    key: PRNGKeyArray,
    posterior: Posterior,
    settings: Settings,
    report: Callable[[dvi.FitProgress], None],
) -> Fitted:
    key_start, key_fit, key_draw = jax.random.split(key, 3)
    network: Any = posterior.network
    num_data = len(posterior.x)
    batch_size = num_data if num_data <= 1000 else 500
    learns_noise = "log_noise_scale" in posterior.likelihood.learned
    updates = max(10 * settings.warmup, 1)
    algorithm = dvi.deterministic_vi(
        network,
        posterior.likelihood,
        posterior.prior,
        method="ddvi",
        optimizer=optax.adam(optax.cosine_decay_schedule(1e-2, updates)),
    )
    starts = dvi.initial_position(
        key_start,
        network,
        variance=1e-2,
        log_noise_scale=-1.0 if learns_noise else None,
        shape=(1,),
        dtype=jnp.float32,
    )
    fit = dvi.fit(
        key_fit,
        algorithm,
        starts,
        posterior.x,
        posterior.y,
        updates,
        batch_size=batch_size,
        progress=report,
    )
    if fit.diverged[0]:
        raise ValueError("the fit of DVI diverged; take --sampler nuts, or fewer --hidden units.")
    state = jax.tree.map(lambda leaf: leaf[0], fit.states)
    number = settings.chains * settings.samples
    draws = algorithm.sample(key_draw, state, number)
    positions = jax.tree.map(lambda leaf: np.asarray(leaf)[None], draws)
    half = len(fit.elbo[0]) // 2
    gain = float(np.nanmean(fit.elbo[0, -half // 2 :]) - np.nanmean(fit.elbo[0, half : -half // 2]))
    note = f"ELBO {fit.elbo[0, -1]:.4g} nats, {gain:+.2g} over the last quarter of the updates"
    if gain > max(1.0, _STILL_RISING * num_data):
        note += ": still rising, so a larger --warmup may fit better"
    notes = [f"{note}."]
    return Fitted(positions, None, notes)


def _widths(posterior: Posterior) -> tuple[int, ...]:
    network: Any = posterior.network
    dense = [layer.features for layer in network.layers if hasattr(layer, "features")]
    return (*network.input_shape, *dense)
