"""Tests of estimators.base, estimators.classifier, estimators.regressor, estimators.rows and
estimators.scaling: predictions in the target's units, reproducible, and in scikit-learn's tools.
"""

import copy
import pickle
import subprocess
import sys
import warnings

import jax
import numpy as np
import pytest
from scipy.special import logsumexp
from scipy.stats import norm

import jaxbnn
from jaxbnn.prediction import predictions
from jaxbnn.tabular.verdict import Verdict

sklearn = pytest.importorskip("sklearn", reason="pip install 'jaxbnn[sklearn]'")

import joblib  # noqa: E402
from sklearn.base import clone  # noqa: E402
from sklearn.exceptions import ConvergenceWarning  # noqa: E402
from sklearn.model_selection import GridSearchCV, cross_val_score  # noqa: E402
from sklearn.pipeline import make_pipeline  # noqa: E402
from sklearn.preprocessing import PolynomialFeatures  # noqa: E402
from sklearn.utils.estimator_checks import _NotAnArray  # noqa: E402

from jaxbnn.estimators import BayesianClassifier, BayesianRegressor, base, rows  # noqa: E402
from jaxbnn.estimators import regressor as regressor_module  # noqa: E402
from jaxbnn.estimators.classifier import _ordered_categories  # noqa: E402
from jaxbnn.estimators.scaling import learn_scaling  # noqa: E402
from jaxbnn.tabular.candidates import Candidate  # noqa: E402
from jaxbnn.tabular.settings import ONE_LAYER  # noqa: E402
from tests.kit.bits import assert_same  # noqa: E402
from tests.sampling.small_run import stop_after  # noqa: E402

pytestmark = [
    pytest.mark.third_party(reason="users run scikit-learn without strict checks"),
    pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning"),
]
TINY = {"hidden": (3,), "sampler": "pcn", "chains": 2, "warmup": 40, "samples": 30}
RNG = np.random.default_rng(0)
X = RNG.uniform(-2, 2, (24, 2))
Y = 100 * np.sin(X[:, 0]) + 5 * RNG.normal(size=24) + 300
LABELS = np.where(X[:, 0] > 0.5, "warm", np.where(X[:, 0] > -0.5, "mild", "cold"))
NEW = RNG.uniform(-2, 2, (9, 2))


def regressor(**more):
    return BayesianRegressor(**{**TINY, "random_state": 0, **more})


def classifier(**more):
    return BayesianClassifier(**{**TINY, "random_state": 0, **more})


@pytest.fixture(scope="module")
def numbers():
    return regressor().fit(X, Y)


@pytest.fixture(scope="module")
def classes():
    return classifier().fit(X, LABELS)


def test_predictions_are_in_the_units_of_the_target(numbers):
    """Of powers of two even the last digits are the same."""
    mean, sd = numbers.predict(NEW, return_std=True)
    assert numbers.score(X, Y) > 0.5
    assert 150 < mean.min() < mean.max() < 450
    other = regressor().fit(4 * X, 1024 * Y)
    np.testing.assert_array_equal(other.predict(4 * NEW), 1024 * mean)
    np.testing.assert_array_equal(other.predict(4 * NEW, return_std=True)[1], 1024 * sd)
    ends = numbers.predict_interval(NEW, level=0.5)
    np.testing.assert_array_equal(other.predict_interval(4 * NEW, level=0.5), 1024 * ends)
    np.testing.assert_array_equal(other.sample_y(4 * NEW, 3), 1024 * numbers.sample_y(NEW, 3))
    lost = numbers.log_score(X, Y) - other.log_score(4 * X, 1024 * Y)
    assert lost == pytest.approx(np.log(1024), rel=1e-6)


def test_the_log_score_is_that_of_the_mixture(numbers):
    posterior, draws = numbers.posterior_, numbers.draws_.positions
    outputs = jax.vmap(jax.vmap(lambda p: posterior.outputs(p, posterior.x)))(draws)
    means = np.asarray(outputs, float).reshape(-1, 24) * Y.std() + Y.mean()
    sds = np.exp(np.asarray(draws["log_noise_scale"], float)).reshape(-1, 1) * Y.std()
    expected = np.mean(logsumexp(norm.logpdf(Y, means, sds), axis=0) - np.log(60))
    assert numbers.log_score(X, Y) == pytest.approx(expected, abs=1e-4)
    np.testing.assert_allclose(numbers.predict(X), means.mean(axis=0), rtol=1e-4)
    np.testing.assert_allclose(
        numbers.predict(X, return_std=True)[1],
        np.sqrt(means.var(axis=0) + (sds**2).mean()),
        rtol=1e-3,
    )


