"""Predictions and scores of Student-t, Laplace, counts and ordered classes, against SciPy."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from scipy import integrate, stats

from jaxbnn.networks import mlp
from jaxbnn.prediction import coverage, families, predict, reliability, scores
from jaxbnn.prediction.families import (
    FAMILIES,
    components,
    crps_of_sorted,
    draw,
    parameters_of,
    sample_law,
    scores_of,
    scores_of_counts,
)
from jaxbnn.targets import (
    Laplace,
    NegativeBinomial,
    Ordinal,
    Poisson,
    Posterior,
    StudentT,
    normal_prior,
)

NETWORK = mlp((1, 1))
X = np.array([[-1.0], [0.0], [2.0]], np.float32)
RNG = np.random.default_rng(3)
W, B = 0.4 * RNG.standard_normal((2, 20, 1, 1)), 1 + 0.5 * RNG.standard_normal((2, 20, 1))
OUTPUTS = (np.einsum("ni,csij->csnj", X, W) + B[:, :, None]).reshape(40, 3)
PARAMS = ({"w": W.astype(np.float32), "b": B.astype(np.float32)},)
OWN = np.exp(0.3 * RNG.standard_normal((2, 20)))
FLAT = OWN.reshape(40, 1)

CASES = {
    "student": (
        StudentT(scale=0.5),
        {"log_degrees": np.log(4 + OWN)},
        stats.t(4 + FLAT, OUTPUTS, 0.5),
        np.array([0.3, 4.0, -1.0]),
    ),
    "laplace": (
        Laplace(),
        {"log_noise_scale": np.log(OWN)},
        stats.laplace(OUTPUTS, FLAT),
        np.array([0.3, 4.0, -1.0]),
    ),
    "poisson": (Poisson(), {}, stats.poisson(np.exp(OUTPUTS)), np.array([0, 3, 11])),
    "negative binomial": (
        NegativeBinomial(),
        {"log_concentration": np.log(OWN)},
        stats.nbinom(FLAT, FLAT / (FLAT + np.exp(OUTPUTS))),
        np.array([0, 3, 11]),
    ),
}


def posterior_and_draws(likelihood, own, y):
    prior = normal_prior(NETWORK)
    if not own:
        return Posterior(NETWORK, prior, likelihood, X, y), PARAMS
    prior = {"network": prior, **{name: dist.Normal(0.0, 1.0) for name in own}}
    draws = {"network": PARAMS, **{name: v.astype(np.float32) for name, v in own.items()}}
    return Posterior(NETWORK, prior, likelihood, X, y), draws


@pytest.fixture(scope="module", params=CASES)
def case(request):
    likelihood, own, law, y = CASES[request.param]
    y = y.astype(np.float32 if law.dist.__class__.__name__[-4:] != "_gen" else y.dtype)
    posterior, draws = posterior_and_draws(likelihood, own, y)
    return law, y, predict(draws, X, posterior, level=0.8), scores(draws, X, y, posterior)


@pytest.fixture
def few_draws(monkeypatch):
    """Draw 64 a row, or one a component, where their number does not matter."""
    monkeypatch.setattr(families, "FEWEST_DRAWN", 64)


@pytest.mark.short("poisson")
def test_moments_are_those_of_the_mixture(case):
    law, _, found, _ = case
    np.testing.assert_allclose(found.mean, law.mean().mean(0), rtol=1e-4)
    np.testing.assert_allclose(found.aleatoric, law.var().mean(0), rtol=1e-3)
    np.testing.assert_allclose(found.epistemic, law.mean().var(0), rtol=1e-3)
    np.testing.assert_allclose(found.sd**2, found.aleatoric + found.epistemic, rtol=1e-5)


@pytest.mark.short("student")
def test_intervals_hold_their_probability(case):
    """By the mixture's own distribution function: within what 4,096 draws allow."""
    law, _, found, _ = case
    is_count = not hasattr(law.dist, "pdf")
    for bound, probability in ((found.lower, 0.1), (found.upper, 0.9)):
        at = law.cdf(bound).mean(0)
        before = law.cdf(bound - 1).mean(0) if is_count else at
        assert (before < probability + 0.03).all(), (before, probability)
        assert (at > probability - 0.03).all(), (at, probability)


