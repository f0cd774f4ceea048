"""Tests of numerics.spread: columns are told from constants in any units."""

import numpy as np
import pytest

from jaxbnn.numerics.spread import mean_and_sd


@pytest.mark.parametrize("unit", [1e-300, 1e-160, 1e-13, 1.0, 1e13, 1e160, 1e300])
def test_a_column_is_the_same_in_any_unit(rng, unit):
    values = rng.normal(size=(50, 3)) + np.array([0.0, 5.0, -100.0])
    values[4, 1] = np.nan
    mean, sd = mean_and_sd(values * unit)
    np.testing.assert_allclose(mean, np.nanmean(values, axis=0) * unit, rtol=1e-12)
    np.testing.assert_allclose(sd, np.nanstd(values, axis=0) * unit, rtol=1e-12)


@pytest.mark.parametrize("value", [0.0, 0.1, -1e-20, 1 / 3, 1e9 + 0.1])
def test_a_constant_has_no_spread(value):
    values = np.full(1000, value)
    assert mean_and_sd(values)[1] == 0.0
    values[:500] = np.nextafter(values[:500], np.inf)
    assert mean_and_sd(values)[1] == 0.0 or value == 0.0
    np.testing.assert_allclose(mean_and_sd(values)[0], value, rtol=1e-12, atol=1e-300)


def test_usual_numbers_are_as_numpy_has_them(rng):
    values = rng.normal(size=(77, 4)) * [1e-3, 1.0, 50.0, 1e4] + [0.0, 3.0, 700.0, 1e6]
    np.testing.assert_array_equal(mean_and_sd(values), (values.mean(axis=0), values.std(axis=0)))


@pytest.mark.parametrize("value", [0.1, 0.998, 7.7, 1e9 + 0.1])
def test_a_constant_beside_other_columns_has_none_whatever_the_number_of_rows(value, rng):
    """Sums over the first axis of a table are made row by row, and round by more."""
    values = np.stack([np.full(20_000, value), rng.normal(size=20_000)], axis=1)
    mean, sd = mean_and_sd(values)
    assert (mean[0], sd[0]) == (value, 0.0)


def test_columns_that_vary_little_have_their_own_spread(rng):
    values = 1.6e15 + np.round(1e5 * rng.normal(size=(20_000, 2)))  # microseconds
    away = values - 1.6e15
    mean, sd = mean_and_sd(values)
    np.testing.assert_allclose(sd, away.std(axis=0), rtol=1e-6)
    np.testing.assert_allclose(mean - 1.6e15, away.mean(axis=0), atol=0.5)
