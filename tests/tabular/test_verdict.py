"""The verdict on draws: whether chains agree about what they predict, in one sentence."""

from dataclasses import replace
from types import SimpleNamespace

import jax
import numpy as np
import pytest

from jaxbnn.diagnostics import summary
from jaxbnn.sampling import Draws
from jaxbnn.tabular.fitted import Fitted
from jaxbnn.tabular.posteriors import make_posterior, predicted
from jaxbnn.tabular.settings import Settings
from jaxbnn.tabular.verdict import judge_chains
from jaxbnn.tabular.wording import as_option

X = np.linspace(-1, 1, 12, dtype=np.float32)[:, None]
POSTERIOR = make_posterior("pcn", Settings("pcn", (2,), 2, 1, 4, 0.3, 0), X, X[:, 0], None)


def fitted(shift, chains=2, frozen=False):
    """Independent draws; those of the last chain have another read-out bias."""
    rng = np.random.default_rng(0)
    like = jax.eval_shape(POSTERIOR.sample_prior, jax.random.key(0))
    draw = lambda leaf: rng.normal(size=(chains, 300, *leaf.shape)).astype(np.float32)  # noqa: E731
    positions = jax.tree.map(draw, like)
    positions["network"][-1]["b"][-1] += np.float32(shift)
    if frozen:
        positions = jax.tree.map(lambda leaf: np.repeat(leaf[:, :1], 300, axis=1), positions)
    steps, rate = np.arange(300), np.ones(chains)
    return Fitted(positions, Draws(positions, None, {}, None, None, steps, rate, False), [])


@pytest.mark.parametrize(
    ("draws", "is_good", "said"),
    [
        (fitted(0.0), True, "Believe the chains: they agree about what they predict (R-hat"),
        (fitted(5.0), False, "raise warmup and samples, or take sampler='nuts'."),
        (fitted(0.0, frozen=True), False, "of the chains, 0, 1 never moved"),
        (fitted(0.0, chains=1), False, "One chain cannot tell"),
        (fitted(0.0)._replace(draws=None), True, "no diagnostic of chains can show"),
    ],
)
def test_chains_are_judged_by_what_they_predict(draws, is_good, said):
    verdict = judge_chains("pcn", draws, POSTERIOR, X)
    assert verdict.is_good == is_good
    assert said in str(verdict)
    assert str(verdict) == " ".join(verdict.sentences)


CLASSES = make_posterior(
    "nuts", Settings("nuts", (), 4, 1, 4, 0.3, 0), X, (X[:, 0] > 0).astype(np.int32), 2
)


def of_classes(*logits):
    """Draws of a linear model of two classes, with these offsets between them, by chain."""
    like = jax.eval_shape(CLASSES.sample_prior, jax.random.key(0))
    rng = np.random.default_rng(0)
    draw = lambda leaf: rng.normal(0, 0.1, (len(logits), 300, *leaf.shape)).astype(np.float32)  # noqa: E731
    positions = jax.tree.map(draw, like)
    positions["network"][0]["b"] += np.array([[[0, logit]] for logit in logits], np.float32)
    return Fitted(
        positions, Draws(positions, None, {}, None, None, np.arange(300), None, False), []
    )


@pytest.mark.parametrize(
    ("logits", "is_good", "said"),
    [
        ((60, 60, 60, 60), True, "agree about what they predict (all draws predict the same)"),
        ((60, 60, 60, -60), False, "R-hat of the predictions is at most inf"),
        ((2, 2, 2, 2), True, "R-hat of the predictions is at most 1.0"),
        ((60,), False, "One chain cannot tell whether it has settled; take chains=4."),
    ],
)
def test_probabilities_that_are_all_but_one_are_judged(logits, is_good, said):
    verdict = judge_chains("nuts", of_classes(*logits), CLASSES, X)
    assert verdict.is_good == is_good
    assert said in str(verdict)
    assert ("rhat" in verdict.numbers) == ("R-hat" in said)
    assert not np.isnan(verdict.numbers.get("rhat", 1.0))


@pytest.mark.parametrize(
    ("likelihood", "name", "apart"),
    [
        ("gaussian", "log_noise_scale", (-3.0, 0.0)),
        ("student-t", "log_degrees", (0.0, 4.0)),
        ("negative-binomial", "log_concentration", (-2.0, 4.0)),
    ],
)
def test_chains_that_disagree_about_the_noise_are_not_believed(likelihood, name, apart):
    """Of the same mean, with intervals that differ by factors."""
    settings = Settings("nuts", (), 4, 10, 10, 0.3, 0, likelihood, 1.0)
    y = np.abs(np.round(3 * X[:, 0])) if likelihood == "negative-binomial" else X[:, 0]
    posterior = make_posterior("nuts", settings, X, y, None)
    rng = np.random.default_rng(0)
    like = jax.eval_shape(posterior.sample_prior, jax.random.key(0))
    draw = lambda leaf: rng.normal(0, 0.1, (4, 300, *leaf.shape)).astype(np.float32)  # noqa: E731
    positions = jax.tree.map(draw, like)
    fit = Fitted(positions, Draws(positions, None, {}, None, None, np.arange(300), None, False), [])
    before = judge_chains("nuts", fit, posterior, X)
    assert before.is_good
    assert "R-hat of the predictions and of the noise is at most 1.0" in str(before)
    positions[name] += np.array([[apart[0]], [apart[0]], [apart[1]], [apart[1]]], np.float32)
    assert not judge_chains("nuts", fit, posterior, X).is_good


