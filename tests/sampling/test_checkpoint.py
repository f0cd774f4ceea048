"""Tests of sampling.trees, sampling.store.shards and sampling.store.folder: a run that is resumed
is the run that was never stopped, bit for bit.
"""

import json
import shutil

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import xarray

import jaxbnn
from jaxbnn.sampling import chunks, open_draws
from jaxbnn.sampling.progress import Clock
from jaxbnn.sampling.store import fingerprint
from jaxbnn.sampling.trees import describe, rebuild
from tests.sampling.small_run import SETTINGS, STARTS, make_kernel, run, same, stop_after
from tests.sampling.tiny import ar


@pytest.fixture(scope="module")
def whole():
    return run(None)


@pytest.fixture(scope="module")
def half(tmp_path_factory):
    """A run that was stopped after some draws; to be copied."""
    folder = tmp_path_factory.mktemp("half")
    assert run(folder, stop_after(5)).interrupted
    return folder


@pytest.fixture
def folder(half, tmp_path):
    return shutil.copytree(half, tmp_path / "run")


@pytest.mark.long
@pytest.mark.parametrize("stops", [[1], [1, 1, 2, 3]])
def test_taken_up_is_not_interrupted(tmp_path, whole, stops):
    for num_chunks in stops:
        assert run(tmp_path, stop_after(num_chunks)).interrupted
    draws = run(tmp_path)
    assert not draws.interrupted
    same(draws, whole)
    assert draws.seconds > 0


def test_it_goes_on_where_it_was_stopped(folder, whole):
    assert len(open_draws(folder).steps) == 18
    seen = []
    same(run(folder, seen.append), whole)
    assert [p.done for p in seen] == [24, 30, 36, 40]
    assert {p.phase for p in seen} == {"sampling"}
    assert seen[-1].acceptance_rate == pytest.approx(whole.acceptance_rate.mean(), rel=1e-6)


def test_the_clock_begins_where_the_run_goes_on(folder, monkeypatch):
    marks = []

    class Spy(Clock):
        def tick(self, done, acceptance_rate):
            marks.append(self._mark[0])
            super().tick(done, acceptance_rate)

    monkeypatch.setattr(chunks, "Clock", Spy)
    run(folder)
    assert marks[0] == 18
    shutil.rmtree(folder)
    marks.clear()
    run(folder)
    assert marks[0] == 0


def test_a_finished_run_returns_its_draws(folder, whole):
    run(folder)
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    seen = []
    same(run(folder, seen.append), whole)
    assert seen == []
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before


THINNED = {
    "num_samples": 5,
    "thinning": [3, 7, 10_100, 20_200, 20_201],  # long gaps: chunks that keep nothing
    "chunk_size": 2,
    "parameters": None,
    "data": None,
    "adapt": None,
    "num_warmup": 70,
    "kernel": ar(),
    "starts": STARTS["w"],
}


@pytest.mark.short("nothing")
@pytest.mark.parametrize("collect", ["nothing", "tree"])
def test_thinned_runs_and_what_they_collect(tmp_path, collect):
    def tree(state, info):
        x = state.position
        half = x.astype(jnp.bfloat16)
        return {"a": (half, half.astype(jnp.float16), x > 0, None), "b": [jnp.outer(x, x), x[:0]]}

    options = THINNED | {"collect": tree if collect == "tree" else None}
    without = run(None, **options)
    for num_chunks in (1, 2, 1):
        assert run(tmp_path, stop_after(num_chunks), **options).interrupted
    draws = run(tmp_path, **options)
    same(draws, without)
    same(open_draws(tmp_path), without)


def test_open_draws_are_those_of_the_run(folder, whole):
    stopped = open_draws(folder)
    assert stopped.interrupted
    assert stopped.reduced == {}
    np.testing.assert_array_equal(stopped.positions["w"], whole.positions["w"][:, :18])
    rates = whole.infos.acceptance_rate[:, :18]
    np.testing.assert_allclose(stopped.acceptance_rate, rates.mean(1), rtol=1e-6)
    run(folder)
    finished = open_draws(folder)
    same(finished, whole)
    assert finished.infos.is_accepted.dtype == bool
    assert finished.final_state.position["w"].shape == (3, 2)
    assert type(finished.reduced["m"].pooled)._fields == jaxbnn.sampling.Moments._fields


