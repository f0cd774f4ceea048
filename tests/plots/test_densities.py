"""Tests of plots._kernel_density: density estimates against direct sums over the draws, and priors
against their densities.
"""

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from scipy import stats
from scipy.integrate import trapezoid

from jaxbnn import plots
from jaxbnn.plots._kernel_density import gaussian_estimate


def curve(axes, label):
    (line,) = [line for line in axes.get_lines() if line.get_label() == label]
    return line.get_xdata(), line.get_ydata()


def half_width(x, y):
    """Width at half height, in units of a normal's standard deviation."""
    above = x[y > y.max() / 2]
    return (above[-1] - above[0]) / (2 * np.sqrt(2 * np.log(2)))


@pytest.mark.parametrize(("num_draws", "tolerance"), [(200, 1e-12), (5000, 3e-4)])
def test_gaussian_kernel_is_the_sum_over_draws(num_draws, tolerance, rng):
    draws = rng.normal(3.0, 2.0, size=(2, num_draws))
    x, y = curve(plots.density(draws, bandwidth=0.5), "draws")
    direct = stats.norm.pdf(x[:, None], draws.ravel(), 0.5).mean(axis=1)
    np.testing.assert_allclose(y, direct, atol=tolerance * direct.max())
    np.testing.assert_allclose(trapezoid(y, x), 1.0, atol=2e-3)


def test_draws_that_differ_by_rounding(rng):
    """Sums of probabilities, say: between them are fewer floats than bins."""
    eps = np.finfo(float).eps
    draws, grid = 1 + eps * rng.integers(0, 4, 5000), 1 + eps * np.arange(-9, 12)
    found = gaussian_estimate(draws, grid, 2 * eps)
    direct = stats.norm.pdf(grid[:, None], draws, 2 * eps).mean(axis=1)
    np.testing.assert_allclose(found, direct, rtol=1e-9)
    plots.density(draws.reshape(2, 2500))


def test_heavy_tails_and_one_outlier(rng):
    """The law's own density within five standard errors of the estimate, sqrt(y / (3.5 n h))."""
    cauchy = stats.cauchy.ppf(rng.uniform(size=(4, 5000)))
    h = 0.9 * np.subtract(*np.quantile(cauchy, [0.75, 0.25])) / 1.34 * cauchy.size**-0.2
    for limits in (None, (-5, 5)):
        axes = plots.density(cauchy, limits=limits, show_chains=False)
        x, y = curve(axes, "draws")
        direct = stats.norm.pdf(x[:, None], cauchy.ravel(), h).mean(axis=1)
        np.testing.assert_allclose(y, direct, atol=0.01 * direct.max())
        law = stats.cauchy.pdf(x)
        smooth = law + h**2 / 2 * law**3 * np.pi**2 * (6 * x**2 - 2)
        error = np.sqrt(smooth / (3.5 * cauchy.size * h))
        assert (np.abs(y - smooth) < 5 * error + 0.01 * smooth.max()).all()
        outside = f"{((cauchy < x[0]) | (cauchy > x[-1])).sum():,} of 20,000 draws lie outside"
        assert axes.get_title().startswith("" if limits else outside)
        assert limits or -100 < x[0] < -8 < 8 < x[-1] < 100
    normal = rng.normal(size=(1, 5000))
    normal[0, 17] = 1000
    axes = plots.density(normal)
    assert 0.36 < curve(axes, "draws")[1].max() < 0.44
    assert axes.get_title() == "1 of 5,000 draws lie outside what is shown"
    assert plots.density(normal[:, 20:]).get_title() == ""
    # A range that is asked for is kept, and the area under the curve is that of a density.
    x, y = curve(plots.density(normal, limits=(-2000, 2000)), "draws")
    np.testing.assert_allclose(trapezoid(y, x), 1.0, atol=0.02)


def test_default_bandwidth_is_silvermans(rng):
    draws = rng.normal(size=(1, 400))
    spread = min(draws.std(), np.subtract(*np.quantile(draws, [0.75, 0.25])) / 1.34)
    explicit = plots.density(draws, limits=(-4, 4), bandwidth=0.9 * spread * 400**-0.2)
    default = plots.density(draws, limits=(-4, 4))
    np.testing.assert_allclose(curve(default, "draws")[1], curve(explicit, "draws")[1], rtol=1e-9)


@pytest.mark.parametrize(("mean", "sd"), [(0, 1), (1000, 0.1), (-50_000, 5), (1e6, 20)])
def test_draws_far_from_zero_are_no_wider(mean, sd, rng):
    """A log density, or a year: ten times too wide once. In units of sd, float64 and float32."""
    standard = stats.norm.ppf((np.arange(4000) + 0.5) / 4000).reshape(4, 1000)
    for dtype in (np.float64, np.float32):
        x, y = curve(plots.density((mean + sd * standard).astype(dtype)), "draws")
        # h = .9 * 4000^(-1/5) = .17
        assert half_width(x, y) / sd == pytest.approx(np.sqrt(1 + 0.17**2), rel=0.03)


