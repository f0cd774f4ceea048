"""Tests of tabular.posteriors and tabular.samplers: priors as described, and programs that serve
every posterior of their shapes.
"""

from types import SimpleNamespace

import jax
import numpy as np
import pytest
from scipy.stats import gamma, nbinom, norm

from jaxbnn.diagnostics import ess_bulk, split_rhat
from jaxbnn.kernels import pcn
from jaxbnn.tabular import samplers
from jaxbnn.tabular.posteriors import make_posterior, predicted
from jaxbnn.tabular.samplers import run
from jaxbnn.tabular.settings import Settings
from jaxbnn.tabular.verdict import judge_chains
from jaxbnn.targets.hierarchical import HierarchicalPrior
from tests.kit.traces import counting

pytestmark = pytest.mark.third_party(reason="BlackJAX's NUTS and Optax promote dtypes and ranks")
X = np.linspace(-1, 1, 26, dtype=np.float32).reshape(13, 2)
Y = np.sin(2 * X[:, 0])


def settings(sampler="pcn", **more):
    return Settings(sampler, (3,), 2, 10, 8, 0.3, 0)._replace(**more)


def test_weights_have_the_prior_that_is_described():
    posterior = make_posterior("pcn", settings(prior_scale=3.0), X, Y, None)
    (first, _, last), noise = posterior.prior["network"], posterior.prior["log_noise_scale"]
    np.testing.assert_allclose(first["w"].variance, 9 * 4 / 2, rtol=1e-6)  # s = 2, 2 inputs
    np.testing.assert_allclose(last["w"].variance, 9 / 3, rtol=1e-6)
    np.testing.assert_allclose(first["b"].variance, 9, rtol=1e-6)
    assert float(noise.mean) == -1
    counts = make_posterior("pcn", settings(likelihood="poisson"), X, np.ones(13, np.float32), None)
    np.testing.assert_allclose(counts.prior[2]["b"].variance, 25, rtol=1e-6)
    assert isinstance(make_posterior("nuts", settings(), X, Y, None).prior, HierarchicalPrior)


@pytest.mark.parametrize(
    ("likelihood", "name", "mean", "sd"),
    [
        ("gaussian", "log_noise_scale", -1.0, 1.0),
        ("student-t", "log_degrees", 2.7, 0.8),
        ("negative-binomial", "log_concentration", 1.0, 1.5),
        ("ordinal", "cutpoint_gaps", [-1.0, 0.0], 1.5),
    ],
)
def test_what_a_likelihood_learns_has_the_prior_that_pcn_is_told(
    likelihood, name, mean, sd, monkeypatch
):
    told = []

    def watched(*given, **named):
        told.append((*given, named))
        return pcn(*given, **named)

    monkeypatch.setattr(samplers, "pcn", watched)
    y, number = (np.arange(13) % 3, 3) if likelihood == "ordinal" else (np.ones(13, np.float32), 0)
    posterior = make_posterior("pcn", settings(likelihood=likelihood), X, y, number or None)
    np.testing.assert_allclose(posterior.prior[name].mean, mean, rtol=1e-6)
    np.testing.assert_allclose(posterior.prior[name].variance, sd**2, rtol=1e-6)
    samplers._pcn_for(posterior.network, X.shape)({"step_size": 0.3}, posterior)
    ((_, step_size, variances, named),) = told
    assert step_size == 0.3
    np.testing.assert_allclose(named["mean"][name], mean, rtol=1e-6)
    np.testing.assert_allclose(variances[name], np.full(np.shape(mean), sd**2), rtol=1e-6)
    network = posterior.prior["network"][0]["w"]
    np.testing.assert_allclose(variances["network"][0]["w"], network.variance, rtol=1e-6)


