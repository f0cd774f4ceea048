"""Rules for the step size of a microcanonical kernel: by its energy error, or by its acceptance.

Unadjusted, a step's energy changes by Delta E, which would be 0 without discretisation, and
E[Delta E^2] grows as eps^6 for integrators of second order (Robnik et al. 2023, section 5). What is
followed is therefore the rate

    v = E[Delta E^2] / (d eps^6),   eps = (target / v)^(1/6),

as a running mean over the last steps, in logarithms: 1/eps^6 leaves float32 at eps = 1e-7. Where
the power law does not hold, eps still stands still only where the mean followed is the target.
Numbers that say nothing stay out of it, and numbers far above it are cut, so that neither a
blow-up nor an outlier decides the step size; a blow-up shrinks it, always. Where a hundredth of the
steps has most of E[Delta E^2], as on skewed posteriors of few parameters, the mean followed is
less: of four weights with four fifths of it there, E[Delta E^2] / d was five times the target.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from blackjax.adaptation.step_size import dual_averaging_adaptation
from jaxtyping import Array, Bool, Float

from jaxbnn.sampling.adaptation import acceptance_of, like

_ORDER = 6.0
# The running mean remembers so many steps at least, later this share of all: at first a chain is on
# its way, then energy errors come in long waves. What lies above so many times the mean is cut.
_MEMORY, _MEMORY_SHARE = 100.0, 0.3
_MOST_RATIO = 20.0
# In one step, the step size changes at most by this factor (up or down), and after a blow-up is
# at most this part of what it was.
_MOST_CHANGE = 2.0
_SHRINKAGE = 0.8
# A step size that is 0 would be stuck there.
_LEAST = 1e-20
# A finite energy change is called a blow-up where its square is so many times what is wanted.
_BLOW_UP = 1e4


class Followed(NamedTuple):
    """What a step tells a rule; leaves (chain,)."""

    info: Any
    has_moved: Bool[Array, " chain"]


class StepSizeRule(NamedTuple):
    """A rule for one step size, that of all the chains it sees.

    Attributes
    ----------
    init
        `init(step_size) -> r`.
    update
        `update(r, step_size, target, followed, num_dimensions) -> (r, step_size, is_blow_up)`, with
        the energy error that is wanted in this step, and `is_blow_up` (chain,).
    final
        `final(r, step_size) -> step_size`.
    """

    init: Callable[[Array], Any]
    update: Callable[..., tuple[Any, Array, Array]]
    final: Callable[[Any, Array], Array]


class _Rate(NamedTuple):
    log_rate: Float[Array, ""]
    num_sound: Float[Array, ""]


def energy_rule() -> StepSizeRule:
    """Return the rule that keeps E[Delta E^2] / d at its target."""

    def init(step_size):
        zero = jnp.zeros((), step_size.dtype)
        return _Rate(zero, zero)

    def update(r, step_size, target, followed, num_dimensions):
        dtype = step_size.dtype
        target = jnp.asarray(target, dtype)
        error = jnp.square(_energy_change(followed.info)).astype(dtype) / num_dimensions
        is_blow_up = is_energy_blow_up(followed.info) | ~followed.has_moved
        is_blow_up |= ~(error <= _BLOW_UP * target)
        log_size, log_target = jnp.log(step_size), jnp.log(target)
        tiny = jnp.finfo(dtype).tiny
        log_rates = jnp.log(jnp.where(is_blow_up, 1, jnp.maximum(error, tiny))) - _ORDER * log_size

        is_sound = (~is_blow_up).astype(dtype)
        num_sound = jnp.sum(is_sound)
        # The first sound step sets the mean.
        first = jnp.sum(log_rates * is_sound) / jnp.maximum(num_sound, 1)
        before = jnp.where(r.num_sound > 0, r.log_rate, first)
        ratios = jnp.exp(jnp.minimum(log_rates - before, jnp.log(jnp.asarray(_MOST_RATIO, dtype))))
        mean = jnp.sum(ratios * is_sound) / jnp.maximum(num_sound, 1)
        has_sound = num_sound > 0
        seen = r.num_sound + has_sound.astype(dtype)
        memory = jnp.clip(_MEMORY_SHARE * seen, jnp.clip(seen, 2, _MEMORY))
        change = jnp.where(has_sound, jnp.log1p((mean - 1) / memory), 0)

        most = jnp.log(jnp.asarray(_MOST_CHANGE, dtype))
        wanted = (log_target - (before + change)) / _ORDER
        new_size = jnp.clip(wanted, log_size - most, log_size + most)
        # After a blow-up the mean says, too, that the step was too large, and forgets it slowly.
        share = 1 - jnp.mean(is_sound)
        has_blow_up = share > 0
        smaller = log_size + share * jnp.log(jnp.asarray(_SHRINKAGE, dtype))
        new_size = jnp.where(has_blow_up, jnp.minimum(new_size, smaller), new_size)
        new_size = jnp.maximum(new_size, jnp.log(jnp.asarray(_LEAST, dtype)))
        known = jnp.maximum(before + change, log_target - _ORDER * new_size)
        log_rate = jnp.where(has_blow_up, known, before + change)
        return _Rate(log_rate, seen), jnp.exp(new_size), is_blow_up

    return StepSizeRule(init, update, lambda r, step_size: step_size)


def acceptance_rule(target_acceptance_rate: float) -> StepSizeRule:
    """Return the rule of dual averaging (Hoffman and Gelman 2014, section 3.2), by BlackJAX."""
    da_init, da_update, da_final = dual_averaging_adaptation(target_acceptance_rate)

    def init(step_size):
        return jax.tree.map(lambda x: jnp.asarray(x, step_size.dtype), da_init(step_size))

    def update(r, step_size, target, followed, num_dimensions):
        rate = acceptance_of(followed.info)
        r = like(da_update(r, jnp.mean(rate)), r)
        is_blow_up = jnp.isnan(jnp.asarray(followed.info.acceptance_rate))
        if getattr(followed.info, "is_divergent", None) is not None:
            is_blow_up |= followed.info.is_divergent
        return r, jnp.exp(r.log_step_size), is_blow_up

    return StepSizeRule(init, update, lambda r, step_size: da_final(r))


def is_energy_blow_up(info: Any) -> Bool[Array, "..."]:
    """Return where an unadjusted step was undone, or changed the energy by no finite number.

    BlackJAX undoes a step with NaN or infinity in it and then reports an energy change of 0:
    `nonans` alone tells.
    """
    is_whole = getattr(info, "nonans", None)
    is_finite = jnp.isfinite(_energy_change(info))
    return ~is_finite if is_whole is None else ~(is_finite & is_whole)


def _energy_change(info: Any) -> Array:
    change = getattr(info, "energy_change", None)
    if change is None:
        raise ValueError(
            "energy errors are those of an unadjusted microcanonical kernel, but this one's Info "
            f"({type(info).__name__}) has no energy change; tune an adjusted one by its "
            "target_acceptance_rate."
        )
    return jnp.asarray(change)
