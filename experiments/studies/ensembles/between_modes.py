"""What takes ten chains to where a hundred are: ways from mode to mode, each alone.

All arms go on for some rounds from the same chains, which came in from trained networks. A round is
the arm's move, then unadjusted steps that are not kept, then kept draws:

    alone       no move
    redraws     incoming weights of one hidden unit after the other, proposed from the prior
    exchange    chains in pairs, which propose to exchange a hidden unit in each layer
    reheated    the likelihood's power falls to a hundredth, say, and rises again
    restarts    newly trained networks, which come in by fewer steps: what more chains cost

LPPD after r rounds is that of the mixture of all kept draws so far. Moves are chosen by these
numbers, so that the rows held out are a fifth of the training rows. The rungs that an exact
ladder of powers would need (the integral of the standard deviation of the log likelihood, divided
by 1.7, for a fifth of the exchanges to be accepted) are counted along the powers on the way: at
least so many, since the deviation is that within chains, which near power 1 stay in their modes.
"""

import functools
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PRNGKeyArray, PyTree
from pydantic import Field

from experiments.studies.ensembles.clock import Clock
from experiments.studies.ensembles.densities import at_targets, gaussian_scores, lppd_of_mixture
from experiments.studies.ensembles.exchange import exchange_units
from experiments.studies.ensembles.pictures import between_modes_picture
from experiments.studies.ensembles.problems import (
    Problem,
    as_arrays,
    ensemble_draws,
    parameters_as_arrays,
    parameters_of,
    positions_of,
    tabular_problem,
)
from experiments.studies.ensembles.tables import by_setting
from experiments.study import Context, Row, Settings, all_draws
from jaxbnn import ensembles, redraw_units

# (CPU seconds, LPPD) after the way in and after each round.
Curve = list[tuple[float, float]]
Name = Literal["alone", "redraws", "exchange", "reheated", "restarts"]

# Two neighbours on a ladder exchange with probability .23 when their powers differ by so many
# standard deviations of the log likelihood.
_RUNG = 1.7
_COLUMNS = {
    "lppd_at_the_budget": "LPPD at a fifth of a hundred chains' cost",
    "nll": "NLL, all rounds",
    "rmse": "RMSE",
    "acceptance_rate": "acceptance of the move",
    "lppd": "LPPD",
    "cpu_seconds": "CPU s",
    "rungs": "rungs of an exact ladder, at least",
}
_OF_ROUNDS = {"lppd": "LPPD", "lppd_of_a_chain": "LPPD of a chain", "cpu_seconds": "CPU s"}


class BetweenModesSettings(Settings):
    """The data, the network, the way in, and the rounds."""

    data: Literal["airfoil", "bikesharing"] = "airfoil"
    split: int = Field(1, ge=0)
    num_seeds: int = Field(3, ge=1)  # of networks and chains; the rows are the same
    hidden: tuple[int, ...] = (16, 16, 16, 16)
    most_rows: int | None = Field(None, ge=10)
    num_chains: int = Field(10, ge=2)
    num_tuning: int = Field(1000, ge=100)
    start_energy_error: float = Field(0.3, gt=0)
    energy_error: float = Field(0.03, gt=0)
    most_steps: int = Field(10_000, ge=100)
    arms: tuple[Name, ...] = ("alone", "redraws", "exchange", "reheated", "restarts")
    num_rounds: int = Field(10, ge=1)
    # Of a round, in unadjusted steps.
    settling_steps: int = Field(1000, ge=1)
    num_samples: int = Field(20, ge=1)
    thinning: int = Field(25, ge=1)
    # Of the arms.
    num_sweeps: int = Field(20, ge=1)
    powers: tuple[float, ...] = (0.3, 0.1, 0.03, 0.01, 0.03, 0.1, 0.3)
    heated_steps: int = Field(100, ge=1)
    restart_steps: int = Field(2000, ge=100)
    restart_tuning: int = Field(500, ge=100)
    # Of the ladder that is counted: powers from one down, and steps at each.
    ladder_powers: tuple[float, ...] = (1.0, 0.3, 0.1, 0.03, 0.01, 0.003, 0.001)
    ladder_steps: int = Field(1000, ge=20)
    # What an arm has reached when it has cost this part of a hundred chains that come in anew.
    budget: float = Field(0.2, gt=0)


