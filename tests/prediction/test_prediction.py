"""Tests of prediction.blocks, prediction.calibration, prediction.predictions and
prediction.scoring: predictions and scores against SciPy, quadrature, and their definitions.
"""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from scipy import integrate, optimize, special, stats

import jaxbnn
from jaxbnn.prediction import coverage, expected_calibration_error, predict, reliability, scores
from jaxbnn.prediction.families import FEWEST_DRAWN, sample_law
from jaxbnn.prediction.predictions import mixture_quantile
from jaxbnn.prediction.scoring import mixture_crps
from jaxbnn.targets import Laplace, Poisson, StudentT

X_NEW = np.array([[-1.0, 0.3], [0.4, 2.0], [1.5, -0.7]], np.float32)
RNG = np.random.default_rng(8)
W = RNG.standard_normal((2, 30, 2, 3)).astype(np.float32)
B = RNG.standard_normal((2, 30, 3)).astype(np.float32)
OUTPUTS = np.einsum("ni,csij->csnj", X_NEW, W).reshape(60, 3, 3) + B.reshape(60, 1, 3)


def linear_posterior(likelihood, y):
    network = jaxbnn.mlp((2, 3))
    prior = jaxbnn.normal_prior(network)
    if likelihood.learned:
        prior = {"network": prior, "log_noise_scale": dist.Normal(0.0, 1.0)}
    return jaxbnn.Posterior(network, prior, likelihood, np.zeros((len(y), 2), np.float32), y)


DRAWS = ({"w": W, "b": B},)


@pytest.fixture(scope="module")
def numbers():
    posterior = linear_posterior(jaxbnn.Gaussian(np.array([0.5, 1.0, 0.2])), np.zeros((4, 3)))
    return posterior, predict(DRAWS, X_NEW, posterior, level=0.8)


SDS = np.array([0.5, 1.0, 0.2])


