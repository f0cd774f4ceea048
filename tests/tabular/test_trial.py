"""Tests of tabular.candidates, tabular.trial and tabular.trained: what may be tried, and that the
network and the noise which suit the data are taken.
"""

import warnings
from types import SimpleNamespace

import jax
import numpy as np
import pytest

from jaxbnn.ensembles import TrainingDiverged
from jaxbnn.tabular import candidates as module
from jaxbnn.tabular import settings as settings_module
from jaxbnn.tabular import trained, trial
from jaxbnn.tabular.candidates import Candidate, ShortChains, by_chains, candidates
from jaxbnn.tabular.posteriors import make_posterior
from jaxbnn.tabular.settings import DEEP, LINEAR, ONE_LAYER, Settings, choose_sampler

SETTINGS = Settings("auto", ONE_LAYER, 2, 40, 30, 0.3, 0, tries_networks=True)
STRAIGHT = Candidate(LINEAR, "gaussian", "nuts")
ONE = Candidate(ONE_LAYER, "gaussian", "nuts")
VARYING = Candidate(ONE_LAYER, "heteroscedastic", "nuts")
TAILED = Candidate(ONE_LAYER, "student-t", "nuts")
NARROW = Candidate(DEEP, "heteroscedastic", "ensemble")


@pytest.fixture
def by_nuts(monkeypatch):
    """Stands for a table by which auto takes nuts."""
    known = module.choose_sampler

    def chosen(settings, *data, **kind):
        return "nuts" if settings.sampler == "auto" else known(settings, *data, **kind)

    monkeypatch.setattr(module, "choose_sampler", chosen)


@pytest.mark.parametrize(
    ("changes", "num_data", "expected"),
    [
        ({}, 500, [STRAIGHT, ONE, VARYING, NARROW]),
        ({}, 99, [ONE]),
        ({"tries_networks": False}, 500, [ONE]),
        ({"sampler": "nuts"}, 500, [STRAIGHT, ONE, VARYING]),
        (
            {"relevance": True},
            500,
            [one._replace(relevance=True) for one in (STRAIGHT, ONE, VARYING)],
        ),
        (
            {"likelihood": "gaussian"},
            500,
            [STRAIGHT, ONE, Candidate(DEEP, "gaussian", "ensemble")],
        ),
    ],
)
def test_what_is_open_is_tried(changes, num_data, expected, by_nuts):
    assert found(SETTINGS._replace(**changes), num_data=num_data) == expected


def test_a_linear_model_is_sampled_by_nuts(monkeypatch):
    """Also where it was asked for, and another network would be sampled by the ensemble."""
    monkeypatch.setattr(settings_module, "best_sampler", lambda names, *_, **__: names[-2])
    linear = SETTINGS._replace(hidden=LINEAR)
    assert choose_sampler(linear, "gaussian", 500, 5, is_class=False) == "nuts"
    samplers = [one.sampler for one in found(SETTINGS, sampler="ensemble")]
    assert samplers == ["nuts", "ensemble", "ensemble", "ensemble"]


def found(settings, likelihood="gaussian", sampler="nuts", num_data=500, *, is_class=False):
    return candidates(settings, likelihood, sampler, num_data, 5, is_class=is_class)


@pytest.mark.parametrize("likelihood", ["categorical", "ordinal"])
def test_of_classes_none_and_one_layer_of_two_kinds_with_a_scale_a_column_are_tried(likelihood):
    def tried(**changes):
        return found(SETTINGS._replace(**changes), likelihood, is_class=True)

    linear = Candidate(LINEAR, likelihood, "nuts")
    layer = Candidate(ONE_LAYER, likelihood, "nuts", relevance=True)
    rectified = layer._replace(activation="relu")
    assert tried() == [linear, layer, rectified]
    assert tried(relevance=True) == [linear._replace(relevance=True), layer, rectified]
    # A scale that is given is no scale to learn.
    fixed = [linear, layer._replace(relevance=False), rectified._replace(relevance=False)]
    assert tried(prior_scale=2.0) == fixed
    assert rectified.of(SETTINGS).activation == "relu"
    assert "50 ReLU units with a scale" in str(rectified)
    assert layer.of(SETTINGS).relevance
    assert "with a scale for each column" in str(layer)


