"""Tests of dvi.asymptotic, dvi.families, dvi.gaussian_average, dvi.hermite, dvi.pairs,
dvi.standard_normal and dvi.standardise: moments of activations against quadrature, their gradients,
and what float32 leaves of them.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import ndtr

from jaxbnn.dvi import GaussianMoments, activation_moments, nodes_for
from jaxbnn.dvi.asymptotic import heaviside_covariance_asymptotic, relu_remainder_asymptotic
from jaxbnn.dvi.moments import transform
from jaxbnn.dvi.pairs import heaviside_covariance, relu_remainder
from jaxbnn.dvi.standard_normal import normal_cdf, relu_moments
from jaxbnn.networks import activation_function
from tests.dvi.quadrature import covariance, density
from tests.kit.sizes import QUICK

RELU, HEAVISIDE = (0, 1, 0, 0), (0, 0, 1, 0)
GRID = np.linspace(-4, 4, 33)
MU1, MU2 = (v.ravel() for v in np.meshgrid(GRID, GRID))
RHOS = (1e-3, 0.1, 0.3, 0.5, 0.9, 0.99, 0.9999)
SIGNED = np.array([s * r for r in RHOS for s in (1, -1)])


def on_grid(parts):
    return np.stack([covariance(parts, MU1, MU2, rho) for rho in SIGNED])


@pytest.fixture(scope="module")
def reference():
    """Residuals RH and RR, (rho, pair)."""
    slopes = SIGNED[:, None] * ndtr(MU1) * ndtr(MU2)
    return on_grid(HEAVISIDE), on_grid(RELU) - slopes


def compute(function, dtype, *options):
    run = jax.jit(lambda a, b, r: function(a, b, r, *options), compiler_options=QUICK)
    shape = (len(SIGNED), len(MU1))
    arrays = (MU1[None], MU2[None], SIGNED[:, None])
    return np.asarray(run(*(jnp.asarray(np.broadcast_to(v, shape), dtype) for v in arrays)))


def test_exact_covariances_in_float64(reference, x64):
    for function, name, expected in zip(
        (heaviside_covariance, relu_remainder), ("heaviside", "relu"), reference, strict=True
    ):
        count = nodes_for(1e-6, activation=name)
        found = compute(function, jnp.float64, count)
        assert np.abs(found - expected).max() < 1e-6
        small = np.abs(SIGNED) <= 0.9
        assert np.abs(found - expected)[small].max() < 1e-9


def test_exact_covariances_in_float32(reference):
    for function, expected in zip((heaviside_covariance, relu_remainder), reference, strict=True):
        found = compute(function, jnp.float32, 24)
        assert found.dtype == np.float32
        assert np.abs(found - expected).max() < 2e-6


def printed_relu(mu1, mu2, rho, sign, factor):
    """Table 1 of the paper with either sign in g_r, and with or without rho in front (entry 13)."""
    rest = np.sqrt(1 - rho**2)
    g = np.arcsin(rho) + sign * rho / (1 + rest)
    b, c = rho / (2 * g * (1 + rest)), (np.arcsin(rho) - rho) / (rho * g)
    value = np.where(factor, rho, 1) * g / (2 * np.pi)
    return value * np.exp(c * mu1 * mu2 - b * (mu1**2 + mu2**2))


def printed_heaviside(mu1, mu2, rho, factor, squared):
    """Table 1 with or without rho in the logarithm (entry 12); A.2.1's squares in Q (entry 14)."""
    rest = np.sqrt(1 - rho**2)
    angle = np.arcsin(rho)
    b, c = rho / (2 * rest * angle), (1 - rest) / (rest * angle)
    product = -((mu1 * mu2) ** 2) if squared else mu1 * mu2
    value = angle * np.where(factor, rho, 1) / (2 * np.pi)
    with np.errstate(over="ignore"):
        return value * np.exp(c * product - b * (mu1**2 + mu2**2))


