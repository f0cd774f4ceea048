"""What holds for every diagnostic: shapes, NaN, offsets, refusals, blocks, memory."""

import functools
import re
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxbnn.diagnostics as diagnostics
from jaxbnn.diagnostics import draws as draws_module
from jaxbnn.diagnostics.table import _statistics
from tests.diagnostics.chains import assorted

LENGTH = 48
# Name, arguments, and the shape in front of the trailing one.
POOLED = {
    "rhat_brooks_gelman": diagnostics.rhat_brooks_gelman,
    "rhat_variance_ratio": diagnostics.rhat_variance_ratio,
    "gelman_rubin": diagnostics.gelman_rubin,
    "split_rhat": diagnostics.split_rhat,
    "folded_split_rhat": diagnostics.folded_split_rhat,
    "rank_rhat": diagnostics.rank_rhat,
    "ess_bulk": diagnostics.ess_bulk,
    "ess_tail": diagnostics.ess_tail,
    "mcse": diagnostics.mcse,
    "mcse_sd": functools.partial(diagnostics.mcse, of="sd"),
    "mcse_quantile": functools.partial(diagnostics.mcse, of="quantile", probability=0.2),
}
PER_CHAIN = {
    "ess_geyer": diagnostics.ess_geyer,
    "ess_tfp": diagnostics.ess_tfp,
    "autocorrelation": functools.partial(diagnostics.autocorrelation, max_lag=4),
}
EVERY = POOLED | PER_CHAIN


SHORT = ("split_rhat", "rank_rhat", "ess_tail", "mcse_quantile", "ess_geyer", "autocorrelation")


