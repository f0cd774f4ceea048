"""Tests of numerics.arrays, sampling.store.opened and sampling.store.stored_array: draws of a run
that lie in files serve as well as those in memory.
"""

import dataclasses
import shutil
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxbnn
from jaxbnn.sampling import open_draws
from jaxbnn.sampling.store.stored_array import StoredArray
from tests.sampling.tiny import ar

KEY = jax.random.key(3)


@jax.tree_util.register_dataclass
@dataclasses.dataclass
class Weights:
    """A container of the user's own."""

    w: Any
    b: Any


@pytest.fixture(scope="module")
def both(tmp_path_factory):
    """The folder, the draws in its files, and the same draws in memory."""
    folder = tmp_path_factory.mktemp("run")
    starts = jnp.arange(8.0).reshape(4, 2)
    draws = jaxbnn.sample(
        jax.random.key(5), ar(), starts, 40, checkpoint=folder, chunk_size=15, progress=False
    )
    return folder, open_draws(folder), draws


@pytest.mark.long
def test_the_summary_of_stored_draws_is_that_of_the_run(both, annotations_unchecked):
    _, stored, draws = both
    for options in ({}, {"function": lambda x: x[0] * x[1]}):
        assert str(jaxbnn.summary(stored.positions, **options)) == str(
            jaxbnn.summary(draws.positions, **options)
        )
    rates = stored.infos.acceptance_rate
    assert str(jaxbnn.summary({"x": stored.positions}, acceptance_rate=rates)) == str(
        jaxbnn.summary({"x": draws.positions}, acceptance_rate=draws.infos.acceptance_rate)
    )


def test_arrays_whose_names_would_be_one_have_files_of_their_own(tmp_path):
    starts = {"leaf2": jnp.zeros(2), "z": {"b": jnp.ones(2)}, "z.b": jnp.full(2, 9.0)}
    kernel = jaxbnn.pcn(lambda x: -((x["leaf2"] - 1) ** 2) - (x["z.b"] - 9) ** 2, 0.5)
    in_memory = jaxbnn.sample(KEY, kernel, starts, 5, progress=False)
    stored = jaxbnn.sample(KEY, kernel, starts, 5, checkpoint=tmp_path / "run", progress=False)
    for name in ("leaf2", "z.b"):
        np.testing.assert_array_equal(stored.positions[name], in_memory.positions[name])
    opened = open_draws(tmp_path / "run").positions
    for found, expected in zip(
        jax.tree.leaves(opened), jax.tree.leaves(in_memory.positions), strict=True
    ):
        np.testing.assert_array_equal(np.asarray(found), expected)


def test_functions_and_completions_of_stored_draws(both):
    _, stored, draws = both
    np.testing.assert_array_equal(
        jaxbnn.diagnostics.evaluate(jnp.sum, stored.positions),
        jaxbnn.diagnostics.evaluate(jnp.sum, draws.positions),
    )
    complete = lambda key, x: x + jax.random.normal(key, x.shape)  # noqa: E731
    np.testing.assert_array_equal(
        jaxbnn.complete(jax.random.key(7), stored, complete),
        jaxbnn.complete(jax.random.key(7), draws, complete),
    )


def test_xarray_opens_all_files_of_a_run_as_one_data_set(both):
    folder, _, draws = both
    xarray = pytest.importorskip("xarray")
    pytest.importorskip("dask")
    with xarray.open_mfdataset(sorted(folder.glob("draws-*.nc"))) as data:
        found = data["positions"].transpose("chain", "draw", ...)
        np.testing.assert_array_equal(found, draws.positions)
        np.testing.assert_array_equal(data["step"], draws.steps)


def test_draws_of_a_folder_that_was_written_anew_are_refused(tmp_path):
    def run(seed):
        starts = jnp.zeros((2, 2))
        options = {"checkpoint": tmp_path / "run", "lazy": True, "progress": False}
        return jaxbnn.sample(jax.random.key(seed), ar(), starts, 20, **options)

    first = run(1)
    assert np.asarray(first.positions).shape == (2, 20, 2)
    shutil.rmtree(tmp_path / "run")
    second = run(2)
    with pytest.raises(ValueError, match="was written anew since these draws were opened"):
        np.asarray(first.positions)
    assert np.asarray(second.positions).shape == (2, 20, 2)


@pytest.mark.parametrize("kind", ["keys that are numbers", "a container of one's own"])
def test_lazy_draws_have_the_structure_of_those_in_memory(tmp_path, kind):
    def collect(state, info):
        leaves = state.position, state.position[:1]
        return Weights(*leaves) if "own" in kind else dict(enumerate(leaves))

    def run(**options):
        options = {"collect": collect, "progress": False} | options
        return jaxbnn.sample(KEY, ar(), jnp.zeros((2, 3)), 4, **options)

    stored, draws = run(checkpoint=tmp_path / "run", lazy=True), run()
    for found, expected in ((stored.positions, draws.positions), (stored.infos, draws.infos)):
        assert jax.tree.structure(found) == jax.tree.structure(expected)
        assert all(isinstance(leaf, StoredArray) for leaf in jax.tree.leaves(found))
        jax.tree.map(lambda a, b: np.testing.assert_array_equal(np.asarray(a), b), found, expected)
    opened = open_draws(tmp_path / "run").positions
    assert isinstance(opened, list) if "own" in kind else list(opened) == ["0", "1"]


def test_stored_draws_take_masks_over_several_axes(both):
    _, stored, draws = both
    x, rates = draws.positions, draws.infos.acceptance_rate
    for index in (x[..., 0] > 0, x > 0, (..., x[0] > 0), (slice(1, 3), x[0] > 0), ([0], x[0] > 0)):
        np.testing.assert_array_equal(stored.positions[index], x[index])
    few = np.zeros((4, 40), bool)
    few[1, 3] = few[2, 39] = True
    for mask in (rates > 0.5, few, few.tolist(), ~few, few & False):
        np.testing.assert_array_equal(stored.infos.acceptance_rate[mask], rates[mask])
        np.testing.assert_array_equal(stored.positions[mask, 1], x[mask, 1])
    with pytest.raises(IndexError, match=r"of shape \(4, 3\) cannot index axes of lengths"):
        stored.positions[few[:, :3]]
    with pytest.raises(IndexError, match="take no new axes"):
        stored.positions[True, :3]