def test_asymptotic_covariances_have_the_errors_of_the_table(reference, x64):
    heaviside, relu = reference
    steps = compute(heaviside_covariance_asymptotic, jnp.float64) - heaviside
    ramps = compute(relu_remainder_asymptotic, jnp.float64) - relu
    table = {0.3: (1.3e-5, 1.4e-4), 0.5: (1.3e-4, 8.9e-4), 0.9: (3.6e-3, 1.8e-2)}
    table[0.99] = (1.0e-2, 7.22e-2)
    for rho, (of_relu, of_heaviside) in table.items():
        at = np.abs(SIGNED) == rho
        assert np.abs(ramps)[at].max() == pytest.approx(of_relu, rel=0.05)
        assert np.abs(steps)[at].max() == pytest.approx(of_heaviside, rel=0.05)


def test_table_1_as_printed_is_found_wrong(reference, x64):
    heaviside, relu = reference
    at = np.abs(SIGNED) <= 0.9
    arguments = (MU1[None], MU2[None], SIGNED[at][:, None])
    right = np.abs(printed_relu(*arguments, -1, True) - relu[at]).max()
    assert right < 0.004
    for sign, factor in ((1, False), (-1, False), (1, True)):
        assert np.abs(printed_relu(*arguments, sign, factor) - relu[at]).max() > 10 * right
    right = np.abs(printed_heaviside(*arguments, False, False) - heaviside[at]).max()
    assert right < 0.02
    for factor, squared in ((True, False), (False, True)):
        wrong = printed_heaviside(*arguments, factor, squared) - heaviside[at]
        assert np.abs(wrong).max() > 2 * right
    negative = SIGNED[at] < 0
    wrong = printed_heaviside(*arguments, True, False) - heaviside[at]
    assert np.abs(wrong)[negative].max() > 10 * right


@pytest.mark.parametrize("function", [heaviside_covariance, relu_remainder])
def test_gradients_equal_finite_differences(function, x64):
    generator = np.random.default_rng(1)
    rho = np.concatenate([s * np.array([1e-9, 1e-3, 0.4, 0.95, 0.999, 0.9999]) for s in (1, -1)])
    rho = np.repeat(np.append(rho, 0.0), 20)
    mu1, mu2 = generator.uniform(-3, 3, (2, len(rho)))
    mu2[::4] = mu1[::4]
    point = np.stack([mu1, mu2, rho])

    @jax.jit
    def value_and_slopes(point):
        slopes = [
            jax.jvp(lambda p: function(*p, 64), (point,), (jnp.zeros_like(point).at[i].set(1),))
            for i in range(3)
        ]
        return slopes[0][0], jnp.stack([s for _, s in slopes])

    slopes = np.asarray(value_and_slopes(point)[1])
    for i, h in enumerate((1e-5, 1e-5, 1e-7)):
        step = np.zeros((3, 1))
        step[i] = h
        ends = [np.asarray(value_and_slopes(point + s * step)[0]) for s in (1, -1)]
        np.testing.assert_allclose(slopes[i], (ends[0] - ends[1]) / (2 * h), atol=1e-5, rtol=1e-5)


def test_slopes_of_single_moments_equal_finite_differences(x64):
    points = np.array([-9.0, -5.0, -2.0, -0.3, 0.0, 0.4, 1.7, 6.0])
    h = 1e-5

    @functools.partial(jax.jit, compiler_options=QUICK)
    def both(mu):
        def values(mu):
            return jnp.stack([normal_cdf(mu), *relu_moments(mu)])

        return jax.jvp(values, (mu,), (jnp.ones_like(mu),))

    values, slopes = both(jnp.asarray(np.stack([points - h, points, points + h])))
    numerical = (np.asarray(values)[:, 2] - np.asarray(values)[:, 0]) / (2 * h)
    np.testing.assert_allclose(slopes[:, 1], numerical, rtol=1e-5, atol=1e-11)


