"""Variational inference for a network as BlackJAX's triple init, step, sample, with elbo, predict.

    ELBO(q) = E_q[sum_i log p(y_i | x_i, w)] - KL(q || prior)

by moment propagation (DVI, dDVI) or by draws (MCVI, rMCVI), for the same models and priors.
"""

from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import optax
from blackjax.base import VIAlgorithm
from jaxtyping import Array, ArrayLike, Float, Int, PRNGKeyArray, PyTree, Shaped

from jaxbnn.dvi.divergence import EmpiricalBayes, kl_divergence
from jaxbnn.dvi.expected import Expectation, expected_log_likelihood
from jaxbnn.dvi.families import Family, draw_weights, moments_of
from jaxbnn.dvi.moments import Moments, Rule
from jaxbnn.dvi.monte_carlo import activation_draws, weight_draws
from jaxbnn.dvi.predictive import Density, mixture, predictive
from jaxbnn.dvi.propagate import propagate
from jaxbnn.networks import Network, output_shape
from jaxbnn.numerics import check_positive
from jaxbnn.targets import Likelihood

Scalar = Float[Array, ""]
Method = Literal["dvi", "ddvi", "mcvi", "rmcvi"]


class VIState(NamedTuple):
    """q's parameters, the optimiser's state, and the number of updates made."""

    position: PyTree
    optimizer_state: PyTree
    count: Int[Array, ""]


class VIInfo(NamedTuple):
    """The ELBO before the update, in nats, and its two parts: elbo = expected - kl.

    `kl` is not weighted by the warm-up; with minibatches `expected` is scaled up to all data.
    """

    elbo: Scalar
    expected_log_likelihood: Scalar
    kl: Scalar


class DeterministicVI(VIAlgorithm):
    """BlackJAX's `VIAlgorithm(init, step, sample)` with two functions more.

    Attributes
    ----------
    init
        (position) -> `VIState`; the position is q, as `initial_position` draws it.
    step
        (rng_key, state, x, y, num_data=None) -> (state, `VIInfo`): one update. With a minibatch,
        num_data is the number of all data.
    sample
        (rng_key, state, num_samples=1) -> parameters with that leading axis, shaped like the
        network's, or the position's of `learned_gaussian`: they go where MCMC draws go.
    elbo
        (position, x, y, rng_key=None, num_data=None) -> `VIInfo`.
    predict
        (position, x, *, rank=1, density=None, rng_key=None, num_samples=1000, num_nodes=32) ->
        NumPyro distribution of the targets; see `predictive`. rank is that of y. Monte Carlo
        methods mix over draws of the weights, always.
    check
        (x, y): raises if the data do not fit the network and the likelihood.
    """

    elbo: Callable
    predict: Callable
    check: Callable

    def __new__(cls, init, step, sample, elbo, predict, check):
        self = super().__new__(cls, init, step, sample)
        self.elbo, self.predict, self.check = elbo, predict, check
        return self


