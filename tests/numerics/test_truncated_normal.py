"""Truncated normal draws in float32 against the exact law, computed in float64.

The Kolmogorov-Smirnov tests use the Dvoretzky-Kiefer-Wolfowitz-Massart bound: under the right
law each fails with probability 1e-6 at most, at any sample size.
"""

import math
from functools import cache
from importlib import import_module

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.special as ss

from jaxbnn.numerics import (
    truncated_normal,
    truncated_normal_from_mode,
    truncated_normal_from_uniform,
    uniform_open,
)

N = 200_000
CRITICAL = math.sqrt(math.log(2 / 1e-6) / (2 * N))  # 0.0060
SIGMAS = (-40.0, -2.0, -0.25, 0.0, 2.0, 4.0, 8.0, 16.0, 40.0, 1000.0)


def log_survival(edge, delta):
    """log[Phi(-edge - delta) / Phi(-edge)] in float64, from the distance: no cancellation."""
    if edge < -4:
        return ss.log_ndtr(-(edge + delta)) - ss.log_ndtr(-edge)
    ratio = ss.erfcx((edge + delta) / math.sqrt(2)) / ss.erfcx(edge / math.sqrt(2))
    with np.errstate(divide="ignore"):
        return np.log(ratio) - edge * delta - delta**2 / 2


def cdf(edge, width, delta):
    """Probability of lying within delta of the edge."""
    return np.expm1(log_survival(edge, delta)) / np.expm1(log_survival(edge, np.float64(width)))


def ks_distance(probabilities):
    """Sup-distance of values to the uniform law on [0, 1]."""
    ordered = np.sort(probabilities)
    steps = np.arange(ordered.size + 1) / ordered.size
    return max(np.max(steps[1:] - ordered), np.max(ordered - steps[:-1]))


@cache
def one_sided():
    """The one compiled program of the half-line tests."""

    def draw(key, sigma, side):
        loc = -side * sigma
        low, high = jnp.where(side > 0, 0, -jnp.inf), jnp.where(side > 0, jnp.inf, 0)
        uniform = uniform_open(key, (N,))
        return jnp.abs(truncated_normal_from_uniform(uniform, low, high, loc))

    return jax.jit(draw)


@pytest.mark.parametrize("side", [1.0, -1.0], ids=["above", "below"])
@pytest.mark.parametrize("sigma", SIGMAS)
def test_half_line_has_the_exact_law(sigma, side):
    """The edge is at 0, the mean sigma outside: every digit of the distance is in the draw."""
    key = jax.random.fold_in(jax.random.key(1), int(100 * (sigma + 100) + side))
    delta = np.asarray(one_sided()(key, jnp.float32(sigma), jnp.float32(side)), float)
    assert np.all(np.isfinite(delta))
    assert np.unique(delta).size > 0.8 * N
    assert ks_distance(-np.expm1(log_survival(sigma, delta))) < CRITICAL


@pytest.mark.long
def test_jax_truncated_normal_fails_this_test():
    """The power of the test, on the defect it was written for."""
    edge = 5.5
    theirs = jax.random.truncated_normal(jax.random.key(0), edge, jnp.inf, (N,), jnp.float32)
    ours = truncated_normal(jax.random.key(0), edge, jnp.inf, shape=(N,))
    for draws, right in ((theirs, False), (ours, True)):
        delta = np.maximum(np.asarray(draws, float) - edge, 0)
        assert (ks_distance(-np.expm1(log_survival(edge, delta))) < CRITICAL) == right


@cache
def two_sided():
    def draw(key, edge, width):
        return truncated_normal_from_mode(uniform_open(key, (N,)), edge, width)

    return jax.jit(draw)


# Around the mode, at the borders between the regimes (edge = -1/4, width = 1/2), and thin and
# thick in the tail; a width of 1e-5 at 0 and of 1e-6 at 1,000 sigma are thin.
INTERVALS = [
    (-2.0, 5.0), (-0.3, 0.7), (-0.25, 0.5), (-0.2, 0.51), (-1e-5, 2e-5), (0.0, 1e-5),
    (0.0, 0.4), (0.0, 30.0), (2.0, 0.01), (2.0, 1.0), (4.0, 0.1), (8.0, 1e-3), (8.0, 0.1),
    (16.0, 0.02), (40.0, 1e-4), (40.0, 0.02), (40.0, 1.0), (1000.0, 1e-6), (1000.0, 1e-3),
]  # fmt: skip


