"""One cell of a study: a network and a sampler, with all step sizes and chains as one program."""

import functools
import os
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from pydantic import Field, model_validator

from experiments.studies.function_space.problem import Problem, wide_network
from experiments.studies.function_space.samplers import Data, Sampler, kernel_maker, starts
from experiments.study import Context, Settings
from jaxbnn import schedule
from jaxbnn.sampling import Progress
from jaxbnn.wide import reduce_inputs, weight_projections

# Folded into the run's key: directions and starts are the same for all samplers.
_DIRECTIONS, _OUTPUT_DIRECTIONS, _STARTS, _CHAINS = range(4)


class GridSettings(Settings):
    """Settings of the experiments on chains: every combination is run.

    `step_sizes` are beta of pCN and pCNL and eps of LMC and MALA; `refreshment` is b of LMC, the
    share of the momentum drawn anew in a step (MALA's is 1). `num_steps` follow `num_burn_in`
    steps, at `burn_in_step_size` where it is given; every `thinning`-th is looked at.
    """

    samplers: tuple[Sampler, ...] = Field(min_length=1)
    widths: tuple[int, ...] = Field(min_length=1)
    hidden_layers: tuple[int, ...] = (1,)
    step_sizes: tuple[float, ...] = Field(min_length=1)
    refreshment: float = Field(gt=0, le=1)
    num_train: int = Field(ge=1)
    num_test: int = Field(ge=1)
    num_chains: int = Field(ge=1)
    num_steps: int = Field(ge=1)
    num_burn_in: int = Field(ge=0)
    burn_in_step_size: float | None = Field(default=None, gt=0, le=1)
    thinning: int = Field(ge=1)
    num_directions: int = Field(ge=2)
    num_workers: int = Field(default=2, ge=1)

    @model_validator(mode="after")
    def _can_be_judged(self):
        if self.num_steps < 16 * self.thinning or self.num_steps % self.thinning:
            raise ValueError("num_steps must be a multiple of thinning, 16 of them at least")
        if self.num_burn_in % self.thinning:
            raise ValueError("num_burn_in must be a multiple of thinning")
        if any(not 0 < size <= 1 for size in self.step_sizes):
            raise ValueError("step_sizes must lie in (0, 1]")
        return self

    @property
    def num_draws(self) -> int:
        """Draws that are looked at, a chain."""
        return self.num_steps // self.thinning


class Cell(NamedTuple):
    """A network (layers and width) and a sampler."""

    hidden_layers: int
    width: int
    sampler: Sampler

    @property
    def name(self) -> str:
        """A file's name."""
        sampler = self.sampler.replace(", ", "_").replace(" ", "_")
        return f"{sampler}_layers_{self.hidden_layers}_width_{self.width}"


# Arrays of a cell, axes (step size, chain, draw, ...): acceptance_rate, weights, predictions.
Found = Mapping[str, np.ndarray]


def run_cells(settings: GridSettings, problem: Problem, context: Context) -> dict[Cell, Found]:
    """Run every cell, wide ones first, several at a time; finished ones are stages of the run."""
    cells = [
        Cell(layers, width, sampler)
        for layers in sorted(settings.hidden_layers, reverse=True)
        for width in sorted(settings.widths, reverse=True)
        for sampler in sorted(settings.samplers, key=lambda name: name.startswith("pCN"))
    ]
    prepare = _shared(settings, problem, context)
    stop = threading.Event()

    def run(cell: Cell) -> Found:
        return context.stage(
            cell.name, functools.partial(_run_cell, cell, settings, prepare, context, stop)
        )

    # Some steps of a chain use one core: another chain uses the other meanwhile.
    workers = settings.num_workers if jax.default_backend() == "cpu" else 1
    with ThreadPoolExecutor(min(workers, os.cpu_count() or 1)) as pool:
        futures = [pool.submit(run, cell) for cell in cells]
        try:
            found = [future.result() for future in futures]
        except BaseException:
            stop.set()
            pool.shutdown(cancel_futures=True)
            raise
    return dict(zip(cells, found, strict=True))