def test_simulated_targets_follow_the_predictions(numbers):
    """Means, spreads, intervals, and that a column is of one draw of the weights."""
    pair = np.repeat(NEW[:1], 2, axis=0)
    found = numbers.sample_y(pair, 20_000, random_state=1)
    assert found.shape == (2, 20_000)
    mean, sd = (part[0] for part in numbers.predict(pair, return_std=True))
    np.testing.assert_allclose(found.mean(axis=1), mean, atol=5 * sd / 20_000**0.5)
    np.testing.assert_allclose(found.std(axis=1), sd, rtol=0.05)
    lower, upper = numbers.predict_interval(pair, level=0.8)[0]
    inside = np.mean((found[0] > lower) & (found[0] < upper))
    assert inside == pytest.approx(0.8, abs=5 * 0.4 / 20_000**0.5)
    epistemic = predictions.predict(
        numbers.draws_, numbers.x_scaling_.standardised(pair), numbers.posterior_
    ).epistemic[0]
    together = np.cov(found)[0, 1] / Y.var()
    assert together == pytest.approx(epistemic, abs=5 * sd**2 / Y.var() / 20_000**0.5)
    again = numbers.sample_y(pair, 4, random_state=np.random.RandomState(1))
    np.testing.assert_array_equal(again, numbers.sample_y(pair, 4, random_state=1))


def test_probabilities_and_classes_agree(classes):
    assert classes.classes_.tolist() == ["cold", "mild", "warm"]
    found = classes.predict_proba(X)
    np.testing.assert_allclose(found.sum(axis=1), 1, rtol=1e-12)
    np.testing.assert_array_equal(classes.predict(X), classes.classes_[found.argmax(axis=1)])
    assert classes.score(X, LABELS) > 0.6
    of_label = found[np.arange(24), np.searchsorted(classes.classes_, LABELS)]
    assert classes.log_score(X, LABELS) == pytest.approx(np.log(of_label).mean(), abs=1e-5)
    drawn = classes.sample_y(NEW, 20_000)
    shares = np.stack([(drawn == name).mean(axis=1) for name in classes.classes_], axis=1)
    np.testing.assert_allclose(shares, classes.predict_proba(NEW), atol=5 * 0.5 / 20_000**0.5)
    with pytest.raises(ValueError, match="'hot', a class that fit has not seen"):
        classes.log_score(X[:1], ["hot"])


def test_ordinal_classes_have_the_order_of_their_categories():
    """Not the alphabet's; columns and classes stay sorted."""
    pandas = pytest.importorskip("pandas")
    settings = {"likelihood": "ordinal", "hidden": (), "sampler": "pcn", "samples": 60}
    names = np.array(["low", "mid", "high"])
    codes = np.digitize(X[:, 0], [-0.7, 0.7])
    y = pandas.Categorical(names[codes], categories=["none", *names], ordered=True)
    expected = classifier(**settings).fit(X, codes)
    found = classifier(**settings).fit(X, y)
    assert found.classes_.tolist() == ["high", "low", "mid"]
    assert "in the order of y's categories: low < mid < high." in found.notes_[-1]
    proba = found.predict_proba(NEW)
    np.testing.assert_allclose(proba, expected.predict_proba(NEW)[:, [2, 0, 1]], rtol=1e-6)
    for other in (pandas.Series(y), pandas.DataFrame({"y": y})):
        assert _ordered_categories(other) == ["none", *names]
    assert _ordered_categories(y.as_unordered()) is None
    assert _ordered_categories(_NotAnArray(codes)) is None  # an array's functions are not called
    assert found.log_score(X, y) == pytest.approx(expected.log_score(X, codes))
    of_class = found.predict_proba(X)[np.arange(24), np.array([1, 2, 0])[codes]]
    assert found.log_score(X, y) == pytest.approx(np.log(of_class).mean(), rel=1e-5)
    np.testing.assert_array_equal(found.sample_y(NEW, 3), names[expected.sample_y(NEW, 3)])
    np.testing.assert_array_equal(found.predict(NEW), names[expected.predict(NEW)])
    assert "in this order: 0 < 1 < 2 (" in expected.notes_[-1]


