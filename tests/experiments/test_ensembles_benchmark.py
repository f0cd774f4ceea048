"""Tests of experiments.benchmarks.ensembles: its splits, its scores, what is stored is not run
again, and its page says what the numbers say.
"""

import json
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from experiments.benchmarks import ensembles
from experiments.benchmarks.ensembles import ours, page, scores, tables
from experiments.benchmarks.ensembles.conclusions import conclusions
from experiments.datasets import Split, tabular
from experiments.errors import InputError
from experiments.record.pages import current_code
from experiments.results import Row, write_results


def test_development_sees_no_test_row(original):
    whole, split = original(tables.split_of, "yacht"), tables.split_of("yacht", is_development=True)
    assert len(whole.x_train) + len(whole.x_test) == 308
    assert len(split.x_train) + len(split.x_test) == len(whole.x_train)
    raw = original(tabular, "airfoil", 0)
    dev = tables.split_of("airfoil", is_development=True)
    # Standardised by its own training rows: undone, every row is one of the training rows.
    rows = np.concatenate([dev.y_train, dev.y_test])
    found = (rows - rows.mean()) / rows.std()
    expected = (raw.y_train - raw.y_train.mean()) / raw.y_train.std()
    np.testing.assert_allclose(np.sort(found), np.sort(expected), atol=1e-9)
    with pytest.raises(InputError, match="There is no 'yact' here"):
        tables.split_of("yact")


def test_scores_are_those_of_the_mixture(rng):
    mean, sd = rng.normal(size=(3, 5, 7)), rng.uniform(0.5, 2, (3, 5, 7))
    y = rng.normal(size=7)
    found = scores.scores_of(mean, sd, y)
    flat = mean.reshape(15, 7), sd.reshape(15, 7)
    law = stats.norm(*flat)
    assert found["lppd"] == pytest.approx(np.log(law.pdf(y).mean(0)).mean())
    draws = rng.normal(size=(20_000, 15, 7)) * flat[1] + flat[0]
    one = stats.norm(draws.mean((0, 1)), draws.std((0, 1)))
    assert found["nll"] == pytest.approx(-one.logpdf(y).mean(), abs=0.02)
    assert found["nll_worst_row"] == pytest.approx(-one.logpdf(y).min() / 7, abs=0.02)
    assert found["rmse"] == pytest.approx(np.sqrt(np.mean((flat[0].mean(0) - y) ** 2)))
    of_chains = [np.mean((chain.mean(0) - y) ** 2) for chain in mean]
    assert found["rmse_chain"] == pytest.approx(np.sqrt(np.mean(of_chains)))
    assert found["rmse_chain"] > found["rmse"]
    below = law.cdf(y).mean(0)
    assert found["coverage"] == np.mean((below > 0.05) & (below < 0.95))
    assert found["rhat_median"] <= found["rhat_95"]
    assert "rhat_95" not in scores.scores_of(mean[:, :1], sd[:, :1], y)


def test_what_is_stored_is_not_run_again(monkeypatch, tmp_path):
    ran = []

    def measured(out_dir, name, seed, method, is_development):
        ran.append((name, seed, method))
        if method == "bde":
            return None
        known = {"set": name, "seed": seed, "method": method}
        known["settings"] = dict(ours.SETTINGS.get(method, {}))
        return {**known, "nll": -1.0, "rmse": 0.1, "cpu_seconds": 2.0}

    monkeypatch.setattr(ensembles, "_measured", measured)
    monkeypatch.setattr(ensembles, "KEPT", tmp_path / "kept.json")
    options = {"sets": ["yacht"], "methods": ["quick", "bde"], "most_seeds": 2}
    assert len(ensembles.run(tmp_path, **options)) == 2 * 3
    assert len(ran) == 4
    ensembles.run(tmp_path, **options)
    assert ran[4:] == [("yacht", 0, "bde"), ("yacht", 1, "bde")]
    ensembles.run(tmp_path, **options | {"methods": ["quick"], "is_development": True})
    assert len(ran) == 8
    # Other settings are another method: what they gave is not what is asked for.
    monkeypatch.setitem(ours.SETTINGS, "quick", {"most_steps": 7})
    ensembles.run(tmp_path, **options | {"methods": ["quick"]})
    assert ran[8:] == [("yacht", 0, "quick"), ("yacht", 1, "quick")]
    with pytest.raises(InputError, match="There is no 'bd' here"):
        ensembles.run(tmp_path, methods=["bd"])
    with pytest.raises(InputError, match="The page shows test rows"):
        ensembles.run(tmp_path, is_development=True, write_page=True)


