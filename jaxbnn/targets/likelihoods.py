"""Likelihoods: one log-likelihood term per datum, from the network's output.

A likelihood is frozen data: three functions and the number they share, so that it is a PyTree with
the number as its leaf. y keeps the layout it is given in: (n,) for one column, (n, k) for k, or any
(n, ...); the network's output (n, 1) is read as (n,) where y is (n,).
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, field

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jaxtyping import Array, ArrayLike, Float, Shaped

from jaxbnn.numerics import check_positive, is_concrete

Outputs = Float[Array, "n *outputs"]
Targets = Shaped[Array, "n *columns"]
Terms = Float[Array, " n"]

_HALF_LOG_2_PI = 0.5 * math.log(2 * math.pi)


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Likelihood:
    """What a likelihood is made of.

    Attributes
    ----------
    log_prob
        (outputs, y, parameter) -> one term per datum.
    predictive
        (outputs, rank of y, parameter) -> NumPyro distribution, laid out as y is.
    check
        (shape of the outputs, y, parameter): raises if they do not fit each other.
    parameter
        The noise scale or temperature, if the likelihood has one; may be traced.
    learns_noise
        If so, the position is {"network": params, "log_noise_scale": scalar} and the parameter is
        exp(log_noise_scale).
    """

    log_prob: Callable = field(metadata={"static": True})
    predictive: Callable = field(metadata={"static": True})
    check: Callable = field(metadata={"static": True})
    parameter: ArrayLike | None = None
    learns_noise: bool = field(default=False, metadata={"static": True})


def gaussian(noise_scale: ArrayLike) -> Likelihood:
    """Gaussian noise of known scale: y = f(x) + noise_scale * xi, any number of columns.

    Parameters
    ----------
    noise_scale
        Standard deviation: a number, or one per output column. May be traced.

    Raises
    ------
    ValueError
        If the noise scale is not positive.

    Examples
    --------
    >>> likelihood = gaussian(0.5)
    >>> terms = likelihood.log_prob(jnp.zeros((2, 1)), jnp.zeros((2, 1)), likelihood.parameter)
    >>> [round(float(term), 4) for term in terms]
    [-0.2258, -0.2258]
    """
    check_positive("noise_scale", noise_scale)
    return Likelihood(_gaussian_log_prob, _gaussian_predictive, _gaussian_check, noise_scale)


def learned_gaussian() -> Likelihood:
    """Gaussian noise whose scale is a parameter: y = f(x) + exp(log_noise_scale) * xi.

    The position is {"network": params, "log_noise_scale": scalar}, and the prior the same dict:
    a prior on log_noise_scale is a density in the logarithm, so no Jacobian is added.

    Examples
    --------
    >>> learned_gaussian().learns_noise
    True
    """
    return Likelihood(
        _gaussian_log_prob, _gaussian_predictive, _learned_gaussian_check, learns_noise=True
    )


def heteroscedastic_gaussian() -> Likelihood:
    """Gaussian noise from the network: outputs (n, 2k) are k means, then k log variances.

    Examples
    --------
    >>> likelihood = heteroscedastic_gaussian()
    >>> outputs = jnp.array([[1.0, 0.0]])
    >>> round(float(likelihood.log_prob(outputs, jnp.array([[1.0]]), None)[0]), 4)
    -0.9189
    """
    return Likelihood(
        _heteroscedastic_log_prob, _heteroscedastic_predictive, _heteroscedastic_check
    )


def bernoulli() -> Likelihood:
    """Labels 0 or 1 with the outputs as logits: p(y = 1) = sigmoid(f(x)), any number of columns.

    Examples
    --------
    >>> outputs, y = jnp.array([[0.0], [500.0]]), jnp.array([[1], [0]])
    >>> [round(float(term), 4) for term in bernoulli().log_prob(outputs, y, None)]
    [-0.6931, -500.0]
    """
    return Likelihood(_bernoulli_log_prob, _bernoulli_predictive, _bernoulli_check)


def categorical() -> Likelihood:
    """Integer labels 0..C-1 with the C outputs as logits: p(y = c) = softmax(f(x))_c.

    Examples
    --------
    >>> outputs = jnp.array([[0.0, 0.0], [0.0, 500.0]])
    >>> [round(float(term), 4) for term in categorical().log_prob(outputs, jnp.array([1, 0]), None)]
    [-0.6931, -500.0]
    """
    return Likelihood(_categorical_log_prob, _categorical_predictive, _categorical_check)


def cross_entropy(temperature: ArrayLike) -> Likelihood:
    """Categorical likelihood at temperature Delta: terms -CE / (2 Delta).

    Delta = 1/2 is `categorical()`; Delta = 2 is its power 1/4. The prior is not tempered. The
    predictive distribution is the network's own, softmax(f(x)), at every Delta.

    Parameters
    ----------
    temperature
        Delta > 0; may be traced.

    Raises
    ------
    ValueError
        If the temperature is not positive.

    Source: Piccioli et al., (2)-(3), read as in erratum A11.

    Examples
    --------
    >>> likelihood = cross_entropy(temperature=2.0)
    >>> terms = likelihood.log_prob(jnp.zeros((1, 2)), jnp.array([0]), likelihood.parameter)
    >>> round(float(terms[0]), 4)  # -log(2) / 4
    -0.1733
    """
    check_positive("temperature", temperature)
    return Likelihood(
        _cross_entropy_log_prob, _categorical_predictive, _categorical_check, temperature
    )


def has_gauss_newton_form(likelihood: Likelihood) -> bool:
    """Whether second derivatives of the terms by the outputs are negative and without targets.

    Examples
    --------
    >>> has_gauss_newton_form(bernoulli()), has_gauss_newton_form(heteroscedastic_gaussian())
    (True, False)
    """
    with_one = (
        _gaussian_log_prob,
        _bernoulli_log_prob,
        _categorical_log_prob,
        _cross_entropy_log_prob,
    )
    return likelihood.log_prob in with_one


def check_likelihood(likelihood: object) -> None:
    """Raise TypeError unless it is a likelihood, and say what to do with a distribution.

    Examples
    --------
    >>> check_likelihood(dist.StudentT(4.0))
    Traceback (most recent call last):
    TypeError: likelihood must be a jaxbnn likelihood, such as gaussian(0.1) or categorical(), ...
    """
    if isinstance(likelihood, Likelihood):
        return
    named = type(likelihood).__name__
    if isinstance(likelihood, dist.Distribution):
        named += ", a distribution, which does not say how it depends on the outputs"
    elif callable(likelihood):
        named = f"the function {getattr(likelihood, '__name__', named)!r}, which is to be called"
    raise TypeError(
        "likelihood must be a jaxbnn likelihood, such as gaussian(0.1) or categorical(), but is "
        f"{named}; for another one write Likelihood(log_prob, predictive, check)."
    )


def _lay_out(outputs: Array, rank: int) -> Array:
    """Read outputs (n, 1) as (n,) or the other way round, as y has it."""
    if rank == 1:
        return outputs.reshape(outputs.shape[0])
    return outputs[:, None] if outputs.ndim == 1 else outputs


def _per_datum(terms: Array) -> Array:
    return jnp.sum(terms, axis=tuple(range(1, terms.ndim)))


def _scale_like(scale: ArrayLike, outputs: Array) -> Array:
    """Return the scale as a scalar, or with the outputs' rank, in their dtype."""
    scale = jnp.asarray(scale, outputs.dtype)
    return scale if scale.ndim == 0 else jnp.expand_dims(scale, range(outputs.ndim - scale.ndim))