def test_log_score_error_and_pit_are_exact(case):
    law, y, _, found = case
    np.testing.assert_allclose(found.error, y - law.mean().mean(0), rtol=1e-4, atol=1e-4)
    density = law.pmf(y) if not hasattr(law.dist, "pdf") else law.pdf(y)
    np.testing.assert_allclose(found.log_score, np.log(density.mean(0)), rtol=1e-4)
    top = law.cdf(y).mean(0)
    if hasattr(law.dist, "pdf"):
        np.testing.assert_allclose(found.pit, top, rtol=1e-4)
    else:
        assert (found.pit <= top + 1e-5).all()
        assert (found.pit >= law.cdf(y - 1).mean(0) - 1e-5).all()


def test_crps_is_that_of_quadrature(case):
    law, y, _, found = case
    for row in range(3):
        if hasattr(law.dist, "pdf"):

            def gap(z, row=row):
                return (law.cdf(z).mean(0)[row] - (y[row] <= z)) ** 2

            exact = integrate.quad(gap, -60, y[row], limit=200)[0]
            exact += integrate.quad(gap, y[row], 60, limit=200)[0]
        else:
            z = np.arange(0, 300)
            cdf = np.array([law.cdf(k).mean(0)[row] for k in z])
            exact = np.sum((cdf - (y[row] <= z)) ** 2)
        assert found.crps[row] == pytest.approx(exact, rel=0.06, abs=0.02)


@pytest.mark.parametrize(
    "law",
    [
        dist.Laplace(OUTPUTS, FLAT),
        dist.StudentT(4 + FLAT, OUTPUTS, 0.5),
        dist.Poisson(np.exp(OUTPUTS)),
        dist.GammaPoisson(FLAT, FLAT / np.exp(OUTPUTS)),
    ],
    ids=["laplace", "student", "poisson", "negative binomial"],
)
def test_a_row_s_draws_do_not_depend_on_the_rows_beside_it(law, few_draws):
    parameters = [p.astype(np.float32) for p in parameters_of(law)]
    whole = draw(components(type(law), tuple(parameters)), is_shared=True)
    for rows in ([2], [1, 0], [2, 2, 2]):
        some = components(type(law), tuple(p[:, np.array(rows)] for p in parameters))
        np.testing.assert_array_equal(draw(some, is_shared=True), whole[:, np.array(rows)])


def test_crps_of_draws_is_its_definition():
    values = np.sort(np.random.default_rng(0).normal(size=50)).astype(np.float32)
    pairs = np.abs(values[:, None] - values[None]).sum() / (50 * 49)
    expected = np.abs(values - 0.3).mean() - pairs / 2
    found = crps_of_sorted(jnp.asarray(values), jnp.asarray(0.3))
    np.testing.assert_allclose(found, expected, rtol=1e-5)


@pytest.mark.parametrize(
    "values", [[-np.inf, 0, 1], [0, 1, np.inf], [-np.inf, 0, np.inf], [-3e38, 0, 3e38]]
)
def test_crps_of_draws_beyond_what_floats_hold_is_infinite(values):
    found = crps_of_sorted(jnp.asarray(values, jnp.float32), jnp.asarray(0.0, jnp.float32))
    assert found == np.inf
    assert np.isnan(crps_of_sorted(jnp.array([0.0, jnp.nan]), jnp.asarray(0.0)))


