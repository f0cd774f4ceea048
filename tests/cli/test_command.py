"""Tests of jaxbnn.__main__, cli.fit, cli.hosts, cli.one_host, cli.options, cli.place and
cli.prepare: the command, called as from a shell: what it writes, says, and refuses.
"""

import csv
import json
import os
import re
import subprocess
import sys

import numpy as np
import pytest

from jaxbnn.cli import fit, main, place, prepare
from jaxbnn.cli.options import parse, settings_of
from jaxbnn.sampling import Draws
from jaxbnn.tabular.candidates import Candidate

# NUTS and its adaptation, and Optax's optimisers, are run by the command.
pytestmark = pytest.mark.third_party(reason="BlackJAX's NUTS and Optax promote dtypes and ranks")

TINY = ["--hidden", "3", "--chains", "2", "--warmup", "30", "--samples", "20", "--seed", "1"]

PHASES = (
    *("reading: houses.csv", "loading JAX", "compiling: the sampler"),
    *("scoring: 12 held-out rows", "drawing pictures"),
)


def write(path, columns):
    with path.open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(columns)
        rows.writerows(zip(*columns.values(), strict=True))
    return str(path)


def read(path):
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


@pytest.fixture
def houses():
    """60 rows: a number with a gap, a text column, a constant one, and a price."""
    rng = np.random.default_rng(0)
    size = rng.uniform(50, 150, 60)
    town = rng.choice(["Ulm", "Bonn"], 60)
    price = 2000 * size + 50_000 * (town == "Ulm") + rng.normal(0, 5000, 60)
    area = [f"{s:.1f}" for s in size]
    area[3] = area[40] = ""
    prices = [f"{p:.0f}" for p in price]
    prices[7] = "NA"
    return {"area": area, "town": town.tolist(), "country": ["DE"] * 60, "price": prices}


def check_folder(folder, pictures):
    names = {path.name for path in folder.iterdir()}
    written = {"posterior.nc", "model.json", "scores.json", "summary.md", "summary.html"}
    assert names == {*written, *pictures}
    for picture in pictures:
        assert (folder / picture).read_bytes()[:4] == b"\x89PNG"
    return (folder / "summary.md").read_text(), json.loads((folder / "scores.json").read_text())


@pytest.mark.parametrize("sampler", ["dvi", pytest.param("gibbs", marks=pytest.mark.long)])
def test_fit_and_predict_numbers(sampler, houses, tmp_path, capsys):
    data = write(tmp_path / "houses.csv", houses)
    assert main(["fit", data, "--target", "price", "--sampler", sampler, *TINY]) == 0
    folder = tmp_path / "houses-fit"
    chains = ["chains.png"] if sampler == "gibbs" else []
    text, scores = check_folder(folder, ["calibration.png", "predictions.png", *chains])
    told = capsys.readouterr().err
    for phase in PHASES:
        (_, found, told) = told.partition(f"{phase} ...\n")
        assert found
    assert "price from 4 features, 47 rows" in text
    assert "Rows without price, left out: 1." in text
    assert "country: always DE; left out." in text
    assert re.search(r"Missing numbers, taken as the mean: area \(\d of 47 training rows\)\.", text)
    assert re.search(r"elieve (it|the chains)", text)
    # So few updates end too early.
    assert ("what dvi maximises was still rising" in text) == (sampler == "dvi")
    assert 0 < scores["rmse"] < scores["rmse_of_the_mean"]
    assert scores["held_out"] == 12
    import arviz

    loaded = arviz.from_netcdf(str(folder / "posterior.nc"))
    shape = (2, 20) if sampler == "gibbs" else (1, 40)
    layer = "0.w" if sampler == "gibbs" else "network.0.w"
    assert loaded.posterior[layer].shape == (*shape, 4, 3)
    assert list(loaded.posterior["layer0_in"].values) == [
        "area",
        "area is missing",
        "town=Bonn",
        "town=Ulm",
    ]
    assert loaded.log_likelihood["y"].shape == (*shape, 47)

    new = {"area": ["100", "", "60"], "town": ["Ulm", "Bonn", "Rom"]}
    capsys.readouterr()
    assert main(["predict", str(folder), write(tmp_path / "new.csv", new)]) == 0
    assert "town: 'Rom' did not occur in the fit" in capsys.readouterr().out
    rows = read(tmp_path / "new-predictions.csv")
    prices = np.array([[float(row[c]) for c in ("lower", "price", "upper")] for row in rows])
    assert (np.diff(prices, axis=1) > 0).all()
    assert prices[0, 1] == pytest.approx(250_000, rel=0.3)
    assert prices[0, 1] > prices[2, 1]
    assert main(["predict", str(folder), write(tmp_path / "less.csv", {"town": ["Ulm"]})]) == 2
    assert "has no column 'area'" in capsys.readouterr().err
    bad = write(tmp_path / "bad.csv", {"area": ["big"], "town": ["Ulm"]})
    assert main(["predict", str(folder), bad]) == 2
    assert "column 'area'" in capsys.readouterr().err


