"""Generalised inverse Gaussian draws in float32 against SciPy's law and quadrature in float64.

The Kolmogorov-Smirnov tests use the Dvoretzky-Kiefer-Wolfowitz-Massart bound: under the right
law each fails with probability 1e-6 at most. Mutants that they catch: p off by one, an
exponential tail with half its area, one that begins too early, an accept step that is left out.
"""

import math
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.integrate
import scipy.stats

from jaxbnn.numerics import generalised_inverse_gaussian

N = 200_000
CRITICAL = math.sqrt(math.log(2 / 1e-6) / (2 * N))  # 0.0060
# p, a, b: small and large, b or a zero, shapes below one, and what a scale move of 2084 data asks.
LAWS = [
    (0.3, 1.0, 2.0),
    (0.0, 0.5, 0.5),
    (0.0, 1e-3, 1e-3),
    (-0.7, 3.0, 0.01),
    (-40.0, 1e-3, 500.0),
    (1.0, 4.0, 0.0),
    (0.25, 4.0, 0.0),
    (-3.0, 0.0, 4.0),
    (5.5, 1e-3, 1e3),
    (25.0, 300.0, 300.0),
    (2109.0, 4200.0, 0.7),
    (2109.5, 4e5, 8e3),
    (-2000.0, 1.0, 4000.0),
    (5e4, 1e5, 1e-6),
]


def log_density(log_x, p, a, b):
    """Of log x, without its constant, in float64."""
    return p * log_x - (a * np.exp(log_x) + b * np.exp(-log_x)) / 2


def cdf(p, a, b):
    """The distribution function of log x, by the trapezoid rule: spectrally exact here."""
    omega = math.hypot(p, math.sqrt(a * b))
    mode = math.log((p + omega) / a) if p >= 0 else -math.log((-p + omega) / b)
    top = log_density(mode, p, a, b)
    ends = []
    for sign in (-1, 1):
        reach = 1e-4
        with np.errstate(over="ignore"):
            while log_density(mode + sign * reach, p, a, b) > top - 60:
                reach *= 1.3
        ends.append(mode + sign * reach)
    grid = np.linspace(*ends, 200_001)
    density = np.exp(log_density(grid, p, a, b) - top)
    total = np.concatenate([[0], np.cumsum((density[1:] + density[:-1]) / 2)])
    return lambda log_x: np.interp(log_x, grid, total / total[-1])


def ks_distance(probabilities):
    ordered = np.sort(probabilities)
    steps = np.arange(ordered.size + 1) / ordered.size
    return max(np.max(steps[1:] - ordered), np.max(ordered - steps[:-1]))


@pytest.fixture(scope="module")
def draw():
    def one(key, p, a, b):
        return generalised_inverse_gaussian(key, jnp.full(N, p), a, b)

    return jax.jit(one)


def distance(draw, law, exact):
    numbers = (np.float32(v) for v in law)
    values = np.asarray(draw(jax.random.key(7), *numbers), np.float64)
    with np.errstate(divide="ignore"):
        return ks_distance(cdf(*exact)(np.log(values)))


@pytest.mark.short(
    "(0.3, 1.0, 2.0)",
    "(0.0, 0.001, 0.001)",
    "(-40.0, 0.001, 500.0)",
    "(5.5, 0.001, 1000.0)",
    "(2109.0, 4200.0, 0.7)",
    "(50000.0, 100000.0, 1e-06)",
)
@pytest.mark.parametrize("law", LAWS, ids=str)
def test_draws_have_the_law(draw, law):
    assert distance(draw, law, law) < CRITICAL


@pytest.mark.parametrize("law", [law for law in LAWS if abs(law[0]) < 60], ids=str)
def test_the_reference_is_scipys_law(law):
    """Where K_p is finite in float64; the limits are the gamma law and its inverse."""
    p, a, b = law
    if b == 0:
        exact = scipy.stats.gamma(p, scale=2 / a)
    elif a == 0:
        exact = scipy.stats.invgamma(-p, scale=b / 2)
    else:
        exact = scipy.stats.geninvgauss(p, math.sqrt(a * b), scale=math.sqrt(b / a))
    for q in (0.05, 0.5, 0.95):
        found = np.interp(q, *_quantiles(law))
        if a > 0 and b > 0:
            omega, x = math.sqrt(a * b), np.exp(found) / math.sqrt(b / a)
            value = scipy.integrate.quad(
                lambda t, omega=omega: scipy.stats.geninvgauss.pdf(np.exp(t), p, omega) * np.exp(t),
                np.log(x) - 60,
                np.log(x),
                limit=500,
                points=[np.log(x) - d for d in (0.3, 1, 3, 10)],
            )[0]
        else:
            value = exact.cdf(np.exp(found))
        assert value == pytest.approx(q, abs=1e-5)


def _quantiles(law):
    grid = np.linspace(-30, 30, 600_001)
    return cdf(*law)(grid), grid


