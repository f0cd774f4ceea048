import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

from jaxbnn.diagnostics.ranks import fold, normal_scores, quantile, sorted_draws


@pytest.mark.parametrize("values", ["continuous", "tied", "zeros", "infinite"])
def test_scores_are_those_of_average_ranks(values, rng):
    draws = rng.normal(size=(3, 41)).astype(np.float32)
    if values == "tied":
        draws = np.round(draws)
    if values == "zeros":
        draws = np.where(draws > 0.5, draws, np.where(draws > 0, np.float32(0), np.float32(-0.0)))
    if values == "infinite":
        draws[:, :3] = np.inf
        draws[:, 5] = -np.inf
    rank = scipy.stats.rankdata(draws).reshape(draws.shape)
    expected = scipy.stats.norm.ppf((rank - 3 / 8) / (draws.size + 1 / 4))
    np.testing.assert_allclose(normal_scores(jnp.asarray(draws)), expected, atol=2e-6)


@pytest.mark.long
def test_extreme_scores_of_many_draws_hold_in_float32():
    n = 1_000_000
    scores = np.asarray(normal_scores(jnp.asarray(np.arange(n, dtype=np.float32)[None])))[0]
    expected = scipy.stats.norm.ppf((np.array([1, 2, n - 1, n]) - 3 / 8) / (n + 1 / 4))
    np.testing.assert_allclose(scores[[0, 1, -2, -1]], expected, rtol=1e-5)


def test_sorting_and_quantiles(rng):
    draws = rng.normal(size=(3, 41)).astype(np.float32)
    ordered = sorted_draws(jnp.asarray(draws))
    np.testing.assert_array_equal(ordered, np.sort(draws, axis=None))
    for p in (0.0, 0.05, 0.5, 0.83, 1.0):
        np.testing.assert_allclose(quantile(ordered, p), np.quantile(draws, p), rtol=1e-5)
    np.testing.assert_allclose(
        fold(jnp.asarray(draws)), np.abs(draws - np.median(draws)), rtol=1e-5, atol=1e-7
    )


def test_the_quantile_between_equal_draws_is_that_draw():
    ordered = jnp.asarray(np.full(11, 0.1, np.float32))
    assert float(quantile(ordered, 0.37)) == float(np.float32(0.1))