def deterministic_vi(
    network: Network,
    likelihood: Likelihood,
    prior: PyTree | EmpiricalBayes,
    *,
    method: Method = "dvi",
    optimizer: optax.GradientTransformation | None = None,
    kl_weight: ArrayLike | Callable = 1.0,
    moments: Rule = "exact",
    num_nodes: int | None = None,
    expectation: Expectation = "closed_form",
    num_samples: int = 10,
    output_scale: ArrayLike = 1.0,
    output_shift: ArrayLike = 0.0,
) -> DeterministicVI:
    """Variational inference with a Gaussian q, deterministic or by Monte Carlo.

    Parameters
    ----------
    network
        For "dvi", "ddvi" and "rmcvi" of Dense, Activation and Residual layers on vectors; for
        "mcvi" any.
    likelihood
        See `expected_log_likelihood` for what has a closed form.
    prior
        `empirical_bayes(...)`, or NumPyro normals and Laplaces shaped like the parameters or
        shorter. With `learned_gaussian`, {"network": prior, "log_noise_scale": distribution}.
    method
        "dvi": full covariances of the activations. "ddvi": variances only. "mcvi": draws of the
        weights. "rmcvi": draws of the activations (local reparametrisation).
    optimizer
        Any of Optax, a schedule and clipping included: it minimises -ELBO / num_data, so that
        `optax.clip` is in nats a datum. By default `optax.adam(1e-3)`.
    kl_weight
        Weight of the divergence in the objective: a number, or a function of the number of
        updates made (an Optax schedule).
    moments, num_nodes
        Rule for covariances of activations and its nodes; see `activation_moments`. Few nodes
        serve for training; q may then be evaluated by an algorithm with more.
    expectation, num_samples
        "monte_carlo" replaces the closed form of the expected log likelihood by draws of the
        outputs. num_samples is also the number of draws of "mcvi" and "rmcvi".
    output_scale, output_shift
        Numbers, or one an output: the network's outputs are multiplied by one, then the other is
        added, before the likelihood sees them.

    Returns
    -------
    `DeterministicVI`, a `VIAlgorithm` with `elbo` and `predict`.

    Raises
    ------
    ValueError
        An unknown method, rule or prior; a network that the method has no reading of.

    Notes
    -----
    Source: Wu et al. (2019), with errata C1 to C7. `fit` runs it.

    Examples
    --------
    >>> from jaxbnn.dvi import empirical_bayes, initial_position
    >>> from jaxbnn.networks import mlp
    >>> from jaxbnn.targets import heteroscedastic_gaussian
    >>> network = mlp((1, 20, 2))
    >>> vi = deterministic_vi(network, heteroscedastic_gaussian(), empirical_bayes())
    >>> state = vi.init(initial_position(jax.random.key(0), network))
    >>> x, y = jnp.ones((5, 1)), jnp.zeros(5)
    >>> state, info = jax.jit(vi.step)(jax.random.key(1), state, x, y)
    >>> vi.sample(jax.random.key(2), state, 10)[0]["w"].shape
    (10, 1, 20)
    """
    _check_options(method, moments, expectation, num_samples, kl_weight)
    optimizer = optax.adam(1e-3) if optimizer is None else optimizer

    def affine(values: Array) -> Array:
        return values * _row(output_scale, values) + _row(output_shift, values)

    def output_moments(q: Family, x: Array) -> Moments:
        covariance = "full" if method == "dvi" else "diagonal"
        raw = propagate(network, q, x, covariance=covariance, rule=moments, num_nodes=num_nodes)
        scale = _row(output_scale, raw.mean)
        assert raw.variance is not None
        matrix = raw.covariance
        if matrix is not None:
            matrix = matrix * scale[:, :, None] * scale[:, None, :]
        return Moments(affine(raw.mean), raw.variance * jnp.square(scale), matrix)

    def output_draws(rng_key: PRNGKeyArray | None, q: Family, x: Array, count: int) -> Array:
        if rng_key is None:
            raise ValueError(f"method {method!r} draws, and needs rng_key; give one.")
        draw = weight_draws if method == "mcvi" else activation_draws
        return affine(draw(rng_key, network, q, x, count))

    def expected_terms(position: PyTree, x: Array, y: Array, rng_key) -> Float[Array, " n"]:
        q, noise = _split(likelihood, position)
        if method in ("dvi", "ddvi"):
            return expected_log_likelihood(
                likelihood,
                output_moments(q, x),
                y,
                noise=noise,
                expectation=expectation,
                rng_key=rng_key,
                num_samples=num_samples,
            )
        if noise is None:
            draws = output_draws(rng_key, q, x, num_samples)
            terms = jax.vmap(lambda a: likelihood.log_prob(a, y, likelihood.parameter))(draws)
        else:
            key_outputs, key_noise = jax.random.split(_present(rng_key, method))
            draws = output_draws(key_outputs, q, x, num_samples)
            scales = _noise_scales(key_noise, noise, num_samples)
            terms = jax.vmap(lambda a, s: likelihood.log_prob(a, y, s))(draws, scales)
        return jnp.mean(terms, axis=0)

    def divergence(position: PyTree) -> Scalar:
        if not likelihood.learns_noise:
            return kl_divergence(position, prior)
        return sum(
            (kl_divergence(position[name], prior[name]) for name in ("log_noise_scale",)),
            start=kl_divergence(position["network"], prior["network"]),
        )

    def elbo(
        position: PyTree,
        x: Shaped[Array | np.ndarray, "n *input"],
        y: Shaped[Array | np.ndarray, "n *columns"],
        rng_key: PRNGKeyArray | None = None,
        num_data: ArrayLike | None = None,
    ) -> VIInfo:
        x, y = jnp.asarray(x), jnp.asarray(y)
        terms = expected_terms(position, x, y, rng_key)
        scale = 1.0 if num_data is None else jnp.asarray(num_data, terms.dtype) / x.shape[0]
        expected = scale * jnp.sum(terms)
        kl = divergence(position)
        return VIInfo(expected - kl, expected, kl)

    def init(position: PyTree) -> VIState:
        return VIState(position, optimizer.init(position), jnp.zeros((), jnp.int32))

    def step(
        rng_key: PRNGKeyArray,
        state: VIState,
        x: Shaped[Array | np.ndarray, "n *input"],
        y: Shaped[Array | np.ndarray, "n *columns"],
        num_data: ArrayLike | None = None,
    ) -> tuple[VIState, VIInfo]:
        weight = kl_weight(state.count) if callable(kl_weight) else kl_weight

        def loss(position: PyTree) -> tuple[Scalar, VIInfo]:
            info = elbo(position, x, y, rng_key, num_data)
            dtype = info.kl.dtype
            count = jnp.asarray(x.shape[0] if num_data is None else num_data, dtype)
            objective = info.expected_log_likelihood - jnp.asarray(weight, dtype) * info.kl
            return -objective / count, info

        (_, info), gradient = jax.value_and_grad(loss, has_aux=True)(state.position)
        updates, optimizer_state = optimizer.update(
            gradient, state.optimizer_state, state.position
        )
        position = optax.apply_updates(state.position, updates)
        return VIState(position, optimizer_state, state.count + 1), info

    def sample(rng_key: PRNGKeyArray, state: VIState, num_samples: int = 1) -> PyTree:
        keys = jax.random.split(rng_key, num_samples)
        return jax.vmap(lambda key: _draw_position(key, state.position))(keys)

    def predict(
        position: PyTree,
        x: Shaped[Array | np.ndarray, "n *input"],
        *,
        rank: int = 1,
        density: Density | None = None,
        rng_key: PRNGKeyArray | None = None,
        num_samples: int = 1000,
        num_nodes: int = 32,
    ) -> dist.Distribution:
        q, noise = _split(likelihood, position)
        x = jnp.asarray(x)
        if method in ("dvi", "ddvi"):
            return predictive(
                likelihood,
                output_moments(q, x),
                rank,
                density=density or "quadrature",
                noise=noise,
                num_nodes=num_nodes,
                rng_key=rng_key,
                num_samples=num_samples,
            )
        if density not in (None, "monte_carlo"):
            raise ValueError(
                f"method {method!r} has draws and no moments of the outputs; use "
                "density='monte_carlo', or method='dvi'."
            )
        key_outputs, key_noise = jax.random.split(_present(rng_key, method))
        draws = affine(weight_draws(key_outputs, network, q, x, num_samples))
        scales = None if noise is None else _noise_scales(key_noise, noise, num_samples)
        return mixture(likelihood, draws, rank, scales)

    def check(x: Shaped[ArrayLike, "..."], y: Shaped[ArrayLike, "..."]) -> None:
        likelihood.check((np.shape(y)[0], *output_shape(network)), y, likelihood.parameter)

    return DeterministicVI(init, step, sample, elbo, predict, check)


