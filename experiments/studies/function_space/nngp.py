"""The Gaussian process that a network becomes as its hidden layers grow: kernel and posterior.

With standard normal weights in the ntk parametrisation, the pre-activations of a layer and the
output are, in the limit, independent Gaussian processes over units with covariance

    S_1(x, x') = weight_scale^2 <x, x'> / d + bias_scale^2,
    S_(l+1)(x, x') = weight_scale^2 k(S_l(x, x), S_l(x, x'), S_l(x', x')) + bias_scale^2,

where k(a, c, b) = E[psi(u) psi(v)] for (u, v) ~ N(0, [[a, c], [c, b]]) and psi the activation.
"""

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from jaxbnn import Dense, Network

Matrix = Float[np.ndarray, "n m"]


class GaussianProcess(NamedTuple):
    """Posterior of the outputs at new inputs: a mean a column, one covariance for all columns."""

    mean: Float[np.ndarray, "m k"]
    covariance: Float[np.ndarray, "m m"]


def nngp_posterior(
    network: Network,
    x: Float[np.ndarray, "n d"],
    y: Float[np.ndarray, "n k"],
    x_new: Float[np.ndarray, "m d"],
    noise_scale: float,
) -> GaussianProcess:
    """Return the exact posterior of the infinitely wide network's outputs at `x_new`, float64.

    Parameters
    ----------
    network
        Dense and Activation layers in the ntk parametrisation; its widths do not matter.
    x, y
        Data; the columns of y are independent given the inputs.
    x_new
        New inputs.
    noise_scale
        Standard deviation of the noise of y.

    Examples
    --------
    >>> from jaxbnn import mlp
    >>> network = mlp((1, 7, 1), "relu", parametrisation="ntk")
    >>> gp = nngp_posterior(network, np.ones((1, 1)), np.ones((1, 1)), np.ones((1, 1)), 0.1)
    >>> gp.mean.shape, gp.covariance.shape
    ((1, 1), (1, 1))
    """
    n = len(x)
    kernel = nngp_kernel(network, np.concatenate([x, x_new]))
    seen = kernel[:n, :n] + noise_scale**2 * np.eye(n)
    across = kernel[n:, :n]
    weights = np.linalg.solve(seen, across.T).T
    covariance = kernel[n:, n:] - weights @ across.T
    return GaussianProcess(weights @ np.asarray(y, np.float64), covariance)


def nngp_kernel(network: Network, x: Float[np.ndarray, "n d"]) -> Float[np.ndarray, "n n"]:
    """Return the covariance of the infinitely wide network's output between the rows of x.

    Raises ValueError for layers or activations whose kernel is not here.
    """
    if network.parametrisation != "ntk":
        raise ValueError("the limit exists in the ntk parametrisation only; ask for it.")
    x = np.asarray(x, np.float64)
    moment = x @ x.T / x.shape[1]  # E[psi psi'] of the layer before; of the inputs, as they are
    covariance = None  # of a layer's pre-activations
    for layer in network.layers:
        if isinstance(layer, Dense):
            covariance = layer.weight_scale**2 * moment
            if layer.bias:
                covariance = covariance + layer.bias_scale**2
            continue
        product = EXPECTED_PRODUCTS.get(getattr(layer, "function", ""))
        if product is None or covariance is None:
            raise ValueError(
                f"no closed form of the kernel with {layer} there; use Dense layers, each but the "
                f"last followed by one of {', '.join(EXPECTED_PRODUCTS)}."
            )
        variance = np.diag(covariance)
        moment = product(variance[:, None], covariance, variance[None, :])
        covariance = None
    if covariance is None:
        raise ValueError("the network must end in a Dense, its read-out.")
    return covariance


def gelu_product(a: Matrix, c: Matrix, b: Matrix) -> Matrix:
    """E[u Phi(u) v Phi(v)], by Stein's lemma, with E[Phi(u) Phi(v)] an orthant probability.

        c (1/4 + arcsin(c / sqrt((1 + a)(1 + b))) / 2 pi)
            + [a b + c^2 (1/(1 + a) + 1/(1 + b) - 1)] / (2 pi sqrt((1 + a)(1 + b) - c^2))

    Examples
    --------
    >>> one = np.ones((1, 1))
    >>> round(gelu_product(one, one, one).item(), 6)  # E[u^2 Phi(u)^2]
    0.425221
    """
    both = (1 + a) * (1 + b)
    both_positive = 0.25 + np.arcsin(c / np.sqrt(both)) / (2 * math.pi)
    density = 1 / (2 * math.pi * np.sqrt(both - c**2))  # E[phi(u) phi(v)]
    return c * both_positive + density * (a * b + c**2 * (1 / (1 + a) + 1 / (1 + b) - 1))


def relu_product(a: Matrix, c: Matrix, b: Matrix) -> Matrix:
    """E[max(u, 0) max(v, 0)]: the arc-cosine kernel of degree one (Cho and Saul, 2009)."""
    scale = np.sqrt(a * b)
    cosine = np.clip(c / scale, -1, 1)
    angle = np.arccos(cosine)
    return scale / (2 * math.pi) * (np.sin(angle) + (math.pi - angle) * cosine)


def erf_product(a: Matrix, c: Matrix, b: Matrix) -> Matrix:
    """E[erf(u) erf(v)]: the arc-sine kernel (Williams, 1998)."""
    return 2 / math.pi * np.arcsin(2 * c / np.sqrt((1 + 2 * a) * (1 + 2 * b)))


EXPECTED_PRODUCTS: dict[str, Callable[[Matrix, Matrix, Matrix], Matrix]] = {
    "gelu": gelu_product,
    "relu": relu_product,
    "erf": erf_product,
}
