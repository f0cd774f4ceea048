"""Tests of experiments.studies.deterministic_vi: the deterministic-variational-inference study: its
data, its scores, and its configs.
"""

import json
import tomllib
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import norm

from experiments.__main__ import main
from experiments.datasets import Split
from experiments.studies.deterministic_vi import curves, layer_times, problem, uci
from experiments.studies.deterministic_vi.fits import Recipe, score, train
from experiments.studies.deterministic_vi.uci import _largest_gain, mean_and_error
from experiments.studies.deterministic_vi.variations import stage_name
from experiments.study import Context
from jaxbnn import dvi
from tests.kit.bits import assert_same

CONFIGS = sorted((Path(__file__).parents[2] / "configs" / "deterministic_vi").glob("*.toml"))
# The only one whose programs take no time to compile; all are run in the long tests.
SHORT = "moments"

pytestmark = pytest.mark.third_party(reason="Optax promotes dtypes; BlackJAX's NUTS")


def test_the_tables_of_uci_are_of_one_recipe():
    """Methods are split into three configs; the recipe, and a set's departures, are the same."""
    tables = [
        tomllib.loads(path.read_text(encoding="utf-8"))
        for path in CONFIGS
        if path.stem in ("uci", "uci_softplus", "uci_fixed")
    ]
    shared = ("seed", "datasets", "num_splits", "predictive_samples", "recipe", "of_dataset")
    for name in shared:
        assert tables[0][name] == tables[1][name] == tables[2][name], name
    of_monte_carlo = [list(table["of_method"].values()) for table in tables]
    assert of_monte_carlo[0] == of_monte_carlo[1] == of_monte_carlo[2]


@pytest.fixture
def small_uci(monkeypatch):
    """Two splits of 24 rows, in place of the files; the last column numbers the rows."""
    generator = np.random.default_rng(0)
    x = np.column_stack([generator.normal(3, 2, size=(24, 2)), np.arange(24.0)])
    y = 10 + 5 * generator.normal(size=24)
    parts = [(np.r_[0:20], np.r_[20:24]), (np.r_[4:24], np.r_[0:4])]

    def uci(name, split):
        rows, rest = parts[split]
        return Split(x[rows], y[rows], x[rest], y[rest])

    monkeypatch.setattr(problem, "uci", uci)
    monkeypatch.setattr(problem, "uci_splits", lambda name: parts)
    return x, y, parts


def test_splits_are_standardised_by_their_own_training_rows(small_uci):
    x, y, parts = small_uci
    splits = problem.whole_splits("yach", 20)
    assert splits.x.shape == (2, 20, 3)
    for one, (kept, test) in enumerate(parts):
        np.testing.assert_allclose(splits.x[one].mean(axis=0), 0, atol=1e-12)
        np.testing.assert_allclose(splits.y[one].std(), 1)
        np.testing.assert_allclose(splits.y_scale[one], y[kept].std())
        expected = (x[test] - x[kept].mean(axis=0)) / x[kept].std(axis=0)
        np.testing.assert_allclose(splits.x_test[one], expected)


@pytest.mark.parametrize(("method", "chosen"), [("DVI-fixed", 0.1), ("MCVI-fixed", 1.0)])
def test_a_prior_s_variance_is_chosen_by_the_score_it_is_judged_by(method, chosen, monkeypatch):
    """MCVI's densities of equation (9) may be NaN where those of its draws are finite."""

    def of_variance(key, method, recipe, splits, count, folder):
        is_large = recipe.fixed_variance == 1.0
        normal = np.nan if is_large else 0.5
        return {"normal": np.array([normal]), "exact": np.array([float(is_large)]),
            "diverged": np.array([False])}  # fmt: skip

    monkeypatch.setattr(uci, "fitted", of_variance)
    monkeypatch.setattr(uci, "validation_splits", lambda name, count: None)
    recipe = uci.UCISettings.model_validate(
        {"datasets": ("yach",), "methods": (method,), "num_splits": 1, "recipe": {"num_updates": 4},
            "fixed_variances": (0.1, 1.0)}
    )  # fmt: skip
    found = uci._tuned(None, method, recipe.recipe, "yach", recipe, None)
    assert found.fixed_variance == chosen


def test_a_curve_with_a_fit_that_diverged_has_no_mean():
    arrays = {"scores": np.array([[1.0, 2.0], [3.0, 0.0]]), "updates": np.array([10, 20]),
        "diverged": np.array([False, False])}  # fmt: skip
    rows = {row.quantity: row.value for row in curves._rows("DVI, yach", arrays)}
    assert rows["test_log_likelihood_at_the_end"] == 1.5
    assert rows["updates_at_the_best_point"] == 10
    lost = curves._rows("DVI, yach", arrays | {"diverged": np.array([False, True])})
    assert all(np.isnan(row.value) for row in lost)


