import numpy as np
import pytest

from jaxbnn.diagnostics import autocorrelation
from jaxbnn.diagnostics.autocovariance import _fast_length
from tests.diagnostics.chains import autocovariances


@pytest.mark.parametrize("length", [2, 3, 50, 97])
def test_equals_the_sum_of_products(length, rng, x64):
    draws = rng.normal(size=(2, length, 3)).cumsum(axis=1)
    expected = np.apply_along_axis(autocovariances, 1, draws)
    expected = expected / expected[:, :1]
    np.testing.assert_allclose(autocorrelation(draws), expected, rtol=1e-9, atol=1e-12)


def test_lags_come_second(rng):
    assert autocorrelation(rng.normal(size=(2, 30, 3, 1)), 5).shape == (2, 6, 3, 1)


@pytest.mark.parametrize("lag", [-1, 10])
def test_lag_is_checked(lag):
    with pytest.raises(ValueError, match=r"max_lag must be (between 0 and 9|at least 0)"):
        autocorrelation(np.zeros((2, 10)), lag)


def test_fast_length_is_the_smallest():
    smooth = sorted(2**a * 3**b * 5**c for a in range(1, 14) for b in range(9) for c in range(6))
    for n in [1, 2, 3, 7, 97, 100, 101, 1000, 1999, 4099]:
        assert _fast_length(n) == next(s for s in smooth if s >= n)