def _gaussian_log_prob(outputs: Outputs, y: Targets, scale: ArrayLike) -> Terms:
    outputs = _lay_out(outputs, y.ndim)
    scale = _scale_like(scale, outputs)
    columns = math.prod(outputs.shape[1:])
    log_scales = jnp.sum(jnp.log(scale)) * (columns / scale.size)
    squares = _per_datum(jnp.square((y.astype(outputs.dtype) - outputs) / scale))
    return -0.5 * squares - (log_scales + columns * _HALF_LOG_2_PI)


def _gaussian_predictive(outputs: Outputs, rank: int, scale: ArrayLike) -> dist.Distribution:
    outputs = _lay_out(outputs, rank)
    return dist.Normal(outputs, _scale_like(scale, outputs)).to_event(rank - 1)


def _gaussian_check(outputs: tuple[int, ...], y: ArrayLike, scale: ArrayLike) -> None:
    _check_width("gaussian", outputs, np.shape(y), 1)
    columns = np.shape(y)[1:] or (1,)
    if np.ndim(scale) and np.shape(scale) != columns:
        raise ValueError(
            f"noise_scale has shape {np.shape(scale)}, but y has columns of shape {columns}; give "
            "one number, or one per column."
        )


def _learned_gaussian_check(outputs: tuple[int, ...], y: ArrayLike, scale: None) -> None:
    _check_width("learned_gaussian", outputs, np.shape(y), 1)


def _heteroscedastic_log_prob(outputs: Outputs, y: Targets, parameter: None) -> Terms:
    mean, log_variance = (_lay_out(half, y.ndim) for half in jnp.split(outputs, 2, axis=-1))
    squares = jnp.square(y.astype(mean.dtype) - mean) * jnp.exp(-log_variance)
    return -0.5 * _per_datum(squares + log_variance + 2 * _HALF_LOG_2_PI)


