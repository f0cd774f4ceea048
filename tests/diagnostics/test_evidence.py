"""Log evidence of a linear Gaussian model, whose tempered posteriors are drawn exactly."""

import arviz
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import special, stats

from jaxbnn.diagnostics import bennett_acceptance_ratio, thermodynamic_integration
from jaxbnn.diagnostics.evidence import Evidence
from tests.diagnostics.chains import autoregressive

PRECISION = 3.0
LADDER = np.linspace(0, 1, 16) ** 3
CHAINS, DRAWS = 4, 250


def model():
    rng = np.random.default_rng(2)
    x, y = rng.normal(size=(7, 2)), rng.normal(size=7)
    return x, y


X, Y = model()
EXACT = stats.multivariate_normal.logpdf(Y, np.zeros(7), X @ X.T + np.eye(7) / PRECISION)


def exact_draws(rng, ladder=LADDER, phi=0.0, runs=None):
    """Return (chain, draw, rung) log likelihoods of exact draws of every tempered posterior.

    Weights are AR(1) chains; `runs` puts an axis in front.
    """
    columns = []
    for t in ladder:
        root = np.linalg.cholesky(np.linalg.inv(np.eye(2) + t * PRECISION * X.T @ X))
        mean = root @ root.T @ (t * PRECISION * X.T @ Y)
        z = autoregressive(rng, phi, (runs or 1) * CHAINS * 2, DRAWS).reshape(-1, CHAINS, 2, DRAWS)
        w = mean + np.swapaxes(z, -1, -2) @ root.T
        columns.append(stats.norm.logpdf(Y, w @ X.T, PRECISION**-0.5).sum(axis=-1))
    draws = np.stack(columns, axis=-1)
    return draws if runs else draws[0]


ESTIMATES = [bennett_acceptance_ratio, thermodynamic_integration]


def errors_of(estimate, rng, rungs, phi, runs):
    """Return errors and stated errors of `runs` estimates."""
    ladder = np.linspace(0, 1, rungs) ** 3
    draws = exact_draws(rng, ladder, phi, runs).astype(np.float32)
    found = jax.lax.map(lambda one: estimate(one, ladder), draws)
    return np.asarray(found.log_evidence) - EXACT, np.asarray(found.standard_error)


@pytest.mark.parametrize("estimate", ESTIMATES)
@pytest.mark.parametrize("phi", [0.0, 0.9])
def test_the_evidence_is_within_the_stated_error(estimate, phi, rng):
    """Five rungs, of which the rule's error is several times that of the draws."""
    runs = 150
    error, stated = errors_of(estimate, rng, 5, phi, runs)
    beyond = (np.abs(error / stated) > 1.96).sum()
    assert beyond <= stats.binom.isf(1e-6, runs, 0.08)
    # A relative error of 0.06 of the root mean square; the stated one scatters less.
    true = np.sqrt(np.mean(error**2))
    assert 0.7 * true < stated.mean() < 2 * true


@pytest.mark.long
@pytest.mark.parametrize("estimate", ESTIMATES)
@pytest.mark.parametrize("phi", [0.0, 0.9])
@pytest.mark.parametrize("rungs", [5, 8, 16])
def test_the_evidence_is_within_the_stated_error_at_full_size(estimate, phi, rungs, rng):
    error, stated = errors_of(estimate, rng, rungs, phi, 3000)
    # At most 8 % of 300: known to 0.5 % of 3,000.
    assert (np.abs(error / stated) > 1.96).mean() < 0.08 + 4.9 * 0.005
    assert 0.85 < stated.mean() / np.sqrt(np.mean(error**2)) < 2


def test_the_rule_that_is_off_says_so(rng):
    found = thermodynamic_integration(exact_draws(rng, np.linspace(0, 1, 4)), np.linspace(0, 1, 4))
    assert found.rule_error > 5 * found.monte_carlo_error
    fine = thermodynamic_integration(exact_draws(rng), LADDER)
    assert fine.rule_error < fine.monte_carlo_error
    apart = np.arange(3) * 1000.0 + rng.normal(size=(2, 50, 3))
    assert np.isinf(thermodynamic_integration(apart, [0.0, 0.5, 1.0]).standard_error)