def test_what_a_second_fit_would_refuse_is_refused_before_the_first(tmp_path, capsys, monkeypatch):
    """One category more, in the held-out rows alone, makes too many."""
    monkeypatch.setattr("jaxbnn.cli.columns._MOST_CATEGORIES", 3)
    monkeypatch.setattr(prepare, "_split", lambda n, *_: (np.arange(n - 1), np.array([n - 1])))
    rows = [["town", "y"], *([c, str(i + 0.5)] for i, c in enumerate("abcabcabcabcd"))]
    data = tmp_path / "towns.csv"
    data.write_text("\n".join(map(",".join, rows)), encoding="utf-8")
    arguments = ["fit", str(data), "--target", "y", *TINY]
    assert main([*arguments, "--refit"]) != 0
    assert "text with 4 different values" in capsys.readouterr().err
    assert not (tmp_path / "towns-fit").exists()


@pytest.mark.long
def test_the_network_that_was_tried_and_taken_is_fitted_and_predicts(
    houses, tmp_path, capsys, monkeypatch
):
    tried = [Candidate((3,), "gaussian", "pcn"), Candidate((4, 2), "heteroscedastic", "pcn")]
    seen = []

    def best_of(candidates, settings, x, y, num_classes):
        seen.append((candidates, x.shape, y.shape, round(float(y.mean()), 6)))
        return tried[1], "Taken: the second."

    monkeypatch.setattr(prepare, "candidates", lambda *_, **__: tried)
    monkeypatch.setattr(fit, "best_of", best_of)
    data = write(tmp_path / "houses.csv", houses)
    assert main(["fit", data, "--target", "price", "--refit", *TINY]) == 0
    assert seen == [(tried, (47, 4), (47,), 0.0)]  # the training rows, standardised, and once
    assert "trying networks: 2 of them" in capsys.readouterr().err
    text = (tmp_path / "houses-fit" / "summary.md").read_text()
    assert "by a network of 4 and 2 hidden units, sampled by pcn" in text
    assert "- Taken: the second.\n- auto took pcn," in text
    assert "Likelihood of price" not in text  # which was not to the kind of the target
    new = write(tmp_path / "new.csv", {"area": ["100", "60"], "town": ["Ulm", "Bonn"]})
    assert main(["predict", str(tmp_path / "houses-fit"), new, "--quantiles", "0.1", "0.9"]) == 0
    rows = read(tmp_path / "new-predictions.csv")
    assert all(float(row["lower"]) < float(row["price"]) < float(row["upper"]) for row in rows)


@pytest.fixture
def flowers():
    rng = np.random.default_rng(1)
    kind = np.arange(60) % 3
    names = ["rose", "aster", "lily"]
    petal = kind + 0.2 * rng.standard_normal(60)
    return {"petal": [f"{p:.3f}" for p in petal], "kind": [names[k] for k in kind]}


