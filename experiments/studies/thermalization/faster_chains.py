"""The chains of the study of faster thermalization: data sets, starts, arms and what is recorded.

An arm is a Gibbs sweep with some of the moves that free it, and a warm-up that is annealed or not.
All data sets of one arm from one start are chains of one program, which on a CPU take some
iterations each in turn; the informed chain runs by the same kernel as the others, at the noise
variance of its data from its first step.
"""

import functools
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from blackjax.base import SamplingAlgorithm
from jaxtyping import Array, Float, PyTree

from experiments.studies.thermalization.common import geometric_steps, student, weight_norms
from experiments.studies.thermalization.faster_settings import (
    Arm,
    Case,
    FasterSettings,
    lengths,
    warmup_of,
)
from experiments.studies.thermalization.kernels import tracked
from experiments.study import Context
from jaxbnn import cycle, gibbs, in_turn, repeat, thermalization
from jaxbnn.gibbs import IntermediateNoise, gibbs_sampler
from jaxbnn.sampling import Progress
from jaxbnn.thermalization import mean_squared_error, optimised_start, teacher_student


class DataSets(NamedTuple):
    """Stacked data sets (dataset, ...), their starts by name, and test inputs for all of them."""

    x: Float[Array, "datasets n d"]
    y: Float[Array, "datasets n 1"]
    teachers: PyTree
    starts: dict[str, PyTree]
    x_test: Float[Array, "m d"]


class Recorded(NamedTuple):
    """What is kept of a state: numbers that do not see the order of the units."""

    mse: Any
    norms: Any
    unit_norms: Any
    log_density: Any


def draw_data(settings: FasterSettings, case: Case, context: Context) -> DataSets:
    """Draw the data sets of a case; teachers and inputs are those of every other case."""
    model = student(settings.widths, settings.activation, case.delta)
    key_data, key_test = jax.random.split(jax.random.fold_in(context.key, 0))
    keys = jnp.stack([jax.random.fold_in(key_data, i) for i in range(case.num_datasets)])

    @jax.jit
    @jax.vmap
    def draw(key):
        return teacher_student(
            key,
            model,
            settings.num_train,
            1,
            num_random=case.num_copies,
            is_noiseless=case.is_noiseless,
        )

    drawn = draw(keys)
    named = {name: [drawn.positions[name]] * case.num_copies for name in ("informed", "zero")}
    named["prior"] = [drawn.positions[f"random {i + 1}"] for i in range(case.num_copies)]
    if "optimised" in case.starts:
        fit = jax.jit(jax.vmap(functools.partial(optimised_start, model=model)))
        named["optimised"] = [
            fit(jax.vmap(jax.random.fold_in, (0, None))(keys, 10 + i), x=drawn.x, y=drawn.y)
            for i in range(case.num_copies)
        ]
    # Copies of a data set stand side by side.
    starts = {
        name: jax.tree.map(lambda *leaves: _side_by_side(leaves), *copies)
        for name, copies in named.items()
    }
    x_test = jax.random.normal(key_test, (settings.num_test, settings.widths[0]))
    return DataSets(drawn.x, drawn.y, drawn.positions["informed"].params, starts, x_test)


def _side_by_side(leaves):
    stacked = jnp.stack(leaves, axis=1)
    return stacked.reshape(-1, *stacked.shape[2:])


