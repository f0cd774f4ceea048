"""The Gaussian reading of a network: moments of its outputs under q(w).

Layer by layer, with h independent of the layer's weights (Wu et al., (3)),

    E a_i        = sum_j E h_j E W_ji + E b_i
    Cov(a_i, a_k) = sum_jl E[h_j h_l] Cov(W_ji, W_lk) + sum_jl E W_ji Cov(h_j, h_l) E W_lk
                    + Cov(b_i, b_k).

What is known to be uncorrelated stays so: inputs are not random, hence with independent weights the
first pre-activations are uncorrelated, exactly, and so is what an activation makes of them. A
network of one hidden layer therefore needs no d x d matrix.
"""

import math
from typing import Any, Literal, get_args

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Shaped

from jaxbnn.dvi.families import Family, LayerwiseNormal, check_q, lower_triangle, moments_of
from jaxbnn.dvi.moments import GaussianMoments, Rule, check_rule, transform
from jaxbnn.networks import Activation, Dense, Flatten, Layer, Network, Residual, apply
from jaxbnn.numerics.arguments import check_word
from jaxbnn.numerics.data import finite_array
from jaxbnn.numerics.products import product

Covariance = Literal["full", "diagonal"]

# Covariances of the inputs of open Residuals with the signal; None where they are zero.
_Crosses = tuple[Array | None, ...]


def propagate(
    network: Network,
    q: Family,
    x: Shaped[Array | np.ndarray, "n *input"],
    *,
    covariance: Covariance = "full",
    rule: Rule = "exact",
    num_nodes: int | None = None,
) -> GaussianMoments:
    """Return mean and covariance of the network's outputs under q, treated as Gaussian.

    Parameters
    ----------
    network
        Dense, Activation, Flatten and Residual layers on vectors; static under `jax.jit`.
    q
        A `FactorisedNormal` or `LayerwiseNormal`.
    x
        Data (n, d).
    covariance
        "full" (DVI), or "diagonal" (dDVI), which takes units to be uncorrelated everywhere, the
        outputs included.
    rule, num_nodes
        How an activation's moments are computed; see `activation_moments`.

    Returns
    -------
    Moments of the outputs, (n, k) and, if "full", (n, k, k).

    Raises
    ------
    ValueError
        If a layer has no moments, or x or q do not fit the network; x that holds NaN; an unknown
        option.

    Notes
    -----
    Source: Wu et al., section 3.1 and appendices A and C.1, with errata C1, C2, C5, C6. A
    `Residual` carries Cov(a', .) through any inner layers: by the mean weights of a Dense, by E f'
    of an activation.

    Examples
    --------
    >>> from jaxbnn.dvi import initial_position
    >>> from jaxbnn.networks import mlp
    >>> network = mlp((4, 50, 2))
    >>> q = initial_position(jax.random.key(0), network)
    >>> outputs = jax.jit(propagate, static_argnums=0)(network, q, jnp.ones((3, 4)))
    >>> outputs.mean.shape, outputs.covariance.shape
    ((3, 2), (3, 2, 2))
    """
    check_word("covariance", covariance, get_args(Covariance))
    check_rule(rule, num_nodes)
    check_q(q)
    finite_array("x", x)
    jax.eval_shape(lambda p, x: apply(network, p, x), q.mean, x)  # says what does not fit
    mean, spread = q.mean, moments_of(q)[1]
    if isinstance(q, LayerwiseNormal):
        spread = q.factor
    reading = _Reading(network, covariance == "full", rule, num_nodes)
    signal, _ = reading.layers(network.layers, (mean, spread), GaussianMoments(jnp.asarray(x)), ())
    if covariance == "full":
        return GaussianMoments(signal.mean, _or_zero(signal), signal.matrix())
    return GaussianMoments(signal.mean, _or_zero(signal))


