"""Tests of experiments.studies.challenges: XOR's gradient descent against NumPy, and the numbers
read off regions and covariances.
"""

from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import expit

from experiments.datasets import xor
from experiments.errors import InputError
from experiments.spreads import spreads_of
from experiments.studies.challenges import (
    converged,
    covariances,
    gradient_descent,
    iris,
    ladders,
    regions,
)
from experiments.studies.challenges.common import (
    jackknife,
    over_seeds,
    paper_order,
    summarise_ess,
)
from experiments.study import Context, Row


def numpy_descent(theta, rate, epochs):
    """Gradient descent on the mean cross-entropy, by hand; theta (9,) in the paper's order."""
    x, y = (np.asarray(v, float) for v in xor())
    w1, b1, w2, b2 = theta[:4].reshape(2, 2).copy(), theta[4:6].copy(), theta[6:8].copy(), theta[8]
    for _ in range(epochs):
        h = expit(x @ w1.T + b1)
        error = (expit(h @ w2 + b2) - y) / 4
        back = error[:, None] * w2 * h * (1 - h)
        b2 = b2 - rate * error.sum()
        w2 = w2 - rate * h.T @ error
        b1 = b1 - rate * back.sum(axis=0)
        w1 = w1 - rate * back.T @ x
    chance = expit(expit(x @ w1.T + b1) @ w2 + b2)
    return np.concatenate([w1.ravel(), b1, w2, [b2]]), chance


def settings(**changes):
    values = {
        "num_solutions": 50,
        "num_epochs": 300,
        "learning_rate": 1.0,
        "threshold": 0.9,
        "batch_size": 256,
        "num_plotted": 10,
        "starts": (gradient_descent.Start(prior_variance=10.0),),
    }
    return gradient_descent.GradientDescentSettings(**{**values, **changes})


def test_descent_equals_numpy(rng, x64):
    theta = rng.normal(scale=2.0, size=(5, 9))
    w1 = theta[:, :4].reshape(5, 2, 2).swapaxes(1, 2)
    starts = (
        {"w": jnp.asarray(w1), "b": jnp.asarray(theta[:, 4:6])},
        (),
        {"w": jnp.asarray(theta[:, 6:8, None]), "b": jnp.asarray(theta[:, 8:])},
    )
    x, y = xor()
    data = {"x": jnp.asarray(x, float), "y": jnp.asarray(y)}
    ends, chance = gradient_descent.descend(starts, data, 0.7, 40)
    found = paper_order(jax.tree.map(lambda leaf: leaf[None], ends))[0]
    for i in range(5):
        expected, expected_chance = numpy_descent(theta[i], 0.7, 40)
        np.testing.assert_allclose(found[i], expected, rtol=1e-9)
        np.testing.assert_allclose(chance[i], expected_chance, rtol=1e-9)


def test_solutions_classify_all_points():
    start = gradient_descent.Start(prior_bound=20.0)
    chosen = settings(num_solutions=60, num_epochs=400)
    solutions, num_starts = gradient_descent.search(start, chosen)(jax.random.key(0))
    assert len(solutions) >= 60
    assert num_starts % 256 == 0
    x, y = xor()
    for theta in solutions.astype(float):
        chance = expit(expit(x @ theta[:4].reshape(2, 2).T + theta[4:6]) @ theta[6:8] + theta[8])
        assert ((chance > 0.9) == (y == 1)).all()


def test_a_search_without_solutions_ends_in_a_sentence(monkeypatch):
    monkeypatch.setattr(gradient_descent, "MAX_BATCHES", 2)
    find = gradient_descent.search(settings().starts[0], settings(num_epochs=1))
    with pytest.raises(InputError, match="of 512 descents from"):
        find(jax.random.key(0))


def test_regions(rng):
    values = rng.normal(size=4000) * 0.5 + np.where(rng.random(4000) < 0.5, -7.0, 8.0)
    positive = regions.on_side("positive", regions.shortest_region)(values)
    np.testing.assert_allclose(positive, [8 - 0.337, 8 + 0.337], atol=0.15)  # quartiles of 0.5 Z
    negative = regions.on_side("negative", regions.central_region)(values)
    np.testing.assert_allclose(negative, np.quantile(values[values < 0], [0.05, 0.95]))
    low, high = regions.between_sides(values)
    np.testing.assert_allclose([low, high], [-7 + 0.822, 8 - 0.822], atol=0.15)
    rows = regions.gradient_descent_rows({"N(0, 10I)": values, "U": values - 1}, "N(0, 10I)")
    found = {(row.quantity, row.setting): row for row in rows}
    start = "gradient descent, Figure 1b, theta_4"
    widest = found["mode_region_low", f"{start}, both priors, positive side"]
    assert widest.value == pytest.approx(positive[0] - 1, abs=0.1)
    inner = found["low_mass_region_high", f"{start}, both priors"]
    assert inner.value == pytest.approx(high - 1, abs=0.1)
    assert all(0 < row.standard_error < 0.2 for row in rows)


def test_errors_of_regions_are_their_spread_over_repetitions(rng):
    """Ends of a shortest half come to rest more slowly than quantiles."""
    found: dict = {}
    for _ in range(150):
        values = rng.normal(size=2000) + np.where(rng.random(2000) < 0.5, -7.0, 8.0)
        for row in regions.gradient_descent_rows({"N": values, "U": 2 * values}, "N"):
            found.setdefault((row.quantity, row.setting), []).append(row)
    ratios: dict = {}
    for (quantity, setting), rows in found.items():
        error = np.mean([row.standard_error for row in rows])
        ratio = error / np.std([row.value for row in rows])
        ratios.setdefault((quantity.split("_")[0], "both" in setting), []).append(ratio)
    assert np.mean(ratios["mode", False]) == pytest.approx(1, abs=0.15)
    assert np.mean(ratios["mode", True]) == pytest.approx(1, abs=0.15)
    assert np.mean(ratios["mass", False]) == pytest.approx(1, abs=0.15)