def run_chains(
    settings: FasterSettings,
    case: Case,
    arm: Arm,
    start: str,
    context: Context,
    draw: Callable[[], DataSets],
) -> dict:
    """Return the recorded series of one arm from one start: arrays (chain, record, ...).

    Beside them the weights where the chains ended, by which one may see what held them.
    `seconds_per_step` contains the compilation of a program in the first start that runs it, and
    in no later start that shares it: starts of one arm differ by that, too.
    """
    data, (num_steps, _) = draw(), lengths(case, settings)
    num_warmup, first_delta = warmup_of(settings, case, arm, start)
    every = arm.turns_every or settings.every  # iterations in one step of the kernel
    steps = recorded_steps(num_steps, num_warmup, settings, every)
    program = _program(settings, arm, case.delta, num_warmup // every)
    # Chains of one data set stand side by side.
    dataset = np.repeat(np.arange(case.num_datasets, dtype=np.int32), case.num_copies)
    anneal_from = np.float32(first_delta)
    variance = np.maximum(np.float32(case.delta), anneal_from)
    name = stage_name(case, arm, start)
    draws = context.sample(
        name,
        jax.random.fold_in(context.key, 1 + _number(name)),
        program.make_kernel,
        data.starts[start],
        len(steps),
        parameters={
            "dataset": dataset,
            "noise_variance": np.full((len(dataset), len(program.model.stages)), variance),
            "step_size": np.full(len(dataset), 0.3, np.float32),
            "anneal_from": np.full(len(dataset), anneal_from),
        },
        data=(data.x, data.y, data.teachers, data.x_test),
        num_warmup=num_warmup // every,
        adapt=program.adapt,
        thinning=(steps - num_warmup) // every,
        collect=program.record,
        progress=_Estimate(name, num_steps * len(dataset), every),
    )
    chain_steps = num_steps * len(dataset)
    context.record_speed(name, chain_steps, draws.seconds)
    weights = jax.tree.leaves(draws.final_state.state.position.params)
    return {
        "steps": steps,
        "num_warmup": np.asarray(num_warmup),
        "seconds_per_step": np.asarray(draws.seconds / chain_steps),
        "final_weights": np.concatenate([w.reshape(len(dataset), -1) for w in weights], axis=1),
        "acceptance_rate": draws.acceptance_rate,
        "step_size": draws.parameters["step_size"],
        **draws.positions._asdict(),
    }


class _Program(NamedTuple):
    """What chains of one arm share, whatever their start: one object, compiled once."""

    model: IntermediateNoise
    make_kernel: Callable
    record: Callable
    adapt: Any


@functools.lru_cache(maxsize=64)
def _program(settings: FasterSettings, arm: Arm, delta: float, num_warmup: int) -> _Program:
    model = student(settings.widths, settings.activation, delta)

    def make_kernel(parameters, data):
        """`parameters` as in `run_chains`; `data`: x, y, teachers of all sets, and test inputs."""
        *of_sets, x_test = data
        x, y, teacher = jax.tree.map(lambda leaf: leaf[parameters["dataset"]], tuple(of_sets))
        now = student(settings.widths, settings.activation, parameters["noise_variance"])
        moves = _moves(settings, arm, now, x, y, parameters["step_size"])
        kernel = (
            gibbs.gibbs_with_moves(now, x, y, moves)
            if moves
            else gibbs_sampler(now, x, y, "backward")
        )
        turns = gibbs.turn_units(now, x, y) if arm.turns_every else None
        kernel = _as_one(kernel, arm.turns_every or settings.every, turns)
        if jax.default_backend() == "cpu":
            # A data set a chain: one after another, each finds its own in the cache.
            kernel = in_turn(kernel)
        return tracked(kernel, (teacher, x, y, x_test))

    def record(state, info):
        params, (teacher, x, y, x_test) = state.params, state.teacher
        f_test = model.network.apply(teacher, x_test)
        return Recorded(
            mean_squared_error(model.network, params, x_test, f_test),
            jnp.stack(weight_norms(params)),
            unit_norms(params),
            model.log_density(state.state.position, x, y),
        )

    adapt = thermalization.annealing(model, num_warmup, hold=settings.hold) if num_warmup else None
    return _Program(model, make_kernel, record, adapt)


def _moves(settings, arm, model, x, y, step_size) -> list:
    makers = {
        "interweave": lambda: gibbs.interweave(
            model, x, y, step_size, settings.num_integration_steps
        ),
        "scales": lambda: gibbs.scale_moves(model, x),
        "noncentred scales": lambda: gibbs.noncentred_scale_moves(model, x, y),
        "redraws": lambda: gibbs.redraw_noisy_units(model, x, y, settings.num_candidates),
    }
    return [makers[name]() for name in arm.moves]


def _as_one(kernel, every: int, turns: SamplingAlgorithm | None) -> SamplingAlgorithm:
    """Return `every` steps of a kernel, and one of the turns if any; the Info is of the steps."""
    steps = repeat(kernel, every)
    both = cycle(steps, turns) if turns else steps

    def step(rng_key, state):
        state, info = both.step(rng_key, state)
        info = info.infos[0] if turns else info
        return state, info._replace(infos=())

    return SamplingAlgorithm(both.init, step)


def recorded_steps(
    num_steps: int, num_warmup: int, settings: FasterSettings, every: int = 1
) -> np.ndarray:
    """Return the steps, counted from the start, after which a state is recorded.

    They are multiples of `every`.
    """
    geometric = geometric_steps(num_steps, settings.num_records)
    spaced = np.arange(settings.record_every, num_steps + 1, settings.record_every)
    steps = np.unique(-(-np.union1d(geometric, spaced) // every) * every)
    return steps[steps > num_warmup]


def unit_norms(params: PyTree) -> Float[Array, " units"]:
    """Return |outgoing| |incoming| of the first layer's units, increasing: scales don't change it.

    Examples
    --------
    >>> layers = {"w": jnp.array([[3.0, 1.0]]), "b": jnp.array([4.0, 0.0])}, {"w": jnp.ones((2, 1))}
    >>> unit_norms(layers).tolist()
    [1.0, 5.0]
    """
    first, following = [layer for layer in params if layer][:2]
    incoming = jnp.sum(jnp.square(first["w"]), axis=0) + jnp.square(first["b"])
    outgoing = jnp.sum(jnp.square(following["w"]), axis=1)
    return jnp.sort(jnp.sqrt(incoming * outgoing))


def stage_name(case: Case, arm: Arm, start: str) -> str:
    """Return the name of a stage's files; arms of one kernel share the informed chains."""
    labels = "noiseless" if case.is_noiseless else "noisy"
    copies = "" if case.num_copies == 1 else f"_{case.num_copies}_copies"
    whose = arm.kernel_name if start == "informed" else arm.name
    words = f"{whose}_{labels}_{case.delta:g}{copies}_{start}"
    return "".join(c if c.isalnum() or c in "_.-" else "_" for c in words)


def _number(name: str) -> int:
    """Return a number below 2^31 made of a name: the same in every process."""
    return int.from_bytes(name.encode(), "big") % (2**31 - 1)


class _Estimate:
    """Says once, when it is known, how long a stage will take; then each tenth of it."""

    def __init__(self, name: str, total: float, every: int):
        self.name, self.total, self.every = name, total, every
        self.told: tuple[str, int] | None = None

    def __call__(self, progress):
        if not isinstance(progress, Progress) or not math.isfinite(progress.seconds_left):
            return
        tenth = (progress.phase, 10 * progress.done // max(progress.total, 1))
        if tenth == self.told or progress.steps_per_second <= 0:
            return
        self.told = tenth
        rate = progress.steps_per_second * self.every
        print(
            f"{self.name}: {progress.phase} {progress.done * self.every:,} of "
            f"{progress.total * self.every:,} iterations, "
            f"{1e3 / rate:.2f} ms for one of a chain, {self.total / rate / 60:.0f} min for all",
            flush=True,
        )
