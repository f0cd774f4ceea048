"""Likelihoods are data: a class each, whose numbers are leaves of a PyTree and may be traced.

A likelihood says what it is: one log-likelihood term a datum from the network's output, and the
predictive distribution. What else is computed of it belongs to the reading that computes it, which
dispatches on the class: `jaxbnn.dvi.expected_terms.register(Gaussian)`. A likelihood of one's own
is one class, and one line for each reading that can take it.

y keeps the layout it is given in: (n,) for one column, (n, k) for k, or any (n, ...); the network's
output (n, 1) is read as (n,) where y is (n,).
"""

import abc
import dataclasses
import functools
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jax.tree_util import GetAttrKey
from jaxtyping import Array, ArrayLike, Float, Shaped

from jaxbnn.numerics import check_floating

Outputs = Float[Array, "n *outputs"]
Targets = Shaped[Array, "n *columns"]
Terms = Float[Array, " n"]


class Likelihood(abc.ABC):
    """What every likelihood is; a subclass is a frozen dataclass, and with that a PyTree.

    Its fields are the leaves, but for those with `metadata={"static": True}`.

    Attributes
    ----------
    learned
        Names of the likelihood's own parameters in the position, which is then
        {"network": params, name: value, ...}, as is the prior. Most likelihoods learn nothing.
    outputs_per_column
        How many outputs of the network a column of y takes; None where that is no fixed number.
    has_gauss_newton_form
        Whether the second derivatives of a term by the outputs do not depend on the target and are
        negative, so that `gauss_newton_metric` is the expected Hessian.

    Examples
    --------
    Heavy tails of known degrees of freedom, for any sampler and for `predict`'s draws:

    >>> @dataclasses.dataclass(frozen=True)
    ... class StudentT(Likelihood):
    ...     degrees: ArrayLike
    ...     scale: ArrayLike
    ...
    ...     def log_prob(self, outputs, y):
    ...         return self.predictive(outputs, y.ndim).log_prob(y)
    ...
    ...     def predictive(self, outputs, rank):
    ...         outputs = lay_out(outputs, rank)
    ...         return dist.StudentT(self.degrees, outputs, self.scale).to_event(rank - 1)
    >>> terms = StudentT(4.0, 0.5).log_prob(jnp.zeros((2, 1)), jnp.array([0.0, 10.0]))
    >>> [round(float(term), 2) for term in terms]
    [-0.29, -11.83]
    """

    learned: ClassVar[tuple[str, ...]] = ()
    outputs_per_column: ClassVar[int | None] = 1
    has_gauss_newton_form: ClassVar[bool] = False

    def __init_subclass__(cls, **options: Any) -> None:
        """Register the class as a PyTree: a likelihood is an argument of compiled functions."""
        super().__init_subclass__(**options)
        jax.tree_util.register_pytree_with_keys(
            cls, _flatten_with_keys, functools.partial(_unflatten, cls), _flatten
        )

    @abc.abstractmethod
    def log_prob(self, outputs: Outputs, y: Targets) -> Terms:
        """Return one log-likelihood term a datum, which depends on its row alone.

        The rows may be some of the data, or hold some of them twice: what is known of each datum,
        such as an error of its own, is a column of y, not an array of the likelihood.
        """

    @abc.abstractmethod
    def predictive(self, outputs: Outputs, rank: int) -> dist.Distribution:
        """Return the distribution of the targets, of batch shape (n,), where y has this rank."""

    def check(self, outputs: tuple[int, ...], y: ArrayLike) -> None:
        """Raise ValueError unless outputs of this shape and these targets fit each other."""
        if self.outputs_per_column is not None:
            check_width(type(self).__name__, outputs, np.shape(y), self.outputs_per_column)

    def given(self, parameters: Mapping[str, Array]) -> "Likelihood":
        """Return the likelihood at values of the parameters that it learns."""
        return self

    def learned_shapes(self, columns: tuple[int, ...]) -> Mapping[str, Sequence[tuple[int, ...]]]:
        """Return the shapes that what is learnt may have, by name, where a row of y has this one.

        What is not among the names may have any.
        """
        return {}


def check_likelihood(likelihood: object) -> None:
    """Raise TypeError unless it is a likelihood, and say what to do with a distribution.

    Examples
    --------
    >>> check_likelihood(dist.StudentT(4.0))
    Traceback (most recent call last):
    TypeError: likelihood must be a jaxbnn likelihood, such as Gaussian(0.1) or Categorical(), ...
    """
    if isinstance(likelihood, Likelihood):
        return
    named = type(likelihood).__name__
    if isinstance(likelihood, type):
        named = f"the class {likelihood.__name__}, which is to be called"
    elif isinstance(likelihood, dist.Distribution):
        named += ", a distribution, which does not say how it depends on the outputs"
    elif callable(likelihood):
        named = f"the function {getattr(likelihood, '__name__', named)!r}"
    raise TypeError(
        "likelihood must be a jaxbnn likelihood, such as Gaussian(0.1) or Categorical(), but is "
        f"{named}; another one is a class of your own, a subclass of jaxbnn.targets.Likelihood."
    )


