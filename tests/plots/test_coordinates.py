"""Lines through coordinates are the draws; colours and texts of a heat map are the covariance."""

import itertools

import numpy as np
import pytest
from matplotlib.colors import to_hex

from jaxbnn import plots
from jaxbnn.plots._canvas import COLORS


@pytest.fixture
def draws(rng):
    return rng.normal(size=(2, 60, 3)) @ np.array([[2.0, 1.0, 0.0], [0.0, 1.0, 0.0], [0, 0, 1]])


def test_parallel_coordinates_are_the_draws(draws):
    axes = plots.parallel_coordinates(draws, names=["a", "b", "c"])
    assert len(axes.collections) == 2
    for collection, chain in zip(axes.collections, draws, strict=True):
        segments = np.array(collection.get_segments())
        np.testing.assert_array_equal(segments[:, :, 0], np.tile(np.arange(3), (60, 1)))
        np.testing.assert_array_equal(segments[:, :, 1], chain)
    assert [tick.get_text() for tick in axes.get_xticklabels()] == ["a", "b", "c"]
    low, high = axes.get_ylim()
    assert low < draws.min()
    assert high > draws.max()


def test_each_chain_has_its_colour(rng):
    axes = plots.parallel_coordinates(rng.normal(size=(3, 5, 2)))
    assert [to_hex(c.get_color()[0]).upper() for c in axes.collections] == list(COLORS[:3])


def test_many_draws_are_thinned_evenly_and_alike(rng):
    draws = np.broadcast_to(np.arange(1001.0)[:, None], (4, 1001, 2))
    axes = plots.parallel_coordinates(draws, max_lines=44)
    for collection in axes.collections:
        first = [segment[0, 1] for segment in collection.get_segments()]
        np.testing.assert_array_equal(first, np.arange(0, 1001, 100))


def test_parallel_coordinates_leave_out_what_is_not_finite(draws):
    draws[1, 4, 2] = np.nan
    axes = plots.parallel_coordinates(draws)
    assert [len(c.get_segments()) for c in axes.collections] == [60, 59]
    assert axes.get_title() == "1 of 120 draws not finite (chain 1)"


def test_heat_map_is_the_pooled_covariance(draws):
    axes = plots.covariance_heat_map(draws)
    expected = np.cov(draws.reshape(-1, 3), rowvar=False)
    image = axes.images[0]
    np.testing.assert_allclose(image.get_array(), expected, rtol=1e-12)
    assert image.get_clim() == (-np.abs(expected).max(), np.abs(expected).max())
    written = np.array([float(text.get_text()) for text in axes.texts]).reshape(3, 3)
    np.testing.assert_allclose(written, expected, atol=0.0051)


@pytest.mark.parametrize("correlation", [True, False])
def test_heat_maps_name_both_their_sides(correlation, draws):
    axes = plots.covariance_heat_map(draws, names=["a", "b", "c"], correlation=correlation)
    for labels in (axes.get_xticklabels(), axes.get_yticklabels()):
        assert [text.get_text() for text in labels] == ["a", "b", "c"]
    bar = axes.images[0].colorbar.ax.get_ylabel()
    assert bar == ("correlation" if correlation else "covariance")


def test_correlations(draws):
    axes = plots.covariance_heat_map(draws, correlation=True)
    expected = np.corrcoef(draws.reshape(-1, 3), rowvar=False)
    np.testing.assert_allclose(axes.images[0].get_array(), expected, rtol=1e-10, atol=1e-12)
    assert axes.images[0].get_clim() == (-1, 1)


@pytest.mark.parametrize("shared", [True, False])
def test_several_side_by_side(draws, shared):
    axes = plots.covariance_heat_map({"MALA": draws, "RWM": 3 * draws}, shared_scale=shared)
    assert [a.get_title() for a in axes] == ["MALA", "RWM"]
    narrow, wide = (a.images[0].get_clim()[1] for a in axes)
    np.testing.assert_allclose(wide / narrow, 1 if shared else 9)
    assert len(axes[0].figure.axes) == (3 if shared else 4)  # the rest are colour bars


def test_a_limit_says_that_colours_end_there(draws):
    axes = plots.covariance_heat_map(draws, limit=0.5)
    assert axes.images[0].get_clim() == (-0.5, 0.5)
    assert axes.images[0].colorbar.extend == "both"


def test_entries_are_written_where_they_fit(rng):
    wide = rng.normal(size=(1, 50, 27))
    assert not plots.covariance_heat_map(wide).texts
    assert len(plots.covariance_heat_map(wide, annotate=True).texts) == 27**2
    assert not plots.covariance_heat_map(wide[..., :3], annotate=False).texts


def test_heat_map_leaves_out_what_is_not_finite(draws):
    clean = np.cov(draws.reshape(-1, 3)[1:], rowvar=False)
    draws[0, 0, 1] = np.inf
    axes = plots.covariance_heat_map(draws)
    np.testing.assert_allclose(axes.images[0].get_array(), clean, rtol=1e-12)
    assert axes.get_title() == "1 of 120 draws not finite (chain 0)"


def test_squares_that_no_float_holds(draws):
    correlation = np.corrcoef(draws.reshape(-1, 3), rowvar=False)
    for scale in (1e200, 1e-200):
        axes = plots.covariance_heat_map(scale * draws, correlation=True)
        np.testing.assert_allclose(axes.images[0].get_array(), correlation, rtol=1e-9)
        with pytest.raises(ValueError, match="are too large or too small for floats of 64 bits; s"):
            plots.covariance_heat_map(scale * draws)
    # Beside others a small one is none that is lost.
    small = plots.covariance_heat_map(draws * [1.0, 1.0, 1e-200]).images[0].get_array()
    np.testing.assert_allclose(small[:2, :2], np.cov(draws[..., :2].reshape(-1, 2), rowvar=False))
    assert not plots.covariance_heat_map(np.full((1, 9, 2), 1e-200)).images[0].get_array().any()


@pytest.mark.short("27")
@pytest.mark.parametrize("dim", [9, 27, 100])
def test_tick_labels_do_not_touch(dim, rng):
    draws = rng.normal(size=(2, 20, dim))
    for axes in (
        plots.parallel_coordinates(draws),
        *plots.covariance_heat_map({"a": draws, "b": draws, "c": draws, "d": draws}),
    ):
        axes.figure.canvas.draw()
        boxes = [label.get_window_extent() for label in axes.get_xticklabels()]
        assert len(boxes) > 4
        assert all(a.x1 < b.x0 for a, b in itertools.pairwise(boxes))


def test_errors_are_sentences(draws):
    draws[..., 1] = 4.0
    with pytest.raises(ValueError, match=r"Coordinate 1 of the draws of 'RWM' never changes"):
        plots.covariance_heat_map({"RWM": draws}, correlation=True)
    with pytest.raises(ValueError, match=r"needs two finite draws, but the draws hold 1"):
        plots.covariance_heat_map(draws[:1, :1])
    with pytest.raises(ValueError, match=r"empty mapping"):
        plots.covariance_heat_map({})
    with pytest.raises(ValueError, match=r"limit must be positive"):
        plots.covariance_heat_map(draws, limit=-1.0)
    with pytest.raises(ValueError, match=r"max_lines must be at least 1"):
        plots.parallel_coordinates(draws, max_lines=0)
    with pytest.raises(ValueError, match=r"names has 1 entries"):
        plots.parallel_coordinates(draws, names=["a"])
