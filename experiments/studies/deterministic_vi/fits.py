"""One fit: a method and a recipe on all splits of a set, as one program, and its scores.

Test data are scored after the last update only (curves apart): they neither stop nor choose.
"""

import functools
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import optax
from jaxtyping import Array, Float, PyTree
from pydantic import Field

from experiments.studies.deterministic_vi.course import Course
from experiments.studies.deterministic_vi.problem import Splits
from experiments.study import Settings
from jaxbnn import (
    Activation,
    Dense,
    HeteroscedasticGaussian,
    LearnedGaussian,
    Network,
    Residual,
    dvi,
    mlp,
    networks,
)

Method = Literal[
    "DVI", "dDVI", "hoDVI", "DVI-MC", "DVI-MC-softplus", "MCVI", "MCVI-softplus", "rMCVI",
    "DVI-fixed", "MCVI-fixed",
]  # fmt: skip


class Recipe(Settings):
    """How a network is trained; the same for every method unless a config says so."""

    hidden_widths: tuple[int, ...] = (50,)
    skip_connections: bool = False  # around every hidden layer after the first
    mean_variance: float = Field(1.0, gt=0)  # of the initial means, divided by fan_in
    variance: float = Field(0.01, gt=0)  # of q to begin with, divided by fan_in
    alpha: float = Field(1.0, gt=0)
    beta: float = Field(10.0, gt=0)
    partition: Literal["tensor", "layer", "all"] = "tensor"
    include_hyperprior: bool = True
    fixed_variance: float | None = Field(None, gt=0)  # of a fixed prior instead
    learning_rate: float = Field(0.01, gt=0)
    final_learning_rate: float = Field(0.0, ge=0)  # a fraction of the first, after a cosine
    clip: float | None = Field(None, gt=0)  # of each entry of the gradient, in nats a datum
    num_updates: int = Field(10_000, ge=1)
    batch_size: int | None = Field(None, ge=1)
    kl_start: float = Field(0.0, ge=0, le=1)  # fraction of the updates made without divergence
    kl_end: float = Field(0.0, ge=0, le=1)  # and where it counts in full
    num_samples: int = Field(10, ge=1)
    moments: Literal["exact", "asymptotic"] = "exact"
    num_nodes: int | None = Field(None, ge=1)
    output_scale: tuple[float, ...] = (1.0,)
    output_shift: tuple[float, ...] = (0.0,)
    noise_floor: float | None = Field(None, gt=0)  # of variances exp(l); a scale, y standardised


class Scores(NamedTuple):
    """One number a split: mean test log likelihood in the units of y, by three densities; RMSE."""

    normal: Float[np.ndarray, " run"]
    exact: Float[np.ndarray, " run"]
    monte_carlo: Float[np.ndarray, " run"]
    rmse: Float[np.ndarray, " run"]


class Trained(NamedTuple):
    """An algorithm for evaluation, what was fitted, how long it took, and whether it converged.

    `watched` holds what was watched after each chunk, stacked, by name.
    `elbo_change` is by how many nats a datum the ELBO of all data moved over the last tenth of the
    updates (or from the last chunk that ended before), a number a run. The means over
    minibatches that `fit` keeps are too noisy for this: 5e-3 where nothing moves.
    """

    algorithm: dvi.DeterministicVI
    fit: dvi.Fit
    prior: Any
    seconds: float
    elbo_change: Float[np.ndarray, " run"]
    watched: Mapping[str, np.ndarray]