@pytest.mark.parametrize(
    ("name", "parts"),
    [
        ("relu", RELU),
        ("leaky_relu", (0.01, 0.99, 0, 0)),
        ("abs", (-1, 2, 0, 0)),
        ("identity", (1, 0, 0, 0)),
        ("heaviside", HEAVISIDE),
        ("sign", (0, 0, 2, -1)),
    ],
)
def test_piecewise_linear_activations(name, parts, x64):
    scale, mean, rho = np.array([0.5, 3.0]), np.array([[0.4, -2.0], [-0.3, 1.0]]), -0.7
    matrix = np.array([[1, rho], [rho, 1]]) * np.outer(scale, scale)
    inputs = GaussianMoments(
        jnp.asarray(mean),
        jnp.broadcast_to(jnp.asarray(scale**2)[None], (2, 2)),
        jnp.broadcast_to(jnp.asarray(matrix)[None], (2, 2, 2)),
    )
    run = jax.jit(lambda m: activation_moments(name, m, num_nodes=24), compiler_options=QUICK)
    found, slope = run(inputs)
    # f(s z) = a s z + b s relu(z) + c heaviside(z) + k: each variable has parts of its own.
    each = [tuple(np.array(parts) * np.array([s, s, 1, 1])) for s in scale]
    mu = mean / scale
    z = np.linspace(-12, 12, 400_001)
    for j in range(2):
        a, b, c, k = each[j]
        values = a * z + b * np.maximum(z, 0) + c * (z > 0) + k
        weights = density(z[None] - mu[:, j, None]) * (z[1] - z[0])
        first = np.sum(values * weights, axis=1)
        spread = np.sum((values - first[:, None]) ** 2 * weights, axis=1)
        np.testing.assert_allclose(found.mean[:, j], first, atol=1e-4)
        np.testing.assert_allclose(found.variance[:, j], spread, atol=3e-4)
        np.testing.assert_allclose(
            slope[:, j], np.sum(values * (z - mu[:, j, None]) * weights, axis=1) / scale[j],
            atol=3e-4,
        )  # fmt: skip
    diagonal = np.diagonal(np.asarray(found.covariance), axis1=1, axis2=2)
    np.testing.assert_array_equal(diagonal, found.variance)
    # Cov of two different piecewise functions, by polarisation of the reference's one.
    a, b, c, _ = parts
    shared = covariance((a, b, 0, 0), mu[:, 0], mu[:, 1], rho) * scale[0] * scale[1]
    expected = shared if c == 0 else covariance(parts, mu[:, 0], mu[:, 1], rho)
    np.testing.assert_allclose(found.covariance[:, 0, 1], expected, atol=1e-9)


def test_smooth_activations_by_the_hermite_expansion(x64):
    mean, scale = np.array([[0.3, -0.8, 1.5]]), np.array([0.7, 1.3, 0.4])
    root = np.array([[1, 0, 0], [0.95, np.sqrt(1 - 0.95**2), 0], [-0.5, 0.3, np.sqrt(0.66)]])
    matrix = (root @ root.T) * np.outer(scale, scale)
    inputs = GaussianMoments(
        jnp.asarray(mean), jnp.asarray(scale**2)[None], jnp.asarray(matrix)[None]
    )
    found, slope = activation_moments("tanh", inputs, rule="gauss_hermite", num_nodes=64)
    nodes, weights = np.polynomial.hermite_e.hermegauss(120)
    weights = weights / np.sqrt(2 * np.pi)
    u, v = np.meshgrid(nodes, nodes, indexing="ij")
    both = np.outer(weights, weights)
    for i in range(3):
        for j in range(i):
            rho = matrix[i, j] / scale[i] / scale[j]
            f = np.tanh(mean[0, i] + scale[i] * u)
            g = np.tanh(mean[0, j] + scale[j] * (rho * u + np.sqrt(1 - rho**2) * v))
            expected = np.sum(both * f * g) - np.sum(both * f) * np.sum(both * g)
            assert float(found.covariance[0, i, j]) == pytest.approx(expected, abs=3e-6)
        f = np.tanh(mean[0, i] + scale[i] * nodes)
        assert float(found.mean[0, i]) == pytest.approx(np.sum(weights * f), abs=1e-6)
        assert float(slope[0, i]) == pytest.approx(np.sum(weights * (1 - f**2)), abs=1e-5)
    assert np.linalg.eigvalsh(found.covariance[0]).min() > 0