def test_the_trapezoidal_rule_by_hand(rng):
    draws = exact_draws(rng)
    mean, variance = draws.mean(axis=(0, 1)), draws.var(axis=(0, 1))
    plain = thermodynamic_integration(draws, LADDER, corrected=False)
    by_hand = np.trapezoid(mean, LADDER)
    np.testing.assert_allclose(plain.log_evidence, by_hand, rtol=1e-5)
    correction = np.sum(np.diff(LADDER) ** 2 * np.diff(variance)) / 12
    corrected = thermodynamic_integration(draws, LADDER)
    np.testing.assert_allclose(corrected.log_evidence, by_hand - correction, rtol=1e-5)


def test_the_correction_repairs_a_coarse_ladder(rng):
    coarse = np.linspace(0, 1, 6) ** 3
    draws = exact_draws(rng, coarse)
    plain = thermodynamic_integration(draws, coarse, corrected=False).log_evidence
    corrected = thermodynamic_integration(draws, coarse).log_evidence
    assert abs(corrected - EXACT) < 0.4 * abs(plain - EXACT)


def test_bennett_solves_his_equation(rng):
    ladder = np.array([0.0, 0.2, 1.0])
    draws = exact_draws(rng, ladder)
    found = bennett_acceptance_ratio(draws, ladder)
    total, terms = 0.0, 0.0
    for i, step in enumerate(np.diff(ladder)):
        low, high = step * draws[..., i], step * draws[..., i + 1]
        c = np.linspace(-60.0, 10.0, 2)
        for _ in range(60):
            middle = c.mean()
            gap = special.expit(low - middle).mean() - special.expit(middle - high).mean()
            c = np.array([middle, c[1]] if gap > 0 else [c[0], middle])
        total += c.mean()
        below, above = special.expit(low - c.mean()), special.expit(c.mean() - high)
        slope = (below * (1 - below)).mean() + (above * (1 - above)).mean()
        terms = terms + (below - above) / slope
    np.testing.assert_allclose(found.log_evidence, total, rtol=1e-5)
    np.testing.assert_allclose(found.standard_error, arviz.mcse(terms), rtol=1e-4)


def test_swaps_that_correlate_the_rungs_are_in_the_error(rng):
    """The same noise at every rung adds up, and independent noise averages out."""
    ladder = np.linspace(0, 1, 9)
    alone = rng.normal(size=(4, 500, 9))
    shared = np.broadcast_to(alone[..., :1], alone.shape)
    independent = thermodynamic_integration(alone, ladder, corrected=False).monte_carlo_error
    together = thermodynamic_integration(shared, ladder, corrected=False).monte_carlo_error
    np.testing.assert_allclose(together, 2000**-0.5, rtol=0.15)
    np.testing.assert_allclose(independent, (7.5 / 64 / 2000) ** 0.5, rtol=0.15)


def test_neighbours_that_hardly_overlap_have_no_finite_error(rng):
    """Exact draws of prior and posterior in 20 dimensions: estimates are off by 60 nats or more."""
    ladder, precision = np.array([0.0, 1.0]), 1e3
    spread = 1 / (1 + ladder * precision)
    draws = -precision / 2 * rng.chisquare(20, size=(1, 100, 2)) * spread
    found = bennett_acceptance_ratio(draws, ladder)
    assert abs(found.log_evidence + 10 * np.log1p(precision)) > 10
    assert np.isinf(found.standard_error)
    assert np.isinf(thermodynamic_integration(draws, ladder).rule_error)
    # A ladder of as few draws whose neighbours overlap, and the fewest draws there may be.
    fine = np.linspace(0, 1, 16) ** 6
    draws = -precision / 2 * rng.chisquare(20, size=(1, 100, 16)) / (1 + fine * precision)
    found = bennett_acceptance_ratio(draws, fine)
    assert abs(found.log_evidence + 10 * np.log1p(precision)) < 5 * found.standard_error < 5
    few = bennett_acceptance_ratio(rng.normal(size=(1, 4, 2)), ladder)
    assert np.isfinite(few.standard_error)


def test_equal_temperatures_and_impossible_prior_draws(rng):
    ladder = np.array([0.0, 0.3, 0.3, 1.0])
    draws = exact_draws(rng, ladder)
    draws[:, ::5, 0] = -np.inf  # prior draws that the data rule out
    found = bennett_acceptance_ratio(draws, ladder)
    assert np.isfinite(found.log_evidence)
    # One in five of the prior draws counts for nothing.
    assert abs(found.log_evidence - EXACT - np.log(0.8)) < 4.9 * found.standard_error
    with pytest.raises(ValueError, match="log_likelihoods holds -inf"):
        thermodynamic_integration(draws, ladder)