def test_the_speed_of_a_search_is_that_of_its_epochs(tmp_path, monkeypatch):
    monkeypatch.setattr(gradient_descent, "search", lambda *_: lambda key: (np.zeros((90, 9)), 512))
    monkeypatch.setattr(gradient_descent.time, "perf_counter", iter((10.0, 12.0)).__next__)
    context = Context("smoke", 0, tmp_path)
    of = settings(num_epochs=300)
    gradient_descent._collect(of.starts[0], of, context, None)
    assert context.speeds == {of.starts[0].prior: 512 * 300 / 2}


def test_round_trips_of_burn_in_are_not_counted(monkeypatch):
    told = {"position": None, "log_likelihood": np.zeros((2, 3, 4))}
    told["round_trips"] = np.array([[3, 3, 5], [1, 2, 2]])
    trips = SimpleNamespace(completed=np.array([5, 2]))
    drawn = SimpleNamespace(positions=told, final_state=SimpleNamespace(trips=trips))
    monkeypatch.setattr(ladders, "tune_ladder", lambda *_: (np.linspace(0, 1, 4), {}, None))
    monkeypatch.setattr(ladders, "all_draws", lambda *_, **__: drawn)
    ladder = ladders.Ladder(num_rungs=4, num_rounds=1, num_tuning=50, swap_every=2)
    data = {"x": jnp.zeros((5, 4)), "y": jnp.zeros(5, int)}
    found = ladders.run_ladder(
        jax.random.key(0), "HMC", 2, 1.0, ladder, data, num_chains=2, num_burn_in=9, num_samples=3
    )
    np.testing.assert_array_equal(found.round_trips, [2, 1])


def test_a_converged_run_stands_beside_no_number_of_the_paper(rng, capsys):
    groups = len(converged.GROUPS)
    result = {
        "ess": np.full(groups, 50.0), "rhat": np.ones(groups), "seconds": 2.0, "step_size": 0.1,
        "raw parameters": rng.normal(size=(4, 100, 3)),
    }  # fmt: skip
    rows = converged._own_rows("MALA", result, 2)
    assert {row.source for row in rows} == {None}
    assert "25.0 or more (ESS of one draw in 2, seconds of all)" in capsys.readouterr().out


def test_patterns_of_covariances(rng, tmp_path):
    mix = rng.normal(size=(4, 4))
    kept = {
        "a": rng.normal(size=(5, 400, 4)) @ mix + 3,
        "b": 10 * rng.normal(size=(5, 400, 4)) @ mix,
        "c": rng.normal(size=(5, 400, 4)) @ mix,
        "d": rng.normal(size=(5, 400, 4)),
    }
    context = Context("smoke", 0, tmp_path)
    rows = covariances.covariance_rows(kept, context)
    upper = np.triu_indices(4, 1)
    pattern = {n: np.corrcoef(x.reshape(-1, 4).T)[upper] for n, x in kept.items()}
    expected = np.corrcoef(pattern["a"], pattern["b"] + pattern["c"] + pattern["d"])[0, 1]
    assert rows[0].value == pytest.approx(expected, rel=1e-9)
    count = rows[-1]
    assert (count.quantity, count.value) == ("num_agreeing_settings", 3.0)
    table = (tmp_path / "covariance_agreement.md").read_text().splitlines()
    assert len(table) == 6


def test_over_seeds_are_the_mean_and_its_error():
    by_seed = [
        [Row("ess_min", "MALA", v, 0.5, "004 Table 1"), Row("step_size", "MALA", 2 * v)]
        for v in (1.0, 2.0, 6.0)
    ]
    ess, step, spread = over_seeds(by_seed)
    assert (ess.value, ess.source) == (3.0, "004 Table 1")
    assert ess.standard_error == pytest.approx(np.sqrt(7 / 3))  # the variance of 1, 2, 6 is 7
    assert (step.value, step.source) == (6.0, None)
    assert over_seeds(by_seed[:1]) == by_seed[0]
    assert spreads_of([vars(spread)]) == {("ess_min", "MALA"): pytest.approx(np.sqrt(7))}
    no_errors = [[Row("ess_min", "MALA", v, None, "004 Table 1")] for v in (1.0, 2.0)]
    assert over_seeds(no_errors)[0].source == "004 Table 1"


def test_a_chain_s_time_is_the_median_over_the_seeds():
    run = iris.IrisRun(sampler="P-SMMALA", num_iterations=400, num_burn_in=200, step_size=0.1)
    seeds = [{"seconds_a_chain": seconds} for seconds in (90.0, 10.0, 12.0, 11.0)]
    seconds, days = iris._runtime_rows(run, seeds)
    assert seconds.value == 11.5  # not the first seed's, which compiles
    assert seconds.standard_error > 0
    assert days.value == pytest.approx(11.5 / 86400)
    (alone,) = iris._runtime_rows(run.model_copy(update={"sampler": "NUTS"}), seeds[:1])
    assert (alone.value, alone.standard_error, alone.source) == (90, None, None)


def test_a_jackknife_of_a_mean_is_its_standard_error(rng):
    draws = rng.normal(size=(7, 3))
    found = jackknife(lambda chains: chains.mean(axis=0), draws)
    np.testing.assert_allclose(found, draws.std(axis=0, ddof=1) / np.sqrt(7))


def test_a_summary_of_ess_is_least_median_and_most():
    np.testing.assert_allclose(summarise_ess(np.array([[1.0, 9, 5], [3, 11, 5]])), [2, 5, 10])
