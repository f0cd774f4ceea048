"""Settings of the estimators: each arrives where it is used, and what a fit tells is all of it."""

import jax
import numpy as np
import pytest

pytest.importorskip("sklearn", reason="pip install 'jaxbnn[sklearn]'")

from jaxbnn.estimators import BayesianClassifier, BayesianRegressor, base, regressor
from jaxbnn.estimators.arguments import settings_of
from jaxbnn.tabular.fitted import Fitted
from jaxbnn.tabular.kinds import LIKELIHOODS
from jaxbnn.tabular.settings import NOISE, SAMPLERS, Settings

pytestmark = [
    pytest.mark.third_party(reason="users run scikit-learn without strict checks"),
    pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning"),
]
TINY = {"hidden": (3,), "sampler": "pcn", "random_state": 0}
X = np.linspace(-1, 1, 24).reshape(12, 2)
Y = np.arange(12) + 0.5
LABELS = np.array(["a", "b"] * 6)


def test_every_setting_arrives():
    asked = {"hidden": [4, 2], "sampler": "nuts", "likelihood": "laplace", "prior_scale": 2.5}
    asked |= {"chains": 3, "warmup": 7, "samples": 9, "random_state": 11}
    found = settings_of(BayesianRegressor(**asked), SAMPLERS, LIKELIHOODS)
    assert found == Settings("nuts", (4, 2), 3, 7, 9, NOISE, 11, "laplace", 2.5, False, False)
    for hidden in (3, np.int64(3), np.array(3), np.array([3]), [3]):
        model = BayesianRegressor().set_params(hidden=hidden)
        assert settings_of(model, SAMPLERS, LIKELIHOODS).hidden == (3,)
    for noise, arrived in ((0.2, 0.2), (None, NOISE)):
        model = BayesianRegressor(sampler="gibbs", noise=noise)
        assert settings_of(model, SAMPLERS, LIKELIHOODS).noise == arrived
    found = settings_of(BayesianRegressor(relevance=True), SAMPLERS, LIKELIHOODS)
    assert (found.relevance, found.prior_scale, found.tries_networks) == (True, None, True)


@pytest.fixture
def taken(monkeypatch):
    """What is asked of a sampler, which is not run."""
    seen = {}

    def run(sampler, posterior, settings, progress, checkpoint):
        seen.update(settings=settings)
        raise RuntimeError("enough")

    monkeypatch.setattr(base, "run", run)
    return seen


def test_the_noise_of_rounded_targets_has_a_least(taken):
    model = BayesianRegressor(likelihood="heteroscedastic", sampler="nuts", hidden=(3,))
    y = np.arange(12) % 4.0
    with pytest.raises(RuntimeError, match="enough"):
        model.fit(X, y)
    assert taken["settings"].least_noise == pytest.approx(1 / y.std() / 12**0.5, rel=1e-5)


def test_dvi_takes_the_noise_that_it_knows(taken):
    y = np.repeat([0.0, 1, 2, 5, 11, 30], 2)  # counts
    with pytest.raises(RuntimeError, match="enough"):
        BayesianRegressor(sampler="dvi", hidden=(3,)).fit(X, y)
    assert taken["settings"].likelihood == "gaussian"


def test_the_kind_of_numbers_is_found_and_the_noise_tried(taken, monkeypatch):
    real, seen = regressor.candidates, {}

    def candidates(settings, likelihood, *rest, **more):
        seen.update(asked=settings.likelihood, found=likelihood)
        return real(settings, likelihood, *rest, **more)

    monkeypatch.setattr(regressor, "candidates", candidates)
    y = np.random.default_rng(0).negative_binomial(2, 0.3, 60)
    with pytest.raises(RuntimeError, match="enough"):
        BayesianRegressor(hidden=(3,), sampler="nuts").fit(np.arange(120.0).reshape(60, 2), y)
    assert seen == {"asked": "auto", "found": "negative-binomial"}
    assert taken["settings"].likelihood == "negative-binomial"


@pytest.mark.parametrize("kind", ["number", "class"])
def test_the_networks_that_are_tried_are_those_of_the_task(kind, monkeypatch):
    module = f"jaxbnn.estimators.{'regressor' if kind == 'number' else 'classifier'}.candidates"
    seen = []

    def candidates(*_, is_class):
        seen.append(is_class)
        raise RuntimeError("enough")

    monkeypatch.setattr(module, candidates)
    model, y = (BayesianRegressor(), Y) if kind == "number" else (BayesianClassifier(), LABELS)
    with pytest.raises(RuntimeError, match="enough"):
        model.fit(X, y)
    assert seen == [kind == "class"]


@pytest.fixture
def by_prior(monkeypatch):
    """Draws of the prior in place of a sampler's."""

    def run(sampler, posterior, settings, progress, checkpoint):
        draws = posterior.sample_prior(jax.random.key(0), (1, 20))
        return Fitted(jax.tree.map(np.asarray, draws), None, ["Said by the sampler."])

    monkeypatch.setattr(base, "run", run)


def test_notes_hold_all_that_there_is_to_say(by_prior):
    y = np.array([0.0] * 6 + [0.3, 0.7, 1.1, 1.9, 2.3, 3.1])
    notes = BayesianRegressor(**TINY, likelihood="gaussian").fit(X, y).notes_
    assert notes[0] == "Said by the sampler."
    assert any("one and the same number" in note for note in notes)


def test_the_relevance_of_a_fit_before_does_not_stay(by_prior):
    model = BayesianRegressor(**TINY).fit(X, Y)
    model.relevance_ = np.ones(2)
    assert not hasattr(model.fit(X, Y), "relevance_")


def test_scores_refuse_what_a_fit_refuses(by_prior):
    mask = np.arange(12) == 3
    model = BayesianRegressor(**TINY).fit(X, Y)
    with pytest.raises(ValueError, match="y is masked at row 3"):
        model.log_score(X, np.ma.array(Y, mask=mask))
    with pytest.raises(ValueError, match="y holds 'a', which is no number"):
        model.log_score(X, LABELS)
    with pytest.raises(
        ValueError, match=r"y holds 1e\+300 at row 2, too far from the targets of fit"
    ):
        model.log_score(X, np.where(np.arange(12) == 2, 1e300, Y))
    other = BayesianClassifier(**TINY).fit(X, LABELS)
    with pytest.raises(ValueError, match="y is masked at row 3"):
        other.log_score(X, np.ma.array(LABELS, mask=mask))