class _Reading:
    """The options of one propagation, so that layers need not hand them on."""

    def __init__(self, network: Network, full: bool, rule: Rule, num_nodes: int | None):
        self.ntk = network.parametrisation == "ntk"
        self.full, self.rule, self.num_nodes = full, rule, num_nodes

    def layers(
        self, layers: tuple[Layer, ...], q: tuple, signal: GaussianMoments, crosses: _Crosses
    ) -> tuple[GaussianMoments, _Crosses]:
        for layer, mean, spread in zip(layers, *q, strict=True):
            signal, crosses = self.layer(layer, (mean, spread), signal, crosses)
        return signal, crosses

    def layer(
        self, layer: Layer, q: tuple[Any, Any], signal: GaussianMoments, crosses: _Crosses
    ) -> tuple[GaussianMoments, _Crosses]:
        match layer:
            case _ if signal.mean.ndim != 2:
                pass  # products of Dense broadcast over more axes
            case Dense():
                mean, spread = self.scaled(layer, *q)
                passed = tuple(None if c is None else product(c, mean["w"]) for c in crosses)
                if isinstance(spread, dict):
                    return _factorised_dense(mean, spread, signal, self.full), passed
                return _correlated_dense(mean, spread, signal, self.full), passed
            case Activation():
                signal, slope = transform(layer.function, signal, self.rule, self.num_nodes)
                return signal, tuple(None if c is None else c * slope[:, None] for c in crosses)
            case Flatten():
                return signal, crosses
            case Residual():
                return self.residual(layer, q, signal, crosses)
        raise ValueError(
            f"there are no Gaussian moments of {layer!r} on data of this shape; use Dense, "
            "Activation and Residual on vectors, or method='mcvi'."
        )

    def residual(
        self, layer: Residual, q: tuple[Any, Any], signal: GaussianMoments, crosses: _Crosses
    ) -> tuple[GaussianMoments, _Crosses]:
        own = None if signal.variance is None else signal.matrix()
        inner, (own, *passed) = self.layers(layer.layers, q, signal, (own, *crosses))
        mean = signal.mean + inner.mean
        both = tuple(
            b if a is None else a if b is None else a + b
            for a, b in zip(crosses, passed, strict=True)
        )
        if own is None:  # what is skipped is not random
            return GaussianMoments(mean, inner.variance, inner.covariance), both
        twice = 2 * jnp.diagonal(own, axis1=1, axis2=2)
        variance = _or_zero(signal) + _or_zero(inner) + twice
        if not self.full:
            return GaussianMoments(mean, variance), both
        covariance = signal.matrix() + inner.matrix() + own + jnp.swapaxes(own, 1, 2)
        return GaussianMoments(mean, variance, covariance), both

    def scaled(self, layer: Dense, mean: dict, spread: Any) -> tuple[dict, Any]:
        """Return q of the weights as the forward pass uses them; L itself for a factor."""
        w_scale = layer.weight_scale / math.sqrt(mean["w"].shape[0]) if self.ntk else 1.0
        b_scale = layer.bias_scale if self.ntk else 1.0
        scales = {"w": w_scale, "b": b_scale}
        scaled_mean = {name: scales[name] * value for name, value in mean.items()}
        if isinstance(spread, dict):
            return scaled_mean, {name: scales[name] ** 2 * v for name, v in spread.items()}
        rows = jnp.concatenate(
            [jnp.full(mean[n].size, scales[n], spread.dtype) for n in ("w", "b") if n in mean]
        )
        return scaled_mean, rows[:, None] * lower_triangle(spread)


def _factorised_dense(
    mean: dict, variance: dict, h: GaussianMoments, full: bool
) -> GaussianMoments:
    """Equation (3) with Cov(W_ji, W_lk) = delta_jl delta_ik Var W_ji."""
    out = _affine(mean, h)
    square = jnp.square(h.mean) if h.variance is None else h.variance + jnp.square(h.mean)
    noise = product(square, variance["w"])
    if "b" in variance:
        noise = noise + variance["b"][None]
    if h.variance is None:
        return GaussianMoments(out, noise)
    if not full:
        return GaussianMoments(out, noise + product(h.variance, jnp.square(mean["w"])))
    covariance = _sandwich(mean["w"], h) + GaussianMoments(out, noise).matrix()
    return GaussianMoments(out, jnp.diagonal(covariance, axis1=1, axis2=2), covariance)


def _correlated_dense(
    mean: dict, triangle: Float[Array, "k k"], h: GaussianMoments, full: bool
) -> GaussianMoments:
    """Equation (3) in full, b being one more row of W whose h is 1."""
    out = _affine(mean, h)
    units = mean["w"].shape[1]
    inputs = h.mean
    if "b" in mean:
        inputs = jnp.concatenate([inputs, jnp.ones_like(inputs[:, :1])], axis=1)
    second = inputs[:, :, None] * inputs[:, None, :]
    if h.variance is not None:
        padding = inputs.shape[1] - h.mean.shape[1]
        second = second + jnp.pad(h.matrix(), ((0, 0), (0, padding), (0, padding)))
    # Cov(W_ji, W_lk) of the whole layer: as large as the matrix that q itself is.
    weights = product(triangle, triangle.T).reshape(-1, units, inputs.shape[1], units)
    covariance = jnp.einsum("njl,jilk->nik", second, weights, precision="highest")
    if h.variance is not None:
        covariance = covariance + _sandwich(mean["w"], h)
    variance = jnp.diagonal(covariance, axis1=1, axis2=2)
    return GaussianMoments(out, variance, covariance) if full else GaussianMoments(out, variance)


def _affine(mean: dict, h: GaussianMoments) -> Float[Array, "n units"]:
    out = product(h.mean, mean["w"])
    return out + mean["b"][None] if "b" in mean else out


def _sandwich(w: Float[Array, "d units"], h: GaussianMoments) -> Float[Array, "n units units"]:
    """Return W^T Cov(h) W."""
    if h.covariance is not None:
        return product(jnp.swapaxes(product(h.covariance, w), 1, 2), w)
    assert h.variance is not None
    units = w.shape[1]
    if units <= 8:
        # A single product of all data, with the few products of weights there are.
        products = (w[:, :, None] * w[:, None, :]).reshape(-1, units * units)
        return product(h.variance, products).reshape(-1, units, units)
    return product(w.T[None] * h.variance[:, None, :], w)


def _or_zero(moments: GaussianMoments) -> Float[Array, "n d"]:
    return jnp.zeros_like(moments.mean) if moments.variance is None else moments.variance
