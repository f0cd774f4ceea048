"""What ten chains miss: the mean log predictive density (LPPD) against the number of chains.

Each chain stays near the mode of its own start, so that more chains say more; few have settled, so
that longer ones say more, too. Which of both is worth its cost, and whether ten longer chains say
what a hundred do, is measured here: an arm is a number of chains, the unadjusted steps of each and
the kernel of its kept draws. LPPD at k chains is the mean over random sets of k of them, of the
mixture of all their draws.
"""

import functools
from typing import Any, Literal

import jax
import numpy as np
from jaxtyping import Float
from pydantic import BaseModel, ConfigDict, Field

from experiments.studies.ensembles.clock import Clock
from experiments.studies.ensembles.densities import at_targets, gaussian_scores, lppd_of_mixture
from experiments.studies.ensembles.pictures import modes_picture
from experiments.studies.ensembles.problems import Problem, ensemble_draws, tabular_problem
from experiments.studies.ensembles.tables import by_setting, cell
from experiments.study import Context, Row, Settings
from jaxbnn.ensembles import optimised_starts

_COLUMNS = {
    "nll": "NLL",
    "rmse": "RMSE",
    "median_rhat": "R-hat of the outputs, median",
    "is_settled": "share of chains settled",
    "energy_error": "energy error a dimension",
    "cpu_seconds": "CPU s",
}
# Random sets of chains, over which LPPD at a number of chains is averaged.
_SETS = 200