def train(
    key: Array,
    method: Method,
    recipe: Recipe,
    splits: Splits,
    *,
    prior: PyTree | None = None,
    num_chunks: int = 50,
    watch: Callable[[dvi.DeterministicVI, dvi.FitProgress], Mapping[str, Any]] | None = None,
    checkpoint: Path | None = None,
) -> Trained:
    """Fit q on every split; `prior` replaces the recipe's.

    `watch` is called after each chunk, for `Trained.watched`. With `checkpoint`, a folder, a fit
    that was stopped goes on where it was.
    """
    network = network_of(method, recipe, splits.x.shape[-1])
    prior = prior_of(method, network, recipe) if prior is None else prior
    build = functools.partial(_algorithm, method, recipe, network, prior)
    algorithm = build(num_nodes=recipe.num_nodes)
    key_start, key_fit = jax.random.split(key)
    starts = dvi.initial_position(
        key_start,
        network,
        mean_variance=recipe.mean_variance,
        variance=recipe.variance,
        log_noise_scale=0.0 if method == "hoDVI" else None,
        shape=(len(splits.x),),
    )
    course = Course(checkpoint, starts)

    def look(progress: dvi.FitProgress) -> None:
        course.note(progress)
        if watch is not None:
            course.saw(watch(algorithm, progress))

    fit = dvi.fit(
        key_fit,
        algorithm,
        starts,
        splits.x,
        splits.y,
        recipe.num_updates,
        own_data=True,
        batch_size=None if recipe.batch_size is None else min(recipe.batch_size, len(splits.y[0])),
        chunk_size=max(1, recipe.num_updates // num_chunks),
        progress=look,
        checkpoint=checkpoint,
    )
    jax.block_until_ready(fit.positions)
    count, elbo = recipe.num_updates, fit.elbo[:, -1]
    if watch is not None and course.last_watched < count:  # killed before the last look
        course.saw(watch(algorithm, dvi.FitProgress(count, count, 0.0, elbo, fit.positions)))
    seconds = course.seconds
    x, y = (jnp.asarray(v, jax.tree.leaves(starts)[0].dtype) for v in (splits.x, splits.y))
    elbos = jax.jit(functools.partial(_elbos, key_fit, algorithm))
    change = np.abs(elbos((fit.positions, x, y)) - elbos((course.before, x, y)))
    # Trained with few nodes, if the recipe says so, but evaluated with twelve.
    evaluated = build(num_nodes=12)
    return Trained(evaluated, fit, prior, seconds, np.asarray(change), course.watched)


def score(
    key: Array,
    algorithm: dvi.DeterministicVI,
    method: Method,
    positions: PyTree,
    splits: Splits,
    num_samples: int,
) -> Scores:
    """Score the test part of every split; see `scorer`."""
    return scorer(algorithm, method, splits, num_samples)(key, positions)


def scorer(
    algorithm: dvi.DeterministicVI, method: Method, splits: Splits, num_samples: int
) -> Callable[[Array, PyTree], Scores]:
    """Return a function of (key, positions) that scores the test part of every split.

    "normal" is the normal of the predictive's mean and variance (equation 9), "exact" the
    predictive density by quadrature, "monte_carlo" the mixture over draws of the outputs. Monte
    Carlo methods have draws only: for them exact is the mixture too. It is compiled once.
    """
    by_draws = is_monte_carlo(method)

    @jax.jit
    def of_all(positions, x, y, keys):
        def of_split(one):
            position, x, y, key = one
            drawn = algorithm.predict(
                position, x, density="monte_carlo", rng_key=key, num_samples=num_samples
            )
            if by_draws:
                exact, normal = drawn, dist.Normal(drawn.mean, jnp.sqrt(drawn.variance))
            else:
                # The quadrature's own variance is no match for (9) where l is uncertain: E exp(l)
                # lies beyond its last node.
                exact = algorithm.predict(position, x)
                normal = algorithm.predict(position, x, density="closed_form")
            rmse = jnp.sqrt(jnp.mean(jnp.square(exact.mean - y)))
            return (*(jnp.mean(p.log_prob(y)) for p in (normal, exact, drawn)), rmse)

        # One split after the other: draws of all at once would not fit into memory.
        return jax.lax.map(of_split, (positions, x, y, keys))

    def scores(key: Array, positions: PyTree) -> Scores:
        dtype = jax.tree.leaves(positions)[0].dtype
        x, y = (jnp.asarray(v, dtype) for v in (splits.x_test, splits.y_test))
        *logs, rmse = of_all(positions, x, y, jax.random.split(key, len(x)))
        shift = np.log(splits.y_scale)
        normal, exact, drawn = (np.asarray(v) - shift for v in logs)
        return Scores(normal, exact, drawn, np.asarray(rmse) * splits.y_scale)

    return scores


def is_monte_carlo(method: Method) -> bool:
    """Whether the method has draws and no moments."""
    return "MCVI" in method


def network_of(method: Method, recipe: Recipe, num_inputs: int) -> networks.Network:
    """Return the network: outputs (m, l), or m alone where the noise is one number."""
    outputs = 1 if method == "hoDVI" else 2
    if not recipe.skip_connections:
        return mlp((num_inputs, *recipe.hidden_widths, outputs))
    first, *rest = recipe.hidden_widths
    skips = [Residual((Activation("relu"), Dense(width))) for width in rest]
    layers: tuple[networks.Layer, ...] = (Dense(first), *skips, Activation("relu"), Dense(outputs))
    return Network(layers, (num_inputs,))


def likelihood_of(method: Method, noise_floor: float | None = None) -> Any:
    """Return the likelihood of a method; a floor is for variances that are exp(l)."""
    if method == "hoDVI":
        return LearnedGaussian()
    if "softplus" in method:
        return dvi.SoftplusGaussian()
    return HeteroscedasticGaussian() if noise_floor is None else dvi.FlooredGaussian(noise_floor)


def prior_of(method: Method, network: networks.Network, recipe: Recipe) -> Any:
    """Return empirical Bayes, or the fixed normal of the recipe."""
    if recipe.fixed_variance is not None:
        prior = dist.Normal(0.0, float(np.sqrt(recipe.fixed_variance)))
    else:
        prior = dvi.empirical_bayes(
            recipe.alpha,
            recipe.beta,
            partition=recipe.partition,
            include_hyperprior=recipe.include_hyperprior,
        )
    # Standardised targets: a noise scale of 1 is no knowledge at all, 0.05 two deviations off.
    if method == "hoDVI":
        return {"network": prior, "log_noise_scale": dist.Normal(0.0, 1.5)}
    return prior


def _elbos(
    key: Array, algorithm: dvi.DeterministicVI, runs: tuple[PyTree, Array, Array]
) -> Float[Array, " run"]:
    """Return the ELBO a datum of (positions, x, y), one a run, from all its data."""
    # One split after the other, as for scores. The same draws for all, where there are any.
    return jax.lax.map(lambda one: algorithm.elbo(*one, key).elbo, runs) / runs[2].shape[1]


def _algorithm(method, recipe, network, prior, *, num_nodes) -> dvi.DeterministicVI:
    names: dict[str, Any] = {"dDVI": "ddvi", "rMCVI": "rmcvi"}
    rate: Any = optax.cosine_decay_schedule(
        recipe.learning_rate, recipe.num_updates, recipe.final_learning_rate
    )
    optimizer = optax.adam(rate)
    if recipe.clip is not None:
        optimizer = optax.chain(optax.clip(recipe.clip), optimizer)
    start, end = (round(f * recipe.num_updates) for f in (recipe.kl_start, recipe.kl_end))
    return dvi.deterministic_vi(
        network,
        likelihood_of(method, recipe.noise_floor),
        prior,
        method=names.get(method, "mcvi" if is_monte_carlo(method) else "dvi"),
        optimizer=optimizer,
        kl_weight=1.0 if end == 0 else optax.linear_schedule(0.0, 1.0, max(end - start, 1), start),
        moments=recipe.moments,
        num_nodes=num_nodes,
        num_samples=recipe.num_samples,
        output_scale=_one_or_all(recipe.output_scale),
        output_shift=_one_or_all(recipe.output_shift),
    )


def _one_or_all(values: tuple[float, ...]) -> float | np.ndarray:
    return values[0] if len(values) == 1 else np.asarray(values)
