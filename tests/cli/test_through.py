"""What was asked for arrives, from the command line to the files: draws are those of the prior."""

import csv
import json

import jax
import numpy as np
import pytest
import xarray

from jaxbnn.cli import main, prepare
from jaxbnn.cli.place import OUTSIDE
from jaxbnn.plots import observed_against_predicted
from jaxbnn.tabular.fitted import Fitted
from jaxbnn.tabular.verdict import Verdict

pytestmark = pytest.mark.third_party(reason="the command runs without strict checks")
QUICK = ["--sampler", "nuts", "--likelihood", "gaussian", "--prior-scale", "1", "--hidden", "2"]
ROWS = [(i % 10, (7 * i) % 10, 100 + 3 * (i % 10) + i % 4) for i in range(40)]
TEXT = "size,leak,price\n" + "".join(f"{a},{b},{c}\n" for a, b, c in ROWS)


@pytest.fixture
def data(tmp_path):
    path = tmp_path / "data.csv"
    path.write_text(TEXT)
    return path


@pytest.fixture
def by_prior(monkeypatch):
    """Draws of the prior in place of a sampler's."""

    def run(sampler, posterior, settings, progress, checkpoint):
        draws = posterior.sample_prior(jax.random.key(0), (2, 20))
        return Fitted(jax.tree.map(np.asarray, draws), None, ["Said by the sampler."])

    monkeypatch.setattr("jaxbnn.cli.fit.run", run)
    return run


@pytest.fixture
def asked(monkeypatch):
    """What the fit is given."""
    seen = {}

    def stop(prepared, level, out, progress, checkpoints, is_refitted):
        seen.update(prepared=prepared, level=level, is_refitted=is_refitted)
        return "a summary"

    monkeypatch.setattr("jaxbnn.cli.fit.fit", stop)
    return seen


def fit(path, *more, target="price"):
    return main(["fit", str(path), "--target", target, "--quiet", *QUICK, *more])


def predicted(tmp_path, text, *more, delimiter=","):
    (tmp_path / "new.csv").write_text(text)
    arguments = ["predict", str(tmp_path / "data-fit"), str(tmp_path / "new.csv"), "--quiet", *more]
    assert main(arguments) == 0
    with (tmp_path / "new-predictions.csv").open(newline="") as file:
        return list(csv.DictReader(file, delimiter=delimiter))


def test_every_option_arrives(data, asked):
    more = ["--test", "0.5", "--seed", "3", "--noise", "0.7", "--level", "0.5", "--refit"]
    more += ["--sampler", "gibbs"]
    assert fit(data, *more, "--drop", "leak") == 0
    prepared = asked["prepared"]
    assert asked["level"] == 0.5
    assert asked["is_refitted"]
    assert len(prepared.held_out) == 20
    assert prepared.encoding.features == ["size"]
    assert (prepared.settings.seed, prepared.settings.noise) == (3, 0.7)
    assert fit(data, *more, "--seed", "4", "--force") == 0
    assert not np.array_equal(asked["prepared"].held_out, prepared.held_out)


def test_an_order_that_is_given_is_that_of_the_classes(tmp_path, asked):
    path = tmp_path / "data.csv"
    path.write_text("x,y\n" + "".join(f"{i},{'abc'[i % 3]}\n" for i in range(30)))
    assert main(["fit", str(path), "--target", "y", "--quiet", "--order", "c", "a", "b"]) == 0
    assert asked["prepared"].settings.likelihood == "ordinal"
    assert asked["prepared"].encoding.classes == ["c", "a", "b"]


def test_marks_that_are_given_are_those_of_the_file(tmp_path, asked):
    path = tmp_path / "data.csv"
    path.write_text("x:y\n" + "".join(f"1,{i:03d}:{i}.5\n" for i in range(100, 130)))
    assert fit(path, "--separator", ":", "--decimal", ".", target="y") == 2  # 1,100 is no number
    path.write_text("x:y\n" + "".join(f"1,{i:03d}:2,{i:03d}\n" for i in range(100, 130)))
    assert fit(path, "--separator", ":", "--decimal", ",", target="y") == 0
    assert asked["prepared"].table.columns["x"][0] == "1.100"
    path.write_text("x\ty\n" + "".join(f"{i},5\t{i % 7}\n" for i in range(30)))
    for tab in ("tab", "\\t"):
        assert fit(path, "--separator", tab, "--force", target="y") == 0
    assert asked["prepared"].table.columns["x"][3] == "3.5"


