"""Averages over a Gaussian of functions that bend near zero, right at any mean and variance.

A rule of Gauss and Hermite sees a function at the scale of the deviation s: at s = 100 the softplus
is a kink between two of its nodes. Here the line is cut where the Gaussian changes (every two
deviations) and where the function does (at its breaks), and each piece has a rule of Gauss and
Legendre of its own.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

Values = Float[Array, "..."]

# Below this variance the first correction is right to rounding, and its derivatives are too, where
# those of a quadrature are divided by the deviation.
SMALL_VARIANCE = 1e-4

# Outside, log sigmoid and sigmoid are straight to 1e-7.
SIGMOID_BREAKS = (-16.0, -8.0, -3.0, 0.0, 3.0, 8.0, 16.0)

_REACH = 12.0  # deviations; e^30 times the mass beyond is still nothing
_NODES_A_PIECE = 8


def gaussian_average(
    function: Callable[[Array], Array],
    mean: Values,
    variance: Values,
    breaks: tuple[float, ...] = SIGMOID_BREAKS,
) -> Values:
    """Return E f(z), z ~ N(mean, variance); f is elementwise and gets a leading axis of nodes.

    Parameters
    ----------
    function
        Smooth between the breaks, on which it may change within a few units.
    mean, variance
        Of the same shape; a variance may be zero.
    breaks
        Points on the line.

    Examples
    --------
    >>> average = gaussian_average(jax.nn.sigmoid, jnp.ones(2), jnp.array([0.0, 1e6]))
    >>> [round(float(a), 4) for a in average]  # sigmoid(1), and Phi(1 / 1000)
    [0.7311, 0.5004]
    """
    deviation = jnp.sqrt(jnp.maximum(variance, SMALL_VARIANCE))
    u, weights = normal_pieces(mean, deviation, breaks)
    whole = jnp.sum(weights * function(mean[None] + deviation[None] * u), axis=0)
    value, _, bend = two_derivatives(lambda z: function(z[None])[0], mean)
    return jnp.where(variance < SMALL_VARIANCE, value + 0.5 * variance * bend, whole)


def normal_pieces(
    mean: Values, deviation: Values, breaks: tuple[float, ...] | Float[Array, " breaks"]
) -> tuple[Values, Values]:
    """Return nodes u in deviations from the mean, and the weights of a sum that is an average.

    Both have a leading axis. The average does not depend on where the line is cut: nothing is
    differentiated through that.

    Examples
    --------
    >>> u, weights = normal_pieces(jnp.zeros(1), jnp.ones(1), (0.0,))
    >>> round(float(jnp.sum(weights * u**4)), 5)
    3.0
    """
    dtype, axes = mean.dtype, (1,) * mean.ndim
    mean, deviation, breaks = jax.lax.stop_gradient((mean, deviation, breaks))
    own = jnp.arange(-_REACH, _REACH + 1, 2, dtype=dtype).reshape(-1, *axes)
    own = jnp.broadcast_to(own, (own.shape[0], *mean.shape))
    at = jnp.asarray(breaks, dtype).reshape(-1, *axes)
    of_function = jnp.clip((at - mean[None]) / deviation[None], -_REACH, _REACH)
    cuts = jnp.sort(jnp.concatenate([own, of_function]), axis=0)
    middle, half = (cuts[1:] + cuts[:-1]) / 2, (cuts[1:] - cuts[:-1]) / 2
    nodes, own_weights = np.polynomial.legendre.leggauss(_NODES_A_PIECE)
    along = (1, _NODES_A_PIECE, *axes)
    u = middle[:, None] + half[:, None] * jnp.asarray(nodes, dtype).reshape(along)
    density = jnp.exp(-0.5 * jnp.square(u)) / np.asarray(np.sqrt(2 * np.pi), dtype)
    weights = half[:, None] * jnp.asarray(own_weights, dtype).reshape(along) * density
    return u.reshape(-1, *mean.shape), weights.reshape(-1, *mean.shape)


def two_derivatives(function: Callable[[Array], Array], z: Values) -> tuple[Values, Values, Values]:
    """Return an elementwise function with its first two derivatives.

    Examples
    --------
    >>> [float(v[0]) for v in two_derivatives(jnp.exp, jnp.zeros(1))]
    [1.0, 1.0, 1.0]
    """

    def with_slope(z: Array) -> tuple[Array, Array]:
        return jax.jvp(function, (z,), (jnp.ones_like(z),))

    (value, slope), (_, bend) = jax.jvp(with_slope, (z,), (jnp.ones_like(z),))
    return value, slope, bend
