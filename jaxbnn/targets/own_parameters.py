"""Likelihoods with numbers that are given, or learnt where they are None."""

import math
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, ArrayLike

from jaxbnn.numerics import check_positive, is_concrete
from jaxbnn.targets.likelihoods import Likelihood, make_unchecked

# Of a logarithm from 0: e^-88 is no normal number of float32.
FARTHEST = 87.0
# Of degrees of freedom and concentrations: beyond, the law is that of infinitely many, and within,
# squares and counts over those are far from overflow.
FARTHEST_COUNT = math.log(1e12)


class PositiveNumbers(Likelihood):
    """A likelihood whose fields are positive numbers; None is learnt, as its logarithm.

    Attributes
    ----------
    logarithms
        For each field the name in the position of its logarithm.
    farthest
        For each field how far from 0 its logarithm counts; 87, e^87 being near float32's end, where
        nothing is said. Beyond, the likelihood is that of the nearest value.

    Examples
    --------
    >>> from jaxbnn.targets import StudentT
    >>> StudentT(scale=0.1).learned, StudentT().given({"log_noise_scale": jnp.zeros(())}).scale
    (('log_degrees',), Array(1., dtype=float32))
    """

    logarithms: ClassVar[Mapping[str, str]] = {}
    farthest: ClassVar[Mapping[str, float]] = {}

    def __post_init__(self) -> None:
        """Check the numbers that are given."""
        for name in self.logarithms:
            value: Any = getattr(self, name)
            if value is None:
                continue
            check_positive(name, value)
            if jnp.ndim(value):
                raise ValueError(
                    f"{name} must be one number or None, but has shape {jnp.shape(value)}."
                )

    @property
    def learned(self) -> tuple[str, ...]:  # type: ignore[override]
        """Names in the position of what is learnt."""
        return tuple(n for field, n in self.logarithms.items() if getattr(self, field) is None)

    def given(self, parameters: Mapping[str, Array]) -> Any:
        """Return the likelihood at values of what it learns."""
        fields = {
            field: jnp.exp(within(parameters[name], self.farthest.get(field, FARTHEST)))
            if getattr(self, field) is None and name in parameters
            else getattr(self, field)
            for field, name in self.logarithms.items()
        }
        return make_unchecked(type(self), **fields)

    def learned_shapes(self, columns: tuple[int, ...]) -> Mapping[str, Sequence[tuple[int, ...]]]:
        """Return that each is one number."""
        return {name: ((),) for name in self.learned}

    def known(self, dtype: Any) -> tuple[Array, ...]:
        """Return the numbers, in the dtype of the outputs; raise where one is to be learnt."""
        if self.learned:
            raise ValueError(
                f"{type(self).__name__} has {', '.join(self.learned)} to learn; take "
                "likelihood.given(...)."
            )
        return tuple(jnp.asarray(getattr(self, field), dtype) for field in self.logarithms)


def within(logarithm: Array, farthest: float = FARTHEST) -> Array:
    """Return a logarithm whose exponential, and one over it, are numbers of float32."""
    # The slope of `jnp.clip` beyond is 0 times what comes, which may be infinite.
    limited = lax.stop_gradient(jnp.clip(logarithm, -farthest, farthest))
    return jnp.where(jnp.abs(logarithm) < farthest, logarithm, limited)


def check_whole(name: str, what: str, y: ArrayLike, most: int | None = None) -> None:
    """Raise ValueError unless y holds whole numbers from 0 on, or up to `most`.

    Examples
    --------
    >>> check_whole("Poisson", "counts", np.array([0.0, 1.5]))
    Traceback (most recent call last):
    ValueError: counts of Poisson must be whole numbers from 0 on, but y holds 1.5 at index (1,).
    """
    if not is_concrete(y):
        return
    values = np.asarray(y)
    bad = (values < 0) | (values != np.round(values))
    if most is not None:
        bad |= values > most
    if bad.any():
        place = tuple(int(i) for i in np.argwhere(bad)[0])
        span = "from 0 on" if most is None else f"0..{most}"
        raise ValueError(
            f"{what} of {name} must be whole numbers {span}, but y holds {values[place]:g} at "
            f"index {place}."
        )
