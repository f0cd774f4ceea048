"""Tests of experiments.studies.ensembles: the Gaussian is what it says, and the study's files."""

import itertools
import json
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from experiments.__main__ import main
from experiments.studies.ensembles.between_modes import BetweenModesSettings, _at_budget
from experiments.studies.ensembles.bias import _with_error
from experiments.studies.ensembles.densities import lppd, total_variation
from experiments.studies.ensembles.exactness import dealt
from experiments.studies.ensembles.exchange import exchange_units
from experiments.studies.ensembles.modes import lppd_by_chains
from experiments.studies.ensembles.problems import problem

CONFIGS = Path(__file__).parents[2] / "configs" / "ensembles"


def test_the_gaussian_s_exact_draws_are_its_posterior_s():
    posed = problem("gaussian", 5, 4, 0, 1e3)
    drawn = posed.draw(jax.random.key(0), 20_000)
    values = np.concatenate([drawn[0]["w"][..., 0], drawn[0]["b"]], axis=1).astype(float)
    # The log density falls by half the squared distance from the mean, in units of the covariance.
    density = jax.vmap(posed.posterior.log_density)(drawn)
    away = values - values.mean(0)
    distance = np.einsum("ni,ij,nj->n", away, np.linalg.inv(np.cov(values.T)), away)
    falls = np.polyfit(distance, np.asarray(density, float), 1)[0]
    np.testing.assert_allclose(falls, -0.5, rtol=0.02)
    assert 100 < np.linalg.cond(np.cov(values.T)) < 1e5


def test_distances_of_densities_that_are_known():
    grid = np.linspace(-8, 9, 2001)[None, :, None]
    of = lambda at: np.exp(-0.5 * (grid - at) ** 2) / np.sqrt(2 * np.pi)  # noqa: E731
    a = {"densities": np.repeat(of(0.0), 3, 0), "at_targets": np.full((3, 2), 0.5)}
    b = {"densities": np.repeat(of(1.0), 3, 0), "at_targets": np.full((3, 2), 0.25)}
    steps = np.full(1, grid[0, 1, 0] - grid[0, 0, 0])
    # TV(N(0,1), N(1,1)) = 2 Phi(1/2) - 1.
    np.testing.assert_allclose(
        total_variation(a["densities"], b["densities"], steps), 0.38292, rtol=1e-4
    )
    np.testing.assert_allclose(lppd(b) - lppd(a), -np.log(2))
    more = {"mean": np.zeros((3, 1)), "variance": np.ones((3, 1)), "ess": np.ones((3, 1))}
    value, error = _with_error(lambda x, y: lppd(y) - lppd(x), a | more, b | more)
    assert value < 0
    assert error < 1e-12
    # Of which a part lies beyond the grid: half of |a - b| within, and of the difference outside.
    inside = grid[0, :, 0] < 0
    cut = (found["densities"][:, inside] for found in (a, b))
    # P(a < 0) = 1/2 and P(b < 0) = Phi(-1), and a is the larger throughout.
    np.testing.assert_allclose(total_variation(*cut, steps), 0.5 - 0.158655, atol=2e-3)


def test_a_jackknife_of_a_mean_is_its_standard_error(rng):
    exact = {key: rng.normal(size=(6, 1)) for key in ("mean", "variance", "ess")}
    exact |= {"densities": np.zeros((6, 1, 1)), "at_targets": np.zeros((6, 1))}
    other = {key: rng.normal(size=values.shape) for key, values in exact.items()}
    value, error = _with_error(lambda a, b: np.mean(b["mean"] - a["mean"]), exact, other)
    apart = (other["mean"] - exact["mean"])[:, 0]
    np.testing.assert_allclose([value, error], [apart.mean(), apart.std(ddof=1) / np.sqrt(6)])


@pytest.mark.long
@pytest.mark.third_party(reason="BlackJAX's kernels promote dtypes")
def test_metrics_are_compared_after_the_same_way_in(tmp_path, monkeypatch, sets_or_skip):
    monkeypatch.chdir(tmp_path)
    assert main([str(CONFIGS / "metric.toml"), "--scale", "smoke", "--out", "out"]) == 0
    stages = tmp_path / "out" / "ensembles" / "metric" / "smoke" / "stages"
    ends = [
        [np.load(stages / f"gaussian_{seed}_{k}_directions.npz")[name] for k in (0, 4)]
        for seed in (0, 1)
        for name in ("way_in_log_density", "squared_jump")
    ]
    for (way_in, other), (jump, other_jump) in zip(ends[::2], ends[1::2], strict=True):
        np.testing.assert_array_equal(way_in, other)
        assert jump != other_jump


@pytest.mark.long  # half a minute of compiling
@pytest.mark.third_party(reason="BlackJAX's kernels promote dtypes")
def test_the_study_writes_a_row_a_number(tmp_path, monkeypatch, sets_or_skip):
    monkeypatch.chdir(tmp_path)
    assert main([str(CONFIGS / "bias.toml"), "--scale", "smoke", "--out", "out"]) == 0
    path = tmp_path / "out" / "ensembles" / "bias" / "smoke" / "metrics.json"
    rows = {(row["quantity"], row["setting"]): row for row in json.loads(path.read_text())["rows"]}
    floor = rows["total_variation", "gaussian, a second exact run"]["value"]
    biased = rows["total_variation", "gaussian, energy error 0.5"]["value"]
    assert 0 < floor < 1
    assert 0 < biased < 1
    assert rows["energy_error", "gaussian, energy error 0.01"]["value"] > 0