@pytest.mark.parametrize("variance", [1.0, 9.0, 100.0])
@pytest.mark.parametrize("name", ["tanh", "erf", "sigmoid", "gelu", "softplus"])
def test_errors_of_the_default_rule_are_those_that_are_stated(name, variance, x64):
    u = np.linspace(-10, 10, 10_001)
    w = density(u) / density(u).sum()
    mean, scale = jnp.array([[0.0, 1.0, -4.0]]), np.sqrt(variance)
    inputs = GaussianMoments(mean, jnp.full((1, 3), variance))
    found, slope = activation_moments(name, inputs, rule="gauss_hermite")

    def function(z):
        return np.asarray(activation_function(name)(jnp.asarray(z)))

    values = function(np.asarray(mean).T + scale * u)
    centre = values @ w
    np.testing.assert_allclose(found.mean[0], centre, atol=1e-7)
    spread = np.square(values - centre[:, None]) @ w
    np.testing.assert_allclose(found.variance[0], spread, rtol=1e-6)
    np.testing.assert_allclose(slope[0], (values * u) @ w / scale, atol=1e-7)
    # A unit's covariance with another, from sums over pairs of nodes.
    t = np.linspace(-8, 8, 801)
    on_grid = density(t) / density(t).sum()
    for rho, tolerance in ((0.9, 4e-4 if variance > 9 else 1e-4), (0.99, 0.03)):
        pair = variance * jnp.array([[[1.0, rho], [rho, 1.0]]])
        inputs = GaussianMoments(mean[:, :2], jnp.full((1, 2), variance), pair)
        found, _ = activation_moments(name, inputs, rule="gauss_hermite")
        first = on_grid * function(scale * t)
        both = function(1 + scale * (rho * t[:, None] + np.sqrt(1 - rho**2) * t))
        expected = first @ both @ on_grid - first.sum() * centre[1]
        assert float(found.covariance[0, 0, 1]) == pytest.approx(expected, rel=tolerance)
        np.testing.assert_allclose(found.variance[0], spread[:2], rtol=1e-6)


def test_the_hermite_expansion_in_float32_where_units_hardly_vary():
    middle = 1 / (1 + np.exp(-0.5))
    expected = middle * (1 - middle)
    for scale, tolerance in ((1e-3, 2e-4), (1e-4, 1e-2)):
        inputs = GaussianMoments(jnp.array([[0.5]]), jnp.full((1, 1), scale**2))
        found, slope = activation_moments("sigmoid", inputs, rule="gauss_hermite")
        assert float(slope[0, 0]) == pytest.approx(expected, rel=tolerance)
        assert float(found.variance[0, 0]) == pytest.approx((scale * expected) ** 2, rel=tolerance)


@pytest.mark.long
def test_covariances_are_positive_semi_definite(x64):
    generator = np.random.default_rng(0)
    root = generator.normal(size=(60, 2))
    matrix = root @ root.T + 1e-3 * np.eye(60)
    inputs = GaussianMoments(
        jnp.asarray(generator.normal(size=(1, 60))),
        jnp.asarray(np.diag(matrix))[None],
        jnp.asarray(matrix)[None],
    )
    smallest = {}
    for name, rule, nodes in (("relu", "exact", 32), ("relu", "asymptotic", 0)):
        found, _ = activation_moments(name, inputs, rule=rule, num_nodes=nodes)
        smallest[rule] = np.linalg.eigvalsh(found.covariance[0]).min()
    assert smallest["exact"] > -1e-6
    assert smallest["asymptotic"] < -1e-3