INDICES = [
    np.s_[:], np.s_[1], np.s_[:, 3], np.s_[..., 0], np.s_[:, 5:20], np.s_[:, 30:2:-7],
    np.s_[0, -1, 1],
    np.s_[:, [17, 3, 3]], np.s_[::2, ::3, ::-1], np.s_[:, 9:9], np.s_[1:, -4:],
    np.s_[[0, 2], [1, 30]],
    np.s_[:, np.arange(40) % 7 == 0], np.s_[np.array([True, False, True]), 4:6], np.s_[..., 2, :],
]  # fmt: skip


def test_stored_arrays_take_the_indices_of_numpy(folder, whole):
    x, y = run(folder, lazy=True).positions["w"], whole.positions["w"]
    assert (x.shape, x.dtype, x.ndim, x.size, len(x)) == (y.shape, y.dtype, y.ndim, y.size, len(y))
    for index in INDICES:
        np.testing.assert_array_equal(x[index], y[index])
    np.testing.assert_array_equal(jnp.asarray(np.asarray(x)), y)
    for wrong in (np.s_[:, 40], np.s_[3], np.s_[:, None], np.s_[0, 0, 0, 0]):
        with pytest.raises(IndexError):
            x[wrong]


def test_xarray_opens_the_chunks_as_one(folder, whole):
    run(folder)
    paths = sorted(folder.glob("draws-*.nc"))
    assert len(paths) == 7
    opened = [xarray.open_dataset(path, engine="h5netcdf") for path in reversed(paths)]
    draws = xarray.combine_by_coords(opened, combine_attrs="override")
    np.testing.assert_array_equal(draws["positions.w"], whole.positions["w"])
    assert draws["positions.w"].dims[:2] == ("chain", "draw")
    np.testing.assert_array_equal(draws["infos.acceptance_rate"], whole.infos.acceptance_rate)
    np.testing.assert_array_equal(draws["step"], whole.steps)
    assert draws["draw"].values.tolist() == list(range(40))


def other_kernel(parameters, data):
    return make_kernel(parameters, data + 0.5)


ADAPT, MOMENTS = SETTINGS["adapt"], SETTINGS["reduce"]["m"]


def other_final(a):
    return jax.tree.map(lambda leaf: leaf / 2, ADAPT.final(a))


def other_init(example):
    return jax.tree.map(lambda leaf: leaf + 1, MOMENTS.init(example))


def other_finalise(r):
    return jax.tree.map(lambda leaf: leaf + 1, MOMENTS.finalise(r))


def other_reducer(**functions):
    return {"reduce": SETTINGS["reduce"] | {"m": MOMENTS._replace(**functions)}}