def test_a_row_is_predicted_as_it_is_alone_and_nothing_compiles(numbers):
    numbers.predict(NEW), numbers.sample_y(NEW, 2)
    compiled = predictions._run._cache_size(), rows._simulate._cache_size()
    many = np.tile(NEW, (30, 1))
    together = numbers.predict(many)
    alone = np.concatenate([numbers.predict(row[None]) for row in NEW])
    np.testing.assert_array_equal(together, np.tile(alone, 30))
    numbers.sample_y(many, 2)
    assert (predictions._run._cache_size(), rows._simulate._cache_size()) == compiled


@pytest.mark.long
def test_random_states(numbers):
    mean = numbers.predict(NEW)
    np.testing.assert_array_equal(regressor().fit(X, Y).predict(NEW), mean)
    state = lambda: regressor(random_state=np.random.RandomState(3)).fit(X, Y)  # noqa: E731
    other = state().predict(NEW)
    np.testing.assert_array_equal(state().predict(NEW), other)
    assert not np.array_equal(other, mean)
    one, two = (regressor(random_state=None).fit(X, Y).predict(NEW) for _ in range(2))
    assert not np.array_equal(one, two)


def test_copies_predict_the_same(numbers, classes, tmp_path):
    joblib.dump(numbers, tmp_path / "numbers")
    for found in (
        pickle.loads(pickle.dumps(numbers)),
        joblib.load(tmp_path / "numbers"),
        copy.deepcopy(numbers),
    ):
        np.testing.assert_array_equal(found.predict(NEW), numbers.predict(NEW))
        assert found.log_score(X, Y) == numbers.log_score(X, Y)
        assert str(found.verdict_) == str(numbers.verdict_)
    loaded = pickle.loads(pickle.dumps(classes))
    np.testing.assert_array_equal(loaded.predict_proba(NEW), classes.predict_proba(NEW))
    new = clone(numbers)
    assert new.get_params() == numbers.get_params()
    assert not hasattr(new, "draws_")


def test_the_verdict_is_an_attribute_and_a_warning(monkeypatch):
    with pytest.warns(ConvergenceWarning, match="Do not believe it yet: .* take sampler='nuts'"):
        found = regressor().fit(X, Y)
    assert not found.verdict_.is_good
    assert found.verdict_.numbers["rhat"] > 1.05
    monkeypatch.setattr(base, "judge_chains", lambda *_: Verdict(["Believe."], {}))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert regressor().fit(X, Y).verdict_.is_good


def test_pipelines_grids_and_folds():
    """Folds of one size share one compiled sampler."""
    grid = GridSearchCV(regressor(), {"prior_scale": [0.5, 1.0]}, cv=2, error_score="raise")
    assert set(grid.fit(X, Y).best_params_) == {"prior_scale"}
    assert np.isfinite(cross_val_score(regressor(), X, Y, cv=2, error_score="raise")).all()
    pipeline = make_pipeline(PolynomialFeatures(1, include_bias=False), regressor()).fit(X, Y)
    np.testing.assert_array_equal(pipeline.predict(NEW), regressor().fit(X, Y).predict(NEW))
    assert pipeline.predict(NEW, return_std=True)[1].shape == (9,)


@pytest.mark.long
def test_a_grid_in_two_processes_scores_the_same():
    scores = [
        GridSearchCV(regressor(), {"hidden": [(3,), (5,)]}, cv=2, n_jobs=count, refit=False)
        .fit(X, Y)
        .cv_results_["mean_test_score"]
        for count in (None, 2)
    ]
    np.testing.assert_array_equal(*scores)
    assert scores[0][0] != scores[0][1]


def test_named_columns(numbers):
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(X, columns=["sun", "wind"])
    found = regressor().fit(frame, Y)
    assert found.feature_names_in_.tolist() == ["sun", "wind"]
    np.testing.assert_array_equal(found.predict(frame), numbers.predict(X))


def test_draws_for_arviz(numbers):
    data = jaxbnn.interop.arviz.to_arviz(
        numbers.draws_, numbers.posterior_, coords={"layer0_in": ["sun", "wind"]}
    )
    assert data.posterior["network.0.w"].shape == (2, 30, 2, 3)
    assert data.log_likelihood["y"].shape == (2, 30, 24)
    assert "2 chains" in repr(numbers.draws_)


