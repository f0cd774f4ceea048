"""Draws from the generalised inverse Gaussian law, at any parameters, in float32.

    p(x) ∝ x^(p - 1) exp(-(a x + b / x) / 2),    x > 0

With omega = sqrt(a b), x = m e^s, m = (p + sqrt(p^2 + omega^2)) / a for p >= 0, the law of s is
log-concave with its mode at zero (Devroye (2014), Statistics and Computing 24, 239-246),

    psi(s) = -alpha (cosh s - 1) - p (e^s - s - 1),    alpha = omega^2 / (p + sqrt(p^2 + omega^2)),

and is drawn by rejection from a constant between two tangents of psi: at most three uniforms in
a trial, half of the trials and more accepted whatever p and omega. A negative p is that of 1 / x
with a and b exchanged. Where b = 0 the law is the gamma law, where a = 0 the inverse gamma law.
"""

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Float, PRNGKeyArray

from jaxbnn.numerics.checks import check_real, is_concrete
from jaxbnn.numerics.tails import as_floats
from jaxbnn.numerics.truncated_normal import uniform_open


class _Law(NamedTuple):
    """psi by its two coefficients, and its envelope: exp of tangents outside [-left, right].

    Attributes
    ----------
    alpha, log_alpha, p
        Coefficients; alpha may underflow where its logarithm does not.
    left, right
        Where the tangents meet the constant one, as distances from the mode.
    left_width, right_width
        Inverse slopes of the tangents: the areas under their exponentials.
    """

    alpha: Float[Array, "*shape"]
    log_alpha: Float[Array, "*shape"]
    p: Float[Array, "*shape"]
    left: Float[Array, "*shape"]
    right: Float[Array, "*shape"]
    left_width: Float[Array, "*shape"]
    right_width: Float[Array, "*shape"]


def generalised_inverse_gaussian(
    key: PRNGKeyArray, p: ArrayLike, a: ArrayLike, b: ArrayLike
) -> Float[Array, "..."]:
    """Draw x > 0 from the density proportional to x^(p - 1) exp(-(a x + b / x) / 2).

    Exact, by rejection; the parameters broadcast and may be traced. A draw beyond what its dtype
    holds is 0 or infinite, as many are where p is near 0 and a or b is 0. E[x^r] is (b / a)^(r / 2)
    K_{p + r}(omega) / K_p(omega), omega = sqrt(a b), K the modified Bessel function.

    Parameters
    ----------
    key
        A PRNG key.
    p
        Any number; thousands, and more, cost no digits.
    a, b
        Not negative. a > 0 unless p < 0, b > 0 unless p > 0. Where a traced one breaks this, the
        draw is NaN.

    Raises
    ------
    ValueError
        Parameters outside of that, or not finite.
    TypeError
        Parameters that are not real numbers.

    Examples
    --------
    >>> draws = generalised_inverse_gaussian(jax.random.key(0), jnp.full(100_000, 2.0), 4.0, 0.0)
    >>> abs(float(draws.mean()) - 1.0) < 0.02  # a gamma law of shape 2 and rate 2
    True
    """
    for name, value in (("p", p), ("a", a), ("b", b)):
        check_real(name, value)
    if is_concrete((p, a, b)):
        _check(*(np.asarray(value, np.float64) for value in (p, a, b)))
    return draw_unchecked(key, p, a, b)


def draw_unchecked(
    key: PRNGKeyArray, p: ArrayLike, a: ArrayLike, b: ArrayLike
) -> Float[Array, "..."]:
    """Draw as `generalised_inverse_gaussian` does; NaN where there is no such law.

    Parameters
    ----------
    key, p, a, b
        As there.
    """
    p, a, b = jnp.broadcast_arrays(*as_floats(p, a, b))
    is_proper = (a >= 0) & (b >= 0) & ((a > 0) | (p < 0)) & ((b > 0) | (p > 0))
    omega = jnp.sqrt(a) * jnp.sqrt(b)  # the product itself could overflow
    order = jnp.abs(p)
    total = order + jnp.hypot(order, omega)
    # At p = 0 and a vanishing omega the law is not proper: any number keeps the loop finite.
    safe = jnp.where(total > 0, total, 1)
    alpha = jnp.where(total > 0, omega * (omega / safe), 1)
    log_alpha = jnp.where(total > 0, jnp.log(a) + jnp.log(b) - jnp.log(safe), 0)
    alpha, log_alpha = jnp.where(is_proper, alpha, 1), jnp.where(is_proper, log_alpha, 0)
    s = _draw(key, _law(alpha, log_alpha, jnp.where(is_proper, order, 1)))
    is_inverse = p < 0
    scale = jnp.where(is_inverse, b, a)
    mode = total / jnp.where(is_proper, scale, 1)
    # s is small where p is large: the two factors apart keep its digits, and out of range exp
    # of the sum is right where they are not.
    x = jnp.exp(s + jnp.log(mode))
    x = jnp.where(jnp.abs(s) < 1, mode * jnp.exp(s), x)
    x = jnp.where(is_inverse, 1 / x, x)
    return jnp.where(is_proper, x, jnp.nan)


def _check(p: np.ndarray, a: np.ndarray, b: np.ndarray) -> None:
    try:
        p, a, b = np.broadcast_arrays(p, a, b)
    except ValueError:
        raise ValueError(
            f"p, a and b must broadcast, but have the shapes {p.shape}, {a.shape} and {b.shape}."
        ) from None
    finite = np.isfinite(p) & np.isfinite(a) & np.isfinite(b)
    proper = finite & (a >= 0) & (b >= 0) & ((a > 0) | (p < 0)) & ((b > 0) | (p > 0))
    if not proper.all():
        index = int(np.argmin(proper.ravel()))
        numbers = ", ".join(f"{v.ravel()[index]:g}" for v in (p, a, b))
        raise ValueError(
            "a generalised inverse Gaussian law needs finite p, a >= 0 and b >= 0, with a > 0 "
            f"unless p < 0 and b > 0 unless p > 0, but (p, a, b) are ({numbers})."
        )


