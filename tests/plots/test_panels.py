"""Tests of plots._canvas and plots._series: axes in, axes out, and nothing of the caller's is
changed.
"""

import builtins
import subprocess
import sys

import matplotlib as mpl
import numpy as np
import pytest
from matplotlib.figure import Figure

from jaxbnn import plots

SERIES = [plots.trace, plots.running_mean, plots.autocorrelation, plots.density]
CURVES = [plots.acceptance_against, plots.ess_against]
MAPS = [plots.parallel_coordinates, plots.covariance_heat_map]


@pytest.mark.parametrize("draw", SERIES)
def test_one_panel_for_each_coordinate(draw, rng):
    draws = rng.normal(size=(2, 30, 4))
    axes = draw(draws, names=list("abcd"))
    assert axes.shape == (4,)
    assert len(axes[0].figure.axes) == 4  # the spare places of the grid are empty
    single = draw(draws[..., 2])
    for expected, line in zip(single.get_lines(), axes[2].get_lines(), strict=True):
        np.testing.assert_allclose(line.get_ydata(), expected.get_ydata(), rtol=1e-5, atol=1e-6)
    for panel, name in zip(axes, "abcd", strict=True):
        assert name in f"{panel.get_xlabel()} {panel.get_ylabel()}".split()


@pytest.mark.parametrize("draw", SERIES)
def test_the_given_axes_are_drawn_on_and_returned(draw, rng):
    grid = Figure().subplots(2, 2)
    axes = draw(rng.normal(size=(2, 30, 4)), grid)
    assert list(axes) == list(grid.ravel())
    assert draw(rng.normal(size=(2, 30)), grid[0, 0]) is grid[0, 0]


@pytest.mark.parametrize("draw", [*SERIES, *MAPS])
@pytest.mark.parametrize("shape", [(5,), (2, 3, 4, 5), (2, 0, 3)])
def test_a_wrong_shape_is_told(draw, shape):
    with pytest.raises(ValueError, match=r"draws must have shape .* but have shape") as caught:
        draw(np.zeros(shape))
    assert str(shape) in str(caught.value)


@pytest.mark.parametrize("draw", MAPS)
def test_maps_want_a_coordinate_axis(draw):
    with pytest.raises(ValueError, match=r"\(chains, draws, dim\)"):
        draw(np.zeros((4, 10)))


def test_other_bad_input_is_told(rng):
    draws = rng.normal(size=(2, 30, 4))
    grid = Figure().subplots(1, 3)
    with pytest.raises(ValueError, match=r"axes has 3 axes, but there are 4 panels"):
        plots.trace(draws, grid)
    with pytest.raises(TypeError, match=r"axes must be Matplotlib axes, but hold a str"):
        plots.trace(draws[..., 0], "left")
    with pytest.raises(ValueError, match=r"names has 2 entries, but the draws have 4 coordinates"):
        plots.trace(draws, names=["a", "b"])
    with pytest.raises(ValueError, match=r"17 coordinates, which is more than 16 panels"):
        plots.density(np.zeros((2, 3, 17)))
    with pytest.raises(TypeError, match=r"one array of real numbers .* but hold object"):
        plots.trace(np.array([{"w": 1.0}]))
    with pytest.raises(TypeError, match=r"real numbers .* but hold complex128"):
        plots.trace(np.zeros((2, 3), dtype=complex))


@pytest.mark.parametrize("dtype", ["bfloat16", "int32", "bool"])
def test_every_real_dtype_is_drawn(dtype):
    import jax.numpy as jnp

    axes = plots.trace(jnp.ones((1, 3), dtype))
    np.testing.assert_array_equal(axes.get_lines()[0].get_ydata(), np.ones(3))


def test_masked_draws_are_gaps():
    draws = np.ma.masked_array([[1.0, -999.0, 2.0]], [[False, True, False]])
    axes = plots.trace(draws)
    np.testing.assert_array_equal(axes.get_lines()[0].get_ydata(), [1.0, np.nan, 2.0])
    assert "1 of 3 draws not finite" in axes.get_title()


@pytest.mark.long
def test_nothing_global_changes_and_every_figure_can_be_saved(rng, tmp_path):
    from matplotlib import pyplot

    draws = rng.normal(size=(3, 5000, 4))
    before, open_before = dict(mpl.rcParams), pyplot.get_fignums()
    results = [draw(draws) for draw in [*SERIES, *MAPS]]
    results += [draw([0.1, 0.2], np.array([[0.2, 0.4], [0.3, 0.5]])) for draw in CURVES]
    for i, result in enumerate(results):
        path = tmp_path / f"{i}.png"
        np.ravel(np.asarray(result, dtype=object))[0].figure.savefig(path)
        assert 5_000 < path.stat().st_size < 1_500_000
    assert dict(mpl.rcParams) == before
    assert pyplot.get_fignums() == open_before


@pytest.mark.long
def test_the_package_needs_no_matplotlib_until_something_is_drawn(monkeypatch):
    code = "import sys, jaxbnn.plots; assert 'matplotlib' not in sys.modules, 'imported'"
    subprocess.run([sys.executable, "-c", code], check=True)
    real = builtins.__import__

    def without(name, *args, **kwargs):
        if name.split(".")[0] == "matplotlib":
            raise ImportError(name)
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(ImportError, match=r"pip install 'jaxbnn\[plots\]'"):
        plots.trace(np.zeros((1, 3)))
