"""DVI, dDVI and MCVI against long NUTS chains: one split, one model, one prior.

The prior is what empirical Bayes fits with DVI; all methods then take it as it is. Weights have
symmetric copies that chains may or may not visit, so that posteriors are compared by what they say
at the test inputs: outputs m and l (mean, standard deviation, covariance) and targets. Each chain
starts at the means of a DVI fit of its own: draws of the prior are so far from the data that
hundreds of steps of NUTS did not find it. R-hat tells whether the chains have since met.
"""

from collections.abc import Mapping
from typing import Any, Literal

import blackjax
import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jaxtyping import Float, PyTree
from pydantic import Field

from experiments.errors import InputError
from experiments.studies.deterministic_vi import pictures
from experiments.studies.deterministic_vi.fits import Method, Recipe, train
from experiments.studies.deterministic_vi.problem import Splits, whole_splits
from experiments.study import Context, Row, Settings
from jaxbnn import (
    HeteroscedasticGaussian,
    Posterior,
    diagnostics,
    dvi,
    mlp,
    networks,
    num_parameters,
    window_adaptation,
)

OUTPUTS = "ml"


class AgainstSettings(Settings):
    """The sets (first split), how the fits are trained, and the chains."""

    datasets: tuple[Literal["yach", "bost"], ...]
    methods: tuple[Method, ...] = ("DVI", "dDVI", "MCVI")
    recipe: Recipe
    num_chains: int = Field(4, ge=2)
    num_warmup: int = Field(1000, ge=10)
    num_draws: int = Field(1000, ge=10)
    thinning: int = Field(1, ge=1)
    max_doublings: int = Field(10, ge=1)
    num_vi_draws: int = Field(2000, ge=10)


def run_against(settings: AgainstSettings, context: Context) -> list[Row]:
    """Fit, sample and compare; a stage a method and set."""
    rows: list[Row] = []
    pictured: dict[str, dict[str, np.ndarray]] = {}
    for number, name in enumerate(settings.datasets):
        splits = whole_splits(name, 1)
        network = mlp((splits.x.shape[-1], *settings.recipe.hidden_widths, 2))
        keys = jax.random.split(jax.random.fold_in(context.key, number), 3)
        key_first, key_inference, key_chains = keys

        def first(key=key_first, splits=splits, name=name) -> dict[str, Any]:
            again = Splits(*(np.repeat(value, settings.num_chains, axis=0) for value in splits))
            folder = context.checkpoint(f"{name}_prior")
            trained = train(key, "DVI", settings.recipe, again, checkpoint=folder)
            _check_whole("DVI", trained.fit)
            q = jax.tree.map(lambda leaf: leaf[0], trained.fit.positions)
            prior = dvi.fitted_prior(trained.prior, q)
            leaves = jax.tree.leaves(prior, is_leaf=_is_distribution)
            means = jax.tree.leaves(trained.fit.positions.mean)
            return {
                "scales": [float(np.sqrt(d.variance).ravel()[0]) for d in leaves],
                **{f"start_{i}": leaf for i, leaf in enumerate(means)},
            }

        fitted = context.stage(f"{name}_prior", first)
        prior = _prior(network, fitted["scales"])
        found: dict[str, Mapping[str, np.ndarray]] = {}
        for method in settings.methods:
            stage = f"{name}_{method}"

            def of_fit(
                key=key_inference,
                method=method,
                splits=splits,
                network=network,
                prior=prior,
                stage=stage,
            ):
                folder = context.checkpoint(stage)
                return _by_inference(key, method, settings, splits, network, prior, folder)

            found[method] = context.stage(stage, of_fit)

        shapes, structure = jax.tree.flatten(networks.parameter_shapes(network))
        means = [jnp.asarray(fitted[f"start_{i}"]) for i in range(len(shapes))]
        starts = jax.tree.unflatten(structure, means)

        def of_chains(
            key=key_chains, splits=splits, network=network, prior=prior, starts=starts, name=name
        ):
            return _by_chains(key, settings, splits, network, prior, starts, context, name)

        found["NUTS"] = context.stage(f"{name}_NUTS", of_chains)
        rows += _rows(name, found)
        pictured[name] = {
            f"{method}_sd_{output}": arrays["sd"][i]
            for method, arrays in found.items()
            for i, output in enumerate(OUTPUTS)
        }
    context.save_figure("comparison", pictures.comparison_figure(pictured))
    return rows