@pytest.mark.long
def test_fit_and_predict_classes(flowers, tmp_path):
    data = write(tmp_path / "flowers.csv", flowers)
    out = tmp_path / "out"
    arguments = ["fit", data, "--target", "kind", "--sampler", "dvi", "--out", str(out), *TINY]
    assert main(arguments) == 0
    text, scores = check_folder(out, ["calibration.png", "confusion.png"])
    assert "kind: 3 classes." in text
    assert "what dvi maximises was still rising" in text
    assert scores["accuracy"] > scores["accuracy_of_the_commonest"]
    new = write(tmp_path / "new.csv", {"petal": ["-0.2", "2.2"]})
    assert main(["predict", str(out), new, "--out", str(tmp_path / "p.csv")]) == 0
    rows = read(tmp_path / "p.csv")
    assert [row["kind"] for row in rows] == ["rose", "lily"]
    for row in rows:
        total = sum(float(row[f"probability of {name}"]) for name in ("rose", "aster", "lily"))
        assert total == pytest.approx(1, abs=1e-4)


@pytest.mark.long
def test_relevance_tells_the_columns_that_matter(tmp_path):
    """Of 40 columns two matter: their scales are the largest, and `predict` reads the fit."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((150, 40))
    y = 3 * x[:, 7] - 2 * x[:, 30] + 0.1 * rng.standard_normal(150)
    columns = {f"x{i}": [f"{v:.4f}" for v in x[:, i]] for i in range(40)}
    data = write(tmp_path / "data.csv", columns | {"y": [f"{v:.4f}" for v in y]})
    out = tmp_path / "out"
    arguments = ["fit", data, "--target", "y", "--relevance", "--hidden", "10", "--chains", "2"]
    assert main([*arguments, "--warmup", "200", "--samples", "100", "--out", str(out)]) == 0
    text = (out / "summary.md").read_text()
    told = text.split("in units of the usual: ")[1].split(".\n")[0]
    assert {part.split()[0] for part in told.split(", ")[:2]} == {"x7", "x30"}
    assert told.endswith("and 28 columns below")
    assert json.loads((out / "scores.json").read_text())["rmse"] < 0.6
    assert main(["predict", str(out), data, "--out", str(tmp_path / "p.csv")]) == 0


def test_copies_across_the_split_are_told(houses, tmp_path):
    data = write(tmp_path / "houses.csv", {name: 2 * values for name, values in houses.items()})
    assert main(["fit", data, "--target", "price", "--sampler", "dvi", *TINY]) == 0
    text = (tmp_path / "houses-fit" / "summary.md").read_text()
    # Of 118 rows with a price 24 are held out, and most of these have their copy among the others.
    count = int(re.search(r"(\d+) of the 24 held-out rows are equal to a training row", text)[1])
    assert 12 <= count <= 24
    assert "copies" in (tmp_path / "houses-fit" / "summary.html").read_text()


@pytest.mark.long
@pytest.mark.parametrize("sampler", ["pcn", "auto"])
def test_other_samplers(sampler, flowers, houses, tmp_path):
    is_auto = sampler == "auto"
    table, target = (houses, "price") if is_auto else (flowers, "kind")
    data = write(tmp_path / "data.csv", table)
    assert main(["fit", data, "--target", target, "--sampler", sampler, *TINY]) == 0
    pictures = ["calibration.png", "chains.png", "predictions.png" if is_auto else "confusion.png"]
    text, scores = check_folder(tmp_path / "data-fit", pictures)
    # Of so few rows auto takes one of these, by its table.
    samplers = ("nuts", "ensemble") if is_auto else ("pcn",)
    assert any(f"sampled by {sampler}" in text for sampler in samplers)
    assert np.isfinite(scores["log_score"])
    assert scores["chains"] == 2


@pytest.mark.long
def test_classes_by_nuts(flowers, tmp_path):
    data = write(tmp_path / "flowers.csv", flowers)
    # Of classes this far apart some trajectories diverge: up to 3 % after a warm-up of 300 steps,
    # at most 1 % after 600 (three seeds), where 5 % are borne.
    arguments = ["--target", "kind", "--hidden", "5", "--warmup", "600", "--samples", "300"]
    assert main(["fit", data, *arguments]) == 0
    text, scores = check_folder(
        tmp_path / "flowers-fit", ["calibration.png", "chains.png", "confusion.png"]
    )
    assert "Believe the chains" in text
    assert scores["accuracy"] > 0.9


@pytest.mark.long
@pytest.mark.parametrize(
    ("kind", "more"),
    [("ordinal", []), ("counts", ["--prior-scale", "2"])],
)
def test_targets_of_other_kinds(kind, more, tmp_path):
    rng = np.random.default_rng(2)
    x = rng.uniform(-2, 2, 60)
    if kind == "ordinal":
        values = [["small", "medium", "large"][int(v > -0.7) + int(v > 0.7)] for v in x]
    else:
        values = [str(v) for v in rng.negative_binomial(2, 2 / (2 + np.exp(1 + x)))]
    data = write(tmp_path / "data.csv", {"x": [f"{v:.3f}" for v in x], "y": values})
    assert main(["fit", data, "--target", "y", *TINY, *more]) == 0
    folder = tmp_path / "data-fit"
    text = (folder / "summary.md").read_text()
    scores = json.loads((folder / "scores.json").read_text())
    assert main(["predict", str(folder), write(tmp_path / "new.csv", {"x": ["-2", "2"]})]) == 0
    rows = read(tmp_path / "new-predictions.csv")
    if kind == "ordinal":
        assert "ordinal, for its words have an order, small < medium < large" in text
        assert "prior scales were learnt" in text
        assert scores["accuracy"] > scores["accuracy_of_the_commonest"]
        assert [row["y"] for row in rows] == ["small", "large"]
    else:
        assert "negative-binomial, for it counts things" in text
        assert "fixed at 2 times the usual" in text
        assert scores["rmse"] < scores["rmse_of_the_mean"] * 1.2
        assert all(float(row["lower"]) == int(float(row["lower"])) >= 0 for row in rows)
        assert float(rows[1]["y"]) > float(rows[0]["y"]) > 0


N = 20
GOOD = {"x": [str(i) for i in range(N)], "y": [str(i * 0.5) for i in range(N)]}
TEXT = {"id": [f"row {i}" for i in range(60)], "y": [str(i * 0.5) for i in range(60)]}


@pytest.mark.parametrize(
    ("columns", "arguments", "sentence"),
    [
        (GOOD, ["--target", "price"], "has no column 'price'; its columns are x, y"),
        ({"1": N * ["3"], "2": N * ["4"]}, ["--target", "y"], "its first line holds numbers"),
        ({"x y": N * ["3 4"]}, ["--target", "y"], "but only one, 'x y'"),
        (GOOD | {"y": ["7"] * N}, ["--target", "y"], "is 7 in every row"),
        (GOOD | {"x": ["7"] * N}, ["--target", "y"], "has no column but 'y' that varies"),
        (GOOD | {"y": ["", *["1", "2"] * 3, *[""] * 13]}, ["--target", "y"], "too few to learn"),
        (TEXT, ["--target", "y"], "leave it out by --drop 'id'"),
        (
            TEXT | {"id": [*(str(i) for i in range(59)), "12O"]},
            ["--target", "y"],
            "holds '12O' among its numbers",
        ),
        (TEXT, ["--target", "id"], "more than 50; choose another target"),
        (
            TEXT | {"y": [*(f"{i * 0.5:.1f}" for i in range(59)), "12O"]},
            ["--target", "y"],
            "the target 'y' holds '12O' among its numbers",
        ),
        (
            {"x": [f"${i},000" for i in range(60)], "y": TEXT["y"]},
            ["--target", "y"],
            "holds '$0,000' among its numbers; write numbers plainly",
        ),
        (GOOD, ["--target", "Y"], "has no column 'Y'; is it 'y'?"),
        (GOOD, ["--target", "y", "--separator", "no"], "--separator must be one character or tab"),
        (GOOD, ["--target", "y", "--out", __file__], "is a file; name a folder"),
        (GOOD | {"y": ["a", "b"] * 10}, ["--target", "y", "--task", "regression"], "is no number"),
        (
            GOOD | {"y": ["a", "b"] * 10},
            ["--target", "y", "--sampler", "gibbs"],
            "gibbs predicts numbers only",
        ),
        (GOOD, ["--target", "y", "--likelihood", "poisson"], "takes counts"),
        (
            GOOD,
            ["--target", "y", "--likelihood", "laplace", "--sampler", "dvi"],
            "dvi does not know the likelihood laplace",
        ),
        (GOOD, ["--target", "y", "--prior-scale", "0"], "--prior-scale must be positive"),
        (GOOD, ["--target", "y", "--relevance", "--prior-scale", "2"], "leave one of them out"),
        (GOOD, ["--target", "y", "--relevance", "--sampler", "dvi"], "but the sampler is dvi"),
        (
            GOOD,
            ["--target", "y", "--noise", "0.1"],
            "--noise is of gibbs alone, but the sampler is auto",
        ),
        (GOOD, ["--target", "y", "--sampler", "gibbs", "--noise", "0"], "--noise must be positive"),
        (GOOD, ["--target", "y", "--chains", "0"], "--chains must be at least 1"),
        (GOOD, ["--target", "y", "--test", "1.5"], "--test must be a fraction"),
        (GOOD, ["--target", "y", "--level", "90"], "--level must be a probability"),
        (GOOD, ["--target", "y", "--seed", str(2**40)], "--seed must be a whole number from 0"),
        (GOOD, ["--target", "y", "--hidden", "0"], "--hidden must be numbers of units"),
        (GOOD, ["--target", "y", "--drop", "y"], "cannot be both"),
    ],
)
def test_refusals_are_one_sentence(columns, arguments, sentence, tmp_path, capsys):
    assert main(["fit", write(tmp_path / "data.csv", columns), "--quiet", *arguments]) == 2
    said = capsys.readouterr().err
    assert sentence in said
    assert said.count("\n") == 1


def test_folders_that_cannot_take_the_results(tmp_path, capsys, monkeypatch):
    data = write(tmp_path / "data.csv", GOOD)
    (tmp_path / "file").write_text("mine")
    out = tmp_path / "out"
    for folder, sentence in (
        (tmp_path / "file", "is a file; name a folder"),
        (tmp_path / "file" / "deep", "cannot be made"),
    ):
        assert main(["fit", data, "--target", "y", "--out", str(folder)]) == 2
        assert sentence in capsys.readouterr().err
    with place.held(out):
        assert main(["fit", data, "--target", "y", "--out", str(out)]) == 2
        assert "another fit is writing to" in capsys.readouterr().err
    assert (tmp_path / "file").read_text() == "mine"
    assert not list(out.iterdir())


@pytest.mark.parametrize(
    "error", [OSError(28, "No space left on device"), RuntimeError("HDF5 says:\n errno = 28")]
)
def test_a_fit_that_fails_leaves_the_one_before(tmp_path, error):
    (tmp_path / "model.json").write_text("old")

    def fail():
        with place.written(tmp_path) as part:
            (part / "model.json").write_text("half of the n")
            raise error

    with pytest.raises(
        OSError, match=r"cannot be written to .* \((No space left|HDF5 says: errno)"
    ):
        fail()
    assert [path.name for path in tmp_path.iterdir()] == ["model.json"]
    assert (tmp_path / "model.json").read_text() == "old"


def test_ctrl_c_is_no_traceback(monkeypatch, tmp_path, capsys):
    from jaxbnn.tabular import samplers
    from jaxbnn.tabular.fitted import Fitted
    from jaxbnn.tabular.posteriors import make_posterior

    def stopped(number):
        draws = Draws(None, None, {}, None, None, np.arange(number), np.zeros(2), True, 0.0)
        return lambda *_: Fitted({}, draws, ["a note"])

    settings = samplers.Settings("nuts", (3,), 2, 30, 20, 0.3, 1)
    monkeypatch.setattr(samplers, "_nuts", stopped(7))
    x, y = np.ones((3, 1), np.float32), np.ones(3, np.float32)
    posterior = make_posterior("nuts", settings, x, y, None)
    notes = samplers.run("nuts", posterior, settings).notes
    assert notes == ["Interrupted: 7 of 20 draws of each chain.", "a note"]
    monkeypatch.setattr(samplers, "_nuts", stopped(0))
    data = write(tmp_path / "data.csv", GOOD)
    assert main(["fit", data, "--target", "y", "--sampler", "nuts"]) == 130
    assert "interrupted before there was anything to keep" in capsys.readouterr().err


# As where the thread of a compilation that goes on is met by the interpreter's end.
STOPPED = """
import atexit, os, signal, sys
from jaxbnn.cli import command, main