def test_one_mark_cannot_be_both(data, capsys):
    assert fit(data, "--separator", ",", "--decimal", ",") == 2
    assert "--separator and --decimal cannot both be ','" in capsys.readouterr().err


def test_a_fit_is_told_in_the_units_and_at_the_level_that_were_asked_for(
    data, by_prior, tmp_path, monkeypatch
):
    seen = []

    def observed(*arrays, level, name):
        seen.append((arrays, level, name))
        return observed_against_predicted(*arrays, level=level, name=name)

    monkeypatch.setattr("jaxbnn.cli.pictures.observed_against_predicted", observed)
    assert fit(data, "--level", "0.5", "--drop", "leak") == 0
    folder = tmp_path / "data-fit"
    scores = json.loads((folder / "scores.json").read_text())
    assert scores["level"] == 0.5
    ((y, mean, lower, upper), level, name) = seen[0]
    assert (level, name) == (0.5, "price")
    assert set(np.round(y, 3)) <= {float(c) for *_, c in ROWS}
    assert scores["rmse"] == pytest.approx(np.sqrt(np.mean((y - mean) ** 2)), rel=1e-4)
    assert scores["coverage"] == pytest.approx(np.mean((lower <= y) & (y <= upper)), abs=1e-9)
    summary = (folder / "summary.md").read_text()
    assert f"(RMSE) on 8 held-out rows: {scores['rmse']:.4g}; always guessing" in summary
    assert "- Said by the sampler." in summary


def test_a_fit_is_not_begun_where_there_is_one(data, by_prior, tmp_path, capsys):
    assert fit(data) == 0
    before = (tmp_path / "data-fit" / "model.json").read_bytes()
    (tmp_path / "data-fit" / "confusion.png").write_text("of another fit")
    assert fit(data, "--drop", "leak") == 2
    assert "holds a fit already; give --force" in capsys.readouterr().err
    assert (tmp_path / "data-fit" / "model.json").read_bytes() == before
    assert fit(data, "--drop", "leak", "--force") == 0
    assert not (tmp_path / "data-fit" / "confusion.png").exists()


def test_a_second_fit_is_the_one_that_predicts_and_its_verdict_counts(
    data, by_prior, tmp_path, monkeypatch
):
    verdicts = iter([Verdict(["Good."], {"rhat": 1.0}), Verdict(["Bad."], {"rhat": 9.0}, False)])
    monkeypatch.setattr("jaxbnn.cli.fit.judge_chains", lambda *_: next(verdicts))
    monkeypatch.setattr("jaxbnn.cli.fit.draw_chains", lambda *_: None)

    def run(*arguments):
        found = by_prior(*arguments)

        class Drawn:  # as of a sampler of chains
            positions, infos, interrupted = found.positions, None, False

        return found._replace(draws=Drawn())

    monkeypatch.setattr("jaxbnn.cli.fit.run", run)
    assert fit(data, "--refit") == 0
    folder = tmp_path / "data-fit"
    of_draws = xarray.load_dataset(
        folder / "posterior.nc", group="observed_data", engine="h5netcdf"
    )
    assert of_draws["y"].shape == (40,)
    np.testing.assert_allclose(np.sort(of_draws["y"]), sorted(c for *_, c in ROWS), rtol=1e-5)
    text = (folder / "summary.md").read_text()
    assert "Bad." in text
    assert "Good." not in text
    assert "Fitted again on all 40 rows" in text
    assert json.loads((folder / "scores.json").read_text())["refit_rhat"] == 9.0


def test_a_second_fit_that_was_stopped_too_early_is_told(data, tmp_path, by_prior, monkeypatch):
    was_stopped = iter([False, True])

    def run(*arguments):
        return by_prior(*arguments)._replace(is_unfinished=next(was_stopped))

    monkeypatch.setattr("jaxbnn.cli.fit.run", run)
    assert fit(data, "--refit") == 0
    text = (tmp_path / "data-fit" / "summary.md").read_text()
    assert "Do not believe it yet: what nuts maximises was still rising" in text
    assert "The verdict on the chains, above, is that of this second fit." in text


