"""What is maximised and what predicts: the ELBO and the predictive of a network, by any method."""

from collections.abc import Callable
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jaxtyping import Array, ArrayLike, Float, PRNGKeyArray, PyTree, Shaped

from jaxbnn.dvi.divergence import EmpiricalBayes, kl_divergence
from jaxbnn.dvi.expected import Expectation, Noise, expected_terms
from jaxbnn.dvi.families import Family, moments_of
from jaxbnn.dvi.moments import Moments, Rule
from jaxbnn.dvi.monte_carlo import activation_draws, weight_draws
from jaxbnn.dvi.predictive import Density, mixture, predictive_of
from jaxbnn.dvi.propagate import propagate
from jaxbnn.networks import Network, output_shape
from jaxbnn.numerics import check_finite
from jaxbnn.targets import Likelihood

Scalar = Float[Array, ""]
Method = Literal["dvi", "ddvi", "mcvi", "rmcvi"]


class VIInfo(NamedTuple):
    """The ELBO of `deterministic_vi` and its two parts: elbo = expected_log_likelihood - kl.

    With minibatches the expectation is scaled up to all data.

    Attributes
    ----------
    elbo
        In nats.
    expected_log_likelihood
        E_q log p(y | x, w).
    kl
        KL(q || prior), not weighted by a warm-up.
    """

    elbo: Scalar
    expected_log_likelihood: Scalar
    kl: Scalar


class Model(NamedTuple):
    """`elbo`, `predict` and `check` as `DeterministicVI` describes them."""

    elbo: Callable
    predict: Callable
    check: Callable


def variational_model(
    network: Network,
    likelihood: Likelihood,
    prior: PyTree | EmpiricalBayes,
    *,
    method: Method,
    moments: Rule,
    num_nodes: int | None,
    expectation: Expectation,
    num_samples: int,
    output_scale: ArrayLike,
    output_shift: ArrayLike,
) -> Model:
    """Return the ELBO and the predictive; the arguments are those of `deterministic_vi`."""
    is_deterministic = method in ("dvi", "ddvi")

    def affine(values: Array) -> Array:
        return values * _row(output_scale, values) + _row(output_shift, values)

    def output_moments(q: Family, x: Array) -> Moments:
        raw = propagate(
            network,
            q,
            x,
            covariance="full" if method == "dvi" else "diagonal",
            rule=moments,
            num_nodes=num_nodes,
        )
        scale = _row(output_scale, raw.mean)
        assert raw.variance is not None
        matrix = raw.covariance
        if matrix is not None:
            matrix = matrix * scale[:, :, None] * scale[:, None, :]
        return Moments(affine(raw.mean), raw.variance * jnp.square(scale), matrix)

    def output_draws(rng_key: PRNGKeyArray, q: Family, x: Array, count: int) -> Array:
        draw = weight_draws if method == "mcvi" else activation_draws
        return affine(draw(rng_key, network, q, x, count))

    def terms_of(position: PyTree, x: Array, y: Array, rng_key) -> Float[Array, " n"]:
        q, noise = _split(likelihood, position)
        if is_deterministic:
            return expected_terms(
                likelihood,
                output_moments(q, x),
                y,
                noise=noise,
                expectation=expectation,
                rng_key=rng_key,
                num_samples=num_samples,
            )
        key_outputs, key_noise = jax.random.split(_present(rng_key, method))
        draws = output_draws(key_outputs, q, x, num_samples)
        if noise is None:
            terms = jax.vmap(lambda a: likelihood.log_prob(a, y, likelihood.parameter))(draws)
        else:
            scales = _noise_scales(key_noise, noise, num_samples)
            terms = jax.vmap(lambda a, s: likelihood.log_prob(a, y, s))(draws, scales)
        return jnp.mean(terms, axis=0)

    def divergence(position: PyTree) -> Scalar:
        if not likelihood.learns_noise:
            return kl_divergence(position, prior)
        if not isinstance(prior, dict) or set(prior) != {"network", "log_noise_scale"}:
            raise ValueError(
                'with learned_gaussian the prior must be {"network": prior, "log_noise_scale": '
                "distribution}, like the position; give it in that form."
            )
        of_network = kl_divergence(position["network"], prior["network"])
        return of_network + kl_divergence(position["log_noise_scale"], prior["log_noise_scale"])

    def elbo(
        position: PyTree,
        x: Shaped[Array | np.ndarray, "n *input"],
        y: Shaped[Array | np.ndarray, "n *columns"],
        rng_key: PRNGKeyArray | None = None,
        num_data: ArrayLike | None = None,
    ) -> VIInfo:
        x, y = jnp.asarray(x), jnp.asarray(y)
        check(x, y)
        terms = terms_of(position, x, y, rng_key)
        scale = 1.0 if num_data is None else jnp.asarray(num_data, terms.dtype) / x.shape[0]
        expected = scale * jnp.sum(terms)
        kl = divergence(position)
        return VIInfo(expected - kl, expected, kl)

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
        check_finite("x", x)
        if is_deterministic:
            return predictive_of(
                likelihood,
                output_moments(q, x),
                rank,
                density=density,
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
        check_finite("x", x)
        check_finite("y", y)
        if not np.shape(y) or np.shape(x)[:1] != np.shape(y)[:1]:
            raise ValueError(
                f"x and y must have as many rows, but have shapes {np.shape(x)} and {np.shape(y)}; "
                "give one target per datum."
            )
        likelihood.check((np.shape(y)[0], *output_shape(network)), y, likelihood.parameter)

    return Model(elbo, predict, check)


def _split(likelihood: Likelihood, position: PyTree) -> tuple[Family, Noise | None]:
    """Return q of the network's weights, and mean and variance of log_noise_scale or None."""
    if not likelihood.learns_noise:
        return position, None
    if not isinstance(position, dict) or set(position) != {"network", "log_noise_scale"}:
        raise ValueError(
            'with learned_gaussian, the position is {"network": q, "log_noise_scale": q}; give '
            "initial_position a log_noise_scale."
        )
    return position["network"], moments_of(position["log_noise_scale"])


def _noise_scales(rng_key: PRNGKeyArray, noise: Noise, count: int) -> Float[Array, " s"]:
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