def test_crps_of_half_a_degree_of_freedom_is_infinite():
    """Where one component's is: of rows 0 and 1 by the degrees, of neither by what was drawn."""
    df = jnp.array([[0.5, 4.0, 0.51, 4.0], [4.0, 0.3, 4.0, 4.0]])
    loc = jnp.zeros((2, 4)).at[0, 3].set(jnp.nan)

    @jax.jit
    def crps(loc):
        found = components(dist.StudentT, (df, loc, jnp.ones((2, 4))))
        return scores_of(found, jnp.zeros(4), jnp.arange(4))["crps"]

    found = crps(loc)
    np.testing.assert_array_equal(found[jnp.array([0, 1, 3])], [np.inf, np.inf, np.nan])
    assert np.isfinite(found[2])


@pytest.mark.parametrize("num_rows", [500, pytest.param(4000, marks=pytest.mark.long)])
def test_the_pit_of_counts_is_uniform_where_the_model_is_right(num_rows, few_draws):
    half = num_rows // 2
    rng = np.random.default_rng(0)
    rate = np.exp(rng.uniform(-1, 1.5, num_rows)).astype(np.float32)
    y = rng.poisson(rate)

    @jax.jit
    def scored(rate, y, rows):
        return scores_of(components(dist.Poisson, (rate[None],)), y, rows)

    def pit_of(rate, y, rows):
        return scores_of_counts(jax.device_get(scored(rate, y, rows)), y)["pit"]

    pit = pit_of(rate, y, jnp.arange(num_rows))
    assert stats.kstest(pit, "uniform").pvalue > 1e-6
    np.testing.assert_allclose(coverage(pit, [0.5, 0.9]), [0.5, 0.9], atol=2.5 / num_rows**0.5)
    # Blocks of rows, in which large data are scored, draw places of their own.
    second = rate[half:], y[half:]
    np.testing.assert_array_equal(pit_of(*second, jnp.arange(half, num_rows)), pit[half:])
    assert (pit_of(*second, jnp.arange(half)) != pit[half:]).mean() > 0.9


@pytest.mark.parametrize("mean", [3.0, 1e4, 1e6])
@pytest.mark.parametrize("concentration", [None, 0.3, 1e3], ids=["poisson", "0.3", "1000"])
def test_scores_of_large_counts_are_those_of_double_precision(mean, concentration, few_draws):
    rng = np.random.default_rng(0)
    means = (mean * np.exp(0.1 * rng.normal(size=(40, 30)))).astype(np.float32)
    if concentration is None:
        law, exact = dist.Poisson(means), stats.poisson(means.astype(float))
    else:
        law = dist.NegativeBinomial2(means, np.full_like(means, concentration))
        rate = np.asarray(law.rate, float)
        exact = stats.nbinom(concentration, rate / (1 + rate))
    y = exact.rvs(random_state=1)[0]
    found = components(
        type(law) if concentration is None else dist.GammaPoisson, parameters_of(law)
    )
    made = jax.device_get(scores_of(found, jnp.asarray(y), jnp.arange(30)))
    made = scores_of_counts(made, y)
    np.testing.assert_allclose(made["log_score"], np.log(exact.pmf(y).mean(0)), atol=2e-4)
    assert (made["pit"] <= exact.cdf(y).mean(0) + 1e-6).all()
    assert (made["pit"] >= exact.cdf(y - 1).mean(0) - 1e-6).all()


@pytest.mark.parametrize("y", [-1.0, 0.5])
def test_scores_refuse_what_is_no_count(y):
    posterior, draws = posterior_and_draws(Poisson(), {}, np.zeros(3))
    with pytest.raises(ValueError, match=f"counts 0, 1, 2, ..., but holds {y:g}"):
        scores(draws, X, np.array([0.0, 1.0, y]), posterior)


@pytest.mark.long
def test_heavy_tails_without_a_variance_say_so():
    posterior, draws = posterior_and_draws(StudentT(1.5, 0.5), {}, np.zeros(3))
    found = predict(draws, X, posterior)
    assert np.isinf(found.sd).all()
    assert np.isfinite(found.upper - found.lower).all()
    np.testing.assert_allclose(found.mean, OUTPUTS.mean(0), rtol=1e-4)


