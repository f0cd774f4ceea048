"""A stage that was stopped inside goes on there under --resume."""

import ast
from pathlib import Path

import numpy as np
import pytest

from experiments import study
from experiments.errors import InputError
from experiments.study import Context
from tests.sampling.tiny import ar

KERNEL = ar()


def stage(context, stop_at=None, of=None):
    """Run a stage of 30 draws in chunks of 10; returns its draws and the steps that it told of."""
    told = []

    def report(progress):
        told.append(progress.done)
        if progress.done == stop_at:
            raise KeyboardInterrupt

    def compute():
        starts = np.zeros((2, 3), np.float32)
        draws = context.sample(
            "chains", context.key, KERNEL, starts, 30, chunk_size=10, progress=report
        )
        return {"draws": draws.positions}

    return context.stage("chains", compute, of=of)["draws"], told


@pytest.mark.long
def test_a_stopped_stage_goes_on_inside(tmp_path):
    def again(**changes):
        return Context(
            **{"scale": "desk", "seed": 0, "out_dir": tmp_path, "resume": True} | changes
        )

    whole, _ = stage(again(out_dir=tmp_path / "other"))
    with pytest.raises(KeyboardInterrupt):
        stage(again(), stop_at=20)
    (folder,) = (tmp_path / "stages").iterdir()
    assert folder.is_dir()
    draws, told = stage(again())
    assert told == [30]
    np.testing.assert_array_equal(draws, whole)
    assert [path.name for path in (tmp_path / "stages").iterdir()] == ["chains.npz"]


@pytest.mark.parametrize("changes", [{"seed": 1}, {"resume": False}, {"identity": {"n": 2}}])
def test_nothing_of_another_run_is_taken_up(tmp_path, changes):
    options = {"scale": "desk", "seed": 0, "out_dir": tmp_path, "resume": True}
    with pytest.raises(KeyboardInterrupt):
        stage(Context(**options), stop_at=20)
    _, told = stage(Context(**options | changes))
    assert told == [10, 20, 30]
    assert [path.name for path in (tmp_path / "stages").iterdir()] == ["chains.npz"]


def test_a_stage_of_its_own_settings_is_shared_by_runs_of_others(tmp_path):
    made = []

    def stored(of, seed=0, runs="one"):
        context = Context("desk", seed, tmp_path, resume=True, identity={"methods": runs})
        context.stage("fit", lambda: {"number": made.append(of) or len(made)}, of=of)
        return len(made)

    assert stored({"rate": 1}) == 1
    assert stored({"rate": 1}, runs="one, two") == 1
    assert stored({"rate": 2}) == 2
    assert stored({"rate": 2}, seed=1) == 3


def test_a_stage_of_another_optax_is_made_again(tmp_path, monkeypatch):
    """Stages from before its version was noted are taken as they are."""
    made = []

    def stored(optax):
        monkeypatch.setattr(study, "other_versions", lambda: {"optax": optax})
        context = Context("desk", 0, tmp_path, resume=True)
        context.stage("fit", lambda: {"number": made.append(optax) or len(made)})
        return len(made)

    assert [stored(optax) for optax in ("1", "1", "2", "2")] == [1, 1, 2, 2]
    path = tmp_path / "stages" / "fit.npz"
    with np.load(path) as whole:
        arrays = {name: array for name, array in whole.items() if name != study._OTHERS}
    np.savez(path, **arrays)
    assert stored("3") == 2


def test_a_stopped_stage_of_its_own_settings_goes_on_in_a_run_of_others(tmp_path):
    """Its draws are of what it is of: another slice of the run does not throw them away."""
    options = {"scale": "desk", "seed": 0, "out_dir": tmp_path, "resume": True}
    with pytest.raises(KeyboardInterrupt):
        stage(Context(**options, identity={"arms": "one"}), stop_at=20, of={"rate": 1})
    assert stage(Context(**options, identity={"arms": "two"}), of={"rate": 1})[1] == [30]


@pytest.mark.parametrize("resume", [False, True])
def test_a_stage_that_asks_twice_keeps_what_it_put_there(tmp_path, resume):
    """Training, then sampling, in one folder; only what an earlier run left is removed."""
    left = Context("desk", 0, tmp_path).checkpoint("chains")
    (left / "starts").mkdir(parents=True)
    context = Context("desk", 0, tmp_path, resume=resume)
    folder = context.checkpoint("chains")
    assert (folder / "starts").exists() == resume
    (folder / "powers").mkdir(parents=True)
    assert (context.checkpoint("chains") / "powers").exists()


def test_smoke_runs_write_no_checkpoint(tmp_path):
    context = Context("smoke", 0, tmp_path)
    assert context.checkpoint("chains") is None
    with pytest.raises(InputError, match="file name"):
        Context("desk", 0, tmp_path).checkpoint("../chains")


@pytest.mark.parametrize("folder", ["studies", "benchmarks"])
def test_what_a_ctrl_c_cut_short_is_never_taken_for_the_whole(folder):
    """`sample` returns what was drawn until then: whoever calls it must look, or `all_draws`."""
    root = Path(study.__file__).parent / folder
    blind = []
    for path in root.rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        calls = {
            node.func.id
            for node in ast.walk(ast.parse(text))
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
        }
        if calls & {"sample", "sample_ensemble", "sample_annealed"} and ".interrupted" not in text:
            blind.append(str(path.relative_to(root)))
    assert not blind
    assert any("all_draws(" in path.read_text(encoding="utf-8") for path in root.rglob("*.py"))
