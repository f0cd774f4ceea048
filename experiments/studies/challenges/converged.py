"""Iris by MLP(4, 3, 3): the posterior that section 6.2 could not reach, converged in seconds.

What it takes is three kinds of moves around any kernel: along the exact symmetries (permutations of
units, class shifts), along the sigmoid's flips, which the prior weighs, and fresh incoming weights
for units that are idle; and a metric from gradients, that of the copies' insides. Samplers that
have them agree on all means and covariances; the others are shown to every diagnostic.
"""

import functools
import math
import time

import jax
import jax.numpy as jnp
import numpy as np
from pydantic import Field, model_validator

from experiments.datasets import iris
from experiments.studies.challenges import converged_pictures as pictures
from experiments.studies.challenges.agreement import (
    GROUPS,
    largest_by_chance,
    moments_of,
    scores_between,
)
from experiments.studies.challenges.common import over_seeds
from experiments.studies.challenges.ladders import Ladder, run_ladder
from experiments.studies.challenges.moves import (
    Sampler,
    every_draw,
    iris_posterior,
    kernel_on,
    measured,
    start_parameters,
    starts_of,
    tuning_of,
)
from experiments.studies.challenges.trap import Trap, frozen_starts, run_trapped
from experiments.studies.challenges.verdicts import verdicts_of
from experiments.study import Context, Row, Settings, all_draws
from jaxbnn import Draws, diagnostics

HIDDEN = 3
CHUNK = 500


class ConvergedRun(Settings):
    """One sampler, with the moves or without; `is_reference` if others are compared with it."""

    sampler: Sampler
    with_moves: bool
    num_warmup: int = Field(ge=100)
    num_samples: int = Field(ge=100)
    thinning: int = Field(default=1, ge=1)

    @property
    def setting(self) -> str:
        """What the rows call it."""
        return f"{self.sampler} with moves" if self.with_moves else self.sampler


class Chains(Settings):
    """Settings of all runs: the number of chains, the prior, where they start, draws kept.

    Of a run with twice `most_draws` draws or more, every second, third, ... one is kept.
    """

    num_chains: int = Field(ge=2)
    prior_variance: float = Field(gt=0)
    start_scale: float = Field(gt=0)
    most_draws: int = Field(ge=100)


class ConvergedSettings(Chains):
    """Settings: the runs, the first of them the reference; the ladder; the trap; the seeds.

    Rows are means over the `num_seeds`; pictures, tables and stored moments are of the first.
    """

    num_seeds: int = Field(default=1, ge=1)
    ladder: Ladder
    ladder_burn_in: int = Field(ge=1)
    ladder_samples: int = Field(ge=100)
    trap: Trap
    runs: tuple[ConvergedRun, ...] = Field(min_length=1)

    @model_validator(mode="after")
    def _starts_with_a_reference(self):
        if not self.runs[0].with_moves:
            raise ValueError("the first run is the reference and needs with_moves = true")
        return self


def run_converged(settings: ConvergedSettings, context: Context) -> list[Row]:
    """Run all samplers, compare them, and ask every diagnostic about each."""
    x, y = iris()
    data = {"x": jnp.asarray(x), "y": jnp.asarray(y)}
    target = iris_posterior(HIDDEN, settings.prior_variance, data)
    by_seed = []
    for seed in range(settings.num_seeds):
        rows, found = _one_seed(seed, settings, target, data, context)
        rows += _agreement_rows(found, settings, context, saves=not seed)
        rows += _verdict_rows(found, target, context, saves=not seed)
        by_seed.append(rows)
        if not seed:
            pictures.draw(found, context)
    # Where no prior draw of a seed is stuck, it has no runs from stuck ones.
    named = [{(row.quantity, row.setting) for row in rows} for rows in by_seed]
    every = set.intersection(*named)
    return over_seeds([[r for r in rows if (r.quantity, r.setting) in every] for rows in by_seed])


