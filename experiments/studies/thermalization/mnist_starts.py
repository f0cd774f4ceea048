"""MNIST from several starts: after how many sweeps nothing tells the chains apart.

Plain Gibbs from zero drifts for long; with the moves that free it, chains from zero, from the prior
and from an optimised network are compared by the norms of their weights and by their accuracies.
Nobody knows a draw of this posterior, so the chains are judged by R-hat. A network
that begins with a pooled convolution may have its outputs integrated out.
"""

import functools
import math
from collections.abc import Mapping
from typing import Any, Literal

import jax
import numpy as np
from matplotlib.figure import Figure
from pydantic import Field, model_validator

from experiments.studies.thermalization.common import geometric_steps
from experiments.studies.thermalization.mnist import (
    NUMBERS,
    Architecture,
    evaluate,
    images,
    model_of,
)
from experiments.study import Context, Row, Settings
from jaxbnn import dual_averaging
from jaxbnn.diagnostics import split_rhat, stationarity_time
from jaxbnn.gibbs import (
    IntermediateNoise,
    collapse_pooling,
    gibbs_sampler,
    gibbs_with_moves,
    interwoven_gibbs,
    logit_scale_moves,
)
from jaxbnn.thermalization import optimised_start

STARTS = ("zero", "prior", "optimised")
_AGREE, _FEWEST_RECORDS = 1.1, 8


class StartsArm(Settings):
    """A kernel: plain sweeps, or sweeps with moves; on the collapsed model or on the model.

    `has_moves` is whether all of them follow a sweep, or "logit scales": the scale of the logits is
    drawn then, and nothing else.
    """

    name: str
    has_moves: bool | Literal["logit scales"] = False
    is_collapsed: bool = False
    starts: tuple[Literal["zero", "prior", "optimised"], ...] = ("zero", "prior", "optimised")


class StartsSettings(Settings):
    """Settings; steps count those of the warm-up, in which an arm with moves finds its step."""

    architecture: Architecture
    delta: float = Field(gt=0)
    num_train: int = Field(default=60_000, gt=0, le=60_000)
    num_test: int = Field(default=5_000, gt=0, le=10_000)
    num_steps: int = Field(gt=0)
    num_warmup: int = Field(gt=0)
    num_records: int = Field(gt=0)
    record_every: int = Field(gt=0)
    num_updates: int = Field(gt=0)
    num_refits: int = Field(default=30, gt=0)
    num_integration_steps: int = Field(default=3, gt=0)
    arms: tuple[StartsArm, ...] = Field(min_length=1)
    only_arms: tuple[str, ...] = ()

    @model_validator(mode="after")
    def _fits(self):
        if self.num_warmup > self.num_steps // 2:
            raise ValueError("num_warmup must be at most half of num_steps, which is judged")
        for arm in self.arms:
            if len(arm.starts) < 2:
                raise ValueError(f"arm {arm.name!r} needs two starts to compare")
            if arm.is_collapsed and self.architecture != "CNN":
                raise ValueError(f"arm {arm.name!r}: only the CNN has a pooling to collapse")
        return self


def run_starts(settings: StartsSettings, context: Context) -> list[Row]:
    """Run the chains of each arm and judge when they agree."""
    rows: list[Row] = []
    curves = {}
    for arm in settings.arms:
        if settings.only_arms and arm.name not in settings.only_arms:
            continue
        found: dict[str, dict] = {
            start: context.stage(
                f"{arm.name}_{start}".replace(" ", "_"),
                functools.partial(_run_chain, settings, arm, start, context),
                of=_settings_of(settings, arm, start),
            )
            for start in arm.starts
        }
        curves[arm.name] = found
        rows += _rows(arm, found, settings)
    _figure(curves, settings, context)
    return rows


