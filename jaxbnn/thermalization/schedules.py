"""Schedules of a warm-up's noise variance: functions of the step, and what they must return."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Float

from jaxbnn.numerics import check_positive, is_concrete
from jaxbnn.numerics.checks import check_real

Schedule = Callable[[Array], ArrayLike]


def geometric(
    final_variance: Float[Array, " stages"], start: ArrayLike, num_cooling: int
) -> Schedule:
    """Return the schedule that falls from `start` to the final variances in `num_cooling` steps."""
    ratio = jnp.log(jnp.maximum(jnp.asarray(start, final_variance.dtype) / final_variance, 1))

    def variance_at(step):
        left = 1 - jnp.minimum(step.astype(final_variance.dtype) / num_cooling, 1)
        return final_variance * jnp.exp(left * ratio)

    return variance_at


def check_schedule(
    schedule: Schedule, final_variance: Float[Array, " stages"], num_warmup: int
) -> None:
    """Raise unless a schedule's noise variances fit the stages, are positive and end at the last.

    Of traced numbers only the shape is looked at.
    """

    def value(step):
        found = schedule(step)
        check_real("what schedule returns", found)
        return jnp.asarray(found)

    with jax.ensure_compile_time_eval():
        found = jax.vmap(value)(np.arange(num_warmup, dtype=np.int32))
    if found.shape[1:] not in ((), (1,), final_variance.shape):
        raise ValueError(
            "schedule must return one noise variance, or one for each of the "
            f"{len(final_variance)} stages, but returns shape {found.shape[1:]}."
        )
    if not is_concrete(found):  # of numbers that are themselves traced
        return
    found = np.asarray(found)
    is_sound = np.all((found > 0) & np.isfinite(found), axis=tuple(range(1, found.ndim)))
    if not is_sound.all():
        step = int(np.argmin(is_sound))
        check_positive(f"the schedule's noise variance at step {step}", found[step])
    last = found[-1]
    if is_concrete(final_variance) and not np.allclose(last, final_variance, rtol=1e-5, atol=0):
        wanted = np.unique(np.asarray(final_variance, np.float64))
        raise ValueError(
            "the schedule must end at the model's noise variance, "
            f"{', '.join(f'{v:.6g}' for v in wanted)}, but is "
            f"{', '.join(f'{v:.6g}' for v in np.atleast_1d(last))} at step {num_warmup - 1}."
        )
