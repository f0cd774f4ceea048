"""What is drawn of chains is what NumPy computes of them."""

import jax.numpy as jnp
import numpy as np
import pytest

from jaxbnn import plots


def lines(axes, label):
    return [line for line in axes.get_lines() if line.get_label() == label]


@pytest.fixture
def draws(rng):
    return rng.normal(size=(3, 50))


def test_trace_draws_every_chain_and_the_mean(draws):
    axes = plots.trace(jnp.asarray(draws, dtype=jnp.float32), names="w")
    assert [line.get_label() for line in axes.get_lines()] == [
        "chain 0",
        "chain 1",
        "chain 2",
        "mean",
    ]
    for line, chain in zip(axes.get_lines(), draws, strict=False):
        np.testing.assert_array_equal(line.get_xdata(), np.arange(50))
        np.testing.assert_array_equal(line.get_ydata(), chain.astype(np.float32))
    np.testing.assert_allclose(axes.get_lines()[-1].get_ydata(), draws.mean(), atol=1e-6)
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("draw", "w")
    assert len({line.get_color() for line in axes.get_lines()}) == 4
    assert axes.get_legend() is not None


def test_a_long_trace_keeps_its_excursions_in_few_points(rng):
    series = rng.normal(size=(2, 10_007))
    series[0, 1234], series[1, 10_006] = 50.0, -50.0
    axes = plots.trace(series, max_points=200)
    first, second = axes.get_lines()[:2]
    for line, chain in [(first, series[0]), (second, series[1])]:
        assert len(line.get_xdata()) <= 200
        assert (np.diff(line.get_xdata()) >= 0).all()
        np.testing.assert_array_equal(line.get_ydata(), chain[line.get_xdata()])
        # The extremes of every stretch of 101 draws are there, each at its own place.
        for start in range(0, len(chain), 101):
            stretch = chain[start : start + 101]
            assert {stretch.min(), stretch.max()} <= set(line.get_ydata())
    assert 1234 in first.get_xdata()
    assert 10_006 in second.get_xdata()


def test_samplers_on_one_axes_have_their_own_colours_and_names(draws):
    for draw_one in (plots.trace, plots.running_mean, plots.autocorrelation):
        axes = draw_one(draws, label="MALA")
        assert draw_one(draws + 1, axes, label="RWM") is axes
        assert [t.get_text() for t in axes.get_legend().get_texts()] == ["MALA", "RWM"]
        first, second = (lines(axes, name)[0].get_color() for name in ("MALA", "RWM"))
        assert first != second


def test_running_mean(draws):
    axes = plots.running_mean(draws, label="MALA")
    by_hand = np.array([[chain[: t + 1].mean() for t in range(50)] for chain in draws])
    thin, bold = axes.get_lines()[:3], lines(axes, "MALA")[0]
    for line, expected in zip(thin, by_hand, strict=True):
        np.testing.assert_array_equal(line.get_xdata(), np.arange(1, 51))
        np.testing.assert_allclose(line.get_ydata(), expected, rtol=1e-12, atol=1e-14)
    np.testing.assert_allclose(bold.get_ydata(), by_hand.mean(axis=0), rtol=1e-12, atol=1e-14)


def test_autocorrelation(draws):
    axes = plots.autocorrelation(draws, max_lag=7, label="MALA")
    centred = draws - draws.mean(axis=1, keepdims=True)
    by_hand = np.array([[(c[: 50 - k] * c[k:]).sum() / (c @ c) for k in range(8)] for c in centred])
    thin, bold = lines(axes, "_chain"), lines(axes, "MALA")[0]
    for line, expected in zip(thin, by_hand, strict=True):
        np.testing.assert_array_equal(line.get_xdata(), np.arange(8))
        np.testing.assert_allclose(line.get_ydata(), expected, atol=2e-6)
    np.testing.assert_allclose(bold.get_ydata(), by_hand.mean(axis=0), atol=2e-6)
    assert axes.get_xlabel() == "lag"


def test_a_lag_beyond_the_draws_is_cut(draws):
    assert len(plots.autocorrelation(draws[:, :5]).get_lines()[-1].get_xdata()) == 5


def test_draws_that_are_not_finite_leave_gaps_and_are_named(draws):
    draws[1, 20:25] = np.nan
    draws[2, 7] = np.inf
    sentence = "6 of 150 draws not finite (chains 1, 2)"
    trace = plots.trace(draws)
    assert trace.get_title() == sentence
    assert np.isnan(trace.get_lines()[1].get_ydata()[20:25]).all()
    assert np.isnan(trace.get_lines()[2].get_ydata()[7])
    mean = plots.running_mean(draws)
    assert mean.get_title() == sentence
    bold = mean.get_lines()[-1].get_ydata()
    np.testing.assert_allclose(bold[-1], draws[0].mean())  # the only chain left
    rho = plots.autocorrelation(draws, label="MALA")
    assert rho.get_title() == f"MALA: {sentence}"
    thin = lines(rho, "_chain")
    assert [bool(np.isnan(line.get_ydata()).all()) for line in thin] == [False, True, True]
    np.testing.assert_array_equal(lines(rho, "MALA")[0].get_ydata(), thin[0].get_ydata())


def test_a_trace_without_any_finite_draw_is_still_a_picture():
    axes = plots.trace(np.full((1, 4), np.nan), label="MALA")
    assert axes.get_title() == "MALA: 4 of 4 draws not finite (chain 0)"
    plots.running_mean(np.full((1, 4), np.nan), label="MALA")
    plots.autocorrelation(np.full((1, 4), np.nan), label="MALA").figure.canvas.draw()


def test_a_chain_that_never_moved_is_named(draws):
    draws[1] = 0.1
    axes = plots.autocorrelation(draws)
    assert axes.get_title() == "never moved: chain 1"
    assert np.isfinite(axes.get_lines()[-1].get_ydata()).all()
    axes = plots.autocorrelation(np.zeros((8, 4)))
    assert axes.get_title() == "never moved: chains 0, 1, 2, 3, 4 and 3 more"


def test_errors_are_sentences(draws):
    with pytest.raises(ValueError, match=r"max_lag must be at least 1, but is 0"):
        plots.autocorrelation(draws, max_lag=0)
    with pytest.raises(ValueError, match=r"max_points must be at least 1"):
        plots.trace(draws, max_points=0)
    with pytest.raises(ValueError, match=r"at least two draws"):
        plots.autocorrelation(draws[:, :1])


def test_a_missing_draw_leaves_a_gap_in_a_thinned_chain(rng):
    draws = rng.normal(size=(1, 1003))
    whole = plots.trace(draws, max_points=100).get_lines()[0].get_xydata()
    draws[0, 500] = np.nan
    x, y = plots.trace(draws, max_points=100).get_lines()[0].get_xydata().T
    np.testing.assert_array_equal(x[np.isnan(y)], [500])
    assert (np.diff(x) >= 0).all()
    kept = np.isfinite(y)
    at_both = np.isin(x[kept], whole[:, 0])
    assert at_both.sum() >= len(whole) - 2
    assert np.isfinite(whole).all()