@pytest.mark.parametrize("share", [0.5, 0.02])
@pytest.mark.parametrize("is_flat", [True, False])
def test_prior_draws_that_the_data_rule_out_count_for_nothing(rng, share, is_flat):
    """A uniform prior and a likelihood on [0, share], 1 or e^(x / share): exact draws of rungs.

    The root lies below all finite numbers by up to -log(share); false alarms as above.
    """
    slopes = np.array([0.0, 0.0 if is_flat else 0.5, 0.0 if is_flat else 1.0])
    u = rng.uniform(size=(4, 2000, 3))
    steep = np.where(slopes > 0, slopes, 1)
    x = np.where(slopes > 0, np.log1p(u * np.expm1(steep)) / steep, u)
    draws = np.zeros_like(x) if is_flat else x
    draws[..., 0] = np.where(u[..., 0] < share, draws[..., 0] / (1 if is_flat else share), -np.inf)
    found = bennett_acceptance_ratio(draws, [0.0, 0.5, 1.0])
    truth = np.log(share) + (0.0 if is_flat else np.log(np.expm1(1.0)))
    assert abs(found.log_evidence - truth) < 4.9 * found.standard_error < 1


DRAWN = np.zeros((2, 5, 3))
BAD = [
    (DRAWN, [0.0, 1.0], "one temperature for each"),
    (DRAWN[..., 0], [0.0, 0.5, 1.0], "one temperature for each"),
    (DRAWN, [0.1, 0.5, 1.0], "run from 0 to 1"),
    (DRAWN, [0.0, 0.5, 0.9], "run from 0 to 1"),
    (DRAWN[..., [0, 1, 1, 2]], [0.0, 0.8, 0.3, 1.0], "never decrease"),
    (DRAWN * np.nan, [0.0, 0.5, 1.0], "NaN|nan"),
    (np.where(np.arange(3) == 1, np.inf, DRAWN), [0.0, 0.5, 1.0], "holds .*inf"),
]


@pytest.mark.parametrize(("draws", "temperatures", "sentence"), BAD)
@pytest.mark.parametrize("estimate", [bennett_acceptance_ratio, thermodynamic_integration])
def test_bad_input_is_refused(estimate, draws, temperatures, sentence):
    with pytest.raises(ValueError, match=sentence):
        estimate(draws, temperatures)


@pytest.mark.parametrize("estimate", [bennett_acceptance_ratio, thermodynamic_integration])
def test_draws_that_jit_closes_over_are_judged_too(estimate, rng):
    draws, ladder = jnp.asarray(rng.normal(size=(2, 50, 3))), jnp.linspace(0, 1, 3)
    inside = jax.jit(lambda: estimate(draws, ladder))()
    np.testing.assert_allclose(inside, estimate(draws, ladder), rtol=1e-5)


def test_float64_stays_float64(x64, rng):
    found = bennett_acceptance_ratio(jnp.asarray(exact_draws(rng)), LADDER)
    assert isinstance(found, Evidence)
    assert found.log_evidence.dtype == found.standard_error.dtype == jnp.float64


@pytest.mark.parametrize("least", [-1e12, -1e15, -1e30])
def test_a_draw_that_is_very_unlikely_is_as_one_that_is_impossible(rng, least):
    draws = exact_draws(rng).astype(np.float32)
    found = []
    for value in (least, -np.inf):
        draws[0, 0, 1] = value
        found.append(bennett_acceptance_ratio(draws, LADDER))
    np.testing.assert_allclose(*found, rtol=1e-6)


def test_derivatives_of_bennetts_ratio_are_its_differences(x64, rng):
    draws = jnp.asarray(exact_draws(rng))
    away = jnp.asarray(rng.normal(size=draws.shape))

    def at(step):
        return bennett_acceptance_ratio(draws + step * away, LADDER).log_evidence

    difference = (at(1e-5) - at(-1e-5)) / 2e-5
    np.testing.assert_allclose(jax.grad(at)(0.0), difference, rtol=1e-5)