def _one_seed(
    seed: int, settings: ConvergedSettings, target, data, context: Context
) -> tuple[list[Row], dict[str, dict]]:
    """Return the rows of one seed's runs by themselves, and the runs by name."""
    print(f"\nSeed {seed + 1} of {settings.num_seeds}")
    first_key = jax.random.fold_in(context.key, 2000 + seed) if seed else context.key
    ending = f"_seed_{seed + 1}" if seed else ""
    stages = {run.setting: functools.partial(_run, run, settings, data) for run in settings.runs}
    thinned = {
        run.setting: every_draw(run.num_samples, settings.most_draws) for run in settings.runs
    }
    stages["HMC ladder with moves"] = functools.partial(_ladder, settings, data)
    key = jax.random.fold_in(first_key, 1000)
    rows, frozen = _frozen(key, ending, settings, data, context)
    for name in ("MALA, one chain frozen", "P-MALA, one replica frozen") if len(frozen) else ():
        stages[name] = functools.partial(_trapped, name.split(",")[0], frozen, settings, data)
    found = {}
    for index, (setting, compute) in enumerate(stages.items()):
        key = jax.random.fold_in(first_key, index)
        file = setting.replace(" ", "_").replace(",", "") + ending
        result = context.stage(file, functools.partial(compute, key))
        found[setting] = result
        rows += _own_rows(setting, result, thinned.get(setting, 1))
    return rows, found


def _finish(target, positions, settings, **more) -> dict:
    """Return what is measured of a run's draws, their bulk ESS and R-hat by group.

    All of it, the ESS too, is of at most about `most_draws` draws, equally spaced.
    """
    found = measured(target, positions, settings.most_draws)
    ess = {group: np.min(diagnostics.ess_bulk(values)) for group, values in found.items()}
    rhat = {group: np.max(diagnostics.rank_rhat(values)) for group, values in found.items()}
    return {
        **found,
        "ess": np.array([ess[group] for group in GROUPS]),
        "rhat": np.array([rhat[group] for group in GROUPS]),
        **more,
    }


def chains_of(run: ConvergedRun, settings: Chains, data, key, *, warm: bool) -> tuple[Draws, float]:
    """Run one sampler; return its draws and the seconds, without those of compilation if `warm`."""
    target = iris_posterior(HIDDEN, settings.prior_variance, data)

    def make_kernel(parameters, data):
        target = iris_posterior(HIDDEN, settings.prior_variance, data)
        return kernel_on(target, run.sampler, parameters, with_moves=run.with_moves)

    parameters = jax.tree.map(
        lambda leaf: np.broadcast_to(leaf, (settings.num_chains, *leaf.shape)),
        start_parameters(run.sampler, HIDDEN, with_moves=run.with_moves),
    )
    key_start, key_first, key_run = jax.random.split(key, 3)
    starts = starts_of(target, key_start, (settings.num_chains,), settings.start_scale)

    def go(key, num_samples):
        return all_draws(
            key,
            make_kernel,
            starts,
            num_samples,
            parameters=parameters,
            data=data,
            num_warmup=run.num_warmup,
            thinning=run.thinning,
            adapt=tuning_of(run.sampler, run.num_warmup, with_moves=run.with_moves),
            chunk_size=min(CHUNK, run.num_samples),
            progress=False,
        )

    if warm:
        go(key_first, min(CHUNK, run.num_samples))
    begin = time.perf_counter()
    draws = go(key_run, run.num_samples)
    return draws, time.perf_counter() - begin


def _run(run: ConvergedRun, settings: ConvergedSettings, data, key) -> dict:
    target = iris_posterior(HIDDEN, settings.prior_variance, data)
    draws, seconds = chains_of(run, settings, data, key, warm=True)
    acceptance = draws.infos.acceptance_rate
    every = every_draw(acceptance.shape[1], settings.most_draws)
    return _finish(
        target,
        draws.positions,
        settings,
        seconds=seconds,
        acceptance=acceptance[:, ::every],
        step_size=np.mean(draws.parameters["step_size"]),
    )