def test_only_what_the_fit_wrote_is_told_as_written(data, by_prior, tmp_path, capsys):
    (tmp_path / "data-fit").mkdir()
    (tmp_path / "data-fit" / "notes.txt").write_text("mine")
    assert fit(data) == 0
    told = capsys.readouterr().out.splitlines()[-1]
    assert told.startswith(f"Written to {tmp_path / 'data-fit'}: calibration.png, model.json, ")
    assert "notes.txt" not in told


@pytest.mark.parametrize(
    ("more", "is_told"),
    [([], True), (["--prior-scale", "1"], False), (["--samples", "1000000"], False)],
)
def test_nuts_is_told_as_forced_by_few_rows_a_column_only_where_it_was(
    more, is_told, tmp_path, asked
):
    """Not where scales are given, nor where short chains would take too long."""
    rows = np.random.default_rng(0).normal(size=(140, 41))
    path = tmp_path / "wide.csv"
    names = [f"x{i}" for i in range(40)]
    lines = [",".join(f"{value:.3f}" for value in row) for row in rows]
    path.write_text("\n".join([",".join([*names, "y"]), *lines]) + "\n")
    assert main(["fit", str(path), "--target", "y", "--quiet", *more]) == 0
    prepared = asked["prepared"]
    assert len(prepared.candidates) > 1
    by_nuts = prepared.candidates[0]._replace(sampler="nuts")
    told = " ".join(prepare.settled(prepared, by_nuts).notes)
    assert ("auto took nuts, for there are few rows a column." in told) == is_told
    assert ("auto took nuts, by a benchmark" in told) != is_told


def test_new_rows_are_predicted_as_asked(data, by_prior, tmp_path, capsys):
    assert fit(data, "--drop", "leak") == 0
    capsys.readouterr()
    new = "sd,size,price,tag\na,3,1.25,p\nb,99,2.5,p\n"
    rows = predicted(tmp_path, new)
    assert [row["sd"] for row in rows] == ["a", "b"]  # distinct words are ids
    assert all(float(row["predicted sd"]) > 0 for row in rows)
    assert "1.25" not in rows[0].values()  # what the file says of the target is no prediction
    assert [row[OUTSIDE] for row in rows] == ["", "size"]
    assert "1 of 2 rows lie outside the training rows (size)" in capsys.readouterr().out
    more = ["--level", "0.5", "--quantiles", "0.25", "0.9", "--id", "tag"]
    narrow = predicted(tmp_path, new, *more)
    assert [row["tag"] for row in narrow] == ["p", "p"]
    for one, other in zip(narrow, rows, strict=True):
        assert float(one["lower"]) == pytest.approx(float(one["quantile 0.25"]))
        assert float(one["lower"]) > float(other["lower"])
        assert float(one["quantile 0.9"]) > float(one["upper"])
        assert float(one["sd"]) == pytest.approx(float(other["predicted sd"]))
        both = np.hypot(float(one["sd of the noise"]), float(one["sd unknown"]))
        assert both == pytest.approx(float(one["sd"]), rel=1e-4)


def test_predictions_take_no_place_of_a_file_of_the_user_s(data, by_prior, tmp_path, capsys):
    assert fit(data) == 0
    mine = tmp_path / "new-predictions.csv"
    mine.write_text("my,own\n1,2\n")
    (tmp_path / "new.csv").write_text("size,leak\n1,2\n")
    arguments = ["predict", str(tmp_path / "data-fit"), str(tmp_path / "new.csv"), "--quiet"]
    assert main(arguments) == 2
    assert "is a file that `predict` has not written" in capsys.readouterr().err
    assert mine.read_text() == "my,own\n1,2\n"
    assert main([*arguments, "--level", "90"]) == 2
    assert "--level must be a probability" in capsys.readouterr().err