def test_a_constant_column_and_a_constant_target_are_no_trouble():
    scaling = learn_scaling(np.array([[1.0, 7.0], [3.0, 7.0]]))
    assert scaling.standardised(np.array([[1.0, 7.0]])).tolist() == [[-1.0, 0.0]]
    np.testing.assert_array_equal(scaling.in_units([[-1.0, 0.0]]), [[1.0, 7.0]])
    assert learn_scaling(np.full(3, 5.0)).sd == 1


def test_another_value_where_all_were_equal_is_not_looked_at():
    model = regressor().fit(np.column_stack([X, np.full(24, 7.0)]), Y)
    one, other = (model.predict(np.column_stack([NEW, np.full(9, v)])) for v in (7.0, 7e5))
    np.testing.assert_array_equal(one, other)


def test_a_fit_that_was_stopped_goes_on(monkeypatch, tmp_path):
    real, whole = base.run, regressor().fit(X, Y)

    def stopped(sampler, posterior, settings, progress, checkpoint):
        return real(sampler, posterior, settings, stop_after(1), checkpoint)

    monkeypatch.setattr(base, "run", stopped)
    with pytest.raises(KeyboardInterrupt):
        regressor(checkpoint=tmp_path / "fit").fit(X, Y)
    assert any((tmp_path / "fit").glob("*.nc"))
    monkeypatch.setattr(base, "run", real)
    again = regressor(checkpoint=tmp_path / "fit").fit(X, Y)
    assert_same(again.draws_.positions, whole.draws_.positions)
    with pytest.raises(jaxbnn.sampling.BadCheckpoint, match="belongs to a run with another"):
        regressor(checkpoint=tmp_path / "fit").fit(X, Y + np.arange(24))


def test_a_fit_that_fails_leaves_the_one_before(monkeypatch):
    model, other = regressor().fit(X, Y), classifier().fit(X, LABELS)
    before, shares = model.predict(NEW), other.predict_proba(NEW)

    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(base, "run", interrupted)
    with pytest.raises(KeyboardInterrupt):
        model.fit(10 * X, Y - 1000)
    with pytest.raises(KeyboardInterrupt):
        other.fit(10 * X, np.where(X[:, 0] > 0, "here", "there"))
    assert_same(model.predict(NEW), before)
    assert_same(other.predict_proba(NEW), shares)
    assert list(other.classes_) == ["cold", "mild", "warm"]


def test_a_warning_that_is_an_error_leaves_a_whole_fit():
    """A filter may make an error of the verdict: what was fitted is there, in its own units."""
    model, other = regressor().fit(X, Y), classifier().fit(X, LABELS)
    labels = np.where(X[:, 0] > 0, "here", "there")
    with warnings.catch_warnings():
        warnings.simplefilter("error", ConvergenceWarning)
        with pytest.raises(ConvergenceWarning):
            model.fit(X, 1000 * Y)
        with pytest.raises(ConvergenceWarning):
            other.fit(X, labels)
        with pytest.raises(ConvergenceWarning):
            (first := classifier()).fit(X, labels)
    assert 1e5 < np.abs(model.predict(X)).mean() < 1e6
    assert set(other.predict(X)) <= {"here", "there"}
    assert set(first.predict(X)) <= {"here", "there"}


def test_a_log_score_of_counts_refuses_what_is_none():
    counts = np.round(np.abs(Y))
    model = regressor(likelihood="poisson").fit(X, counts)
    assert np.isfinite(model.log_score(X, counts))
    for wrong in (counts + 0.5, -1 - counts):
        with pytest.raises(ValueError, match=r"takes counts, .* y holds others; score counts"):
            model.log_score(X, wrong)


def test_a_refused_fit_leaves_the_columns_of_the_one_before():
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(X, columns=["a", "b"])
    model = classifier().fit(frame, LABELS)
    before = model.predict_proba(frame)
    with pytest.raises(ValueError, match="one class only"):
        model.fit(frame[["b", "a"]], ["warm"] * 24)
    assert_same(model.predict_proba(frame), before)
    with pytest.raises(ValueError, match="feature names"):
        model.predict_proba(frame[["b", "a"]])
    number = regressor().fit(X, Y)
    with pytest.raises(ValueError, match="takes counts"):
        number.set_params(likelihood="poisson").fit(np.hstack([X, X]), Y)
    assert number.predict(X).shape == (24,)
    new = regressor(likelihood="poisson")
    with pytest.raises(ValueError, match="takes counts"):
        new.fit(X, Y)
    assert not hasattr(new, "n_features_in_")