def stopped(*_, **__):
    print("said before")
    raise KeyboardInterrupt

command._fit = stopped
atexit.register(os.kill, os.getpid(), signal.SIGSEGV)
sys.argv = ["jaxbnn", "fit", "data.csv", "--target", "y"]
sys.exit(main())
"""


def test_the_command_ends_at_once_when_it_is_interrupted():
    ended = subprocess.run([sys.executable, "-c", STOPPED], capture_output=True, text=True)
    assert ended.returncode == 130
    assert ended.stdout == "said before\n"
    assert ended.stderr.endswith("interrupted before there was anything to keep.\n")


@pytest.mark.parametrize(
    "error", [MemoryError(), RuntimeError("RESOURCE_EXHAUSTED: Out of memory allocating 9 bytes.")]
)
def test_too_little_memory_is_a_sentence(monkeypatch, tmp_path, capsys, error):
    def fails(*_):
        raise error

    monkeypatch.setattr("jaxbnn.cli.fit.run", fails)
    data = write(tmp_path / "data.csv", GOOD)
    assert main(["fit", data, "--target", "y"]) == 2
    assert "there is not enough memory; take fewer --chains" in capsys.readouterr().err
    error = RuntimeError("a fault of our own")
    with pytest.raises(RuntimeError, match="of our own"):
        main(["fit", data, "--target", "y", "--force"])


def test_files_that_are_no_tables(tmp_path, capsys):
    path = tmp_path / "data.csv"
    for content, sentence in (
        (b"x,y\n", "needs a header and at least one row"),
        (b"x,y\n1,2\n\n1\n", "line 4 of"),
        (b"x,x\n1,2\n", "more than one column 'x'"),
        (b"\xff\xfex\x00", "is in UTF-16, not UTF-8"),
    ):
        path.write_bytes(content)
        assert main(["fit", str(path), "--target", "y"]) == 2
        assert sentence in capsys.readouterr().err
    assert main(["predict", str(tmp_path), str(path)]) == 2
    assert "has no model.json" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main(["fit", "data.csv"])
    assert capsys.readouterr().err.startswith("error: the following arguments are required")


UNREAD = """
import sys
from jaxbnn.cli import command, main