def _split(likelihood: Likelihood, position: PyTree) -> tuple[Family, Any]:
    """Return q of the network's weights, and mean and variance of log_noise_scale or None."""
    if not likelihood.learns_noise:
        return position, None
    if not isinstance(position, dict) or set(position) != {"network", "log_noise_scale"}:
        raise ValueError(
            'with learned_gaussian, the position is {"network": q, "log_noise_scale": q}; give '
            "initial_position a log_noise_scale."
        )
    return position["network"], moments_of(position["log_noise_scale"])


def _draw_position(rng_key: PRNGKeyArray, position: PyTree) -> PyTree:
    if not isinstance(position, dict):
        return draw_weights(rng_key, position)
    keys = jax.random.split(rng_key, len(position))
    return {
        name: draw_weights(key, position[name])
        for name, key in zip(sorted(position), keys, strict=True)
    }


def _noise_scales(rng_key: PRNGKeyArray, noise: Any, count: int) -> Float[Array, " s"]:
    mean, variance = noise
    return jnp.exp(mean + jnp.sqrt(variance) * jax.random.normal(rng_key, (count,), mean.dtype))


def _present(rng_key: PRNGKeyArray | None, method: str) -> PRNGKeyArray:
    if rng_key is None:
        raise ValueError(f"method {method!r} draws, and needs rng_key; give one.")
    return rng_key


def _row(values: ArrayLike, like: Array) -> Array:
    """Return one number an output, or a number, ready to broadcast against outputs."""
    values = jnp.asarray(values, like.dtype)
    return values.reshape(*(1,) * (like.ndim - values.ndim), *values.shape)


def _check_options(method, moments, expectation, num_samples, kl_weight) -> None:
    for name, value, allowed in (
        ("method", method, ("dvi", "ddvi", "mcvi", "rmcvi")),
        ("moments", moments, ("exact", "asymptotic", "gauss_hermite")),
        ("expectation", expectation, ("closed_form", "monte_carlo")),
    ):
        if value not in allowed:
            raise ValueError(f"{name} must be one of {', '.join(allowed)}, but is {value!r}.")
    check_positive("num_samples", num_samples, "give a whole number of draws")
    if not callable(kl_weight) and jnp.ndim(kl_weight) != 0:
        raise ValueError(
            "kl_weight must be a number or a function of the number of updates, but has shape "
            f"{jnp.shape(kl_weight)}."
        )