def test_gibbs_has_the_prior_that_is_described(monkeypatch):
    network = make_posterior("gibbs", settings("gibbs"), X, Y, None).network
    usual, wide = (samplers._gibbs_for(network, X.shape, 0.3, scale)[0] for scale in (1.0, 3.0))
    for name in ("weight_precision", "bias_precision"):
        found, expected = (np.asarray(getattr(model, name), float) for model in (wide, usual))
        np.testing.assert_allclose(found, expected / 9, rtol=1e-6)
    assert usual.noise_variance[-1] == pytest.approx(0.3**2)
    asked = []

    def stop(*arguments):
        asked.append(arguments[-1])
        raise KeyboardInterrupt

    monkeypatch.setattr(samplers, "_gibbs_for", stop)
    for more in ({}, {"prior_scale": 3.0}):
        chosen = settings("gibbs", **more)
        with pytest.raises(KeyboardInterrupt):
            run("gibbs", make_posterior("gibbs", chosen, X, Y, None), chosen)
    assert asked == [1.0, 3.0]


@pytest.mark.parametrize(("prior_scale", "acceptance"), [(None, 0.9), (1.0, 0.8)])
def test_steps_of_learnt_scales_are_shorter(prior_scale, acceptance, monkeypatch):
    asked = []

    def stop(*arguments, target_acceptance_rate, **more):
        asked.append(target_acceptance_rate)
        raise KeyboardInterrupt

    monkeypatch.setattr(samplers, "window_adaptation", stop)
    chosen = settings("nuts", prior_scale=prior_scale)
    with pytest.raises(KeyboardInterrupt):
        run("nuts", make_posterior("nuts", chosen, X, Y, None), chosen)
    assert asked == [acceptance]


@pytest.mark.parametrize("number", [0, 3])
def test_divergences_are_told_of_how_many_trajectories(number, monkeypatch):
    flags = np.arange(2000).reshape(4, 500) < number
    draws = SimpleNamespace(
        positions={}, infos=SimpleNamespace(is_divergent=flags), interrupted=False
    )
    monkeypatch.setattr(samplers, "sample", lambda *_, **__: draws)
    asked = settings("nuts")
    notes = run("nuts", make_posterior("nuts", asked, X, Y, None), asked).notes
    assert notes == (["3 of the 2,000 kept trajectories diverged."] if number else [])


def test_classes_are_predicted_by_their_probabilities():
    labels = np.arange(13, dtype=np.int32) % 3
    posterior = make_posterior("pcn", settings(), X, labels, 3)
    position = posterior.sample_prior(jax.random.key(0))
    found = predicted(posterior, X)(position)
    assert found.shape == (13, 3)
    np.testing.assert_allclose(found.sum(axis=1), 1, rtol=1e-5)
    numbers = make_posterior("gibbs", settings("gibbs"), X, Y, None)
    assert predicted(numbers, X)(numbers.sample_prior(jax.random.key(0))).shape == (13, 1)


def test_noise_by_the_row_is_the_networks_second_output():
    heteroscedastic = settings(likelihood="heteroscedastic")
    posterior = make_posterior("pcn", heteroscedastic, X, Y, None)
    position = posterior.sample_prior(jax.random.key(0))
    found = predicted(posterior, X)(position)
    outputs = posterior.outputs(position, X)
    scale = np.log1p(np.exp(outputs[:, 1])) + 1e-3
    np.testing.assert_allclose(found, np.stack([outputs[:, 0], np.log(scale)], 1), rtol=1e-5)
    density = norm.logpdf(Y, outputs[:, 0], scale)
    np.testing.assert_allclose(posterior.log_likelihood(position), density, rtol=1e-5)
    learnt = make_posterior("nuts", heteroscedastic, X, Y, None)
    assert set(learnt.sample_prior(jax.random.key(0))) == {"network", "log_precision"}


