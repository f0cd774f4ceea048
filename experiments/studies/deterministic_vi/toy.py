"""Figure 3: the toy example, its fit, and the outputs' law against Monte Carlo at x = 0.25."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree
from pydantic import Field

from experiments.studies.deterministic_vi import pictures
from experiments.studies.deterministic_vi.fits import (
    Method,
    Recipe,
    network_of,
    score,
    train,
)
from experiments.studies.deterministic_vi.problem import Splits, toy_data
from experiments.study import Context, Row, Settings
from jaxbnn import dvi


class ToySettings(Settings):
    """The toy example; the recipe's outputs are scaled and shifted, y is not standardised."""

    method: Method = "DVI"
    recipe: Recipe
    num_data: int = Field(500, ge=2)
    num_test: int = Field(5000, ge=2)
    num_starts: int = Field(1, ge=1)  # trained side by side; the one of the largest ELBO is kept
    at: float = 0.25
    num_monte_carlo: int = Field(20_000, ge=100)
    # "fitted prior mode": beta = (1 + alpha) v / fan_in, the authors' code; else the recipe's beta
    prior_variance_per_fan_in: float | None = Field(None, gt=0)
    variants: dict[str, dict[str, Any]] = Field({"2 layers": {}})  # departures from the recipe


def run_toy(settings: ToySettings, context: Context) -> list[Row]:
    """Train every variant, score it on fresh data, and compare moments of (m, l) with draws."""
    rows: list[Row] = []
    elbos = {}
    for number, (name, change) in enumerate(settings.variants.items()):
        recipe = Recipe.model_validate(
            settings.recipe.model_dump()
            | {k: tuple(v) if isinstance(v, list) else v for k, v in change.items()}
        )
        x, y = toy_data(context.seed, settings.num_data)
        x_test, y_test = toy_data(context.seed + 1, settings.num_test)
        one = Splits(x[None], y[None], x_test[None], y_test[None], np.ones(1))
        key = jax.random.fold_in(context.key, number)

        label = re.sub(r"[^A-Za-z0-9]+", "_", name)

        def compute(key=key, recipe=recipe, one=one, label=label) -> dict[str, Any]:
            return _fitted(key, recipe, one, settings, context.checkpoint(label))

        found = context.stage(label, compute)
        context.record_speed(name, recipe.num_updates, float(found["seconds"]))
        context.save_figure(
            f"figure_{label}", pictures.toy_figure(found, x, y, x_test, settings.at)
        )
        elbos[name, settings.method] = found
        is_the_paper_s = len(settings.variants) == 1
        rows += _rows(found, settings, "" if is_the_paper_s else f", {name}")
    context.save_figure("convergence", pictures.elbo_figure(elbos))
    return rows


def _fitted(
    key: jax.Array,
    recipe: Recipe,
    one: Splits,
    settings: ToySettings,
    checkpoint: Path | None,
) -> dict[str, Any]:
    splits = Splits(*(np.repeat(value, settings.num_starts, axis=0) for value in one))
    network = network_of(settings.method, recipe, 1)
    key_train, key_score, key_draws = jax.random.split(key, 3)
    prior = None
    if settings.prior_variance_per_fan_in is not None:
        beta = dvi.per_fan_in(network, (1 + recipe.alpha) * settings.prior_variance_per_fan_in)
        prior = dvi.empirical_bayes(
            recipe.alpha, beta, include_hyperprior=recipe.include_hyperprior
        )
    trained = train(key_train, settings.method, recipe, splits, prior=prior, checkpoint=checkpoint)
    start = dvi.initial_position(
        jax.random.split(key_train)[0],
        network,
        mean_variance=recipe.mean_variance,
        variance=recipe.variance,
        shape=(settings.num_starts,),
    )
    # Test data have no part in it.
    best = int(np.nanargmax(trained.fit.elbo[:, -1]))
    before, after = (
        jax.tree.map(lambda leaf: leaf[best], tree) for tree in (start, trained.fit.positions)
    )
    positions = jax.tree.map(lambda leaf: leaf[None], after)
    scores = score(key_score, trained.algorithm, settings.method, positions, one, 200)
    predicted = jax.jit(lambda q, x: _normal(trained.algorithm, settings.method, q, x))(
        after, jnp.asarray(splits.x_test[0], jnp.float32)
    )
    found: dict[str, Any] = {
        "elbo": trained.fit.elbo[best : best + 1] / settings.num_data,
        "elbos": trained.fit.elbo[:, -1] / settings.num_data,
        "updates": trained.fit.updates,
        "seconds": trained.seconds,
        "exact": scores.exact[0],
        "terms": predicted.log_prob(jnp.asarray(splits.y_test[0], jnp.float32)),
        "mean": predicted.mean,
        "variance": predicted.variance,
    }
    draw = jax.jit(lambda k, q, x: dvi.weight_draws(k, network, q, x, 500))
    moments = jax.jit(lambda q, x: dvi.propagate(network, q, x, num_nodes=12))
    for when, position in (("before", before), ("after", after)):
        key_when = jax.random.fold_in(key_draws, len(when))
        outputs = _outputs(key_when, draw, moments, position, recipe, settings)
        found |= {f"{name}_{when}": value for name, value in outputs.items()}
    return found