def test_a_result_by_code_that_changed_meanwhile_is_not_stored(monkeypatch, tmp_path, capsys):
    code = ["before"]
    monkeypatch.setattr(ensembles, "KEPT", tmp_path / "kept.json")
    monkeypatch.setattr(ensembles, "_code_of", lambda method: code[0])

    def measured(out_dir, name, seed, method, is_development):
        code[0] = "after"
        return {"set": name, "seed": seed, "method": method, "nll": 0.0, "rmse": 1.0}

    monkeypatch.setattr(ensembles, "_measured", measured)
    options = {"sets": ["yacht"], "methods": ["bde"], "most_seeds": 1}
    assert ensembles.run(tmp_path, **options) == []
    assert "Not stored: the code was changed" in capsys.readouterr().out


def test_predictions_that_are_still_there_are_scored_again(monkeypatch, tmp_path, rng):
    y = tables.split_of("yacht").y_test
    predictions = tmp_path / "work" / "yacht-0-bde" / "predictions.npz"
    predictions.parent.mkdir(parents=True)
    mean, sd = rng.normal(size=(2, 5, len(y))), np.ones((2, 5, len(y)))
    np.savez(predictions, mean=mean, sd=sd)
    monkeypatch.setattr(ensembles, "KEPT", tmp_path / "kept.json")
    code = ensembles._code_of("bde")
    known = {"set": "yacht", "method": "bde", "nll": 9.0, "cpu_seconds": 2.0, "code": code}
    stored = {f"yacht-{seed}-bde": known | {"seed": seed} for seed in (0, 1)}
    (tmp_path / "kept.json").write_text(json.dumps(stored))
    options = {"sets": ["yacht"], "methods": ["bde"], "most_seeds": 2}
    ensembles.run(tmp_path, **options)
    assert json.loads((tmp_path / "kept.json").read_text()) == stored
    ensembles.run(tmp_path, **options, score_again=True)
    found = json.loads((tmp_path / "kept.json").read_text())
    assert found["yacht-1-bde"] == stored["yacht-1-bde"]
    del found["yacht-0-bde"]["stored_at"]
    assert found["yacht-0-bde"] == known | {"seed": 0} | scores.scores_of(mean, sd, y)


def test_the_page_says_what_the_numbers_say(tmp_path):
    def one(seed, method, nll, seconds):
        return {"set": "yacht", "seed": seed, "method": method, "nll": nll, "cpu_seconds": seconds}

    results = [
        one(0, "quick", -1.0, 25.0),
        one(1, "quick", -1.2, 35.0),
        one(0, "bde", -0.9, 100.0),
        one(0, "exact", -0.8, 50.0),
    ]
    page.write(tmp_path / "page.md", results, tmp_path)
    text = (tmp_path / "page.md").read_text()
    assert "| `sample_ensemble`, unadjusted | 2 | 30 ± 5 | -1.1 ± 0.1 | - | - |" in text
    assert "unadjusted: NLL 0.100 below bde's (one seed) in 25% of its CPU seconds." in text
    assert "exact: NLL 0.100 above bde's (one seed) in 50% of its CPU seconds." in text
    assert "Airfoil" not in text
    assert "NUTS" not in text
    assert not list(tmp_path.glob("*.png"))
    page.write(tmp_path / "page.md", [*results, one(0, "quick-x4", -1.3, 90.0)], tmp_path)
    text = (tmp_path / "page.md").read_text()
    assert "quick-x4" not in text
    assert "| unadjusted, 4 times the steps | 1 | 90 | -1.3 | - | - |" in text
    assert "4 times the steps: NLL 0.400 below bde's (one seed) in 90% of its CPU seconds." in text
    assert "![NLL against CPU seconds, yacht](page_yacht.png)" in text
    assert (tmp_path / "page_yacht.png").stat().st_size > 5000


