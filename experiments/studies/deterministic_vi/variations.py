"""Named departures from a recipe, one at a time, scored on test or on validation data."""

import re
from collections.abc import Mapping
from typing import Literal

import jax
import numpy as np
from pydantic import Field

from experiments.studies.deterministic_vi import pictures
from experiments.studies.deterministic_vi.fits import Method, Recipe
from experiments.studies.deterministic_vi.problem import validation_splits, whole_splits
from experiments.studies.deterministic_vi.uci import (
    Arrays,
    Dataset,
    Overrides,
    convergence_rows,
    depends_on,
    fitted,
    mean_and_error,
    validated,
    without_diverged,
)
from experiments.study import Context, Row, Settings


class VariationSettings(Settings):
    """One recipe and named departures from it, each on the same splits."""

    datasets: tuple[Dataset, ...]
    methods: tuple[Method, ...]
    num_splits: int = Field(ge=1)
    data: Literal["validation", "test"]
    recipe: Recipe
    of_dataset: dict[Dataset, Overrides] = Field({})
    variations: dict[str, Overrides]
    predictive_samples: int = Field(100, ge=2)
    seeds: int = Field(1, ge=1)  # starts of the first variation, a row each if more than one
    against: str = ""  # name of the picture's axis: the variations' fixed_variance, say


def run_variations(settings: VariationSettings, context: Context) -> list[Row]:
    """Fit every variation; rows and a picture of mean log likelihood of what was set aside."""
    rows: list[Row] = []
    found: dict[tuple[str, str, str], Arrays] = {}
    part = whole_splits if settings.data == "test" else validation_splits
    for name in settings.datasets:
        splits = None
        for method in settings.methods:
            base = settings.recipe.model_dump() | settings.of_dataset.get(name, {})
            for label, change in settings.variations.items():
                recipe = validated(base | change)
                for seed in range(_starts(label, settings)):
                    splits = splits or part(name, settings.num_splits)
                    key = jax.random.fold_in(context.key, seed)

                    which = _which(label, seed, settings)
                    stage = stage_name(name, method, which)

                    def compute(
                        key=key, method=method, recipe=recipe, splits=splits, stage=stage
                    ) -> Arrays:
                        count, folder = settings.predictive_samples, context.checkpoint(stage)
                        return fitted(key, method, recipe, splits, count, folder)

                    of = depends_on(method, recipe, settings)
                    arrays = context.stage(stage, compute, of=of)
                    context.record_speed(
                        f"{name}, {method}, {which}", recipe.num_updates, float(arrays["seconds"])
                    )
                    scored = without_diverged(arrays)
                    found[name, method, which] = scored
                    rows += _variation_rows(f"{method}, {name}, {which}", scored, settings.data)
        for method in settings.methods:
            rows += _gain_rows(name, method, found, settings)
    kinds = {label: change.get("fixed_variance") for label, change in settings.variations.items()}
    context.save_figure(
        "variations", pictures.variations_figure(found, kinds, settings.data, settings.against)
    )
    return rows


def stage_name(name: str, method: str, which: str) -> str:
    """Return a file's name of a variation, whatever its label holds.

    Examples
    --------
    >>> stage_name("yach", "DVI", "alpha 1, without log p(s)")
    'yach_DVI_alpha_1_without_log_ps'
    """
    return re.sub(r"[^A-Za-z0-9_.-]", "", f"{name}_{method}_{which}".replace(" ", "_"))


def _variation_rows(setting: str, arrays: Arrays, data: str) -> list[Row]:
    return [
        Row(f"{data}_log_likelihood_normal", setting, *mean_and_error(arrays["normal"])),
        Row(f"{data}_log_likelihood_exact", setting, *mean_and_error(arrays["exact"])),
        Row("elbo_a_datum", setting, *mean_and_error(arrays["elbo"][:, -1])),
        *convergence_rows(setting, arrays["elbo_change"]),
        Row("seconds", setting, float(arrays["seconds"])),
    ]


def _starts(label: str, settings: VariationSettings) -> int:
    return settings.seeds if label == next(iter(settings.variations)) else 1


def _which(label: str, seed: int, settings: VariationSettings) -> str:
    return f"{label}, seed {seed}" if _starts(label, settings) > 1 else label


def _gain_rows(
    name: str,
    method: str,
    found: Mapping[tuple[str, str, str], Arrays],
    settings: VariationSettings,
) -> list[Row]:
    """Return each variation's gain over the first (mean over its seeds), paired by split."""

    def scores(label: str) -> np.ndarray:
        seeds = range(_starts(label, settings))
        return np.mean(
            [found[name, method, _which(label, s, settings)]["normal"] for s in seeds], axis=0
        )

    first, *others = settings.variations
    return [
        Row(
            f"{settings.data}_log_likelihood_gain",
            f"{method}, {name}, {label} over {first}",
            *mean_and_error(scores(label) - scores(first)),
        )
        for label in others
    ]
