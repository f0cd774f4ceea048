"""Tests of training and sampling an ensemble on several devices: the same numbers, the same law."""

import numpy as np
import pytest

from tests.kit.devices import found_on_devices


@pytest.mark.parametrize("size", ["short", pytest.param("long", marks=pytest.mark.long)])
def test_four_virtual_devices_agree_with_one(size):
    found = found_on_devices(4, "tests.ensembles.devices_program", size)
    # As many as divide the chains.
    assert found["devices_for"] == [1, 3, 4, 2]
    assert found["devices"] == 4
    # Of numbers of size 1, after a few hundred small steps.
    assert found["training"] < 1e-4
    assert found["resumed"] < 1e-4
    if size == "long":
        (alone, spread_alone), (spread, spread_of_chains) = found["alone"], found["spread"]
        # Mean log densities of four chains each: 1e-6 of a t law with six degrees of freedom.
        error = np.hypot(spread_alone, spread_of_chains) / 2
        assert abs(spread - alone) < 20.1 * error
