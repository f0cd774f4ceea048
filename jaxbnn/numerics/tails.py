"""Tails of the standard normal that hold in float32.

Everything rests on one function, the *excess hazard*

    D(t) = phi(t) / Phi(-t) - t,        t >= -1/2,

which is positive, smooth and falls as 1/t. From it follow without cancellation the
hazard h = t + D, the Mills ratio Phi(-t)/phi(t) = 1/h, its logarithm -log h, and the
second derivative -h D of log Phi: the obvious h - t has no digits left at t = 1e4.

Three places say "from the mode": a normal restricted to an interval has its mode at the
point of the interval nearest to zero, and masses and draws relative to that point stay of
order one where absolute ones underflow.
"""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Bool, Float

from jaxbnn.numerics.checks import check_real

# Chebyshev coefficients of (t + 4) D(t) in y = 1 - 7/(t + 4), which maps [-1/2, inf) to
# [-1, 1): interpolated at 120 nodes with 40 digits. 14 terms give a relative error of 4e-8,
# 30 terms one of 7e-16.
_EXCESS_HAZARD = (
    2.1424292508709093, -1.315813220865566, 0.14045764033757385, 0.051220359004184604,
    -0.018425772477275098, -0.0013844867331807536, 0.0017012344585648636,
    -6.984130582602173e-05, -0.00014196966598066212, 1.8628989665270367e-05,
    1.1153322805634506e-05, -2.436287529480646e-06, -8.329473907319132e-07,
    2.610897292641943e-07, 5.900004668963614e-08, -2.5188512277753993e-08,
    -3.905610479882424e-09, 2.25882000319179e-09, 2.317706436575353e-10,
    -1.907746246061418e-10, -1.0780360527879323e-11, 1.5263579368254277e-11,
    1.2581545183327716e-13, -1.1611601503304358e-12, 5.853378224201062e-14,
    8.44206491496743e-14, -1.0814485276662609e-14, -5.920609251460034e-15,
    1.3734728468393092e-15, 4.0575160494701714e-16,
)  # fmt: skip
_LOG_SQRT_2PI = 0.9189385332046727
_INV_SQRT_2PI = 0.3989422804014327
# An edge above this is treated from the edge, below it from the centre; below zero, so that
# a thin interval around the mode needs no case of its own.
NEAR_EDGE = -0.25


def log_ndtr(x: ArrayLike) -> Float[Array, "..."]:
    """Logarithm of the standard normal distribution function, log Phi(x).

    As `jax.scipy.special.log_ndtr`, with right derivatives: in float32 that one's gradient is
    998.5 for 1000.001 at x = -1e3. Here d/dx = hazard(x) and d2/dx2 = -h (h + x).

    Parameters
    ----------
    x
        Any shape; infinities allowed.

    Raises
    ------
    TypeError
        Arguments that are not real numbers.

    Examples
    --------
    >>> float(jax.grad(log_ndtr)(-1e4))
    10000.0
    """
    (x,) = as_floats(x)
    return _log_ndtr(x)


@jax.custom_jvp
def _log_ndtr(x):
    return log_mass_from_mode(-x) - jnp.square(jnp.minimum(x, 0)) / 2


@_log_ndtr.defjvp
def _log_ndtr_jvp(primals, tangents):
    (x,), (x_dot,) = primals, tangents
    return _log_ndtr(x), _hazard(x) * x_dot


def hazard(x: ArrayLike) -> Float[Array, "..."]:
    """Return phi(x)/Phi(x), the derivative of log Phi, also called the inverse Mills ratio.

    It is the hazard rate of a standard normal at -x; h' = -h (h + x). Relative error below
    1e-6 in float32 for x <= 0 however large; for x > 0 it underflows with phi(x).

    Parameters
    ----------
    x
        Any shape; infinities allowed.

    Raises
    ------
    TypeError
        Arguments that are not real numbers.

    Examples
    --------
    >>> bool(jnp.isclose(hazard(0.0), jnp.sqrt(2 / jnp.pi)))
    True
    """
    (x,) = as_floats(x)
    return _hazard(x)


@jax.custom_jvp
def _hazard(x):
    tail = jnp.abs(x) + excess_hazard(jnp.abs(x))
    density = normal_density(x)
    return jnp.where(x < 0, tail, density / (1 - density / tail))


@_hazard.defjvp
def _hazard_jvp(primals, tangents):
    (x,), (x_dot,) = primals, tangents
    finite = bounded(x)  # so that 0 times infinity does not occur at either end
    h = _hazard(finite)
    h_plus_x = jnp.where(finite < 0, excess_hazard(jnp.maximum(-finite, 0)), h + finite)
    return _hazard(x), -h * h_plus_x * x_dot