def _by_inference(key, method, settings, splits, network, prior, checkpoint) -> dict[str, Any]:
    key_train, key_draws = jax.random.split(key)
    trained = train(key_train, method, settings.recipe, splits, prior=prior, checkpoint=checkpoint)
    _check_whole(method, trained.fit)
    state = jax.tree.map(lambda leaf: leaf[0], trained.fit.states)
    sampled = trained.algorithm.sample(key_draws, state, num_samples=settings.num_vi_draws)
    leaves = jax.tree.leaves(sampled)
    weights = np.concatenate([np.asarray(v).reshape(len(v), -1) for v in leaves], axis=1)
    summary = _summary(network, jax.tree.map(lambda leaf: leaf[None], sampled), splits)
    return summary | {
        "weight_sd": weights.std(axis=0),
        "elbo": trained.fit.elbo[:, -1] / splits.y.shape[1],
        "elbo_change": trained.elbo_change,
        "seconds": np.asarray(trained.seconds),
    }


def _check_whole(method: str, fit: dvi.Fit) -> None:
    """Stop where a fit diverged: its last finite q is not what the method gives."""
    if fit.diverged.any():
        raise InputError(
            f"A fit of {method} diverged after {fit.num_updates.min()} updates; give the recipe a "
            "smaller learning rate."
        )


def _by_chains(key, settings, splits, network, prior, starts, context, name) -> dict[str, Any]:
    x, y = (jnp.asarray(v[0], jnp.float32) for v in (splits.x, splits.y))
    target = Posterior(network, prior, HeteroscedasticGaussian(), x, y)
    count = settings.num_chains

    def make_kernel(parameters, target):
        return blackjax.nuts(
            target.log_density,
            parameters["step_size"],
            parameters["inverse_mass_matrix"],
            max_num_doublings=settings.max_doublings,
        )

    steps = settings.num_warmup + settings.num_draws * settings.thinning
    with context.timed(f"{name}, NUTS", steps * count):
        draws = context.sample(
            f"{name}_NUTS",
            key,
            make_kernel,
            starts,
            settings.num_draws,
            parameters={
                "step_size": jnp.full(count, 0.01, jnp.float32),
                "inverse_mass_matrix": jnp.ones((count, num_parameters(network)), jnp.float32),
            },
            data=target,
            num_warmup=settings.num_warmup,
            thinning=settings.thinning,
            adapt=window_adaptation(settings.num_warmup),
            collect=lambda state, info: state.position,
            progress=False,
        )
    positions = draws.positions
    weights = np.concatenate(
        [
            np.asarray(leaf).reshape(count, settings.num_draws, -1)
            for leaf in jax.tree.leaves(positions)
        ],
        axis=2,
    )
    return _summary(network, positions, splits) | {"weight_sd": weights.std(axis=1).mean(axis=0)}


def _summary(network: networks.Network, positions: PyTree, splits: Splits) -> dict[str, Any]:
    """Return what draws (chain, draw, ...) say at the test inputs.

    Mean and standard deviation of m and l (2, test), covariance of both over test inputs
    (2, test, test), mean test log likelihood in the units of y with its error by a jackknife over
    chains, R-hat of each output (2 test), and how many hidden units are off at every training row,
    so that the network is as if it had none of them (mean over draws).
    """
    x, y = (jnp.asarray(v[0], jnp.float32) for v in (splits.x_test, splits.y_test))
    apply = jax.jit(jax.vmap(lambda params: networks.apply(network, params, x)))
    chains = jax.tree.leaves(positions)[0].shape[0]
    outputs = np.stack(
        [np.asarray(apply(jax.tree.map(lambda v, c=c: v[c], positions))) for c in range(chains)]
    ).astype(np.float64)  # (chain, draw, test, 2)
    targets = np.asarray(y, np.float64)
    variance = np.exp(outputs[..., 1])
    terms = -0.5 * (np.log(2 * np.pi * variance) + (targets - outputs[..., 0]) ** 2 / variance)
    shift = np.log(splits.y_scale[0])

    def score(terms):
        top = terms.max(axis=0)
        return float(np.mean(top + np.log(np.exp(terms - top).mean(axis=0))) - shift)

    flat = terms.reshape(-1, terms.shape[-1])
    kept = []
    if chains > 1:
        left_out = (np.delete(terms, chain, axis=0) for chain in range(chains))
        kept = [score(some.reshape(-1, terms.shape[-1])) for some in left_out]
    error = np.sqrt((chains - 1) * np.var(kept)) if kept else np.nan
    both = np.moveaxis(outputs.reshape(-1, *outputs.shape[2:]), -1, 0)  # (2, draw, test)
    rhat = np.array([np.nan])
    if chains > 1:
        rhat = np.asarray(diagnostics.split_rhat(outputs.reshape(*outputs.shape[:2], -1)))
    return {
        "log_likelihood": score(flat),
        "log_likelihood_error": error,
        "mean": both.mean(axis=1),
        "sd": both.std(axis=1),
        "covariance": np.stack([np.cov(one, rowvar=False) for one in both]),
        "rhat": rhat,
        "units_off": _units_off(positions, splits.x[0]),
    }