@pytest.mark.parametrize(("x_unit", "y_unit"), [(1e-13, 1.0), (1.0, 1e-13), (1e200, 1e-200)])
def test_units_do_not_matter(numbers, x_unit, y_unit):
    """Farads, and light years in millimetres: the same fit, but for rounding."""
    model = regressor().fit(X * x_unit, Y * y_unit)
    np.testing.assert_allclose(model.x_scaling_.sd, numbers.x_scaling_.sd * x_unit, rtol=1e-12)
    np.testing.assert_allclose(model.y_scaling_.sd, numbers.y_scaling_.sd * y_unit, rtol=1e-12)
    np.testing.assert_allclose(
        model.predict(NEW * x_unit), numbers.predict(NEW) * y_unit, rtol=1e-3, atol=0
    )


def test_a_row_too_far_out_for_single_precision_is_predicted(numbers):
    far = numbers.predict(np.full((1, X.shape[1]), 1e300))
    assert np.isfinite(far).all()


def test_ctrl_c_ends_the_fit(monkeypatch):
    run = base.run

    def interrupted(*arguments):
        fitted = run(*arguments)
        return fitted._replace(draws=fitted.draws._replace(interrupted=True))

    monkeypatch.setattr(base, "run", interrupted)
    with pytest.raises(KeyboardInterrupt):
        regressor().fit(X, Y)


@pytest.mark.long
def test_the_network_that_was_tried_and_taken_is_fitted(monkeypatch):
    tried = [Candidate((3,), "gaussian", "pcn"), Candidate((4, 2), "heteroscedastic", "pcn")]

    def best_of(candidates, settings, x, y, num_classes, progress):
        assert candidates == tried
        np.testing.assert_allclose([x.mean(), y.mean(), x.std(), y.std()], [0, 0, 1, 1], atol=1e-6)
        return tried[1], "Taken: the second."

    monkeypatch.setattr(regressor_module, "candidates", lambda *_, **__: tried)
    monkeypatch.setattr(base, "best_of", best_of)
    found = regressor(hidden=None).fit(X, Y)
    assert (found.hidden_, found.likelihood_, found.sampler_) == ((4, 2), "heteroscedastic", "pcn")
    assert found.notes_[0] == "Taken: the second."
    _, sd = found.predict(NEW, return_std=True)
    assert len(np.unique(sd)) == len(NEW)
    # Each draw has a noise of its own for each row: their spread is that of the predictions.
    drawn = found.sample_y(NEW, 4000)
    np.testing.assert_allclose(drawn.std(axis=1), sd, rtol=0.25)
    assert np.isfinite(found.log_score(X, Y))


@pytest.mark.long
def test_where_nothing_can_be_tried_the_network_is_one_layer():
    found = regressor(hidden=None).fit(X, Y)
    assert (found.hidden_, found.likelihood_) == (ONE_LAYER, "gaussian")
    assert classifier(hidden=None).fit(X, LABELS).hidden_ == ONE_LAYER


@pytest.mark.long
def test_without_hidden_units_the_model_is_linear():
    found = regressor(hidden=()).fit(X, Y)
    slopes = [np.diff(found.predict(np.array([[a, 0.0], [a + 1, 0.0]]))) for a in (-1.0, 5.0)]
    np.testing.assert_allclose(*slopes, rtol=1e-4)
    assert classifier(hidden=()).fit(X, LABELS).predict_proba(NEW).shape == (9, 3)


