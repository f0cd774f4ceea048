"""Tables 2, 3 and 5: UCI regression.

Settings are chosen by `search.toml` on parts of the training rows of five splits, which see no test
row of their own split; one choice, in `uci.toml`, serves all twenty, whose test rows are largely
training rows of the five.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import jax
import numpy as np
from jaxtyping import Float
from pydantic import Field

from experiments.studies.deterministic_vi import pictures
from experiments.studies.deterministic_vi.fits import (
    Method,
    Recipe,
    is_monte_carlo,
    score,
    train,
)
from experiments.studies.deterministic_vi.problem import (
    SETS,
    Splits,
    validation_splits,
    whole_splits,
)
from experiments.study import Context, Row, Settings

Dataset = Literal["bost", "conc", "ener", "kin8", "nava", "powe", "prot", "wine", "yach"]
Overrides = dict[str, Any]
Arrays = Mapping[str, np.ndarray]

# Which tables print a method.
TABLES: dict[str, tuple[str, ...]] = {
    "DVI": ("002 Table 2", "002 Table 3", "002 Table 5"),
    "dDVI": ("002 Table 2", "002 Table 3"),
    "hoDVI": ("002 Table 2",),
    "DVI-MC": ("002 Table 3",),
    "DVI-MC-softplus": ("002 Table 3",),
    "MCVI": ("002 Table 2", "002 Table 3", "002 Table 5"),
    "MCVI-softplus": ("002 Table 3",),
    "DVI-fixed": ("002 Table 5",),
    "MCVI-fixed": ("002 Table 5",),
}


class UCISettings(Settings):
    """The tables: data sets, methods, the recipe, and what a data set or a method departs in."""

    datasets: tuple[Dataset, ...]
    methods: tuple[Method, ...]
    num_splits: int = Field(20, ge=1)
    large: tuple[Dataset, ...] = ()  # of which the methods but DVI get fewer splits, the first ones
    num_splits_of_large: int = Field(5, ge=1)
    recipe: Recipe
    of_dataset: dict[Dataset, Overrides] = Field({})
    of_method: dict[Method, Overrides] = Field({})
    of_fit: dict[Method, dict[Dataset, Overrides]] = Field({})
    predictive_samples: int = Field(300, ge=2)
    fixed_variances: tuple[float, ...] = ()  # of which the -fixed methods choose, by validation
    validation_num_splits: int = Field(5, ge=1)


def run_uci(settings: UCISettings, context: Context) -> list[Row]:
    """Fit every method on every set, all splits at once, and score the test parts."""
    rows: list[Row] = []
    found: dict[tuple[str, str], Arrays] = {}
    for name in settings.datasets:
        # Not the place in this run's list: a run of other sets and methods reuses the stage.
        key = jax.random.fold_in(context.key, list(SETS).index(name))
        for method in settings.methods:
            if method == "DVI-MC":  # another predictive of the same fit
                continue
            recipe = _recipe(settings, name, method)
            is_cut = name in settings.large and method != "DVI"
            count = settings.num_splits_of_large if is_cut else settings.num_splits

            def compute(name=name, method=method, recipe=recipe, key=key, count=count) -> Arrays:
                folder = context.checkpoint(f"{name}_{method}")
                if method.endswith("-fixed"):
                    recipe = _tuned(key, method, recipe, name, settings, folder)
                splits = whole_splits(name, count)
                return fitted(key, method, recipe, splits, settings.predictive_samples, folder)

            of = depends_on(method, recipe, settings) | {"num_splits": count}
            arrays = context.stage(f"{name}_{method}", compute, of=of)
            context.record_speed(f"{name}, {method}", recipe.num_updates, float(arrays["seconds"]))
            found[name, method] = without_diverged(arrays)
        if "DVI-MC" in settings.methods and (name, "DVI") in found:
            found[name, "DVI-MC"] = found[name, "DVI"]
        for method in settings.methods:
            if (name, method) in found:
                rows += _rows(name, method, found[name, method])
    gain = _largest_gain(found, settings.datasets)
    context.save_figure("methods", pictures.methods_figure(_means(found), settings.methods))
    own_fits = {key: arrays for key, arrays in found.items() if key[1] != "DVI-MC"}
    context.save_figure("convergence", pictures.elbo_figure(own_fits))
    return rows + ([gain] if gain else [])


def fitted(
    key: jax.Array,
    method: Method,
    recipe: Recipe,
    splits: Splits,
    predictive_samples: int,
    checkpoint: Path | None = None,
) -> Arrays:
    """Train, score, and return arrays for a stage; with `checkpoint` a stopped one goes on."""
    key_train, key_score = jax.random.split(key)
    trained = train(key_train, method, recipe, splits, checkpoint=checkpoint)
    scores = score(
        key_score,
        trained.algorithm,
        method,
        trained.fit.positions,
        splits,
        predictive_samples,
    )
    return {
        **scores._asdict(),
        "elbo": trained.fit.elbo / splits.y.shape[1],
        "updates": trained.fit.updates,
        "elbo_change": trained.elbo_change,
        "diverged": trained.fit.diverged,
        "seconds": np.asarray(trained.seconds),
        "fixed_variance": np.asarray(recipe.fixed_variance or np.nan),
    }


def depends_on(method: Method, recipe: Recipe, settings: Settings) -> dict[str, Any]:
    """Return what a fit's arrays depend on besides its name, the seed and the versions."""
    shared = {"predictive_samples", "data", "num_splits"}
    if method.endswith("-fixed"):
        shared |= {"fixed_variances", "validation_num_splits"}
    found = {"recipe": recipe.model_dump(mode="json")} | settings.model_dump(include=shared)
    if method.endswith("-fixed") and (score := printed_score(method)) != "normal":
        found["chosen_by"] = score  # stages from before were chosen by "normal"
    return found