def test_what_other_samplers_and_likelihoods_need_is_left_alone(by_nuts):
    ensemble = SETTINGS._replace(sampler="ensemble")
    assert [one.sampler for one in found(ensemble, sampler="ensemble")] == ["ensemble"] * 4
    for sampler in ("dvi", "gibbs", "pcn"):
        asked = SETTINGS._replace(sampler=sampler)
        assert found(asked, sampler=sampler) == [ONE._replace(sampler=sampler)]
    heavy = SETTINGS._replace(likelihood="student-t")
    assert {one.likelihood for one in found(heavy, "student-t")} == {"student-t"}
    # By the kind of the numbers it is one of several.
    assert found(SETTINGS, "student-t") == [STRAIGHT, ONE, VARYING, TAILED, NARROW]
    assert found(SETTINGS, "laplace") == [ONE._replace(likelihood="laplace")]
    assert found(SETTINGS, "negative-binomial") == [ONE._replace(likelihood="negative-binomial")]
    # Of so many rows auto takes dvi, which knows one noise only.
    assert found(SETTINGS, sampler="dvi", num_data=10**6) == [ONE._replace(sampler="dvi")]
    settings = NARROW.of(SETTINGS)
    assert (settings.hidden, settings.likelihood) == (DEEP, "heteroscedastic")
    assert not settings.tries_networks


@pytest.fixture(params=["short", pytest.param("long", marks=pytest.mark.long)])
def training(request, monkeypatch):
    """Trains for an eighth of the time, by shorter chains, or as a fit does."""
    if request.param == "short":
        monkeypatch.setattr(trained, "_UPDATES", 1500)
        monkeypatch.setattr(trained, "_MOST_EPOCHS", 120)
        monkeypatch.setattr(trial, "SHORT", ShortChains(1, 60, 40))


def rows(rng, kind, number=400):
    x = rng.normal(size=(number, 2)).astype(np.float32)
    mean, noise = 2 * x[:, 0], 0.3
    if kind == "noise":
        noise = np.exp(-2 + 1.5 * x[:, 1])
    elif kind == "straight":
        y = np.searchsorted([-1.0, 1.0], mean + x[:, 1] + 0.3 * rng.logistic(size=number))
        return x, y.astype(np.int32)
    elif kind == "bends":
        mean, noise = np.sin(6 * x[:, 0] * x[:, 1]) + x[:, 1], 0.05
    drawn = rng.standard_t(1.5, number) if kind == "tails" else rng.normal(size=number)
    y = mean + noise * drawn
    return x, ((y - y.mean()) / y.std()).astype(np.float32)


@pytest.mark.third_party(reason="Adam's dtypes are promoted")
def test_classes_that_a_line_parts_take_a_linear_model(rng, training, monkeypatch):
    """Not one that fits idle columns, too; one that leaves them out predicts as well."""
    monkeypatch.setattr(trial, "by_chains", lambda *_, **__: False)
    x, y = rows(rng, "straight")
    idle = rng.normal(size=(len(x), 8)).astype(np.float32)
    linear, layer, _ = found(SETTINGS, "categorical", is_class=True)
    tried = [linear, layer._replace(relevance=False)]
    taken, why = trial.best_of(tried, SETTINGS, np.concatenate([x, idle], axis=1), y, 3)
    assert taken.hidden == LINEAR
    assert "a linear model, categorical: -" in why


@pytest.mark.long
@pytest.mark.third_party(reason="Adam's dtypes are promoted")
@pytest.mark.parametrize("draws", [False, True])
def test_classes_that_a_ring_parts_take_a_network(draws, rng, training, monkeypatch):
    monkeypatch.setattr(trial, "by_chains", lambda *_, **__: draws)
    x = rng.normal(size=(200 if draws else 400, 2)).astype(np.float32)
    ring = (np.abs(np.hypot(*x.T) - 1.2) < 0.4).astype(np.int32)
    tried = found(SETTINGS, "categorical", is_class=True)
    taken, why = trial.best_of(tried, SETTINGS, x, ring, 2)
    assert taken.hidden == ONE_LAYER
    assert ("short chains" if draws else "trained networks") in why


def test_classes_are_tried_by_short_chains_where_they_end_in_time():
    tried = found(SETTINGS, "categorical", is_class=True)
    fit = SETTINGS._replace(warmup=400, samples=400, chains=None)
    assert by_chains(tried, fit, 200, 20, is_class=True)
    assert not by_chains(tried, fit, 20_000, 20, is_class=True)
    assert not by_chains(tried, fit._replace(samples=10_000), 200, 20, is_class=True)
    assert not by_chains([STRAIGHT, ONE], fit, 200, 20, is_class=False)
    assert not by_chains([*tried, NARROW], fit, 200, 20, is_class=True)