def _units_off(positions: PyTree, x: Float[np.ndarray, "n d"]) -> float:
    """Return how many units of the first layer are positive at no row, mean over draws."""
    inputs = jnp.asarray(x, jnp.float32)

    def count(first: PyTree) -> jax.Array:
        return jnp.sum(jnp.max(inputs @ first["w"] + first["b"], axis=0) <= 0)

    flat = jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), positions[0])
    return float(jnp.mean(jax.lax.map(count, flat, batch_size=100)))


def _rows(name: str, found: Mapping[str, Mapping[str, np.ndarray]]) -> list[Row]:
    reference = found["NUTS"]
    rhats = reference["rhat"]
    rows = [
        Row("rhat_of_outputs_max", f"NUTS, {name}", float(rhats.max())),
        Row("rhat_of_outputs_median", f"NUTS, {name}", float(np.median(rhats))),
        Row("share_of_outputs_with_rhat_below_1.1", f"NUTS, {name}", float(np.mean(rhats < 1.1))),
    ]
    for method, arrays in found.items():
        setting = f"{method}, {name}"
        error = float(arrays["log_likelihood_error"])
        value = float(arrays["log_likelihood"])
        rows.append(
            Row("test_log_likelihood_of_draws", setting, value, None if np.isnan(error) else error)
        )
        rows.append(Row("hidden_units_off_at_every_row", setting, float(arrays["units_off"])))
        if method == "NUTS":
            continue
        rows.append(Row("elbo_a_datum", setting, float(arrays["elbo"][0])))
        rows.append(Row("elbo_change_over_last_tenth", setting, float(arrays["elbo_change"][0])))
        for i, output in enumerate(OUTPUTS):
            ratio = np.log(arrays["sd"][i] / reference["sd"][i])
            count = np.sqrt(len(ratio))
            rows.append(
                Row(
                    f"log_ratio_of_sd_of_{output}",
                    setting,
                    float(ratio.mean()),
                    float(ratio.std(ddof=1) / count),
                )
            )
            shift = (arrays["mean"][i] - reference["mean"][i]) / reference["sd"][i]
            rows.append(
                Row(f"mean_of_{output}_off_in_sds", setting, float(np.sqrt(np.mean(shift**2))))
            )
            rows.append(
                Row(
                    f"covariance_of_{output}_relative_error",
                    setting,
                    _relative(arrays["covariance"][i], reference["covariance"][i]),
                )
            )
        weights = np.log(arrays["weight_sd"] / reference["weight_sd"])
        rows.append(Row("log_ratio_of_sd_of_weights", setting, float(weights.mean())))
    return rows


def _relative(matrix: Float[np.ndarray, "n n"], reference: Float[np.ndarray, "n n"]) -> float:
    """Return |matrix - reference| / |reference| in the Frobenius norm."""
    return float(np.linalg.norm(matrix - reference) / np.linalg.norm(reference))


def _prior(network: networks.Network, scales: np.ndarray) -> PyTree:
    shapes = networks.parameter_shapes(network)
    leaves, structure = jax.tree.flatten(shapes)
    parts = []
    for leaf, scale in zip(leaves, scales, strict=True):
        centre = jnp.zeros(leaf.shape, jnp.float32)
        parts.append(dist.Normal(centre, jnp.float32(scale)).to_event(len(leaf.shape)))
    return jax.tree.unflatten(structure, parts)


def _is_distribution(node: Any) -> bool:
    return hasattr(node, "log_prob")
