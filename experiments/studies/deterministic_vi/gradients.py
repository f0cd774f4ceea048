"""Figure 7a: variance of the gradient's Monte Carlo estimate, MCVI against local reparametrisation.

The gradient of the expected log likelihood of one datum, with respect to the variances of q of
the last layer's weights, at partly trained weights of the toy example. How far they were trained is
not printed, and the ratio of the two depends on it: it is measured at other numbers of updates too.
"""

import functools
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PyTree
from pydantic import Field

from experiments.studies.deterministic_vi import pictures
from experiments.studies.deterministic_vi.fits import Recipe, likelihood_of, network_of, train
from experiments.studies.deterministic_vi.problem import Splits, toy_data
from experiments.study import Context, Row, Settings
from jaxbnn import dvi

METHODS = {"MCVI": "mcvi", "rMCVI": "rmcvi"}


class GradientSettings(Settings):
    """How far q is trained, the numbers of draws, and how many estimates tell their variance."""

    recipe: Recipe
    num_data: int = Field(500, ge=2)
    samples: tuple[int, ...]
    num_estimates: int = Field(ge=10)
    at: float = 0.25
    other_updates: tuple[int, ...] = ()  # where the ratio is measured as well


def run_gradients(settings: GradientSettings, context: Context) -> list[Row]:
    """Estimate the variance, relative to that of MCVI with one draw, for every number of draws."""
    found = context.stage("gradients", lambda: _measured(settings.recipe, settings, context))
    variances = _variances(found, settings)
    unit, unit_error = variances["MCVI", 1]
    rows = []
    curves: dict[str, dict[int, float]] = {}
    for (method, samples), (variance, relative) in variances.items():
        ratio = variance / unit
        is_unit = (method, samples) == ("MCVI", 1)
        error = ratio * (relative if is_unit else float(np.hypot(relative, unit_error)))
        setting = f"{method} with {samples} sample{'s' * (samples > 1)}"
        source = "002 Figure 7" if is_unit else None
        rows.append(Row("relative_gradient_variance", setting, ratio, error, source))
        curves.setdefault(method, {})[samples] = ratio
    setting = "MCVI over rMCVI at equal gradient variance"
    rows.append(Row("sample_ratio", setting, *_ratio(variances, settings), "002 Figure 7"))
    for updates in settings.other_updates:
        recipe = settings.recipe.model_copy(update={"num_updates": updates})
        compute = functools.partial(_measured, recipe, settings, context)
        other = _variances(context.stage(f"gradients_{updates}", compute), settings)
        row = Row("sample_ratio", f"{setting}, {updates:,} updates", *_ratio(other, settings))
        rows.append(row)
    context.save_figure("figure_7a", pictures.gradients_figure(curves))
    return rows


Variances = Mapping[tuple[str, int], tuple[float, float]]


def _variances(found: Mapping[str, Any], settings: GradientSettings) -> Variances:
    """Return the variance by method and draws, and its relative error from ten blocks of draws."""
    return {
        (method, samples): _mean_and_relative_error(found[f"{method}_{samples}"])
        for method in METHODS
        for samples in settings.samples
    }


def _ratio(variances: Variances, settings: GradientSettings) -> tuple[float, float]:
    """Return how many draws of MCVI are worth one of rMCVI, and its standard error.

    Both variances fall as 1 / S, so that their ratio at any S is that of numbers of draws.
    """
    logs = [np.log(variances["MCVI", s][0] / variances["rMCVI", s][0]) for s in settings.samples]
    ratio = float(np.exp(np.mean(logs)))
    relative = np.sqrt(sum(error**2 for _, error in variances.values())) / len(logs)
    return ratio, ratio * float(relative)


def _mean_and_relative_error(blocks: Float[np.ndarray, " blocks"]) -> tuple[float, float]:
    mean = float(blocks.mean())
    return mean, float(blocks.std(ddof=1) / np.sqrt(len(blocks))) / mean


def _measured(recipe: Recipe, settings: GradientSettings, context: Context) -> dict[str, Any]:
    x, y = toy_data(context.seed, settings.num_data)
    splits = Splits(x[None], y[None], x[None], y[None], np.ones(1))
    key_train, key_draws = jax.random.split(context.key)
    trained = train(key_train, "dDVI", recipe, splits)
    q = jax.tree.map(lambda leaf: leaf[0], trained.fit.positions)
    nearest = int(np.argmin(np.abs(x[:, 0] - settings.at)))
    datum = jnp.asarray(x[nearest : nearest + 1], jnp.float32)
    target = jnp.asarray(y[nearest : nearest + 1], jnp.float32)
    found: dict[str, Any] = {}
    for number, (method, name) in enumerate(METHODS.items()):
        key_method = jax.random.fold_in(key_draws, number)
        for samples in settings.samples:
            algorithm = dvi.deterministic_vi(
                network_of("DVI", settings.recipe, 1),
                likelihood_of("DVI"),
                dvi.empirical_bayes(),
                method=name,  # type: ignore[arg-type]
                num_samples=samples,
                output_scale=np.asarray(settings.recipe.output_scale),
                output_shift=np.asarray(settings.recipe.output_shift),
            )
            key = jax.random.fold_in(key_method, samples)
            found[f"{method}_{samples}"] = _variance(
                key, algorithm, q, datum, target, settings.num_estimates
            )
    return found


def _variance(
    key: Array, algorithm: dvi.DeterministicVI, q: PyTree, x: Array, y: Array, count: int
) -> Float[np.ndarray, " blocks"]:
    """Return the mean over weights of the variance of d L / d s, from ten independent blocks."""
    log_scale = q.log_scale[-1]["w"]

    def expected(variances, key):
        last = {**q.log_scale[-1], "w": 0.5 * jnp.log(variances)}
        moved = q._replace(log_scale=(*q.log_scale[:-1], last))
        return algorithm.elbo(moved, x, y, key).expected_log_likelihood

    @jax.jit
    def of_block(keys):
        gradients = jax.lax.map(lambda key: jax.grad(expected)(jnp.exp(2 * log_scale), key), keys)
        return jnp.mean(jnp.var(gradients, axis=0, ddof=1))

    blocks = jax.random.split(key, (10, max(count // 10, 2)))
    return np.array([float(of_block(keys)) for keys in blocks])
