"""What the reparametrisation needs of a network and its data, in one sentence each."""

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Float, Shaped

from jaxbnn.networks import (
    Dense,
    Network,
    features,
    init,
    layer_shapes,
    output_shape,
    parameter_shapes,
)
from jaxbnn.numerics import check_finite, check_positive, check_real, is_concrete
from jaxbnn.wide.design import design_matrix
from jaxbnn.wide.linear_model import Form


def check_network(network: Network) -> None:
    """Raise ValueError unless the network is in the ntk parametrisation with a linear read-out.

    Examples
    --------
    >>> from jaxbnn.networks import mlp
    >>> check_network(mlp((4, 3, 1)))
    Traceback (most recent call last):
    ValueError: the reparametrisation needs standard normal weights, but the network is in the ...
    """
    last = network.layers[-1]
    if not isinstance(last, Dense):
        raise ValueError(
            "the reparametrisation needs a linear read-out, but the network ends in "
            f"{type(last).__name__}; let a Dense be its last layer."
        )
    if network.parametrisation != "ntk":
        raise ValueError(
            "the reparametrisation needs standard normal weights, but the network is in the "
            f"{network.parametrisation} parametrisation; give it parametrisation='ntk'."
        )
    if len(output_shape(network)) != 1:
        inputs = (network.input_shape, *layer_shapes(network))[-2]
        raise ValueError(
            f"the read-out must see one vector per datum, but its inputs have shape {inputs}; put "
            "a Flatten() before it."
        )


def checked_data(
    network: Network, x: Shaped[ArrayLike, "..."], y: Shaped[ArrayLike, "..."]
) -> tuple[Float[Array, "n *input"], Float[Array, "n k"]]:
    """Return x and y as arrays of one dtype, y with a column per output; or say what is wrong."""
    for name, data in (("x", x), ("y", y)):
        check_real(name, data)
        check_finite(name, data)
    x = jnp.asarray(x)
    is_floating = jnp.issubdtype(x.dtype, jnp.floating)
    if is_floating and jnp.finfo(x.dtype).bits < 32:
        raise TypeError(
            f"x has dtype {x.dtype}, in which no matrix can be factored; use x.astype(jnp.float32)."
        )
    params = parameter_shapes(network, x.dtype if is_floating else float)
    jax.eval_shape(lambda params: features(network, params, x), params)  # refuses a wrong x
    shape, (num_outputs,) = np.shape(y), output_shape(network)
    expected = [(x.shape[0], num_outputs)] + ([(x.shape[0],)] if num_outputs == 1 else [])
    if shape not in expected or x.shape[0] == 0:
        raise ValueError(
            f"y must have shape {expected[0]}, a row per datum (at least one) and a column per "
            f"output of the network, but has {shape}; change y, x or the last layer."
        )
    return x, jnp.asarray(y, x.dtype).reshape(expected[0])


def check_noise_scale(noise_scale: Any) -> None:
    """Raise unless the noise scale is one positive number; a traced one is not looked at.

    Examples
    --------
    >>> check_noise_scale(0.0)
    Traceback (most recent call last):
    ValueError: noise_scale must be positive and finite, but is 0; ...
    """
    if not (isinstance(noise_scale, jax.Array) or np.asarray(noise_scale).dtype.kind in "fiu"):
        raise TypeError(
            "noise_scale must be a number, the standard deviation of Gaussian noise, but is "
            f"{type(noise_scale).__name__}; the reparametrisation exists for Gaussian noise only, "
            "while pcn and pcnl on the weights themselves take any likelihood."
        )
    if np.ndim(noise_scale) != 0:
        raise ValueError(
            f"noise_scale must be one number for all outputs, but has shape "
            f"{np.shape(noise_scale)}; scale the columns of y instead."
        )
    check_positive("noise_scale", noise_scale, "give the standard deviation of the noise")


def check_rounding(
    network: Network,
    form: Form,
    x: Float[Array | np.ndarray, "n *input"],
    noise_scale: ArrayLike,
) -> None:
    """Raise where the noise variance is lost in the rounding of the matrix that is factored.

    The pivots L_ii^2 of the Cholesky factorisation of K are known to eps K_ii, which moves the log
    marginal likelihood by some eps sum_i K_ii / L_ii^2: above one nat, or where no factor exists at
    all, a chain would sample something else, or never move. It is looked at with weights drawn from
    the prior, in float64, and only where it can matter: traced data and noise are not looked at.

    Examples
    --------
    >>> from jaxbnn.networks import mlp
    >>> network = mlp((1, 8, 1), "tanh", parametrisation="ntk")
    >>> check_rounding(network, "data", jnp.ones((3, 1)), 1e-5)
    Traceback (most recent call last):
    ValueError: noise_scale 1e-05 is too small for float32: ...
    """
    if not (is_concrete(x) and is_concrete(noise_scale)):
        return
    eps, tiny = float(jnp.finfo(x.dtype).eps), float(jnp.finfo(x.dtype).tiny)
    scale = float(np.asarray(noise_scale))
    variance = scale**2
    largest = max(1.0, float(np.max(np.mean(np.square(np.asarray(x, float)), axis=0))))
    if 10 * len(x) * eps * largest < variance:
        return
    params = init(jax.random.key(0), network)
    params = jax.tree.map(lambda leaf: leaf.astype(x.dtype), params)
    psi = np.asarray(design_matrix(network, params, x), np.float64)
    gram = psi @ psi.T if form == "data" else psi.T @ psi
    # The precision of the "features" form is this one over the variance.
    gram[np.diag_indices_from(gram)] += variance
    try:
        pivots = np.square(np.diagonal(np.linalg.cholesky(gram)))
        error = eps * float(np.sum(np.diagonal(gram) / pivots))
    except np.linalg.LinAlgError:
        error = math.inf
    if error > 1 or variance < tiny:
        raise ValueError(
            f"noise_scale {scale:g} is too small for {x.dtype}: with rows or features "
            "as alike as these, the matrix that is factored keeps nothing of the noise's variance; "
            "use float64 (jax_enable_x64), more noise, the other form, or leave out repeated rows."
        )
