"""Tests of tabular.noise: what rounding leaves, and targets that no density fits."""

import numpy as np
import pytest

from jaxbnn.tabular.noise import noise_notes, rounding_noise


def test_noise_is_at_least_the_error_of_rounding(rng):
    """Else a density on whole numbers rises without bound where they repeat."""
    exact = rng.normal(0, 3, 5000)
    rounded = np.round(exact / 0.5) * 0.5
    sd = rounded.std()
    least = rounding_noise((rounded / sd).astype(np.float32))
    assert least == pytest.approx((rounded - exact).std() / sd, rel=0.05)
    assert rounding_noise((exact / exact.std()).astype(np.float32)) == 1e-3
    assert rounding_noise(np.zeros(5)) == rounding_noise(np.arange(5)) == 1e-3


def test_one_value_off_the_grid_changes_nothing(rng):
    grades = np.round(rng.normal(6, 1, 1000))
    whole = rounding_noise(grades)
    assert whole == pytest.approx(12**-0.5)
    assert rounding_noise(np.append(grades, 5.51)) == whole
    # Of numbers that mostly differ the copies are no grid.
    copies = np.repeat(rng.normal(0, 1, 2000), rng.choice([1, 2], 2000, p=[0.9, 0.1]))
    assert rounding_noise(copies) == 1e-3


def test_targets_with_one_value_of_their_own_are_told(rng):
    """A fifth of dry days, say; whole grades repeat as well, and are no such case."""
    rain = np.where(rng.random(1000) < 0.3, 0.0, rng.gamma(2.0, 3.0, 1000))
    (told,) = noise_notes("gaussian", 1e-3, rain)
    assert told.startswith(f"{np.mean(rain == 0):.0%} of the targets")
    assert noise_notes("negative-binomial", 1e-3, rain) == []
    assert noise_notes("student-t", 1e-3, rain[rain > 0]) == []
    assert noise_notes("gaussian", 1e-3, np.round(rng.normal(6, 0.8, 1000))) == []
    assert noise_notes("gaussian", 1e-3, np.repeat([0.0, 1.0], [90, 10])) == []


def test_the_least_noise_is_told_where_it_is_more_than_nothing():
    y = np.arange(9.0)
    assert "0.048" in noise_notes("heteroscedastic", 0.048, y)[0]
    assert noise_notes("heteroscedastic", 1e-3, y) == noise_notes("gaussian", 0.048, y) == []


@pytest.mark.parametrize("commonest", [[0.0, 100.0], [0.0, 50.0, 100.0], np.arange(0, 101, 25.0)])
def test_values_between_the_commonest_are_no_grid_of_these(commonest, rng):
    """Of 200 rows 8 % lie between them, given to a hundredth."""
    between = np.round(rng.uniform(1, 99, 16), 2)
    y = np.concatenate([rng.choice(commonest, 184), between])
    gaps = np.diff(np.unique(y))
    assert rounding_noise(y) == pytest.approx(max(1e-3, gaps.min() / 12**0.5))