@pytest.mark.parametrize(("edge", "width"), INTERVALS)
def test_interval_has_the_exact_law_and_stays_inside(edge, width):
    key = jax.random.fold_in(jax.random.key(2), INTERVALS.index((edge, width)))
    offset = two_sided()(key, jnp.float32(edge), jnp.float32(width))
    edge, width = float(np.float32(edge)), float(np.float32(width))
    delta = np.asarray(offset, float) - min(edge, 0)
    assert delta.min() >= 0
    assert delta.max() <= width * (1 + 1e-6)
    assert ks_distance(cdf(edge, width, delta)) < CRITICAL


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_inversion_is_exact_to_rounding(dtype, rng):
    """Survival probability of the draw against the uniform, relatively: sharper than any KS."""
    tolerance = {np.float32: 1e-5, np.float64: 5e-14}[dtype]
    with jax.enable_x64(dtype is np.float64):
        draw = jax.jit(truncated_normal_from_mode)
        u = np.concatenate([10 ** rng.uniform(-9, 0, 2000), 1 - 10 ** rng.uniform(-6, -1, 500)])
        u = u.astype(dtype)
        for edge in (-np.inf, -40, -5, -0.2501, -0.25, -0.1, 0, 0.5, 2, 5, 30, 1e3, 1e6):
            offset = np.asarray(draw(u, dtype(edge)), float)
            if edge < 0:
                value = ss.log_ndtr(-offset) - ss.log_ndtr(-float(dtype(edge)))
            else:
                value = log_survival(float(dtype(edge)), offset)
            np.testing.assert_allclose(value, np.log(u.astype(float)), atol=tolerance, rtol=0)


@pytest.mark.short("float32")
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_ends_of_the_uniform_are_finite_and_inside(dtype):
    with jax.enable_x64(dtype is np.float64):
        info = np.finfo(dtype)
        u = jnp.asarray([info.tiny, 1e-10, 0.5, 1 - info.epsneg], dtype)
        bounds = [(-1.0, 1.0), (0.0, np.inf), (1e3, np.inf), (-np.inf, -1e3), (5.0, 5.01)]
        bounds += [(-np.inf, np.inf), (-1e-6, 1e-6), (3.0, 3.0), (-1e30, np.inf)]
        for low, high in bounds:
            z = truncated_normal_from_uniform(u, low, high)
            assert z.dtype == dtype
            assert np.all(np.isfinite(z))
            assert np.all((z >= dtype(low)) & (z <= dtype(high)))


def test_arrays_of_bounds_equal_single_draws_and_nan_stays():
    """Infinite ends inside an array take the general path, a concrete inf the short one."""
    u = jnp.asarray([0.2, 0.7, 0.4, 0.9, 0.5], jnp.float32)
    low = jnp.asarray([-np.inf, 2.0, -1.0, -np.inf, np.nan], jnp.float32)
    high = jnp.asarray([-3.0, np.inf, 0.5, np.inf, 1.0], jnp.float32)
    together = truncated_normal_from_uniform(u, low, high, 0.5, 2.0)
    alone = [
        float(truncated_normal_from_uniform(u[i], float(low[i]), float(high[i]), 0.5, 2.0))
        for i in range(4)
    ]
    np.testing.assert_allclose(together[:4], alone, rtol=1e-5)
    assert np.isnan(together[4])


@pytest.mark.long
def test_pathwise_derivatives(x64):
    """dz/dloc and dz/dscale at a fixed uniform, float32, against float64 differences."""
    ends = jnp.asarray([[1.0, np.inf], [-np.inf, 1.0], [-np.inf, np.inf], [-1.0, 2.0], [9.0, 9.5]])
    low, high = (jnp.repeat(end, 3) for end in ends.T)
    u = jnp.tile(jnp.asarray([1e-4, 0.3, 0.999]), 5)
    loc, scale, step = jnp.full(15, 0.3), jnp.full(15, 1.7), 1e-6
    draw = jax.jit(truncated_normal_from_uniform)
    gradients = jax.jit(jax.vmap(jax.grad(truncated_normal_from_uniform, argnums=(3, 4))))
    narrow = (v.astype(jnp.float32) for v in (u, low, high, loc, scale))
    d_loc, d_scale = gradients(*narrow)
    in_loc = draw(u, low, high, loc + step, scale) - draw(u, low, high, loc - step, scale)
    in_scale = draw(u, low, high, loc, scale + step) - draw(u, low, high, loc, scale - step)
    np.testing.assert_allclose(d_loc, in_loc / (2 * step), rtol=1e-5, atol=2e-6)
    np.testing.assert_allclose(d_scale, in_scale / (2 * step), rtol=1e-5, atol=2e-6)


def test_uniform_open_is_uniform_and_never_an_end():
    u = np.asarray(uniform_open(jax.random.key(3), (N,)), float)
    assert 0 < u.min() < 1e-4
    assert u.max() < 1
    assert ks_distance(u) < CRITICAL
    # Finer near 0 than the 2^-23 of jax.random.uniform.
    small = u[u < 2**-8]
    assert np.any(small * 2**24 % 1 != 0)


@pytest.mark.parametrize("scale", [0.0, -1.0, np.nan])
def test_scale_must_be_positive(scale):
    with pytest.raises(ValueError, match="scale must be positive"):
        truncated_normal(jax.random.key(0), 0.0, 1.0, scale=scale)