def test_the_command_is_told_of_its_options():
    verdict = judge_chains("nuts", fitted(5.0), POSTERIOR, X, as_option)
    assert "raise --warmup and --samples, or take fewer --hidden units." in str(verdict)
    assert verdict.numbers["rhat"] > 1.05


@pytest.mark.parametrize(("shift", "is_apart"), [(5.0, True), (1.5, False), (0.0, False)])
def test_chains_of_an_ensemble_that_stay_apart_are_not_sent_on_for_longer(shift, is_apart):
    verdict = judge_chains("ensemble", fitted(shift), POSTERIOR, X)
    assert verdict.is_apart == is_apart
    assert ("longer chains rarely cure" in str(verdict)) == is_apart
    assert ("raise warmup and samples" in str(verdict)) == (shift == 1.5)
    assert not judge_chains("nuts", fitted(shift), POSTERIOR, X).is_apart


def test_a_linear_model_has_no_hidden_units_to_take_fewer_of(monkeypatch):
    linear = make_posterior("nuts", Settings("nuts", (), 2, 1, 4, 0.3, 0), X, X[:, 0], None)
    monkeypatch.setattr("jaxbnn.tabular.verdict.predicted", lambda *_: predicted(POSTERIOR, X))
    said = str(judge_chains("nuts", fitted(5.0), linear, X))
    assert said.endswith("raise warmup and samples.")


@pytest.mark.parametrize("rare", [0.02, 0.03, 0.05])
def test_chains_that_disagree_about_rare_rows_alone_are_not_believed(rare):
    """A column is 1 in few rows, of which ten may hold none; its weight is another by chain."""
    rng = np.random.default_rng(0)
    flag = np.zeros(1000, np.float32)
    flag[rng.permutation(1000)[: int(1000 * rare)]] = 1
    x = np.stack([rng.normal(size=1000).astype(np.float32), flag], axis=1)
    posterior = make_posterior("nuts", Settings("nuts", (), 4, 10, 10, 0.3, 0), x, x[:, 0], None)
    like = jax.eval_shape(posterior.sample_prior, jax.random.key(0))
    draw = lambda leaf: rng.normal(0, 0.1, (4, 300, *leaf.shape)).astype(np.float32)  # noqa: E731
    positions = jax.tree.map(draw, like)
    draws = Draws(positions, None, {}, None, None, np.arange(300), None, False)
    assert judge_chains("nuts", Fitted(positions, draws, []), posterior, x).is_good
    positions["network"][0]["w"][:2, :, 1] += 3
    assert not judge_chains("nuts", Fitted(positions, draws, []), posterior, x).is_good