def check_learned(
    likelihood: Likelihood, shapes: Mapping[str, Any], columns: tuple[int, ...]
) -> None:
    """Raise ValueError unless what a likelihood learns has a shape that its terms can take.

    Examples
    --------
    >>> from jaxbnn.targets import LearnedGaussian
    >>> check_learned(LearnedGaussian(), {"log_noise_scale": (3,)}, ())
    Traceback (most recent call last):
    ValueError: log_noise_scale of LearnedGaussian must have shape () or (1,) for y with rows of ...
    """
    for name, allowed in likelihood.learned_shapes(columns).items():
        if name in shapes and shapes[name] not in allowed:
            raise ValueError(
                f"{name} of {type(likelihood).__name__} must have shape "
                f"{' or '.join(map(str, allowed))} for y with rows of shape {columns}, but has "
                f"shape {shapes[name]}; give a distribution of such a shape."
            )


def make_unchecked(cls: type, **fields: Any) -> Any:
    """Return a likelihood without the checks of its constructor, for numbers that were computed.

    A noise scale that overflows is a position of no density, and no mistake of the caller's.
    """
    made: Any = object.__new__(cls)
    for name, value in fields.items():
        object.__setattr__(made, name, value)
    return made


def lay_out(outputs: Outputs, rank: int) -> Float[Array, "n *columns"]:
    """Read outputs (n, 1) as (n,) or the other way round, as y of this rank has it.

    Raises
    ------
    TypeError
        Outputs of whole numbers, in whose type targets and scales would be cut off.

    Examples
    --------
    >>> lay_out(jnp.zeros((3, 1)), 1).shape, lay_out(jnp.zeros((3, 2)), 2).shape
    ((3,), (3, 2))
    """
    check_floating("outputs", outputs)
    if rank == 1:
        return outputs.reshape(outputs.shape[0])
    return outputs[:, None] if outputs.ndim == 1 else outputs


def per_datum(terms: Float[Array, "n *columns"]) -> Terms:
    """Return the sum over all axes but the first.

    Examples
    --------
    >>> per_datum(jnp.ones((3, 2))).tolist()
    [2.0, 2.0, 2.0]
    """
    return jnp.sum(terms, axis=tuple(range(1, terms.ndim)))


def check_width(
    name: str, outputs: tuple[int, ...], y: tuple[int, ...], outputs_per_column: int
) -> None:
    """Raise ValueError unless the network has this many outputs for each column of y.

    Examples
    --------
    >>> check_width("Gaussian", (5, 2), (5, 3), 1)
    Traceback (most recent call last):
    ValueError: Gaussian needs a network of output width 3 for y of shape (5, 3), but ...
    """
    trailing = y[1:] or (1,)
    wanted = (*trailing[:-1], outputs_per_column * trailing[-1])
    flat_single = wanted == (1,) and len(outputs) == 1
    if outputs[1:] != wanted and not flat_single:
        width = wanted[0] if len(wanted) == 1 else wanted
        raise ValueError(
            f"{name} needs a network of output width {width} for y of shape {y}, but the output "
            f"has shape {outputs}; change the last layer or y."
        )


def _fields(likelihood: Likelihood) -> tuple[list[str], list[str]]:
    """Return the names of the leaves and of the static fields."""
    cls = type(likelihood)
    if "__dataclass_fields__" not in vars(cls) and vars(likelihood):
        raise TypeError(
            f"the likelihood {cls.__name__} has attributes but is no dataclass, and they would be "
            "lost in a compiled function; write @dataclasses.dataclass(frozen=True) above it."
        )
    fields: Any = dataclasses.fields(likelihood) if dataclasses.is_dataclass(likelihood) else ()
    static = [field.name for field in fields if field.metadata.get("static")]
    return [field.name for field in fields if field.name not in static], static


def _flatten(likelihood: Likelihood) -> tuple[tuple, tuple]:
    leaves, static = _fields(likelihood)
    aux = tuple((name, getattr(likelihood, name)) for name in static)
    return tuple(getattr(likelihood, name) for name in leaves), (tuple(leaves), aux)


def _flatten_with_keys(likelihood: Likelihood) -> tuple[tuple, tuple]:
    values, aux = _flatten(likelihood)
    keys = (GetAttrKey(name) for name in aux[0])
    return tuple(zip(keys, values, strict=True)), aux


def _unflatten(cls: type, aux: tuple, values: tuple) -> Any:
    # Without the constructor and its checks: JAX passes placeholders too.
    names, static = aux
    return make_unchecked(cls, **dict(zip(names, values, strict=True)), **dict(static))
