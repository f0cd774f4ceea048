"""Normal tails in float32 against float64 and asymptotic series."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.special as ss

from jaxbnn.numerics import hazard, log_mass_from_mode, log_mills, log_ndtr, log_normal_interval

SQRT2 = np.sqrt(2.0)
DTYPES = {np.float32: 1.0, np.float64: 1e-8}


def exact_hazard(x):
    """phi(x)/Phi(x) in float64: erfcx below zero, plain above."""
    left = np.sqrt(2 / np.pi) / ss.erfcx(-np.minimum(x, 0) / SQRT2)
    right = np.maximum(x, 0)
    density = np.exp(-(right**2) / 2) / np.sqrt(2 * np.pi)
    return np.where(x < 0, left, density / ss.ndtr(right))


def exact_hazard_excess(x):
    """phi(x)/Phi(x) + x; far left by its continued fraction, since h + x cancels there."""
    t = np.maximum(-x, 3.0)
    fraction = np.zeros_like(t)
    for n in range(400, 0, -1):
        fraction = n / (t + fraction)
    return np.where(x < -3, fraction, exact_hazard(x) + x)


def exact_log_interval(low, high):
    """Log mass of an interval, float64, by the branch that does not cancel."""
    flip = low + high < 0
    a, b = np.where(flip, -high, low), np.where(flip, -low, high)
    centre, half = (a + b) / 2, (b - a) / 2
    nodes, weights = np.polynomial.legendre.leggauss(40)
    # Thin: quadrature relative to phi(a). Else: the ratio of two half lines, or a difference.
    s = np.where(half < 0.5, half, 0)[:, None] * (1 + nodes)
    # a s + s^2/2, the fall of the density from a
    thin = np.log(half * (np.exp(-s * (a[:, None] + s / 2)) @ weights)) - 0.5 * np.log(2 * np.pi)
    tail = ss.erfcx(np.maximum(a, 0) / SQRT2)
    ratio = ss.erfcx(np.maximum(b, 0) / SQRT2) / tail * np.exp(-2 * half * centre)
    with np.errstate(divide="ignore", invalid="ignore"):
        thick = np.log(tail / 2) + np.log1p(-ratio)
        inside = np.log1p(-ss.ndtr(a) - ss.ndtr(-b))
    quadrature = (half < 0.5) & (np.maximum(a, 0) * half < 20)
    outside = np.where(quadrature, thin, thick) - a**2 / 2
    return np.where((a > 0) | quadrature, outside, inside)


@pytest.fixture(params=[np.float32, np.float64], ids=["float32", "float64"])
def dtype(request):
    with jax.enable_x64(request.param is np.float64):
        yield request.param


def grid(dtype):
    left, right = -np.geomspace(1e4, 1e-3, 300), np.geomspace(1e-3, 8, 100)
    return np.concatenate([left, [0.0], right]).astype(dtype)


def test_log_ndtr_value_and_two_derivatives(dtype):
    x = grid(dtype)
    first = jax.grad(log_ndtr)

    @jax.jit
    def all_three(x):
        return log_ndtr(x), jax.vmap(first)(x), jax.vmap(jax.grad(first))(x)

    value, gradient, second = all_three(x)
    wide = x.astype(float)
    tolerance = 3e-6 * DTYPES[dtype]
    np.testing.assert_allclose(value, ss.log_ndtr(wide), rtol=tolerance)
    np.testing.assert_allclose(gradient, exact_hazard(wide), rtol=tolerance)
    expected = -exact_hazard(wide) * exact_hazard_excess(wide)
    np.testing.assert_allclose(second, expected, rtol=tolerance)


@pytest.mark.long
def test_jax_log_ndtr_has_wrong_derivatives_where_ours_are_right():
    """The reason for this file: remove it when this fails."""
    x = jnp.float32(-1e4)
    assert abs(float(jax.grad(log_ndtr)(x)) / 1e4 - 1) < 1e-6
    assert abs(float(jax.grad(jax.scipy.special.log_ndtr)(x)) / 1e4 - 1) > 0.01


@pytest.mark.short("float32")
def test_infinities_have_limits_and_nan_stays(dtype):
    x = jnp.asarray([-np.inf, np.inf, np.nan], dtype)
    np.testing.assert_array_equal(log_ndtr(x), [-np.inf, 0, np.nan])
    np.testing.assert_array_equal(hazard(x), [np.inf, 0, np.nan])
    second = jax.vmap(jax.grad(hazard))(x)
    np.testing.assert_allclose(second, [-1, 0, np.nan], rtol=1e-6)


def test_log_mills(dtype):
    x = np.concatenate([-np.geomspace(20, 0.01, 50), np.geomspace(0.01, 1e6, 200)]).astype(dtype)
    wide = x.astype(float)
    expected = np.log(ss.erfcx(wide / SQRT2)) + 0.5 * np.log(np.pi / 2)
    value = log_mills(x)
    np.testing.assert_allclose(value, expected, rtol=1e-6 * DTYPES[dtype], atol=5e-7)


def intervals(rng, dtype):
    """Intervals of all widths anywhere between -1e4 and 1e4."""
    n = 1500
    low = np.concatenate(
        [4 * rng.normal(size=n), rng.choice([-1, 1], n) * 10 ** rng.uniform(-3, 4, n)]
    )
    high = np.minimum(low + 10 ** rng.uniform(-5, 2, 2 * n), 1e4)
    low, high = low.astype(dtype), high.astype(dtype)
    return low[high > low], high[high > low]


def test_log_normal_interval_value_and_gradient(dtype, rng):
    low, high = intervals(rng, dtype)
    value_and_grad = jax.value_and_grad(log_normal_interval, argnums=(0, 1))
    value, (d_low, d_high) = jax.jit(jax.vmap(value_and_grad))(low, high)
    a, b = low.astype(float), high.astype(float)
    expected = exact_log_interval(a, b)
    tolerance = 2e-6 * DTYPES[dtype]
    scale = np.maximum(np.abs(expected), 1)
    assert np.max(np.abs(value - expected) / scale) < tolerance
    # d/db = phi(b)/mass. Its exponent is -b^2/2 + a^2/2 - (log mass + a^2/2), where a is the
    # nearer end; formed in float64 it cancels at most to 1e8 * 1e-16.
    constant = 0.5 * np.log(2 * np.pi)
    for gradient, end, sign in ((d_low, a, -1), (d_high, b, 1)):
        exact = sign * np.exp(-(end**2) / 2 - constant - expected)
        large = np.abs(exact) > 1e-20
        np.testing.assert_allclose(
            np.asarray(gradient, float)[large], exact[large], rtol=max(1e-5 * DTYPES[dtype], 1e-7)
        )


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [
        (-np.inf, np.inf, 0.0),
        (-np.inf, -5.0, ss.log_ndtr(-5.0)),
        (1e4, np.inf, ss.log_ndtr(-1e4)),
        (-np.inf, 2.0, ss.log_ndtr(2.0)),
        (2.0, 2.0, -np.inf),
        (2.0, 1.0, np.nan),
        (np.nan, 1.0, np.nan),
    ],
)
def test_log_normal_interval_at_the_ends_of_the_line(low, high, expected):
    value = log_normal_interval(jnp.float32(low), jnp.float32(high))
    np.testing.assert_allclose(value, expected, rtol=1e-6)
    if np.isfinite(expected):
        gradient = jax.grad(log_normal_interval, argnums=(0, 1))(low, high)
        assert np.all(np.isfinite(gradient))


@pytest.mark.short("float32")
def test_mass_from_mode_keeps_its_digits_where_the_mass_has_none(dtype, rng):
    edge = np.concatenate([-np.geomspace(1e-3, 30, 100), np.geomspace(1e-3, 1e5, 300)]).astype(
        dtype
    )
    e = edge.astype(float)
    anchored = np.where(
        e > 0, np.log(ss.erfcx(np.maximum(e, 0) / SQRT2) / 2), ss.log_ndtr(-np.minimum(e, 0))
    )
    tolerance = 2e-6 * DTYPES[dtype]
    for value in (log_mass_from_mode(edge), log_mass_from_mode(edge, np.inf)):
        np.testing.assert_allclose(value, anchored, rtol=tolerance, atol=tolerance)
    width = (10 ** rng.uniform(-6, 1, edge.size) + 2 * np.maximum(-e, 0)).astype(dtype)
    value = log_mass_from_mode(edge, width)
    near = e < 100  # beyond, adding edge^2/2 in float64 costs the test its digits
    d = width.astype(float)
    expected = exact_log_interval(e, e + d) + np.maximum(e, 0) ** 2 / 2
    assert np.max(np.abs(value - expected)[near]) < max(tolerance * 6, 1e-8)


def test_derivatives_of_the_mass_from_the_mode(x64):
    """Central differences; the branch that is not taken must not leak a NaN."""
    edges = jnp.asarray([-3.0, -0.3, -0.1, 1e-3, 0.5, 5.0, 200.0])  # the anchor kinks at 0
    edge, width = (v.ravel() for v in jnp.meshgrid(edges, jnp.asarray([0.01, 0.7, 7.0])))
    width = jnp.maximum(width, -2.2 * edge)
    step = 1e-6
    mass = jax.jit(log_mass_from_mode)
    gradients = jax.jit(jax.vmap(jax.grad(log_mass_from_mode, argnums=(0, 1))))(edge, width)
    in_edge = mass(edge + step, width) - mass(edge - step, width)
    in_width = mass(edge, width + step) - mass(edge, width - step)
    for gradient, difference in zip(gradients, (in_edge, in_width), strict=True):
        np.testing.assert_allclose(gradient, difference / (2 * step), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("x", [1e20, 1e30, np.inf])
def test_the_mills_ratio_falls_for_as_long_as_its_argument_is_a_number(x):
    np.testing.assert_allclose(log_mills(np.float32(x)), -np.log(x), rtol=1e-6)
    mass = log_mass_from_mode(np.float32(x))
    np.testing.assert_allclose(mass, -np.log(x) - np.log(2 * np.pi) / 2, rtol=1e-6)
    assert float(jax.grad(log_mills)(jnp.float32(x))) == pytest.approx(-1 / x, rel=1e-6)


def test_the_gradient_is_whole_where_two_forms_meet(dtype):
    """At an edge of -1/4 `jax.numpy.clip` has half of its derivative."""
    for width in (0.5, 1.25, 3.0):
        a, b = dtype(-0.25), dtype(width - 0.25)
        mass = ss.ndtr(float(b)) - ss.ndtr(float(a))
        exact = [
            -s * np.exp(-(e**2) / 2) / (np.sqrt(2 * np.pi) * mass) for s, e in ((1, a), (-1, b))
        ]
        found = jax.grad(log_normal_interval, argnums=(0, 1))(jnp.asarray(a), jnp.asarray(b))
        np.testing.assert_allclose(found, exact, rtol=2e-6)
