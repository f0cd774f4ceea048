"""Tests of estimators.arguments: what an estimator cannot use is refused when it is fitted, by one
sentence, and scikit-learn's own checks of bad input pass.
"""

import sys
from unittest import mock

import numpy as np
import pytest

import jaxbnn

pytest.importorskip("sklearn", reason="pip install 'jaxbnn[sklearn]'")
pytest.importorskip("pandas")

import pandas as pd
from sklearn.base import clone
from sklearn.utils import estimator_checks

from jaxbnn.estimators import BayesianClassifier, BayesianRegressor, base
from jaxbnn.estimators.classifier import _order_of

pytestmark = [
    pytest.mark.third_party(reason="users run scikit-learn without strict checks"),
    pytest.mark.usefixtures("annotations_unchecked"),
]
X = np.linspace(-1, 1, 24).reshape(12, 2)
Y = np.arange(12) + 0.5
LABELS = np.array(["a", "b"] * 6)
TABLE = pd.DataFrame(X, columns=["p", "q"])
DAYS = pd.date_range("2020-01-01", periods=12)
SPANS = (DAYS - DAYS[0]).to_numpy()
WITHOUT_FIRST = np.where(np.arange(12) == 0, np.timedelta64("NaT"), SPANS)
MASK = np.arange(12) == 3
MASKED_X = np.ma.array(X, mask=np.stack([MASK, MASK], axis=1))


class Frame:
    """A table that is an array of doubles, dates too, as those of polars are."""

    def __init__(self, **columns):
        self.kept = {name: np.asarray(values) for name, values in columns.items()}
        self.columns = [*columns]

    def __getitem__(self, name):
        return self.kept[name]

    def __array__(self, dtype=None, copy=None):
        return np.stack([np.asarray(v).astype(float) for v in self.kept.values()], axis=1)

    def __len__(self):
        return len(self.kept[self.columns[0]])


class Lazy(Frame):
    def collect(self):
        return Frame(**self.kept)


FRAME = Frame(a=X[:, 0], when=DAYS.to_numpy())


@pytest.fixture(autouse=True)
def nothing_is_sampled(monkeypatch):
    def sampled(*arguments):
        raise RuntimeError("went on to sample")

    monkeypatch.setattr(base, "run", sampled)


@pytest.mark.parametrize(
    ("settings", "error", "said"),
    [
        ({"hidden": "wide"}, TypeError, "hidden must be whole numbers of units"),
        ({"hidden": (2.5,)}, TypeError, "hidden must be whole numbers of units"),
        ({"hidden": True}, TypeError, "hidden must be whole numbers of units, .* but is True"),
        ({"hidden": (5, True)}, TypeError, "hidden must be whole numbers of units"),
        ({"chains": True}, TypeError, "chains must be a whole number, but is True; give an int"),
        ({"hidden": (5, 0)}, ValueError, "hidden must be numbers of units, but holds 0"),
        ({"sampler": "hmc"}, ValueError, "sampler must be 'auto', 'nuts', .* but is 'hmc'"),
        ({"sampler": 3}, ValueError, "sampler must be"),
        ({"likelihood": "categorical"}, ValueError, "likelihood must be 'auto', 'gaussian'"),
        ({"likelihood": "poisson"}, ValueError, "takes counts, whole numbers from 0 to"),
        ({"likelihood": "laplace", "sampler": "dvi"}, ValueError, "take sampler='nuts'"),
        ({"likelihood": "heteroscedastic", "sampler": "gibbs"}, ValueError, "numbers only, with"),
        ({"chains": 0}, ValueError, "chains"),
        ({"chains": 2.0}, TypeError, "chains must be a whole number"),
        ({"samples": 3}, ValueError, "samples"),
        ({"warmup": "long"}, TypeError, "warmup must be a whole number"),
        ({"noise": 0.0}, ValueError, "noise must be positive"),
        (
            {"noise": 0.3},
            ValueError,
            "gibbs alone, but the sampler is auto; take sampler='gibbs', or",
        ),
        (
            {"noise": 0.3, "sampler": "pcn"},
            ValueError,
            "noise is of gibbs alone, .* or leave noise",
        ),
        ({"prior_scale": 1e-30}, ValueError, "prior_scale .* from 1e-06 to 1e.06, but is 1e-30"),
        ({"prior_scale": -1}, ValueError, "prior_scale must be positive .* None to learn it"),
        ({"prior_scale": 2, "relevance": True}, ValueError, "leave one of them out"),
        ({"relevance": True, "sampler": "pcn"}, ValueError, "take sampler='nuts', or leave"),
        ({"relevance": "yes"}, TypeError, "relevance must be True or False"),
        ({"verbose": 2}, TypeError, "verbose must be True or False"),
        (
            {"checkpoint": 3, "random_state": 0},
            ValueError,
            "checkpoint must be the path of a folder",
        ),
        ({"checkpoint": "", "random_state": 0}, ValueError, "checkpoint is empty; give the path"),
        ({"checkpoint": "fit"}, ValueError, "goes on by the same random numbers, .* give an int"),
        ({"random_state": "seed"}, ValueError, "seed"),
        ({"random_state": -1}, ValueError, "Seed must be between 0"),
    ],
)
def test_settings_that_cannot_be_used(settings, error, said):
    model = clone(BayesianRegressor(**settings))
    with pytest.raises(error, match=said) as caught:
        model.fit(X, Y)
    assert str(caught.value).count("\n") == 0