def _tuned(
    key: jax.Array,
    method: Method,
    recipe: Recipe,
    name: str,
    settings: UCISettings,
    checkpoint: Path | None,
) -> Recipe:
    """Choose the fixed prior's variance by validation parts of the training splits."""
    splits = validation_splits(name, settings.validation_num_splits)
    best, best_score = recipe, -np.inf
    for variance in settings.fixed_variances:
        candidate = recipe.model_copy(update={"fixed_variance": variance})
        folder = None if checkpoint is None else checkpoint / f"variance_{variance:g}"
        scores = fitted(key, method, candidate, splits, settings.predictive_samples, folder)
        value = scores[printed_score(method)].mean()  # what it will be judged by
        if not scores["diverged"].any() and value > best_score:
            best, best_score = candidate, value
    if best.fixed_variance is None:
        raise ValueError(
            "the -fixed methods need fixed_variances to choose from, and one without divergence."
        )
    return best


def _recipe(settings: UCISettings, name: str, method: Method) -> Recipe:
    return validated(
        settings.recipe.model_dump()
        | settings.of_dataset.get(name, {})  # type: ignore[call-overload]
        | settings.of_method.get(method, {})
        | settings.of_fit.get(method, {}).get(name, {})  # type: ignore[call-overload]
    )


def validated(values: Mapping[str, Any]) -> Recipe:
    """Return the recipe of values that TOML may have given as lists."""
    tuples = {key: tuple(v) if isinstance(v, list) else v for key, v in values.items()}
    return Recipe.model_validate(tuples)


def without_diverged(arrays: Mapping[str, np.ndarray]) -> Arrays:
    """Return the arrays with NaN for what is of runs that diverged: no mean leaves them out.

    Such a run holds its last finite q, which is not what the method gives.

    Examples
    --------
    >>> arrays = {"diverged": np.array([False, True]), "normal": np.ones(2), "exact": np.ones(2)}
    >>> without_diverged(arrays)["normal"].tolist()
    [1.0, nan]
    """
    of_runs = ("normal", "exact", "monte_carlo", "rmse", "elbo_change")
    masked = {
        name: np.where(arrays["diverged"], np.nan, arrays[name])
        for name in of_runs
        if name in arrays
    }
    return {**arrays, **masked}


def mean_and_error(values: Float[np.ndarray, " run"]) -> tuple[float, float | None]:
    """Return the mean over splits and its standard error; None for it of one, or of a NaN."""
    mean = float(values.mean())
    if len(values) == 1 or np.isnan(mean):
        return mean, None
    return mean, float(values.std(ddof=1) / np.sqrt(len(values)))


def printed_score(method: str) -> str:
    """Return which score the paper prints: equation (9), but where it draws.

    Examples
    --------
    >>> printed_score("dDVI"), printed_score("MCVI"), printed_score("DVI-MC-softplus")
    ('normal', 'exact', 'monte_carlo')
    """
    if method.startswith("DVI-MC"):
        return "monte_carlo"
    return "exact" if is_monte_carlo(method) else "normal"  # type: ignore[arg-type]


def _rows(name: str, method: str, arrays: Arrays) -> list[Row]:
    setting = f"{method}, {name}"
    printed = arrays[printed_score(method)]
    value, error = mean_and_error(printed)
    rows = [Row("test_log_likelihood", setting, value, error, s) for s in TABLES.get(method, ())]
    for quantity in ("normal", "exact", "monte_carlo"):
        rows.append(
            Row(f"test_log_likelihood_{quantity}", setting, *mean_and_error(arrays[quantity]))
        )
    rows.append(Row("test_log_likelihood_median", setting, float(np.median(printed))))
    rows.append(Row("test_rmse", setting, *mean_and_error(arrays["rmse"])))
    rows += convergence_rows(setting, arrays["elbo_change"])
    rows.append(Row("seconds", setting, float(arrays["seconds"])))
    rows.append(Row("num_splits", setting, len(printed)))
    rows.append(Row("num_diverged", setting, int(arrays["diverged"].sum())))
    if method.endswith("-fixed"):
        rows.append(Row("fixed_prior_variance", setting, float(arrays["fixed_variance"])))
    return rows


def convergence_rows(setting: str, change: Float[np.ndarray, " run"]) -> list[Row]:
    """Return by how much the ELBO a datum moved over the last tenth: its mean, and the largest."""
    name = "elbo_change_over_last_tenth"
    return [
        Row(name, setting, *mean_and_error(change)),
        Row(f"{name}_largest", setting, float(change.max())),
    ]


def _largest_gain(found: Mapping[tuple[str, str], Arrays], names: tuple[str, ...]) -> Row | None:
    """Return the largest mean gain of DVI over MCVI, by split; of sets where no fit diverged."""
    gains = []
    for name in names:
        both = [found[name, method] for method in ("DVI", "MCVI") if (name, method) in found]
        if len(both) == 2 and not any(arrays["diverged"].any() for arrays in both):
            ours, theirs = both[0]["normal"], both[1]["exact"]
            shared = min(len(ours), len(theirs))  # the same first splits
            gains.append(mean_and_error(ours[:shared] - theirs[:shared]))
    if not gains:
        return None
    value, error = max(gains)
    quantity = "max_test_log_likelihood_gain"
    return Row(quantity, "DVI over MCVI, all data sets", value, error, "002 Section 6")


def _means(found: Mapping[tuple[str, str], Arrays]) -> dict[tuple[str, str], tuple[float, float]]:
    result = {}
    for (name, method), arrays in found.items():
        value, error = mean_and_error(arrays[printed_score(method)])
        result[name, method] = (value, error or 0.0)
    return result
