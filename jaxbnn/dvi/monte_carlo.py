"""Draws of the network's outputs: by weights (MCVI), by activations (rMCVI), by their moments."""

import math

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from jaxbnn.dvi.families import FactorisedNormal, Family, check_q, draw_weights, moments_of
from jaxbnn.dvi.moments import SMALLEST_VARIANCE, GaussianMoments, deviation_of
from jaxbnn.networks import (
    Activation,
    Dense,
    Flatten,
    Network,
    Residual,
    activation_function,
    apply,
)
from jaxbnn.networks.validation import check_inputs, check_params
from jaxbnn.numerics import check_count, standard_normal
from jaxbnn.numerics.arguments import check_key
from jaxbnn.numerics.products import product

# Of a datum's variances: the jitter of a smaller one is as if the largest were so many times it.
_LARGEST_RATIO = 100.0


def weight_draws(
    rng_key: PRNGKeyArray, network: Network, q: Family, x: Float[Array, "n *d"], num_samples: int
) -> Float[Array, "s n *k"]:
    """Return the outputs at draws of the weights, shared by all data (MCVI, equation 2).

    Any layers; each draw is one function.

    Parameters
    ----------
    rng_key
        One key.
    network
        Any layers.
    q
        Of the network's parameters.
    x
        Inputs, rows first.
    num_samples
        Draws, s.

    Raises
    ------
    ValueError
        x that does not have the network's input shape.

    Examples
    --------
    >>> from jaxbnn.dvi import initial_position
    >>> from jaxbnn.networks import mlp
    >>> network = mlp((4, 2))
    >>> q = initial_position(jax.random.key(0), network)
    >>> weight_draws(jax.random.key(1), network, q, jnp.ones((5, 4)), 10).shape
    (10, 5, 2)
    """
    check_key("rng_key", rng_key)
    check_count("num_samples", num_samples)
    keys = jax.random.split(rng_key, num_samples)
    return jax.vmap(lambda key: apply(network, draw_weights(key, q), x))(keys)


def activation_draws(
    rng_key: PRNGKeyArray, network: Network, q: Family, x: Float[Array, "n *d"], num_samples: int
) -> Float[Array, "s n *k"]:
    """Return the outputs at draws of the pre-activations (rMCVI, local reparametrisation).

    a = E W h + sqrt(Var W h^2) xi for every Dense, with noise of its own for every datum: the law
    of each datum's outputs is that of `weight_draws`, their dependence over data is not.

    Parameters
    ----------
    rng_key
        One key.
    network
        Dense, Activation, Flatten and Residual layers.
    q
        Independent normals.
    x
        Inputs, vectors, rows first.
    num_samples
        Draws, s.

    Raises
    ------
    ValueError
        If q has correlations, or a layer is not a Dense, Activation, Flatten or Residual on
        vectors; x or q that do not fit the network.
    TypeError
        x that is not floating point.

    Notes
    -----
    Source: Kingma, Salimans, Welling (2015); Wu et al., appendix E.

    Examples
    --------
    >>> from jaxbnn.dvi import initial_position
    >>> from jaxbnn.networks import mlp
    >>> network = mlp((4, 2))
    >>> q = initial_position(jax.random.key(0), network)
    >>> activation_draws(jax.random.key(1), network, q, jnp.ones((5, 4)), 10).shape
    (10, 5, 2)
    """
    check_q(q)
    if not isinstance(q, FactorisedNormal):
        raise ValueError(
            "local reparametrisation needs independent weights, a FactorisedNormal; use "
            "method='mcvi' for correlated ones."
        )
    check_params(network, q.mean)
    x = check_inputs(network, x)
    check_count("num_samples", num_samples)
    mean, variance = moments_of(q)

    def draw(key):
        return _draw_layers(key, network, network.layers, mean, variance, x)

    # Mapped over keys alone, the first product is shared and every later one is a single product.
    return jax.vmap(draw)(jax.random.split(rng_key, num_samples))


def draw_outputs(
    rng_key: PRNGKeyArray, outputs: GaussianMoments, num_samples: int
) -> Float[Array, "s n k"]:
    """Return draws of the outputs, s = num_samples; those without variance are their means.

    Examples
    --------
    >>> outputs = GaussianMoments(jnp.ones((3, 2)), jnp.full((3, 2), 1e-20))
    >>> draw_outputs(jax.random.key(0), outputs, 5).shape
    (5, 3, 2)
    """
    check_count("num_samples", num_samples)
    assert outputs.variance is not None
    noise = standard_normal(rng_key, (num_samples, *outputs.mean.shape), outputs.mean.dtype)
    deviation = deviation_of(outputs.variance)
    if outputs.covariance is None:
        moved = deviation[None] * noise
    else:
        root = _root(outputs.variance, deviation, outputs.covariance)
        moved = jnp.einsum("nij,snj->sni", root, noise, precision="highest")
    return outputs.mean[None] + jnp.where((outputs.variance > 0)[None], moved, 0)


def _root(variance: Array, deviation: Array, covariance: Array) -> Float[Array, "n k k"]:
    """Return a lower triangle L, L L^T = Cov to rounding, for outputs of any scales."""
    width = variance.shape[1]
    # A jitter of rounding size: few quadrature nodes leave eigenvalues of -1e-7 times the largest.
    # Where scales differ it follows the output's own: 1e-6 of a mean's variance of 1e6 would drown
    # a log variance.
    floor = 10 * jnp.finfo(variance.dtype).eps * width
    of_largest = floor * jnp.max(variance, axis=1, keepdims=True)
    jitter = jnp.minimum(of_largest, _LARGEST_RATIO * floor * variance) + SMALLEST_VARIANCE
    bound = deviation[:, :, None] * deviation[:, None, :]
    return jnp.linalg.cholesky(
        jnp.where(
            jnp.eye(width, dtype=bool)[None],
            covariance + jitter[:, :, None],
            jnp.clip(covariance, -bound, bound),
        )
    )


def _draw_layers(rng_key, network, layers, mean, variance, h) -> Array:
    keys = jax.random.split(rng_key, len(layers))
    for key, layer, m, v in zip(keys, layers, mean, variance, strict=True):
        h = _draw_layer(key, network, layer, m, v, h)
    return h


def _draw_layer(key, network, layer, mean, variance, h) -> Array:
    match layer:
        case Dense() if h.ndim == 2:
            ntk = network.parametrisation == "ntk"
            w_scale = layer.weight_scale / math.sqrt(mean["w"].shape[0]) if ntk else 1.0
            b_scale = layer.bias_scale if ntk else 1.0
            centre = product(h, w_scale * mean["w"])
            spread = product(jnp.square(h), w_scale**2 * variance["w"])
            if layer.bias:
                centre = centre + b_scale * mean["b"][None]
                spread = spread + b_scale**2 * variance["b"][None]
            noise = standard_normal(key, centre.shape, centre.dtype)
            # Without a bias a datum of zeros has no spread, sqrt no derivative there, and a step
            # after it no place for rounding.
            return centre + jnp.where(spread > 0, deviation_of(spread) * noise, 0)
        case Activation():
            return activation_function(layer.function)(h)
        case Flatten() if h.ndim == 2:
            return h
        case Residual():
            return h + _draw_layers(key, network, layer.layers, mean, variance, h)
    raise ValueError(
        f"there is no local reparametrisation of {layer!r} on data of this shape; use "
        "method='mcvi'."
    )
