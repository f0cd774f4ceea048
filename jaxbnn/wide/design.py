"""The read-out of a network as a linear model: its inputs Psi, and its weights as one matrix.

    f(x) = Psi(x) theta,    Psi = [weight_scale / sqrt(d) g(x), bias_scale 1],    theta = [w; b]

with g(x) the features, d of them, and w (d, k), b (k,) the read-out's standard normal parameters
(erratum B1). Without a bias the last column and row are absent.
"""

import math

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PyTree, Shaped

from jaxbnn.networks import Dense, Network, features


def design_matrix(
    network: Network, params: PyTree, x: Shaped[Array | np.ndarray, "n *input"]
) -> Float[Array, "n p"]:
    """Return Psi(x), of the inner weights in `params`; p is d + 1, or d without a bias.

    Parameters
    ----------
    network
        In the ntk parametrisation, with a Dense read-out.
    params
        The network's parameters; the read-out's own are not used.
    x
        Data.

    Examples
    --------
    >>> from jaxbnn.networks import mlp
    >>> network = mlp((4, 1), parametrisation="ntk", bias_scale=0.1)
    >>> params = ({"w": jnp.zeros((4, 1)), "b": jnp.zeros(1)},)
    >>> [round(float(entry), 4) for entry in design_matrix(network, params, jnp.ones((1, 4)))[0]]
    [0.5, 0.5, 0.5, 0.5, 0.1]
    """
    g = features(network, params, x)
    layer = read_out_layer(network)
    scaled = g * (layer.weight_scale / math.sqrt(g.shape[1]))
    if not layer.bias:
        return scaled
    return jnp.concatenate([scaled, jnp.full((g.shape[0], 1), layer.bias_scale, g.dtype)], axis=1)


def read_out_layer(network: Network) -> Dense:
    """Return the last layer of a network that was checked to end in a Dense."""
    layer = network.layers[-1]
    assert isinstance(layer, Dense)
    return layer


def stack_weights(params: dict[str, Array]) -> Float[Array, "p k"]:
    """Return the parameters of a Dense as one matrix, the bias below the weights.

    Examples
    --------
    >>> stack_weights({"w": jnp.ones((3, 2)), "b": jnp.zeros(2)}).shape
    (4, 2)
    """
    if "b" not in params:
        return params["w"]
    return jnp.concatenate([params["w"], params["b"][None]], axis=0)


def unstack_read_out(theta: Float[Array, "p k"], network: Network) -> dict[str, Array]:
    """Return the read-out's parameters of one matrix, the inverse of `stack_weights`.

    Examples
    --------
    >>> from jaxbnn.networks import mlp
    >>> unstack_read_out(jnp.ones((4, 2)), mlp((3, 2)))["b"].shape
    (2,)
    """
    if not read_out_layer(network).bias:
        return {"w": theta}
    return {"w": theta[:-1], "b": theta[-1]}
