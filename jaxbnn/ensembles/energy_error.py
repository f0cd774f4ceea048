"""The energy error of unadjusted microcanonical draws, measured while they are made."""

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from jaxbnn.ensembles.step_size_rules import is_energy_blow_up
from jaxbnn.numerics.arrays import widened
from jaxbnn.sampling import Reducer


class EnergyError(NamedTuple):
    """What `energy_errors` finds.

    Attributes
    ----------
    energy_error
        Mean of Delta E^2 / d over the steps that did not blow up; no units.
    num_steps
        How many steps were seen.
    num_blow_ups
        Steps that were undone, or changed the energy by no finite number.
    """

    energy_error: Float[Array, "..."]
    num_steps: Int[Array, "..."]
    num_blow_ups: Int[Array, "..."]


@functools.lru_cache(maxsize=1)
def energy_errors() -> Reducer:
    """Mean squared energy change a dimension over every step of an unadjusted kernel, kept or not.

    `jaxbnn.diagnostics.energy_error_in_words` says what it implies. Result: `EnergyError`.

    Raises
    ------
    ValueError
        A kernel whose Info has no energy change.

    Notes
    -----
    The energy error variance per dimension of Robnik et al. (2023), section 5.

    Examples
    --------
    >>> reducer = energy_errors()
    >>> r = reducer.init((jnp.zeros(()), jnp.array(False)))
    >>> for error, is_blow_up in ((0.1, False), (0.0, True), (0.3, False)):
    ...     r = reducer.update(r, (jnp.array(error), jnp.array(is_blow_up)))
    >>> found = reducer.finalise(r)
    >>> round(float(found.energy_error), 6), int(found.num_blow_ups)
    (0.2, 1)
    """

    def init(example):
        zero = jnp.zeros((), jnp.int32)
        return EnergyError(jnp.zeros_like(example[0]), zero, zero)

    def update(r, seen):
        error, is_blow_up = seen
        num_steps = r.num_steps + 1
        num_blow_ups = r.num_blow_ups + is_blow_up.astype(jnp.int32)
        count = jnp.maximum(num_steps - num_blow_ups, 1).astype(error.dtype)
        change = jnp.where(is_blow_up, 0, error - r.energy_error)
        return EnergyError(r.energy_error + change / count, num_steps, num_blow_ups)

    def merge(a, b):
        sound = [x.num_steps - x.num_blow_ups for x in (a, b)]
        weight = sound[1] / jnp.maximum(sum(sound), 1)
        mean = a.energy_error + (b.energy_error - a.energy_error) * weight.astype(
            a.energy_error.dtype
        )
        return EnergyError(mean, a.num_steps + b.num_steps, a.num_blow_ups + b.num_blow_ups)

    return Reducer(init, update, merge, lambda r: r, collect=_error_of, every_step=True)


def _error_of(state: Any, info: Any) -> tuple[Array, Array]:
    is_blow_up = is_energy_blow_up(info)
    size = sum(jnp.size(leaf) for leaf in jax.tree.leaves(state.position))
    error = jnp.square(widened(info.energy_change)) / size
    return jnp.where(is_blow_up, jnp.zeros_like(error), error), is_blow_up