def _ladder(settings: ConvergedSettings, data, key) -> dict:
    run = run_ladder(
        key,
        "HMC",
        HIDDEN,
        settings.prior_variance,
        settings.ladder,
        data,
        num_chains=settings.num_chains,
        num_burn_in=settings.ladder_burn_in,
        num_samples=settings.ladder_samples,
    )
    target = iris_posterior(HIDDEN, settings.prior_variance, data)
    evidence = diagnostics.bennett_acceptance_ratio(run.log_likelihoods, run.temperatures)
    return _finish(
        target,
        run.positions,
        settings,
        evidence=np.array([evidence.log_evidence, evidence.standard_error]),
    )


def _frozen(key, ending: str, settings: ConvergedSettings, data, context: Context) -> tuple:
    """Return a row, and the flattened positions at which MALA from a prior draw is stuck."""

    def compute():
        starts = frozen_starts(key, settings.prior_variance, settings.trap, data)
        return {"starts": flatten(jax.tree.map(lambda leaf: leaf[None], starts))[0]}

    frozen = context.stage(f"frozen_starts{ending}", compute)["starts"]
    tried = settings.trap.num_tried
    share = len(frozen) / tried
    error = math.sqrt(max(share * (1 - share), 1 / tried) / tried)
    print(f"MALA from {tried} prior draws: {len(frozen)} are stuck")
    return [Row("share_of_prior_draws_frozen", "MALA", share, error)], frozen


def _trapped(sampler: str, frozen, settings: ConvergedSettings, data, key) -> dict:
    target = iris_posterior(HIDDEN, settings.prior_variance, data)
    run = run_trapped(
        key,
        sampler,
        jax.tree.map(lambda leaf: leaf[0], _unflatten(target, frozen[None])),
        settings.prior_variance,
        settings.trap,
        data,
        settings.num_chains,
    )
    every = every_draw(run.acceptance.shape[1], settings.most_draws)
    return _finish(target, run.positions, settings, acceptance=run.acceptance[:, ::every])


def _own_rows(setting: str, result: dict, every: int = 1) -> list[Row]:
    """Return the numbers of one run by itself.

    `every`: the ESS are of one draw in so many, the seconds of all, so that ESS a second are lower
    bounds. The reference alone, HMC with moves, has more draws than are kept: its ESS are of every
    second one, and of all of them 1.1 to 1.5 times as large. (Runs of MALA and SMMALA are thinned
    by their own settings.)
    """
    rows = []
    for group, ess, rhat in zip(GROUPS, result["ess"], result["rhat"], strict=True):
        name = group.replace(" ", "_")
        rows.append(Row(f"rhat_{name}", setting, float(rhat)))
        rows.append(Row(f"ess_bulk_{name}", setting, float(ess)))
    least = float(result["ess"][:-1].min())
    line = f"{setting}: R-hat {np.round(result['rhat'], 4)}, bulk ESS {np.round(result['ess'])}"
    if "seconds" in result:
        seconds = float(result["seconds"])
        rows.append(Row("seconds", setting, seconds))
        rows.append(Row("ess_per_second_invariants", setting, least / seconds))
        rows.append(
            Row("ess_per_second_raw_parameters", setting, float(result["ess"][-1]) / seconds)
        )
        rows.append(Row("step_size", setting, float(result["step_size"])))
        line += f", {seconds:.1f} s, least ESS/s of the invariants {least / seconds:.1f}"
        if every > 1:
            line += f" or more (ESS of one draw in {every}, seconds of all)"
    if setting == "MALA":
        # The paper's own sampler, but not its run: the step size, the starts and the lengths are
        # others, so that the number stands beside none of the paper's.
        raw = result["raw parameters"]
        rows.append(Row("psrf_split", setting, float(np.max(diagnostics.split_rhat(raw)))))
    if "evidence" in result:
        value, error = map(float, result["evidence"])
        rows.append(Row("log_evidence", setting, value, error))
    print(line)
    return rows


