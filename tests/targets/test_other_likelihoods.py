"""Tests of targets.own_parameters, targets.heavy_tails, targets.counts, targets.stirling and
targets.ordinal: terms against scipy.stats, and what is learnt.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.special
import scipy.stats

from jaxbnn.targets import (
    Laplace,
    LearnedGaussian,
    LogGamma,
    NegativeBinomial,
    Ordinal,
    Poisson,
    Posterior,
    StudentT,
    hierarchical_prior,
    normal_prior,
)
from jaxbnn.targets.heavy_tails import log_gamma_step
from jaxbnn.targets.stirling import stirling_rest

N = 9
OUTPUTS = np.random.default_rng(0).normal(size=(N, 1)) * 2
NUMBERS = np.random.default_rng(1).standard_t(2, size=(N, 1))
COUNTS = np.array([0, 1, 2, 3, 5, 8, 40, 0, 1])[:, None]
LABELS = np.array([0, 1, 2, 3, 3, 2, 1, 0, 2])
CUTS = np.array([-1.2, 0.1, 3.0])


def _ordinal_terms():
    below = scipy.special.expit(np.array([-np.inf, *CUTS, np.inf])[None] - OUTPUTS)
    return np.log(np.diff(below, axis=1)[np.arange(N), LABELS])


def _negative_binomial_terms(r):
    return scipy.stats.nbinom.logpmf(COUNTS, r, r / (r + np.exp(OUTPUTS)))[:, 0]


T_TERMS = scipy.stats.t.logpdf(NUMBERS, 3.5, OUTPUTS, 0.4)[:, 0]
LAPLACE_TERMS = scipy.stats.laplace.logpdf(NUMBERS, OUTPUTS, 0.4)[:, 0]
GAPS = [-1.2, np.log(1.3), np.log(2.9)]
CASES = [
    (StudentT(3.5, 0.4), {}, NUMBERS, T_TERMS),
    (StudentT(), {"log_degrees": np.log(3.5), "log_noise_scale": np.log(0.4)}, NUMBERS, T_TERMS),
    (StudentT(scale=0.4), {"log_degrees": np.log(3.5)}, NUMBERS, T_TERMS),
    (Laplace(0.4), {}, NUMBERS, LAPLACE_TERMS),
    (Laplace(), {"log_noise_scale": np.log(0.4)}, NUMBERS, LAPLACE_TERMS),
    (Poisson(), {}, COUNTS, scipy.stats.poisson.logpmf(COUNTS, np.exp(OUTPUTS))[:, 0]),
    (NegativeBinomial(0.7), {}, COUNTS, _negative_binomial_terms(0.7)),
    (NegativeBinomial(), {"log_concentration": np.log(30.0)}, COUNTS, _negative_binomial_terms(30)),
    (Ordinal(4, CUTS), {}, LABELS, _ordinal_terms()),
    (Ordinal(4), {"cutpoint_gaps": np.array(GAPS)}, LABELS, _ordinal_terms()),
]


@pytest.mark.parametrize("likelihood", [Poisson(), NegativeBinomial(2.0)])
def test_counts_of_a_mean_of_nothing(likelihood):
    """exp(-200) is 0 in float32: a count of 0 had the log probability NaN, or the law an error."""
    law = likelihood.predictive(jnp.full((2, 1), -200.0, jnp.float32), 1)
    found = law.log_prob(jnp.array([0, 3]))
    np.testing.assert_allclose(found[0], 0, atol=1e-6)
    assert found[1] < -200


def test_counts_of_an_infinite_mean():
    law = Poisson().predictive(jnp.full((2, 1), 200.0, jnp.float32), 1)
    assert np.all(np.asarray(law.log_prob(jnp.array([0, 40]))) < -1e38)


def _apply(params, x):
    return params["outputs"] + 0.0 * x.sum()


def _posterior(likelihood, own, y):
    params = {"outputs": jnp.asarray(OUTPUTS)}
    priors = {name: LogGamma().expand(np.shape(value)) for name, value in own.items()}
    prior = normal_prior(params)
    position = {"network": params, **jax.tree.map(jnp.asarray, own)} if own else params
    prior = {"network": prior, **priors} if own else prior
    return Posterior(_apply, prior, likelihood, np.ones((N, 1)), y), position


@pytest.mark.short(
    "StudentT(degrees=None, s1", "Laplace(scale=None)", "Poisson()", "NegativeBinomial(concent1"
)
@pytest.mark.parametrize("case", CASES, ids=lambda case: repr(case[0])[:24])
def test_terms_and_predictive_agree_with_scipy(x64, case):
    likelihood, own, y, expected = case
    posterior, position = _posterior(likelihood, own, y)
    assert set(likelihood.learned) == set(own)

    @jax.jit
    def everything(position):
        predictive = posterior.predictive(position, posterior.x)
        with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
            return posterior.log_likelihood(position), predictive.log_prob(posterior.y)

    terms, of_predictive = everything(position)
    np.testing.assert_allclose(terms, expected, rtol=1e-9)
    # JAX's beta function, of NumPyro's, has eight digits.
    rtol = 1e-6 if isinstance(likelihood, NegativeBinomial) else 1e-7
    np.testing.assert_allclose(of_predictive, expected, rtol=rtol)
    gradient = jax.grad(lambda p: posterior.log_likelihood(p).sum())(position)
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(gradient))


@pytest.mark.parametrize("case", CASES, ids=lambda case: repr(case[0])[:24])
def test_float32_agrees_with_float64(case):
    likelihood, own, y, expected = case
    outputs = jnp.asarray(OUTPUTS, jnp.float32)
    own = {name: jnp.asarray(value, jnp.float32) for name, value in own.items()}
    terms = likelihood.given(own).log_prob(outputs, jnp.asarray(y))
    assert terms.dtype == jnp.float32
    np.testing.assert_allclose(terms, expected, rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("mean", [3.0, 19.0, 21.0, 1e4, 1e6])
def test_poisson_terms_of_large_counts_keep_their_digits(mean):
    """Within three deviations, as far as the digits of a log mean in float32 go."""
    log_mean = np.float32(np.log(mean) + np.linspace(-3, 3, 41) / np.sqrt(mean))[:, None]
    y = scipy.stats.poisson.rvs(mean, size=(41, 1), random_state=1)
    exact = scipy.stats.poisson.logpmf(y, np.exp(log_mean.astype(float)))[:, 0]
    found = Poisson().log_prob(jnp.asarray(log_mean), jnp.asarray(y))
    np.testing.assert_allclose(found, exact, atol=2e-5 + 3e-6 * mean**0.5)
    slope = jax.grad(lambda v: Poisson().log_prob(v, jnp.asarray(y)).sum())(jnp.asarray(log_mean))
    np.testing.assert_allclose(slope, y - np.exp(log_mean), atol=1e-4 + 1e-6 * mean)


def test_a_poisson_mean_beyond_single_precision_has_a_slope_without_nan():
    y = jnp.array([[3], [50]])
    slope = jax.grad(lambda v: Poisson().log_prob(v, y).sum())(jnp.full((2, 1), 100.0))
    assert (slope == -jnp.inf).all()


@jax.jit
def _learned_terms(log_mean, log_concentration, y):
    likelihood = NegativeBinomial().given({"log_concentration": log_concentration})
    return likelihood.log_prob(log_mean, y)


def _learned_term(log_mean, log_concentration, y):
    return _learned_terms(log_mean[None], log_concentration, y[None])[0]


# Terms, and their derivatives by log mean and log concentration, each of its own (n,).
_each_with_slopes = jax.jit(jax.vmap(jax.value_and_grad(_learned_term, (0, 1))))


def _exact(y, r, log_mean):
    """Terms and both derivatives in float64, to about 1e-15 (y + r) log(y + r)."""
    y, r, mean = np.asarray(y, float), np.asarray(r, float), np.exp(np.asarray(log_mean, float))
    ways = scipy.special.gammaln(y + r) - scipy.special.gammaln(r) - scipy.special.gammaln(y + 1)
    terms = ways - r * np.log1p(mean / r) - y * np.log1p(r / mean)
    step = scipy.special.digamma(y + r) - scipy.special.digamma(r)
    by_r = step - np.log1p(mean / r) + (mean - y) / (mean + r)
    return terms, r * (y - mean) / (mean + r), r * by_r


def _grid():
    """Counts (n,), concentrations and log means, likely ones and others, each of float32."""
    rows = []
    for r in (1e-3, 0.7, 2.9, 3.1, 9.9, 10.1, 1e3, 1e6):
        for mean in (1e-6, 0.5, 3.0, 1e3, 1e5, 1e8):
            sd = np.sqrt(mean + mean**2 / r)
            counts = {0, 1, 2, 7} | {max(0, round(mean + z * sd)) for z in (-1, -0.1, 0, 0.3, 2)}
            rows += [(y, r, np.log(mean)) for y in counts]
    return np.array(rows, np.float32).T


def _check_grid(dtype):
    """To a few roundings of a term, and of what roundings of the log mean and of log(y) do."""
    y, r, log_mean = _grid()
    log_r = jnp.log(jnp.asarray(r, dtype))
    r = np.exp(np.asarray(log_r, float))
    terms, by_log_mean, by_log_r = _exact(y, r, log_mean)
    given = (jnp.asarray(log_mean, dtype), log_r, jnp.asarray(y, dtype))
    found, slopes = _each_with_slopes(*given)
    assert found.dtype == dtype
    # Beside them, what a rounding of r does, and the reference's own.
    eps, own = float(jnp.finfo(dtype).eps), 1e-15 * (y + r) * np.log(y + r + 3)
    digits = 3 + np.abs(log_mean) + np.log1p(y)
    sizes = 1 + np.abs(terms) + digits * np.abs(by_log_mean) + digits * np.abs(by_log_r)
    assert np.max(np.abs(found - terms) / (8 * eps * sizes + own)) < 1
    mean = np.exp(log_mean.astype(float))
    sizes = np.abs(by_log_mean) + digits * mean * r / (mean + r)
    assert np.max(np.abs(slopes[0] - by_log_mean) / (8 * eps * sizes + own)) < 1
    sizes = digits * (1 + np.abs(terms) + np.abs(by_log_mean))
    assert np.max(np.abs(slopes[1] - by_log_r) / (8 * eps * sizes + own)) < 1


def test_negative_binomial_terms_and_slopes_are_right_at_any_size():
    _check_grid(jnp.float32)


def test_negative_binomial_terms_and_slopes_have_the_digits_of_float64(x64):
    _check_grid(jnp.float64)


@pytest.mark.parametrize(
    ("mean", "r"), [(1e5, 1e3), (1e4, 1e4), (1e5, 1e4), (1e5, 1e5), (1e8, 1e4), (1e3, 1e8)]
)
def test_rounding_of_negative_binomial_counts_is_far_below_a_nat(mean, r):
    """Differences between likely positions, summed over 1,000 rows."""
    rng, n = np.random.default_rng(1), 1000
    y = rng.negative_binomial(r, r / (r + mean), n).astype(np.float32)
    log_mean = np.log(mean) + rng.normal(size=(16, 1)) * np.sqrt((1 / mean + 1 / r) / n)
    log_mean = np.repeat(log_mean, n, axis=1).astype(np.float32)
    log_r = (np.log(r) + rng.normal(size=16) * np.sqrt(2 / n)).astype(np.float32)
    terms = jax.vmap(_learned_terms, (0, 0, None))
    found = np.asarray(terms(jnp.asarray(log_mean), jnp.asarray(log_r), jnp.asarray(y)), float)
    exact = _exact(y, jnp.exp(jnp.asarray(log_r))[:, None], log_mean)[0]
    errors = np.sum((found - found[0]) - (exact - exact[0]), axis=1)
    assert np.max(np.abs(errors)) < 0.005


def test_of_great_concentration_counts_are_poisson():
    y, _, log_mean = _grid()
    found = _learned_terms(jnp.asarray(log_mean), jnp.float32(27.0), jnp.asarray(y))
    expected = Poisson().log_prob(jnp.asarray(log_mean), jnp.asarray(y))
    likely = expected > -100  # further out their tails differ
    np.testing.assert_allclose(found[likely], expected[likely], rtol=1e-4, atol=1e-4)


def test_negative_binomial_slopes_are_finite_wherever_a_chain_may_go():
    counts = [0.0, 1, 2, 3, 40, 1e6, 1e9]
    log_means = [-1e4, -200, -14, 0, 0.3, 18, 87, 89, 1e4]
    log_r = [-1e4, -104, -50, -20, -7, 0, 1, 18.5, 27, 89, 1e4]
    log_mean, log_r, y = (
        jnp.asarray(v, jnp.float32).ravel() for v in np.meshgrid(log_means, log_r, counts)
    )
    found = _each_with_slopes(log_mean, log_r, y)
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(found))


def _check_stirling_rest(dtype):
    x = np.concatenate([np.geomspace(1e-3, 1e4, 50), [2.99, 3, 3.01, 9.99, 10, 10.01]])
    x = np.asarray(x, np.float32)
    value, slope = jax.jit(jax.vmap(jax.value_and_grad(stirling_rest)))(jnp.asarray(x, dtype))
    x, eps = x.astype(float), float(jnp.finfo(dtype).eps)
    exact = scipy.special.gammaln(x) - (x - 0.5) * np.log(x) + x - np.log(2 * np.pi) / 2
    own = 1e-15 * x * np.log(x + 3)
    assert np.max(np.abs(value - exact) / (8 * eps + own)) < 1
    exact = scipy.special.digamma(x) - np.log(x) + 1 / (2 * x)
    assert np.max(x * np.abs(slope - exact) / (8 * eps + 10 * own)) < 1


def test_stirlings_rest_is_smooth_where_its_forms_meet():
    _check_stirling_rest(jnp.float32)


def test_stirlings_rest_is_smooth_in_float64(x64):
    _check_stirling_rest(jnp.float64)


@pytest.mark.long
def test_gamma_functions_far_out_hold_in_float32():
    """Nearly Gaussian tails, and nearly Poisson counts: differences of large logarithms."""
    x = np.array([0.1, 1.0, 9.9, 10.1, 50.0, 1e4, 1e7])
    exact = [float(scipy.special.loggamma(v + 0.5) - scipy.special.loggamma(v)) for v in x[:5]]
    exact += [0.5 * np.log(v) - 1 / (8 * v) for v in x[5:]]
    np.testing.assert_allclose(log_gamma_step(jnp.asarray(x, jnp.float32)), exact, rtol=4e-6)
    y = jnp.array([[0.3]])
    normal = scipy.stats.norm.logpdf(0.3, 0, 1)
    np.testing.assert_allclose(StudentT(1e7, 1.0).log_prob(0 * y, y), [normal], rtol=1e-5)
    counts, log_mean = jnp.array([[0], [4], [90]]), jnp.full((3, 1), 2.0)
    expected = scipy.stats.poisson.logpmf(np.asarray(counts)[:, 0], np.exp(2.0))
    found = NegativeBinomial(1e6).log_prob(log_mean, counts)
    np.testing.assert_allclose(found, expected, rtol=1e-3)


def test_confident_ordinal_outputs_stay_finite():
    outputs = jnp.array([[500.0], [-500.0], [500.0]])
    terms = Ordinal(3, jnp.array([-1.0, 1.0])).log_prob(outputs, jnp.array([2, 0, 1]))
    np.testing.assert_allclose(terms, [0.0, 0.0, -499.0 + np.log(1 - np.exp(-2.0))], rtol=1e-6)


def test_what_is_learnt_goes_beside_hierarchical_precisions():
    priors = {
        "log_degrees": LogGamma(2.0, 0.1),
        "log_noise_scale": LogGamma(1.0, 1.0, exponent=-0.5),
    }
    prior = hierarchical_prior({"outputs": jnp.zeros((N, 1))}, likelihood=priors)
    posterior = Posterior(_apply, prior, StudentT(), np.ones((N, 1), np.float32), NUMBERS)
    position = posterior.sample_prior(jax.random.key(0))
    assert set(position) == {"network", "log_precision", "log_degrees", "log_noise_scale"}
    assert bool(jnp.isfinite(posterior.log_density(position)))


def _gaps_posterior_term(label, gaps, output):
    """Log probability of a label in double precision, of any gaps."""
    first, *log_gaps = (float(gap) for gap in gaps)
    cuts = first + np.concatenate([[0.0], np.cumsum(np.exp(np.minimum(log_gaps, 60.0)))])
    below, above = -np.logaddexp(0, output - cuts), -np.logaddexp(0, cuts - output)
    if label in (0, len(cuts)):
        return below[0] if label == 0 else above[-1]
    log_gap = log_gaps[label - 1]
    gap = np.exp(min(log_gap, 5.0))
    between = log_gap - gap / 2 if gap < 1e-5 else np.log(-np.expm1(-gap))
    return below[label] + above[label - 1] + between


@pytest.mark.parametrize(
    "log_gap", [-200.0, -90.0, -20.0, -17.0, -2.4, -2.2, 1.0, 4.9, 5.1, 30, 95]
)
def test_ordinal_gaps_of_any_size_have_terms_and_slopes(log_gap):
    """A cutpoint in float32 has no digits left of a small gap, and a large one is infinite."""
    output = jnp.full((4, 1), 0.4)
    labels = jnp.arange(4, dtype=jnp.int32)

    def terms(gaps):
        return Ordinal(4).given({"cutpoint_gaps": gaps}).log_prob(output, labels)

    gaps = jnp.array([0.7, log_gap, 0.3])
    expected = [_gaps_posterior_term(label, gaps, np.float32(0.4)) for label in range(4)]
    np.testing.assert_allclose(terms(gaps), expected, rtol=2e-6, atol=2e-6)
    slopes = jax.jacobian(terms)(gaps)
    if log_gap > 10:  # the reference has no differences of so large numbers
        below = scipy.special.expit(0.7 - 0.4)
        np.testing.assert_allclose(slopes[:, 0], [1 - below, -below, -1, -1], atol=1e-5)
        assert np.isfinite(slopes).all()
        return
    h = 1e-4
    for place in range(3):
        moved = [np.asarray(gaps, float) + sign * h * np.eye(3)[place] for sign in (1, -1)]
        ends = [[_gaps_posterior_term(k, g, np.float32(0.4)) for k in range(4)] for g in moved]
        np.testing.assert_allclose(slopes[:, place], np.subtract(*ends) / (2 * h), atol=2e-5)


@pytest.mark.parametrize(
    "cuts", [[10.0, 10 + 1e-5], [1.0, 1 + 1e-9], [0.1, 0.1 + 1e-7], [-1.2, 3.4], [-1e4, 1.7]]
)
@pytest.mark.parametrize("passed", [False, True])
def test_ordinal_cutpoints_keep_the_gaps_of_float64(cuts, passed):
    """Also as leaves of a compiled function, which are float32."""
    output = jnp.full((3, 1), 0.4)
    labels = jnp.arange(3, dtype=jnp.int32)

    def terms(likelihood):
        return likelihood.log_prob(output, labels)

    likelihood = Ordinal(3, np.array(cuts))
    found = jax.jit(terms)(likelihood) if passed else terms(likelihood)
    gaps = [cuts[0], np.log(cuts[1] - cuts[0])]
    expected = [_gaps_posterior_term(label, gaps, np.float32(0.4)) for label in range(3)]
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-6)
    slopes = jax.jacobian(terms)(likelihood).cutpoints
    inverse = 1 / np.expm1(min(cuts[1] - cuts[0], 100))
    ends = scipy.special.expit(np.array(cuts) - np.float32(0.4))
    expected = [-ends[0] - inverse, 1 - ends[1] + inverse]
    np.testing.assert_allclose(slopes[1], expected, rtol=2e-6, atol=1e-6)


def test_ordinal_cutpoints_of_float32_have_the_leaves_of_traced_ones():
    first = Ordinal(3, jnp.array([-1.0, 1.0]))
    last, _ = jax.lax.scan(lambda _, c: (Ordinal(3, c), None), first, jnp.array([[0.0, 1.0]]))
    assert last.cutpoints.tolist() == [0, 1]


@pytest.mark.parametrize("concentration", [None, 1e3])
def test_the_predictive_of_large_counts_has_the_terms(concentration):
    """NumPyro's own subtracts logarithms of a hundred times their difference."""
    likelihood = Poisson() if concentration is None else NegativeBinomial(concentration)
    log_mean = jnp.log(jnp.array([[3.0], [1e3], [1e6]]))
    y = jnp.array([[2], [990], [1_000_700]])
    law = likelihood.predictive(log_mean, 2)
    with jax.numpy_rank_promotion("allow"):
        several = law.log_prob(jnp.stack([y, y]))
    found = likelihood.predictive(log_mean, 2).log_prob(y)
    np.testing.assert_allclose(found, likelihood.log_prob(log_mean, y), atol=1e-3)
    np.testing.assert_array_equal(several, [found, found])
    alone = likelihood.predictive(log_mean[:, 0], 1)
    passed = jax.jit(lambda law: law.log_prob(y[:, 0]))(alone)
    np.testing.assert_allclose(passed, found, rtol=1e-6)
    assert alone.sample(jax.random.key(0)).shape == (3,)


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: StudentT(0.0), "degrees must be positive"),
        (lambda: Laplace(np.ones(2)), "scale must be one number or None"),
        (lambda: StudentT().log_prob(jnp.zeros((1, 1)), jnp.zeros((1, 1))), "log_degrees"),
        (lambda: _posterior(Poisson(), {}, COUNTS - 1), "counts of Poisson must be whole numbers"),
        (lambda: _posterior(NegativeBinomial(1.0), {}, COUNTS + 0.5), "holds 0.5 at index"),
        (lambda: _posterior(Ordinal(3, CUTS[:2]), {}, LABELS), r"0..2, but y holds 3"),
        (lambda: _posterior(Ordinal(3, CUTS[:2]), {}, LABELS[:, None]), r"shape \(n,\)"),
        (lambda: Ordinal(3, CUTS), "2 increasing numbers"),
        (lambda: Ordinal(3, CUTS[:2][::-1]), "2 increasing numbers"),
        (lambda: Ordinal(3, np.array([0.0, 1e-40])), "2 increasing numbers"),
        (lambda: Ordinal(3, np.array([-np.inf, 1.0])), "finite in float32"),
        (lambda: Ordinal(3, np.array([1.0, 1e39])), "finite in float32"),
        (lambda: Ordinal(3, np.array([1.0, np.nan])), "2 increasing numbers"),
        (
            lambda: _posterior(Laplace(), {"log_noise_scale": np.zeros(N)}, NUMBERS[:, 0]),
            r"log_noise_scale of Laplace must have shape \(\) for y with rows of shape \(\)",
        ),
        (
            lambda: _posterior(NegativeBinomial(), {"log_concentration": np.zeros(4)}, COUNTS),
            r"log_concentration of NegativeBinomial must have shape \(\) for y",
        ),
        (
            lambda: _posterior(Ordinal(4), {"cutpoint_gaps": np.zeros(2)}, LABELS),
            r"cutpoint_gaps of Ordinal must have shape \(3,\) for y .* but has shape \(2,\)",
        ),
        (lambda: Ordinal(3).log_prob(jnp.zeros((1, 1)), jnp.zeros(1, int)), "cutpoints to learn"),
    ],
)
def test_bad_input_gets_one_sentence(make, sentence):
    with pytest.raises(ValueError, match=sentence) as caught:
        make()
    assert str(caught.value).endswith(".")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("log_scale", [-80.0, -87.0, 80.0])