@pytest.mark.parametrize(
    ("ours", "theirs", "said"),
    [
        ([-1.1, -1.3], [-1.0, -1.0], "NLL 0.200 ± 0.1 below bde's"),
        ([-1.1, -1.3], [-1.0, -1.2], "NLL 0.100 ± 0.14 below bde's, level with it,"),
        ([0.2, 0.2, 0.23], [0.0, 0.03, 0.0], "NLL 0.200 ± 0.014 above bde's"),
        ([0.4], [0.1], "NLL 0.300 above bde's (one seed)"),
    ],
)
def test_a_gap_has_the_error_of_both_sides_and_one_within_it_is_none(ours, theirs, said):
    """Our seeds and bde's are no pairs, in whatever order they stand."""
    assert page._beside(ours, theirs) == said
    assert page._beside(ours, theirs[::-1]) == said


def test_the_page_shows_what_other_benchmarks_recorded(tmp_path):
    def recorded(name, quantity, setting, value, *more):
        write_results(
            tmp_path / name,
            experiment=f"benchmarks/{name}",
            scale=None,
            seed=None,
            rows=[Row(quantity, "another", 7.0), Row(quantity, setting, value), *more],
            run={"commit": "0123456789abcdef"},
            paper_values={},
        )
        page.write(tmp_path / "page.md", [], tmp_path)
        return (tmp_path / "page.md").read_text()

    assert "Two devices" not in recorded("runner", "ratio", "of no case", 0.9)
    text = recorded("runner", "ratio", "airfoil microcanonical, 10 chains", 0.981)
    assert "`sample` runs them at 0.981 of the speed" in text
    assert "Two devices" not in text
    setting = "cpu, 2 devices, 10 microcanonical chains on airfoil"
    text = recorded("scale", "times_the_fewest_devices", setting, 1.834)
    assert "Two devices of one core each run them at 1.83 times the speed of one (" in text
    assert re.search(r"benchmark scale`; measured on \d{4}-\d\d-\d\d at 0123456789\)\.", text)
    beside = Row(
        "times_the_fewest_devices",
        "cpu, 2 processes side by side, 10 microcanonical chains on airfoil",
        1.857,
    )
    text = recorded("scale", "times_the_fewest_devices", setting, 1.834, beside)
    assert "at 1.83 times the speed of one; two separate processes, with five chains" in text
    assert "a core each, run them at 1.86 times (" in text  # the devices did lose something
    text = recorded("scale", "times_the_fewest_devices", setting, 1.857, beside)
    assert "at 1.86 times: two devices lose nothing by sharing one program (" in text


def test_the_curve_has_seeds_of_its_own(monkeypatch, tmp_path):
    ran = []
    monkeypatch.setattr(ensembles, "_measured", lambda *a: ran.append(a[1:4]))
    monkeypatch.setattr(ensembles, "KEPT", tmp_path / "kept.json")
    ensembles.run(tmp_path, sets=["yacht", "airfoil"], methods=["quick-x8"])
    assert ran == [("airfoil", 0, "quick-x8"), ("airfoil", 1, "quick-x8")]
    ran.clear()
    ensembles.run(tmp_path, sets=["airfoil", "bikesharing"], methods=["quick-x4", "quick-x2"])
    seeds = {
        method: [s for n, s, m in ran if (n, m) == ("airfoil", method)]
        for method in ("quick-x4", "quick-x2")
    }
    assert seeds == {"quick-x4": [0, 1, 2, 3, 4], "quick-x2": [0, 1]}
    assert [case for case in ran if case[0] == "bikesharing"] == [("bikesharing", 0, "quick-x2")]
    assert ours.SETTINGS["quick-x8"]["most_steps"] == 8 * ours.SETTINGS["quick"]["most_steps"]


