"""Tests of dvi.model and dvi.monte_carlo: the ELBO against brute force, and fits of
models whose answers are known.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import optax
import pytest
from scipy import special, stats

import jaxbnn
from jaxbnn import (
    Activation,
    Bernoulli,
    Conv,
    Dense,
    Gaussian,
    HeteroscedasticGaussian,
    LearnedGaussian,
    Network,
    Residual,
    mlp,
)
from jaxbnn.dvi import (
    FactorisedNormal,
    GaussianMoments,
    activation_draws,
    as_distributions,
    deterministic_vi,
    empirical_bayes,
    fit,
    initial_position,
    predictive,
    standardisation,
)
from jaxbnn.dvi.fit_input import checked_data
from jaxbnn.dvi.monte_carlo import draw_outputs
from jaxbnn.dvi.predictive import mixture
from tests.dvi.brute_force import output_draws
from tests.kit.sizes import QUICK

OPTAX = pytest.mark.third_party(reason="Optax promotes dtypes")
LINE = mlp((3, 1))
NOISE = 0.5
GENERATOR = np.random.default_rng(0)
X = GENERATOR.normal(size=(12, 3)) @ np.array([[1, 0.8, 0], [0, 0.6, 0.3], [0, 0, 1.0]])
Y = X @ np.array([0.5, -1.0, 0.2]) + NOISE * GENERATOR.normal(size=12)
EXTENDED = np.concatenate([X, np.ones((12, 1))], axis=1)
PRECISION = EXTENDED.T @ EXTENDED / NOISE**2 + np.eye(4)
POSTERIOR_MEAN = np.linalg.solve(PRECISION, EXTENDED.T @ Y / NOISE**2)
LOG_EVIDENCE = stats.multivariate_normal(
    np.zeros(12), EXTENDED @ EXTENDED.T + NOISE**2 * np.eye(12)
).logpdf(Y)
SCHEDULE = optax.exponential_decay(0.05, 50, 0.8)


def run(vi, *arguments, **options):
    """Compile once, quickly."""
    return jax.jit(functools.partial(vi, **options), compiler_options=QUICK)(*arguments)


def elbo_of_draws(q, network_layers, x, y, log_density, count):
    """Return brute-force E log p(y | w), and its standard error."""
    draws = output_draws(7, network_layers, q.mean, q.log_scale, x, count)
    terms = log_density(draws, y).sum(axis=1)
    return terms.mean(), terms.std() / np.sqrt(count)


@pytest.mark.parametrize("count", [100_000, pytest.param(1_000_000, marks=pytest.mark.long)])
def test_elbo_equals_brute_force(count, x64):
    """Five standard errors; a two-sided normal tail of 6e-7."""
    network, layers = mlp((3, 8, 2)), ("dense", "relu", "dense")
    q = initial_position(jax.random.key(3), network, variance=0.05, dtype=jnp.float64)
    x, y = X[:2], Y[:2]

    def homoscedastic(outputs, y):
        return stats.norm.logpdf(y, outputs, 0.8).sum(axis=-1)

    prior = dist.Normal(0.0, 1.0)
    both = np.stack([y, -y], axis=1)
    vi = deterministic_vi(network, Gaussian(0.8), prior)
    info = run(vi.elbo, q, x, both)
    expected, error = elbo_of_draws(q, layers, x, both, homoscedastic, count)
    # A Gaussian likelihood asks for two moments only, which one hidden layer has exactly.
    assert abs(float(info.expected_log_likelihood) - expected) < 5 * error
    mean, scale = (
        np.concatenate([np.ravel(v) for v in jax.tree.leaves(t)]) for t in (q.mean, q.log_scale)
    )
    kl = np.sum((np.exp(2 * scale) + mean**2 - 1) / 2 - scale)
    assert float(info.elbo) == pytest.approx(float(info.expected_log_likelihood) - kl)

    for method in ("mcvi", "rmcvi"):
        drawn = deterministic_vi(network, Gaussian(0.8), prior, method=method, num_samples=20_000)
        found = run(drawn.elbo, q, x, both, jax.random.key(5))
        of_both = error * np.sqrt(1 + count / 20_000)
        assert abs(float(found.expected_log_likelihood) - expected) < 5 * of_both
        assert float(found.kl) == pytest.approx(kl)

    def heteroscedastic(outputs, y):
        m, l = outputs[..., 0], -3 + 0.5 * outputs[..., 1]
        return stats.norm.logpdf(y, m, np.exp(l / 2))

    vi = deterministic_vi(
        network, HeteroscedasticGaussian(), prior, output_scale=jnp.array([1.0, 0.5]),
        output_shift=jnp.array([0.0, -3.0]),
    )  # fmt: skip
    info = run(vi.elbo, q, x, y)
    expected, error = elbo_of_draws(q, layers, x, y, heteroscedastic, count)
    # Outputs of eight units are not quite Gaussian.
    assert float(info.expected_log_likelihood) == pytest.approx(expected, rel=0.03)


@pytest.mark.long
@pytest.mark.parametrize("name", ["relu", "heaviside"])
def test_gradient_of_the_elbo_equals_finite_differences(name, x64):
    """Through covariances of two hidden layers, a skip, (8) and empirical Bayes."""
    skip = Residual((Activation(name), Dense(4)))
    network = Network((Dense(4), skip, Activation(name), Dense(2)), (3,))
    q = initial_position(jax.random.key(3), network, variance=0.1, dtype=jnp.float64)
    vi = deterministic_vi(network, HeteroscedasticGaussian(), empirical_bayes(), num_nodes=48)
    generator = np.random.default_rng(5)
    along = jax.tree.map(lambda leaf: jnp.asarray(generator.normal(size=leaf.shape)), q)

    def value(t):
        moved = jax.tree.map(lambda leaf, d: leaf + t * d, q, along)
        return vi.elbo(moved, jnp.asarray(X), jnp.asarray(Y)).elbo

    run = jax.jit(jax.value_and_grad(value))
    h = 1e-4
    numerical = (run(h)[0] - run(-h)[0]) / (2 * h)
    assert float(run(0.0)[1]) == pytest.approx(float(numerical), rel=1e-6)


def test_minibatches_are_unbiased(x64):
    network = mlp((3, 4, 2))
    q = initial_position(jax.random.key(3), network, dtype=jnp.float64)
    vi = deterministic_vi(network, HeteroscedasticGaussian(), empirical_bayes())
    whole = run(vi.elbo, q, X, Y)
    compute = jax.jit(lambda x, y: vi.elbo(q, x, y, None, 12).elbo, compiler_options=QUICK)
    parts = [compute(X[i : i + 3], Y[i : i + 3]) for i in range(0, 12, 3)]
    assert float(np.mean(parts)) == pytest.approx(float(whole.elbo))


@pytest.mark.long
@OPTAX
@pytest.mark.parametrize(
    "correlated",
    [pytest.param(False, marks=pytest.mark.long), True],
    ids=["factorised", "layerwise"],
)
def test_linear_models_have_known_optima(correlated, x64):
    """q = N(m, diag(1 / Lambda_ii)) at best; with correlations the posterior, and the evidence."""
    vi = deterministic_vi(
        LINE, Gaussian(NOISE), dist.Normal(0.0, 1.0), optimizer=optax.adam(SCHEDULE)
    )
    start = initial_position(
        jax.random.key(0), LINE, correlated=correlated, shape=(1,), dtype=jnp.float64
    )
    result = fit(jax.random.key(1), vi, start, X, Y, 1500, progress=False)
    q = jax.tree.map(lambda leaf: leaf[0], result.positions)
    mean = np.append(np.ravel(q.mean[0]["w"]), q.mean[0]["b"])
    np.testing.assert_allclose(mean, POSTERIOR_MEAN, atol=2e-3)
    best = float(vi.elbo(q, X, Y).elbo)
    if correlated:
        covariance = as_distributions(q)[0].covariance_matrix
        np.testing.assert_allclose(covariance, np.linalg.inv(PRECISION), atol=2e-4)
        assert best == pytest.approx(LOG_EVIDENCE, abs=1e-3)
    else:
        variance = np.append(np.ravel(as_distributions(q)[0]["w"].variance),
                             as_distributions(q)[0]["b"].variance)  # fmt: skip
        np.testing.assert_allclose(variance, 1 / np.diag(PRECISION), rtol=1e-2)
        assert best < LOG_EVIDENCE
    assert best == pytest.approx(result.elbo[0, -1], abs=1e-3)
    if not correlated:
        # Draws go where MCMC draws go.
        draws = run(vi.sample, jax.random.key(2), vi.init(q), num_samples=4000)
        table = jaxbnn.summary(jax.tree.map(lambda leaf: leaf[None], draws))
        assert table.num_draws == 4000
        assert len(table.names) == 4
        np.testing.assert_allclose(np.sort(table.mean), np.sort(mean), atol=0.02)
    else:
        predicted = run(lambda q: vi.predict(q, X).log_prob(Y), q)
        spread = np.sum(EXTENDED @ np.linalg.inv(PRECISION) * EXTENDED, axis=1) + NOISE**2
        expected = stats.norm.logpdf(Y, EXTENDED @ POSTERIOR_MEAN, np.sqrt(spread))
        np.testing.assert_allclose(predicted, expected, atol=5e-3)


@pytest.mark.long
@OPTAX
def test_learned_noise_is_a_factor_of_q(x64):
    """The optimum over log_noise_scale given the rest, against a grid."""
    prior = {"network": dist.Normal(0.0, 1.0), "log_noise_scale": dist.Normal(-1.0, 0.5)}
    vi = deterministic_vi(LINE, LearnedGaussian(), prior, optimizer=optax.adam(SCHEDULE))
    start = initial_position(
        jax.random.key(0), LINE, log_noise_scale=0.0, shape=(1,), dtype=jnp.float64
    )
    result = fit(jax.random.key(1), vi, start, X, Y, 1500, progress=False)
    q = jax.tree.map(lambda leaf: leaf[0], result.positions)
    at = q["log_noise_scale"]

    @jax.jit
    def value(mean, log_scale):
        return vi.elbo(q | {"log_noise_scale": FactorisedNormal(mean, log_scale)}, X, Y).elbo

    best = value(at.mean, at.log_scale)
    for shift in ((0.03, 0.0), (-0.03, 0.0), (0.0, 0.1), (0.0, -0.1)):
        assert value(at.mean + shift[0], at.log_scale + shift[1]) < best
    draws = vi.sample(jax.random.key(2), vi.init(q), 5)
    assert draws["log_noise_scale"].shape == (5,)
    assert draws["network"][0]["w"].shape == (5, 3, 1)
    assert vi.predict(q, X).batch_shape == (12,)


@pytest.mark.short("ddvi")
@OPTAX
@pytest.mark.parametrize("method", ["ddvi", "mcvi", "rmcvi"])
def test_methods_predict_alike(method, x64):
    network = mlp((3, 4, 2))
    q = initial_position(jax.random.key(3), network, variance=1e-4, dtype=jnp.float64)
    likelihood = HeteroscedasticGaussian()
    vi = deterministic_vi(network, likelihood, empirical_bayes(), method=method)
    key = None if method == "ddvi" else jax.random.key(0)

    def both(key):
        reference = deterministic_vi(network, likelihood, empirical_bayes()).predict(q, X)
        found = vi.predict(q, X, rng_key=key, num_samples=2000)
        return reference.log_prob(Y), found.log_prob(Y)

    expected, found = run(both, key)
    np.testing.assert_allclose(found, expected, atol=5e-3)
    if method != "ddvi":
        with pytest.raises(ValueError, match="needs rng_key"):
            vi.predict(q, X)
        with pytest.raises(ValueError, match="no moments of the outputs"):
            vi.predict(q, X, density="closed_form", rng_key=key)


def test_starts_and_options_want_sense():
    with pytest.raises(ValueError, match="bias_mean_variance must not be negative"):
        initial_position(jax.random.key(0), LINE, bias_mean_variance=-1.0)
    network = Network((Conv(2, (2, 2), bias=False),), (3, 3, 1))
    q = initial_position(jax.random.key(0), network, correlated=True, shape=(3,))
    assert q.factor[0].shape == (3, 8, 8)
    for options, sentence in (
        (
            {"output_scale": np.ones(2)},
            r"output_scale has shape \(2,\) for outputs of shape \(1,\)",
        ),
        ({"kl_weight": -1.0}, "kl_weight must not be negative"),
        ({"num_nodes": 0}, "num_nodes must be at least 1"),
    ):
        with pytest.raises(ValueError, match=sentence):
            deterministic_vi(LINE, Gaussian(1.0), dist.Normal(0.0, 1.0), **options)
    q = initial_position(jax.random.key(0), LINE)
    for method in ("dvi", "mcvi"):
        vi = deterministic_vi(LINE, Gaussian(1.0), dist.Normal(0.0, 1.0), method=method)
        with pytest.raises(ValueError, match="output width 2"):
            vi.elbo(q, X.astype("f4"), np.ones((12, 2), "f4"), jax.random.key(0))


def _factor(shape):
    return FactorisedNormal(jnp.zeros(shape), jnp.full(shape, -2.0))


def test_what_is_learnt_is_one_number_or_one_a_column():
    """Of another shape it broadcast against the rows."""
    x, y = X.astype("f4"), Y.astype("f4")
    prior = {"network": dist.Normal(0.0, 1.0), "log_noise_scale": dist.Normal(-1.0, 0.5)}
    network = mlp((3, 2))
    for method in ("dvi", "mcvi"):
        vi = deterministic_vi(LINE, LearnedGaussian(), prior, method=method)
        q = initial_position(jax.random.key(0), LINE, log_noise_scale=0.0)
        q |= {"log_noise_scale": _factor((12,))}
        for call in (
            lambda k, vi=vi, q=q: vi.elbo(q, x, y, k),
            lambda k, vi=vi, q=q: vi.predict(q, x, rng_key=k),
        ):
            with pytest.raises(ValueError, match=r"must have shape \(\) or \(1,\) .* \(12,\)"):
                call(jax.random.key(0))
        vi = deterministic_vi(network, LearnedGaussian(), prior, method=method, num_samples=2)
        q = initial_position(jax.random.key(0), network, log_noise_scale=0.0)
        both = np.stack([y, y], axis=1)
        one = vi.elbo(q | {"log_noise_scale": _factor(())}, x, both, jax.random.key(0))
        with jax.numpy_rank_promotion("allow"):
            two = vi.elbo(q | {"log_noise_scale": _factor((2,))}, x, both, jax.random.key(0))
        assert bool(jnp.isfinite(two.elbo))
        if method == "dvi":
            np.testing.assert_allclose(two.expected_log_likelihood, one.expected_log_likelihood)


def test_large_data_are_kept_or_warned_of():
    """Whole numbers beyond int32, and targets and inputs that float32 rounds."""
    vi = deterministic_vi(LINE, Gaussian(1e9), dist.Normal(0.0, 1.0))
    q = initial_position(jax.random.key(0), LINE)
    counts = np.arange(12) + 3_000_000_000
    x = X.astype("f4")
    expected = vi.elbo(q, x, counts.astype("f4"))
    np.testing.assert_array_equal(vi.elbo(q, x, counts), expected)
    _, large, _ = checked_data(vi, X, counts, False, 1, jnp.dtype("float32"))
    np.testing.assert_allclose(large, counts)
    with pytest.raises(ValueError, match="x, as float32, holds inf"):
        checked_data(vi, np.full((12, 3), 1e39), Y, False, 1, jnp.dtype("float32"))
    vi = deterministic_vi(mlp((3, 2)), HeteroscedasticGaussian(), empirical_bayes())
    with pytest.warns(UserWarning, match="is rounded to float32"):
        checked_data(vi, 1e9 + X, Y, False, 1, jnp.dtype("float32"))
    with pytest.warns(UserWarning, match="rounding hides what noise"):
        checked_data(vi, X, 1e8 + Y, False, 1, jnp.dtype("float32"))


@pytest.mark.third_party(reason="NumPyro promotes dtypes")
@pytest.mark.parametrize(
    ("mean", "variance"), [(0.3, 1.0), (-3.0, 9.0), (20.0, 0.0), (-60.0, 1.0), (143.0, 150.0)]
)
def test_two_classes_far_out_keep_both_probabilities(mean, variance):
    """Of a probability next to one float32 has no complement: it ended at -15.94."""
    moments = GaussianMoments(jnp.full((1, 1), mean), jnp.full((1, 1), variance))
    law = predictive(Bernoulli(), moments)
    z = np.linspace(-40, 40, 160_001)
    for label, sign in ((0, -1), (1, 1)):
        terms = stats.norm.logpdf(z) - np.logaddexp(0, -sign * (mean + variance**0.5 * z))
        expected = special.logsumexp(terms) + np.log(z[1] - z[0])
        np.testing.assert_allclose(
            law.log_prob(jnp.array([1.0 * label])), [expected], rtol=2e-6, atol=1e-6
        )
    np.testing.assert_allclose(law.probs, np.exp(law.log_prob(jnp.ones(1))), rtol=1e-5)
    far = mixture(Bernoulli(), jnp.array([[[40.0]], [[30.0]]]), 1)
    expected = np.log((np.exp(-40) + np.exp(-30)) / 2)
    np.testing.assert_allclose(far.log_prob(jnp.zeros(1)), [expected], rtol=1e-6)


@pytest.mark.third_party(reason="NumPyro's mixtures broadcast ranks")
def test_columns_of_labels_share_their_draws():
    """Of logits 20 and -20 at once both labels are ones or both zeros, half the time each."""
    logits = np.array([20.0, -20.0, 1.0], np.float32)[:, None, None] * np.array([[1.0, 1.0]])
    law = mixture(Bernoulli(), jnp.asarray(logits, jnp.float32), 2)
    assert (law.batch_shape, law.event_shape) == ((1,), (2,))
    pairs = np.array([[1, 1], [1, 0], [0, 1], [0, 0]])
    found = np.array([float(law.log_prob(jnp.asarray(pair)[None])[0]) for pair in pairs])
    of_draws = -np.logaddexp(0, -(2 * pairs[:, None] - 1) * logits[None, :, 0]).sum(axis=-1)
    np.testing.assert_allclose(found, special.logsumexp(of_draws, axis=1) - np.log(3), rtol=1e-5)
    assert np.exp(found).sum() == pytest.approx(1, rel=1e-5)
    np.testing.assert_allclose(law.mean, special.expit(logits).mean(axis=0), rtol=1e-5)
    assert law.sample(jax.random.key(0), (7,)).shape == (7, 1, 2)
    one = mixture(Bernoulli(), jnp.asarray(logits[..., :1], jnp.float32), 2)
    alone = mixture(Bernoulli(), jnp.asarray(logits[..., :1], jnp.float32), 1)
    np.testing.assert_array_equal(one.log_prob(jnp.ones((1, 1))), alone.log_prob(jnp.ones(1)))


def test_draws_of_outputs_keep_each_scale():
    """A log variance beside a mean of a variance 1e10 times larger, in float32.

    Six comparisons at 5.6 standard errors: a false-alarm rate of 1e-7.
    """
    scales, count = np.array([1e3, 1e-2]), 20_000
    correlation = np.array([[1, 0.6], [0.6, 1]])
    numbers = (np.zeros((1, 2)), scales[None] ** 2, (correlation * np.outer(scales, scales))[None])
    wide = GaussianMoments(*(jnp.asarray(v, jnp.float32) for v in numbers))
    z = np.asarray(draw_outputs(jax.random.key(0), wide, count))[:, 0] / scales
    error = np.sqrt((1 + correlation**2) / count)
    assert (np.abs(z.T @ z / count - correlation) < 5.6 * error).all()
    assert (np.abs(z.mean(axis=0)) < 5.6 / np.sqrt(count)).all()
    mean = jnp.array([[0.3, 0.0]])
    for covariance in (None, jnp.diag(jnp.array([3.0, 0.0]))[None]):
        half = GaussianMoments(mean, jnp.array([[3.0, 0.0]]), covariance)
        drawn = draw_outputs(jax.random.key(0), half, 9)
        assert (drawn[..., 1] == 0).all()
        assert drawn[..., 0].std() > 0.5


def test_draws_of_activations_at_zero_inputs_and_on_more_axes():
    network = mlp((1, 3, 1), "sign", bias=False)
    q = initial_position(jax.random.key(0), network, variance=1.0)
    drawn = activation_draws(jax.random.key(1), network, q, jnp.array([[0.0], [0.5]]), 20)
    assert (drawn[:, 0] == 0).all()
    assert (drawn[:, 1] != 0).all()
    network = Network((Dense(2, bias=False),), (4, 3))
    q = initial_position(jax.random.key(0), network)
    with pytest.raises(ValueError, match=r"no local reparametrisation of Dense.*of this shape"):
        activation_draws(jax.random.key(1), network, q, jnp.ones((5, 4, 3)), 2)


def test_draws_go_with_the_scale_and_shift_of_outputs():
    vi = deterministic_vi(
        LINE, Gaussian(1.0), dist.Normal(0.0, 1.0), output_scale=3.0, output_shift=np.array([2.0])
    )
    q = initial_position(jax.random.key(0), LINE, variance=1e-8)
    x = X.astype("f4")
    draw = jax.tree.map(lambda leaf: leaf[0], vi.sample(jax.random.key(1), vi.init(q)))
    prior = jaxbnn.normal_prior(LINE)
    posterior = jaxbnn.Posterior(vi.apply, prior, Gaussian(1.0), x, Y.astype("f4"))
    found = posterior.predictive(draw, x).mean
    np.testing.assert_allclose(found, vi.predict(q, x).mean, atol=1e-2)
    np.testing.assert_allclose(found, 3 * jaxbnn.networks.apply(LINE, draw, x)[:, 0] + 2, rtol=1e-5)


def test_standardisation_names_constant_columns():
    x = np.array([[0.1, 2.0], [0.1, 3.0], [0.1, 7.0]])
    kept = standardisation(x, np.array([1.0, 2.0, 3.0]))
    assert kept.constant_columns == (0,)
    assert np.isfinite(kept.inputs(x)).all()
    np.testing.assert_allclose(kept.inputs(x).std(axis=0), [0, 1], atol=1e-12)
    with pytest.raises(ValueError, match="y has no spread"):
        standardisation(x, np.full(3, 0.1))