def run_between_modes(settings: BetweenModesSettings, context: Context) -> list[Row]:
    """Run the way in and each arm's rounds, a stage each; rows are means over the seeds."""
    posed = tabular_problem(
        settings.data, settings.split, settings.hidden, settings.most_rows, is_development=True
    )
    found: list[list[Row]] = []
    curves: dict[str, list[Curve]] = {}
    for seed in range(settings.num_seeds):
        rows, of_seed = _of_seed(seed, posed, settings, context)
        found.append(rows)
        for arm, curve in of_seed.items():
            curves.setdefault(arm, []).append(curve)
    context.save_figure("lppd", between_modes_picture(curves), dpi=100)
    rows = _means(found)
    arms = [row for row in rows if "round" not in row.setting]
    rounds = [row for row in rows if "round" in row.setting]
    context.save_table("arms", *by_setting(arms, "arm", _COLUMNS))
    context.save_table("rounds", *by_setting(rounds, "arm, draws of", _OF_ROUNDS))
    return rows


def _of_seed(
    seed: int, posed: Problem, settings: BetweenModesSettings, context: Context
) -> tuple[list[Row], dict[str, Curve]]:
    """Return the rows and the curves of one seed."""
    key_in, key_ladder, key_arms = jax.random.split(jax.random.fold_in(context.key, seed), 3)
    lengths = settings.num_tuning, settings.most_steps
    stage = f"seed{seed}_way_in"
    begun = functools.partial(_from_networks, key_in, stage, *lengths)
    first = context.stage(stage, functools.partial(begun, posed, settings, context))
    rows = _rows("way in", [first], posed)
    curves: dict[str, Curve] = {}
    for number, arm in enumerate(settings.arms):
        rounds = [first]
        for index in range(settings.num_rounds):
            key = jax.random.fold_in(jax.random.fold_in(key_arms, number), index)
            stage = f"seed{seed}_{arm}_{index}"
            compute = functools.partial(
                _round, key, arm, stage, rounds[-1], posed, settings, context
            )
            rounds.append(context.stage(stage, compute))
        rows += _rows(arm, rounds, posed)
        curves[arm] = [_reached(rounds[:end]) for end in range(1, len(rounds) + 1)]
        rows.append(_at_budget(arm, curves[arm], first, settings))
    compute = functools.partial(_ladder, key_ladder, first, posed, settings)
    return rows + _ladder_rows(context.stage(f"seed{seed}_ladder", compute)), curves


def _at_budget(
    arm: str, curve: Curve, first: Mapping[str, np.ndarray], settings: BetweenModesSettings
) -> Row:
    """Return the LPPD of an arm at its part of the cost of a hundred chains."""
    budget = settings.budget * 100 / settings.num_chains * float(first["cpu_seconds"])
    seconds, values = np.transpose(curve)
    # An arm that ended sooner has what it ended with.
    return Row("lppd_at_the_budget", arm, float(np.interp(budget, seconds, values)))


def _means(found: Sequence[Sequence[Row]]) -> list[Row]:
    """Return for each number its mean over the seeds, with its standard error if there are several.

    Examples
    --------
    >>> one, other = Row("lppd", "alone", 1.0), Row("lppd", "alone", 2.0)
    >>> [(row.value, row.standard_error) for row in _means([[one], [other]])]
    [(1.5, 0.5)]
    """
    values: dict[tuple[str, str], list[Row]] = {}
    for rows in found:
        for row in rows:
            values.setdefault((row.quantity, row.setting), []).append(row)
    means = []
    for (quantity, setting), rows in values.items():
        numbers = [row.value for row in rows]
        error = _error(numbers) if len(numbers) > 1 else rows[0].standard_error
        means.append(Row(quantity, setting, float(np.mean(numbers)), error))
    return means


