"""Tests of experiments.benchmarks.command: its rows are those of `fit`, its scores are right, what
is stored is not run again, and its page says what the numbers say.
"""

import json
import sys
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from experiments.benchmarks import command, peers
from experiments.benchmarks.command import page, programs, tables
from experiments.benchmarks.stored import Stored
from experiments.errors import InputError
from experiments.fetch import MissingDataError
from jaxbnn.cli.prepare import _split
from jaxbnn.tabular import verdict


@pytest.mark.parametrize("num_rows", [10, 150, 207, 1599])
def test_rows_are_those_that_fit_holds_out(num_rows):
    for split in range(5):
        for ours, theirs in zip(
            tables.rows_of(num_rows, split), _split(num_rows, 0.2, split), strict=True
        ):
            np.testing.assert_array_equal(ours, theirs)


def test_classes_are_written_as_words(tmp_path):
    table = tables.table("iris")
    tables.write_csv(tmp_path / "iris.csv", table)
    lines = (tmp_path / "iris.csv").read_text().splitlines()
    assert lines[:2] == ["x0,x1,x2,x3,y", "5.1,3.5,1.4,0.2,class 0"]
    assert len(lines) == 151


def test_a_missing_set_is_named(monkeypatch, tmp_path):
    monkeypatch.setenv("JAXBNN_DATA", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with pytest.raises(MissingDataError, match=r"tabular/airfoil.csv is neither in"):
        tables.table("airfoil")


def test_scores_of_numbers_are_those_of_the_density(monkeypatch):
    rng = np.random.default_rng(0)
    y, y_new = rng.normal(5, 2, 40), rng.normal(5, 2, 30)
    mean, sd = rng.normal(0, 1, 30), rng.uniform(0.5, 1, 30)
    monkeypatch.setattr(programs, "linear_numbers", lambda *_: (mean, sd))
    found = programs.numbers("linear", 0, None, y, None, y_new)
    law = stats.norm(mean * y.std() + y.mean(), sd * y.std())
    assert found["log_score"] == pytest.approx(law.logpdf(y_new).mean())
    low, high = law.interval(0.9)
    assert found["coverage"] == pytest.approx(np.mean((low <= y_new) & (y_new <= high)))
    assert found["rmse"] == pytest.approx(np.sqrt(np.mean((law.mean() - y_new) ** 2)))
    both = np.stack([mean, mean + 1]), np.stack([sd, sd])
    monkeypatch.setattr(programs, "bde_numbers", lambda *_: both)
    mixture = programs.numbers("bde", 0, None, y, None, y_new)
    other = stats.norm(law.mean() + y.std(), sd * y.std())
    density = (law.pdf(y_new) + other.pdf(y_new)) / 2
    assert mixture["log_score"] == pytest.approx(np.log(density).mean())


def test_scores_of_classes(monkeypatch):
    given = np.array([[0.8, 0.2], [0.4, 0.6], [0.5, 0.5]])
    monkeypatch.setattr(programs, "linear_classes", lambda *_: given)
    y, y_new = np.array([3, 5, 3]), np.array([3, 3, 7])
    found = programs.classes("linear", 0, None, y, None, y_new)
    least = np.finfo(np.float32).tiny
    assert found["log_score"] == pytest.approx(np.log([0.8, 0.4, least]).mean())
    assert found["accuracy"] == pytest.approx(1 / 3)


def test_what_is_stored_is_not_run_again(monkeypatch, tmp_path):
    ran = []

    monkeypatch.setattr(command, "KEPT", tmp_path / "kept.json")

    def measured(out_dir, stored, data, split, method, python):
        ran.append((data.name, split, method))
        if method == "forest":
            return None
        return {
            "set": data.name,
            "split": split,
            "method": method,
            "log_score": -1.0,
            "cpu_seconds": 2.0,
        }

    monkeypatch.setattr(command, "_measured", measured)
    monkeypatch.setattr(command, "_code_of", lambda method: "first")
    monkeypatch.setattr(command, "peers_python", lambda folder: sys.executable)
    options = {"sets": ["iris"], "splits": [0, 1], "methods": ["jaxbnn", "forest"]}
    rows = command.run(tmp_path, **options)
    assert len(ran) == 4
    assert len(rows) == 2 * 2
    command.run(tmp_path, **options)
    assert ran[4:] == [("iris", 0, "forest"), ("iris", 1, "forest")]  # those that failed
    monkeypatch.setattr(command, "peers_python", lambda folder: None)
    command.run(tmp_path, **options | {"splits": [0, 1, 2]})
    assert ran[6:] == [("iris", 2, "jaxbnn")]
    # By another program, the others are others.
    monkeypatch.setattr(command, "peers_python", lambda folder: sys.executable)
    monkeypatch.setattr(command, "METHODS", ("jaxbnn", "linear"))
    linear = options | {"methods": ["linear"], "splits": [0]}
    command.run(tmp_path, **linear)
    command.run(tmp_path, **linear)
    assert ran[7:] == [("iris", 0, "linear")]
    monkeypatch.setattr(command, "_code_of", lambda method: "another")
    command.run(tmp_path, **linear)
    assert ran[8:] == [("iris", 0, "linear")]
    with pytest.raises(InputError, match="There is no 'irs' here"):
        command.run(tmp_path, sets=["irs"])


@pytest.mark.parametrize("score", [-1.0, -1.0000001])
def test_again_runs_what_is_of_an_earlier_state_and_says_whether_it_is_the_same(
    score, monkeypatch, tmp_path, capsys
):
    found = {"set": "iris", "split": 0, "method": "jaxbnn", "log_score": -1.0}
    code, seconds = ["before"], [2.0]
    monkeypatch.setattr(command, "KEPT", tmp_path / "kept.json")
    monkeypatch.setattr(command, "_code_of", lambda method: code[0])
    monkeypatch.setattr(command, "_measured", lambda *a: found | {"cpu_seconds": seconds[0]})
    options = {"sets": ["iris"], "splits": [0], "methods": ["jaxbnn"]}
    command.run(tmp_path, **options)
    code[0], seconds[0], found["log_score"] = "now", 3.0, score
    row = command.run(tmp_path, **options)[0]
    assert row.value == -1.0  # not run
    assert row.setting == "iris, split 0, jaxbnn, by earlier code"
    assert "1 of 1 results are of an earlier state" in capsys.readouterr().out
    assert command.run(tmp_path, **options, again=True)[-1].value == 3.0
    kept = Stored(tmp_path / "stored", command.KEPT)["iris-0-jaxbnn"]
    assert kept["code"] == "now"
    assert "stored_at" not in kept
    assert kept["is_as_before"] == (score == -1.0)
    seconds[0] = 4.0
    assert command.run(tmp_path, **options, again=True)[-1].value == 3.0  # of today
    page.write(tmp_path / "page.md", [kept], "now")
    text = (tmp_path / "page.md").read_text()
    same = int(score == -1.0)
    assert (
        "All 1 results of jaxbnn are by today's code. Of 1 that were run again after a change"
        in text
    )
    assert f"run again after a change, {same} came out the same to the last digit." in text


def test_a_result_is_of_the_code_that_was_there_before_it_was_measured(monkeypatch, tmp_path):
    code = ["before"]
    monkeypatch.setattr(command, "KEPT", tmp_path / "kept.json")
    monkeypatch.setattr(command, "_code_of", lambda method: code[0])

    def measured(*_):
        code[0] = "after"
        known = {"set": "iris", "split": 0, "method": "jaxbnn"}
        return {**known, "log_score": -1.0, "cpu_seconds": 2.0}

    monkeypatch.setattr(command, "_measured", measured)
    options = {"sets": ["iris"], "splits": [0], "methods": ["jaxbnn"]}
    assert command.run(tmp_path, **options) == []
    assert [row.value for row in command.run(tmp_path, **options)] == [-1.0, 2.0]


def test_times_that_are_no_measurements_are_no_rows():
    def one(method, **more):
        return {"set": "iris", "split": 0, "method": method, "cpu_seconds": 9.0, **more}

    results = [
        one("bde", over_limit=True),
        one("forest", is_nan=True),
        one("linear", log_score=-1.0),
        one("boosting", infinite_log_score="-inf"),
    ]
    rows = [(row.setting.split(", ")[2], row.quantity) for row in command._rows(results)]
    assert rows == [("linear", "log_score"), ("linear", "cpu_seconds"), ("boosting", "cpu_seconds")]


def test_the_share_of_copies_is_that_of_every_set_on_the_page(monkeypatch, tmp_path):
    told = {}
    found = {"split": 0, "method": "jaxbnn", "log_score": -1.0, "code": "now"}
    kept = {name: found | {"set": name} for name in ("wine", "iris")}
    (tmp_path / "kept.json").write_text(json.dumps(kept))
    monkeypatch.setattr(command, "KEPT", tmp_path / "kept.json")
    monkeypatch.setattr(command, "_code_of", lambda method: "now")
    monkeypatch.setattr(command, "table", lambda name: name)
    monkeypatch.setattr(command, "share_of_copies", lambda data, splits: 0.5)
    monkeypatch.setattr(command, "write", lambda *given: told.update(given[3]))
    command.run(tmp_path, sets=["iris"], splits=[], write_page=True)
    assert told == {"wine": 0.5, "iris": 0.5}


def test_a_fit_of_other_rows_is_refused(tmp_path):
    """By the counts of all classes among the held-out rows, and by the distance from the mean."""
    y = np.arange(60) % 3
    data = tables.Table("iris", np.zeros((60, 1)), y)
    _, test = tables.rows_of(60, 0)
    found = {"classes": [f"class {c}" for c in range(3)], "accuracy": 0.5, "log_score": -1.0}
    counts = np.bincount(y[test], minlength=3)
    for is_same, wrong in ((True, [0, 0, 0]), (False, [1, -1, 0])):
        confusion = np.diag(counts + wrong).tolist()
        (tmp_path / "scores.json").write_text(json.dumps(found | {"confusion": confusion}))
        if is_same:
            assert command._ours(tmp_path, data, 0)["accuracy"] == 0.5
        else:
            with pytest.raises(InputError, match="holds out other rows"):
                command._ours(tmp_path, data, 0)


def test_the_dearest_method_stops_at_its_limit(tmp_path, monkeypatch):
    monkeypatch.setattr(command, "SECONDS_A_SET", 1)
    stored = Stored(tmp_path / "stored")
    spent = {"set": "iris", "split": 0, "method": "bde", "cpu_seconds": 1.0}
    stored["iris-0-bde"] = spent | {"code": "of another program"}
    assert command._left(stored, "iris") == 1
    stored["iris-0-bde"] = spent | {"code": command._code_of("bde")}
    data = tables.Table("iris", np.zeros((10, 1)), np.zeros(10, int))
    found = command._measured(tmp_path, stored, data, 1, "bde", None)
    assert found["over_limit"]
    spin = [sys.executable, "-c", "while True: pass"]
    seconds, _, status = peers.timed(spin, {}, 1, tmp_path / "log.txt")
    assert status != 0
    assert seconds > 0.5


@pytest.mark.parametrize("score", [-1.5, float("nan"), -float("inf")])
def test_log_scores_that_are_no_finite_numbers_are_told_apart(score, tmp_path, monkeypatch):
    """Predictions that are NaN have no scores; of an infinite score the others hold."""

    def timed(words, environment, limit, log):
        Path(words[-2]).write_text(json.dumps({"log_score": score, "rmse": 2.0}))
        return 7.0, 8.0, 0

    monkeypatch.setattr(command, "timed", timed)
    data = tables.Table("iris", np.zeros((10, 1)), np.zeros(10, int))
    stored = Stored(tmp_path / "stored")
    found = command._measured(tmp_path, stored, data, 1, "forest", Path(sys.executable))
    assert found.get("is_nan", False) == np.isnan(score)
    assert found.get("infinite_log_score") == ("-inf" if np.isinf(score) else None)
    assert ("log_score" in found) == np.isfinite(score)
    assert ("rmse" in found) == (not np.isnan(score))
    assert "7 CPU s" in command._told(found)
    assert ("log score -inf" in command._told(found)) == np.isinf(score)


def test_the_page_counts_what_the_table_says(monkeypatch):
    def one(name, split, method, score, **more):
        return {"set": name, "split": split, "method": method, "log_score": score, **more}

    monkeypatch.setattr(page, "_FEWEST_SPLITS", 1)
    results = [
        one("boston", 0, "jaxbnn", -2.0, rmse=3.0, coverage=0.9, cpu_seconds=120.0),
        one("boston", 1, "jaxbnn", -2.2, rmse=3.2, coverage=0.92, cpu_seconds=130.0),
        one("boston", 0, "linear", -2.5),
        one("boston", 1, "linear", -2.6),
        one("boston", 0, "bde", -1.0),
        {"set": "boston", "split": 1, "method": "bde", "over_limit": True, "cpu_seconds": 9.0},
        one("iris", 0, "jaxbnn", -0.5),
        one("iris", 1, "jaxbnn", -0.5),
        one("iris", 0, "linear", -0.3),
        one("iris", 1, "linear", -0.8),
    ]
    text = page._verdict(results)
    assert "in log score on 1 of 2 sets; not on boston." in text
    assert "Behind ridge or logistic regression: on none." in text
    scores = page._table(results, ("boston",), "log_score")
    assert "| boston | -2.1 ± 0.1 | -2.55 ± 0.05 | - | - | - | -1 (1) |" in scores
    results[8]["log_score"] = results[9]["log_score"] = -0.1
    assert "Behind ridge or logistic regression: iris." in page._verdict(results)
    # A method that predicts NaN is told of, and its other splits count.
    failed = {"set": "boston", "split": 2, "method": "bde", "is_nan": True, "cpu_seconds": 9.0}
    lost = [*results, failed]
    assert page._without_numbers(results) == []
    (said,) = page._without_numbers(lost)
    assert said == "Splits without a score, predictions being NaN: bde 1.0.2 on 1 of boston.\n"
    infinite = dict(one("boston", 3, "bde", 0.0, rmse=2.5), infinite_log_score="-inf")
    del infinite["log_score"]
    (said,) = page._without_numbers([*results, infinite])
    assert said.startswith("Splits in no mean of log scores, theirs being infinite: bde 1.0.2 on 1")
    assert "| 2.5 (1) |" in page._table([*results, infinite], ("boston",), "rmse")
    assert "| -1 (1) |" in page._table([*lost, infinite], ("boston",), "log_score")
    assert page._verdict(lost) == page._verdict(results)
    # Each of the others counts, and not only the one of the largest mean.
    results = [one("iris", k, "jaxbnn", 0.0) for k in (0, 1, 2)]
    results += [one("iris", k, "linear", score) for k, score in enumerate((0.4, 0.0, -0.1))]
    results += [one("iris", k, "forest", 0.09) for k in (0, 1, 2)]
    assert "in log score on 0 of 1 sets; not on iris." in page._verdict(results)


def test_the_page_says_how_long_a_fit_takes_by_the_clock_on_so_many_cores():
    ours = [
        {"set": name, "split": k, "method": "jaxbnn", "log_score": 0.0, "wall_seconds": seconds}
        | ({"cores": cores} if cores else {})
        for name, k, seconds, cores in (
            ("boston", 0, 200.0, 1),
            ("boston", 1, 100.0, 2),
            ("boston", 2, 120.0, 2),
            ("boston", 3, 999.0, None),
            ("iris", 0, 50.0, 2),
        )
    ]
    text = "".join(page._by_the_clock(ours))
    assert "| set | 1 core | 2 cores |" in text
    assert "| boston | 200 (1) | 110 ± 10 (2) |" in text
    assert "| iris | - | 50 (1) |" in text
    assert page._by_the_clock(ours[3:4]) == []


def test_the_page_says_which_fits_are_to_be_believed():
    fits = [("iris", 1.05, 100), ("iris", 1.06, 500), ("glass", 1.001, 99), ("yacht", 1.4, 9)]
    ours = [{"set": name, "rhat": rhat, "ess_bulk": ess} for name, rhat, ess in fits]
    (said,) = page._believed([*ours, {"set": "heart"}])
    assert "0 of 1 fits of numbers (R-hat 1.4 to 1.4) and 1 of 3 fits of classes" in said
    assert "(R-hat 1 to 1.06)" in said
    assert page._believed([{"set": "heart"}]) == []
    assert (page._RHAT, page._ESS) == (verdict._RHAT, verdict._ESS)


def test_the_page_is_of_its_methods_and_says_what_is_old(tmp_path):
    results = [
        {"set": "iris", "split": k, "method": method, "log_score": score, "code": code}
        for k in range(2)
        for method, score, code in (
            ("jaxbnn", -0.5, "now" if k else "before"),
            ("jaxbnn_ensemble", -0.4, "now"),
            ("linear", -0.6, "now"),
        )
    ]
    results.append({"set": "iris", "split": 7, "method": "jaxbnn_ensemble", "log_score": 0.0})
    page.write(tmp_path / "page.md", results, "now")
    text = (tmp_path / "page.md").read_text()
    assert "for each 2 random splits" in text
    assert "predictions were NaN on some, the number in brackets" in text
    assert "1 of 2 results of jaxbnn are by an earlier state of its code." in text
    assert "| iris | -0.5 ± 0 | -0.6 ± 0 |" in text
    assert "not judged: ridge, logistic on iris." in text
    assert "stand among the training rows" not in text
    page.write(tmp_path / "page.md", results, "now", {"wine": 0.231, "boston": 0.05, "iris": 0.2})
    text = (tmp_path / "page.md").read_text()
    assert "Of the held-out rows of wine 23% stand among the training rows, too" in text
    assert text.count("stand among") == 1
