"""Five ways to sample the posterior of a table.

The functions that make kernels are kept for the next posterior of the same shapes, so that folds of
a cross-validation, and a second fit, run the programs that the first one compiled.
"""

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import blackjax
import jax
import jax.numpy as jnp
import numpy as np
import optax
from blackjax.base import SamplingAlgorithm
from jaxtyping import ArrayLike, Float, PRNGKeyArray, PyTree

from jaxbnn import dvi
from jaxbnn.gibbs import IntermediateNoise, gibbs_sampler
from jaxbnn.kernels import cycle, on_vector, pcn, prior_precisions
from jaxbnn.networks import Network
from jaxbnn.sampling import dual_averaging, sample, window_adaptation
from jaxbnn.tabular.ensemble import by_ensemble
from jaxbnn.tabular.fitted import Fitted
from jaxbnn.tabular.posteriors import OF_COUNTS, weight_precision
from jaxbnn.tabular.settings import FEWEST_DRAWS, Settings
from jaxbnn.targets import Posterior
from jaxbnn.targets.prior_trees import is_distribution

# An ELBO that rises by more nats a row than this at the end was stopped early.
_STILL_RISING = 1e-3
# Of the ELBO's curve, which has a value an epoch; from so many on its last quarter has one.
_FEWEST_EPOCHS = 4
# Rows of dvi's batches: more only where there would be fewer epochs, and so many at most.
_BATCH, _LARGEST_BATCH = 500, 10_000
# Shapes whose programs are kept, of each sampler.
_MOST_KEPT = 8
# How far from the reference chains of counts begin, in standard deviations of the prior.
_SPREAD_OF_COUNTS = 0.2
# Parameters of a linear model up to which NUTS learns a matrix as its metric, and not a diagonal.
_MOST_DENSE = 100
# What NUTS's steps are tuned to. Where scales of the prior are learnt, twice as many trajectories
# diverge at .8, and neither R-hat nor processor time is better.
_ACCEPTANCE, _ACCEPTANCE_OF_LEARNT = 0.8, 0.9
# Stages before the last have little noise: the network is nearly the deterministic one.
_INNER_NOISE_VARIANCE = 0.01


def run(
    sampler: str,
    posterior: Posterior,
    settings: Settings,
    progress: bool | Callable[[Any], None] = False,
    checkpoint: Path | None = None,
) -> Fitted:
    """Sample a posterior; `checkpoint` is a folder from which an interrupted run goes on.

    `progress` is what `sample`, or of dvi `dvi.fit`, takes by that name.
    """
    key = jax.random.key(settings.seed)
    if sampler == "dvi":
        return _dvi(key, posterior, settings, progress, checkpoint)
    ways = {"nuts": _nuts, "ensemble": by_ensemble, "pcn": _pcn, "gibbs": _gibbs}
    watch = {"progress": progress, "checkpoint": checkpoint}
    fitted = ways[sampler](key, posterior, settings, watch)
    if fitted.draws is not None and fitted.draws.interrupted:
        kept = len(fitted.draws.steps)
        if kept < FEWEST_DRAWS:
            raise KeyboardInterrupt
        note = f"Interrupted: {kept} of {settings.samples} draws of each chain"
        note += ", and the same command goes on with the rest." if checkpoint else "."
        return fitted._replace(notes=[note, *fitted.notes])
    return fitted