def _from_networks(
    key: PRNGKeyArray, stage: str, num_tuning: int, most_steps: int, posed: Problem,
    settings: BetweenModesSettings, context: Context,
) -> dict[str, Any]:  # fmt: skip
    """Train networks, bring chains in from there, and keep the draws of one round."""
    key_start, key_run = jax.random.split(key)
    folder = context.checkpoint(stage)
    clock = Clock(folder)
    starts = ensembles.optimised_starts(
        key_start, posed.posterior, settings.num_chains, progress=False,
        checkpoint=None if folder is None else folder / "starts",
    )  # fmt: skip
    run = ensemble_draws(
        key_run, posed.posterior, starts.positions, settings.num_samples, kernel="microcanonical",
        num_tuning=num_tuning, most_steps=most_steps, energy_error=settings.energy_error,
        start_energy_error=settings.start_energy_error, trajectory_steps=settings.thinning,
        checkpoint=folder,
    )  # fmt: skip
    draws, seconds = run.draws, clock.seconds()
    kept = parameters_as_arrays(draws.parameters)
    way = {
        "energy_error": run.way_in.energy_error[-1].mean(),
        "is_settled": run.way_in.is_settled.mean(),
        "num_blow_ups": run.way_in.num_blow_ups.sum(),
    }
    return kept | _kept(posed, draws.positions, seconds) | way


def _round(
    key: PRNGKeyArray, arm: Name, stage: str, before: Mapping[str, np.ndarray], posed: Problem,
    settings: BetweenModesSettings, context: Context,
) -> dict[str, Any]:  # fmt: skip
    """Make the arm's move from where the round before ended, settle, and keep draws."""
    if arm == "restarts":
        lengths = settings.restart_tuning, settings.restart_steps
        return _from_networks(key, stage, *lengths, posed, settings, context)
    key_move, key_settle, key_keep = jax.random.split(key, 3)
    parameters = parameters_of(before)
    clock = Clock()
    positions, rate = _MOVES[arm](
        key_move, positions_of(posed, before), parameters, posed, settings
    )
    positions = _go(key_settle, positions, parameters, posed.posterior, settings.settling_steps)
    draws = all_draws(
        key_keep, ensembles.microcanonical, positions, settings.num_samples, data=posed.posterior,
        parameters=parameters, thinning=settings.thinning, progress=False,
    )  # fmt: skip
    seconds = clock.seconds()
    kept = parameters_as_arrays(parameters)
    return kept | _kept(posed, draws.positions, seconds) | {"acceptance_rate": rate}


def _no_move(key, positions, parameters, posed, settings):
    return positions, np.nan


def _redraw(key, positions, parameters, posed, settings):
    posterior = posed.posterior
    draws = all_draws(key, _redraws, positions, settings.num_sweeps, data=posterior, progress=False)
    return _last(draws.positions), np.mean(draws.infos.acceptance_rate)


def _redraws(parameters, posterior):
    return redraw_units(posterior.network, posterior.prior, posterior.log_likelihood)


def _exchange(key, positions, parameters, posed, settings):
    positions, rates = _exchanged(key, positions, posed.posterior, settings.num_sweeps)
    return positions, np.mean(rates)


@functools.partial(jax.jit, static_argnames="num_sweeps")
def _exchanged(key, positions, posterior, num_sweeps):
    log_likelihood = lambda p: jnp.sum(posterior.log_likelihood(p))  # noqa: E731
    return exchange_units(key, positions, log_likelihood, num_sweeps)


def _reheat(key, positions, parameters, posed, settings):
    for number, power in enumerate(settings.powers):
        key_power = jax.random.fold_in(key, number)
        positions = _go(
            key_power, positions, parameters, posed.posterior, settings.heated_steps, power
        )
    return positions, np.nan


_MOVES = {"alone": _no_move, "redraws": _redraw, "exchange": _exchange, "reheated": _reheat}


def _go(key, positions, parameters, posterior, num_steps, power=1.0):
    """Return where chains are after unadjusted steps at a power of the likelihood.

    Where the likelihood decides, widths grow as the power's inverse root does, and so does a step.
    """
    draws = all_draws(
        key, ensembles.microcanonical, positions, 1, data=posterior.tempered(power),
        thinning=num_steps, parameters=_scaled(parameters, power), progress=False,
    )  # fmt: skip
    return _last(draws.positions)


def _scaled(parameters: Mapping[str, Array], power: float) -> dict[str, Array]:
    return {**parameters, "step_size": parameters["step_size"] / np.float32(np.sqrt(power))}