@pytest.mark.parametrize(
    ("hidden", "variances"),
    [((), [36 / 2]), ((5,), [1 / 2, 9 / 5]), ((5, 4), [1 / 2, 1 / 5, 9 / 4])],
)
def test_of_classes_the_last_layer_is_larger(hidden, variances):
    classes = (Y > 0).astype(np.int32)
    asked = settings(prior_scale=3.0)._replace(hidden=hidden)
    prior = make_posterior("pcn", asked, X, classes, 2).prior
    found = [np.ravel(layer["w"].variance)[0] for layer in prior if "w" in layer]
    np.testing.assert_allclose(found, 9 * np.array(variances), rtol=1e-6)
    given = asked._replace(weight_scales=(2.0, 1.0))
    first = make_posterior("pcn", given, X, classes, 2).prior[0]["w"]
    np.testing.assert_allclose(first.variance, 9 * 4 / 2, rtol=1e-6)


@pytest.mark.short("hidden1")
@pytest.mark.parametrize("hidden", [(), (5,)])
def test_scales_of_lines_between_classes_have_a_heavier_tail(hidden):
    """Quartiles of tau, by draws of the prior, of Gamma(1, 1) and of Gamma(2, 4)."""
    classes = (Y > 0).astype(np.int32)
    for y, number in ((classes, 2), (Y, None)):
        posterior = make_posterior("nuts", settings("nuts")._replace(hidden=hidden), X, y, number)
        draws = posterior.sample_prior(jax.random.key(0), (10_000,))
        tau = np.exp(draws["log_precision"][0]["w"])
        shape, rate = (1, 1) if number and not hidden else (2, 4)
        below = [np.mean(tau < gamma.ppf(q, shape, scale=1 / rate)) for q in (0.25, 0.5, 0.75)]
        np.testing.assert_allclose(below, [0.25, 0.5, 0.75], atol=5 * 0.5 / 100)


def test_noise_of_a_row_is_at_least_what_is_asked_for():
    asked = settings(likelihood="heteroscedastic", least_noise=0.05)
    posterior = make_posterior("pcn", asked, X, Y, None)
    position = posterior.sample_prior(jax.random.key(0))
    outputs = posterior.outputs(position, X)
    scale = posterior.predictive(position, X).variance ** 0.5
    np.testing.assert_allclose(scale - np.log1p(np.exp(outputs[:, 1])), 0.05, rtol=1e-4)


def test_another_posterior_of_these_shapes_compiles_nothing(monkeypatch):
    kernel = counting(pcn)
    monkeypatch.setattr(samplers, "pcn", kernel)
    first = run("pcn", make_posterior("pcn", settings(), X, Y, None), settings())
    traced = kernel.calls
    other = settings(prior_scale=0.5, seed=1)
    second = run("pcn", make_posterior("pcn", other, X[::-1].copy(), 2 * Y, None), other)
    assert kernel.calls == traced > 0
    assert first.draws.positions["log_noise_scale"].shape == (2, 8)
    assert not np.array_equal(
        first.positions["log_noise_scale"], second.positions["log_noise_scale"]
    )
    again = run("pcn", make_posterior("pcn", settings(), X, Y, None), settings())
    jax.tree.map(np.testing.assert_array_equal, again.positions, first.positions)


@pytest.mark.long
@pytest.mark.parametrize("sampler", ["nuts", "ensemble", "gibbs", "dvi"])
def test_the_same_seed_draws_the_same(sampler):
    posterior = make_posterior(sampler, settings(sampler), X, Y, None)
    first, second = (run(sampler, posterior, settings(sampler)) for _ in range(2))
    jax.tree.map(np.testing.assert_array_equal, first.positions, second.positions)
    assert (first.draws is None) == (sampler == "dvi")


@pytest.mark.parametrize(("warmup", "is_unfinished"), [(1, True), (150, False)])
def test_updates_that_ended_too_early_are_told(warmup, is_unfinished):
    asked = settings("dvi", warmup=warmup)
    fit = run("dvi", make_posterior("dvi", asked, X, Y, None), asked)
    assert fit.is_unfinished == is_unfinished
    assert ("still rising" in fit.notes[0]) == is_unfinished