def _log_density(alpha: Array, log_alpha: Array, p: Array, s: Array) -> Array:
    """Return psi(s), without cancellation at small s: there alpha and p may be large."""
    near = 2 * alpha * jnp.square(jnp.sinh(jnp.clip(s, -_LARGE, _LARGE) / 2))
    of_alpha = jnp.where(jnp.abs(s) > _LARGE, _half_exp(log_alpha, s), near)
    return -of_alpha - jnp.where(p > 0, p * _exp_less_line(s), 0)


def _slope(alpha: Array, log_alpha: Array, p: Array, s: Array) -> Array:
    near = alpha * jnp.sinh(jnp.clip(s, -_LARGE, _LARGE))
    of_alpha = jnp.where(jnp.abs(s) > _LARGE, jnp.sign(s) * _half_exp(log_alpha, s), near)
    return -of_alpha - jnp.where(p > 0, p * jnp.expm1(s), 0)


def _half_exp(log_alpha: Array, s: Array) -> Array:
    """Return alpha e^|s| / 2: where cosh s overflows alpha may be so small that this does not."""
    return jnp.exp(log_alpha - math.log(2) + jnp.abs(s))


def _exp_less_line(s: Array) -> Array:
    """Return e^s - 1 - s; near zero by its series, where the difference would cancel."""
    small = jnp.abs(s) < 0.3
    t = jnp.where(small, s, 0)
    term, total = t * t / 2, jnp.zeros_like(t)
    for k in range(3, 13):
        total = total + term
        term = term * t / k
    return jnp.where(small, total + term, jnp.expm1(s) - s)


def _law(alpha: Array, log_alpha: Array, p: Array) -> _Law:
    """Place the tangents where psi is about -1: near the best, and any place is exact."""

    def depth(s):
        return -_log_density(alpha, log_alpha, p, jnp.full_like(p, s))

    at_one, at_minus_one = depth(1), depth(-1)
    tiny = jnp.finfo(p.dtype).tiny
    both = jnp.maximum(alpha + 2 * p, tiny)
    right = jnp.where(at_one > 2, jnp.sqrt(2 / jnp.maximum(alpha + p, tiny)), 1)
    right = jnp.where(at_one < 0.5, jnp.log(4 / both), right)
    left = jnp.where(
        at_minus_one > 2, jnp.sqrt(4 / jnp.maximum(alpha * jnp.cosh(jnp.ones_like(p)) + p, tiny)), 1
    )
    inverse = 1 / jnp.maximum(alpha, tiny)
    # acosh(1 + 1 / alpha), whose square would overflow; the smaller of the two terms' own places.
    of_alpha = jnp.log1p(inverse + jnp.sqrt(inverse) * jnp.sqrt(inverse + 2))
    of_alpha = jnp.where(log_alpha < -_LARGE, math.log(2) - log_alpha, of_alpha)
    far = jnp.minimum(1 / jnp.maximum(p, tiny), of_alpha)
    left = jnp.where(at_minus_one < 0.5, far, left)
    right_width = -1 / _slope(alpha, log_alpha, p, right)
    left_width = 1 / _slope(alpha, log_alpha, p, -left)
    return _Law(
        alpha,
        log_alpha,
        p,
        left + left_width * _log_density(alpha, log_alpha, p, -left),
        right + right_width * _log_density(alpha, log_alpha, p, right),
        left_width,
        right_width,
    )


def _draw(key: PRNGKeyArray, law: _Law) -> Array:
    """Try until every entry is accepted; entries that are keep their value."""
    shape, dtype = law.p.shape, law.p.dtype
    flat = law.left + law.right

    def trial(key):
        key_place, key_tail, key_accept = jax.random.split(key, 3)
        place = uniform_open(key_place, shape, dtype) * (flat + law.left_width + law.right_width)
        depth = -jnp.log(uniform_open(key_tail, shape, dtype))
        in_flat, in_right = place < flat, place < flat + law.right_width
        s = jnp.where(
            in_flat,
            place - law.left,
            jnp.where(
                in_right, law.right + law.right_width * depth, -law.left - law.left_width * depth
            ),
        )
        envelope = jnp.where(in_flat, 0, -depth)
        log_uniform = jnp.log(uniform_open(key_accept, shape, dtype))
        log_density = _log_density(law.alpha, law.log_alpha, law.p, s)
        return s, log_uniform + envelope <= log_density

    def body(carry):
        i, s, is_done = carry
        new, is_accepted = trial(jax.random.fold_in(key, i))
        return i + 1, jnp.where(is_done, s, new), is_done | is_accepted

    def is_open(carry):
        i, _, is_done = carry
        return ~jnp.all(is_done) & (i < _MOST_TRIALS)

    start = (jnp.uint32(0), jnp.zeros(shape, dtype), jnp.zeros(shape, bool))
    _, s, is_done = jax.lax.while_loop(is_open, body, start)
    return jnp.where(is_done, s, jnp.nan)


_LARGE = 60.0  # of s: cosh s - 1 is e^|s| / 2, and far from overflow
_MOST_TRIALS = 1_000  # a NaN is never accepted; half of all others are, each time