def _ladder(
    key: PRNGKeyArray, first: Mapping[str, np.ndarray], posed: Problem,
    settings: BetweenModesSettings,
) -> dict[str, Any]:  # fmt: skip
    """Return the standard deviation of the log likelihood at each power (power,), chains pooled."""
    positions, parameters = positions_of(posed, first), parameters_of(first)
    posterior, thinning = posed.posterior, 10
    one = lambda p: jnp.sum(posterior.log_likelihood(p))  # noqa: E731
    log_likelihood = jax.jit(lambda ps: jax.lax.map(lambda chain: jax.lax.map(one, chain), ps))
    found = []
    for number, power in enumerate(settings.ladder_powers):
        draws = all_draws(
            jax.random.fold_in(key, number), ensembles.microcanonical, positions,
            settings.ladder_steps // thinning, data=posterior.tempered(power), thinning=thinning,
            parameters=_scaled(parameters, power), progress=False,
        )  # fmt: skip
        values = np.asarray(log_likelihood(draws.positions), float)
        late = values[:, values.shape[1] // 2 :]
        found.append(np.sqrt(np.mean(np.var(late, axis=1, ddof=1))))
        positions = _last(draws.positions)
    return {"power": np.asarray(settings.ladder_powers), "deviation": np.asarray(found)}


def _ladder_rows(ladder: Mapping[str, np.ndarray]) -> list[Row]:
    power, deviation = ladder["power"], ladder["deviation"]
    # By the logarithm of the power, in which the deviation changes evenly.
    rungs = -np.trapezoid(deviation * power, np.log(power)) / _RUNG
    rows = [
        Row("log_likelihood_deviation", f"power {p:g}", float(sd))
        for p, sd in zip(power, deviation, strict=True)
    ]
    return [*rows, Row("rungs", f"power 1 to {power[-1]:g}", float(rungs))]


def _kept(posed: Problem, positions: PyTree, seconds: float) -> dict[str, Any]:
    """Return what a round leaves: where its chains are, their predictions, and its cost."""
    return at_targets(posed, positions) | {
        **as_arrays(_last(positions)),
        "cpu_seconds": seconds,
        "acceptance_rate": np.nan,
    }


def _last(positions: PyTree) -> PyTree:
    return jax.tree.map(lambda leaf: jnp.asarray(leaf[:, -1]), positions)


def _reached(rounds: Sequence[Mapping[str, np.ndarray]]) -> tuple[float, float]:
    """Return (CPU seconds, LPPD) of all rounds together."""
    parts = np.concatenate([found["log_density"] for found in rounds])
    return float(sum(found["cpu_seconds"] for found in rounds)), lppd_of_mixture(parts)


def _rows(arm: str, rounds: Sequence[Mapping[str, np.ndarray]], posed: Problem) -> list[Row]:
    """Return rows after each round, and scores of all of them together."""
    rows = []
    for number in range(1, len(rounds)):
        where = f"{arm}, {number} round{'s' * (number > 1)}"
        seconds, value = _reached(rounds[: number + 1])
        rows += [Row("lppd", where, value), Row("cpu_seconds", where, seconds)]
    if len(rounds) == 1:
        seconds, value = _reached(rounds)
        rows += [Row("lppd", arm, value), Row("cpu_seconds", arm, seconds)]
    alone = [lppd_of_mixture(density[None]) for density in rounds[-1]["log_density"]]
    rows.append(Row("lppd_of_a_chain", f"{arm}, last round", float(np.mean(alone)), _error(alone)))
    if arm in ("way in", "restarts"):
        rows += [
            Row(name, arm, float(np.mean([found[name] for found in rounds[1:] or rounds])))
            for name in ("energy_error", "is_settled", "num_blow_ups")
        ]
    if arm in ("redraws", "exchange"):
        rates = [float(found["acceptance_rate"]) for found in rounds[1:]]
        rows.append(Row("acceptance_rate", arm, float(np.mean(rates))))
    together = {
        name: np.concatenate([found[name] for found in rounds])
        for name in ("mean", "second_moment")
    }
    return [*rows, *gaussian_scores(arm, together, posed)]


def _error(values: list[float]) -> float:
    return float(np.std(values, ddof=1) / np.sqrt(len(values)))