def of_many_rows(warmup, number=10_000):
    """A fit by dvi to a table with many rows for its few updates."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(number, 2)).astype(np.float32)
    y = (np.sin(2 * x[:, 0]) + 0.3 * rng.normal(size=number)).astype(np.float32)
    asked = settings("dvi", warmup=warmup)
    return run("dvi", make_posterior("dvi", asked, x, y, None), asked)


def test_of_many_rows_the_end_of_the_updates_is_seen():
    fit = of_many_rows(warmup=4)
    assert fit.is_unfinished
    assert "over the last quarter of the updates: still rising" in fit.notes[0]
    assert "nan" not in fit.notes[0]


def test_what_cannot_be_told_is_taken_for_unfinished(monkeypatch):
    monkeypatch.setattr(samplers, "_LARGEST_BATCH", 500)
    fit = of_many_rows(warmup=4)
    assert fit.is_unfinished
    assert "after 40 updates, too few for 10,000 rows to tell" in fit.notes[0]
    assert "nan" not in fit.notes[0]


@pytest.mark.parametrize("updates", [10, 40, 4_000])
def test_batches_of_dvi_leave_four_epochs(updates):
    """Where batches of 500 do, they stay."""
    for number in np.unique(np.geomspace(1_001, 2_000_000, 500).astype(int)).tolist():
        batch = samplers._batch_size(number, updates)
        epochs = np.ceil(updates / (number // batch))
        assert epochs >= 4 or batch == 10_000
        usual = np.ceil(updates / (number // 500))
        assert (batch == 500) == (usual >= 4)
    assert samplers._batch_size(1_000, updates) == 1_000


def test_the_gain_at_the_end_is_that_of_the_last_quarter():
    rng = np.random.default_rng(0)
    for length in range(3, 60):
        elbo = rng.normal(size=length)
        half = length // 2
        last = -(-half // 2)
        expected = elbo[length - last :].mean() - elbo[half : length - last].mean()
        assert samplers._gain_at_the_end(elbo) == pytest.approx(expected)
    assert all(np.isnan(samplers._gain_at_the_end(np.zeros(length))) for length in (1, 2))


def counts_about(mean, hidden, likelihood, **more):
    """A posterior of large counts, and positions about its mass."""
    y = np.random.default_rng(0).poisson(mean * np.exp(0.1 * X[:, 0])).astype(np.float32)
    asked = settings("nuts", hidden=hidden, likelihood=likelihood, **more)
    return make_posterior("nuts", asked, X, y, None)


@pytest.mark.parametrize("hidden", [(), (3,)])
@pytest.mark.parametrize("likelihood", ["poisson", "negative-binomial"])
@pytest.mark.parametrize("prior_scale", [None, 1.0])
def test_log_densities_of_large_counts_are_differences_from_their_mean(
    hidden, likelihood, prior_scale
):
    posterior = counts_about(1e6, hidden, likelihood, prior_scale=prior_scale)
    reference = samplers._reference(posterior)
    outputs = posterior.outputs(reference, X)
    np.testing.assert_allclose(outputs, np.log(posterior.y.mean()), rtol=1e-5)
    of_numbers = make_posterior("nuts", settings("nuts"), X, Y, None)
    assert not any(np.any(leaf) for leaf in jax.tree.leaves(samplers._reference(of_numbers)))


def test_rounding_of_large_counts_is_far_below_a_nat():
    """In float32 against float64, along the bias: .0005 nats, and 20 from a network of zeros."""
    posterior = counts_about(1e6, (), "poisson", prior_scale=1.0)
    (layer,) = samplers._reference(posterior)
    log_density = jax.jit(posterior.log_density_from((layer,)))
    y, errors = np.asarray(posterior.y, float), []
    for step in np.linspace(-2, 2, 41) / np.sqrt(y.sum()):
        bias = layer["b"] + np.float32(step)
        found = float(log_density(({"w": layer["w"], "b": bias},)))
        at, start = np.float64(bias[0]), np.float64(layer["b"][0])
        exact = np.sum(y * (at - start) - (np.exp(at) - np.exp(start)))
        errors.append(found - (exact - (at**2 - start**2) / 50))
    assert np.max(np.abs(errors)) < 0.05


@pytest.mark.long
@pytest.mark.parametrize("seed", range(4))
def test_a_line_of_large_counts_has_its_posterior(seed):
    """Against the Gaussian that the posterior is: means within .3 sd, spreads within a fifth.

    From a network of zeros, seeds 1 and 3 were believed with means .1 to .4 sd away, and the others
    not believed.
    """
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(100, 1))
    x = ((x - x.mean()) / x.std()).astype(np.float32)
    y = rng.poisson(1e5 * np.exp(0.1 * x[:, 0])).astype(np.float32)
    rows, precision = np.column_stack([np.ones(100), x.astype(float)]), np.diag([1 / 25, 1 / 4])
    mode = np.array([np.log(1e5), 0.1])
    for _ in range(50):
        mean = np.exp(rows @ mode)
        hessian = rows.T @ (mean[:, None] * rows) + precision
        mode = mode + np.linalg.solve(hessian, rows.T @ (y - mean) - precision @ mode)
    sd = np.sqrt(np.diag(np.linalg.inv(hessian)))
    asked = Settings("nuts", (), 4, 400, 400, 0.3, seed, "poisson", 1.0)
    posterior = make_posterior("nuts", asked, x, y.astype(np.float32), None)
    fitted = run("nuts", posterior, asked)
    assert judge_chains("nuts", fitted, posterior, x).is_good
    (layer,) = fitted.positions
    for found, at, scale in ((layer["b"], mode[0], sd[0]), (layer["w"], mode[1], sd[1])):
        z = (np.asarray(found, float).ravel() - at) / scale
        assert abs(z.mean()) < 0.3
        assert 0.8 < z.std() < 1.2


def moments(loss, near, scale, num_draws=2_000):
    """Means and standard deviations (k,) of exp(-loss), about `near` and a Gaussian to `scale`.

    By Newton's method, and importance sampling from the Gaussian at the mode.
    """
    at, units = np.zeros(len(near)), 0.2 * np.eye(len(near))

    def slopes(z):
        return np.array(
            [loss(near + scale * (z + u)) - loss(near + scale * (z - u)) for u in units]
        )

    for _ in range(10):
        hessian = np.array([slopes(at + u) - slopes(at - u) for u in units]) / 0.4**2
        at = at - np.linalg.solve(hessian, slopes(at) / 0.4)
    normals = np.random.default_rng(0).normal(size=(num_draws, len(near)))
    draws = near + scale * (at + normals @ np.linalg.cholesky(np.linalg.inv(hessian)).T)
    heights = np.sum(normals**2, axis=1) / 2 - np.array([loss(draw) for draw in draws])
    weights = np.exp(heights - heights.max()) / np.sum(np.exp(heights - heights.max()))
    mean = weights @ draws
    return mean, np.sqrt(weights @ (draws - mean) ** 2)


@pytest.mark.long
@pytest.mark.parametrize("num_rows", [100, 1_000])
@pytest.mark.parametrize("seed", range(2))
def test_a_line_of_large_varying_counts_has_its_posterior(seed, num_rows):
    """Counts of 1e5 with concentration 1e4: means within .3 sd, spreads within a fifth."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(num_rows, 1))
    x = ((x - x.mean()) / x.std()).astype(np.float32)
    mean, r = 1e5 * np.exp(0.1 * x[:, 0].astype(float)), 1e4
    y = rng.negative_binomial(r, r / (r + mean)).astype(np.float32)

    def loss(at):
        bias, slope, log_r = at
        r, mean = np.exp(log_r), np.exp(bias + slope * x[:, 0].astype(float))
        prior = bias**2 / 25 + slope**2 / 4 + (log_r - 1) ** 2 / 1.5**2
        return prior / 2 - nbinom.logpmf(y.astype(float), r, r / (r + mean)).sum()

    scale = np.sqrt(np.array([1e-4, 1e-4, 2]) / num_rows)
    expected, sds = moments(loss, np.log([1e5, np.exp(0.1), r]), scale)
    asked = Settings("nuts", (), 4, 400, 400, 0.3, seed, "negative-binomial", 1.0)
    posterior = make_posterior("nuts", asked, x, y.astype(np.float32), None)
    fitted = run("nuts", posterior, asked)
    assert judge_chains("nuts", fitted, posterior, x).is_good
    (layer,) = fitted.positions["network"]
    leaves = (layer["b"], layer["w"], fitted.positions["log_concentration"])
    for found, at, sd in zip(leaves, expected, sds, strict=True):
        z = (np.asarray(found, float).ravel() - at) / sd
        assert abs(z.mean()) < 0.3
        assert 0.8 < z.std() < 1.2


