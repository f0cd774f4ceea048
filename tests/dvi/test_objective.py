"""Tests of dvi.divergence, dvi.expected, dvi.noise_likelihoods, dvi.partition, dvi.predictive:
expected log likelihoods, divergences and predictive densities against other computations.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from scipy import integrate, optimize, special, stats

from jaxbnn import (
    Bernoulli,
    Categorical,
    CrossEntropy,
    Gaussian,
    HeteroscedasticGaussian,
    LearnedGaussian,
)
from jaxbnn.dvi import (
    FactorisedNormal,
    FlooredGaussian,
    GaussianMoments,
    LayerwiseNormal,
    SoftplusGaussian,
    empirical_bayes,
    expected_log_likelihood,
    fitted_prior,
    kl_divergence,
    predictive,
)
from jaxbnn.dvi.predictive import categorical_log_probabilities
from tests.kit.sizes import QUICK

MEAN = np.array([[0.4, -0.8], [-1.0, 0.3]])
COVARIANCE = np.array([[[0.7, -0.3], [-0.3, 0.4]], [[0.2, 0.1], [0.1, 0.9]]])
Y = np.array([0.9, -1.5])
NODES, WEIGHTS = np.polynomial.hermite_e.hermegauss(80)
WEIGHTS = WEIGHTS / np.sqrt(2 * np.pi)


def outputs(mean=MEAN, covariance=COVARIANCE):
    variance = np.diagonal(covariance, axis1=1, axis2=2)
    return GaussianMoments(*(jnp.asarray(v) for v in (mean, variance, covariance)))


def average(function, mean=MEAN, covariance=COVARIANCE):
    """Return E function(a0, a1), by a tensor rule of Gauss and Hermite."""
    u, v = np.meshgrid(NODES, NODES, indexing="ij")
    values = []
    for m, c in zip(mean, covariance, strict=True):
        root = np.linalg.cholesky(c)
        a = m[0] + root[0, 0] * u, m[1] + root[1, 0] * u + root[1, 1] * v
        values.append(function(len(values), *a))
    return np.einsum("i,j,nij->n", WEIGHTS, WEIGHTS, np.stack(values))


def softplus(x):
    return np.logaddexp(x, 0)


FLOOR = 0.8


def floored(x):
    return np.exp(x) + FLOOR**2


@pytest.mark.parametrize(
    ("likelihood", "variance"),
    [
        (HeteroscedasticGaussian(), np.exp),
        (SoftplusGaussian(), softplus),
        (FlooredGaussian(FLOOR), floored),
    ],
    ids=["exp", "softplus", "floored"],
)
def test_noise_from_the_network(likelihood, variance, x64):
    def log_density(i, m, l):
        return stats.norm.logpdf(Y[i], m, np.sqrt(variance(l)))

    expect = functools.partial(expected_log_likelihood, likelihood)
    expect = jax.jit(expect, compiler_options=QUICK)
    found = expect(outputs(), jnp.asarray(Y))
    expected = average(log_density)
    np.testing.assert_allclose(found, expected, rtol=1e-6)
    # With the other sign of Sigma_ml this is another number.
    flipped = outputs(covariance=COVARIANCE * np.array([[1, -1], [-1, 1]]))
    wrong = expect(flipped, jnp.asarray(Y))
    assert np.abs(np.asarray(wrong) - expected).min() > 0.03
    # Two columns: m1, m2, l1, l2, of which each pair is what one column was.
    two = GaussianMoments(
        jnp.asarray(np.concatenate([MEAN[:1, :1], MEAN[1:, :1], MEAN[:1, 1:], MEAN[1:, 1:]], 1)),
        *_two_columns(),
    )
    both = expect(two, jnp.asarray(Y)[None])
    np.testing.assert_allclose(both[0], found.sum(), rtol=1e-10)


def _two_columns():
    matrix = np.zeros((1, 4, 4))
    for c in range(2):
        matrix[0][np.ix_([c, c + 2], [c, c + 2])] = COVARIANCE[c]
    return jnp.asarray(np.diagonal(matrix, axis1=1, axis2=2)), jnp.asarray(matrix)


def test_known_and_learned_noise(x64):
    mean, variance = MEAN[:, :1], COVARIANCE[:, 0, :1]
    one = GaussianMoments(jnp.asarray(mean), jnp.asarray(variance))
    found = expected_log_likelihood(Gaussian(0.6), one, jnp.asarray(Y))
    expected = [
        stats.norm.expect(lambda a, y=y: stats.norm.logpdf(y, a, 0.6), loc=m, scale=np.sqrt(v))
        for y, m, v in zip(Y, mean[:, 0], variance[:, 0], strict=True)
    ]
    np.testing.assert_allclose(found, expected, rtol=1e-7)
    noise = (jnp.asarray(-0.4), jnp.asarray(0.09))
    found = expected_log_likelihood(LearnedGaussian(), one, jnp.asarray(Y), noise=noise)
    # The second variable is now l = 2 log_noise_scale, independent of the first.
    mean = np.concatenate([mean, np.full((2, 1), -0.8)], 1)
    covariance = np.stack([np.diag([v, 4 * 0.09]) for v in variance[:, 0]])
    expected = average(lambda i, m, l: stats.norm.logpdf(Y[i], m, np.exp(l / 2)), mean, covariance)
    np.testing.assert_allclose(found, expected, rtol=1e-8)


VARIANCES = (0.0, 1e-6, 9e-5, 1.1e-4, 0.01, 1.0, 30.0, 1e2, 1e3, 1e4, 1e6)
CUTS = (-1e3, -300, -60, -30, -22, -16, -10, -3, 0, 3, 10, 16, 30, 60, 100, 300, 1e3, 3e3, 1e4)


def average_of(function, mean, variance):
    """Return E f(z, u), z = mean + s u: pieces of sixty nodes, cut where these bend."""
    s = max(np.sqrt(variance), 1e-12)
    cuts = sorted({float(np.clip((c - mean) / s, -38, 38)) for c in CUTS} | {*range(-38, 39, 2)})
    nodes, weights = np.polynomial.legendre.leggauss(60)
    low, high = np.array(cuts[:-1])[:, None], np.array(cuts[1:])[:, None]
    u = (low + high) / 2 + (high - low) / 2 * nodes
    density = (high - low) / 2 * weights * stats.norm.pdf(u)
    return np.sum(density * function(mean + s * u, u))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_labels_at_any_mean_and_variance(dtype, x64):
    """The paper's rule of Gauss and Hermite is off by 0.05 at a variance of 100, by 1 at 1e4."""
    mean, variance = (a.ravel() for a in np.meshgrid((-1e4, -30, -2, 0, 0.7, 8, 300), VARIANCES))

    def total(m, v):
        logits = GaussianMoments(m[:, None], v[:, None])
        terms = expected_log_likelihood(Bernoulli(), logits, jnp.ones(len(mean), jnp.int32))
        return jnp.sum(terms), terms

    derivatives = jax.jit(jax.grad(total, (0, 1), has_aux=True), compiler_options=QUICK)
    slopes, found = derivatives(jnp.asarray(mean, dtype), jnp.asarray(variance, dtype))
    sigmoid = special.expit
    for values, function in (
        (found, lambda z, u: -np.logaddexp(0, -z)),
        (slopes[0], lambda z, u: sigmoid(-z)),
        (slopes[1], lambda z, u: -0.5 * sigmoid(z) * sigmoid(-z)),
    ):
        expected = np.array([average_of(function, *at) for at in zip(mean, variance, strict=True)])
        np.testing.assert_allclose(values, expected, rtol=1e-6, atol=4e-6)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(
    ("likelihood", "log_variance"),
    [
        (SoftplusGaussian(), lambda l: np.log(np.maximum(softplus(l), np.exp(-30)))),
        (FlooredGaussian(0.02), lambda l: np.logaddexp(l, 2 * np.log(0.02))),
    ],
    ids=["softplus", "floored"],
)
def test_noise_from_the_network_at_any_mean_and_variance(likelihood, log_variance, dtype, x64):
    raw, var_l = (a.ravel() for a in np.meshgrid((-40.0, -5.0, 0.5, 50.0, 1e4), VARIANCES))
    var_m, error = 0.5, 0.7
    slope = 0.7 * np.sqrt(var_m)
    variances = np.stack([np.full_like(raw, var_m), var_l], axis=1)
    matrix = variances[:, :, None] * np.eye(2)
    matrix[:, 0, 1] = matrix[:, 1, 0] = slope * np.sqrt(var_l)
    numbers = (np.stack([np.full_like(raw, error), raw], axis=1), variances, matrix)
    wide = GaussianMoments(*(jnp.asarray(v, dtype) for v in numbers))
    expect = functools.partial(expected_log_likelihood, likelihood)
    found = jax.jit(expect, compiler_options=QUICK)(wide, jnp.zeros(len(raw), dtype))

    def term(l, u):
        log_noise = log_variance(l)
        squares = (error + slope * u) ** 2 + var_m - slope**2
        return -0.5 * (squares * np.exp(-log_noise) + np.log(2 * np.pi) + log_noise)

    expected = np.array([average_of(term, *at) for at in zip(raw, var_l, strict=True)])
    np.testing.assert_allclose(found, expected, rtol=2e-6, atol=1e-5)