@pytest.mark.parametrize("edge", [-40.0, -0.98, 0.0, 3.0, 40.0])
@pytest.mark.parametrize("width", [None, 0.5, 100.0])
def test_the_smallest_uniforms_give_finite_draws(edge, width):
    """Times the mass of the interval they are subnormal, and processors flush those to zero."""
    uniform = jnp.asarray([1.2e-38, 2.0**-33], jnp.float32)
    edges = jnp.full(2, edge, jnp.float32)
    offset = jax.jit(lambda u, e: truncated_normal_from_mode(u, e, width))(uniform, edges)
    assert jnp.all(jnp.isfinite(offset))
    assert jnp.all(offset >= min(edge, 0.0))


@pytest.mark.parametrize("dtype", [jnp.float16, jnp.bfloat16])
def test_uniforms_of_half_precision_are_never_an_end(dtype):
    """Whole numbers beyond the largest half were infinite, and small ones 0."""
    u = np.asarray(uniform_open(jax.random.key(3), (N,), dtype), float)
    assert 0 < u.min() < 1e-3
    assert 0.99 < u.max() < 1
    assert abs(u.mean() - 0.5) < 6 * (1 / 12 / N) ** 0.5 + 2**-9  # and rounding


@pytest.mark.parametrize("dtype", [jnp.float16, jnp.float32])
def test_no_bits_make_an_end(dtype, monkeypatch):
    bits = [0, 1, 2**32 - 1]
    room = import_module("jaxbnn.numerics.truncated_normal")
    monkeypatch.setattr(room, "random_bits", lambda key, shape, dtype: jnp.asarray(bits, dtype))
    u = np.asarray(uniform_open(jax.random.key(0), (3,), dtype), float)
    assert np.all((u > 0) & (u < 1))


def test_uniforms_are_floats():
    with pytest.raises(TypeError, match="dtype must be floating point, but is int32"):
        uniform_open(jax.random.key(0), (3,), jnp.int32)


@pytest.mark.parametrize("shape", [(), (1,), (3, 1)])
def test_a_shape_is_that_of_the_draws(shape):
    """Fewer uniforms than draws were shared by several."""
    with pytest.raises(ValueError, match=r"were asked for, but the parameters have shape \(3,\)"):
        truncated_normal(jax.random.key(0), np.zeros(3), np.inf, shape=shape)
    assert truncated_normal(jax.random.key(0), np.zeros(3), np.inf, shape=(2, 3)).shape == (2, 3)


@pytest.mark.parametrize("scale", [1e-30, 1e20, 1e30])
def test_units_do_not_change_the_law(scale):
    u = jnp.array([0.1, 0.5, 0.9])
    for low, high in ((1.0, jnp.inf), (-1.0, 2.0), (-jnp.inf, -0.5), (-jnp.inf, jnp.inf)):
        expected = truncated_normal_from_uniform(u, low, high, 0.3, 1.0)
        found = truncated_normal_from_uniform(u, low * scale, high * scale, 0.3 * scale, scale)
        np.testing.assert_allclose(found / scale, expected, rtol=2e-6, atol=1e-6)


@pytest.mark.parametrize(("low", "high"), [(-1.0, 1.0), (-np.inf, np.inf), (-2.0, 2.0)])
def test_derivatives_at_the_centre_are_those_beside_it(low, high):
    """At the median of a symmetric interval, by dz/da = phi(a) u / phi(z) and so on."""
    gradients = jax.grad(truncated_normal_from_uniform, argnums=(1, 2, 3, 4))
    at_ends = math.exp(-(high**2) / 2) / 2
    expected = (at_ends, at_ends, 1 - 2 * at_ends, 0.0)
    np.testing.assert_allclose(gradients(jnp.array(0.5), low, high, 0.0, 1.0), expected, atol=1e-6)


@pytest.mark.parametrize("scale", [1e-30, 1e-20, 1e19, 1e30])
@pytest.mark.parametrize(("low", "high"), [(1.0, np.inf), (-1.0, 2.0), (-np.inf, 0.4)])
def test_units_do_not_change_derivatives(low, high, scale):
    gradients = jax.jit(jax.grad(truncated_normal_from_uniform, argnums=(1, 2, 3, 4)))
    expected = gradients(0.3, low, high, 0.3, 1.0)
    found = gradients(0.3, low * scale, high * scale, 0.3 * scale, scale)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


def test_the_largest_numbers_are_no_bounds(x64):
    for dtype in (jnp.float32, jnp.float64):
        big = jnp.asarray(jnp.finfo(dtype).max, dtype)
        u, zero, one = (jnp.asarray(v, dtype) for v in (0.3, 0.0, 1.0))
        gradients = jax.grad(truncated_normal_from_uniform, argnums=(1, 2, 3, 4))
        found = gradients(u, -big, big, zero, one)
        np.testing.assert_allclose(found, [0, 0, 1, ss.ndtri(0.7)], atol=1e-6)
