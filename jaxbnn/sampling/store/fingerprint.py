"""What a run computes, as one digest a part: only the same run may go on from a checkpoint.

A longer one may too: the same in all but its number of draws, with the steps of the stored run's
draws as its first ones.
"""

import hashlib
import importlib
import importlib.metadata
from collections.abc import Iterable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from jaxbnn.sampling.devices.hosts import gather
from jaxbnn.sampling.loops import Chains, Options, RateSum, Span, Warming
from jaxbnn.sampling.programs import Programs
from jaxbnn.sampling.run import Run

_PROGRAM = "program (kernel, adapt, collect or reduce)"
_PACKAGES = ("jaxbnn", "jax", "jaxlib", "blackjax", "numpy")


class Shapes(NamedTuple):
    """Shapes and dtypes of what a run stores, each a PyTree: nothing is computed for them."""

    warm_up: PyTree  # states, adaptation, parameters
    sampling: PyTree  # states, reducers, parameters
    draws: PyTree  # positions, infos; leaves (chain, capacity, ...)


def look_ahead(
    programs: Programs,
    options: Options,
    keys: Any,
    positions: PyTree,
    parameters: PyTree,
    data: Any,
) -> tuple[Shapes, dict[str, str]]:
    """Trace a run's programs: the shapes of what it will store, and the programs' digest.

    Placement on devices is left out, so that a run may be resumed on others.
    """
    keys, positions, parameters, data = _abstract((keys, positions, parameters, data))
    begin = (keys, positions, parameters, data)
    states = _abstract(programs.init.eval_shape(*begin))
    start, count = _abstract((np.uint32(0), np.int32(0)))
    adaptation, final = None, parameters
    if options.adapt is not None:
        adaptation = _abstract(programs.init_adaptation.eval_shape(parameters))
        final = _abstract(programs.final_parameters.eval_shape(adaptation))
    warming = Warming(states, adaptation, parameters)
    warm_up = (keys, warming, data, Span(start, count))
    example = programs.warm_up.eval_shape(*warm_up).example
    reducers = _abstract(programs.init_reducers.eval_shape(example)) if options.reduce else ()
    records = _abstract((np.zeros(options.capacity, np.int32), np.zeros(options.capacity, bool)))
    rate_sum = _abstract(RateSum(*(jnp.zeros(len(keys)),) * 2))
    chains = Chains(states, reducers, rate_sum, final)
    sampling = (keys, chains, data, Span(start, count, *records))
    chunk = programs.sampling.eval_shape(*sampling)
    calls: list[tuple[Any, tuple]] = [
        (programs.init, begin),
        (programs.warm_up, warm_up),
        (programs.sampling, sampling),
    ]
    if options.adapt is not None:
        calls += [(programs.init_adaptation, (parameters,))]
        calls += [(programs.final_parameters, (adaptation,))]
        if options.adapt.refresh is not None:
            calls += [(programs.refresh, (keys, states, final, data))]
    if options.reduce:
        calls += [(programs.init_reducers, (example,)), (programs.finalise, (reducers,))]
    text = "".join(program.lower(*arguments).as_text() for program, arguments in calls)
    shapes = Shapes(
        tuple(warming),
        (states, reducers, final),
        _abstract((chunk.positions, chunk.infos)),
    )
    return shapes, {_PROGRAM: hashlib.sha256(text.encode()).hexdigest()}


def settings(run: Run) -> dict[str, str]:
    """Return what a run was called with; a mesh is no part of it."""
    steps, options = run.schedule.steps, run.options
    return {
        "num_samples": f"{len(steps)}",
        "num_warmup": f"{run.num_warmup}",
        "thinning": _thinning(steps),
        "chunk_size": f"{options.capacity} draws, {options.chunk_bytes} bytes",
        "set of reducers": ", ".join(run.reducers),
        "key": digest(run.key),
        "set of positions": digest(_canonical(run.positions)),
        "set of parameters": digest(run.parameters),
        "data set": digest(run.data),
    }


def differences(stored: dict[str, str], ours: dict[str, str], steps: np.ndarray) -> list[str]:
    """Return which parts of a run keep it from going on from the stored one.

    `steps` are those after which this run keeps its draws.
    """
    num_stored = int(stored["num_samples"])
    if num_stored <= len(steps):
        first = _thinning(steps[:num_stored])
        # Loops that skip steps are compiled otherwise than those that keep every one.
        if first == _thinning(np.arange(1, num_stored + 1)) != ours["thinning"]:
            first = ours["thinning"]
        ours = ours | {"num_samples": f"{num_stored}", "thinning": first}
    return named(part for part in ours if stored.get(part) != ours[part])


def named(different: Iterable[str]) -> list[str]:
    """Return the parts that a refusal names: the program only where nothing else differs."""
    different = list(different)
    return [part for part in different if part != _PROGRAM] or different


def _thinning(steps: np.ndarray) -> str:
    """Describe when draws are kept; of every k'th step, without saying how many."""
    gap = int(steps[0])
    is_regular = np.array_equal(steps, gap * np.arange(1, len(steps) + 1))
    return f"every {gap}" if is_regular else digest(steps)


def versions() -> dict[str, str]:
    """Return the versions that the drawn numbers depend on."""
    return {f"version of {name}": _version(name) for name in _PACKAGES}


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:  # imported from its sources
        return str(getattr(importlib.import_module(package), "__version__", "unknown"))


def digest(tree: PyTree) -> str:
    """Return a digest of a PyTree of arrays: its structure, shapes, dtypes and numbers."""
    seen = hashlib.sha256()
    for path, leaf in jax.tree_util.tree_leaves_with_path(tree):
        array = to_numpy(leaf)
        where = jax.tree_util.keystr(path)
        seen.update(f"{where} {array.dtype.name} {array.shape} {key_name(leaf)};".encode())
        seen.update(np.ascontiguousarray(array).tobytes())
    return seen.hexdigest()


def _canonical(tree: PyTree) -> PyTree:
    """Give arrays the dtypes that they have on a device, without taking them there."""

    def cast(leaf):
        if key_name(leaf):
            return leaf
        array = np.asarray(leaf)
        return array.astype(jax.dtypes.canonicalize_dtype(array.dtype), copy=False)

    return jax.tree.map(cast, tree)


def to_numpy(leaf: Any) -> np.ndarray:
    """Return a leaf as NumPy holds it; a typed key as its words."""
    return np.asarray(gather(jax.random.key_data(leaf) if key_name(leaf) else leaf))


def key_name(leaf: Any) -> str:
    """Return the name of a typed key's implementation; empty for any other leaf."""
    is_key = isinstance(leaf, jax.Array) and jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)
    return str(jax.random.key_impl(leaf)) if is_key else ""


def _abstract(tree: PyTree) -> PyTree:
    def shape(leaf):
        leaf = leaf if hasattr(leaf, "dtype") else jnp.asarray(leaf)
        return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype)

    return jax.tree.map(shape, tree)
