"""Tests of cli.folder: draws mean the same when they are read again, also those of before."""

import json
import shutil

import h5netcdf
import jax
import numpy as np
import pytest
import xarray

from jaxbnn.cli.columns import Column
from jaxbnn.cli.encoding import Encoding
from jaxbnn.cli.folder import load, save
from jaxbnn.tabular.fitted import Fitted
from jaxbnn.tabular.posteriors import make_posterior
from jaxbnn.tabular.settings import Settings

X = np.linspace(-1, 1, 12, dtype=np.float32).reshape(6, 2)
OF_BEFORE = ("activation", "weight_scales", "is_centred")


def saved(folder, settings, classes, rng):
    """Save draws of the prior; return what they say of X."""
    y = np.arange(6, dtype=np.int32) % 2 if classes else X[:, 0]
    encoding = Encoding("y", [Column("a"), Column("b")], classes, 0.0, 1.0)
    posterior = make_posterior("nuts", settings, X, y, classes and len(classes))
    key = jax.random.key(int(rng.integers(2**31)))
    positions = jax.tree.map(np.asarray, posterior.sample_prior(key, (2, 5)))
    save(folder, encoding, settings, "nuts", Fitted(positions, None, []), posterior)
    return outputs(posterior, positions)


def without_tie(path):
    """Take from the draws what says with which model they belong: fits of before had none."""
    with h5netcdf.File(path, "a") as file:
        del file["posterior"].attrs["model_sha256"]


def outputs(posterior, positions):
    flat = jax.tree.map(lambda leaf: leaf.reshape(10, *leaf.shape[2:]), positions)
    return np.asarray(jax.vmap(lambda position: posterior.outputs(position, X))(flat))


@pytest.mark.parametrize("activation", ["tanh", "relu"])
@pytest.mark.parametrize("scales", [None, (0.7, 2.5)])
@pytest.mark.parametrize("hidden", [(), (3,)])
@pytest.mark.parametrize("classes", [None, ["no", "yes"]])
def test_draws_mean_the_same_when_read_again(classes, hidden, scales, activation, tmp_path, rng):
    settings = Settings("nuts", hidden, 2, 10, 5, 0.3, 0, activation=activation)
    settings = settings._replace(weight_scales=scales)
    expected = saved(tmp_path, settings, classes, rng)
    positions, _, posterior = load(tmp_path)
    np.testing.assert_allclose(outputs(posterior, positions), expected, rtol=1e-6)


@pytest.mark.parametrize("hidden", [(), (3,)])
@pytest.mark.parametrize("classes", [None, ["no", "yes"]])
def test_draws_of_fits_before_mean_what_they_meant(classes, hidden, tmp_path, rng):
    """Their scales were not written: 6 of lines between classes, else 2 and 1, and tanh.

    Nor was it that they hold standardised weights, those of lines among them.
    """
    scales = (6.0, 6.0) if classes and not hidden else (2.0, 1.0)
    settings = Settings("nuts", hidden, 2, 10, 5, 0.3, 0, weight_scales=scales, is_centred=False)
    expected = saved(tmp_path, settings, classes, rng)
    path = tmp_path / "model.json"
    model = json.loads(path.read_text())
    for name in OF_BEFORE:
        del model["settings"][name]
    path.write_text(json.dumps(model))
    without_tie(tmp_path / "posterior.nc")
    positions, _, posterior = load(tmp_path)
    np.testing.assert_allclose(outputs(posterior, positions), expected, rtol=1e-6)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("activation", "sine"),
        ("weight_scales", [1.0, -1.0]),
        ("weight_scales", [1.0]),
        ("is_centred", None),
    ],
)
def test_settings_that_no_fit_writes_are_refused(name, value, tmp_path, rng):
    saved(tmp_path, Settings("nuts", (3,), 2, 10, 5, 0.3, 0), None, rng)
    path = tmp_path / "model.json"
    model = json.loads(path.read_text())
    model["settings"][name] = value
    path.write_text(json.dumps(model))
    with pytest.raises(ValueError, match="is damaged, or not what"):
        load(tmp_path)


def test_files_of_two_fits_are_told_apart(tmp_path, rng):
    """Both networks have weights of the same shapes: the draws fit either."""
    for name, activation in (("one", "tanh"), ("other", "relu")):
        (tmp_path / name).mkdir()
        settings = Settings("nuts", (3,), 2, 10, 5, 0.3, 0, activation=activation)
        saved(tmp_path / name, settings, None, rng)
    load(tmp_path / "one")
    shutil.copy(tmp_path / "other" / "model.json", tmp_path / "one")
    with pytest.raises(ValueError, match="are not of one fit"):
        load(tmp_path / "one")
    # The draws of a fit are found wherever its folder goes.
    load(shutil.copytree(tmp_path / "other", tmp_path / "elsewhere"))


def test_what_arviz_compares_is_in_the_units_of_the_target(tmp_path, rng):
    """Of a target in other units, log likelihoods differ by the logarithm of the unit alone."""
    found = {}
    for name, (mean, sd) in {"plain": (0.0, 1.0), "other": (50.0, 8.0)}.items():
        folder = tmp_path / name
        folder.mkdir()
        encoding = Encoding("y", [Column("a"), Column("b")], None, mean, sd)
        settings = Settings("nuts", (), 2, 10, 5, 0.3, 0)
        posterior = make_posterior("nuts", settings, X, X[:, 0], None)
        positions = jax.tree.map(np.asarray, posterior.sample_prior(jax.random.key(0), (2, 5)))
        save(folder, encoding, settings, "nuts", Fitted(positions, None, []), posterior)
        read = lambda group, folder=folder: xarray.load_dataset(  # noqa: E731
            folder / "posterior.nc", group=group, engine="h5netcdf"
        )
        found[name] = {group: read(group) for group in ("observed_data", "log_likelihood")}
        attrs = read("posterior").attrs
        assert (attrs["target_mean"], attrs["target_sd"]) == (mean, sd)
    plain, other = (found[name] for name in ("plain", "other"))
    np.testing.assert_allclose(other["observed_data"].y, 50 + 8 * X[:, 0], rtol=1e-6)
    np.testing.assert_allclose(
        other["log_likelihood"].y, plain["log_likelihood"].y - np.log(8), rtol=1e-6, atol=1e-6
    )


def test_log_likelihoods_that_are_left_out_are_told(tmp_path, monkeypatch):
    monkeypatch.setattr("jaxbnn.cli.folder._MOST_TERMS", 10)
    settings = Settings("nuts", (), 2, 10, 5, 0.3, 0)
    encoding = Encoding("y", [Column("a"), Column("b")], None, 0.0, 1.0)
    posterior = make_posterior("nuts", settings, X, X[:, 0], None)
    positions = jax.tree.map(np.asarray, posterior.sample_prior(jax.random.key(0), (2, 5)))
    (said,) = save(tmp_path, encoding, settings, "nuts", Fitted(positions, None, []), posterior)
    assert "holds no log likelihoods" in said
