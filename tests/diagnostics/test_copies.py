"""Draws that are copies of other draws are told, and discrete or rounded draws are not copies."""

import numpy as np
import pytest

from jaxbnn.diagnostics import summary
from jaxbnn.diagnostics.copies import Copy, copies
from jaxbnn.diagnostics.movement import movement
from tests.diagnostics.chains import autoregressive

CHAINS, LENGTH = 4, 600


def positions(rng, kind):
    """Metropolis-like chains of two coordinates: a third of the steps stand still."""
    draws = rng.normal(size=(CHAINS, LENGTH, 2)).astype(np.float32)
    at = np.maximum.accumulate(
        np.where(rng.random((CHAINS, LENGTH)) < 2 / 3, np.arange(LENGTH), 0), 1
    )
    draws = np.take_along_axis(draws, at[..., None], axis=1)
    half = LENGTH // 2
    if kind == "two chains equal":
        draws[2] = draws[0]
    elif kind == "all chains equal":
        draws[1:] = draws[:1]
    elif kind == "second halves repeat the first":
        draws[:, half:] = draws[:, :half]
    elif kind == "lagged":
        draws[1, 57:] = draws[3, :-57]
    elif kind == "signs flipped":
        draws[1] = -draws[0]
    elif kind == "coordinates exchanged":
        draws[3] = draws[0, :, ::-1]
    elif kind == "the same from some step on":
        draws[3, 400:] = draws[1, 400:]
    elif kind == "all equal, and each half":
        draws[:, half:] = draws[:, :half]
        draws[1:] = draws[:1]
    return draws


FOUND = {
    "two chains equal": [(2, 0)],
    "all chains equal": [(1, 0), (2, 0), (3, 0)],
    "second halves repeat the first": [(0, 0), (1, 1), (2, 2), (3, 3)],
    "lagged": [(3, 1)],
    "signs flipped": [(1, 0)],
    "coordinates exchanged": [(3, 0)],
    "the same from some step on": [(3, 1)],
    "all equal, and each half": [(0, 0), (1, 0), (2, 0), (3, 0)],
    "nothing": [],
}


@pytest.mark.parametrize("kind", FOUND)
def test_copies_are_found_and_told(kind, rng):
    draws = positions(rng, kind)
    found = copies(movement(draws, draws).contents)
    assert [(copy.chain, copy.of) for copy in found] == FOUND[kind]
    wrong = "effective sample sizes and errors are wrong"
    told = [warning for warning in summary(draws).warnings if wrong in warning]
    # One sentence of chains that hold another's draws, one of chains that repeat their own.
    assert len(told) == len({chain == of for chain, of in FOUND[kind]})


def test_the_share_that_is_copied(rng):
    draws = positions(rng, "the same from some step on")
    (copy,) = copies(movement(draws, draws).contents)
    assert abs(copy.share - 1 / 3) < 0.02
    assert copies(movement(draws[:, :410], draws[:, :410]).contents) == []  # ten draws of 410


def walks(rng, kind):
    """Return draws in which positions recur by chance."""
    shape = (CHAINS, 2000)
    steps = {
        "one bit": lambda: rng.integers(0, 2, shape),
        "rare bits": lambda: rng.random(shape) < 0.05,
        "small numbers": lambda: rng.poisson(2.0, shape),
        "slow whole numbers": lambda: np.round(3 * autoregressive(rng, 0.95, *shape)),
        "two decimals": lambda: np.round(autoregressive(rng, 0.99, *shape), 2),
        "floats of 16 bits": lambda: rng.normal(size=shape).astype(np.float16),
        "three states": lambda: np.cumsum(rng.integers(-1, 2, shape), axis=1) % 3,
    }
    return steps[kind]()


RECURRING = [
    "one bit",
    "rare bits",
    "small numbers",
    "slow whole numbers",
    "two decimals",
    "floats of 16 bits",
    "three states",
]


@pytest.mark.parametrize("kind", RECURRING)
def test_positions_that_recur_by_chance_are_no_copies(kind, rng):
    draws = walks(rng, kind)
    assert copies(movement(draws, draws).contents) == []
    # And a copy is found among them.
    again = np.concatenate([draws, draws[:1]])
    assert copies(movement(again, again).contents) == [Copy(CHAINS, 0, 1.0)]


def test_float64_and_nan(x64, rng):
    draws = rng.normal(size=(CHAINS, LENGTH, 2))
    draws[3] = -draws[1]
    draws[0, 50:] = np.nan
    draws[2, 50:] = np.nan
    assert copies(movement(draws, draws).contents) == [Copy(3, 1, 1.0)]


def test_a_frozen_chain_hides_no_coordinate_that_never_changed(rng):
    draws = rng.normal(size=(CHAINS, LENGTH, 3)).astype(np.float32)
    draws[..., 1] = np.arange(CHAINS)[:, None]
    draws[2] = draws[2, :1]
    warnings = summary(draws).warnings
    assert any(w.startswith("Chain 2 never moved") for w in warnings)
    assert any(w.startswith("x[1] never changed within a chain, but") for w in warnings)
    assert not any("never changed" in w for w in summary(draws[:, :, ::2]).warnings)


@pytest.mark.parametrize("value", [np.nan, -0.1, 1.5, np.inf])
def test_an_acceptance_that_is_no_rate_is_told(value, rng):
    draws = rng.normal(size=(CHAINS, LENGTH, 2)).astype(np.float32)
    rate = np.full((CHAINS, LENGTH), 0.5)
    rate[1, 7] = value
    told = summary(draws, acceptance_rate=rate).warnings
    assert any("acceptance rate of chain 1 is NaN or not between 0 and 1" in w for w in told)
