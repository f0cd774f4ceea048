"""Tests of numerics.arrays, sampling.store.opened and sampling.store.stored_array: draws of a run
that lie in files serve as well as those in memory.
"""

import shutil

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxbnn
from jaxbnn.sampling import open_draws
from tests.sampling.tiny import ar

KEY = jax.random.key(3)


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