def test_validation_sees_no_test_row(small_uci):
    x, _, parts = small_uci
    splits = problem.validation_splits("yach", 2, fraction=0.25)
    assert splits.y.shape == (2, 15)
    assert splits.y_test.shape == (2, 5)
    for one, (kept, _) in enumerate(parts):
        both = np.concatenate([splits.x[one], splits.x_test[one]])[:, 2]
        # The column of row numbers, up to the affine map that standardising is.
        numbers = np.sort(both)
        np.testing.assert_allclose(np.diff(numbers), np.diff(numbers)[0])
        fitted = np.polyfit(numbers, np.sort(x[kept][:, 2]), 1)
        np.testing.assert_allclose(np.polyval(fitted, numbers), np.sort(x[kept][:, 2]), atol=1e-9)


@pytest.mark.long
def test_scores_of_a_known_q_are_those_of_its_function_in_the_units_of_y():
    # No hidden layer and next to no variance: m = x_1, l = -1.
    generator = np.random.default_rng(1)
    x = generator.normal(size=(2, 9, 2))
    y = x[..., 0] + 0.5 * generator.normal(size=(2, 9))
    splits = problem.Splits(x, y, x, y, np.array([1.0, 4.0]))
    recipe = Recipe(hidden_widths=(), num_updates=4, learning_rate=0.01)

    def watch(algorithm, progress):
        elbos = [algorithm.elbo(*one).elbo for one in _runs(progress.positions, x, y)]
        return {"elbo": np.array(elbos) / 9}

    trained = train(jax.random.key(0), "DVI", recipe, splits, num_chunks=2, watch=watch)
    assert trained.fit.elbo.shape == (2, 2)
    # Four updates in two chunks: the last tenth begins within the second.
    seen = trained.watched["elbo"]
    np.testing.assert_allclose(trained.elbo_change, np.abs(seen[1] - seen[0]), rtol=1e-4)
    w = jnp.broadcast_to(jnp.array([[1.0, 0.0], [0.0, 0.0]]), (2, 2, 2))
    b = jnp.broadcast_to(jnp.array([0.0, -1.0]), (2, 2))
    mean = ({"w": w, "b": b},)
    narrow = jax.tree.map(lambda v: jnp.full_like(v, -12.0), mean)
    # In the second split l has a deviation of 13.5: E e^l is beyond 32 nodes, and beyond float32.
    wide = ({"w": narrow[0]["w"], "b": narrow[0]["b"].at[1, 1].set(np.log(13.5))},)
    q = dvi.FactorisedNormal(mean, wide)
    scores = score(jax.random.key(1), trained.algorithm, "DVI", q, splits, 50)
    variances = np.array([[0.0], [13.5**2]])
    deviations = np.exp(0.5 * (-1 + 0.5 * variances))
    expected = norm.logpdf(y, x[..., 0], deviations).mean(axis=1) - np.log(splits.y_scale)
    np.testing.assert_allclose(scores.normal, expected, atol=1e-4)
    for found in (scores.exact, scores.monte_carlo):
        np.testing.assert_allclose(found[0], expected[0], atol=1e-4)
        assert np.isfinite(found[1])
    rmse = np.sqrt(np.mean((y - x[..., 0]) ** 2, axis=1)) * splits.y_scale
    np.testing.assert_allclose(scores.rmse, rmse, rtol=1e-4)


def _runs(positions, x, y):
    for run in range(len(x)):
        rows = (jnp.asarray(v[run], jnp.float32) for v in (x, y))
        yield jax.tree.map(lambda leaf, run=run: leaf[run], positions), *rows


@pytest.mark.short("4")
@pytest.mark.parametrize("stopped_after", [1, 3, 4])
def test_a_stopped_fit_knows_its_past(stopped_after, tmp_path):
    generator = np.random.default_rng(2)
    x, y = generator.normal(size=(2, 9, 1)), generator.normal(size=(2, 9))
    splits = problem.Splits(x, y, x, y, np.ones(2))
    recipe = Recipe(hidden_widths=(), num_updates=5, learning_rate=0.1, noise_floor=0.1)
    calls = []

    def watch(algorithm, progress):
        calls.append(progress.done)
        if len(calls) == stopped_after + 1 and not is_whole:
            raise KeyboardInterrupt
        return {"done": np.asarray(progress.done), "mean": progress.positions.mean[0]["b"]}

    def run(folder):
        points = {"num_chunks": 5, "watch": watch, "checkpoint": folder}
        return train(jax.random.key(0), "DVI", recipe, splits, **points)

    is_whole = True
    expected = run(tmp_path / "whole")
    calls.clear()
    is_whole = False
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path / "stopped")
    is_whole = True
    found = run(tmp_path / "stopped")
    assert found.seconds > 0
    assert_same(found.fit.positions, expected.fit.positions)
    # What would have been seen when the process ended is lost, but for the end.
    kept = [i for i in range(5) if i != stopped_after or i == 4]
    for name in ("done", "mean"):
        assert_same(found.watched[name], expected.watched[name][kept])
    assert_same(found.elbo_change, expected.elbo_change)


