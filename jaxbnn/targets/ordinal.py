"""Ordered classes: one output a datum, and cutpoints that divide its line into the classes."""

import dataclasses
from collections.abc import Mapping, Sequence

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jaxtyping import Array, ArrayLike, Float

from jaxbnn.numerics import check_count, check_real, is_concrete
from jaxbnn.targets.likelihoods import Likelihood, Outputs, Targets, Terms, lay_out, make_unchecked
from jaxbnn.targets.own_parameters import check_whole

_NAME = "cutpoint_gaps"
# Logarithms of gaps whose exponentials, and sums of them, are far from the end of float32.
_WIDEST = 60.0
# Of narrower gaps 1 - exp(-gap) has a series, of wider ones it is 1.
_NARROW, _WIDE = 0.1, 5.0
_FLOAT32 = np.finfo(np.float32)


@dataclasses.dataclass(frozen=True)
class Ordinal(Likelihood):
    """Labels 0..C-1 in order, p(y <= k) = sigmoid(c_k - f(x)), c_0 < ... < c_{C-2}.

    The cumulative logit, or proportional odds, model (McCullagh 1980).

    Parameters
    ----------
    num_classes
        C, at least 2.
    cutpoints
        C - 1 increasing numbers, leaves that may be traced; of concrete ones the gaps are those in
        float64, also where outputs are float32. None, the default, learns them: the position is
        then {"network": params, "cutpoint_gaps": g} with g of shape (C - 1,): c_0 is its first
        number, and the others are the logarithms of the gaps from one to the next, of 60 and more
        the likelihood at 60.

    Raises
    ------
    ValueError
        If the cutpoints are not C - 1 increasing numbers, finite in float32; `check`, if a label
        is no class, or y is not of shape (n,); `Posterior`, if the prior of the gaps is not of
        shape (C - 1,).

    Examples
    --------
    >>> found = Ordinal(3, jnp.array([-1.0, 1.0])).predictive(jnp.zeros((1, 1)), 1)
    >>> [round(float(p), 4) for p in found.probs[0]]
    [0.2689, 0.4621, 0.2689]
    """

    num_classes: int = dataclasses.field(metadata={"static": True})
    cutpoints: ArrayLike | None = None
    # Of each cutpoint what float32 leaves out of it: close ones have no gap without.
    _remainders: ArrayLike | None = dataclasses.field(
        default=None, init=False, repr=False, compare=False
    )

    def __post_init__(self) -> None:
        """Check the classes and the cutpoints."""
        check_count("num_classes", self.num_classes, least=2)
        if self.cutpoints is not None:
            check_real("cutpoints", self.cutpoints)
        if self.cutpoints is None or not is_concrete(self.cutpoints):
            return
        cuts = np.asarray(self.cutpoints, np.float64)
        is_sound = cuts.shape == (self.num_classes - 1,) and (np.abs(cuts) <= _FLOAT32.max).all()
        if not is_sound or not (np.diff(cuts) > _FLOAT32.tiny).all():
            raise ValueError(
                f"cutpoints must be {self.num_classes - 1} increasing numbers, finite in float32, "
                f"for {self.num_classes} classes, but are {cuts.tolist()}."
            )
        remainders = (cuts - cuts.astype(np.float32)).astype(np.float32)
        if remainders.any():  # else the same leaves as of traced cutpoints
            object.__setattr__(self, "_remainders", remainders)

    @property
    def learned(self) -> tuple[str, ...]:  # type: ignore[override]
        """Names in the position of what is learnt."""
        return (_NAME,) if self.cutpoints is None else ()

    def given(self, parameters: Mapping[str, Array]) -> "Ordinal":
        """Return the likelihood at these cutpoints."""
        if self.cutpoints is not None:
            return self
        gaps = parameters[_NAME]
        log_gaps = jnp.minimum(gaps[1:], _WIDEST)
        cuts = jnp.cumsum(jnp.concatenate([gaps[:1], jnp.exp(log_gaps)]))
        fields = {"num_classes": self.num_classes, "cutpoints": cuts, "log_gaps": log_gaps}
        return make_unchecked(_OrdinalOfGaps, **fields)

    def learned_shapes(self, columns: tuple[int, ...]) -> Mapping[str, Sequence[tuple[int, ...]]]:
        """Return that there is a number for each cutpoint."""
        return {name: ((self.num_classes - 1,),) for name in self.learned}

    def log_probabilities(self, outputs: Float[Array, " n"]) -> Float[Array, "n classes"]:
        """Return the logarithms of all classes' probabilities.

        Between two of them, sigmoid(b) - sigmoid(a) = sigmoid(b) sigmoid(-a) (1 - e^(a - b)), in
        which nothing cancels.
        """
        if self.cutpoints is None:
            raise ValueError("Ordinal has cutpoints to learn; take likelihood.given(...).")
        cuts = jnp.asarray(self.cutpoints, outputs.dtype)
        below = jax.nn.log_sigmoid(cuts[None, :] - outputs[:, None])
        above = jax.nn.log_sigmoid(outputs[:, None] - cuts[None, :])
        inner = below[:, 1:] + above[:, :-1] + self._between(cuts)[None]
        return jnp.concatenate([below[:, :1], inner, above[:, -1:]], axis=1)

    def _between(self, cuts: Float[Array, " cuts"]) -> Float[Array, " inner"]:
        """Return log(1 - exp(-gap)) of the gaps between cutpoints."""
        gaps = cuts[1:] - cuts[:-1]
        if self._remainders is not None and cuts.dtype == jnp.float32:
            gaps = gaps + jnp.diff(jnp.asarray(self._remainders, cuts.dtype))
        return jnp.log(-jnp.expm1(-gaps))

    def log_prob(self, outputs: Outputs, y: Targets) -> Terms:
        """Return one log-likelihood term a datum."""
        every = self.log_probabilities(lay_out(outputs, 1))
        classes = jnp.arange(self.num_classes, dtype=jnp.int32)
        is_label = y.astype(jnp.int32)[:, None] == classes[None]
        return jnp.sum(jnp.where(is_label, every, 0), axis=1)

    def predictive(self, outputs: Outputs, rank: int) -> dist.Distribution:
        """Return the categorical distribution of the classes."""
        return dist.Categorical(logits=self.log_probabilities(lay_out(outputs, 1)))

    def check(self, outputs: tuple[int, ...], y: ArrayLike) -> None:
        """Raise ValueError unless there is one output, and labels of shape (n,) are classes."""
        if np.ndim(y) != 1:
            raise ValueError(
                f"labels of Ordinal must have shape (n,), but y has shape {np.shape(y)}; give one "
                "class per row."
            )
        super().check(outputs, y)
        check_whole("Ordinal", "labels", y, most=self.num_classes - 1)


@dataclasses.dataclass(frozen=True)
class _OrdinalOfGaps(Ordinal):
    """Ordinal at cutpoints that were summed from gaps; of a small gap the sum has no digits."""

    log_gaps: ArrayLike | None = None

    def _between(self, cuts: Float[Array, " cuts"]) -> Float[Array, " inner"]:
        log_gaps = jnp.asarray(self.log_gaps, cuts.dtype)
        gap = jnp.exp(jnp.minimum(log_gaps, _WIDE))
        is_narrow = gap < _NARROW
        # log((1 - e^-gap) / gap) = -gap / 2 + log(sinh(gap / 2) / (gap / 2)).
        narrow = jnp.where(is_narrow, gap, 0)
        square = jnp.square(narrow)
        rest = square * (1 / 24 - square * (1 / 2880 - square / 181440)) - narrow / 2
        whole = jnp.log(-jnp.expm1(-jnp.where(is_narrow, 1, gap)))
        return jnp.where(is_narrow, log_gaps + rest, whole)