def _nuts(
    key: PRNGKeyArray, posterior: Posterior, settings: Settings, watch: dict[str, Any]
) -> Fitted:
    key_start, key_run = jax.random.split(key)
    num_chains = settings.chains_of("nuts")
    starts = posterior.sample_prior(key_start, (num_chains,))
    if isinstance(
        posterior.likelihood, OF_COUNTS
    ):  # exponentials: a prior's spread is far too wide
        near = lambda at, draw: at + _SPREAD_OF_COUNTS * draw  # noqa: E731
        starts = jax.tree.map(near, _reference(posterior), starts)
    learns = settings.learns_precisions("nuts")
    if learns:  # far out in their prior, gradients are too steep to begin with
        near = jax.tree.map(lambda leaf: jnp.clip(leaf, -2.0, 2.0), starts["log_precision"])
        starts = starts | {"log_precision": near}
    dim = sum(leaf[0].size for leaf in jax.tree.leaves(starts))
    # Of a linear model the categories of a column and the bias are known as sums alone.
    is_dense = not settings.hidden and dim <= min(_MOST_DENSE, num_chains * settings.warmup / 4)
    first = jnp.eye(dim) if is_dense else jnp.ones(dim)

    draws = sample(
        key_run,
        _nuts_for(posterior.network, posterior.x.shape, learns),
        starts,
        settings.samples,
        num_warmup=settings.warmup,
        data=posterior,
        parameters={
            "step_size": 0.05,
            "inverse_mass_matrix": jnp.broadcast_to(first, (num_chains, *first.shape)),
        },
        adapt=window_adaptation(
            settings.warmup,
            target_acceptance_rate=_ACCEPTANCE_OF_LEARNT if learns else _ACCEPTANCE,
            is_pooled=True,
            component=0 if learns else None,
        ),
        **watch,
    )
    flags = () if draws.infos is None else draws.infos.is_divergent
    divergent, kept = int(np.sum(flags)), np.size(flags)
    notes = [f"{divergent:,} of the {kept:,} kept trajectories diverged."] if divergent else []
    return Fitted(draws.positions, draws, notes)


@functools.lru_cache(_MOST_KEPT)
def _nuts_for(network: Network, shape: tuple[int, ...], learns: bool) -> Callable:
    def make_kernel(parameters: PyTree, data: Posterior) -> SamplingAlgorithm:
        log_density = data.log_density_from(_reference(data))
        nuts = on_vector(
            lambda whole: blackjax.nuts(
                lambda vector: log_density(whole(vector)),
                parameters["step_size"],
                parameters["inverse_mass_matrix"],
                max_num_doublings=6,
            )
        )
        return cycle(nuts, prior_precisions(data)) if learns else nuts

    return make_kernel


def _reference(posterior: Posterior) -> PyTree:
    """Return the position that log densities are differences from: zeros, of counts their mean.

    Counts of a hundred thousand have log densities of -1e8 where the mean is 1: from there, float32
    keeps whole nats of the differences between positions that are likely.
    """
    shapes = jax.eval_shape(posterior.sample_prior, jax.random.key(0))
    zeros = jax.tree.map(lambda s: jnp.zeros(s.shape, s.dtype), shapes)
    if not isinstance(posterior.likelihood, OF_COUNTS):
        return zeros

    def with_bias(value: ArrayLike) -> PyTree:
        layers = zeros["network"] if isinstance(zeros, dict) else zeros
        last = layers[-1] | {"b": jnp.full_like(layers[-1]["b"], value)}
        layers = (*layers[:-1], last)
        return zeros | {"network": layers} if isinstance(zeros, dict) else layers

    # Prior scales may stand between a bias and what it does.
    of_one = posterior.outputs(with_bias(1.0), posterior.x[:1]).squeeze()
    return with_bias(jnp.log(jnp.maximum(jnp.mean(posterior.y), 1.0)) / of_one)


