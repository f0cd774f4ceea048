"""Ordered classes: one output a datum, and cutpoints that divide its line into the classes."""

import dataclasses
from collections.abc import Mapping

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jaxtyping import Array, ArrayLike, Float

from jaxbnn.numerics import check_count, is_concrete
from jaxbnn.targets.likelihoods import Likelihood, Outputs, Targets, Terms, lay_out, make_unchecked
from jaxbnn.targets.own_parameters import check_whole

_NAME = "cutpoint_gaps"


@dataclasses.dataclass(frozen=True)
class Ordinal(Likelihood):
    """Labels 0..C-1 in order, p(y <= k) = sigmoid(c_k - f(x)), c_0 < ... < c_{C-2}.

    The cumulative logit, or proportional odds, model (McCullagh 1980).

    Parameters
    ----------
    num_classes
        C, at least 2.
    cutpoints
        C - 1 increasing numbers, leaves that may be traced; None, the default, learns them. The
        position is then {"network": params, "cutpoint_gaps": g} with g of shape (C - 1,): c_0 is
        its first number, and the others are the logarithms of the gaps from one to the next.

    Raises
    ------
    ValueError
        If the cutpoints are not C - 1 increasing numbers; `check`, if a label is no class,
        or y is not of shape (n,).

    Examples
    --------
    >>> found = Ordinal(3, jnp.array([-1.0, 1.0])).predictive(jnp.zeros((1, 1)), 1)
    >>> [round(float(p), 4) for p in found.probs[0]]
    [0.2689, 0.4621, 0.2689]
    """

    num_classes: int = dataclasses.field(metadata={"static": True})
    cutpoints: ArrayLike | None = None

    def __post_init__(self) -> None:
        """Check the classes and the cutpoints."""
        check_count("num_classes", self.num_classes, least=2)
        if self.cutpoints is None or not is_concrete(self.cutpoints):
            return
        cuts = np.asarray(self.cutpoints)
        if cuts.shape != (self.num_classes - 1,) or not (np.diff(cuts) > 0).all():
            raise ValueError(
                f"cutpoints must be {self.num_classes - 1} increasing numbers for "
                f"{self.num_classes} classes, but are {cuts.tolist()}."
            )

    @property
    def learned(self) -> tuple[str, ...]:  # type: ignore[override]
        """Names in the position of what is learnt."""
        return (_NAME,) if self.cutpoints is None else ()

    def given(self, parameters: Mapping[str, Array]) -> "Ordinal":
        """Return the likelihood at these cutpoints."""
        if self.cutpoints is not None:
            return self
        gaps = parameters[_NAME]
        cuts = jnp.cumsum(jnp.concatenate([gaps[:1], jnp.exp(gaps[1:])]))
        return make_unchecked(Ordinal, num_classes=self.num_classes, cutpoints=cuts)

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
        between = jnp.log(-jnp.expm1(cuts[:-1] - cuts[1:]))
        inner = below[:, 1:] + above[:, :-1] + between[None]
        return jnp.concatenate([below[:, :1], inner, above[:, -1:]], axis=1)

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