def test_chains_that_have_settled_are_believed_though_many_rows_are_looked_at():
    """The largest of two hundred differences is far below what the verdict bears."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(1000, 8)).astype(np.float32)
    posterior = make_posterior("nuts", Settings("nuts", (), 4, 10, 10, 0.3, 0), x, x[:, 0], None)
    like = jax.eval_shape(posterior.sample_prior, jax.random.key(0))
    draw = lambda leaf: rng.normal(0, 0.1, (4, 300, *leaf.shape)).astype(np.float32)  # noqa: E731
    for _ in range(3):
        positions = jax.tree.map(draw, like)
        draws = Draws(positions, None, {}, None, None, np.arange(300), None, False)
        verdict = judge_chains("nuts", Fitted(positions, draws, []), posterior, x)
        assert verdict.is_good
        assert verdict.numbers["rhat"] < 1.03


def test_an_optimiser_that_was_still_gaining_is_not_believed():
    fit = fitted(0.0)._replace(draws=None, is_unfinished=True)
    verdict = judge_chains("dvi", fit, POSTERIOR, X)
    assert not verdict.is_good
    assert "Do not believe it yet" in str(verdict)
    assert "raise warmup." in str(verdict)
    assert "or they were too few to tell" in str(verdict)


def of_divergent(number):
    """Draws that agree, 600 in all, of which so many came of trajectories that diverged."""
    fit = fitted(0.0)
    flags = (np.arange(600) < number).reshape(2, 300)
    return fit._replace(draws=fit.draws._replace(infos=SimpleNamespace(is_divergent=flags)))


@pytest.mark.parametrize(
    ("sampler", "said"),
    [
        ("nuts", "of their kept trajectories 5.17% diverged, where 5% is borne"),
        ("nuts", "raise warmup for smaller steps, or take another sampler."),
        ("ensemble", "of their kept trajectories 5.17% diverged"),
        ("pcn", "of their kept steps 5.17% diverged"),
        ("gibbs", "the same part of the posterior; take another sampler."),
    ],
)
def test_chains_with_divergent_trajectories_are_not_believed(sampler, said):
    verdict = judge_chains(sampler, of_divergent(31), POSTERIOR, X)
    assert not verdict.is_good
    assert str(verdict).startswith("Do not believe it yet: the chains agree")
    assert said in str(verdict)
    assert verdict.numbers["divergent"] == pytest.approx(31 / 600)
    few = judge_chains(sampler, of_divergent(30), POSTERIOR, X)
    assert few == judge_chains(sampler, fitted(0.0), POSTERIOR, X)
    assert few.is_good


@pytest.mark.parametrize("divergent", [0, 31])
@pytest.mark.parametrize(("ess", "is_settled"), [(99, False), (100, True)])
def test_chains_of_few_effective_draws_have_not_settled(monkeypatch, divergent, ess, is_settled):
    def of_few(*arguments, **options):
        table = summary(*arguments, **options)
        return replace(table, ess_bulk=np.append(table.ess_bulk[:-1], ess))

    monkeypatch.setattr("jaxbnn.tabular.verdict.summary", of_few)
    verdict = judge_chains("pcn", of_divergent(divergent), POSTERIOR, X)
    assert verdict.numbers["rhat"] < 1.05
    assert verdict.is_good == (is_settled and not divergent)
    assert ("the chains have not settled" in str(verdict)) != is_settled


def test_where_the_scales_of_the_prior_are_learnt_they_can_be_given():
    """In a linear model of iris trajectories diverge where they are learnt, none where given."""
    fit = of_classes(2, 2, 2, 2)
    flags = (np.arange(1200) < 72).reshape(4, 300)
    fit = fit._replace(draws=fit.draws._replace(infos=SimpleNamespace(is_divergent=flags)))
    said = str(judge_chains("nuts", fit, CLASSES, X))
    cures = "give prior_scale, which is learnt, raise warmup for smaller steps, or take another"
    assert said.endswith(f"of the posterior; {cures} sampler.")


@pytest.mark.parametrize("infos", [None, SimpleNamespace(), SimpleNamespace(is_divergent=None)])
def test_draws_that_do_not_tell_of_divergences_are_judged_without(infos):
    fit = fitted(0.0)
    fit = fit._replace(draws=fit.draws._replace(infos=infos))
    assert judge_chains("nuts", fit, POSTERIOR, X).is_good


def test_chains_whose_weights_are_stuck_are_named_though_the_noise_moves():
    """Of many chains one in the others' midst does not show in R-hat."""
    draws = fitted(0.0, chains=16)
    verdict = judge_chains("pcn", draws, POSTERIOR, X)
    assert verdict.is_good
    for leaf in jax.tree.leaves(draws.positions["network"]):
        leaf[3] = leaf[3, :1]
    assert np.ptp(draws.positions["log_noise_scale"][3]) > 0
    verdict = judge_chains("pcn", draws, POSTERIOR, X)
    assert verdict.is_stuck
    assert "of the chains, 3 never moved, wholly or in part, or met NaN" in str(verdict)


@pytest.mark.parametrize("likelihood", ["poisson", "negative-binomial"])
def test_means_of_counts_that_rest_on_a_few_draws_are_told(likelihood):
    settings = Settings("nuts", (), 4, 1, 4, 0.3, 0, likelihood=likelihood)
    posterior = make_posterior("nuts", settings, X, np.arange(12.0, dtype=np.float32), None)
    like = jax.eval_shape(posterior.sample_prior, jax.random.key(0))
    rng = np.random.default_rng(0)
    draw = lambda leaf: rng.normal(0, 0.3, (4, 500, *leaf.shape)).astype(np.float32)  # noqa: E731
    positions = jax.tree.map(draw, like)
    kept = Draws(positions, None, {}, None, None, np.arange(500), None, False)
    said = "rests on a few draws"
    assert said not in str(judge_chains("nuts", Fitted(positions, kept, []), posterior, X))
    positions["network"][0]["b"][2, 7] += 3.0  # a mean of e^15 times the others'
    found = judge_chains("nuts", Fitted(positions, kept, []), posterior, X)
    assert found.is_good  # ranks, by which chains are compared, do not see it
    assert said in str(found)
    if likelihood == "negative-binomial":
        positions["network"][0]["b"][2, 7] -= 3.0
        positions["log_concentration"][1, 3] -= 12.0  # a variance of e^12 times the others'
        assert said in str(judge_chains("nuts", Fitted(positions, kept, []), posterior, X))