@pytest.mark.parametrize(
    "likelihood",
    [HeteroscedasticGaussian(), SoftplusGaussian(), FlooredGaussian(0.02)],
    ids=["exp", "softplus", "floored"],
)
def test_a_wide_start_has_a_finite_elbo_and_a_way_out(likelihood):
    def term(spread):
        wide = GaussianMoments(jnp.array([[0.0, -3.0]]), jnp.stack([jnp.ones(1), spread], axis=1))
        return expected_log_likelihood(likelihood, wide, jnp.zeros(1))[0]

    run = jax.jit(jax.value_and_grad(lambda s: term(s[None])), compiler_options=QUICK)
    value, slope = run(jnp.float32(400.0))
    assert np.isfinite(value)
    assert -1e20 < float(slope) < -0.01


@pytest.mark.parametrize("floor", [0.3, 1e-23])
def test_a_floor_holds_far_out_in_float32(floor):
    raw = jnp.array([-300.0, -2.0, 88.0, 100.0])
    outputs, y = jnp.stack([jnp.zeros(4), raw], axis=1), jnp.full(4, 2 * floor)
    likelihood = FlooredGaussian(floor)

    def run(o):
        terms, pull = jax.vjp(lambda o: likelihood.log_prob(o, y), o)
        return terms, pull(jnp.ones(4))[0], likelihood.predictive(o, 1).scale

    terms, slopes, scale = jax.jit(run, compiler_options=QUICK)(outputs)
    log_noise = np.logaddexp(np.asarray(raw, float), 2 * np.log(floor))
    squares = np.exp(2 * np.log(2 * floor) - log_noise)
    np.testing.assert_allclose(terms, -0.5 * (squares + np.log(2 * np.pi) + log_noise), rtol=1e-5)
    share = np.exp(np.asarray(raw, float) - log_noise)
    np.testing.assert_allclose(slopes[:, 1], 0.5 * share * (squares - 1), rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(scale, np.exp(log_noise / 2), rtol=1e-4)


def test_outputs_without_noise():
    """At zero variance the expectation is the log density, and so is the predictive's."""
    y, l = np.array([0.7]), -0.4
    still = GaussianMoments(jnp.array([[0.2, l]]), jnp.zeros((1, 2)), jnp.zeros((1, 2, 2)))
    for likelihood, variance in (
        (HeteroscedasticGaussian(), np.exp(l)),
        (SoftplusGaussian(), softplus(l)),
        (FlooredGaussian(FLOOR), floored(l)),
    ):

        @functools.partial(jax.jit, compiler_options=QUICK)
        def run(outputs, likelihood=likelihood):
            def term(v, c):
                outputs_at = outputs._replace(variance=v, covariance=c)
                return expected_log_likelihood(likelihood, outputs_at, jnp.asarray(y, "f4"))[0]

            return jax.value_and_grad(term, (0, 1))(outputs.variance, outputs.covariance)

        value, slopes = run(still)
        np.testing.assert_allclose(value, stats.norm.logpdf(0.7, 0.2, variance**0.5), rtol=1e-5)
        assert all(np.isfinite(slope).all() for slope in slopes)


def test_bad_outputs_and_targets_are_refused():
    one, both = (
        GaussianMoments(jnp.zeros((2, 1))),
        GaussianMoments(jnp.zeros((2, 3)), jnp.ones((2, 3))),
    )
    y, known = jnp.zeros(2), Gaussian(1.0)
    # Without variances: the log density itself.
    found = expected_log_likelihood(known, one, y)
    np.testing.assert_allclose(found, stats.norm.logpdf(0.0), rtol=1e-6)
    for label in (-1, 3):
        with pytest.raises(ValueError, match=rf"labels must lie in 0\.\.2.*holds {label}"):
            expected_log_likelihood(Categorical(), both, jnp.array([label, 0]))
    with pytest.raises(ValueError, match="output width 3"):
        expected_log_likelihood(known, one, jnp.zeros((2, 3)))
    with pytest.raises(ValueError, match="3 outputs are not those of targets of rank 1"):
        predictive(known, both)
    wrong = GaussianMoments(
        jnp.zeros((1, 2)), jnp.ones((1, 2)), jnp.array([[[1.0, 2.0], [2.0, 1.0]]])
    )
    with pytest.raises(ValueError, match=r"semi-definite.*eigenvalue -1"):
        predictive(HeteroscedasticGaussian(), wrong)
    with pytest.raises(ValueError, match=r"semi-definite.*eigenvalue -1"):
        expected_log_likelihood(HeteroscedasticGaussian(), wrong, y[:1])
    for likelihood in (Gaussian(1.0), Categorical()):
        with pytest.raises(ValueError, match=r"covariance need its diagonal.*no variance; give"):
            expected_log_likelihood(likelihood, one._replace(covariance=jnp.ones((2, 1, 1))), y)
    with pytest.raises(ValueError, match="floor must be positive"):
        FlooredGaussian(0.0)
    with pytest.raises(ValueError, match="floor must be one number"):
        FlooredGaussian(np.ones(2))


@pytest.mark.long
def test_labels(x64):
    labels = jnp.array([1, 0])
    one = GaussianMoments(jnp.asarray(MEAN[:, :1]), jnp.asarray(COVARIANCE[:, 0, :1]))
    found = expected_log_likelihood(Bernoulli(), one, labels)
    signs = np.array([1, -1])
    expected = average(lambda i, a, b: -np.logaddexp(0, -signs[i] * a))
    np.testing.assert_allclose(found, expected, atol=1e-8)

    def log_softmax(i, a, b):
        return (b if i == 0 else a) - np.logaddexp(a, b)

    errors = []
    for size in (0.04, 0.01):  # to second order: a quarter of the variance, 1/16 of the error
        small = outputs(covariance=size * COVARIANCE)
        exact = average(log_softmax, covariance=size * COVARIANCE)
        errors.append(
            np.abs(np.asarray(expected_log_likelihood(Categorical(), small, labels)) - exact)
        )
    assert (errors[1] < errors[0] / 12).all()
    assert (errors[0] < 1e-4).all()
    halved = expected_log_likelihood(CrossEntropy(1.0), small, labels)
    np.testing.assert_allclose(halved * 2, expected_log_likelihood(Categorical(), small, labels))
    drawn = expected_log_likelihood(
        Categorical(), outputs(), labels, expectation="monte_carlo", num_samples=200_000,
        rng_key=jax.random.key(0),
    )  # fmt: skip
    np.testing.assert_allclose(drawn, average(log_softmax), atol=0.01)


@pytest.mark.long
@pytest.mark.third_party(reason="NumPyro's mixtures broadcast ranks")
def test_predictive_densities(x64):
    y = jnp.asarray(Y)
    for likelihood, variance in (
        (HeteroscedasticGaussian(), np.exp),
        (SoftplusGaussian(), softplus),
        (FlooredGaussian(FLOOR), floored),
    ):
        exact = np.log(average(lambda i, m, l, v=variance: stats.norm.pdf(Y[i], m, np.sqrt(v(l)))))

        @functools.partial(jax.jit, compiler_options=QUICK)
        def compute(a, likelihood=likelihood):
            found = predictive(likelihood, a, num_nodes=40).log_prob(y)
            options = {"rng_key": jax.random.key(0), "num_samples": 20_000}
            drawn = predictive(likelihood, a, density="monte_carlo", **options).log_prob(y)
            normal = predictive(likelihood, a, density="closed_form", num_nodes=40)
            return found, drawn, normal.log_prob(y), normal.mean, normal.variance

        still = GaussianMoments(jnp.asarray(MEAN), jnp.zeros((2, 2)), jnp.zeros((2, 2, 2)))
        for density in compute(still)[:3]:
            expected = stats.norm.logpdf(Y, MEAN[:, 0], np.sqrt(variance(MEAN[:, 1])))
            np.testing.assert_allclose(density, expected, rtol=1e-6)
        found, drawn, of_normal, mean, spread = compute(outputs())
        np.testing.assert_allclose(found, exact, atol=1e-6)
        np.testing.assert_allclose(drawn, exact, atol=0.05)
        expected = average(lambda i, m, l, v=variance: (m - MEAN[i, 0]) ** 2 + v(l))
        np.testing.assert_allclose(spread, expected, rtol=1e-6)
        np.testing.assert_allclose(mean, MEAN[:, 0])
        assert np.abs(np.asarray(of_normal) - exact).max() > 1e-3
    one = GaussianMoments(jnp.asarray(MEAN[:, :1]), jnp.asarray(COVARIANCE[:, 0, :1]))
    known = predictive(Gaussian(0.6), one).log_prob(y)
    expected = stats.norm.logpdf(Y, MEAN[:, 0], np.sqrt(COVARIANCE[:, 0, 0] + 0.36))
    np.testing.assert_allclose(known, expected)
    noise = (jnp.asarray(-0.4), jnp.asarray(0.09))
    learned = predictive(LearnedGaussian(), one, 2, noise=noise)
    assert learned.batch_shape == (2,)
    assert learned.event_shape == (1,)


@pytest.mark.third_party(reason="NumPyro's mixtures broadcast ranks")
def test_errors_of_predictive_densities_are_those_that_are_stated(x64):
    y, u = np.array([0, 0.1, 1, 3, 10, 30]), np.linspace(-14, 14, 20_001)
    weights = np.exp(-u * u / 2) * (u[1] - u[0]) / np.sqrt(2 * np.pi)
    for spread, of_32, of_300 in (
        (1, 7e-4, 1e-6), (4, 0.01, 1e-6), (9, 0.03, 1e-6), (25, 0.12, 1e-4), (100, 0.6, 0.02),
    ):  # fmt: skip
        for of_mean in (0.01, 1.0):
            found = GaussianMoments(jnp.zeros((6, 2)), jnp.array([[of_mean, spread]] * 6))
            scale = np.sqrt(of_mean + np.exp(np.sqrt(spread) * u))
            exact = np.log(stats.norm.pdf(y[:, None], 0, scale) @ weights)
            for count, most in ((32, of_32), (300, of_300)):
                density = predictive(HeteroscedasticGaussian(), found, num_nodes=count)
                error = np.abs(np.asarray(density.log_prob(jnp.asarray(y))) - exact).max()
                assert error < most
                assert count == 300 or error > most / 2


def test_class_probabilities_are_positive(x64):
    small = outputs(covariance=0.01 * COVARIANCE)
    exact = average(lambda i, a, b: 1 / (1 + np.exp(b - a)), covariance=0.01 * COVARIANCE)
    found = np.exp(categorical_log_probabilities(small))
    np.testing.assert_allclose(found[:, 0], exact, atol=1e-5)
    wide = GaussianMoments(
        jnp.array([[0.0, 1.0, 0.0]]), jnp.full((1, 3), 50.0), 50.0 * jnp.eye(3)[None]
    )
    found = np.exp(categorical_log_probabilities(wide))
    assert (found > 0).all()
    assert found.sum() == pytest.approx(1)


def some_q():
    generator = np.random.default_rng(3)
    shapes = ({"w": (2, 2), "b": (2,)}, (), {"w": (2, 1)})
    draw = lambda s: jnp.asarray(generator.normal(size=s))  # noqa: E731
    mean, scale = (
        tuple({n: draw(s) for n, s in layer.items()} if layer else () for layer in shapes)
        for _ in range(2)
    )
    return FactorisedNormal(mean, scale)


def numbers(q):
    mean = np.concatenate([np.ravel(v) for v in jax.tree.leaves(q.mean)])
    return mean, np.exp(np.concatenate([np.ravel(v) for v in jax.tree.leaves(q.log_scale)]))


def test_divergence_from_normal_and_laplace(x64):
    q = some_q()
    mean, scale = numbers(q)
    found = kl_divergence(q, dist.Normal(0.3, 1.7))
    ratio = (scale / 1.7) ** 2
    expected = 0.5 * np.sum(ratio + ((mean - 0.3) / 1.7) ** 2 - 1 - np.log(ratio))
    assert float(found) == pytest.approx(expected)
    found = kl_divergence(q, dist.Laplace(0.3, 1.7))
    expected = sum(
        integrate.quad(
            lambda w, m=m, s=s: stats.norm.pdf(w, m, s)
            * (stats.norm.logpdf(w, m, s) - stats.laplace.logpdf(w, 0.3, 1.7)),
            m - 12 * s, m + 12 * s, points=[0.3], limit=200,
        )[0]
        for m, s in zip(mean, scale, strict=True)
    )  # fmt: skip
    assert float(found) == pytest.approx(expected, abs=1e-6)
    with pytest.raises(TypeError, match=r"no closed form.*Cauchy"):
        kl_divergence(q, dist.Cauchy(0.0, 1.0))


def test_divergence_where_a_variance_underflows():
    """E|w - loc| / scale of a point, and the entropy of its logarithm."""
    q = FactorisedNormal({"w": jnp.array([0.3])}, {"w": jnp.array([-50.0])})
    entropy = 0.5 * np.log(2 * np.pi * np.e) - 50
    for prior, expected in (
        (dist.Laplace(0.0, 1.0), np.log(2) + 0.3),
        (dist.Normal(0.0, 1.0), 0.5 * np.log(2 * np.pi) + 0.045),
    ):
        value, slopes = jax.value_and_grad(kl_divergence)(q, prior)
        assert float(value) == pytest.approx(expected - entropy, rel=1e-5)
        assert all(bool(jnp.isfinite(slope).all()) for slope in jax.tree.leaves(slopes))


def test_divergence_of_correlated_weights(x64):
    generator = np.random.default_rng(4)
    factor = generator.normal(size=(6, 6)) / 3
    mean = {"w": jnp.asarray(generator.normal(size=(2, 2))), "b": jnp.asarray([0.3, -1.0])}
    q = LayerwiseNormal((mean,), (jnp.asarray(factor),))
    triangle = np.tril(factor, -1) + np.diag(np.exp(np.diag(factor)))
    sigma = triangle @ triangle.T
    flat = np.concatenate([np.ravel(mean["w"]), mean["b"]])
    expected = 0.5 * (
        6 * np.log(4) - np.linalg.slogdet(sigma)[1] - 6 + np.trace(sigma) / 4 + flat @ flat / 4
    )
    assert float(kl_divergence(q, dist.Normal(0.0, 2.0))) == pytest.approx(expected)


@pytest.mark.short("layer-False", "all-True", "own-True", "rows-True")
@pytest.mark.parametrize("include_hyperprior", [True, False])
@pytest.mark.parametrize("partition", ["tensor", "layer", "all", "own", "rows"])
def test_empirical_bayes(partition, include_hyperprior, x64):
    q = some_q()
    rows = np.array([[1, 1], [4, 4]])
    labels = {
        "tensor": [0, 1, 2],
        "layer": [0, 0, 1],
        "all": [0, 0, 0],
        "own": [5, 7, 5],
        "rows": [4, rows, 8],
    }[partition]
    if partition in ("own", "rows"):
        of_b, of_w, of_last = labels
        partition = ({"b": of_b, "w": of_w}, (), {"w": of_last})
    alpha, beta = 2.5, 0.7
    prior = empirical_bayes(alpha, beta, partition=partition, include_hyperprior=include_hyperprior)
    leaves = jax.tree.leaves(q.mean), jax.tree.leaves(q.log_scale)
    labels = [np.broadcast_to(v, m.shape) for v, m in zip(labels, leaves[0], strict=True)]
    total, optima = 0.0, {}
    flat = [np.concatenate([np.ravel(v) for v in values]) for values in (labels, *leaves)]
    for label in set(flat[0]):
        mean, scale = (values[flat[0] == label] for values in flat[1:])
        scale = np.exp(scale)

        def divergence(s, mean=mean, scale=scale):
            return np.sum(np.log(np.sqrt(s) / scale) + (scale**2 + mean**2) / (2 * s) - 0.5)

        def objective(log_s, divergence=divergence):
            return divergence(np.exp(log_s)) - stats.invgamma.logpdf(
                np.exp(log_s), alpha, scale=beta
            )

        best = optimize.minimize_scalar(objective, bracket=(-2, 2), tol=1e-12)
        optima[label] = np.exp(best.x)
        total += best.fun if include_hyperprior else divergence(np.exp(best.x))
    assert float(kl_divergence(q, prior)) == pytest.approx(total, rel=1e-6)
    # Where the hyperprior counts, s* is an optimum: nothing flows through it.
    slope = jax.tree.leaves(jax.grad(kl_divergence)(q, prior).mean)
    variances = [np.vectorize(optima.get)(label) for label in labels]
    flows = [
        np.abs(np.asarray(slope[i]) - np.asarray(leaves[0][i]) / variances[i]).max()
        for i in range(3)
    ]
    assert max(flows) < 1e-6 if include_hyperprior else max(flows) > 1e-3
    for i, normal in enumerate(
        jax.tree.leaves(fitted_prior(prior, q), is_leaf=lambda d: isinstance(d, dist.Distribution))
    ):
        np.testing.assert_allclose(normal.variance, variances[i], rtol=1e-6)


def test_betas_belong_to_the_tensors_at_their_places(x64):
    q = FactorisedNormal(
        {"w": jnp.ones(2), "b": jnp.ones(1)}, {"w": jnp.zeros(2), "b": jnp.zeros(1)}
    )
    prior = fitted_prior(empirical_bayes(1.0, {"w": 1.0, "b": 100.0}), q)
    np.testing.assert_allclose(prior["w"].variance, [1.0, 1.0])  # (4 + 2) / (2 + 4)
    np.testing.assert_allclose(prior["b"].variance, [202 / 5])
    # In a list b would come first, and a single entry would be one for both.
    for beta in ([1.0, 100.0], {"w": 1.0}, [1.0]):
        with pytest.raises(ValueError, match=r"beta has numbers at .* are at \['b'\], \['w'\];"):
            fitted_prior(empirical_bayes(1.0, beta), q)


def test_empirical_bayes_wants_sense():
    with pytest.raises(ValueError, match="alpha must be positive"):
        empirical_bayes(-1.0)
    with pytest.raises(ValueError, match=r"beta\['w'\] must be positive"):
        empirical_bayes(1.0, {"w": 0.0})
    with pytest.raises(ValueError, match="partition has labels at"):
        kl_divergence(some_q(), empirical_bayes(partition={"w": 1}))
    with pytest.raises(ValueError, match=r"beta has numbers at \[0\], \[1\], but .* \[0\]\['b'\]"):
        kl_divergence(some_q(), empirical_bayes(1.0, [1.0, 2.0]))
    unequal = ({"b": 1.0, "w": 1.0}, (), {"w": 2.0})
    with pytest.raises(
        ValueError, match=r"share a variance must have one beta.*tensor 2 has 2 and .* 1;"
    ):
        kl_divergence(some_q(), empirical_bayes(1.0, unequal, partition="all"))
    halves = ({"b": 0, "w": np.arange(3)}, (), {"w": 1})
    with pytest.raises(ValueError, match=r"labels of the partition at .* have shape \(3,\)"):
        kl_divergence(some_q(), empirical_bayes(partition=halves))
    with pytest.raises(ValueError, match="alpha must be one number"):
        empirical_bayes(np.ones(2))


def test_classes_have_the_second_order_of_their_expectation(x64):
    """Equation (21), where outputs vary so little that the next order is below the tolerance."""
    labels, little = np.array([1, 0]), 0.01 * COVARIANCE

    def of_label(i, a, b):
        return (a, b)[labels[i]] - np.logaddexp(a, b)

    found = expected_log_likelihood(Categorical(), outputs(covariance=little), jnp.asarray(labels))
    np.testing.assert_allclose(found, average(of_label, covariance=little), atol=1e-5)
    half = expected_log_likelihood(
        CrossEntropy(1.0), outputs(covariance=little), jnp.asarray(labels)
    )
    np.testing.assert_allclose(half, found / 2)


@pytest.mark.third_party(reason="NumPyro's mixtures broadcast ranks")
def test_a_predictive_density_sees_the_covariance_of_mean_and_noise(x64):
    exact = average(lambda i, mean, noise: stats.norm.pdf(Y[i], mean, np.exp(noise / 2)))
    law = predictive(HeteroscedasticGaussian(), outputs(), num_nodes=40)
    np.testing.assert_allclose(law.log_prob(jnp.asarray(Y)), np.log(exact), atol=1e-5)


@pytest.mark.parametrize(
    ("likelihood", "variance"),
    [(SoftplusGaussian(), softplus), (FlooredGaussian(FLOOR), floored)],
    ids=["softplus", "floored"],
)
def test_the_closed_form_has_the_variance(likelihood, variance, x64):
    exact = average(lambda i, mean, noise: (mean - MEAN[i, 0]) ** 2 + variance(noise))
    law = predictive(likelihood, outputs(), density="closed_form")
    np.testing.assert_allclose(law.variance, exact, rtol=1e-5)


def test_divergences_of_sixteen_bits_are_summed_in_thirty_two():
    """In bfloat16 numbers of this size step by 32."""
    values = np.random.default_rng(0).normal(size=(2, 3000)).astype(np.float32)
    halves = [jnp.asarray(v, jnp.bfloat16) for v in (values[0], values[1] / 10)]
    wide = [half.astype(jnp.float32) for half in halves]
    for prior in (dist.Normal(0.0, 1.0), empirical_bayes()):
        found = kl_divergence(FactorisedNormal(*halves), prior)
        assert found.dtype == jnp.float32
        expected = kl_divergence(FactorisedNormal(*wide), prior)
        np.testing.assert_allclose(found, expected, rtol=1e-6)