def test_ordered_classes_are_classes():
    labels = np.array([0, 1, 2])
    posterior, draws = posterior_and_draws(Ordinal(3, np.array([0.0, 1.5])), {}, labels)
    found = predict(draws, X, posterior)
    below = 1 / (1 + np.exp(-(np.array([0.0, 1.5])[None, None] - OUTPUTS[..., None])))
    expected = np.diff(np.concatenate([0 * below[..., :1], below, 1 + 0 * below[..., :1]], -1))
    np.testing.assert_allclose(found.probabilities, expected.mean(0), rtol=1e-4)
    score = scores(draws, X, labels, posterior)
    np.testing.assert_allclose(
        score.log_score, np.log(expected.mean(0)[np.arange(3), labels]), rtol=1e-4
    )
    assert reliability(score.probabilities, labels).num_data.sum() == 3


def test_each_family_has_a_case():
    assert len(FAMILIES) == len(CASES)


@pytest.mark.parametrize("rate", [9e3, 1.1e4, 1e6, 1e7])
def test_intervals_of_large_counts_hold_their_probability(rate):
    """By 4,096 draws or more, whose share lies within .03 but for once in 1e8 intervals."""
    rates = np.full((50, 4), rate, np.float32)
    values = draw(components(dist.Poisson, (jnp.asarray(rates),)), is_shared=False)
    law = stats.poisson(np.float64(rates[0, 0]))
    for q in (0.05, 0.5, 0.95):
        found = law.cdf(np.quantile(np.asarray(values, float), q, axis=0))
        assert abs(found - q).max() < 0.03, (found, q)


@pytest.mark.parametrize("rate", [1e8, 1e12])
def test_counts_beyond_whole_numbers_have_mean_and_spread(rate):
    keys = jax.random.split(jax.random.key(2), 4000)
    law = dist.Poisson(jnp.full(1, rate, jnp.float32))
    z = np.asarray(jax.vmap(lambda key: sample_law(law, key))(keys), float)
    z = (z - np.float64(np.float32(rate))) / np.sqrt(rate)
    rounding = 2.0 ** (np.floor(np.log2(rate)) - 24) / np.sqrt(rate)  # float32's at this rate
    assert abs(z.mean()) < 5 / np.sqrt(4000) + rounding
    assert abs(z.std() - 1) < 5 / np.sqrt(8000) + rounding


def test_negative_binomials_beyond_whole_numbers_are_those_of_gamma():
    keys = jax.random.split(jax.random.key(2), 4000)
    law = dist.GammaPoisson(jnp.full(1, 2.0), jnp.full(1, 2.0 / 1e12))
    values = np.asarray(jax.vmap(lambda key: sample_law(law, key))(keys), float)[:, 0]
    assert stats.kstest(values, stats.gamma(2.0, scale=1e12 / 2.0).cdf).pvalue > 1e-6


def test_a_mean_beyond_float32_has_an_interval_and_a_spread_that_say_so():
    params = ({"w": np.full((2, 3, 1, 1), 2.0, np.float32), "b": np.zeros((2, 3, 1), np.float32)},)
    x = np.array([[1.0], [12.0], [60.0]], np.float32)
    posterior = Posterior(NETWORK, normal_prior(NETWORK), Poisson(), x, np.zeros(3, np.float32))
    found = predict(params, x, posterior)
    assert (found.lower <= found.mean).all()
    assert (found.mean <= found.upper).all()
    assert found.upper[1] > 2.6e10  # of e^24, and no whole number's limit
    assert np.isinf([found.mean[2], found.sd[2], found.lower[2], found.upper[2]]).all()
    assert np.isfinite([found.mean[:2], found.sd[:2]]).all()
    scored = scores(params, x, np.array([7.0, 3.0, 3.0], np.float32), posterior)
    assert not np.isnan(scored.crps).any()