@pytest.mark.parametrize(
    ("changed", "part"),
    [
        ({"key": jax.random.key(12)}, "key"),
        ({"key": jax.random.key(11, impl="rbg")}, "key"),
        ({"starts": {"w": STARTS["w"] + np.float32(1)}}, "set of positions"),
        ({"data": SETTINGS["data"] * 2}, "data set"),
        ({"parameters": {"step_size": np.full(3, 0.2, np.float32)}}, "set of parameters"),
        ({"num_warmup": 129}, "num_warmup"),
        ({"thinning": 2}, "thinning"),
        ({"chunk_size": 5}, "chunk_size"),
        ({"kernel": other_kernel}, "program"),
        ({"adapt": jaxbnn.dual_averaging(0.6)}, "program"),
        ({"adapt": ADAPT._replace(final=other_final)}, "program"),
        (other_reducer(init=other_init), "program"),
        (other_reducer(finalise=other_finalise), "program"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_another_run_is_refused(folder, changed, part):
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    with pytest.raises(ValueError, match=r"state\.nc belongs to a run with another .*" + part):
        run(folder, **changed)
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before


def test_other_versions_are_refused(folder, monkeypatch):
    monkeypatch.setattr(fingerprint.importlib.metadata, "version", lambda name: "0.0")
    with pytest.raises(ValueError, match="another version of jaxbnn and another version of jax "):
        run(folder)


@pytest.mark.long
def test_arrays_inside_a_kernel_belong_to_its_fingerprint(tmp_path):
    def kernel_with(number):
        hidden = np.full(300, number, np.float32)
        return lambda parameters, data: ar(jnp.asarray(hidden).mean())

    options = {"adapt": None, "parameters": None, "starts": STARTS["w"], "reduce": None}
    options |= {"num_warmup": 0, "data": np.zeros(1, np.float32)}
    run(tmp_path, kernel=kernel_with(0.5), **options)
    run(tmp_path, kernel=kernel_with(0.5), **options)
    with pytest.raises(ValueError, match="another program"):
        run(tmp_path, kernel=kernel_with(0.25), **options)


def truncate(path, share):
    path.write_bytes(path.read_bytes()[: int(share * path.stat().st_size)])


def flip(path, share):
    content = bytearray(path.read_bytes())
    content[int(share * len(content))] ^= 4
    path.write_bytes(content)


@pytest.mark.parametrize("name", ["state.nc", "draws-000000000006.nc"])
@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (lambda path: truncate(path, 0), "torn"),
        (lambda path: truncate(path, 0.5), "torn"),
        (lambda path: truncate(path, 0.999), "torn"),
        (lambda path: flip(path, 0.1), "changed"),
        (lambda path: flip(path, 0.9), "changed"),
        (lambda path: path.write_text("<html>Not found</html>" * 99), "no file of a checkpoint"),
        (lambda path: path.unlink(), "is missing"),
    ],
    ids=["empty", "half", "end", "flipped", "flipped late", "web page", "missing"],
)
def test_torn_and_foreign_files_are_refused(folder, name, damage, reason):
    damage(folder / name)
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    for reader in (open_draws, run)[: 2 if reason == "torn" else 1]:
        with pytest.raises(ValueError, match=reason) as caught:
            reader(folder)
        assert str(folder / name) in str(caught.value)
        assert str(caught.value).count("\n") == 0
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before


def test_draws_whose_state_is_gone_are_kept(folder):
    (folder / "state.nc").unlink()
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    with pytest.raises(ValueError, match=r"state\.nc is missing beside finished draws"):
        run(folder)
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before


def test_draws_of_another_run_are_refused(folder, tmp_path):
    other = tmp_path / "other"
    run(other, stop_after(5), key=jax.random.key(12))
    name = "draws-000000000006.nc"
    shutil.copy(folder / "draws-000000000000.nc", folder / name)
    with pytest.raises(ValueError, match=f"{name} holds other draws"):
        run(folder)
    shutil.copy(other / name, folder / name)
    with pytest.raises(ValueError, match=f"{name} holds other draws"):
        run(folder)


def test_what_no_state_counts_is_made_once_more(folder, whole):
    shutil.copy(folder / "draws-000000000006.nc", folder / "draws-000000000018.nc")
    (folder / "state.nc.part").write_bytes(b"half a")
    (folder / "draws-000000000018.nc.part").write_bytes(b"half a")
    (folder / "notes.txt").write_text("mine")
    same(run(folder), whole)
    assert not list(folder.glob("*.part"))
    assert (folder / "notes.txt").exists()


def test_lazy_draws_need_a_folder_and_no_complex_numbers(tmp_path):
    with pytest.raises(ValueError, match="give a folder"):
        run(None, lazy=True)
    with pytest.raises(ValueError, match="cannot hold positions, of dtype complex64"):
        run(
            tmp_path,
            **THINNED | {"collect": lambda state, info: state.position.astype(jnp.complex64)},
        )
    with pytest.raises(ValueError, match=r"state\.nc is missing"):
        open_draws(tmp_path / "nothing")


def test_trees_come_back_from_json():
    tree = {"b": (1.0, [2.0, None]), "a": jaxbnn.sampling.Moments(3.0, {"x": 4.0}, 5.0), "c": {}}
    stored = json.loads(json.dumps(describe(tree)))
    again = rebuild(stored, jax.tree.leaves(tree))
    assert again["b"] == (1.0, [2.0, None])
    assert again["a"]._asdict() == tree["a"]._asdict()
    assert again["c"] == {}