def _agreement_rows(
    found: dict, settings: ConvergedSettings, context: Context, *, saves: bool
) -> list[Row]:
    """Return reference values, and how far each sampler is from them in Monte Carlo errors."""
    moments = {setting: moments_of(result) for setting, result in found.items()}
    first = settings.runs[0].setting
    reference = moments[first]
    if saves:
        context.save_draws("reference_moments", reference)
    rows = [
        Row("mean_log_density", name, float(m["log density"][0]), float(m["log density error"][0]))
        for name, m in moments.items()
    ]
    norms = zip(reference["sorted norms"], reference["sorted norms error"], strict=True)
    for index, (value, error) in enumerate(norms):
        kind = ("incoming", "outgoing")[index // HIDDEN]
        quantity = f"mean_norm_{kind}_{index % HIDDEN + 1}"
        rows.append(Row(quantity, first, float(value), float(error)))
    table = []
    for setting, own in moments.items():
        if setting == first:
            continue
        scores = scores_between(own, reference)
        line = [setting]
        for group, z in scores.items():
            rms, most = float(np.sqrt(np.mean(z**2))), float(np.max(np.abs(z)))
            name = group.replace(" ", "_")
            rows.append(Row(f"z_rms_{name}", setting, rms))
            rows.append(Row(f"z_max_{name}", setting, most))
            line.append(f"{rms:.2f} / {most:.1f} ({largest_by_chance(z.size):.1f})")
        table.append(line)
    header = [f"against {first}", *GROUPS, "raw covariance"]
    if saves:
        context.save_table("agreement", header, table)
    print(f"\nz-scores against {first}: rms / largest (what chance stays below 99 times in 100)")
    for line in table:
        print("  ".join(line))
    return rows


def _verdict_rows(found: dict, target, context: Context, *, saves: bool) -> list[Row]:
    """Ask every diagnostic about every run; one line a diagnostic, one column a run."""
    rows: list[Row] = []
    cells: dict[str, list[str]] = {}
    for setting, result in found.items():
        positions = _unflatten(target, result["raw parameters"])
        verdicts = verdicts_of(result, positions, result.get("acceptance"), target.log_density)
        for name, (value, warns) in verdicts.items():
            quantity = name.replace(",", "").replace(" ", "_")
            rows.append(Row(quantity, setting, value))
            cells.setdefault(name, []).append(f"{value:.4g} {'WARNS' if warns else 'passes'}")
    table = [[name, *line] for name, line in cells.items()]
    if saves:
        context.save_table("diagnostics", ["", *found], table)
        print("\nWhich diagnostic warns (R-hat, effective sample sizes, p-values): diagnostics.md")
    return rows


def flatten(positions) -> np.ndarray:
    """Return draws (chain, draw, ...) as (chain, draw, dim)."""
    leaves = [np.asarray(leaf) for leaf in jax.tree.leaves(positions)]
    flat = [leaf.reshape(*leaf.shape[:2], math.prod(leaf.shape[2:])) for leaf in leaves]
    return np.concatenate(flat, axis=-1)


def _unflatten(target, raw: np.ndarray):
    """Return draws as parameters again, from their flattened form (chain, draw, dim)."""
    example = target.sample_prior(jax.random.key(0))
    leaves, structure = jax.tree.flatten(example)
    ends = np.cumsum([leaf.size for leaf in leaves])[:-1]
    parts = np.split(raw, ends, axis=-1)
    shaped = [
        part.reshape(*raw.shape[:2], *leaf.shape) for part, leaf in zip(parts, leaves, strict=True)
    ]
    return jax.tree.unflatten(structure, shaped)
