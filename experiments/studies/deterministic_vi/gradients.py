"""Figure 7a: variance of the gradient's Monte Carlo estimate, MCVI against local reparametrisation.

The gradient of the expected log likelihood of one datum, with respect to the variances of q of
the last layer's weights, at partly trained weights of the toy example. How far they were trained is
not printed, and the ratio of the two depends on it: it is measured at other numbers of updates too,
of several networks each.
"""

import functools
import operator
from collections.abc import Iterator, Mapping
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
    num_starts: int = Field(1, ge=1)  # networks that are trained; the error is of their spread
    at: float = 0.25
    other_updates: tuple[int, ...] = ()  # where the ratio is measured as well


def run_gradients(settings: GradientSettings, context: Context) -> list[Row]:
    """Estimate the variance, relative to that of MCVI with one draw, for every number of draws."""
    found = context.stage("gradients", lambda: _measured(settings.recipe, settings, context))
    variances = _variances(found, settings)
    unit = ("MCVI", 1)
    rows = []
    curves: dict[str, dict[int, float]] = {}
    for method, samples in variances:
        is_unit = (method, samples) == unit
        ratio, error = _relative(variances, [(method, samples)], [unit])
        setting = f"{method} with {samples} sample{'s' * (samples > 1)}"
        source = "002 Figure 7" if is_unit else None
        rows.append(Row("relative_gradient_variance", setting, ratio, error, source))
        curves.setdefault(method, {})[samples] = ratio
    setting = "MCVI over rMCVI at equal gradient variance"
    rows.append(Row("sample_ratio", setting, *_ratio(variances, settings), "002 Figure 7"))
    rows += _of_each_network(setting, variances, settings)
    for updates in settings.other_updates:
        recipe = settings.recipe.model_copy(update={"num_updates": updates})
        compute = functools.partial(_measured, recipe, settings, context)
        other = _variances(context.stage(f"gradients_{updates}", compute), settings)
        after = f"{setting}, {updates:,} updates"
        rows.append(Row("sample_ratio", after, *_ratio(other, settings)))
        rows += _of_each_network(after, other, settings)
    context.save_figure("figure_7a", pictures.gradients_figure(curves))
    return rows


Variances = Mapping[tuple[str, int], Float[np.ndarray, "start block"]]


def _variances(found: Mapping[str, Any], settings: GradientSettings) -> Variances:
    """Return the variance by method and draws, in each network and block of draws."""
    return {
        (method, samples): np.asarray(found[f"{method}_{samples}"])
        for method in METHODS
        for samples in settings.samples
    }


def _ratio(variances: Variances, settings: GradientSettings) -> tuple[float, float]:
    """Return how many draws of MCVI are worth one of rMCVI, and its standard error.

    Both variances fall as 1 / S, so that their ratio at any S is that of numbers of draws. The
    geometric mean over the networks.
    """
    return _relative(
        variances,
        [("MCVI", s) for s in settings.samples],
        [("rMCVI", s) for s in settings.samples],
    )


def _of_each_network(
    setting: str, variances: Variances, settings: GradientSettings
) -> Iterator[Row]:
    """Yield the ratio of each network by itself, with the error of its draws."""
    for network in range(settings.num_starts if settings.num_starts > 1 else 0):
        own = {name: values[network : network + 1] for name, values in variances.items()}
        yield Row("sample_ratio", f"{setting}, network {network + 1}", *_ratio(own, settings))


def _relative(
    variances: Variances, above: list[tuple[str, int]], below: list[tuple[str, int]]
) -> tuple[float, float]:
    """Return the geometric mean over networks, and pairs, of a ratio, and its standard error.

    The error is of the networks' spread; of one network, that of ten blocks of draws.
    """
    logs = np.mean(
        [
            np.log(variances[a].mean(-1) / variances[b].mean(-1))
            for a, b in zip(above, below, strict=True)
        ],
        axis=0,
    )
    if len(logs) > 1:
        error = logs.std(ddof=1) / np.sqrt(len(logs))
    else:
        parts = [*above, *below]
        error = np.sqrt(sum(_relative_error(variances[part][0]) ** 2 for part in parts)) / len(
            above
        )
    ratio = float(np.exp(logs.mean()))
    return ratio, ratio * float(error)


def _relative_error(blocks: Float[np.ndarray, " block"]) -> float:
    return float(blocks.std(ddof=1) / np.sqrt(len(blocks)) / blocks.mean())


def _measured(recipe: Recipe, settings: GradientSettings, context: Context) -> dict[str, Any]:
    x, y = toy_data(context.seed, settings.num_data)
    one = Splits(x[None], y[None], x[None], y[None], np.ones(1))
    splits = Splits(*(np.repeat(value, settings.num_starts, axis=0) for value in one))
    key_train, key_draws = jax.random.split(context.key)
    networks = train(key_train, "dDVI", recipe, splits).fit.positions
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
                key, algorithm, networks, datum, target, settings.num_estimates
            )
    return found


def _variance(
    key: Array, algorithm: dvi.DeterministicVI, networks: PyTree, x: Array, y: Array, count: int
) -> Float[np.ndarray, "start block"]:
    """Return the mean over weights of the variance of d L / d s, from ten independent blocks."""

    @jax.jit
    def of_block(q, keys):
        log_scale = q.log_scale[-1]["w"]

        def expected(variances, key):
            last = {**q.log_scale[-1], "w": 0.5 * jnp.log(variances)}
            moved = q._replace(log_scale=(*q.log_scale[:-1], last))
            return algorithm.elbo(moved, x, y, key).expected_log_likelihood

        gradients = jax.lax.map(lambda key: jax.grad(expected)(jnp.exp(2 * log_scale), key), keys)
        return jnp.mean(jnp.var(gradients, axis=0, ddof=1))

    num_starts = len(jax.tree.leaves(networks)[0])
    blocks = jax.random.split(key, (num_starts, 10, max(count // 10, 2)))
    found = np.empty((num_starts, 10))
    for start, block in np.ndindex(found.shape):
        q = jax.tree.map(operator.itemgetter(start), networks)
        found[start, block] = of_block(q, blocks[start, block])
    return found