@pytest.mark.parametrize("residual", [1e-3, 1.0, 0.0])
def test_scales_far_out_have_their_terms(log_scale, residual):
    """Squares in units of the scale are beyond float32, and so is one over it at -90."""
    outputs, y = jnp.zeros((1, 1)), jnp.full((1, 1), residual)
    scale = np.exp(log_scale)
    learnt = {"log_noise_scale": jnp.asarray(log_scale), "log_degrees": jnp.log(4.0)}
    (found,) = StudentT().given(learnt).log_prob(outputs, y)
    expected = scipy.stats.t.logpdf(residual / scale, 4) - log_scale
    assert float(found) == pytest.approx(expected, rel=1e-4)
    (found,) = Laplace().given(learnt).log_prob(outputs, y)
    expected = -residual / scale - np.log(2) - log_scale
    assert float(found) == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize("log_scale", [-300.0, -90.0, 90.0, 300.0])
def test_no_scale_makes_a_term_that_is_no_number(log_scale):
    outputs, y = jnp.zeros((2, 1)), jnp.array([[0.0], [1e-3]])
    learnt = {"log_noise_scale": jnp.asarray(log_scale), "log_degrees": jnp.log(4.0)}
    for likelihood in (StudentT(), Laplace(), LearnedGaussian()):
        assert not np.isnan(likelihood.given(learnt).log_prob(outputs, y)).any()