def test_numbers_of_few_rows_a_column_are_tried_by_chains_with_scales_of_columns():
    fit = SETTINGS._replace(warmup=400, samples=400, chains=None)

    def tried(rows, likelihood="student-t", **changes):
        asked = fit._replace(**changes)
        return candidates(asked, likelihood, "nuts", rows, 200, is_class=False)

    wide = [TAILED._replace(hidden=LINEAR), TAILED, TAILED._replace(relevance=True)]
    assert tried(150) == wide
    assert by_chains(wide, fit, 150, 200, is_class=False)
    # Scales that are asked for, or given, are no scales to try.
    assert tried(150, relevance=True) == [one._replace(relevance=True) for one in wide[::2]]
    for other in (tried(800), tried(150, prior_scale=1.0), tried(150, sampler="ensemble")):
        assert len(other) > 3
        assert not any(one.relevance for one in other)
    assert [one.likelihood for one in tried(99)] == ["student-t"]


@pytest.mark.third_party(reason="BlackJAX's NUTS and Optax promote dtypes and ranks")
@pytest.mark.long
def test_of_many_columns_those_that_matter_are_found(rng):
    x = rng.normal(size=(150, 100)).astype(np.float32)
    y = x[:, 3] - x[:, 7] + 0.3 * rng.normal(size=150)
    y = ((y - y.mean()) / y.std()).astype(np.float32)
    settings = SETTINGS._replace(warmup=400, samples=400, chains=None)
    tried = candidates(settings, "gaussian", "nuts", *x.shape, is_class=False)
    taken, why = trial.best_of(tried, settings, x, y)
    assert taken.relevance
    assert "short chains" in why


def test_an_interrupted_trial_is_no_trial(monkeypatch, rng):
    interrupted = SimpleNamespace(draws=SimpleNamespace(interrupted=True))
    monkeypatch.setattr(trial, "run", lambda *_: interrupted)
    x, y = rows(rng, "straight")
    with pytest.raises(KeyboardInterrupt):
        trial.best_of(found(SETTINGS, "categorical", is_class=True), SETTINGS, x, y, 3)


@pytest.mark.long
@pytest.mark.third_party(reason="Adam's dtypes are promoted")
@pytest.mark.parametrize(
    ("kind", "tried", "expected"),
    [
        ("noise", [ONE, VARYING], VARYING),
        ("bends", [ONE, NARROW], NARROW),
        ("tails", [ONE, VARYING, TAILED], TAILED),
    ],
)
def test_the_one_that_suits_the_data_is_taken(kind, tried, expected, rng, training):
    x, y = rows(rng, kind, 800 if kind == "bends" else 400)
    taken, why = trial.best_of(tried, SETTINGS, x, y)
    assert taken == expected
    assert why.endswith(f"Taken: {expected}.")
    assert "a network of 50 hidden units, gaussian: -" in why
    if kind == "noise":  # no order of the candidates hides it
        assert trial.best_of(tried[::-1], SETTINGS, x, y)[0] == expected


def test_a_later_one_must_be_better_by_more_than_its_error(monkeypatch, rng):
    scores = {ONE: [0.0, 0.0, 0.0, 0.0], VARYING: [1.0, -0.9, 0.5, -0.4]}
    monkeypatch.setattr(trial, "_scores", lambda one, *_: np.array(scores[one]))
    x, y = rows(rng, "plain", 100)
    assert trial.best_of([ONE, VARYING], SETTINGS, x, y)[0] == ONE
    scores[VARYING] = [0.4, 0.1, 0.5, 0.2]
    assert trial.best_of([ONE, VARYING], SETTINGS, x, y)[0] == VARYING
    # Against the best so far, and not against the first.
    scores[NARROW] = [0.3, 0.2, 0.4, 0.3]
    assert trial.best_of([ONE, VARYING, NARROW], SETTINGS, x, y)[0] == VARYING
    # By draws, as the fit's are, the larger mean.
    monkeypatch.setattr(trial, "by_chains", lambda *_, **__: True)
    scores[VARYING] = [1.0, -0.9, 0.5, -0.4]
    assert trial.best_of([ONE, VARYING], SETTINGS, x, y)[0] == VARYING
    assert "with short chains of each" in trial.best_of([ONE, VARYING], SETTINGS, x, y)[1]