def _rows(found: dict[str, np.ndarray], settings: ToySettings, suffix: str) -> list[Row]:
    name, terms = "toy heteroscedastic regression" + suffix, found["terms"]
    error = float(terms.std(ddof=1) / np.sqrt(len(terms)))
    rows = [
        Row("test_log_likelihood", name, float(terms.mean()), error),
        Row("test_log_likelihood_exact", name, float(found["exact"]), error),
        Row("elbo_a_datum", name, float(found["elbo"][0, -1])),
        Row("elbo_a_datum_worst_start", name, float(np.nanmin(found["elbos"]))),
        Row("seconds", name, float(found["seconds"])),
    ]
    for when in ("before", "after"):
        draws = found[f"draws_{when}"]
        mean, covariance = found[f"mean_{when}"], found[f"covariance_{when}"]
        for i, output in enumerate("ml"):
            setting = f"{output} at x = {settings.at:g}, {when} training{suffix}"
            column, count = draws[:, i], len(draws)
            by_draws = float(column.mean()), float(column.std() / np.sqrt(count))
            # Of a standard deviation, by the fourth moment: these laws need not be normal.
            spread = float(column.std())
            fourth = float(np.mean((column - by_draws[0]) ** 4))
            spread_error = float(np.sqrt(max(fourth - spread**4, 0) / count) / (2 * spread))
            rows += [
                Row("output_mean_monte_carlo", setting, *by_draws),
                Row("output_mean_propagated", setting, float(mean[i]), 0.0),
                Row("output_sd_monte_carlo", setting, spread, spread_error),
                Row("output_sd_propagated", setting, float(np.sqrt(covariance[i, i])), 0.0),
            ]
    return rows


def _outputs(
    key: jax.Array,
    draw: Callable,
    propagated: Callable,
    position: PyTree,
    recipe: Recipe,
    settings: ToySettings,
) -> dict[str, Any]:
    """Return moments of (m, l) by propagation, and draws, on the likelihood's scale."""
    scale, shift = (np.resize(v, 2) for v in (recipe.output_scale, recipe.output_shift))
    x = jnp.full((1, 1), settings.at, jnp.float32)
    moments = propagated(position, x)
    blocks = -(-settings.num_monte_carlo // 500)
    draws = np.concatenate(
        [np.asarray(draw(jax.random.fold_in(key, i), position, x))[:, 0] for i in range(blocks)]
    )[: settings.num_monte_carlo]
    covariance = np.asarray(moments.covariance[0], np.float64) * np.outer(scale, scale)
    return {
        "draws": np.asarray(draws, np.float64) * scale + shift,
        "mean": np.asarray(moments.mean[0]) * scale + shift,
        "covariance": covariance,
    }


def _normal(algorithm: dvi.DeterministicVI, method: str, position: PyTree, x) -> Any:
    if "MCVI" in method:
        key = jax.random.key(0)
        return algorithm.predict(position, x, rng_key=key, num_samples=200)
    return algorithm.predict(position, x, density="closed_form")