@pytest.mark.parametrize(
    ("model", "x", "y", "said"),
    [
        (BayesianRegressor(), X, np.stack([Y, Y], axis=1), "y has 2 columns, .* by sklearn.multi"),
        (BayesianRegressor(), X[:1], Y[:1], "minimum of 2"),
        (BayesianRegressor(), X, Y[:5], "inconsistent numbers of samples"),
        (BayesianRegressor(), X, [np.nan, *Y[1:]], "NaN"),
        (BayesianRegressor(), np.full((12, 2), np.inf), Y, "infinity"),
        (BayesianClassifier(), X, ["a"] * 12, "one class only, 'a'; a classifier needs two"),
        (BayesianClassifier(), X, Y, "Unknown label type"),
        (BayesianClassifier(sampler="gibbs"), X, LABELS, "sampler must be .* 'gibbs'"),
        (BayesianClassifier(likelihood="gaussian"), X, LABELS, "'categorical' or 'ordinal'"),
        (BayesianClassifier(likelihood="ordinal", sampler="dvi"), X, LABELS, "does not know"),
        (BayesianClassifier(), X, [None, *LABELS[1:]], "y holds None at row 0; leave out rows"),
        (BayesianClassifier(), X, None, "requires y to be passed, but the target y is None"),
        (BayesianRegressor(), X, None, "requires y to be passed, but the target y is None"),
        (
            BayesianClassifier(),
            X,
            pd.Series([*LABELS[:-1], pd.NA], dtype=object),
            "y holds <NA> at row 11",
        ),
        (BayesianRegressor(), TABLE.assign(town="u"), Y, "column 'town' of X holds 'u', which"),
        (BayesianClassifier(), TABLE.assign(day=DAYS), LABELS, "column 'day' of X holds Timestamp"),
        (
            BayesianRegressor(),
            TABLE.assign(day=DAYS),
            Y,
            "column 'day' of X holds Timestamp.*, a date or a time; give numbers, such as days",
        ),
        (
            BayesianRegressor(),
            TABLE.assign(day=[day.date() for day in DAYS]),
            Y,
            "column 'day' of X holds datetime.date.*, such as days since the first, or leave",
        ),
        (BayesianRegressor(), FRAME, Y, "column 'when' of X holds np.datetime64.*; give numbers"),
        (BayesianRegressor(), Frame(a=X[:, 0], s=SPANS), Y, "column 's' of X holds np.timedelta"),
        (BayesianRegressor(), Frame(town=LABELS), Y, "column 'town' of X holds np.str_.*'a'.*, or"),
        (BayesianRegressor(), [[10**400], [1]], [0.0, 1.0], "X holds 1000.*, which is beyond the"),
        (BayesianRegressor(), TABLE.assign(a=[10**400] * 12), Y, "'a' of X holds 1000.*, or leave"),
        (BayesianRegressor(), X, [10**400] * 12, "y holds 1000.*, which is beyond the numbers"),
        (BayesianRegressor(), X, LABELS, "y holds 'a', which is no number; .* BayesianClassifier"),
        (BayesianRegressor(), X, LABELS.tolist(), "y holds 'a', which is no number"),
        (BayesianRegressor(), X, pd.Series(LABELS), "y holds 'a', which is no number"),
        (BayesianRegressor(), X, pd.Series(LABELS, dtype="category"), "no number; take Bayesian"),
        (BayesianRegressor(), X, SPANS, "y holds np.timedelta64.*, a date or a time; give numbers"),
        (BayesianRegressor(), X, WITHOUT_FIRST, r"y holds np.timedelta64\('NaT'.*give numbers"),
        (BayesianRegressor(), X, DAYS, "y holds np.datetime64.*, such as days since the first"),
        (BayesianRegressor(), X, [*DAYS], "y holds Timestamp.*, such as days since the first"),
        (BayesianRegressor(), X, pd.DataFrame({"y": DAYS}), "y holds np.datetime64"),
        (BayesianRegressor(), np.stack([SPANS, SPANS], axis=1), Y, "X holds np.timedelta64"),
        (BayesianRegressor(), X, np.ma.array(Y, mask=MASK), "y is masked at row 3; leave out rows"),
        (BayesianRegressor(), MASKED_X, Y, "X is masked at row 3; leave out rows"),
        (BayesianClassifier(), X, np.ma.array(LABELS, mask=MASK), "y is masked at row 3; leave"),
        (BayesianClassifier(), X, WITHOUT_FIRST, "y holds None at row 0; leave out rows"),
        (BayesianClassifier(), MASKED_X, LABELS, "X is masked at row 3; leave out rows"),
    ],
)
def test_data_that_cannot_be_used(model, x, y, said):
    with pytest.raises(ValueError, match=said):
        model.fit(x, y)