def test_each_chain_has_its_own_thin_line(rng):
    draws = rng.normal(size=(3, 100))
    axes = plots.density(draws, limits=(-3, 3), bandwidth=0.3)
    alone = plots.density(draws[1:2], limits=(-3, 3), bandwidth=0.3)
    thin = [line for line in axes.get_lines() if line.get_label() == "_chain"]
    assert len(thin) == 3
    np.testing.assert_allclose(thin[1].get_ydata(), curve(alone, "draws")[1], atol=1e-4)
    assert len(plots.density(draws, show_chains=False).get_lines()) == 1


@pytest.mark.parametrize(("num_draws", "tolerance"), [(300, 1e-9), (5000, 1e-2)])
def test_beta_kernel_is_the_sum_over_draws(num_draws, tolerance, rng):
    draws = 10 * rng.beta(0.8, 2.0, size=(1, num_draws)) - 5
    x, y = curve(plots.density(draws, bounds=(-5, 5), bandwidth=0.02), "draws")
    u = (x[:, None] + 5) / 10
    data = (draws.ravel() + 5) / 10
    direct = stats.beta.pdf(data, u / 0.02 + 1, (1 - u) / 0.02 + 1).mean(axis=1) / 10
    np.testing.assert_allclose(y, direct, atol=tolerance * direct.max())
    assert (x[0], x[-1]) == (-5, 5)


def test_beta_kernel_does_not_sag_at_the_bounds(rng):
    draws = rng.uniform(-20, 20, size=(4, 20_000))
    y = curve(plots.density(draws, bounds=(-20, 20)), "draws")[1]
    # b = 0.289 * 80,000^-0.4 = 0.0032: at the bounds the kernel Beta(1, 1 / b + 1) averages over
    # the nearest 250 draws, a standard error of 0.045; a quarter is 5.5 of it.
    np.testing.assert_allclose(y, 1 / 40, rtol=0.25)
    gaussian = curve(plots.density(draws, limits=(-20, 20)), "draws")[1]
    assert gaussian[0] < 0.7 / 40  # what the Beta kernel is for


@pytest.mark.parametrize("num_draws", [1000, 4000])  # summed exactly, and in bins
@pytest.mark.parametrize("sd", [1.0, 0.1, 0.01, 1e-4])
@pytest.mark.parametrize("mean", [0.0, 7.0])
def test_beta_kernel_is_no_wider_than_silvermans_within_wide_bounds(mean, sd, num_draws):
    draws = mean + sd * stats.norm.ppf((np.arange(num_draws) + 0.5) / num_draws)
    draws = np.clip(draws, -10, 10)
    limits = (max(mean - 5 * sd, -10), min(mean + 5 * sd, 10))
    axes = plots.density(draws[None], bounds=(-10, 10), limits=limits)
    expected = np.sqrt(1 + (0.9 * num_draws**-0.2) ** 2)
    assert half_width(*curve(axes, "draws")) / sd == pytest.approx(expected, rel=0.03)


@pytest.mark.parametrize("mean", [0.0, 0.025, 3.3])
def test_beta_kernel_is_seen_between_the_points_of_wide_bounds(mean):
    """Points lie .05 apart, draws within .03; the area is that of a density."""
    draws = mean + 0.01 * stats.norm.ppf((np.arange(4000) + 0.5) / 4000)
    x, y = curve(plots.density(draws[None], bounds=(-10, 10)), "draws")
    np.testing.assert_allclose(trapezoid(y, x), 1.0, atol=0.02)


@pytest.mark.parametrize("scale", [0.1, 0.01])
def test_beta_kernel_is_that_of_the_law_at_a_bound(scale):
    draws = -scale * np.log((np.arange(20_000) + 0.5) / 20_000)
    draws = draws[draws < 1]
    for values in (draws, 1 - draws):
        limits = (0, 3 * scale) if values is draws else (1 - 3 * scale, 1)
        x, y = curve(plots.density(values[None], bounds=(0, 1), limits=limits), "draws")
        law = np.exp(-(x if values is draws else 1 - x) / scale) / scale
        np.testing.assert_allclose(y, law, rtol=0.05)


def test_bounds_inside_wider_limits_end_the_density(rng):
    draws = rng.uniform(size=(1, 100))
    x, y = curve(plots.density(draws, bounds=(0, 1), limits=(-1, 2)), "draws")
    assert (y[(x < 0) | (x > 1)] == 0).all()
    assert (y[(x > 0) & (x < 1)] > 0).all()


@pytest.mark.parametrize(
    "prior",
    [
        dist.Normal(1.0, 2.0),
        dist.Normal(jnp.float32(1.0), jnp.float32(2.0)),
        lambda x: stats.norm.logpdf(x, 1.0, 2.0),
        (np.linspace(-5, 7, 50), stats.norm.pdf(np.linspace(-5, 7, 50), 1.0, 2.0)),
    ],
    ids=["distribution", "float32 distribution", "log density", "pair"],
)
def test_priors(prior, rng):
    x, y = curve(plots.density(rng.normal(size=(1, 50)), prior=prior), "prior")
    np.testing.assert_allclose(y, stats.norm.pdf(x, 1.0, 2.0), rtol=1e-5)