def test_moments_by_bessel_functions(draw):
    """E[x] and E[1 / x] of a law between the two limits."""
    from scipy.special import kve

    p, a, b = 0.3, 1.0, 2.0
    omega = math.sqrt(a * b)
    values = np.asarray(draw(jax.random.key(1), *map(np.float32, (p, a, b))), np.float64)
    mean = math.sqrt(b / a) * kve(p + 1, omega) / kve(p, omega)
    inverse = math.sqrt(a / b) * kve(p - 1, omega) / kve(p, omega)
    assert values.mean() == pytest.approx(mean, abs=5 * values.std() / math.sqrt(N))
    assert (1 / values).mean() == pytest.approx(inverse, abs=5 * (1 / values).std() / math.sqrt(N))


@pytest.mark.short("(0.3, 1.0, 2.0)", "(2109.0, 4200.0, 0.7)")
@pytest.mark.parametrize(
    "law", [law for law in LAWS if math.hypot(law[0], math.sqrt(law[1] * law[2])) < 1e4], ids=str
)
def test_an_order_off_by_one_is_seen(draw, law):
    """Where it moves the law by more than 0.01 of its deviation, (p^2 + a b)^(-1/4)."""
    p, a, b = law
    assert distance(draw, law, (p + 1, a, b)) > CRITICAL


@pytest.mark.long
def test_mutants_of_the_envelope_are_found(monkeypatch):
    module = sys.modules["jaxbnn.numerics.generalised_inverse_gaussian"]
    right = module._law

    def lost_tangent(*arguments):
        law = right(*arguments)
        return law._replace(left_width=law.left_width * 0.5)

    def early_tangent(*arguments):
        law = right(*arguments)
        return law._replace(right=law.right * 0.3)

    def no_accept_step(*arguments):
        return jnp.full_like(arguments[-1], jnp.inf)

    law = (0.3, 1.0, 2.0)
    one = lambda key, p, a, b: generalised_inverse_gaussian(key, jnp.full(N, p), a, b)  # noqa: E731
    for name, mutant in (
        ("_law", lost_tangent),
        ("_law", early_tangent),
        ("_log_density", no_accept_step),
    ):
        with monkeypatch.context() as patch:
            patch.setattr(module, name, mutant)
            assert distance(jax.jit(lambda *args: one(*args)), law, law) > CRITICAL, mutant


@pytest.mark.long
def test_in_float64_too(x64):
    law = (2109.5, 4e5, 8e3)
    values = generalised_inverse_gaussian(jax.random.key(3), np.full(N, law[0]), *law[1:])
    assert values.dtype == jnp.float64
    assert ks_distance(cdf(*law)(np.log(np.asarray(values)))) < CRITICAL


def test_under_vmap_and_traced_laws_that_are_none():
    keys = jax.random.split(jax.random.key(0), 4)
    p = jnp.asarray([3.0, -1.0, 0.0, 2.0])
    a, b = jnp.asarray([2.0, 1.0, 1.0, -1.0]), jnp.asarray([0.0, 0.0, 1.0, 1.0])
    values = jax.jit(jax.vmap(generalised_inverse_gaussian))(keys, p, a, b)
    assert np.isfinite(values).tolist() == [True, False, True, False]


@pytest.mark.parametrize(
    ("law", "words"),
    [
        ((1.0, 0.0, 1.0), "a > 0 unless p < 0"),
        ((0.0, 1.0, 0.0), "b > 0 unless p > 0"),
        ((math.nan, 1.0, 1.0), "finite p"),
        ((1.0, -1.0, 1.0), r"are \(1, -1, 1\)"),
        ((np.ones(2), np.ones(3), 1.0), "must broadcast"),
    ],
)
def test_bad_laws_get_one_sentence(law, words):
    with pytest.raises(ValueError, match=words):
        generalised_inverse_gaussian(jax.random.key(0), *law)


@pytest.mark.parametrize("p", [0.05, 0.01, 1e-4, -0.02])
def test_far_tails_where_an_order_is_near_zero(p):
    """A gamma law (for p < 0 its inverse): how many draws lie below 1e-20 (above 1e20)."""
    number = 20_000
    a, b = (2.0, 0.0) if p > 0 else (0.0, 2.0)
    values = generalised_inverse_gaussian(jax.random.key(0), jnp.full(number, p), a, b)
    assert not np.isnan(values).any()
    far = np.mean(np.asarray(values if p > 0 else 1 / values) < 1e-20)
    expected = scipy.stats.gamma.cdf(1e-20, abs(p))
    assert abs(far - expected) < 5 * np.sqrt(expected * (1 - expected) / number)


@pytest.mark.parametrize(
    ("p", "a", "b", "end"),
    [(0.01, 1e-10, 1e-30, 1e-30), (0.01, 1e-20, 1e-20, 1e-20), (0.05, 1e-15, 1e-25, 1e-20)],
)
def test_where_the_product_of_a_and_b_is_no_float32(p, a, b, end):
    number = 50_000
    values = generalised_inverse_gaussian(jax.random.key(1), jnp.full(number, p), a, b)
    below = np.mean(np.asarray(values) < end)
    expected = float(cdf(p, a, b)(np.log(end)))
    assert abs(below - expected) < 5 * np.sqrt(expected * (1 - expected) / number)
