"""Tests of tabular.scales: what a target's values are taken for, and words that have an order."""

import numpy as np
import pytest

from jaxbnn.tabular.kinds import likelihood_of_numbers, notes_of_another
from jaxbnn.tabular.scales import known_scale
from jaxbnn.tabular.wording import as_option


@pytest.mark.parametrize("share", [0.3, 0.45, 0.483])
def test_two_centres_are_no_heavy_tails(share, rng):
    """What is far from the median is then the other centre."""
    y = np.where(rng.random(600) < share, 10.0, 0.0) + 0.1 * rng.normal(size=600)
    assert likelihood_of_numbers(y)[0] == "gaussian"


@pytest.mark.parametrize("degrees", [1.0, 1.5, 2.0])
def test_heavy_tails_are_told(degrees, rng):
    assert likelihood_of_numbers(rng.standard_t(degrees, 600))[0] == "student-t"


def test_a_likelihood_that_gives_way_is_named():
    (told,) = notes_of_another("negative-binomial", "gaussian", "dvi", as_option)
    assert "ask for negative-binomial, which dvi does not know; --sampler nuts does" in told
    assert notes_of_another("gaussian", "gaussian", "gibbs") == []


def test_words_of_a_scale_have_its_order_however_they_are_written():
    assert known_scale(["HIGH", "Low", "very-low"]) == ["very-low", "Low", "HIGH"]
    assert known_scale(["low", "high"]) is None  # of two nothing is told
    assert known_scale(["Low", "low", "high"]) is None


@pytest.mark.parametrize("sigma", [1.5, 2.5, 3.0])
def test_a_law_of_one_centre_and_a_heavy_tail_is_told(sigma, rng):
    assert likelihood_of_numbers(rng.lognormal(0, sigma, 2000))[0] == "student-t"