class Arm(BaseModel):
    """One way to spend gradients."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str
    num_chains: int = Field(ge=2)
    # "none": the trained networks themselves are what predicts.
    kernel: Literal["microcanonical", "adjusted_microcanonical", "hmc", "none"] = "microcanonical"
    most_steps: int = Field(10_000, ge=100)
    # In a part of the way in; else the settings'. The first part, of falling energy error, is twice
    # as long; with hardly more than that in all (3 x + 80 are enough) there is no other.
    num_tuning: int | None = Field(None, ge=100)
    num_samples: int = Field(100, ge=4)
    trajectory_steps: int = Field(50, ge=1)


class ModesSettings(Settings):
    """The data, the network, and the arms."""

    data: Literal["airfoil", "bikesharing"] = "airfoil"
    split: int = Field(1, ge=0)
    hidden: tuple[int, ...] = (16, 16, 16, 16)
    chains_at_once: int = Field(10, ge=2)
    num_tuning: int = Field(1000, ge=100)
    start_energy_error: float = Field(0.3, gt=0)
    energy_error: float = Field(0.02, gt=0)
    most_rows: int | None = Field(None, ge=10)
    arms: tuple[Arm, ...]


def run_modes(settings: ModesSettings, context: Context) -> list[Row]:
    """Run each arm's chains, some at a time, a stage each; all arms begin at the same networks."""
    posed = tabular_problem(
        settings.data, settings.split, settings.hidden, settings.most_rows, is_development=True
    )
    rows, curves = [], {}
    for arm in settings.arms:
        parts = []
        for number in range(-(-arm.num_chains // settings.chains_at_once)):
            compute = functools.partial(_chains, arm, number, posed, settings, context)
            parts.append(context.stage(f"{arm.name}_{number}", compute))
        found = {key: np.concatenate([part[key] for part in parts]) for key in parts[0]}
        found = {key: values[: arm.num_chains] for key, values in found.items()}
        curve = lppd_by_chains(found["log_density"])
        curves[arm.name] = (curve, float(np.mean(found["cpu_seconds"])))
        rows += _rows(arm, curve, found, posed)
    context.save_figure("lppd", modes_picture(curves), dpi=100)
    context.save_table("lppd", *_curve_table(curves))
    context.save_table("arms", *by_setting(rows, "arm", _COLUMNS))
    return rows


def _chains(
    arm: Arm, number: int, posed: Problem, settings: ModesSettings, context: Context
) -> dict[str, Any]:
    """Train and sample some chains; arrays (chain, ...)."""
    key_start, key_run = jax.random.split(jax.random.fold_in(context.key, number))
    folder = context.checkpoint(f"{arm.name}_{number}")
    clock = Clock(folder)
    starts = optimised_starts(key_start, posed.posterior, settings.chains_at_once, progress=False)
    positions, way = starts.as_draws(), {}
    if arm.kernel != "none":
        run = ensemble_draws(
            key_run, posed.posterior, starts.positions, arm.num_samples, kernel=arm.kernel,
            num_tuning=arm.num_tuning or settings.num_tuning, most_steps=arm.most_steps,
            start_energy_error=settings.start_energy_error, energy_error=settings.energy_error,
            trajectory_steps=arm.trajectory_steps, checkpoint=folder,
        )  # fmt: skip
        positions = run.draws.positions
        way = {
            "energy_error": run.way_in.energy_error[-1],
            "is_settled": run.way_in.is_settled.astype(float),
            "num_blow_ups": run.way_in.num_blow_ups,
        }
    seconds = clock.seconds()
    found = at_targets(posed, positions) | way
    chains = settings.chains_at_once
    return found | {
        "rhat": np.tile(np.median(found["rhat"]), chains),
        "cpu_seconds": np.full(chains, seconds / chains),
    }


def lppd_by_chains(
    log_density: Float[np.ndarray, "chain row"], num_sets: int = _SETS
) -> dict[int, tuple[float, float]]:
    """Return {k: (LPPD of k chains, its standard deviation over sets of k)}, in nats a row.

    The sets are drawn without replacement within a set; the deviation is that of sets of new
    chains. Of all chains there is one set only, whose deviation is not known: NaN.

    Examples
    --------
    >>> bool(np.isclose(lppd_by_chains(np.log([[0.1], [0.3]]))[2][0], np.log(0.2)))
    True
    """
    num_chains = len(log_density)
    rng = np.random.default_rng(0)
    sizes = [k for k in (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000) if k < num_chains]
    found = {}
    for size in sizes:
        values = [
            lppd_of_mixture(log_density[rng.choice(num_chains, size, replace=False)])
            for _ in range(num_sets)
        ]
        # Sets drawn from so many chains have chains in common, as sets of new chains have not.
        apart = np.std(values, ddof=1) / np.sqrt(1 - size / num_chains)
        found[size] = (float(np.mean(values)), float(apart))
    found[num_chains] = (lppd_of_mixture(log_density), float("nan"))
    return found


def _curve_table(
    curves: dict[str, tuple[dict[int, tuple[float, float]], float]],
) -> tuple[list[str], list[list[str]]]:
    """Return LPPD, and its deviation over sets of chains: a line an arm, a column a number."""
    sizes = sorted({size for curve, _ in curves.values() for size in curve})
    lines = []
    for name, (curve, seconds) in curves.items():
        # `cell` writes "± error" after a number; the header says that this is none.
        known = {size: cell(Row("lppd", name, *curve[size])) for size in curve}
        cells = [known.get(size, "-") for size in sizes]
        lines.append([name, cell(Row("cpu_seconds", name, seconds)), *cells])
    header = [f"LPPD ± deviation, {size} chain{'s' * (size > 1)}" for size in sizes]
    return ["arm", "CPU s a chain", *header], lines


def _rows(arm: Arm, curve: dict, found: dict[str, np.ndarray], posed: Problem) -> list[Row]:
    where = f"{arm.name}, {arm.num_chains} chains"
    rows = []
    for size, (value, deviation) in curve.items():
        of_size = f"{arm.name}, {size} chain{'s' * (size > 1)}"
        rows.append(Row("lppd", of_size, value))
        if np.isfinite(deviation):
            rows.append(Row("lppd_deviation_over_sets", of_size, deviation))
    rows += [
        Row(name, where, float(np.mean(found[name])))
        for name in ("energy_error", "is_settled", "num_blow_ups")
        if name in found
    ]
    return [
        *rows,
        *gaussian_scores(where, found, posed),
        Row("median_rhat", where, float(np.mean(found["rhat"]))),
        Row("cpu_seconds", where, float(found["cpu_seconds"].sum())),
    ]