def test_a_bounded_prior_ends_at_its_bounds(rng):
    axes = plots.density(rng.normal(size=(1, 50)), prior=dist.Uniform(-1.0, 1.0), limits=(-3, 3))
    x, y = curve(axes, "prior")
    np.testing.assert_allclose(y, np.where(np.abs(x) <= 1, 0.5, 0.0), atol=1e-6)


def test_a_list_holds_one_prior_for_each_coordinate(rng):
    axes = plots.density(
        rng.normal(size=(1, 50, 2)), prior=[dist.Normal(0.0, 1.0), dist.Normal(5.0, 1.0)]
    )
    for a, mean in zip(axes, (0.0, 5.0), strict=True):
        x, y = curve(a, "prior")
        np.testing.assert_allclose(y, stats.norm.pdf(x, mean), rtol=1e-4, atol=1e-12)


def test_draws_that_are_not_finite_are_left_out_and_counted(rng):
    draws = rng.normal(size=(2, 100))
    clean = plots.density(draws[:, 10:], limits=(-3, 3))
    draws[:, :10] = np.nan
    axes = plots.density(draws, limits=(-3, 3))
    np.testing.assert_allclose(curve(axes, "draws")[1], curve(clean, "draws")[1], rtol=1e-12)
    assert axes.get_title() == "20 of 200 draws not finite (chains 0, 1)"


def test_densities_of_samplers_are_named(rng):
    draws = rng.normal(size=(2, 50))
    draws[0, 3] = np.nan
    axes = plots.density(draws, prior=(np.zeros(2), np.ones(2)), label="MALA")
    plots.density(draws, axes, prior=(np.zeros(2), np.ones(2)), label="RWM")
    names = [text.get_text() for text in axes.get_legend().get_texts()]
    assert names == ["MALA", "prior of MALA", "RWM", "prior of RWM"]
    said = "1 of 100 draws not finite (chain 0)"
    assert axes.get_title() == f"MALA: {said}\nRWM: {said}"


def test_draws_on_the_bounds_count():
    _, y = curve(plots.density(np.array([[0.0, 1.0, 0.5]]), bounds=(0, 1)), "draws")
    assert np.isfinite(y).all()
    np.testing.assert_allclose(y, y[::-1], rtol=1e-5)


@pytest.mark.parametrize("value", [3.0, 0.1, -1234.567, 0.0])
@pytest.mark.parametrize("bounds", [None, (-2000, 2000)])
def test_draws_that_are_all_equal_give_a_spike(value, bounds):
    """Also where rounding gives them a standard deviation that is not zero, as twenty times .1."""
    x, y = curve(plots.density(np.full((2, 10), value), bounds=bounds), "draws")
    assert abs(x[np.argmax(y)] - value) < (0.01 if bounds is None else 10)
    np.testing.assert_allclose(trapezoid(y, x), 1.0, atol=0.05)


def test_a_chain_that_stands_still_is_a_spike_beside_the_others(rng):
    draws = rng.normal(1000.0, 0.1, size=(3, 500))
    draws[1] = 1000.125
    thin = [line for line in plots.density(draws).get_lines() if line.get_label() == "_chain"]
    x, y = thin[1].get_xdata(), thin[1].get_ydata()
    assert half_width(x, y) < 3 * (x[1] - x[0])
    np.testing.assert_allclose(trapezoid(y, x), 1.0, atol=0.05)


def test_draws_on_both_bounds_alone():
    _, y = curve(plots.density(np.array([[0.0] * 30 + [1.0] * 10]), bounds=(0, 1)), "draws")
    assert np.isfinite(y).all()
    assert y[0] > 2 * y[-1] > 0


@pytest.mark.parametrize(
    ("options", "error", "sentence"),
    [
        ({"bounds": (1, 0)}, ValueError, r"bounds must be finite and increasing"),
        ({"bounds": (-0.1, 0.1)}, ValueError, r"lie outside the bounds \(-0.1, 0.1\)"),
        ({"limits": (0.0, np.inf)}, ValueError, r"limits must be finite"),
        ({"bandwidth": 0.0}, ValueError, r"bandwidth must be positive"),
        ({"prior": "normal"}, TypeError, r"but is a str; give one of these"),
        ({"prior": lambda x: x.sum()}, ValueError, r"returned shape \(\) for 401 points"),
        ({"prior": dist.Normal(jnp.zeros(3), 1.0)}, ValueError, r"has shape \(3,\)"),
        ({"prior": [dist.Normal(0.0, 1.0)] * 2}, ValueError, r"list of 2, but .* 1 coordinates"),
        ({"prior": (np.zeros(3), np.zeros(4))}, ValueError, r"two vectors of one length"),
    ],
)
def test_errors_are_sentences(options, error, sentence, rng):
    with pytest.raises(error, match=sentence):
        plots.density(rng.normal(size=(2, 30)), **options)


def test_no_finite_draw_has_no_density():
    with pytest.raises(ValueError, match=r"No draw of w is finite"):
        plots.density(np.full((1, 4), np.nan), names="w")