def test_predictions_are_written_as_the_new_rows_are(data, by_prior, tmp_path):
    assert fit(data) == 0
    rows = predicted(tmp_path, "size;leak;nr\n1,5;2;x\n2,5;3;y\n", delimiter=";")
    assert [row["nr"] for row in rows] == ["x", "y"]
    for row in rows:
        assert "." not in row["price"]
        assert 50 < float(row["price"].replace(",", ".")) < 200


def test_a_word_that_looks_like_a_number_stays_one(by_prior, tmp_path):
    """In a file that holds no other, 1,5 is read as a number with a decimal comma."""
    path = tmp_path / "data.csv"
    path.write_text(
        "kind;price\n" + "".join(f"{['1,5', 'M', 'L'][i % 3]};{i}\n" for i in range(30))
    )
    assert fit(path) == 0
    among_others = predicted(tmp_path, "kind;price\n1,5;1\nM;2\n", delimiter=";")
    alone = predicted(tmp_path, "kind;price\n1,5;1\n1,5;2\n", delimiter=";")
    for row in alone:
        assert row[OUTSIDE] == ""
        assert float(row["price"].replace(",", ".")) == float(among_others[0]["price"])


@pytest.mark.parametrize("refit", [[], ["--refit"]])
def test_rows_without_a_header_are_predicted_by_their_place(refit, data, by_prior, tmp_path):
    data.write_text(TEXT.partition("\n")[2].replace(",", ".5,", 1))
    assert fit(data, *refit, target="1") == 0
    whole = predicted(tmp_path, "3,4,107\n5,6,121\n")
    assert len(whole) == 2  # the first line is a row
    without = predicted(tmp_path, "4,107\n6,121\n")
    assert [row["column 1"] for row in without] == [row["column 1"] for row in whole]
    assert len(predicted(tmp_path, "4,107\n")) == 1


def test_classes_keep_their_columns(by_prior, tmp_path, capsys):
    path = tmp_path / "data.csv"
    path.write_text("x,y\n" + "".join(f"{i},{'abc'[i % 3]}\n" for i in range(30)))
    arguments = ["fit", str(path), "--target", "y", "--quiet", "--sampler", "nuts", "--hidden", "2"]
    assert main([*arguments, "--prior-scale", "1"]) == 0
    rows = predicted(tmp_path, "x\n3\n22\n")
    for row in rows:
        shares = {name: float(row[f"probability of {name}"]) for name in "abc"}
        assert row["y"] == max(shares, key=shares.get)
    (tmp_path / "new-predictions.csv").unlink()
    arguments = ["predict", str(tmp_path / "data-fit"), str(tmp_path / "new.csv"), "--quiet"]
    assert main([*arguments, "--quantiles", "0.5"]) == 2
    assert "--quantiles are of numbers" in capsys.readouterr().err


def test_the_noise_of_rounded_targets_is_told(tmp_path, by_prior):
    path = tmp_path / "data.csv"
    path.write_text("x,y\n" + "".join(f"{i},{(i * i) % 7 + 0.5 * (i == 3)}\n" for i in range(60)))
    arguments = ["fit", str(path), "--target", "y", "--quiet", "--sampler", "nuts", "--hidden", "2"]
    assert main([*arguments, "--prior-scale", "2", "--likelihood", "heteroscedastic"]) == 0
    text = (tmp_path / "data-fit" / "summary.md").read_text()
    assert "- The noise of a row is at least" in text
    assert "fixed at 2 times the usual" in text
    model = json.loads((tmp_path / "data-fit" / "model.json").read_text())
    assert model["settings"]["least_noise"] > 0.1


def test_rows_that_are_held_out_come_from_all_over():
    training, held = prepare._split(1000, 0.2, 0)
    assert sorted([*training, *held]) == list(range(1000))
    assert len(held) == 200
    assert 60 < np.sum(held < 500) < 140  # false alarms 1e-9
    assert not np.array_equal(held, prepare._split(1000, 0.2, 1)[1])


def test_held_out_rows_have_no_part_in_the_likelihood(tmp_path, monkeypatch, asked):
    monkeypatch.setattr(prepare, "_split", lambda *_: (np.arange(200), np.arange(200, 220)))
    y = [*np.random.default_rng(0).standard_normal(200), *[1000.5, -1000.5] * 10]
    path = tmp_path / "data.csv"
    path.write_text("x,y\n" + "".join(f"{i},{v}\n" for i, v in enumerate(y)))
    assert main(["fit", str(path), "--target", "y", "--hidden", "3", "--sampler", "nuts"]) == 0
    assert asked["prepared"].settings.likelihood == "gaussian"