def agreement(found: Mapping[str, Mapping], name: str) -> tuple[bool, float, float]:
    """Return whether all starts agree about an observable, after which step, and R-hat at the end.

    They agree after t where the split R-hat of their equally spaced records in (t', 2 t'] is below
    1.1 for every t' from t on; R-hat at the end is that of the last half. Chains that drift alike
    do not agree: each one's halves differ.
    """
    series = list(found.values())
    steps = series[0]["steps"]
    warmup = max(int(one["num_warmup"]) for one in series)
    gap, last = int(np.diff(steps).max()), int(steps[-1])
    spaced = np.arange(gap * (warmup // gap + 1), last + 1, gap)
    draws = np.stack([one[name][np.searchsorted(one["steps"], spaced)] for one in series])
    # From the shortest stretch of which R-hat tells anything.
    first = max(warmup, _FEWEST_RECORDS * gap)
    times = np.unique(np.geomspace(first, last // 2, 40).astype(int))
    values = np.array(
        [float(split_rhat(draws[:, (spaced > t) & (spaced <= 2 * t)])) for t in times]
    )
    wrong = np.flatnonzero(~(values < _AGREE))
    after = 0 if len(wrong) == 0 else wrong[-1] + 1
    agrees = after < len(times)
    return agrees, float(times[after]) if agrees else math.nan, float(values[-1])


def _settings_of(settings: StartsSettings, arm: StartsArm, start: str) -> dict[str, Any]:
    shared = settings.model_dump(mode="json", exclude={"arms", "only_arms"})
    return {"arm": arm.model_dump(mode="json", exclude={"starts"}), "start": start, **shared}


def _run_chain(settings: StartsSettings, arm: StartsArm, start: str, context: Context) -> dict:
    """Return the recorded numbers of one chain.

    `seconds_per_step` contains the compilation of an arm's program in the first start that runs
    it, and not in the others; the row seconds_per_sweep is the mean of all.
    """
    data = images(settings.architecture, settings.num_train, settings.num_test, True)
    full = model_of(settings.architecture, settings.delta)
    model, x, labels = full, *data[:2]
    if arm.is_collapsed:
        model, x, *_ = collapse_pooling(full, x)
    key_start, key_run = jax.random.split(jax.random.fold_in(context.key, STARTS.index(start)))
    num_warmup = settings.num_warmup if arm.has_moves is True else 0
    steps = _recorded_steps(settings, num_warmup)
    name = f"{arm.name}_{start}".replace(" ", "_")
    position = _position(start, model, settings, key_start, x, labels)
    draws = context.sample(
        name,
        key_run,
        _make_kernel(settings, arm),
        jax.tree.map(lambda leaf: leaf[None], position),
        len(steps),
        parameters={"step_size": np.full(1, 0.3, np.float32)},
        data=(model, x, labels),
        num_warmup=num_warmup,
        adapt=dual_averaging(0.8) if num_warmup else None,
        thinning=steps - num_warmup,
        collect=_weights,
    )
    context.record_speed(name, settings.num_steps, draws.seconds)
    weights = jax.tree.map(lambda leaf: leaf[0], draws.positions)
    if arm.is_collapsed:
        weights = (weights[0], (), *weights[1:])
    return {
        "steps": steps,
        "num_warmup": np.asarray(num_warmup),
        "seconds_per_step": np.asarray(draws.seconds / settings.num_steps),
        **evaluate(full.network, weights, *data),
    }


def _recorded_steps(settings: StartsSettings, num_warmup: int) -> np.ndarray:
    spaced = np.arange(settings.record_every, settings.num_steps + 1, settings.record_every)
    steps = np.union1d(geometric_steps(settings.num_steps, settings.num_records), spaced)
    return steps[steps > num_warmup]


def _position(start: str, model: IntermediateNoise, settings: StartsSettings, key, x, labels):
    if start == "zero":
        return model.zero_position(x, labels)
    if start == "prior":
        return jax.jit(model.random_position)(key, x, labels)
    fit = functools.partial(
        optimised_start, num_updates=settings.num_updates, num_refits=settings.num_refits
    )
    return jax.jit(fit)(key, model, x, labels)


@functools.lru_cache(maxsize=8)
def _make_kernel(settings: StartsSettings, arm: StartsArm):
    """Return `make_kernel(parameters, (model, x, labels))`: one object, compiled once."""

    def make_kernel(parameters, data):
        model, x, labels = data
        if not arm.has_moves:
            return gibbs_sampler(model, x, labels, "backward")
        if arm.has_moves == "logit scales":
            return gibbs_with_moves(model, x, labels, [logit_scale_moves(model, x)])
        return interwoven_gibbs(
            model, x, labels, parameters["step_size"], settings.num_integration_steps
        )

    return make_kernel


def _rows(arm: StartsArm, found: dict[str, dict], settings: StartsSettings) -> list[Row]:
    where = f"MNIST {settings.architecture}, Delta = {settings.delta:g}, {arm.name}"
    rows, all_agree, latest = [], True, 0.0
    for name in NUMBERS:
        agrees, bound, rhat = agreement(found, name)
        all_agree, latest = all_agree and agrees, max(latest, bound)
        rows.append(Row("agree", f"{where}, {name}", float(agrees)))
        rows.append(Row("sweeps_until_agreement", f"{where}, {name}", bound))
        rows.append(Row("rhat", f"{where}, {name}", rhat))
        late = {
            start: series[name][series["steps"] > series["steps"][-1] / 2]
            for start, series in found.items()
        }
        spread = float(np.mean([values.std() for values in late.values()]))
        means = [values.mean() for values in late.values()]
        rows.append(Row("levels_apart_in_sd", f"{where}, {name}", float(np.ptp(means)) / spread))
        for start, series in found.items():
            level = stationarity_time(series[name], series["steps"])
            rows.append(
                Row(name, f"{where}, {start} start", float(level.level), float(level.level_error))
            )
    seconds = float(np.mean([one["seconds_per_step"] for one in found.values()]))
    rows += [
        Row("agree", where, float(all_agree)),
        Row("sweeps_until_agreement", where, latest if all_agree else np.nan),
        Row("seconds_until_agreement", where, latest * seconds if all_agree else np.nan),
        Row("seconds_per_sweep", where, seconds),
    ]
    return rows


def _figure(curves: dict[str, dict], settings: StartsSettings, context: Context) -> None:
    """Draw every number against sweeps: a column for each number, a row for each arm."""
    figure = Figure(figsize=(4 * len(NUMBERS), 3 * len(curves)), layout="constrained")
    panels = figure.subplots(len(curves), len(NUMBERS), squeeze=False)
    for row, (arm, found) in zip(panels, curves.items(), strict=True):
        for axes, name in zip(row, NUMBERS, strict=True):
            for start, series in found.items():
                axes.plot(series["steps"], series[name], label=start, linewidth=1)
            axes.set(xscale="log", xlabel="sweeps", title=f"{arm}: {name.replace('_', ' ')}")
    panels[0][0].legend(title="start", fontsize="small")
    context.save_figure(f"starts_{settings.architecture}", figure)


def _weights(state, info):
    return state.position.params
