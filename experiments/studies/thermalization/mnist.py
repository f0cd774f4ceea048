"""MNIST by a perceptron and a small convolutional network (figure 3).

Gibbs on the intermediate-noise posterior with a probit output; HMC and MALA on the classical
posterior with a softmax. Weights at the recorded steps are evaluated after the run and thrown
away; predictions are the noiseless forward pass of one state. Seconds a step include compilation
of the first chain only: a sampler's others run the program that it compiled.
"""

import functools
from collections.abc import Callable
from typing import Literal

import jax
import jax.numpy as jnp
import numpy as np
from pydantic import Field

from experiments import datasets
from experiments.studies.thermalization import pictures
from experiments.studies.thermalization.common import (
    cnn,
    geometric_steps,
    mean_and_error,
    weight_norms,
)
from experiments.studies.thermalization.kernels import kernel_on_labels
from experiments.study import Context, Row, Settings
from jaxbnn import mlp
from jaxbnn.diagnostics import split_rhat, stationarity_time
from jaxbnn.gibbs import IntermediateNoise

SECTION = "000 Section V.2"
Architecture = Literal["MLP", "CNN"]


class MnistRun(Settings):
    """One sampler; `initial_scale` is the standard deviation of HMC's and MALA's start.

    `is_standardised`: one scalar mean and standard deviation of the training images removed, of
    pixels between 0 and 1. Gibbs starts at zero, and `order` is that of its sweep: the paper's
    accuracies of the first sweeps are those of "backward".
    """

    sampler: Literal["Gibbs", "HMC", "MALA"]
    delta: float = Field(gt=0)
    num_steps: int = Field(gt=0)
    num_chains: int = Field(gt=0)
    is_standardised: bool
    order: Literal["sequential", "parallel", "backward"] = "sequential"
    learning_rate: float | None = Field(default=None, gt=0)
    leapfrog_steps: int | None = Field(default=None, gt=0)
    initial_scale: float | None = Field(default=None, gt=0)

    @property
    def label(self) -> str:
        """What it is called in figures."""
        return f"{self.sampler}, {'intermediate' if self.sampler == 'Gibbs' else 'classical'}"

    @property
    def paper_name(self) -> str:
        """What it is called in the paper's values."""
        kind = "intermediate noise" if self.sampler == "Gibbs" else "classical"
        return f"{self.sampler}, {kind} posterior"


class MnistSettings(Settings):
    """Settings; `checkpoints` are the steps whose accuracies become rows."""

    architecture: Architecture
    num_train: int = Field(default=60_000, gt=0, le=60_000)
    num_test: int = Field(default=5_000, gt=0, le=10_000)
    num_records: int = Field(gt=0)
    checkpoints: tuple[int, ...] = (10, 30, 100, 300, 1000)
    runs: tuple[MnistRun, ...] = Field(min_length=1)


def run_mnist(settings: MnistSettings, context: Context) -> list[Row]:
    """Run each sampler's chains one after the other, and evaluate their weights."""
    rows: list[Row] = []
    curves: list[dict] = []
    table: list[list] = []
    for index, run in enumerate(settings.runs):
        data = images(
            settings.architecture, settings.num_train, settings.num_test, run.is_standardised
        )
        model = model_of(settings.architecture, run.delta)
        zero = jax.tree.map(jnp.zeros_like, model.sample_prior(context.key))
        # Made once, so that all chains share one compiled program.
        kernel = kernel_on_labels(run.sampler, run.leapfrog_steps, model, zero, run.order)
        found = []
        for chain in range(run.num_chains):
            key = jax.random.fold_in(jax.random.fold_in(context.key, index), chain)
            stage = f"{index}_{run.sampler}_{chain}"
            given = (run, settings, model, kernel, context, stage, data, key)
            found.append(context.stage(stage, functools.partial(_sample, *given)))
        rows += _rows(run, settings, found)
        for chain, one in enumerate(found):
            table += [
                [run.sampler, chain, int(one["steps"][i]), *(float(one[n][i]) for n in NUMBERS)]
                for i in np.flatnonzero(np.isin(one["steps"], settings.checkpoints))
            ]
            seconds = one["steps"] * one["seconds_per_step"]
            values = 1 - one["test_accuracy"]
            note = f", Delta = {run.delta:g}" if chain == 0 else None
            curve = {"label": run.label, "seconds": seconds, "values": values, "note": note or ""}
            curves.append({**curve, "is_faint": note is None})
        if len(found) > 1:
            errors = np.stack([one["test_accuracy"] for one in found])
            late = errors[:, steps_after_half(found[0]["steps"])]
            print(f"{run.label}: split R-hat of the test error {float(split_rhat(late)):.3f}")
    context.save_table("accuracies", ["sampler", "chain", "step", *NUMBERS], table)
    pictures.dynamics(curves, "figure_3", "test error", context)
    return rows


def steps_after_half(steps: np.ndarray) -> np.ndarray:
    """Return which records lie in the last half of the steps."""
    return steps > steps[-1] / 2


NUMBERS = ("test_accuracy", "train_accuracy", "weight_norm_1", "weight_norm_2")