def log_mills(x: ArrayLike) -> Float[Array, "..."]:
    """Logarithm of the Mills ratio, log[Phi(-x) / phi(x)].

    It differs by a constant from LM(t) = log(exp(t^2/2) Phi(-t)) in erratum A1:
    log_mills(t) = LM(t) + log(2 pi)/2. It is -log(x) - 1/x^2 + ... in the right tail, and
    grows as x^2/2 in the left one.

    Parameters
    ----------
    x
        Any shape; infinities allowed.

    Raises
    ------
    TypeError
        Arguments that are not real numbers.

    Examples
    --------
    >>> round(float(log_mills(100.0)), 4)
    -4.6053
    """
    (x,) = as_floats(x)
    return log_mass_from_mode(x) + jnp.square(jnp.minimum(x, 0)) / 2 + _LOG_SQRT_2PI


def log_mass_from_mode(edge: ArrayLike, width: ArrayLike | None = None) -> Float[Array, "..."]:
    """Log of the normal mass of an interval relative to the density at its mode.

    With e = edge and w = width,

        log[Phi(e + w) - Phi(e)] + max(e, 0)^2 / 2,

    which stays of order log(e) where the mass itself is exp(-e^2/2): the term H of
    erratum A1, with edge = t for a mode outside of the interval. Two such terms can be
    subtracted where the log masses, -5e7 at e = 1e4, could not.

    Parameters
    ----------
    edge
        The end of the interval nearest to zero, seen from the interval: positive if zero lies
        outside, negative if inside. For an interval on the left, reflect: minus its upper
        end. `edge + width/2` must not be negative. Where a width is given, an edge beyond 2.3e18
        (in float32; 1.7e153 in float64) counts as that.
    width
        Length of the interval, broadcast against `edge`; zero gives -inf, a negative
        width NaN. Thin intervals keep full relative precision. None is the half line, at a
        third of the cost.

    Returns
    -------
    The shape of `edge` and `width`. Differentiable in both.

    Raises
    ------
    TypeError
        Arguments that are not real numbers.

    Examples
    --------
    >>> [round(float(log_mass_from_mode(e)), 4) for e in (-50.0, 0.0, 1e4)]
    [0.0, -0.6931, -10.1293]
    """
    if width is None:
        (edge,) = as_floats(edge)
        # A mode inside leaves out a tail of mass at most 1/2, and log(1 - tail) is exact enough.
        # A mode outside leaves Phi(-edge), whose logarithm relative to phi(edge) is -log hazard.
        inside = edge < 0
        distance = jnp.abs(edge)
        tail_hazard = distance + excess_hazard(distance)
        beyond = normal_density(edge) / tail_hazard  # Phi(-|edge|)
        logarithm = jnp.log(jnp.where(inside, 1 - beyond, tail_hazard))
        return jnp.where(inside, logarithm + lost_digits(beyond), -logarithm - _LOG_SQRT_2PI)
    edge, width = as_floats(edge, width)
    edge = bounded(edge)
    near, excess, fraction, below, above = interval_pieces(edge, width)
    # `near` measures masses relative to phi(edge). For -1/4 <= edge < 0 the mode lies inside, at
    # zero: subtract edge^2 / 2 to have them relative to phi(0).
    inside = jnp.where(near & (edge < 0), edge, 0)
    offset = _LOG_SQRT_2PI + jnp.square(inside) / 2
    beyond = jnp.where(near, 0, below + above)
    h = jnp.where(near, edge, 0) + excess
    logarithm = jnp.log(jnp.where(near, fraction / h, 1 - beyond))
    return jnp.where(near, logarithm - offset, logarithm + lost_digits(beyond))


def log_normal_interval(low: ArrayLike, high: ArrayLike) -> Float[Array, "..."]:
    """Log of the standard normal mass of an interval, log[Phi(high) - Phi(low)].

    Stable in both tails and for thin intervals, with right gradients, in float32 for
    arguments up to 1e4 and beyond; infinities allowed. The normaliser of truncated MALA
    (erratum D1).

    Parameters
    ----------
    low, high
        Ends of the interval, broadcast against each other. Equal ends give -inf,
        low > high gives NaN.

    Raises
    ------
    TypeError
        Arguments that are not real numbers.

    Examples
    --------
    >>> low = jnp.array([-jnp.inf, 0.0, 1e4])
    >>> [round(float(v), 3) for v in log_normal_interval(low, jnp.inf)]
    [0.0, -0.693, -50000012.0]
    """
    low, high = as_floats(low, high)
    low, high = bounded(low), bounded(high)
    # Reflect intervals on the left: then the end nearest to zero is always the lower one.
    edge = jnp.where(low + high < 0, -high, low)
    return log_mass_from_mode(edge, high - low) - jnp.square(jnp.maximum(edge, 0)) / 2