@pytest.mark.parametrize(
    "name",
    [name if name in SHORT else pytest.param(name, marks=pytest.mark.long) for name in EVERY],
)
def test_shapes_nan_and_offset(name, rng):
    diagnostic = EVERY[name]
    draws = assorted(rng, 3, LENGTH).reshape(3, LENGTH, 2, 1, 3)
    # Draws around 1000 known to 6e-5 each, judged in float32, against the same numbers in float64.
    draws = (draws[..., :2] + 1000).astype(np.float32)
    value = np.asarray(diagnostic(draws))
    front = () if name in POOLED else (3, 5) if name == "autocorrelation" else (3,)
    assert value.shape == (*front, 2, 1, 2)
    assert value.dtype == np.float32
    assert np.isfinite(value).all()
    with jax.enable_x64(True):
        exact = np.asarray(diagnostic(draws.astype(np.float64)))
    np.testing.assert_allclose(value, exact, rtol=2e-3, atol=1e-4)

    draws[1, LENGTH // 2, 1, 0, 0] = np.nan
    spoiled = np.array(diagnostic(draws))
    assert np.isnan(spoiled[..., 1, 0, 0]).all()
    spoiled[..., 1, 0, 0] = value[..., 1, 0, 0]
    np.testing.assert_array_equal(spoiled, value)
    draws[1, LENGTH // 2, 1, 0, 0] = np.inf
    assert np.isnan(np.asarray(diagnostic(draws))[..., 1, 0, 0]).all()


@pytest.mark.parametrize("name", ["rank_rhat", "ess_tail", "mcse_sd", "ess_geyer"])
def test_scale_does_not_overflow(name, rng):
    draws = assorted(rng, 3, LENGTH).reshape(3, LENGTH, 2, 1, 3)[..., :2].astype(np.float32)
    scale = np.float32(2.0**100)
    expected = np.asarray(EVERY[name](draws))
    value = np.asarray(EVERY[name](draws * scale))
    np.testing.assert_allclose(value / (scale if "mcse" in name else 1), expected, rtol=1e-5)


@pytest.mark.parametrize("name", EVERY)
def test_the_door(name):
    diagnostic = EVERY[name]
    with pytest.raises(ValueError, match=r"needs an array \(chain, draw, ...\)"):
        diagnostic(np.zeros(100))
    with pytest.raises(ValueError, match=r"needs at least \d draws per chain, but there are 1"):
        diagnostic(np.zeros((4, 1)))
    with pytest.raises(ValueError, match="no coordinates"):
        diagnostic(np.zeros((4, 100, 0)))
    with pytest.raises(TypeError, match="takes real draws"):
        diagnostic(np.zeros((4, 100), complex))


def test_numbers_of_64_bits_that_lose_their_spread_are_refused(rng, x64):
    draws = rng.normal(size=(4, 50, 2)) + np.array([0.0, 1e8])
    whole = 3_000_000_000 + np.round(3 * rng.normal(size=(4, 50))).astype(np.int64)
    exact = [diagnostics.rank_rhat(draws), diagnostics.rank_rhat(whole)]
    assert np.isfinite(np.concatenate([np.ravel(e) for e in exact])).all()
    with jax.enable_x64(False):
        for diagnostic in (diagnostics.rank_rhat, diagnostics.mcse, diagnostics.summary):
            with pytest.raises(ValueError, match="spread in float32: coordinate 1 has a standard"):
                diagnostic(draws)
            with pytest.raises(ValueError, match=r"rounded by up to .*; subtract its mean, or set"):
                diagnostic(whole)
        with pytest.raises(ValueError, match="positions lose their spread"):
            diagnostics.summary(draws, function=jnp.sum)
        with pytest.raises(ValueError, match="log_density lose"):
            diagnostics.summary(draws - draws[:1, :1], log_density=draws[..., 1])
        # Integers of more than 32 bits that are far enough apart are made floats.
        wide = np.arange(200).reshape(4, 50) * 10**8
        np.testing.assert_allclose(diagnostics.mcse(wide), 1e8 * diagnostics.mcse(wide // 10**8))


@pytest.mark.parametrize("scale", [1e160, 1e-170, 1e-310])
def test_draws_whose_squares_no_float_holds_are_refused_for_what_they_are(scale, rng):
    draws = rng.normal(size=(4, 50))
    still = np.repeat(draws[:, :1], 50, axis=1)
    for diagnostic in (diagnostics.rank_rhat, diagnostics.summary):
        for given, deviation in ((draws, draws.std(axis=1).mean()), (still, draws[:, 0].std())):
            with pytest.raises(ValueError, match="spread in float32: coordinate 0 has a") as told:
                diagnostic(scale * given)
            found = re.search("standard deviation of (.*) and is rounded", str(told.value))[1]
            np.testing.assert_allclose(float(found) / scale, deviation, rtol=0.1)


@pytest.mark.parametrize("scale", [1.7e308, 1e100, 1e-100])
def test_what_float32_does_not_hold_is_to_be_scaled(scale, rng):
    """Its mean may be 0 already. Differences of the largest overflow."""
    draws = rng.choice([-1.0, 1.0], size=(4, 50))
    draws[:, 0] = [-1, 1, -1, 1]
    for given in (draws, np.repeat(draws[:, :1], 50, axis=1)):
        with pytest.raises(ValueError, match=r"rounded by up to .*; scale it, or set"):
            diagnostics.rank_rhat(scale * given)


@pytest.mark.parametrize("shape", [(3, 100), (4, 97)])
def test_equal_numbers_have_no_spread_to_lose(shape):
    """Their variance may be a rounding error, which is less than that of float32."""
    assert np.isnan(diagnostics.rank_rhat(np.full(shape, 0.1)))


def test_long_doubles_are_made_doubles(rng):
    draws = rng.normal(size=(4, 50))
    longer = draws.astype(np.longdouble)
    assert diagnostics.rank_rhat(longer) == diagnostics.rank_rhat(draws)
    found = diagnostics.summary({"w": longer}, log_density=longer)
    np.testing.assert_array_equal(found.mean, diagnostics.summary(draws).mean[[0, 0]])
    # Beyond a double they are infinite, without a word of NumPy's.
    longer[0, 3] = np.longdouble(2.0) ** 1500 if np.finfo(np.longdouble).maxexp > 2000 else np.inf
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert np.isinf(draws_module.in_doubles(longer)[0, 3])


def test_large_whole_numbers_of_jax_are_refused(rng):
    close = jnp.asarray(1_000_000_000 + rng.integers(0, 10, (4, 100)), jnp.int32)
    for diagnostic in (diagnostics.rank_rhat, diagnostics.summary):
        with pytest.raises(ValueError, match="lose their spread in float32"):
            diagnostic(close)
    small = close - 1_000_000_000
    assert np.isfinite(diagnostics.rank_rhat(small))
    assert np.isfinite(jax.jit(diagnostics.rank_rhat)(small))


def test_a_tree_is_refused():
    with pytest.raises(TypeError, match="takes one array"):
        draws_module.check_draws("split_rhat", {"w": np.zeros((4, 100))})


def test_integers_and_halves_are_made_floats(rng):
    counts = rng.integers(0, 5, (3, LENGTH, 2))
    expected = diagnostics.split_rhat(counts.astype(np.float32))
    np.testing.assert_array_equal(diagnostics.split_rhat(counts), expected)
    np.testing.assert_array_equal(
        diagnostics.split_rhat(jnp.asarray(counts, jnp.bfloat16)), expected
    )
    assert diagnostics.split_rhat(counts > 2).shape == (2,)


def test_blocks_equal_the_whole(rng, monkeypatch):
    draws = rng.normal(size=(3, 40, 7)).astype(np.float32)
    whole = diagnostics.ess_geyer(draws)
    draws_module._map_blocks.clear_cache()
    monkeypatch.setattr(draws_module, "_WORKSPACE_BYTES", 3 * 16 * 3 * 40 * 4)  # three at a time
    np.testing.assert_allclose(diagnostics.ess_geyer(draws), whole, rtol=1e-5)
    draws_module._map_blocks.clear_cache()


def test_compiled_once_per_shape(rng):
    draws_module._map_blocks.clear_cache()
    for _ in range(2):
        diagnostics.ess_tail(rng.normal(size=(2, 20)), 0.8)
    assert draws_module._map_blocks._cache_size() == 1


def test_inside_jit(rng):
    draws = jnp.asarray(rng.normal(size=(2, 20)))
    np.testing.assert_allclose(
        jax.jit(diagnostics.split_rhat)(draws), diagnostics.split_rhat(draws), rtol=1e-6
    )


@pytest.mark.long
def test_memory_for_many_coordinates():
    # 1.8 GB of draws; the work arrays beside them stay below 0.3 GB.
    draws = jax.ShapeDtypeStruct((10, 100_000, 450), jnp.float32)
    compiled = draws_module._map_blocks.lower(_statistics, (), draws).compile()
    assert compiled.memory_analysis().temp_size_in_bytes < 3e8


def test_coordinates_without_an_answer_do_not_stop_a_search_for_nans():
    draws = np.stack([np.ones((2, 40)), np.random.default_rng(0).normal(size=(2, 40))], axis=2)
    with jax.debug_nans(True):
        found = diagnostics.split_rhat(draws)
    assert np.isfinite(found).tolist() == [False, True]