def images(
    architecture: Architecture, num_train: int, num_test: int, is_standardised: bool
) -> tuple[jax.Array, ...]:
    """Return training images and labels, test images and labels, in the shapes of a network."""
    split = datasets.mnist()
    x = split.x_train[:num_train].astype(np.float32) / 255
    x_test = split.x_test[:num_test].astype(np.float32) / 255
    if is_standardised:
        mean, spread = x.mean(dtype=np.float64), x.std(dtype=np.float64)
        x, x_test = ((part - np.float32(mean)) / np.float32(spread) for part in (x, x_test))
    shape = (-1, 784) if architecture == "MLP" else (-1, 28, 28, 1)
    labels = split.y_train[:num_train].astype(np.int32)
    labels_test = split.y_test[:num_test].astype(np.int32)
    return tuple(
        jnp.asarray(a) for a in (x.reshape(shape), labels, x_test.reshape(shape), labels_test)
    )


def model_of(architecture: Architecture, delta: float) -> IntermediateNoise:
    """Return the paper's perceptron or convolutional network with a probit output."""
    if architecture == "MLP":
        network, precisions = mlp((784, 12, 10)), (784.0, 12.0)
    else:
        network, precisions = cnn(), (16.0, 72.0)
    return IntermediateNoise(network, delta, precisions, precisions, output="probit")


@functools.partial(jax.jit, static_argnums=0)
def evaluate(network, positions, x, labels, x_test, labels_test) -> dict[str, jax.Array]:
    """Return accuracies and norms of weights (record, ...), one record at a time."""

    def one(params):
        def accuracy(inputs, targets):
            predicted = jnp.argmax(network.apply(params, inputs), axis=-1)
            return jnp.mean((predicted == targets).astype(x.dtype))

        numbers = (accuracy(x_test, labels_test), accuracy(x, labels), *weight_norms(params))
        return dict(zip(NUMBERS, numbers, strict=True))

    return jax.lax.map(one, positions)


def _sample(
    run: MnistRun,
    settings: MnistSettings,
    model: IntermediateNoise,
    kernel: Callable,
    context: Context,
    stage: str,
    data,
    key,
) -> dict:
    """Return one chain's numbers at the recorded steps.

    `seconds_per_step` contains compilation, but of a sampler's first chain alone: the others run
    the same program.
    """
    x, labels, _, _ = data
    key_start, key_run = jax.random.split(key)
    if run.sampler == "Gibbs":
        start = model.zero_position(x, labels)
    else:
        shapes = model.sample_prior(key_start)
        keys = jax.random.split(key_start, len(jax.tree.leaves(shapes)))
        leaves, structure = jax.tree.flatten(shapes)
        scale = run.initial_scale or 1e-4
        normals = [scale * jax.random.normal(k, v.shape) for k, v in zip(keys, leaves, strict=True)]
        start = jax.tree.unflatten(structure, normals)
    steps = np.union1d(
        geometric_steps(run.num_steps, settings.num_records),
        [step for step in settings.checkpoints if step <= run.num_steps],
    ).astype(np.int64)
    draws = context.sample(
        stage,
        key_run,
        kernel,
        jax.tree.map(lambda leaf: leaf[None], start),
        len(steps),
        parameters={"step_size": np.float32(run.learning_rate or 1.0)},
        data=(x, labels),
        thinning=steps,
        collect=_weights,
    )
    seconds = draws.seconds / run.num_steps
    context.record_speed(f"{run.label}, {settings.architecture}", 1.0, seconds)
    weights = jax.tree.map(lambda leaf: leaf[0], draws.positions)
    numbers = evaluate(model.network, weights, *data)
    return {"steps": draws.steps, "seconds_per_step": np.asarray(seconds), **numbers}


def _weights(state, info):
    position = state.position
    return getattr(position, "params", position)


def _rows(run: MnistRun, settings: MnistSettings, found: list[dict]) -> list[Row]:
    """Return the rows of one sampler from its chains.

    Means and errors of seconds treat all chains alike, though the first one's contain compilation:
    of three chains of the small convolutional network .0281 +- .0239 s a sweep, where the last two
    take .0042 each. Such an error does not tell how the machine's speed varies.
    """
    name = f"MNIST {settings.architecture}, {run.paper_name}"
    unit = "sweeps" if run.sampler == "Gibbs" else "steps"
    rows = []
    steps = found[0]["steps"]
    for step in settings.checkpoints:
        if step in steps:
            at = int(np.flatnonzero(steps == step)[0])
            rows += [
                Row(n, f"{name}, {step} {unit}", *mean_and_error([one[n][at] for one in found]))
                for n in NUMBERS
            ]
    times = []
    if steps_after_half(steps).sum() >= 20:
        for one in found:
            judged = stationarity_time(np.log(1 - one["test_accuracy"] + 1e-4), steps)
            if judged.is_passed:
                times.append(judged.lower_bound * float(one["seconds_per_step"]))
        rows.append(Row("share_stationary", name, len(times) / len(found)))
    # A mean over the chains that became stationary in time would be too small.
    known = times if len(times) == len(found) else []
    rows.append(Row("time_to_stationarity_seconds", name, *mean_and_error(known), SECTION))
    seconds = [one["seconds_per_step"] for one in found]
    rows.append(Row("seconds_per_step", name, *mean_and_error(seconds)))
    rows.append(Row("num_steps", name, float(run.num_steps)))
    return rows
