"""Deterministic variational inference: time of a layer by every method, and of Boston's splits.

    python -m experiments benchmark dvi

A batch of 10 is propagated through one d x d layer (figure 4 of Wu et al.): moments exact and
asymptotic, the diagonal ones, and draws. Then all splits of Boston housing are trained as one
program with the recipe of `configs/deterministic_vi/uci.toml`: time to convergence, the ELBO
changing by less than 1e-3 nats a datum over the last tenth of the updates.
"""

import statistics
import tomllib
from pathlib import Path
from typing import Any

import jax

from experiments.results import Row, written_whole
from experiments.studies.deterministic_vi import pictures
from experiments.studies.deterministic_vi.fits import Recipe, train
from experiments.studies.deterministic_vi.layer_times import (
    RuntimeSettings,
    limit_rows,
    measure,
    rows_of,
)
from experiments.studies.deterministic_vi.problem import whole_splits
from experiments.studies.deterministic_vi.uci import convergence_rows
from jaxbnn import dvi

SIZES = (8, 16, 32, 64, 128, 256, 512, 1024, 2048)
CONFIG = Path(__file__).parents[3] / "configs" / "deterministic_vi" / "uci.toml"


def run(
    out_dir: Path,
    *,
    sizes: tuple[int, ...] | list[int] = SIZES,
    samples: tuple[int, ...] | list[int] = (1, 2, 10, 100, 300),
    num_nodes: int = 8,
    num_rounds: int = 5,
    memory_gb: float = 8.0,
    num_splits: int = 20,
    num_updates: int | None = None,
) -> list[Row]:
    """Measure; one row a number: milliseconds of a layer, ratios, and seconds of the fits.

    Parameters
    ----------
    out_dir
        Where the command writes the table, and `layer_times.png`.
    sizes
        Widths d of the layer.
    samples
        Numbers of draws of MCVI and rMCVI.
    num_nodes
        Of the exact moments.
    num_rounds
        Turns that the compared programs take.
    memory_gb
        Programs that would need more are left out.
    num_splits
        Splits of Boston housing, trained side by side; 0 for none.
    num_updates
        Of DVI, the length of the learning rate's schedule; the recipe's by default. The other
        methods make a tenth as many, for the time of one.
    """
    settings = RuntimeSettings(
        sizes=tuple(sizes),
        samples=tuple(samples),
        num_nodes=num_nodes,
        num_rounds=num_rounds,
        memory_gb=memory_gb,
    )
    rows: list[Row] = []
    curves: dict[str, dict[int, float]] = {}
    for size in settings.sizes:
        found = measure(size, settings)
        rows += rows_of(size, found)
        for name, times in found.items():
            curves.setdefault(name, {})[size] = statistics.median(times)
    rows += limit_rows(rows)
    with written_whole(out_dir / "layer_times.png") as temporary:
        pictures.runtime_figure(curves).savefig(temporary, format="png", dpi=150)
    if num_splits:
        rows += _boston(num_splits, num_updates)
    return rows


def _boston(num_splits: int, num_updates: int | None) -> list[Row]:
    content = tomllib.loads(CONFIG.read_text(encoding="utf-8"))
    values = content["recipe"] | content.get("of_dataset", {}).get("bost", {})
    values = {key: tuple(v) if isinstance(v, list) else v for key, v in values.items()}
    recipe = Recipe.model_validate(values)
    whole = num_updates or recipe.num_updates
    splits = whole_splits("bost", num_splits)
    rows = []
    for method, updates in (("DVI", whole), ("dDVI", -(-whole // 10)), ("MCVI", -(-whole // 10))):
        shorter = recipe.model_copy(update={"num_updates": updates})
        looks: list[dvi.FitProgress] = []

        def look(_, progress: dvi.FitProgress, looks=looks) -> dict[str, Any]:
            looks.append(progress)
            return {}  # nothing to be kept

        trained = train(jax.random.key(0), method, shorter, splits, watch=look)  # type: ignore[arg-type]
        # From the first look on: compiling is over by then.
        first, last = looks[0], looks[-1]
        pace = (last.seconds - first.seconds) / max(last.done - first.done, 1)
        setting = f"{method}, bost, {len(splits.x)} splits, {updates} updates"
        rows += [
            Row("seconds_to_train", setting, trained.seconds),
            Row("milliseconds_an_update", setting, 1000 * pace),
        ]
        if updates == whole:
            rows += convergence_rows(setting, trained.elbo_change)
    return rows
