"""Labels: two classes with a logit, several with a logit each, and these at a temperature."""

import dataclasses
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jaxtyping import ArrayLike

from jaxbnn.numerics import is_concrete
from jaxbnn.numerics.checks import check_positive_number
from jaxbnn.targets.likelihoods import Likelihood, Outputs, Targets, Terms, lay_out, per_datum


@dataclasses.dataclass(frozen=True)
class Bernoulli(Likelihood):
    """Labels 0 or 1 with the outputs as logits: p(y = 1) = sigmoid(f(x)), any number of columns.

    Examples
    --------
    >>> outputs, y = jnp.array([[0.0], [500.0]]), jnp.array([[1], [0]])
    >>> [round(float(term), 4) for term in Bernoulli().log_prob(outputs, y)]
    [-0.6931, -500.0]
    """

    has_gauss_newton_form: ClassVar[bool] = True

    def log_prob(self, outputs: Outputs, y: Targets) -> Terms:
        """Return one log-likelihood term a datum."""
        logits = lay_out(outputs, y.ndim)
        return per_datum(jax.nn.log_sigmoid((2 * y.astype(logits.dtype) - 1) * logits))

    def predictive(self, outputs: Outputs, rank: int) -> dist.Distribution:
        """Return the Bernoulli distribution with these logits."""
        return dist.Bernoulli(logits=lay_out(outputs, rank)).to_event(rank - 1)

    def check(self, outputs: tuple[int, ...], y: ArrayLike) -> None:
        """Raise ValueError unless the widths agree and labels are 0 or 1."""
        super().check(outputs, y)
        if is_concrete(y):
            labels = np.asarray(y)
            bad = (labels != 0) & (labels != 1)
            if bad.any():
                raise ValueError(
                    f"labels of Bernoulli must be 0 or 1, but y holds {labels[bad][0]:g} at index "
                    f"{_first(bad)}; relabel y, or use Categorical for more classes."
                )


@dataclasses.dataclass(frozen=True)
class Categorical(Likelihood):
    """Integer labels 0..C-1 with the C outputs as logits: p(y = c) = softmax(f(x))_c.

    Examples
    --------
    >>> outputs = jnp.array([[0.0, 0.0], [0.0, 500.0]])
    >>> [round(float(term), 4) for term in Categorical().log_prob(outputs, jnp.array([1, 0]))]
    [-0.6931, -500.0]
    """

    outputs_per_column: ClassVar[int | None] = None
    has_gauss_newton_form: ClassVar[bool] = True

    def log_prob(self, outputs: Outputs, y: Targets) -> Terms:
        """Return one log-likelihood term a datum."""
        # Classes first and the long data axis last, where XLA vectorises on a CPU: value and
        # gradient of an MLP (4, 3, 3) on 150 rows take less than half as long. A mask, not a
        # gather, whose gradient would scatter; the shift keeps exp finite.
        logits = outputs.T
        logits = logits - jax.lax.stop_gradient(jnp.max(logits, axis=0, keepdims=True))
        classes = jnp.arange(logits.shape[0], dtype=jnp.int32)
        is_label = y.astype(jnp.int32)[None] == classes[:, None]
        of_label = jnp.sum(jnp.where(is_label, logits, 0), axis=0)
        return of_label - jnp.log(jnp.sum(jnp.exp(logits), axis=0))

    def predictive(self, outputs: Outputs, rank: int) -> dist.Distribution:
        """Return the categorical distribution with these logits."""
        return dist.Categorical(logits=outputs)

    def check(self, outputs: tuple[int, ...], y: ArrayLike) -> None:
        """Raise ValueError unless there is an output a class, and labels are among them."""
        if len(outputs) != 2 or outputs[1] < 2:
            raise ValueError(
                "Categorical needs a network with one output per class, shape (n, C) with C >= 2, "
                f"but its output has shape {outputs}; make the last layer C wide."
            )
        dtype = y.dtype if hasattr(y, "dtype") else np.asarray(y).dtype
        if not jnp.issubdtype(dtype, jnp.integer):
            raise TypeError(
                f"labels must be integers 0..C-1, but y has dtype {dtype}; convert them."
            )
        if np.ndim(y) != 1:
            raise ValueError(
                f"labels must have shape (n,), but y has shape {np.shape(y)}; give one class per "
                "row."
            )
        if is_concrete(y):
            labels = np.asarray(y)
            bad = (labels < 0) | (labels >= outputs[1])
            if bad.any():
                raise ValueError(
                    f"labels must lie in 0..{outputs[1] - 1}, one class per network output, but y "
                    f"holds {labels[bad][0]} at index {_first(bad)}; relabel y or widen the last "
                    "layer."
                )


@dataclasses.dataclass(frozen=True)
class CrossEntropy(Categorical):
    """Categorical likelihood at temperature Delta: terms -CE / (2 Delta).

    Delta = 1/2 is `Categorical()`; Delta = 2 is its power 1/4. The prior is not tempered. The
    predictive distribution is the network's own, softmax(f(x)), at every Delta.

    Parameters
    ----------
    temperature
        Delta > 0. A leaf; may be traced.

    Raises
    ------
    ValueError
        If the temperature is not one positive number.

    Source: Piccioli et al., (2)-(3), read as in erratum A11.

    Examples
    --------
    >>> terms = CrossEntropy(temperature=2.0).log_prob(jnp.zeros((1, 2)), jnp.array([0]))
    >>> round(float(terms[0]), 4)  # -log(2) / 4
    -0.1733
    """

    temperature: ArrayLike

    def __post_init__(self) -> None:
        """Check the temperature."""
        check_positive_number("temperature", self.temperature)

    def log_prob(self, outputs: Outputs, y: Targets) -> Terms:
        """Return one term a datum, the categorical one over 2 Delta."""
        return super().log_prob(outputs, y) / (2 * jnp.asarray(self.temperature, outputs.dtype))


def _first(bad: np.ndarray) -> tuple[int, ...]:
    return tuple(int(i) for i in np.argwhere(bad)[0])