@pytest.mark.long
@pytest.mark.parametrize(
    "settings",
    [
        {"sampler": "nuts", "likelihood": "heteroscedastic"},
        {"sampler": "nuts", "relevance": True},
        {"sampler": "gibbs", "noise": 0.2},
        {"sampler": "dvi"},
        {"sampler": "nuts", "likelihood": "student-t"},
        {"sampler": "nuts", "likelihood": "laplace", "prior_scale": 2.0},
        {"sampler": "auto", "likelihood": "negative-binomial"},
        {"sampler": "pcn", "likelihood": "poisson", "hidden": 4},
    ],
)
def test_other_samplers_and_likelihoods(settings):
    is_count = settings.get("likelihood") in ("poisson", "negative-binomial")
    y = RNG.poisson(np.exp(1 + X[:, 0])).astype(float) if is_count else Y
    found = regressor(**settings).fit(X, y)
    mean, sd = found.predict(NEW, return_std=True)
    assert np.isfinite(mean).all()
    assert (sd > 0).all()
    assert np.isfinite(found.log_score(X, y))
    assert found.sample_y(NEW, 2).shape == (9, 2)
    loaded = pickle.loads(pickle.dumps(found))
    np.testing.assert_array_equal(loaded.predict(NEW), mean)
    assert hasattr(found, "relevance_") == ("relevance" in settings)
    asked = settings["sampler"]
    assert found.sampler_ in (("nuts", "ensemble") if asked == "auto" else (asked,))
    if is_count:
        assert (found.predict_interval(NEW) % 1 == 0).all()
        assert (found.sample_y(NEW, 2) % 1 == 0).all()
    if "relevance" in settings:
        assert found.relevance_.shape == (2,)


@pytest.mark.long
@pytest.mark.parametrize(
    "settings", [{"sampler": "nuts"}, {"sampler": "dvi"}, {"likelihood": "ordinal"}]
)
def test_other_classifiers(settings):
    # Words whose order is not known are refused.
    is_ordered = settings.get("likelihood") == "ordinal"
    labels = np.unique(LABELS, return_inverse=True)[1] if is_ordered else LABELS
    found = classifier(**settings).fit(X, labels)
    assert found.predict_proba(NEW).shape == (9, 3)
    assert set(found.sample_y(NEW, 5).ravel()) <= set(labels)
    loaded = pickle.loads(pickle.dumps(found))
    np.testing.assert_array_equal(loaded.predict_proba(NEW), found.predict_proba(NEW))


@pytest.mark.long
@pytest.mark.parametrize("kind", ["numbers", "classes"])
def test_the_command_draws_the_same(kind, tmp_path):
    """With its seed and its training rows; what it writes has six digits."""
    import csv

    from jaxbnn.cli import main
    from jaxbnn.cli.prepare import _split

    y = Y if kind == "numbers" else LABELS
    lines = [
        ["a", "b", "y"],
        *([*map(repr, map(float, x)), str(v)] for x, v in zip(X, y, strict=True)),
    ]
    (tmp_path / "data.csv").write_text("".join(",".join(line) + "\n" for line in lines))
    fit = ["fit", str(tmp_path / "data.csv"), "--target", "y", "--sampler", "nuts", "--hidden", "3"]
    fit += ["--chains", "2", "--warmup", "40", "--samples", "30", "--seed", "5", "--quiet"]
    if kind == "classes":
        fit += ["--likelihood", "categorical"]
    assert main(fit) == 0
    assert main(["predict", str(tmp_path / "data-fit"), str(tmp_path / "data.csv"), "--quiet"]) == 0
    with (tmp_path / "data-predictions.csv").open(newline="") as file:
        said = list(csv.DictReader(file))
    training, _ = _split(24, 0.2, 5)
    make = regressor if kind == "numbers" else classifier
    found = make(sampler="nuts", random_state=5).fit(X[training], y[training])
    if kind == "numbers":
        mean, sd = found.predict(X, return_std=True)
        np.testing.assert_allclose([float(row["y"]) for row in said], mean, rtol=1e-4)
        np.testing.assert_allclose([float(row["sd"]) for row in said], sd, rtol=1e-3)
        return
    for i, name in enumerate(found.classes_):
        column = [float(row[f"probability of {name}"]) for row in said]
        np.testing.assert_allclose(column, found.predict_proba(X)[:, i], atol=1e-4)


@pytest.mark.long
@pytest.mark.parametrize("name", ["BayesianRegressor", "BayesianClassifier"])
def test_check_estimator_passes(name):
    """In a process of its own, where no annotation is checked; some minutes, mostly compilation."""
    command = [sys.executable, "-m", "tests.estimators", "--only", name]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_each_row_and_each_seed_has_noise_of_its_own(numbers):
    """Rows are drawn in blocks, of which 300 make three."""
    many = np.repeat(NEW[:1], 300, axis=0)
    assert len(np.unique(numbers.sample_y(many, 20)[:, 0])) > 290
    one, other = (numbers.sample_y(many, 200, random_state=seed) for seed in (1, 2))
    assert not np.any(one == other)