@pytest.mark.long
def test_float32_keeps_what_must_be_positive_positive():
    mu = jnp.asarray(np.concatenate([np.linspace(-60, 60, 5001), [-1e15, 1e15, 0.0]]), jnp.float32)
    mean, variance = relu_moments(mu)
    cdf = normal_cdf(mu)
    assert (mean >= 0).all()
    assert (variance >= 0).all()
    assert (cdf >= 0).all()
    near = np.abs(mu) <= 8
    m, x = np.asarray(mean, np.float64)[near], np.asarray(mu, np.float64)[near]
    np.testing.assert_allclose(cdf[near], ndtr(x), rtol=3e-6)
    # From far below zero a ramp is tiny, and right to its last digits.
    exact = density(x) + x * ndtr(x)
    safe = x > -4  # the reference itself cancels below
    np.testing.assert_allclose(m[safe], exact[safe], rtol=1e-5)

    def total(mean, variance):
        found, slope = activation_moments("relu", GaussianMoments(mean, variance))
        return jnp.sum(found.mean) + jnp.sum(found.variance) + jnp.sum(slope)

    mean = jnp.array([[-50.0, 0.0, 50.0, 1.0]])
    variance = jnp.array([[1e-3, 1e-12, 1e-38, 1e8]])
    value, gradients = jax.value_and_grad(total, (0, 1))(mean, variance)
    assert np.isfinite(value)
    assert all(np.isfinite(g).all() for g in gradients)


def test_bad_moments_are_refused():
    one = jnp.ones((1, 2))
    with pytest.raises(ValueError, match=r"variances must be positive.*\(0, 1\) is 0"):
        activation_moments("relu", GaussianMoments(one, jnp.array([[1.0, 0.0]])))
    bad = jnp.array([[[1.0, 2.0], [2.0, 1.0]]])
    with pytest.raises(ValueError, match=r"positive semi-definite.*eigenvalue -1"):
        activation_moments("relu", GaussianMoments(one, one, bad))
    with pytest.raises(ValueError, match=r"variances on its diagonal.*off by 1"):
        activation_moments("relu", GaussianMoments(one, one, 2 * jnp.eye(2)[None]))
    with pytest.raises(ValueError, match=r"symmetric.*off by 0\.9"):
        activation_moments("relu", GaussianMoments(one, one, jnp.array([[[1.0, 0.9], [0.0, 1.0]]])))
    with pytest.raises(ValueError, match=r"covariance need its diagonal.*no variance; give"):
        activation_moments("relu", GaussianMoments(one, covariance=jnp.eye(2)[None]))
    with pytest.raises(ValueError, match=r"no exact moments of 'tanh'.*gauss_hermite"):
        activation_moments("tanh", GaussianMoments(one, one))
    with pytest.raises(ValueError, match="num_nodes must be at least 2"):
        activation_moments("tanh", GaussianMoments(one, one), rule="gauss_hermite", num_nodes=1)
    with pytest.raises(ValueError, match="num_nodes must be at most 300, but is 372;"):
        activation_moments("tanh", GaussianMoments(one, one), rule="gauss_hermite", num_nodes=372)
    found, slope = activation_moments(
        "tanh", GaussianMoments(0 * one, one), rule="gauss_hermite", num_nodes=300
    )
    np.testing.assert_allclose([found.variance[0, 0], slope[0, 0]], [0.3942945, 0.6057055], 1e-5)


@pytest.mark.parametrize(
    ("name", "slopes"), [("relu", [0, 1]), ("tanh", 1 - np.tanh([-0.5, 1]) ** 2), ("sign", [0, 0])]
)
def test_what_is_not_random_has_the_slope_of_the_function(name, slopes):
    at = jnp.array([[-0.5, 1.0]])
    found, slope = activation_moments(name, GaussianMoments(at))
    np.testing.assert_array_equal(found.mean, activation_function(name)(at))
    assert found.variance is None
    np.testing.assert_allclose(slope[0], slopes, rtol=1e-6)
    of_integers, slope = activation_moments(name, GaussianMoments(jnp.array([[-2, 3]])))
    np.testing.assert_allclose(of_integers.mean, activation_function(name)(jnp.array([[-2.0, 3]])))
    assert slope.dtype == jnp.float32


def test_variances_of_zero_have_derivatives_in_float32():
    """As a network without biases has them at x = 0."""
    zero, matrix = jnp.zeros((1, 2)), jnp.zeros((1, 2, 2))

    def total(mean, variance, covariance):
        found, _ = transform("relu", GaussianMoments(mean, variance, covariance), "exact", 2)
        return jnp.sum(found.mean) + jnp.sum(found.covariance)

    run = jax.jit(jax.grad(total, (0, 1, 2)), compiler_options=QUICK)
    for gradient in run(zero, zero, matrix):
        assert np.isfinite(gradient).all()