@pytest.mark.parametrize("label", [None, np.nan, pd.NA])
def test_scores_of_labels_that_are_missing(label, monkeypatch):
    model = BayesianClassifier()
    monkeypatch.setattr(model, "_inputs", lambda x: x)  # as if it were fitted
    with pytest.raises(ValueError, match=r"y holds .* at row 0; leave out rows without a label"):
        model.log_score(X, [label, *LABELS[1:]])


@pytest.mark.parametrize(
    ("model", "x", "y"),
    [
        (BayesianRegressor(), np.ma.array(X), np.ma.array(Y)),
        (BayesianClassifier(), np.ma.array(X), np.ma.array(LABELS)),
        (BayesianClassifier(), X, SPANS[[0, 1] * 6]),
    ],
)
def test_nothing_masked_and_classes_of_times_are_no_trouble(model, x, y):
    with pytest.raises(RuntimeError, match="went on to sample"):
        model.set_params(hidden=(3,)).fit(x, y)


@pytest.mark.parametrize("gap", [None, pd.NA])
def test_a_gap_in_a_column_of_objects_is_called_a_missing_value(gap):
    table = pd.DataFrame({"p": pd.Series([1.0, gap, *X[2:, 0]], dtype=object), "q": X[:, 1]})
    with pytest.raises(ValueError, match=f"'p' of X holds {gap!r}, which is missing; fill it in"):
        BayesianRegressor().fit(table, Y)


def test_weights_of_rows_are_no_argument():
    with pytest.raises(TypeError, match="sample_weight"):
        BayesianRegressor().fit(X, Y, sample_weight=np.ones(12))


# Those that end before anything is sampled; `python -m tests.estimators` runs all.
CHECKS = (
    *("estimator_cloneable", "no_attributes_set_in_init", "estimators_unfitted"),
    *("do_not_raise_errors_in_init_or_set_params", "complex_data"),
    *("estimators_empty_data_messages", "estimator_sparse_tag", "estimator_repr", "mixin_order"),
    *("supervised_y_no_nan", "valid_tag_types", "parameters_default_constructible"),
)


@pytest.mark.parametrize("kind", [BayesianRegressor, BayesianClassifier])
@pytest.mark.parametrize("check", CHECKS)
def test_checks_of_scikit_learn(kind, check):
    getattr(estimator_checks, f"check_{check}")(kind.__name__, kind())


def test_a_package_that_is_missing_is_named():
    hidden = {name: None for name in sys.modules if name.split(".")[0] == "sklearn"}
    with (
        mock.patch.dict(sys.modules, hidden),
        pytest.raises(ImportError, match=r"needs scikit-learn; run `pip install 'jaxbnn\[sklearn"),
    ):
        jaxbnn.estimators.BayesianRegressor  # noqa: B018
    assert jaxbnn.estimators.BayesianRegressor is BayesianRegressor
    with pytest.raises(AttributeError, match="has no attribute 'Bayes'"):
        jaxbnn.estimators.Bayes  # noqa: B018


def test_a_table_that_is_not_computed_is_refused():
    with pytest.raises(TypeError, match=r"not computed yet; give X.collect\(\)"):
        BayesianRegressor().fit(Lazy(a=X[:, 0]), Y)


def test_a_table_of_numbers_is_taken():
    with pytest.raises(RuntimeError, match="went on to sample"):
        BayesianRegressor(sampler="dvi", hidden=2).fit(Frame(a=X[:, 0], b=X[:, 1] > 0), Y)


def test_a_missing_target_is_told_with_its_row():
    """scikit-learn lets None among numbers through, as NaN."""
    y = [*Y[:7], None, *Y[8:]]
    with pytest.raises(ValueError, match="y holds nan at row 7; leave out rows without a target"):
        BayesianRegressor(hidden=(3,), sampler="pcn", samples=5).fit(X, y)


@pytest.mark.parametrize(
    ("labels", "order"),
    [
        (["1", "2", "10"], ["1", "2", "10"]),
        (["low", "medium", "high"], ["low", "medium", "high"]),
        ([True, False], [False, True]),
        (["high", "low"], ["low", "high"]),
        (["yes", "no"], ["no", "yes"]),
        ([0.5, 3.0, 2.0], [0.5, 2.0, 3.0]),
    ],
)
def test_ordinal_classes_have_the_order_that_is_known(labels, order):
    classes = np.unique(labels)
    assert classes[_order_of(classes, None)].tolist() == order


def test_an_unknown_order_is_refused():
    model = BayesianClassifier(likelihood="ordinal", hidden=(), sampler="pcn", samples=5)
    with pytest.raises(ValueError, match="the order of cold, hot, warm is not known; give y as an"):
        model.fit(X, np.array(["cold", "warm", "hot"] * 4))
