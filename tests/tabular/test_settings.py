"""Tests of tabular.wording: what a fit is asked for, and what does not go together, in the words of
the command and of Python.
"""

import numpy as np
import pytest

from jaxbnn.tabular.kinds import likelihood_of_numbers
from jaxbnn.tabular.settings import (
    NOISE,
    Settings,
    asked_noise,
    check_sampler,
    check_settings,
    describe,
    prior_note,
)
from jaxbnn.tabular.wording import as_argument, as_option

SETTINGS = Settings("auto", (50,), 4, 400, 400, 0.3, 0)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"chains": 0}, "chains must be at least 1, but is 0"),
        ({"samples": 3}, "samples must be at least 4, but is 3"),
        ({"hidden": (5, 0)}, "hidden must be numbers of units, but holds 0"),
        ({"noise": -1.0}, "noise must be positive and finite, but is -1.0"),
        ({"noise": np.inf}, "noise must be positive and finite, but is inf"),
        ({"prior_scale": np.inf}, "prior_scale must be positive and finite"),
        ({"prior_scale": 2.0, "relevance": True}, "relevance learns what prior_scale fixes"),
    ],
)
def test_numbers_out_of_range(wrong, said):
    check_settings(SETTINGS)
    with pytest.raises(ValueError, match=said):
        check_settings(SETTINGS._replace(**wrong))


def test_settings_are_named_as_they_are_given():
    wrong = SETTINGS._replace(prior_scale=-1.0)
    with pytest.raises(ValueError, match=r"^--prior-scale must"):
        check_settings(wrong, as_option)
    with pytest.raises(ValueError, match=r"^prior_scale must"):
        check_settings(wrong, as_argument)
    with pytest.raises(ValueError, match=r"take --sampler nuts, or --likelihood gaussian\."):
        check_sampler("dvi", "student-t", spelled=as_option)
    with pytest.raises(ValueError, match=r"take sampler='nuts', or likelihood='gaussian'\."):
        check_sampler("dvi", "student-t")
    with pytest.raises(ValueError, match=r"take sampler='nuts'\.$"):  # nor does dvi know it
        check_sampler("gibbs", "laplace")
    with pytest.raises(ValueError, match=r"take sampler='nuts' or dvi\.$"):
        check_sampler("gibbs", "categorical")
    with pytest.raises(ValueError, match="leave --relevance out"):
        check_sampler("pcn", "gaussian", relevance=True, spelled=as_option)
    assert "(--prior-scale fixes them)" in prior_note(SETTINGS, "nuts", as_option)
    assert "(prior_scale fixes them)" in prior_note(SETTINGS, "nuts")


def test_the_noise_is_of_gibbs_alone():
    assert asked_noise("gibbs", 0.7) == 0.7
    assert asked_noise("gibbs", None) == asked_noise("auto", None) == NOISE
    for sampler in ("auto", "nuts", "dvi"):
        with pytest.raises(ValueError, match=f"noise is of gibbs alone, .* is {sampler}; take "):
            asked_noise(sampler, NOISE)
    with pytest.raises(ValueError, match="take --sampler gibbs, or leave --noise out"):
        asked_noise("pcn", 0.1, as_option)


def test_ensembles_have_more_chains():
    free = SETTINGS._replace(chains=None)
    check_settings(free)
    assert [free.chains_of(sampler) for sampler in ("nuts", "dvi", "ensemble")] == [4, 4, 10]
    assert SETTINGS._replace(chains=3).chains_of("ensemble") == 3
    assert "10 networks are trained" in describe("ensemble", free, 500)


def test_the_size_is_the_number_of_weights_and_biases():
    assert SETTINGS.size(3) == 3 * 50 + 50 + 50 + 1


def test_numbers_ask_for_their_likelihood(rng):
    assert likelihood_of_numbers(rng.normal(size=100)) == (
        "gaussian",
        "gaussian, for it holds numbers",
    )
    name, why = likelihood_of_numbers(rng.negative_binomial(2, 0.3, 200).astype(float), as_option)
    assert name == "negative-binomial"
    assert "(--likelihood gaussian takes them for measurements)" in why
    assert likelihood_of_numbers(rng.standard_t(1.5, 200))[0] == "student-t"
    assert likelihood_of_numbers(np.full(20, 3.5))[0] == "gaussian"