@pytest.mark.parametrize("draws", [False, True])
def test_rows_are_scored_by_networks_that_have_not_seen_them(monkeypatch, rng, draws):
    """Every row once, in its own place, by networks of all rows of the other folds."""
    seen = []

    def trained(key, posterior, number, **options):
        seen.append(set(np.asarray(posterior.y).tolist()))
        return posterior

    def run(sampler, posterior, settings, progress):
        assert (sampler, settings.chains, settings.samples) == ("nuts", 2, 100)
        return SimpleNamespace(positions=trained(None, posterior, None), draws=None)

    def scored(networks, x, y, posterior):
        assert networks is posterior
        assert seen[-1].isdisjoint(y.tolist())
        assert len(seen[-1]) == 103 - len(y)
        return type("Found", (), {"log_score": np.where(y == 7, np.nan, -y)})

    monkeypatch.setattr(trial, "run" if draws else "trained", run if draws else trained)
    monkeypatch.setattr(trial.prediction, "scores", scored)
    y = np.arange(103, dtype=np.float32)
    scores = trial._scores(ONE, SETTINGS, rng.normal(size=(103, 2)), y, None, False, draws)
    np.testing.assert_array_equal(scores, np.where(y == 7, -1000, -y)[:100])


def test_networks_that_diverge_are_not_taken(monkeypatch, rng):
    def diverging(key, posterior, number, **options):
        if posterior.likelihood.learned:
            raise TrainingDiverged("training diverged: chain 0 in epoch 1; give ...")
        warnings.warn("training diverged: chain 3 in epoch 9; ...", stacklevel=1)
        return posterior

    monkeypatch.setattr(trial, "trained", diverging)
    found = type("Found", (), {"log_score": np.full(25, -500.0)})
    monkeypatch.setattr(trial.prediction, "scores", lambda *_: found)
    x, y = rows(rng, "plain", 100)
    assert trial.best_of([ONE, VARYING], SETTINGS, x, y)[0] == VARYING
    monkeypatch.setattr(trial, "trained", lambda *_, **__: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        trial._scores(ONE, SETTINGS, x, y, None, False, False)


@pytest.mark.long
@pytest.mark.third_party(reason="Adam's dtypes are promoted")
def test_networks_that_bend_more_are_not_flattered(rng, training):
    """Of noise alone the score is no better than that of knowing the noise, within four errors."""
    y = rng.normal(size=200).astype(np.float32)
    x = rng.normal(size=(200, 8)).astype(np.float32)
    scores = trial._scores(NARROW, SETTINGS, x, y, None, False, False)
    known = -0.5 * y**2 - 0.5 * np.log(2 * np.pi)
    lost = known - scores
    assert lost.mean() > -4 * lost.std() / np.sqrt(len(lost))


def test_of_many_rows_some_are_taken(monkeypatch, rng):
    seen = []

    def kept(one, settings, x, y, *rest):
        seen.append((len(x), len(np.unique(y))))
        return np.zeros(2)

    monkeypatch.setattr(trial, "_scores", kept)
    y = np.arange(5000.0)
    _, why = trial.best_of([ONE, VARYING], SETTINGS, rng.normal(size=(5000, 1)), y)
    assert seen == [(trial.MOST_ROWS, trial.MOST_ROWS)] * 2
    assert "of 3,000 of the training rows with 4 trained networks of each (mean log score of" in why


def test_the_scores_that_are_told_are_of_what_was_scored(monkeypatch, rng):
    """Of a standardised target where it holds numbers, and of all rows where there are few."""
    monkeypatch.setattr(trial, "_scores", lambda *_: np.zeros(2))
    x, y = rows(rng, "plain", 100)
    _, why = trial.best_of([ONE, VARYING], SETTINGS, x, y)
    assert "cross-validation of the training rows" in why
    assert "(mean log score of the standardised target, in nats)" in why
    x, labels = rows(rng, "straight", 100)
    tried = found(SETTINGS, "categorical", is_class=True)
    assert "(mean log score, in nats)" in trial.best_of(tried, SETTINGS, x, labels, 3)[1]


@pytest.mark.third_party(reason="Adam's dtypes are promoted")
def test_the_rate_of_training_ends_where_training_ends(monkeypatch, rng):
    """As many updates as the rate has steps to fall, with what is no whole batch left out."""
    asked, made = [], []
    optimizer = trained._optimizer
    monkeypatch.setattr(trained, "_UPDATES", 10)
    monkeypatch.setattr(trained, "_optimizer", lambda n: asked.append(n) or optimizer(n))
    posterior = make_posterior("nuts", SETTINGS, *rows(rng, "plain", 150), None)
    trained.trained(
        jax.random.key(0), posterior, 1, validation=0.2, progress=lambda p: made.append(p.done)
    )
    assert made[-1] == asked[0] == 9  # of 120 rows, three batches of 32
