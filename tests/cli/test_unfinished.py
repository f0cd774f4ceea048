"""Tests of cli.estimate and cli.unfinished: a fit that was interrupted goes on where it was, and a
long one is told of before.
"""

import importlib
import json
import shutil
from types import SimpleNamespace

import numpy as np
import pytest

from jaxbnn.cli import estimate, main, unfinished
from jaxbnn.cli.options import parse
from jaxbnn.sampling import BadCheckpoint
from jaxbnn.tabular.fitted import Fitted
from jaxbnn.tabular.posteriors import make_posterior
from jaxbnn.tabular.settings import Settings

fit = importlib.import_module("jaxbnn.cli.fit")
TINY = ["--hidden", "3", "--chains", "2", "--warmup", "30", "--samples", "20", "--quiet"]


@pytest.fixture
def data(tmp_path):
    path = tmp_path / "data.csv"
    path.write_text("x,y\n" + "".join(f"{i % 7},{(i % 7) * 0.5 + i % 3}\n" for i in range(40)))
    return str(path)


def identity(data, *more):
    return unfinished.identity_of(parse(["fit", data, "--target", "y", *more]))


def test_only_the_same_fit_goes_on(data, tmp_path):
    out = tmp_path / "out"
    out.mkdir()
    assert not unfinished.goes_on(out, identity(data), False)
    folder = unfinished.begin(out, identity(data), False)
    (folder / "first").mkdir()
    (folder / "first" / "state.nc").write_text("")
    for same in ([], ["--level", "0.5"], ["--force"], ["--refit"], ["--quiet"]):
        assert unfinished.goes_on(out, identity(data, *same), False)
    assert unfinished.begin(out, identity(data), True) == folder
    assert (folder / "first" / "state.nc").is_file()
    with pytest.raises(
        ValueError, match="with --hidden not given, and not 20 5: give the same arguments"
    ):
        unfinished.goes_on(out, identity(data, "--hidden", "20", "5"), False)
    with pytest.raises(ValueError, match=r"with --prior-scale not given, and not 2\.0"):
        unfinished.goes_on(out, identity(data, "--prior-scale", "2"), False)
    assert not unfinished.goes_on(out, identity(data, "--seed", "1"), True)
    with open(data, "a") as file:
        file.write("1,1\n")
    with pytest.raises(ValueError, match="with other data: give"):
        unfinished.goes_on(out, identity(data), False)
    unfinished.begin(out, identity(data), False)
    assert not (folder / "first").exists()
    unfinished.end(folder)
    assert not folder.exists()


@pytest.mark.parametrize(
    "more",
    [
        *(["--target", "z"], ["--sampler", "dvi"], ["--task", "regression"], ["--drop", "x"]),
        *(["--likelihood", "laplace"], ["--order", "a", "b"], ["--test", "0.3"], ["--relevance"]),
        *(["--chains", "3"], ["--warmup", "7"], ["--samples", "7"], ["--noise", "0.1"]),
        *(["--separator", ";"], ["--decimal", ","], ["--seed", "9"]),
    ],
)
def test_a_fit_by_other_arguments_does_not_go_on(more, data, tmp_path):
    unfinished.begin(tmp_path, identity(data), False)
    with pytest.raises(ValueError, match=f"with {more[0]} .*, and not "):
        unfinished.goes_on(tmp_path, identity(data, *more), False)


def test_a_fit_of_before_whose_noise_was_not_asked_for_goes_on(data, tmp_path):
    before = identity(data) | {"noise": 0.3}
    unfinished.begin(tmp_path, before, False)
    assert unfinished.goes_on(tmp_path, identity(data), False)


def test_what_is_said_of_an_interruption(data, tmp_path):
    folder = unfinished.begin(tmp_path, identity(data), False)
    assert unfinished.what_is_left(tmp_path).startswith("interrupted before")
    assert not folder.exists()
    folder = unfinished.begin(tmp_path, identity(data), False)
    (folder / "first").mkdir()
    (folder / "first" / "lock").write_text("")
    assert unfinished.what_is_left(tmp_path).startswith("interrupted before")


@pytest.mark.parametrize(
    "place",
    ["first/state.nc", "first/training.nc", "first/starts/training.nc", "refit/law/state.nc"],
)
def test_what_any_phase_left_is_kept(place, data, tmp_path):
    folder = unfinished.begin(tmp_path, identity(data), False)
    (folder / place).parent.mkdir(parents=True)
    (folder / place).write_text("")
    assert "the same command goes on" in unfinished.what_is_left(tmp_path)
    assert (folder / place).exists()


def test_the_network_that_was_taken_is_kept(data, tmp_path, monkeypatch):
    folder = unfinished.begin(tmp_path, identity(data), False)
    assert unfinished.kept_choice(folder, ["a", "b"]) is None
    unfinished.keep_choice(folder, ["a", "b"], 1, "b is better")
    assert unfinished.kept_choice(folder, ["a", "b"]) == (1, "b is better")
    assert unfinished.kept_choice(folder, ["a", "c"]) is None
    monkeypatch.setattr("jaxbnn.__version__", "another")
    assert unfinished.kept_choice(folder, ["a", "b"]) is None
    monkeypatch.undo()
    assert "the same command goes on" in unfinished.what_is_left(tmp_path)
    text = (folder / "choice.json").read_text()
    (folder / "choice.json").write_text(text[:-5])
    assert unfinished.kept_choice(folder, ["a", "b"]) is None