def _pcn(
    key: PRNGKeyArray, posterior: Posterior, settings: Settings, watch: dict[str, Any]
) -> Fitted:
    key_start, key_run = jax.random.split(key)
    starts = posterior.sample_prior(key_start, (settings.chains_of("pcn"),))

    draws = sample(
        key_run,
        _pcn_for(posterior.network, posterior.x.shape),
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


@functools.lru_cache(_MOST_KEPT)
def _pcn_for(network: Network, shape: tuple[int, ...]) -> Callable:
    def of_prior(data: Posterior, name: str) -> PyTree:
        return jax.tree.map(
            lambda d: jnp.broadcast_to(jnp.asarray(getattr(d, name), jnp.float32), d.shape()),
            data.prior,
            is_leaf=is_distribution,
        )

    def make_kernel(parameters: PyTree, data: Posterior) -> SamplingAlgorithm:
        variance, mean = of_prior(data, "variance"), of_prior(data, "mean")
        return pcn(data.log_likelihood, parameters["step_size"], variance, mean=mean)

    return make_kernel


def _gibbs(
    key: PRNGKeyArray, posterior: Posterior, settings: Settings, watch: dict[str, Any]
) -> Fitted:
    key_start, key_run = jax.random.split(key)
    scale = settings.prior_scale or 1.0
    model, make_kernel = _gibbs_for(posterior.network, posterior.x.shape, settings.noise, scale)
    x, y = posterior.x, posterior.y
    starts = jax.vmap(lambda k: model.random_position(k, x, y))(
        jax.random.split(key_start, settings.chains_of("gibbs"))
    )
    draws = sample(
        key_run,
        make_kernel,
        starts,
        settings.samples,
        thinning=5,
        num_warmup=5 * settings.warmup,
        data=(x, y),
        collect=_params_of,
        **watch,
    )
    notes = [
        f"The noise of {settings.noise:g} standard deviations of the target was given (noise), "
        "not learnt; the hidden layers are noisy too, and predictions leave their noise out."
    ]
    return Fitted(draws.positions, draws, notes)


@functools.lru_cache(_MOST_KEPT)
def _gibbs_for(
    network: Network, shape: tuple[int, ...], noise: float, scale: float
) -> tuple[IntermediateNoise, Callable]:
    stages = [_INNER_NOISE_VARIANCE] * (len(network.layers) - 1) + [noise**2]
    precisions = [p / scale**2 for p in weight_precision(_widths(network))]
    model = IntermediateNoise(
        network, stages, weight_precision=precisions, bias_precision=scale**-2
    )

    def make_kernel(parameters: PyTree, data: tuple) -> SamplingAlgorithm:
        return gibbs_sampler(model, *data)

    return model, make_kernel


def _params_of(state: Any, info: Any) -> PyTree:
    return state.position.params


def _dvi(
    key: PRNGKeyArray,
    posterior: Posterior,
    settings: Settings,
    progress: bool | Callable[[Any], None],
    checkpoint: Path | None,
) -> Fitted:
    key_start, key_fit, key_draw = jax.random.split(key, 3)
    network: Any = posterior.network
    num_data = len(posterior.x)
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
        batch_size=_batch_size(num_data, updates),
        progress=progress,
        checkpoint=checkpoint,
    )
    if fit.diverged[0]:
        raise ValueError("the fit of DVI diverged; take the sampler nuts, or fewer hidden units.")
    state = jax.tree.map(lambda leaf: leaf[0], fit.states)
    number = settings.chains_of("dvi") * settings.samples
    draws = algorithm.sample(key_draw, state, number)
    positions = jax.tree.map(lambda leaf: np.asarray(leaf)[None], draws)
    gain = _gain_at_the_end(fit.elbo[0])
    # Of an unknown gain this holds, too.
    is_unfinished = not gain <= max(1.0, _STILL_RISING * num_data)
    note = f"ELBO {fit.elbo[0, -1]:.4g} nats"
    if np.isnan(gain):
        note += (
            f" after {updates:,} updates, too few for {num_data:,} rows to tell whether it was "
            "still rising: a longer warm-up tells"
        )
    else:
        note += f", {gain:+.2g} over the last quarter of the updates"
        note += ": still rising, so a longer warm-up may fit better" if is_unfinished else ""
    return Fitted(positions, None, [f"{note}."], is_unfinished=is_unfinished)


def _batch_size(num_data: int, updates: int) -> int:
    """Return the rows of a batch, such that there are enough epochs to judge the ELBO by."""
    if num_data <= 2 * _BATCH:
        return num_data
    if updates > (_FEWEST_EPOCHS - 1) * (num_data // _BATCH):
        return _BATCH
    return max(_BATCH, min(-(-_FEWEST_EPOCHS * num_data // updates), _LARGEST_BATCH, num_data))


def _gain_at_the_end(elbo: Float[np.ndarray, " chunk"]) -> float:
    """Return by how much the last quarter is above the one before; NaN of fewer than 3 values."""
    half = len(elbo) // 2
    last, before = elbo[-half // 2 :], elbo[half : -half // 2]
    return float(np.nanmean(last) - np.nanmean(before)) if len(before) else np.nan


def _widths(network: Any) -> tuple[int, ...]:
    dense = [layer.features for layer in network.layers if hasattr(layer, "features")]
    return (*network.input_shape, *dense)