def test_lppd_of_sets_of_chains_against_all_sets(rng):
    log_density = np.log(rng.uniform(0.1, 1, (6, 4)))
    curve = lppd_by_chains(log_density, num_sets=4000)
    assert list(curve) == [1, 2, 5, 6]
    for size in (1, 2, 5):
        sets = [list(chosen) for chosen in itertools.combinations(range(6), size)]
        values = [np.log(np.exp(log_density[chosen]).mean(0)).mean() for chosen in sets]
        np.testing.assert_allclose(curve[size][0], np.mean(values), atol=0.02)
        # Of sets of new chains, from that of sets among these six.
        exact = np.std(values) / np.sqrt(1 - size / 6)
        np.testing.assert_allclose(curve[size][1], exact, rtol=0.1)
    assert curve[6][0] == pytest.approx(np.log(np.exp(log_density).mean(0)).mean())
    assert np.isnan(curve[6][1])
    # A mixture of more is better on average, whatever the densities (Jensen).
    assert np.all(np.diff([value for value, _ in curve.values()]) > 0)


def test_chains_dealt_at_random_differ_as_the_sides_do_if_there_is_no_difference(rng):
    """Of one law, the sides' distance is one of its deals, uniform in rank; of two, beyond them."""
    grid = np.linspace(-8, 8, 161)[:, None]
    steps = np.full(1, 0.1)

    def chains(number, shift):
        at = rng.normal(shift, 0.5, number)[:, None, None]
        return np.exp(-0.5 * (grid - at) ** 2) / np.sqrt(2 * np.pi)

    def rank(one, other):
        found = dealt(one, other, steps)
        return (found >= total_variation(one, other, steps)).mean(), len(found)

    ranks = [rank(chains(4, 0.0), chains(4, 0.0)) for _ in range(60)]
    assert {number for _, number in ranks} == {69}  # 8 over 4, but for the deal that was made
    share = np.mean([r for r, _ in ranks])
    assert 0.5 - 6 * np.sqrt(1 / 12 / 60) < share < 0.5 + 6 * np.sqrt(1 / 12 / 60)
    assert rank(chains(4, 0.0), chains(4, 3.0))[0] < 0.03
    assert len(dealt(chains(8, 0.0), chains(8, 0.0), steps)) == 400


def test_exchanged_units_leave_the_joint_law_alone(rng):
    # Unit u has w ~ N(0, 1) for prior and exp(c_u w) for likelihood: N(c_u, 1), drawn exactly.
    slopes = np.float32([-1.0, 0.0, 2.0])
    num_sets, num_chains = 4000, 4
    shape = (num_sets, num_chains)
    incoming = (rng.standard_normal((*shape, 1, 3)) + slopes).astype(np.float32)
    outgoing = np.broadcast_to(np.float32([[0], [1], [2]]), (*shape, 3, 1))
    starts = (
        {"w": jnp.asarray(incoming), "b": jnp.zeros((*shape, 3), jnp.float32)},
        {},
        {"w": jnp.asarray(outgoing), "b": jnp.zeros((*shape, 1), jnp.float32)},
    )
    log_likelihood = lambda position: jnp.sum(slopes * position[0]["w"][0])  # noqa: E731
    keys = jax.random.split(jax.random.key(1), num_sets)
    run = jax.vmap(lambda key, some: exchange_units(key, some, log_likelihood, 10))
    ends, rates = run(keys, starts)
    assert 0.1 < float(rates.mean()) < 0.9
    values = np.asarray(ends[0]["w"], float)[..., 0, :]
    # The mean of N normal numbers has deviation sqrt(1 / N) and their variance sqrt(2 / N); 5.2
    # deviations are a false alarm in a million, of six.
    error = 1 / np.sqrt(num_sets * num_chains)
    assert np.abs(values.mean((0, 1)) - slopes).max() < 5.2 * error
    assert np.abs(values.var((0, 1)) - 1).max() < 5.2 * np.sqrt(2) * error
    # In each set the same units as before, each with what goes out of it.
    before, after = (
        [np.asarray(part["w"]).reshape(num_sets, -1) for part in (position[0], position[2])]
        for position in (starts, ends)
    )
    for number in range(2):
        ordered = [np.take_along_axis(p[number], np.argsort(p[0]), 1) for p in (before, after)]
        np.testing.assert_array_equal(*ordered)
    assert (before[1] != after[1]).mean() > 0.1


def test_an_arm_is_judged_at_its_part_of_a_hundred_chains_cost():
    settings = BetweenModesSettings(num_chains=10, budget=0.2)
    first = {"cpu_seconds": np.array(30.0)}  # ten chains: sixty seconds are a fifth of a hundred
    curve = [(30.0, 0.5), (50.0, 0.7), (70.0, 0.9)]
    assert _at_budget("alone", curve, first, settings).value == pytest.approx(0.8)
    assert _at_budget("alone", curve[:2], first, settings).value == pytest.approx(0.7)
    unknown = {"cpu_seconds": np.array(np.nan)}
    assert np.isnan(_at_budget("alone", curve, unknown, settings).value)