def _run_cell(cell: Cell, settings: GridSettings, prepare: Callable, context, stop) -> dict:
    if stop.is_set():
        raise KeyboardInterrupt
    data = prepare(cell.hidden_layers, cell.width)
    num_sizes, num_chains = len(settings.step_sizes), settings.num_chains
    key = jax.random.fold_in(context.key, _STARTS)
    positions = starts(key, cell.sampler, data.reduction, num_sizes * num_chains)
    parameters = {
        "step_size": np.repeat(np.asarray(settings.step_sizes, np.float32), num_chains),
        "refreshment": np.float32(settings.refreshment),
        "is_burn_in": np.float32(0),
    }
    num_warmup = settings.num_burn_in // settings.thinning
    adapt = None
    if settings.burn_in_step_size is not None and num_warmup > 0:
        parameters["is_burn_in"] = np.float32(1)
        adapt = _end_of_burn_in(num_warmup)

    def report(progress: Progress) -> None:
        if stop.is_set():
            raise KeyboardInterrupt

    draws = context.sample(
        cell.name,
        jax.random.fold_in(context.key, _CHAINS),
        kernel_maker(cell.sampler, settings.thinning, settings.burn_in_step_size),
        positions,
        settings.num_draws,
        parameters=parameters,
        data=data,
        num_warmup=num_warmup,
        adapt=adapt,
        collect=lambda state, info: state.observed,
        progress=report,
    )
    seconds = draws.seconds
    steps = num_sizes * num_chains * (settings.num_steps + settings.num_burn_in)
    context.record_speed(cell.name, steps, seconds)
    rates = np.asarray(draws.infos.acceptance_rate)
    print(
        f"{cell.name}: {steps} steps in {seconds:.0f} s, acceptance "
        + ", ".join(
            f"{rate:.3f} at {size:g}"
            for rate, size in zip(
                rates.reshape(num_sizes, -1).mean(axis=1), settings.step_sizes, strict=True
            )
        ),
        flush=True,
    )
    found = {"acceptance_rate": rates, **draws.positions._asdict()}
    return {
        name: np.asarray(values).reshape(num_sizes, num_chains, *values.shape[1:])
        for name, values in found.items()
    }


@functools.cache
def _end_of_burn_in(num_warmup: int):
    return schedule(lambda step: {"is_burn_in": jnp.where(step + 1 < num_warmup, 1.0, 0.0)})


def _shared(settings: GridSettings, problem: Problem, context: Context) -> Callable[..., Data]:
    """Return a function that prepares a network once for all samplers; thread-safe."""
    lock = threading.Lock()

    @functools.lru_cache(maxsize=2)
    def prepare(hidden_layers: int, width: int) -> Data:
        network = wide_network((width,) * hidden_layers, problem.x.shape[1], problem.y.shape[1])
        reduction = reduce_inputs(network, problem.x, also=problem.x_test)
        key = jax.random.fold_in(context.key, _DIRECTIONS)
        projections = weight_projections(reduction, key, settings.num_directions)
        num_outputs = len(problem.x_test) * problem.y.shape[1]
        shape = (settings.num_directions, num_outputs)
        key = jax.random.fold_in(context.key, _OUTPUT_DIRECTIONS)
        directions = jax.random.normal(key, shape) / np.float32(num_outputs**0.5)
        return Data(reduction, projections, directions, jnp.asarray(problem.y))

    def locked(hidden_layers: int, width: int) -> Data:
        with lock:
            return prepare(hidden_layers, width)

    return locked


def settings_of_cells(cells: Sequence[Cell]) -> dict[str, list[Any]]:
    """Return the layers, widths and samplers that cells have, each once, in ascending order."""
    return {
        "hidden_layers": sorted({cell.hidden_layers for cell in cells}),
        "widths": sorted({cell.width for cell in cells}),
        "samplers": list(dict.fromkeys(cell.sampler for cell in cells)),
    }