def test_a_damaged_note_begins_anew(data, tmp_path):
    folder = unfinished.begin(tmp_path, identity(data), False)
    (folder / "arguments.json").write_text("{")
    assert not unfinished.goes_on(tmp_path, identity(data), False)


@pytest.mark.third_party(reason="BlackJAX's NUTS promotes dtypes and ranks")
@pytest.mark.long
@pytest.mark.parametrize(
    ("sampler", "phases"),
    [
        ("nuts", ["warm-up", "sampling"]),
        ("ensemble", ["training", "warm-up", "sampling"]),
        ("dvi", ["updates", "updates"]),
    ],
)
def test_a_fit_that_was_interrupted_draws_what_it_would_have(
    sampler, phases, data, tmp_path, monkeypatch, capsys
):
    """Stopped in each phase, then whole; against one that ran through."""
    arguments = ["fit", data, "--target", "y", "--sampler", sampler, *TINY]
    arguments += ["--refit"] * (sampler == "nuts")
    assert main([*arguments, "--out", str(tmp_path / "through")]) == 0
    through = tmp_path / "through" / "posterior.nc"
    assert not (tmp_path / "through" / unfinished.FOLDER).exists()
    out = tmp_path / "out"
    name = "of_updates" if sampler == "dvi" else "of_sampling"
    real = getattr(fit, name)

    def stops_in(phase):
        def begin(progress):
            report = real(progress)

            def stop(done):
                report(done)
                if getattr(done, "phase", "updates") == phase:
                    raise KeyboardInterrupt

            return stop

        return begin

    for phase in phases:
        monkeypatch.setattr(fit, name, stops_in(phase))
        main([*arguments, "--out", str(out)])
        assert unfinished.has_begun(out / unfinished.FOLDER)
    monkeypatch.setattr(fit, name, real)
    capsys.readouterr()
    assert main([*arguments, "--out", str(out), "--seed", "3"]) == 2
    assert "--seed 0, and not 3" in capsys.readouterr().err
    assert main([*arguments, "--out", str(out)]) == 0
    assert not (out / unfinished.FOLDER).exists()
    is_refitted = "Fitted again on all 40 rows" in (out / "summary.md").read_text()
    assert is_refitted == (sampler == "nuts")
    assert json.loads((out / "scores.json").read_text()) == json.loads(
        (tmp_path / "through" / "scores.json").read_text()
    )
    import xarray

    with (
        xarray.open_dataset(through, group="posterior", engine="h5netcdf") as one,
        xarray.open_dataset(out / "posterior.nc", group="posterior", engine="h5netcdf") as other,
    ):
        assert one.equals(other)
    shutil.rmtree(out)


def test_a_checkpoint_of_another_version_is_left_and_the_fit_begins_anew(
    monkeypatch, tmp_path, annotations_unchecked
):
    settings, said, begun = Settings("nuts", (5,), 1, 4, 4, 0.3, 0), [], []
    encoding = SimpleNamespace(inputs=lambda _: np.ones((3, 1)), targets=lambda _: np.ones(3))
    prepared = SimpleNamespace(
        encoding=encoding, table=None, training=[0, 1], sampler="nuts", settings=settings,
        num_classes=None,
    )  # fmt: skip

    def run(sampler, posterior, settings, progress, checkpoint):
        begun.append((checkpoint / "state.nc").exists())
        if begun[-1]:
            raise BadCheckpoint("made by another version")
        return Fitted(None, None, [])

    monkeypatch.setattr(fit, "run", run)
    monkeypatch.setattr(fit, "make_posterior", lambda *_: None)
    (tmp_path / "state.nc").write_text("")
    told = SimpleNamespace(say=said.append, begin=lambda *_: None)
    fit._sampled(prepared, told, tmp_path)
    assert begun == [True, False]
    assert "beginning anew" in said[-1]


def test_a_long_run_is_told_of_before(monkeypatch):
    settings = Settings("nuts", (50,), 4, 400, 400, 0.3, 0)
    x, y = np.ones((3, 2), np.float32), np.ones(3, np.float32)
    posterior = make_posterior("nuts", settings, x, y, None)
    assert estimate.warning("nuts", settings, posterior) is None
    assert estimate._seconds_of_gradient(posterior, 2) > 0
    monkeypatch.setattr(estimate, "_LEAST", 0)
    monkeypatch.setattr(estimate, "_seconds_of_gradient", lambda *_: 0.1)
    said = estimate.warning("nuts", settings, posterior)
    assert said.startswith("this will take between 20 minutes and 84 minutes; quicker are")
    assert estimate.warning("dvi", settings, posterior) is None
    # 5 tunings of 1,600 steps to 40,000 on the way in, of two gradients; 450 trajectories of 100.
    said = estimate.warning("ensemble", settings, posterior)
    assert said.startswith("this will take between 1.7 hours and 3.5 hours; quicker are --sampler")
    for asked in ({"likelihood": "poisson"}, {"relevance": True}):
        said = estimate.warning("nuts", settings._replace(**asked), posterior)
        assert "84 minutes; quicker are fewer" in said
    assert estimate.sentence(1e5, 1e6).startswith("this will take between 28 hours and 12 days")