@pytest.mark.parametrize(("sampler", "each"), [("nuts", 1), ("pcn", 20), ("gibbs", 5)])
def test_kept_draws_are_as_many_steps_apart_as_is_told(sampler, each, monkeypatch):
    asked = []

    def stop(*given, num_warmup, thinning=1, **more):
        asked.append((given[3], num_warmup, thinning))
        raise KeyboardInterrupt

    monkeypatch.setattr(samplers, "sample", stop)
    chosen = settings(sampler)
    with pytest.raises(KeyboardInterrupt):
        run(sampler, make_posterior(sampler, chosen, X, Y, None), chosen)
    assert asked == [(8, 10 * each, each)]


@pytest.mark.parametrize("number", [150, pytest.param(400, marks=pytest.mark.long)])
def test_a_line_with_categories_settles(number, rng):
    """Bias and categories are known as sums alone; the noise is small, so that the ridge is narrow.

    The noise had 15 to 35 effective draws of 1,600, and R-hats of 1.1 and 1.2. At full size it has
    thousands.
    """
    area, kind = rng.normal(size=160), rng.integers(3, size=160)
    x = np.column_stack([area, *(kind == k for k in range(3))]).astype(np.float32)
    y = area + np.array([0.0, 0.2, -0.1])[kind] + 0.05 * rng.normal(size=160)
    asked = settings("nuts", hidden=(), chains=4, warmup=number, samples=number)
    posterior = make_posterior("nuts", asked, x, y.astype(np.float32), None)
    fitted = run("nuts", posterior, asked)
    assert fitted.draws.parameters["inverse_mass_matrix"].ndim == 3
    assert split_rhat(fitted.positions["log_noise_scale"]) < 1.05
    assert ess_bulk(fitted.positions["log_noise_scale"]) > number
    assert ess_bulk(fitted.positions["network"][0]["b"]) > number


def test_a_network_and_a_long_line_have_a_diagonal_metric(monkeypatch):
    given = []

    def stop(*arguments, parameters, **more):
        given.append(parameters["inverse_mass_matrix"].shape)
        raise KeyboardInterrupt

    monkeypatch.setattr(samplers, "sample", stop)
    for hidden, columns, warmup in [((3,), 2, 400), ((), 2, 400), ((), 2, 8), ((), 120, 400)]:
        asked = settings("nuts", hidden=hidden, warmup=warmup)
        x = np.ones((13, columns), np.float32)
        with pytest.raises(KeyboardInterrupt):
            run("nuts", make_posterior("nuts", asked, x, Y, None), asked)
    # Weights, biases, two precisions a layer, the noise.
    assert given == [(2, 18), (2, 6, 6), (2, 6), (2, 124)]