def _heteroscedastic_predictive(outputs: Outputs, rank: int, parameter: None) -> dist.Distribution:
    mean, log_variance = (_lay_out(half, rank) for half in jnp.split(outputs, 2, axis=-1))
    return dist.Normal(mean, jnp.exp(0.5 * log_variance)).to_event(rank - 1)


def _heteroscedastic_check(outputs: tuple[int, ...], y: ArrayLike, parameter: None) -> None:
    _check_width("heteroscedastic_gaussian", outputs, np.shape(y), 2)


def _bernoulli_log_prob(outputs: Outputs, y: Targets, parameter: None) -> Terms:
    logits = _lay_out(outputs, y.ndim)
    return _per_datum(jax.nn.log_sigmoid((2 * y.astype(logits.dtype) - 1) * logits))


def _bernoulli_predictive(outputs: Outputs, rank: int, parameter: None) -> dist.Distribution:
    return dist.Bernoulli(logits=_lay_out(outputs, rank)).to_event(rank - 1)


def _bernoulli_check(outputs: tuple[int, ...], y: ArrayLike, parameter: None) -> None:
    _check_width("bernoulli", outputs, np.shape(y), 1)
    if is_concrete(y):
        labels = np.asarray(y)
        bad = (labels != 0) & (labels != 1)
        if bad.any():
            raise ValueError(
                f"labels of bernoulli must be 0 or 1, but y holds {labels[bad][0]:g} at index "
                f"{_first(bad)}; relabel y, or use categorical for more classes."
            )


def _categorical_log_prob(outputs: Outputs, y: Targets, parameter: None) -> Terms:
    # Classes first and the long data axis last, where XLA vectorises on a CPU: value and gradient
    # of an MLP (4, 3, 3) on 150 rows take less than half as long. A mask, not a gather, whose
    # gradient would scatter; the shift keeps exp finite.
    logits = outputs.T
    logits = logits - jax.lax.stop_gradient(jnp.max(logits, axis=0, keepdims=True))
    classes = jnp.arange(logits.shape[0], dtype=jnp.int32)
    is_label = y.astype(jnp.int32)[None] == classes[:, None]
    of_label = jnp.sum(jnp.where(is_label, logits, 0), axis=0)
    return of_label - jnp.log(jnp.sum(jnp.exp(logits), axis=0))


def _cross_entropy_log_prob(outputs: Outputs, y: Targets, temperature: ArrayLike) -> Terms:
    delta = jnp.asarray(temperature, outputs.dtype)
    return _categorical_log_prob(outputs, y, None) / (2 * delta)


def _categorical_predictive(
    outputs: Outputs, rank: int, parameter: ArrayLike | None
) -> dist.Distribution:
    return dist.Categorical(logits=outputs)


def _categorical_check(outputs: tuple[int, ...], y: ArrayLike, parameter: ArrayLike | None) -> None:
    if len(outputs) != 2 or outputs[1] < 2:
        raise ValueError(
            "categorical needs a network with one output per class, shape (n, C) with C >= 2, but "
            f"its output has shape {outputs}; make the last layer C wide."
        )
    dtype = y.dtype if hasattr(y, "dtype") else np.asarray(y).dtype
    if not jnp.issubdtype(dtype, jnp.integer):
        raise TypeError(f"labels must be integers 0..C-1, but y has dtype {dtype}; convert them.")
    if np.ndim(y) != 1:
        raise ValueError(
            f"labels must have shape (n,), but y has shape {np.shape(y)}; give one class per row."
        )
    if is_concrete(y):
        labels = np.asarray(y)
        bad = (labels < 0) | (labels >= outputs[1])
        if bad.any():
            raise ValueError(
                f"labels must lie in 0..{outputs[1] - 1}, one class per network output, but y "
                f"holds {labels[bad][0]} at index {_first(bad)}; relabel y or widen the last layer."
            )


def _check_width(
    name: str, outputs: tuple[int, ...], y: tuple[int, ...], outputs_per_column: int
) -> None:
    trailing = y[1:] or (1,)
    wanted = (*trailing[:-1], outputs_per_column * trailing[-1])
    flat_single = wanted == (1,) and len(outputs) == 1
    if outputs[1:] != wanted and not flat_single:
        width = wanted[0] if len(wanted) == 1 else wanted
        raise ValueError(
            f"{name} needs a network of output width {width} for y of shape {y}, but the output "
            f"has shape {outputs}; change the last layer or y."
        )


def _first(bad: np.ndarray) -> tuple[int, ...]:
    return tuple(int(i) for i in np.argwhere(bad)[0])