@pytest.mark.parametrize("scale", [1e-30, 1e20])
@pytest.mark.parametrize(("likelihood", "ratio"), [(Laplace, 2**0.5), (StudentT, (5 / 3) ** 0.5)])
def test_spreads_whose_squares_float32_does_not_hold(likelihood, ratio, scale):
    params = ({"w": np.zeros((2, 3, 1, 1), np.float32), "b": np.zeros((2, 3, 1), np.float32)},)
    options = {"degrees": 5.0} if likelihood is StudentT else {}
    told = likelihood(scale=scale, **options)
    posterior = Posterior(NETWORK, normal_prior(NETWORK), told, X, np.zeros(3, np.float32))
    np.testing.assert_allclose(predict(params, X, posterior).sd, ratio * scale, rtol=1e-5)


def test_what_is_not_a_number_stays_so():
    w = np.full((2, 3, 1, 1), np.nan, np.float32)
    params = ({"w": w, "b": np.zeros((2, 3, 1), np.float32)},)
    posterior = Posterior(NETWORK, normal_prior(NETWORK), Poisson(), X, np.zeros(3, np.float32))
    found = predict(params, X, posterior)
    assert np.isnan([found.mean, found.sd, found.lower, found.upper]).all()
    scored = scores(params, X, np.ones(3, np.float32), posterior)
    assert np.isnan([scored.crps, scored.error]).all()


@pytest.mark.parametrize("degrees", [3.0, 250.0, 350.0, 3e3, 1e4, 1e6, 1e8])
def test_student_t_of_many_degrees_is_scipys(degrees):
    degrees = np.float32(degrees)
    y = jnp.array([-6.0, -2.0, -0.1, 0.0, 0.5, 4.0])
    law = dist.StudentT(jnp.full(6, degrees), 0.0, 1.0)
    family, exact = FAMILIES[dist.StudentT], stats.t(np.float64(degrees))
    np.testing.assert_allclose(
        family.log_prob(law, y), exact.logpdf(np.asarray(y, float)), rtol=0, atol=2e-5
    )
    np.testing.assert_allclose(
        family.cdf(law, y), exact.cdf(np.asarray(y, float)), rtol=0, atol=3e-4
    )


def test_counts_are_scored_where_a_draw_s_rate_is_no_number():
    """The other draw has the rate e; one of e^90 has no probability for a small count."""
    x, y = np.zeros((2, 1), np.float32), np.array([0.0, 1.0], np.float32)
    posterior = Posterior(NETWORK, normal_prior(NETWORK), Poisson(), x, y)
    b = np.array([[[90.0], [1.0]]], np.float32)
    found = scores(({"w": np.zeros((1, 2, 1, 1), np.float32), "b": b},), x, y, posterior)
    law = stats.poisson(np.exp(1.0))
    np.testing.assert_allclose(found.log_score, law.logpmf(y) - np.log(2), rtol=1e-5)
    assert (law.cdf(y - 1) / 2 <= found.pit).all()
    assert (found.pit <= law.cdf(y) / 2).all()


@pytest.mark.parametrize("concentration", [2.0, 1e12])
@pytest.mark.parametrize("output", [-100.0, -200.0, 95.0])
def test_negative_binomials_are_scored_where_a_draw_s_mean_is_no_number(output, concentration):
    x, y = np.zeros((2, 1), np.float32), np.array([0.0, 1.0], np.float32)
    likelihood = NegativeBinomial(concentration)
    posterior = Posterior(NETWORK, normal_prior(NETWORK), likelihood, x, y)
    b = np.array([[[output], [1.0]]], np.float32)
    found = scores(({"w": np.zeros((1, 2, 1, 1), np.float32), "b": b},), x, y, posterior)
    other = (y == 0) * (output < 0)  # all of the other draw's counts are 0, or beyond all bounds
    law = stats.nbinom(concentration, concentration / (concentration + np.exp(1.0)))
    np.testing.assert_allclose(found.log_score, np.log((law.pmf(y) + other) / 2), rtol=1e-4)
    below = (law.cdf(y - 1) + (output < 0) * (y > 0)) / 2
    assert (below - 1e-6 <= found.pit).all()
    assert (found.pit <= below + (law.pmf(y) + other) / 2 + 1e-6).all()
