import numpy as np
import pytest

from jaxbnn.diagnostics import multivariate_ess
from tests.diagnostics.chains import autoregressive


def definition(draws, size):
    """Vats et al. with the batches of all chains centred at the common mean."""
    chains, length, count = draws.shape
    batches = length // size
    kept = draws[:, length - batches * size :].reshape(-1, count)
    means = kept.reshape(chains * batches, size, count).mean(axis=1)
    sigma = size * np.cov(means.T).reshape(count, count)
    covariance = np.cov(kept.T).reshape(count, count)
    ratio = np.linalg.det(covariance) / np.linalg.det(sigma)
    return chains * length * ratio ** (1 / count)


@pytest.mark.parametrize(("chains", "length", "size"), [(1, 100, None), (3, 107, 9)])
def test_equals_the_definition(chains, length, size, rng, x64):
    draws = rng.normal(size=(chains, length, 4)).cumsum(axis=1) @ rng.normal(size=(4, 4))
    ours = multivariate_ess(draws.reshape(chains, length, 2, 2), size)
    np.testing.assert_allclose(ours, definition(draws, size or 10), rtol=1e-9)


def test_scales_and_offsets_do_not_matter_in_float32(rng):
    draws = rng.normal(size=(2, 400, 3))
    plain = multivariate_ess(draws.astype(np.float32))
    moved = multivariate_ess((draws * [1e-12, 1.0, 1e12] + [0, 100, 0]).astype(np.float32))
    np.testing.assert_allclose(plain, moved, rtol=1e-3)


def test_truth_for_autoregressions(rng):
    # Independent coordinates with one phi: the univariate ESS. K = 2 * 316 batches leave a
    # relative standard deviation of sqrt(2/K) = 6 % per coordinate, 3 % of the geometric mean of
    # four; 4.9 of it, and a bias of 3 % at b = 316.
    draws = np.stack([autoregressive(rng, 0.8, 2, 100_000) for _ in range(4)], axis=2)
    assert abs(float(multivariate_ess(draws.astype(np.float32))) / (2e5 / 9) - 1) < 0.18


def test_chains_that_disagree_count_for_less(rng):
    draws = rng.normal(size=(2, 400, 2))
    apart = draws + np.array([[[0.0, 0.0]], [[5.0, 0.0]]])
    assert multivariate_ess(apart) < 0.4 * multivariate_ess(draws)


def test_dependent_and_nan_coordinates_are_nan(rng):
    draws = rng.normal(size=(2, 100, 2)).astype(np.float32)
    draws[0, 3, 1] = np.nan
    assert np.isnan(multivariate_ess(draws))
    assert np.isnan(multivariate_ess(np.ones((2, 100, 2), np.float32)))


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_a_draw_that_no_batch_holds_is_seen(bad, rng):
    """Of 1,000 draws the first eight fill none."""
    draws = rng.normal(size=(1, 1000, 2)).astype(np.float32)
    assert np.isfinite(multivariate_ess(draws))
    draws[0, 0, 1] = bad
    assert np.isnan(multivariate_ess(draws))


@pytest.mark.parametrize("length", [200, 2000])
def test_coordinates_that_depend_on_each_other_are_nan(length, rng):
    for _ in range(8):
        draws = rng.normal(size=(4, length, 3)).astype(np.float32)
        with_sum = np.concatenate([draws, draws[..., :1] + draws[..., 1:2]], axis=2)
        powers = np.exp(draws)
        shares = np.concatenate([powers / powers.sum(2, keepdims=True), draws[..., :1]], axis=2)
        assert np.isnan(multivariate_ess(with_sum))
        assert np.isnan(multivariate_ess(shares))
        # Nearly dependent, with a correlation of .99995, is told well.
        near = np.concatenate([draws, draws[..., :1] + 1e-2 * draws[..., 1:2]], axis=2)[
            ..., [0, 2, 3]
        ]
        assert 0.5 < multivariate_ess(near) / (4 * length) < 2


def test_too_few_batches():
    with pytest.raises(ValueError, match="20 batches of 10 draws for 30 coordinates"):
        multivariate_ess(np.zeros((2, 100, 30)))
    with pytest.raises(ValueError, match="batch_size must be between 1 and 100"):
        multivariate_ess(np.zeros((2, 100, 3)), 101)
