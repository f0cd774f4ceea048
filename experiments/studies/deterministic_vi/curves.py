"""Figure 8: test log likelihood during training, by DVI and MCVI.

Watched only: the numbers drawn here stop and choose nothing.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import jax
import numpy as np
from pydantic import Field

from experiments.studies.deterministic_vi import pictures
from experiments.studies.deterministic_vi.fits import Method, Recipe, scorer, train
from experiments.studies.deterministic_vi.problem import whole_splits
from experiments.studies.deterministic_vi.uci import depends_on, mean_and_error, printed_score
from experiments.study import Context, Row, Settings


class CurvesSettings(Settings):
    """The sets, the methods, and at how many points of the training they are looked at."""

    datasets: tuple[
        Literal["bost", "conc", "ener", "kin8", "nava", "powe", "prot", "wine", "yach"], ...
    ]
    methods: tuple[Method, ...]
    num_splits: int = Field(ge=1)
    num_points: int = Field(ge=2)
    recipe: Recipe
    predictive_samples: int = Field(100, ge=2)


def run_curves(settings: CurvesSettings, context: Context) -> list[Row]:
    """Train, and score the test parts at every point; a stage a set and method."""
    rows: list[Row] = []
    found: dict[tuple[str, str], dict[str, np.ndarray]] = {}
    for number, name in enumerate(settings.datasets):
        for method in settings.methods:
            key = jax.random.fold_in(context.key, number)

            def compute(name=name, method=method, key=key) -> Mapping[str, Any]:
                folder = context.checkpoint(f"{name}_{method}")
                return _watched(key, name, method, settings, folder)

            # Another score than that of stages from before, for methods that draw.
            of = depends_on(method, settings.recipe, settings) | {
                "num_points": settings.num_points,
                "score": printed_score(method),
            }
            arrays = context.stage(f"{name}_{method}", compute, of=of)
            found[name, method] = arrays
            rows += _rows(f"{method}, {name}", arrays)
    context.save_figure("figure_8", pictures.curves_figure(found))
    return rows


def _rows(setting: str, arrays: Mapping[str, np.ndarray]) -> list[Row]:
    """Return the score at the end, and at the best point; NaN where a split's fit diverged."""
    scores = np.where(arrays["diverged"], np.nan, arrays["scores"])
    last = scores[-1]
    best = scores.mean(axis=1).argmax()
    updates = np.nan if np.isnan(last).any() else float(arrays["updates"][best])
    return [
        Row("test_log_likelihood_at_the_end", setting, *mean_and_error(last)),
        Row("best_point_over_the_end", setting, *mean_and_error(scores[best] - last)),
        Row("updates_at_the_best_point", setting, updates),
    ]


def _watched(
    key, name: str, method: Method, settings: CurvesSettings, checkpoint: Path | None
) -> Mapping[str, Any]:
    splits = whole_splits(name, settings.num_splits)
    key_train, key_score = jax.random.split(key)
    score = None

    def watch(algorithm, progress) -> dict[str, Any]:
        nonlocal score
        score = score or scorer(algorithm, method, splits, settings.predictive_samples)
        scores = getattr(score(key_score, progress.positions), printed_score(method))
        return {"scores": scores, "updates": np.asarray(progress.done)}

    trained = train(
        key_train,
        method,
        settings.recipe,
        splits,
        num_chunks=settings.num_points,
        watch=watch,
        checkpoint=checkpoint,
    )
    return {**trained.watched, "diverged": trained.fit.diverged}
