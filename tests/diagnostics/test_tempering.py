"""Tests of diagnostics.tempering: swap acceptance from what rungs drew, and ladders whose
neighbours reject equally often.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxbnn.diagnostics import by_replica, equalise_rejections, swap_acceptance


def test_swap_acceptance_by_hand(rng):
    ladder = np.array([0.0, 0.3, 0.3, 1.0])
    draws = rng.normal(scale=3.0, size=(2, 50, 4))
    draws[0, 0, 0] = -np.inf
    expected = [
        np.mean(
            np.exp(np.minimum(0, (ladder[i] - ladder[i + 1]) * (draws[..., i + 1] - draws[..., i])))
        )
        for i in range(3)
    ]
    expected[1] = 1.0
    np.testing.assert_allclose(swap_acceptance(draws, ladder), expected, rtol=1e-5)


def gaussian_rates(ladder, dimension=8):
    """Return the swap acceptance of x ~ N(0, 1/(0.01 + t)), dimension times, by simulation."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(1, 4000, len(ladder), dimension)) / np.sqrt(0.01 + ladder)[:, None]
    return swap_acceptance(-0.5 * np.sum(x**2, axis=-1), ladder)


def test_a_few_rounds_equalise_the_rejections():
    ladder = np.linspace(0, 1, 8)
    before = np.ptp(gaussian_rates(ladder))
    for _ in range(6):
        ladder = np.asarray(equalise_rejections(ladder, gaussian_rates(ladder)))
        assert ladder[0] == 0
        assert ladder[-1] == 1
        assert (np.diff(ladder) > 0).all()
    assert np.ptp(gaussian_rates(ladder)) < 0.1 < 0.5 < before


def test_a_ladder_without_rejections_stays_a_ladder():
    ladder = np.array([0.0, 0.2, 0.6, 1.0])
    np.testing.assert_allclose(equalise_rejections(ladder, np.ones(3)), ladder, atol=1e-6)


@pytest.mark.parametrize(
    ("temperatures", "rates", "sentence"),
    [
        ([0.0, 1.0], [0.5, 0.5], "one rate for each pair"),
        ([0.0, 0.5, 1.0], [0.5, 1.2], "between 0 and 1"),
        ([0.0, 0.5, 1.0], [0.5, np.nan], "between 0 and 1"),
        ([1.0, 0.5, 0.0], [0.5, 0.5], "temperatures that never fall"),
    ],
)
def test_bad_rates_are_met_at_the_door(temperatures, rates, sentence):
    with pytest.raises(ValueError, match=sentence):
        equalise_rejections(temperatures, rates)


def test_swap_acceptance_needs_a_temperature_a_rung():
    with pytest.raises(ValueError, match="one temperature a rung"):
        swap_acceptance(np.zeros((1, 5, 3)), [0.0, 1.0])


def test_a_swap_of_what_is_no_number_is_rejected():
    assert swap_acceptance(np.full((1, 4, 3), -np.inf), [0.0, 0.5, 1.0]).tolist() == [0, 0]


def test_replicas_that_are_no_permutation_are_refused():
    with pytest.raises(ValueError, match="replica must hold each number from 0 to 2 once"):
        by_replica(np.array([0.5, 0.0, 0.7]), np.array([2, 2, 1]))
    with pytest.raises(ValueError, match="order must hold each number from 0 to 1 once"):
        by_replica(np.zeros((2, 2)), np.array([[0, 1], [1, 0]]), np.array([[0, 1], [1, 2]]))


def test_traced_temperatures():
    draws, ladder = jnp.zeros((1, 2, 3)), jnp.array([0.0, 0.5, 1.0])
    assert jax.jit(swap_acceptance)(draws, ladder).tolist() == [1, 1]
    with pytest.raises(ValueError, match="equalise_rejections looks at numbers that"):
        jax.jit(equalise_rejections)(ladder, jnp.ones(2))