def test_moments_of_the_mixture(numbers):
    _, found = numbers
    np.testing.assert_allclose(found.mean, OUTPUTS.mean(0), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(found.epistemic, OUTPUTS.var(0), rtol=1e-4)
    np.testing.assert_allclose(found.aleatoric, np.tile(SDS**2, (3, 1)), rtol=1e-5)
    np.testing.assert_allclose(found.sd**2, found.aleatoric + found.epistemic, rtol=1e-5)


@pytest.mark.parametrize("dtype", [bool, jnp.int32, jnp.bfloat16, jnp.float16])
def test_inputs_keep_their_digits_whatever_the_first_part_of_a_position_is(dtype):
    """Rows were rounded to the type of the part that comes first: to 0 and 1 of an indicator."""
    x = np.array([[0.3], [1.003], [-2.5], [257.0]], np.float32)

    def apply(p, x):
        return p["b"] * x[:, 0] + p["a"].astype(jnp.float32)

    priors = {"a": dist.Normal(0.0, 1.0), "b": dist.Normal(0.0, 1.0)}
    posterior = jaxbnn.Posterior(apply, priors, jaxbnn.Gaussian(0.5), x, x[:, 0])
    a = jnp.array([[1, 0, 1], [0, 1, 1]]).astype(dtype)
    b = jnp.array([[0.9, 1.0, 1.3], [1.1, 0.7, 0.2]])
    right = (np.asarray(b)[..., None] * x[:, 0] + np.asarray(a, float)[..., None]).mean((0, 1))
    found = predict({"a": a, "b": b}, x, posterior)
    np.testing.assert_allclose(found.mean, right, rtol=1e-6)


HALVES = [jaxbnn.Gaussian(0.5), StudentT(4.0, 0.5), Laplace(0.5), Poisson(), jaxbnn.Bernoulli()]


@pytest.mark.parametrize("dtype", [jnp.bfloat16, jnp.float16])
@pytest.mark.parametrize("likelihood", HALVES, ids=lambda one: type(one).__name__)
def test_draws_of_half_precision_are_predicted_and_scored(likelihood, dtype):
    y = np.array([0, 1, 1])
    draws = jax.tree.map(lambda leaf: jnp.asarray(leaf[..., :1], dtype), DRAWS)
    wide = jax.tree.map(lambda leaf: leaf.astype(jnp.float32), draws)
    network = jaxbnn.mlp((2, 1))
    is_real = not isinstance(likelihood, Poisson | jaxbnn.Bernoulli)
    rows = y.astype(np.float32) if is_real else y
    posterior = jaxbnn.Posterior(network, jaxbnn.normal_prior(network), likelihood, X_NEW, rows)
    unit = 2 * float(jnp.finfo(dtype).eps)
    for found, expected in [
        (predict(draws, X_NEW, posterior), predict(wide, X_NEW, posterior)),
        (scores(draws, X_NEW, rows, posterior), scores(wide, X_NEW, rows, posterior)),
    ]:
        for one, other in zip(found, expected, strict=True):
            np.testing.assert_allclose(one, other, rtol=8 * unit, atol=4 * unit)


def test_intervals_are_quantiles_of_the_mixture(numbers):
    _, found = numbers
    for row, column in np.ndindex(3, 3):
        means = OUTPUTS[:, row, column].astype(float)

        def cdf(y, means=means, sd=SDS[column]):
            return stats.norm.cdf(y, means, sd).mean()

        for bound, probability in ((found.lower, 0.1), (found.upper, 0.9)):
            exact = optimize.brentq(lambda y, p=probability, f=cdf: f(y) - p, -30, 30)
            assert bound[row, column] == pytest.approx(exact, abs=2e-4)


@pytest.mark.parametrize("level", [1e-9, 0.9999999, 1 - 1e-12])
def test_an_interval_s_tails_keep_their_digits(numbers, level):
    posterior, _ = numbers
    one = jax.tree.map(lambda leaf: leaf[:1, :1], DRAWS)
    found = predict(one, X_NEW, posterior, level=level)
    middle, half = (found.lower + found.upper) / 2, (found.upper - found.lower) / 2
    np.testing.assert_allclose(middle, found.mean, atol=1e-5)
    exact = -stats.norm.ppf((1 - level) / 2) * SDS
    np.testing.assert_allclose(half, np.tile(exact, (3, 1)), rtol=1e-4, atol=1e-6)


def test_labels_may_be_booleans():
    network = jaxbnn.mlp((2, 1))
    y = np.array([False, True])
    prior = jaxbnn.normal_prior(network)
    posterior = jaxbnn.Posterior(network, prior, jaxbnn.Bernoulli(), X_NEW[:2], y)
    draws = ({"w": W[..., :1], "b": B[..., :1]},)
    found = scores(draws, X_NEW[:2], y, posterior)
    numbers = scores(draws, X_NEW[:2], y.astype(np.int32), posterior)
    np.testing.assert_array_equal(found.log_score, numbers.log_score)


# Columns: modes far apart with the median in the gap between them; spikes on a broad one; one far
# off; equal ones; of very unequal widths.
HARD_MEANS = np.array([[-5.0, 0, 0, 1, 0], [-5, 0, 0, 1, 1], [5, 2, 0, 1, 2], [5, 2, 900, 1, 3]])
HARD_SDS = np.array([[0.1, 10, 1, 2, 1e-3], [0.1, 1e-3, 1, 2, 1], [0.1, 1e-3, 1, 2, 1e2], [1] * 5])


@pytest.mark.parametrize("probability", [1e-6, 0.05, 0.5, 0.7, 0.999])
def test_quantiles_where_newton_alone_goes_astray(probability):
    means, sds = (jnp.asarray(a, jnp.float32) for a in (HARD_MEANS, HARD_SDS))
    found = np.asarray(mixture_quantile(means, sds, jnp.float32(probability)), float)
    single = (np.asarray(a, float) for a in (means, sds))
    for mean, sd, x in zip(*(a.T for a in single), found, strict=True):
        below = stats.norm.cdf(x, mean, sd).mean()
        tail, wanted = min(below, 1 - below), min(probability, 1 - probability)
        spacing = stats.norm.pdf(x, mean, sd).mean() * np.spacing(np.float32(abs(x)))
        assert tail == pytest.approx(wanted, rel=2e-4, abs=4 * spacing), (mean, sd)


@pytest.mark.short("5")
@pytest.mark.parametrize("number", [2, 5])
def test_crps_counts_each_pair_once(number):
    means, sds = HARD_MEANS[0, :1] + np.arange(6.0)[:number], np.linspace(0.5, 2, 6)[:number]

    def absolute(m, s):
        return 2 * s * stats.norm.pdf(m / s) + m * (2 * stats.norm.cdf(m / s) - 1)

    pairs = absolute(means[:, None] - means, np.hypot(sds[:, None], sds))
    exact = absolute(0.3 - means, sds).mean() - pairs.mean() / 2
    arrays = (jnp.asarray(a, jnp.float32)[:, None] for a in (means, sds))
    assert float(mixture_crps(jnp.array([0.3]), *arrays)[0]) == pytest.approx(exact, rel=1e-5)


def test_scores_of_whole_numbers_beyond_int32():
    posterior = jaxbnn.Posterior(
        jaxbnn.mlp((1, 1)),
        dist.Normal(0.0, 1.0),
        jaxbnn.Gaussian(1e9),
        np.zeros((1, 1), np.float32),
        np.zeros(1, np.float32),
    )
    draws = ({"w": np.ones((1, 4, 1, 1), np.float32), "b": np.zeros((1, 4, 1), np.float32)},)
    x = np.array([[3_000_000_000], [1]])
    y = np.array([3_500_000_000, 2_500_000_000])
    found = scores(draws, x, y, posterior)
    np.testing.assert_allclose(found.error, [5e8, 2.5e9], rtol=1e-6)
    expected = scores(draws, x.astype(float), y.astype(float), posterior)
    np.testing.assert_array_equal(found.crps, expected.crps)


def test_batches_of_rows_change_nothing(numbers, monkeypatch):
    posterior, whole = numbers
    monkeypatch.setattr("jaxbnn.prediction.predictions._NUMBERS", 2 * FEWEST_DRAWN)  # two rows
    found = predict(DRAWS, X_NEW, posterior, level=0.8)
    for a, b in zip(whole, found, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6)


def test_scores_of_numbers(numbers):
    posterior, _ = numbers
    y = np.array([[0.1, -2.0, 0.5], [3.0, 0.2, 1.0], [-0.4, 0.6, -1.0]])
    found = scores(DRAWS, X_NEW, y, posterior)
    density = stats.norm.logpdf(y, OUTPUTS, SDS)
    log_score = special.logsumexp(density, axis=0) - np.log(60)
    np.testing.assert_allclose(found.log_score, log_score, rtol=1e-3, atol=1e-4)
    np.testing.assert_allclose(found.pit, stats.norm.cdf(y, OUTPUTS, SDS).mean(0), atol=1e-4)
    np.testing.assert_allclose(found.error, y - OUTPUTS.mean(0), atol=1e-5)
    means = OUTPUTS[:, 1, 2].astype(float)

    def below(z):
        return stats.norm.cdf(z, means, 0.2).mean() ** 2

    def above(z):
        return stats.norm.sf(z, means, 0.2).mean() ** 2

    exact = sum(
        integrate.quad(f, a, b, limit=400)[0]
        for f, a, b in ((below, -20, y[1, 2]), (above, y[1, 2], 20))
    )
    assert found.crps[1, 2] == pytest.approx(exact, rel=1e-3)


def test_crps_of_one_normal_is_the_closed_form(x64):
    y = jnp.array([0.3, -2.0, 5.0])
    z = (np.asarray(y) - 1.0) / 2.0
    exact = 2.0 * (z * (2 * stats.norm.cdf(z) - 1) + 2 * stats.norm.pdf(z) - 1 / np.sqrt(np.pi))
    found = mixture_crps(y, jnp.ones((1, 3)), jnp.full((1, 3), 2.0))
    np.testing.assert_allclose(found, exact, rtol=1e-10)


@pytest.fixture(scope="module")
def classes():
    posterior = linear_posterior(jaxbnn.Categorical(), np.array([0, 1, 2, 0]))
    return posterior, predict(DRAWS, X_NEW, posterior, level=0.8)


def test_classes(classes):
    posterior, found = classes
    p = special.softmax(OUTPUTS.astype(float), axis=-1)
    np.testing.assert_allclose(found.probabilities, p.mean(0), rtol=1e-4)
    np.testing.assert_array_equal(found.label, p.mean(0).argmax(-1))
    np.testing.assert_allclose(found.lower, np.quantile(p, 0.1, axis=0), rtol=1e-3, atol=1e-6)
    np.testing.assert_allclose(found.upper, np.quantile(p, 0.9, axis=0), rtol=1e-3)
    aleatoric = stats.entropy(p, axis=-1).mean(0)
    np.testing.assert_allclose(found.aleatoric, aleatoric, rtol=1e-4)
    total = stats.entropy(p.mean(0), axis=-1)
    np.testing.assert_allclose(found.epistemic, total - aleatoric, atol=1e-5)
    y = np.array([2, 0, 1])
    scored = scores(DRAWS, X_NEW, y, posterior)
    chosen = p.mean(0)[np.arange(3), y]
    np.testing.assert_allclose(scored.log_score, np.log(chosen), rtol=1e-4)
    np.testing.assert_allclose(scored.brier, ((p.mean(0) - np.eye(3)[y]) ** 2).sum(-1), rtol=1e-4)
    np.testing.assert_array_equal(scored.is_correct, p.mean(0).argmax(-1) == y)


def test_log_scores_of_probabilities_that_no_float32_holds():
    network = jaxbnn.mlp((1, 2))
    labels = np.zeros(1, int)
    posterior = jaxbnn.Posterior(
        network, jaxbnn.normal_prior(network), jaxbnn.Categorical(), np.zeros((1, 1)), labels
    )
    gaps = np.array([200.0, 300.0], np.float32)  # of the two draws' logits
    biases = np.stack([np.zeros(2), gaps], axis=1).astype(np.float32)[None]
    draws = ({"w": np.zeros((1, 2, 1, 2), np.float32), "b": biases},)
    found = scores(draws, np.zeros((1, 1), np.float32), labels, posterior)
    np.testing.assert_allclose(found.log_score, -200 - np.log(2), rtol=1e-6)


def test_two_classes():
    posterior = linear_posterior(jaxbnn.Bernoulli(), np.array([[0, 1, 1], [1, 0, 0]]))
    found = predict(DRAWS, X_NEW, posterior)
    np.testing.assert_allclose(
        found.probabilities[..., 1], special.expit(OUTPUTS).mean(0), rtol=1e-4
    )
    np.testing.assert_allclose(found.probabilities.sum(-1), 1, rtol=1e-5)


def test_calibrated_predictions_are_found_calibrated(rng):
    """Data from the predictions: coverage = level, calibration error of the order of its noise."""
    levels = np.array([0.5, 0.8, 0.95])
    n = 40_000
    covered = coverage(rng.uniform(size=n), levels)
    assert np.abs(covered - levels).max() < 5.2 * np.sqrt(0.25 / n)
    narrow = stats.norm.cdf(rng.standard_normal(n) * 2)  # intervals half as wide as they should be
    exact = 2 * stats.norm.cdf(stats.norm.ppf(0.5 + levels / 2) / 2) - 1
    assert np.abs(coverage(narrow, levels) - exact).max() < 5.2 * np.sqrt(0.25 / n)
    p = rng.dirichlet([1.0, 1.0, 1.0], size=n)
    labels = (rng.uniform(size=(n, 1)) > p.cumsum(1)).sum(1).clip(0, 2)
    assert expected_calibration_error(p, labels) < 3 * np.sqrt(15 / n)
    sharp = p**3 / (p**3).sum(1, keepdims=True)
    assert expected_calibration_error(sharp, labels) > 0.1


def test_reliability_by_hand():
    p = np.array([[0.95, 0.05], [0.55, 0.45], [0.4, 0.6], [0.2, 0.8]])
    found = reliability(p, [0, 1, 1, 0], bins=4)
    np.testing.assert_array_equal(found.num_data, [0, 0, 2, 2])
    on_an_edge = reliability([[0.5, 0.5]], [0], bins=4)
    np.testing.assert_array_equal(on_an_edge.num_data, [0, 1, 0, 0])
    np.testing.assert_allclose(found.confidence[2:], [0.575, 0.875])
    np.testing.assert_allclose(found.accuracy[2:], [0.5, 0.5])
    by_hand = 0.5 * 0.075 + 0.5 * 0.375
    assert expected_calibration_error(p, [0, 1, 1, 0], bins=4) == pytest.approx(by_hand)


def test_errors_are_sentences(numbers, classes):
    posterior, _ = numbers
    with pytest.raises(ValueError, match=r"classes 0..2, but holds 3"):
        scores(DRAWS, X_NEW, np.array([0, 3, 1]), classes[0])
    with pytest.raises(ValueError, match=r"classes 0..2, but holds 0.5"):
        scores(DRAWS, X_NEW, np.array([0, 0.5, 1]), classes[0])
    with pytest.raises(ValueError, match="level must lie between 0 and 1"):
        predict(DRAWS, X_NEW, posterior, level=90)
    with pytest.raises(ValueError, match="x, as float32, holds inf"):
        predict(DRAWS, np.array([[1e300, 0.0]]), posterior)
    with pytest.raises(ValueError, match="x holds nan"):
        predict(DRAWS, np.full((1, 2), np.nan), posterior)
    with pytest.raises(ValueError, match="a row for each datum"):
        predict(DRAWS, np.zeros((0, 2)), posterior)
    with pytest.raises(ValueError, match="predict got positions without any array"):
        predict((), X_NEW, posterior)
    with pytest.raises(ValueError, match=r"needs the same \(chain, draw\) axes"):
        predict(({"w": W, "b": B[0]},), X_NEW, posterior)
    with pytest.raises(ValueError, match="y must be laid out"):
        scores(DRAWS, X_NEW, np.zeros(3), posterior)
    with pytest.raises(ValueError, match="y, as float32, holds inf"):
        scores(DRAWS, X_NEW, np.full((3, 2), 1e39), posterior)
    with pytest.raises(ValueError, match="labels must lie in"):
        reliability([[0.5, 0.5]], [2])
    with pytest.raises(ValueError, match="non-negative"):
        reliability([[1.5, -0.5]], [0])
    with pytest.raises(ValueError, match="one axis"):
        coverage([0.2], [[0.5, 0.9]])
    with pytest.raises(ValueError, match="labels must be whole numbers"):
        expected_calibration_error([[0.5, 0.5]], [0.5])
    with pytest.raises(ValueError, match="sum to 1"):
        reliability([[0.5, 0.6]], [0])
    with pytest.raises(ValueError, match="must have shape"):
        reliability([[0.5, 0.5]], [0, 1])
    with pytest.raises(ValueError, match="between 0 and 1"):
        coverage([2.0], [0.5])


def test_long_runs_are_scored_by_draws_of_all_chains():
    """The chains differ, so that the first draws alone would tell of one of them."""
    apart = np.array([0.0, 9.0], np.float32)[:, None, None]
    b = np.random.default_rng(0).normal(size=(2, 200, 1)).astype(np.float32) + apart
    network, one = jaxbnn.mlp((1, 1)), np.zeros((1, 1), np.float32)
    prior, likelihood = jaxbnn.normal_prior(network), jaxbnn.Gaussian(1.0)
    posterior = jaxbnn.Posterior(network, prior, likelihood, one, one[0])
    draws = ({"w": np.zeros((2, 200, 1, 1), np.float32), "b": b},)
    fewer = jnp.asarray(b.reshape(400, 1)[::2])
    expected = mixture_crps(jnp.zeros(1), fewer, jnp.ones_like(fewer))
    found = scores(draws, one, one[0], posterior).crps
    np.testing.assert_allclose(found, expected, rtol=1e-5)


def test_labels_below_the_first_class_are_refused():
    posterior = linear_posterior(jaxbnn.Categorical(), np.array([0, 1, 2, 0]))
    with pytest.raises(ValueError, match="holds -1"):
        scores(DRAWS, X_NEW, np.array([0, -1, 1]), posterior)


@pytest.mark.parametrize("log_variance", [100.0, 170.0, -120.0, -250.0])
def test_deviations_whose_squares_are_no_numbers(log_variance):
    """One draw of two says that the noise is as wide, or as narrow, as float32 can hardly hold."""
    network = jaxbnn.mlp((1, 2))
    x = np.zeros((2, 1), np.float32)
    y = np.array([0.0, 1.0], np.float32)
    prior = jaxbnn.normal_prior(network)
    posterior = jaxbnn.Posterior(network, prior, jaxbnn.HeteroscedasticGaussian(), x, y)
    b = np.array([[[0.0, log_variance], [1.0, 0.0]]], np.float32)
    draws = ({"w": np.zeros((1, 2, 1, 2), np.float32), "b": b},)
    sds = np.exp(np.array([log_variance / 2, 0.0]))
    found = scores(draws, x, y, posterior)
    spread = sum(
        _mean_distance(b[0, i, 0] - b[0, j, 0], np.hypot(sds[i], sds[j])) for i, j in PAIRS
    )
    away = [np.mean([_mean_distance(v - b[0, i, 0], sds[i]) for i in (0, 1)]) for v in y]
    np.testing.assert_allclose(found.crps, np.array(away) - spread / 8, rtol=1e-5)
    assert not np.isnan([found.log_score, found.pit, found.error]).any()
    expected = np.sqrt((sds**2).mean() + 0.25)
    np.testing.assert_allclose(predict(draws, x, posterior).sd, expected, rtol=1e-5)


PAIRS = [(0, 0), (0, 1), (1, 0), (1, 1)]


def _mean_distance(mean, sd):
    """E|mean + sd xi| in double precision."""
    return 2 * sd * stats.norm.pdf(mean / sd) + mean * (2 * stats.norm.cdf(mean / sd) - 1)


def test_a_score_that_no_float32_holds_is_infinite():
    found = mixture_crps(jnp.zeros(1), jnp.zeros((2, 1)), jnp.array([[jnp.inf], [1.0]]))
    assert np.isposinf(found).all()
    many = mixture_crps(jnp.zeros(1), jnp.zeros((256, 1)), jnp.full((256, 1), 3e36))
    np.testing.assert_allclose(many, 3e36 * (np.sqrt(2) - 1) / np.sqrt(np.pi), rtol=1e-5)


def test_scores_of_a_draw_without_noise():
    posterior = linear_posterior(jaxbnn.LearnedGaussian(), np.zeros((1, 3)))
    network = ({"w": np.zeros((1, 2, 2, 3), np.float32), "b": np.zeros((1, 2, 3), np.float32)},)
    draws = {"network": network, "log_noise_scale": np.array([[-110.0, 0.0]], np.float32)}
    found = scores(draws, np.zeros((2, 2)), np.array([[0.0] * 3, [1.0] * 3]), posterior)
    assert np.isfinite([found.crps, found.pit, found.log_score]).all()
    # |y| of the draw without noise, and E|y - xi| of the other.
    away = (1 + _mean_distance(1.0, 1.0)) / 2
    spread = (2 * _mean_distance(1e-30, 1.0) + 2 / np.sqrt(np.pi)) / 8
    np.testing.assert_allclose(found.crps[1], away - spread, rtol=1e-5)


def test_masked_values_are_refused(numbers):
    posterior, _ = numbers
    y = np.ma.masked_array(np.zeros((3, 3)), np.eye(3, k=-1, dtype=bool))
    with pytest.raises(ValueError, match="y is masked at row 1; leave out rows"):
        scores(DRAWS, X_NEW, y, posterior)
    with pytest.raises(ValueError, match="x is masked at row 2"):
        predict(DRAWS, np.ma.masked_array(X_NEW, [[0, 0], [0, 0], [1, 0]]), posterior)
    with pytest.raises(ValueError, match="pit is masked at row 1"):
        coverage(np.ma.masked_array([0.5, 0.01], [0, 1]), [0.5])
    with pytest.raises(ValueError, match="labels is masked at row 1"):
        reliability([[0.9, 0.1]] * 2, np.ma.masked_array([0, 1], [0, 1]), 1)
    assert coverage(np.ma.masked_array([0.5, 0.01], [0, 0]), [0.5]).tolist() == [0.5]


def test_inputs_keep_the_posterior_s_digits_beside_draws_of_half_precision():
    network = jaxbnn.mlp((1, 1), bias=False)
    x = np.array([[1234.5]], np.float32)
    posterior = jaxbnn.Posterior(
        network, jaxbnn.normal_prior(network), jaxbnn.Gaussian(0.1), x, np.ones(1, np.float32)
    )
    draws = ({"w": np.ones((1, 4, 1, 1), np.float16)},)
    assert float(predict(draws, x, posterior).mean[0]) == 1234.5


@pytest.mark.parametrize("impl", ["rbg", "unsafe_rbg"])
def test_counts_are_predicted_alike_whatever_keys_jax_makes(impl):
    network = jaxbnn.mlp((1, 1), bias=False)
    x, y = np.ones((3, 1), np.float32), np.array([0, 1, 4])
    posterior = jaxbnn.Posterior(network, jaxbnn.normal_prior(network), Poisson(), x, y)
    draws = ({"w": np.ones((1, 4, 1, 1), np.float32)},)
    expected = predict(draws, x, posterior), scores(draws, x, y, posterior)
    was = jax.config.jax_default_prng_impl
    jax.config.update("jax_default_prng_impl", impl)
    try:
        found = predict(draws, x, posterior), scores(draws, x, y, posterior)
        many = jax.vmap(lambda key: sample_law(dist.Poisson(jnp.array(3.0)), key))(
            jax.random.split(jax.random.key(0, impl=impl), 4000)
        )
    finally:
        jax.config.update("jax_default_prng_impl", was)
    jax.tree.map(np.testing.assert_array_equal, found, expected)
    # Five standard errors of a mean and of a variance: 1e-6.
    assert abs(float(many.mean()) - 3) < 5 * (3 / 4000) ** 0.5
    assert abs(float(many.var()) - 3) < 5 * ((3 + 2 * 9) / 4000) ** 0.5