@pytest.mark.long
@pytest.mark.third_party(reason="Adam's and BlackJAX's dtypes are promoted")
@pytest.mark.parametrize("method", ours.METHODS)
def test_each_of_our_methods_predicts(method, rng):
    x = rng.normal(size=(150, 2))
    y = np.sin(x[:, 0]) + 0.1 * rng.normal(size=150)
    data = {"x_train": x[:120], "y_train": y[:120], "x_test": x[120:]}
    settings = ours.SETTINGS.get(method, {})
    if method == "nuts":
        settings = settings | {"num_warmup": 100, "max_num_doublings": 5}
    elif settings:
        settings = settings | {"most_steps": 1500, "num_tuning": 300, "trajectory_steps": 5}
    found = ours.predictions(method, data, 0, settings)
    draws = 1 if method == "ensemble" else ours.NUM_DRAWS
    assert found["mean"].shape == found["sd"].shape == (ours.NUM_CHAINS, draws, 30)
    assert scores.scores_of(found["mean"], found["sd"], y[120:])["rmse"] < 0.4
    if method in ("quick", "exact"):
        assert 0 <= found["settled"] <= 1
        assert 0 <= found["stuck"] <= ours.NUM_CHAINS
        assert any("unadjusted kernel" in w for w in found["warnings"]) == (method == "quick")
        assert ("undone" in found) == (method == "quick")