def test_what_takes_long_is_told_before_it_begins(data, monkeypatch, capsys):
    def stop(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("jaxbnn.cli.fit.run", stop)
    monkeypatch.setattr("jaxbnn.cli.fit.warning", lambda *_: "this will take a day.")
    assert main(["fit", str(data), "--target", "price", *QUICK]) == 130
    assert "this will take a day." in capsys.readouterr().err


@pytest.fixture
def stopped(tmp_path, monkeypatch):
    """Fits that are stopped once there is something to go on with."""
    seen = {"compared": [], "run": []}

    def best_of(candidates, settings, x, y, num_classes):
        seen["compared"].append((len(candidates), x.shape, y.shape))
        return candidates[1], "the second is better"

    def run(sampler, posterior, settings, progress, checkpoint):
        seen["run"].append((sampler, settings))
        checkpoint.mkdir(parents=True, exist_ok=True)
        (checkpoint / "state.nc").write_text("")
        raise KeyboardInterrupt

    monkeypatch.setattr("jaxbnn.cli.fit.best_of", best_of)
    monkeypatch.setattr("jaxbnn.cli.fit.run", run)
    rows = np.random.default_rng(0).normal(size=(150, 3))
    path = tmp_path / "three.csv"
    path.write_text("a,b,y\n" + "".join(f"{a},{b},{a + 0.1 * c}\n" for a, b, c in rows))
    return seen, ["fit", str(path), "--target", "y", "--quiet"]


def test_the_network_that_was_taken_is_gone_on_with(stopped):
    seen, arguments = stopped
    assert [main(arguments) for _ in range(2)] == [130, 130]
    ((count, *shapes),) = seen["compared"]  # once, and by the training rows
    assert count > 1
    assert shapes == [(120, 2), (120,)]
    assert seen["run"][0] == seen["run"][1]


def test_another_fit_that_was_interrupted_is_not_thrown_away(stopped, tmp_path, capsys):
    _, arguments = stopped
    assert main(arguments) == 130
    state = tmp_path / "three-fit" / ".unfinished" / "first" / "state.nc"
    assert state.exists()
    capsys.readouterr()
    assert main([*arguments, "--seed", "7"]) == 2
    assert "holds a fit that was interrupted, with --seed 0, and not 7" in capsys.readouterr().err
    assert state.exists()


def test_guesses_are_those_of_the_training_rows(tmp_path, by_prior, monkeypatch):
    """The last twelve are held out, and are of another kind than the others."""
    monkeypatch.setattr(prepare, "_split", lambda n, *_: (np.arange(n - 12), np.arange(n - 12, n)))
    path, folder = tmp_path / "data.csv", tmp_path / "data-fit"

    def scores(target, *more):
        rows = (f"{i % 9},{value}\n" for i, value in enumerate(target))
        path.write_text("x,y\n" + "".join(rows))
        options = ["--target", "y", "--quiet", "--sampler", "nuts", "--hidden", "2", *more]
        assert main(["fit", str(path), *options, "--prior-scale", "1", "--force"]) == 0
        return json.loads((folder / "scores.json").read_text())

    y = np.array([*(np.arange(28) % 4 + 0.5), *(np.arange(12) % 3 + 20.5)])
    expected = np.sqrt(np.mean((y[28:] - np.mean(y[:28])) ** 2))
    found = scores(y, "--likelihood", "gaussian")
    assert found["rmse_of_the_mean"] == pytest.approx(expected, rel=1e-5)
    # Of "c" there is no training row: each class has one more than it was seen.
    found = scores(["a"] * 20 + ["b"] * 8 + ["b"] * 9 + ["c"] * 3)
    assert found["accuracy_of_the_commonest"] == 0
    expected = (9 * np.log(9 / 31) + 3 * np.log(1 / 31)) / 12
    assert found["log_score_of_the_shares"] == pytest.approx(expected, rel=1e-6)