command._fit = lambda *_, **__: "7 \u20ac" * {times}
sys.exit(main(["fit", "data.csv", "--target", "y", "--quiet"]))
"""


def test_a_fit_is_done_though_its_words_cannot_be_shown(tmp_path):
    script = [sys.executable, "-c", UNREAD.format(times=1)]
    environment = os.environ | {"PYTHONIOENCODING": "ascii"}
    done = subprocess.run(script, capture_output=True, text=True, env=environment)
    assert (done.returncode, done.stdout) == (0, "7 \\u20ac\n"), done.stderr
    script = [sys.executable, "-c", UNREAD.format(times=100_000)]
    with subprocess.Popen(script, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as running:
        running.stdout.close()  # as `| true` does
        said = running.stderr.read()
        assert (running.wait(), said) == (0, b"")


def test_classes_in_order_are_named_as_the_file_writes_them(tmp_path):
    path = tmp_path / "noten.csv"
    path.write_text("x;note\n" + "1,5;1,0\n2,5;1,3\n3,5;2,7\n" * 8)
    for order in (["2,7", "1,3", "1,0"], ["2.7", "1.3", "1.0"]):
        options = parse(["fit", str(path), "--target", "note", "--order", *order])
        prepared = prepare.prepare(options, settings_of(options))
        assert prepared.encoding.classes == ["2,7", "1,3", "1,0"]


def test_a_folder_is_no_table(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in (".", "/", ".."):
        assert main(["fit", name, "--target", "y"]) == 2
        assert "there is no file" in capsys.readouterr().err
