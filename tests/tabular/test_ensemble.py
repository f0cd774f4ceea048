"""Tests of tabular.ensemble: what it tells, where it fails, and that an interrupted one goes on."""

import jax
import numpy as np
import pytest

from jaxbnn.ensembles import TrainingDiverged
from jaxbnn.ensembles.way_in import EnergyBlewUp, WayIn
from jaxbnn.tabular.ensemble import ensemble_notes, most_on_the_way
from jaxbnn.tabular.posteriors import make_posterior, predicted
from jaxbnn.tabular.samplers import run
from jaxbnn.tabular.settings import Settings
from jaxbnn.targets.hierarchical import HierarchicalPrior

pytestmark = pytest.mark.third_party(reason="Optax promotes dtypes and ranks")
X = np.linspace(-1, 1, 26, dtype=np.float32).reshape(13, 2)
Y = np.sin(2 * X[:, 0])


def settings(**more):
    return Settings("ensemble", (3,), 2, 10, 8, 0.3, 0)._replace(**more)


@pytest.mark.long
def test_an_interrupted_ensemble_goes_on(tmp_path):
    asked = settings(chains=4, samples=20)
    posterior = make_posterior("ensemble", asked, X, Y, None)
    assert isinstance(posterior.prior, HierarchicalPrior)
    whole = run("ensemble", posterior, asked)

    class Stop(Exception):
        pass

    seen = []

    def stop(done):
        seen.append(done)
        if len(seen) > 4:
            raise Stop

    with pytest.raises(Stop):
        run("ensemble", posterior, asked, stop, tmp_path / "fit")
    assert any((tmp_path / "fit").rglob("*"))
    again = run("ensemble", posterior, asked, checkpoint=tmp_path / "fit")
    jax.tree.map(np.testing.assert_array_equal, again.positions, whole.positions)
    outputs = jax.vmap(jax.vmap(predicted(posterior, X)))(again.positions)
    assert np.sqrt(np.mean((np.asarray(outputs).mean((0, 1))[:, 0] - Y) ** 2)) < 0.35


def test_the_way_in_is_told_of_where_it_was_too_short_or_too_steep():
    def notes(is_settled, num_blow_ups, diverged=(False,) * 3, rejecting=()):
        errors, none = np.zeros((1, 3)), np.zeros((3, 0))
        counts, settled = np.array(num_blow_ups), np.array(is_settled)
        found = WayIn(1000, errors, counts, {}, np.zeros(0, int), none, settled, None, ~settled)
        return ensemble_notes(found, np.array(diverged), np.array(rejecting, int))

    assert notes([True, True, True], [0, 10, 50]) == []
    settling, blowing = notes([True, False, False], [0, 51, 400])
    assert settling.startswith("2 of 3 chains had not settled after 1000 steps on the way in")
    assert blowing.startswith("The energy of 2 of 3 chains blew up in more than 5% of their steps")
    training, step = notes([True] * 3, [0] * 3, (False, True, False), (0, 2))
    assert training.startswith("The training of 1 of 3 networks diverged")
    assert step.startswith("2 of 3 chains accepted less than half as many steps")


@pytest.mark.parametrize("error", [EnergyBlewUp("chain 0"), TrainingDiverged("chain 0")])
def test_an_ensemble_that_fails_names_what_the_caller_can_change(monkeypatch, error):
    def fails(*_, **__):
        raise error

    monkeypatch.setattr("jaxbnn.tabular.ensemble.trained", fails)
    posterior = make_posterior("ensemble", settings(), X, Y, None)
    with pytest.raises(ValueError, match="take the sampler nuts, or fewer hidden units"):
        run("ensemble", posterior, settings())


def test_the_way_in_is_shorter_for_many_rows_but_has_two_parts():
    steps = [most_on_the_way(n) for n in (1, 800, 801, 1600, 10_000)]
    assert steps == [100, 100, 100, 50, 20]


@pytest.mark.parametrize("num_rows", [2, 5])
def test_networks_are_trained_on_a_few_rows(num_rows, monkeypatch):
    held_out = []

    def stop(key, posterior, num_networks, *, validation, **options):
        held_out.append(round(validation * len(posterior.x)))
        raise KeyboardInterrupt

    monkeypatch.setattr("jaxbnn.tabular.ensemble.trained", stop)
    for rows in (num_rows, 13):
        posterior = make_posterior("ensemble", settings(), X[:rows], Y[:rows], None)
        with pytest.raises(KeyboardInterrupt):
            run("ensemble", posterior, settings())
    assert held_out == [1, 1]