def test_means_errors_and_the_largest_gain_are_paired_by_split():
    values = np.array([1.0, 2.0, 4.0])
    mean, error = mean_and_error(values)
    assert mean == pytest.approx(7 / 3)
    assert error == pytest.approx(values.std(ddof=1) / np.sqrt(3))
    assert mean_and_error(values[:1])[1] is None
    fine, lost = np.zeros(3, bool), np.array([False, True, False])
    found = {
        ("yach", "DVI"): {"normal": values + 0.2, "diverged": fine},
        ("yach", "MCVI"): {"exact": values, "diverged": fine},
        ("bost", "DVI"): {"normal": values, "diverged": fine},
        ("bost", "MCVI"): {"exact": values[:2], "diverged": fine[:2]},  # of the first splits only
        # A fit that was lost is no gain of the other method.
        ("ener", "DVI"): {"normal": values, "diverged": fine},
        ("ener", "MCVI"): {"exact": np.array([1.0, -np.inf, 4.0]), "diverged": lost},
    }
    row = _largest_gain(found, ("yach", "bost", "ener"))
    assert row.value == pytest.approx(0.2)
    assert row.standard_error == pytest.approx(0.0, abs=1e-12)


@pytest.mark.long
def test_timed_layer_has_the_moments_that_its_draws_have():
    key = jax.random.key(2)
    weights = jnp.array([[1.0, -0.5], [0.3, 0.8]])
    deviation = jnp.full((2, 2), 0.2)
    covariance = jnp.array([[[1.0, 0.6], [0.6, 0.5]]])
    inputs = dvi.GaussianMoments(jnp.array([[0.3, -0.2]]), jnp.array([[1.0, 0.5]]), covariance)
    mean, full = layer_times._layer(inputs, weights, deviation, "exact", 8)
    count = 40_000
    lower = jnp.linalg.cholesky(covariance[0])
    draws = inputs.mean + jax.random.normal(key, (count, 2)) @ lower.T
    out = layer_times._by_weights(jax.random.key(3), draws[:, None], weights, deviation)[:, 0]
    # Five and more standard errors of means of a spread near 1.
    np.testing.assert_allclose(mean[0], out.mean(axis=0), atol=0.03)
    np.testing.assert_allclose(full[0], np.cov(np.asarray(out), rowvar=False), atol=0.06)


def test_samples_of_equal_time_are_means_over_sizes():
    """MCVI takes 2 + S, rMCVI a tenth of it; DVI as long as 40 and 90 samples, dDVI as 1 and 0."""
    settings = layer_times.RuntimeSettings(sizes=(8, 16), compared_sizes=(8, 16), samples=(1, 10))
    curves = {
        **{f"MCVI, S = {s}": {8: 2.0 + s, 16: 2.0 + s} for s in (1, 10)},
        **{f"rMCVI, S = {s}": {8: (2.0 + s) / 10, 16: (2.0 + s) / 10} for s in (1, 10)},
        "DVI": {8: 42.0, 16: 92.0},
        "dDVI": {8: 3.0, 16: 1.0},
    }
    rows = layer_times.equal_time_rows(curves, settings)
    found = {(row.quantity, row.setting.split(",")[0]): row for row in rows}
    dvi_row = found["equivalent_mcvi_samples", "runtime of DVI"]
    assert dvi_row.value == pytest.approx(60)
    assert dvi_row.standard_error == pytest.approx(60 * np.log(90 / 40) / 2)
    assert ("equivalent_mcvi_samples", "runtime of dDVI") not in found  # one size is no mean
    # 12 seconds are 118 samples of rMCVI, for 10 of MCVI.
    assert found["sample_ratio", "rMCVI over MCVI at equal runtime"].value == pytest.approx(11.8)


def test_every_variation_has_a_file_of_its_own(tmp_path):
    for path in CONFIGS:
        labels = tomllib.loads(path.read_text()).get("variations", {})
        names = {stage_name("yach", "DVI", label) for label in labels}
        assert len(names) == len(labels)
        for name in names:
            Context("desk", 0, tmp_path).stage(name, dict)


def _params():
    for path in CONFIGS:
        yield pytest.param(path, id=path.stem, marks=[] if path.stem == SHORT else pytest.mark.long)


@pytest.mark.long
@pytest.mark.parametrize("config", list(_params()))
def test_smoke_run_writes_numbers_and_pictures(config, tmp_path, sets_or_skip):
    assert main([str(config), "--scale", "smoke", "--out", str(tmp_path)]) == 0
    folder = tmp_path / "deterministic_vi" / config.stem / "smoke"
    rows = json.loads((folder / "metrics.json").read_text())["rows"]
    values = {(row["quantity"], row["setting"]): row["value"] for row in rows}
    assert all(value is not None for value in values.values())
    assert all(picture.stat().st_size > 5_000 for picture in folder.glob("*.png"))
    assert list(folder.glob("*.png"))
    if config.stem == "uci":
        assert any(row["paper"] is not None for row in rows)
    if config.stem == SHORT:
        # Erratum C1 at |rho| = 0.9, on the corrected table.
        assert 1e-3 < values["largest_error_of_table_1", "relu, rho = -0.9"] < 4e-3
        assert 5e-3 < values["largest_error_of_table_1", "heaviside, rho = -0.9"] < 2e-2