def test_a_process_that_fails_is_told_of_and_not_stored(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(ensembles, "peers_python", lambda *_: Path(sys.executable))
    monkeypatch.setattr(ensembles, "timed", _failing)
    monkeypatch.setattr(ensembles, "KEPT", tmp_path / "kept.json")
    rows = np.zeros((6, 2)), np.arange(6.0)
    monkeypatch.setattr(ensembles, "split_of", lambda *_, **__: Split(*rows, *rows))
    assert ensembles.run(tmp_path, sets=["yacht"], methods=["bde"], most_seeds=1) == []
    assert "yacht, seed 0: bde failed: no such module" in capsys.readouterr().out
    assert not list((tmp_path / "stored").glob("*.json"))
    monkeypatch.setattr(ensembles, "peers_python", lambda *_: None)
    assert ensembles.run(tmp_path, sets=["yacht"], methods=["bde"], most_seeds=1) == []


def _failing(command, environment, limit, log):
    log.write_text("Traceback\nno such module\n")
    return 1.0, 1.0, 1


def test_the_program_of_the_others_writes_what_is_scored(tmp_path):
    """With a stand-in for bde, since that package is not among ours."""
    package = tmp_path / "bde"
    package.mkdir()
    package.joinpath("__init__.py").write_text(
        "import numpy as np\n"
        "class BdeRegressor:\n"
        "    def __init__(self, loss, seed, n_members, **settings): self.members = n_members\n"
        "    def fit(self, x, y): self.rows = len(x)\n"
        "    def predict(self, x, raw):\n"
        "        return np.zeros((self.members, 4, len(x), 2)) + np.arange(4)[:, None, None]\n"
    )
    package.joinpath("loss.py").write_text("class GaussianNLL: pass\n")
    x, y = np.zeros((6, 2)), np.array([0.0, 1, 2, 3, 4, 5])
    np.savez(tmp_path / "data.npz", x_train=x, y_train=y, x_test=x[:3])
    program = Path(ensembles.__file__).with_name("theirs.py")
    files = [str(tmp_path / "data.npz"), str(tmp_path / "out.npz"), "0"]
    run = [sys.executable, str(program), *files]
    subprocess.run(run, check=True, cwd=tmp_path, env={"PYTHONPATH": str(tmp_path)})
    with np.load(tmp_path / "out.npz") as found:
        assert found["mean"].shape == (10, 4, 3)
        np.testing.assert_array_equal(found["mean"][0, :, 0], [0, 1, 2, 3])
        np.testing.assert_allclose(found["sd"][0, :, 0], np.logaddexp(0, [0, 1, 2, 3]) + 1e-6)
    assert json.loads(json.dumps(ours.SETTINGS)) == ours.SETTINGS


@pytest.mark.parametrize("is_old", [False, True])
def test_the_page_has_the_tables_of_recorded_studies(is_old, tmp_path):
    folder = tmp_path / "ensembles" / "bias" / "desk"
    folder.mkdir(parents=True)
    (folder / "bias.md").write_text("| a table |\n")
    code = "another" if is_old else current_code("ensembles/bias")
    run = {"code": [code], "experiment": "ensembles/bias"}
    (folder / "run.json").write_text(json.dumps(run))
    page.write(tmp_path / "page.md", [], tmp_path / "benchmarks")
    text = (tmp_path / "page.md").read_text()
    assert "## What unadjusted draws are off by" in text
    mark = " **Of earlier code.**" * is_old
    assert f"configs/ensembles/bias.toml --scale desk`.{mark}\n\n| a table |" in text
    assert "From mode to mode" not in text


def numbers(**quantities):
    """Return rows of settings' values and errors, `quantity={setting: (value, error)}`."""
    return [
        {"quantity": quantity, "setting": setting, "value": value, "standard_error": error}
        for quantity, settings in quantities.items()
        for setting, (value, error) in settings.items()
    ]


def test_bias_is_told_only_where_it_is_more_than_a_second_exact_run():
    rows = numbers(
        total_variation={
            "yacht, a second exact run": (0.16, 0.02),
            "yacht, energy error 0.5": (0.25, 0.01),
            "yacht, energy error 0.1": (0.20, 0.01),
            "yacht, energy error 0.02": (0.19, 0.01),
            "airfoil, a second exact run": (0.05, 0.01),
            "airfoil, energy error 0.5": (0.06, 0.01),
        },
        energy_error={
            "yacht, energy error 0.1": (0.114, 0.02),
            "yacht, energy error 0.5": (0.32, 0.03),
            "yacht, energy error 0.02": (0.05, 0.01),
            "airfoil, energy error 0.5": (0.58, 0.05),
        },
        variance_ratio={
            "yacht, energy error 0.02": (0.9, 0.1),
            "yacht, energy error 0.1": (0.8, 0.1),
            "yacht, energy error 0.5": (0.7, 0.1),
        },
    )
    said = conclusions("bias", rows)
    assert "On yacht" in said
    assert "three standard errors at energy errors of 0.32; an output's variance is 0.70" in said
    assert "0.70 of the exact at the largest and 0.90 at the least." in said
    assert "On airfoil" in said
    assert said.endswith("at no energy error.")


@pytest.mark.parametrize(
    ("exchange", "said"), [(0.78, "No move beats"), (0.80, "`exchange`, 0.800 ± 0.010, beats")]
)
def test_a_move_pays_only_where_it_beats_going_on(exchange, said):
    arms = {"alone": (0.74, 0.01), "exchange": (exchange, 0.01), "redraws": (0.7, 0.01)}
    found = conclusions("between_modes", numbers(lppd_at_the_budget=arms))
    assert found.startswith(said)


def test_moves_whose_number_or_error_is_not_known_are_told():
    """Rounds that were gone on with have no cost; one seed tells of no chance."""
    arms = {"alone": (0.74, 0.01), "exchange": (0.7, 0.01), "restarts": (None, None)}
    found = conclusions("between_modes", numbers(lppd_at_the_budget=arms))
    assert found.startswith("No move beats")
    assert found.endswith("Of `restarts` no number is known.")
    arms = {"alone": (0.7341, None), "redraws": (0.7344, None)}
    found = conclusions("between_modes", numbers(lppd_at_the_budget=arms))
    assert found.startswith("The best of the moves is `redraws`, 0.734, beside chains that go on")
    assert "beats" not in found


@pytest.mark.parametrize(("median", "p"), [(1.4, 0.004), (1.01, 0.3)])
def test_what_stops_two_exact_kernels_from_agreeing_is_told(median, p):
    rows = numbers(
        total_variation={"yacht": (0.24, None)},
        total_variation_by_chance={"yacht": (0.19, None)},
        p_value={"yacht": (p, None)},
        median_rhat={"yacht, trained": (median, None), "yacht, annealed": (median, None)},
        **{"share_rhat_below_1.01": {"yacht, both": (0.25, None)}},
    )
    said = conclusions("exactness", rows)
    assert ("differ by more than chance" in said) == (p < 0.05)
    assert "below 1.01 for 25% of the predictions" in said
    assert ("What stops yacht: chains of one side stay in modes" in said) == (median > 1.1)


def test_of_other_studies_nothing_is_concluded():
    assert conclusions("modes", []) == ""


def test_the_page_is_what_the_command_makes(tmp_path):
    stored = ensembles.Stored(tmp_path / "stored", ensembles.KEPT).values()
    results = [one for one in stored if ensembles._is_of_today(one, one["method"])]
    page.write(tmp_path / ensembles.PAGE.name, results)
    assert ensembles.PAGE.read_text() == (tmp_path / ensembles.PAGE.name).read_text()