@pytest.mark.parametrize("log_degrees", [30.0, 80.0, 90.0, 300.0])
def test_many_degrees_are_the_normal_law(log_degrees):
    y = jnp.array([[0.0], [1.0], [-3.0]])
    learnt = {"log_noise_scale": jnp.zeros(()), "log_degrees": jnp.asarray(log_degrees)}
    found = StudentT().given(learnt).log_prob(jnp.zeros((3, 1)), y)
    np.testing.assert_allclose(found, scipy.stats.norm.logpdf(y[:, 0]), rtol=1e-6)


def test_student_t_s_slope_goes_on_where_its_square_overflows():
    def log_density(residual):
        return StudentT(4.0, 1e-20).log_prob(jnp.zeros((1, 1)), jnp.full((1, 1), residual))[0]

    for residual in (1e-21, 1e-19, 1e-3, 10.0):  # -(nu + 1) z / (nu + z^2) / s
        z = residual / 1e-20
        expected = -5 * z / (4 + z**2) / 1e-20
        assert float(jax.grad(log_density)(residual)) == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("log_scale", [-40.0, 0.0, 44.0])
@pytest.mark.parametrize("log_degrees", [-20.0, 0.0, 3.0, 20.0])
def test_slopes_by_what_is_learnt_are_numbers(log_scale, log_degrees):
    """Of StudentT they are the closed forms; one over the square of a scale is beyond float32."""
    for residual in (0.0, 1e-3, 1.0):

        def terms(likelihood, log_scale, log_degrees, residual=residual):
            learnt = {"log_noise_scale": log_scale, "log_degrees": log_degrees}
            given = likelihood.given(learnt)
            return given.log_prob(jnp.zeros((1, 1)), jnp.full((1, 1), residual))[0]

        at = jnp.asarray(log_scale), jnp.asarray(log_degrees)
        value, slopes = jax.value_and_grad(terms, (1, 2))(StudentT(), *at)
        assert np.isfinite([value, *slopes]).all()
        square = (residual / np.exp(log_scale)) ** 2
        nu = np.exp(log_degrees)
        expected = (nu + 1) * (square / (nu + square)) - 1
        np.testing.assert_allclose(slopes[0], expected, rtol=1e-3, atol=2e-6 * nu + 1e-6)
        _, slope = jax.value_and_grad(terms, 1)(Laplace(), *at)
        np.testing.assert_allclose(slope, residual / np.exp(log_scale) - 1, rtol=1e-4)
        for far in (-300.0, -86.0, 86.0, 300.0):
            for likelihood in (StudentT(), Laplace()):
                slope = jax.grad(terms, 1)(likelihood, jnp.asarray(far), at[1])
                assert not np.isnan(slope)
