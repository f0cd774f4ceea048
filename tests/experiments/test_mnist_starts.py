"""When chains from several starts agree; the study itself runs in test_studies.py."""

import numpy as np
import pytest
from pydantic import ValidationError

from experiments.studies.thermalization.mnist_starts import StartsSettings, agreement

STEPS = np.arange(1, 1001)
SETTINGS = {
    "architecture": "MLP",
    "delta": 2.0,
    "num_steps": 1000,
    "num_warmup": 100,
    "num_records": 100,
    "record_every": 10,
    "num_updates": 5,
    "arms": ({"name": "plain"},),
}


def found(**drifts):
    """One series a start: noise around 1, and a drift that is gone after some 100 steps."""
    rng = np.random.default_rng(0)
    return {
        start: {
            "steps": STEPS,
            "num_warmup": np.asarray(0),
            "norm": 1 + 0.01 * rng.normal(size=1000) + drift * np.exp(-STEPS / 30),
        }
        for start, drift in drifts.items()
    }


@pytest.mark.long
def test_the_last_to_arrive_decides():
    agrees, bound, rhat = agreement(found(zero=-1.0, prior=0.0, optimised=0.0), "norm")
    assert agrees
    assert 60 < bound < 300
    assert rhat < 1.02


@pytest.mark.long
def test_one_that_stays_elsewhere_is_told_apart():
    chains = found(zero=0.0, prior=0.0)
    chains["prior"]["norm"] += 0.01
    agrees, bound, rhat = agreement(chains, "norm")
    assert not agrees
    assert np.isnan(bound)
    assert rhat > 1.1


def test_chains_that_drift_alike_do_not_agree():
    """Far from where they began, they are as far from where they will be."""
    chains = found(zero=0.0, prior=0.0, optimised=0.0)
    for one in chains.values():
        one["norm"] = one["norm"] + 3e-4 * STEPS
    assert not agreement(chains, "norm")[0]


def test_no_agreement_is_earlier_than_the_warm_up():
    chains = found(zero=0.0, prior=0.0)
    chains["prior"]["num_warmup"] = np.asarray(100)
    agrees, bound, _ = agreement(chains, "norm")
    assert agrees
    assert bound == 100


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"num_warmup": 600}, "at most half"),
        ({"arms": ({"name": "plain", "starts": ("zero",)},)}, "two starts"),
        ({"arms": ({"name": "short", "is_collapsed": True},)}, "only the CNN"),
    ],
)
def test_settings_that_cannot_be_judged_are_refused(changes, words):
    with pytest.raises(ValidationError, match=words):
        StartsSettings(**(SETTINGS | changes))