def interval_pieces(
    edge: Float[Array, "..."], width: Float[Array, "..."]
) -> tuple[Bool[Array, "..."], Array, Array, Array, Array]:
    """Compute what masses of, and draws from, the interval [edge, edge + width] share.

    Returns
    -------
    near
        Whether to work from the edge (edge >= -1/4) or from the centre.
    excess
        D(edge) where `near`.
    fraction
        Where `near`: mass of the interval over that of the half line [edge, inf).
    below, above
        Where not `near`: the masses left and right of the interval.
    """
    edge, width = bounded(edge), bounded(width / 2) * 2  # the whole line is two bounds wide
    width = jnp.where(width < 0, jnp.nan, width)
    near = edge >= NEAR_EDGE
    start = jnp.where(near, edge, -edge)
    end = jnp.maximum(edge + width, NEAR_EDGE)
    excess = excess_hazard(start)
    h_start, h_end = start + excess, end + excess_hazard(end)
    half = width / 2
    centre = jnp.where(near, edge, NEAR_EDGE) + half
    exponent = jnp.where(near, width * centre, jnp.square(end) / 2)
    decay = jnp.exp(-exponent)  # phi(end)/phi(start) where near, else phi(end) sqrt(2 pi)
    thin = near & (width <= 0.5) & (exponent <= 0.5)
    # 1 - Phi(-end)/Phi(-start) loses its digits in a thin interval; there integrate phi
    # around the centre. `where` differentiates both branches, and a NaN in the one that is not
    # taken would reach the gradient: that branch gets arguments at which it is finite.
    thick = 1 - jnp.where(thin, 0.5, h_start / h_end * decay)
    c, r = jnp.where(thin, centre, 0), jnp.where(thin, half, 0)
    thinned = width * _mean_density(c, r) * jnp.exp(-r * (c - r / 2)) * h_start
    fraction = jnp.where(thin, jnp.where(thin, thinned, 0.5), thick)
    fraction = jnp.where(near, fraction, 0.5)
    below = normal_density(start) / h_start
    above = _INV_SQRT_2PI * decay / h_end
    return near, excess, fraction, below, above


def excess_hazard(t: Float[Array, "..."]) -> Float[Array, "..."]:
    """Return D(t) = phi(t)/Phi(-t) - t for t >= -1/2, to the relative precision of the dtype."""
    terms = 30 if jnp.finfo(t.dtype).bits > 32 else 14
    coefficients = np.polynomial.chebyshev.cheb2poly(_EXCESS_HAZARD[:terms])
    w = 1 / (t + 4)
    y = 1 - 7 * w
    value = jnp.full_like(t, float(coefficients[-1]))
    for c in coefficients[-2::-1]:
        value = value * y + float(c)
    return w * value


def normal_density(x: Float[Array, "..."]) -> Float[Array, "..."]:
    """Return the standard normal density phi(x)."""
    return _INV_SQRT_2PI * jnp.exp(-jnp.square(bounded(x)) / 2)


def as_floats(*values: ArrayLike) -> tuple[Array, ...]:
    """Make arrays of one floating dtype: that of the values, or JAX's default for integers.

    Halves are made float32: constants of these formulas are zero or infinite in them.
    """
    for value in values:
        check_real("every argument", value)
    shapes = [np.shape(value) for value in values]
    try:
        np.broadcast_shapes(*shapes)
    except ValueError:
        raise ValueError(f"the shapes {', '.join(map(str, shapes))} do not broadcast.") from None
    dtype = jnp.result_type(*values)
    if not jnp.issubdtype(dtype, jnp.floating):
        dtype = jnp.result_type(float)
    if jnp.finfo(dtype).bits < 32:
        dtype = jnp.float32
    return tuple(jnp.asarray(value, dtype) for value in values)


def bounded(x: Float[Array, "..."]) -> Float[Array, "..."]:
    """Clip infinities, and numbers like them, to numbers whose squares are finite."""
    # An eighth of the root: sums of a few such squares, as in the widest interval, stay finite.
    limit = float(np.sqrt(float(jnp.finfo(x.dtype).max)) / 8)
    return jnp.clip(x, -limit, limit)


def lost_digits(w: Float[Array, "..."]) -> Float[Array, "..."]:
    """Return what log(1 - w) loses to rounding; log1p would cost a second logarithm."""
    return ((1 - (1 - w)) - w) / (1 - w)


def _mean_density(centre: Float[Array, "..."], half: Float[Array, "..."]) -> Float[Array, "..."]:
    """Return the mean of phi over [centre - half, centre + half], over phi(centre).

    phi(c + s) = phi(c) sum_n He_n(c) (-s)^n / n!; the odd terms integrate to zero. For
    half and centre * half up to 1/4 the terms fall fast enough for the dtype.
    """
    terms = 7 if jnp.finfo(centre.dtype).bits > 32 else 4
    previous, current = jnp.zeros_like(centre), jnp.ones_like(centre)
    total = current
    for n in range(1, 2 * terms - 1):
        following = (centre * half * current - half * half * previous) / n
        previous, current = current, following
        if n % 2 == 0:
            total = total + current / (n + 1)
    return total
