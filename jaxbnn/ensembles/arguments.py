"""What `optimised_starts` is given, checked before anything runs: one sentence a mistake."""

import functools
from typing import Any, NamedTuple

import jax
import numpy as np
import optax
from jaxtyping import PyTree

from jaxbnn.ensembles.epochs import Plan
from jaxbnn.ensembles.initial import check_precision
from jaxbnn.numerics import check_count, check_fraction
from jaxbnn.numerics.arguments import check_optimizer, check_type
from jaxbnn.numerics.checks import check_outside
from jaxbnn.sampling.order import ordered
from jaxbnn.sampling.validation import check_checkpoint, check_key, check_mesh_type
from jaxbnn.targets import Posterior

# Epochs of one call of the program, at most: of the curves that it returns.
_CAPACITY = 64
_BATCHES = 32
_FEWEST_ROWS, _MOST_ROWS = 32, 512


class Arguments(NamedTuple):
    """What training needs: the static plan, and numbers."""

    plan: Plan
    num_chains: int
    num_held_out: int
    patience: int
    max_epochs: int


def checked_arguments(
    key: Any,
    posterior: Any,
    num_chains: Any,
    optimizer: Any,
    batch_size: Any,
    validation: Any,
    patience: Any,
    max_epochs: Any,
    checkpoint: Any,
    mesh: Any,
) -> Arguments:
    """Return the arguments, or raise one sentence."""
    check_type(
        "posterior", posterior, Posterior, "write optimised_starts(key, posterior, num_chains)"
    )
    why = "it visits the host between epochs; call it outside: it compiles training itself"
    check_outside("optimised_starts", why, key, ordered(posterior))
    check_key(key)
    position = jax.eval_shape(posterior.sample_prior, jax.random.key(0))
    check_precision(position)
    counts = {"num_chains": num_chains, "patience": patience, "max_epochs": max_epochs}
    for name, value in counts.items():
        check_count(name, value)
    check_checkpoint(checkpoint)
    check_mesh_type(mesh)
    if mesh is not None and mesh.is_multi_process:
        raise ValueError(
            "optimised_starts trains on the devices of one process, but this mesh has those of "
            "several; leave mesh out, and hand its positions to sample with the mesh."
        )
    num_held_out = _num_held_out(validation, len(posterior.x))
    num_trained = len(posterior.x) - num_held_out
    plan = Plan(
        _optimizer(optimizer, position),
        num_trained,
        _batch_size(batch_size, num_trained),
        _CAPACITY,
    )
    return Arguments(plan, int(num_chains), num_held_out, int(patience), int(max_epochs))


def _num_held_out(validation: Any, num_rows: int) -> int:
    check_fraction("validation", validation, "; 0.1 holds out a tenth of the rows")
    num_held_out = round(float(validation) * num_rows)
    if not 0 < num_held_out < num_rows:
        what = "none to stop by" if num_held_out == 0 else "none to train on"
        raise ValueError(
            f"validation={float(validation):g} of {num_rows} rows leaves {what}; give another part "
            "or more rows."
        )
    return num_held_out


def default_batch_size(num_trained: int) -> int:
    """Return the rows of an update where none are asked for."""
    size = int(np.clip(num_trained // _BATCHES, _FEWEST_ROWS, _MOST_ROWS))
    return min(size, num_trained)


def _batch_size(batch_size: Any, num_trained: int) -> int:
    if batch_size is None:
        return default_batch_size(num_trained)
    check_count("batch_size", batch_size)
    if batch_size > num_trained:
        raise ValueError(
            f"batch_size is {batch_size}, but a chain trains on {num_trained} rows only; give a "
            "smaller one, or None to have it chosen."
        )
    return int(batch_size)


def _optimizer(optimizer: Any, position: PyTree) -> optax.GradientTransformation:
    if optimizer is None:
        return _default_optimizer()
    check_optimizer(optimizer, position)
    return optimizer


@functools.cache  # one object, so that a second call finds its program
def _default_optimizer() -> optax.GradientTransformation:
    return optax.adam(0.005)
