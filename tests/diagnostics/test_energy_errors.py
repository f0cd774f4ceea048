"""What energy errors imply is said in words: the measured bias between its points, and blow-ups."""

import re

import numpy as np
import pytest

from jaxbnn.diagnostics import summary
from jaxbnn.diagnostics.energy_errors import energy_error_in_words, measured_bias

ERRORS, SHARES = measured_bias()


def changes(energy_error, size=40):
    """Energy changes of exactly this energy error."""
    signs = np.where(np.arange(600).reshape(3, 200) % 2, 1.0, -1.0)
    return signs * np.sqrt(energy_error * size)


@pytest.mark.parametrize(
    ("energy_error", "words"),
    [
        (ERRORS[0] / 60, "less than .*, if at all"),
        (ERRORS[3], f"{ERRORS[3]:.2g} a dimension: .* too small by about {SHARES[3]:.0%}"),
        (np.sqrt(ERRORS[3] * ERRORS[4]), f"about {(SHARES[3] + SHARES[4]) / 2:.0%}"),
        (3.0, f"3 a dimension: .* by {SHARES[-1]:.0%} or more"),
    ],
)
def test_the_bias_is_that_measured_and_between_the_points_of_it(energy_error, words):
    (sentence,) = energy_error_in_words(changes(energy_error), 40)
    assert re.search(words, sentence), sentence


def test_below_all_that_was_measured_the_least_share_is_told_to_a_tenth_of_a_percent():
    (sentence,) = energy_error_in_words(changes(ERRORS[0] / 60), 40)
    told = float(re.search(r"by less than ([\d.]+)%", sentence)[1]) / 100
    assert told == pytest.approx(SHARES[0], abs=0.0005)


def test_the_larger_the_error_the_larger_the_bias():
    assert (np.diff(ERRORS) > 0).all()
    assert (np.diff(SHARES) > 0).all()


def test_steps_that_blew_up_are_counted_and_left_out():
    change, is_whole = changes(ERRORS[3]), np.ones((3, 200), bool)
    change[1, :5], is_whole[1, :5] = 0.0, False
    change[2, 7] = np.nan
    bias, blown = energy_error_in_words(change, 40, is_whole=is_whole)
    assert f"about {SHARES[3]:.0%}" in bias
    assert blown.startswith("The energy of chains 1, 2 blew up in 5, 1 of 200 kept steps")
    (only,) = energy_error_in_words(change, 40, is_whole=np.zeros((3, 200), bool))
    assert "chains 0, 1, 2 blew up in 200, 200, 200" in only


def test_a_summary_of_unadjusted_draws_says_so_and_counts_a_blow_up_once(rng):
    draws = {"w": rng.normal(size=(3, 200, 5, 8)).astype(np.float32)}
    change, is_divergent = changes(ERRORS[3]), np.zeros((3, 200), bool)
    is_divergent[1, :5] = True
    table = summary(draws, energy_change=change, is_divergent=is_divergent)
    assert table.divergences.tolist() == [0, 5, 0]
    bias, blown = table.warnings
    assert f"variances of predictions are too small by about {SHARES[3]:.0%}" in bias
    assert blown.startswith("The energy of chain 1 blew up in 5 of 200 kept steps")
    with pytest.raises(ValueError, match="energy_change needs the shape"):
        summary(draws, energy_change=change[:, :100])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((np.zeros(5), 3), r"needs the shape \(chain, draw\)"),
        ((np.zeros((2, 0)), 3), r"needs the shape \(chain, draw\)"),
        ((np.zeros((2, 5)), 0), "num_dimensions must be"),
    ],
)
def test_bad_input_gets_one_sentence(arguments, message):
    with pytest.raises(ValueError, match=message):
        energy_error_in_words(*arguments)
    with pytest.raises(ValueError, match="is_whole needs the shape"):
        energy_error_in_words(np.zeros((2, 5)), 3, is_whole=np.ones(5))
