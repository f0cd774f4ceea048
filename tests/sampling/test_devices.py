"""Tests of sampling.devices.placement: the same run on any mesh: keys, draws and steps,
and what a mesh cannot do.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType, Mesh

import jaxbnn
from jaxbnn.sampling.devices.placement import check_mesh
from tests.kit.devices import found_on_devices
from tests.sampling.rounding_limits import limit_of
from tests.sampling.tiny import ar

NUM_CASES = {"short": 2, "long": 31}
# Rows of a latent (chain, K, n) that one of the eight devices holds.
SHARDS = {"chain": [1, 4, 64], "data": [8, 4, 8], "both": [2, 4, 32]}


@pytest.mark.parametrize("size", ["short", pytest.param("long", marks=pytest.mark.long)])
def test_eight_virtual_devices_agree_with_one(size):
    """One step to rounding, chains and data spread; whole runs of elementwise targets exactly."""
    found = found_on_devices(8, "tests.sampling.devices_program", size)
    assert len(found) == NUM_CASES[size]
    for case, value in found.items():
        name, *words = case.split()
        if name in ("elementwise", "resumed"):
            assert value == 0, case
        elif words[-1] == "shard":
            assert value == SHARDS[words[1]], case
        else:
            assert value < limit_of(name, words[0]), case


def mesh_of(names, axis_types=None):
    devices = np.asarray(jax.devices()[:1]).reshape((1,) * len(names))
    return Mesh(devices, names, axis_types=axis_types)


def test_a_mesh_of_one_device_changes_nothing():
    starts = np.random.default_rng(1).normal(size=(3, 5)).astype(np.float32)
    kernel = ar()
    arguments = (jax.random.key(0), kernel, starts, 4)
    plain = jaxbnn.sample(*arguments, progress=False)
    mesh = mesh_of(("chain",), (AxisType.Explicit,))
    spread = jaxbnn.sample(*arguments, mesh=mesh, progress=False)
    np.testing.assert_array_equal(plain.positions, spread.positions)


class FakeMesh:
    """As much of a mesh as is looked at before it is refused."""

    def __init__(self, **sizes):
        self.shape, self.axis_names = sizes, tuple(sizes)


@pytest.mark.parametrize(
    ("sizes", "data", "message"),
    [
        ({"chain": 4}, None, "6 chains cannot be spread evenly over 4 devices"),
        ({"data": 4}, jnp.ones((10, 2)), "the data have 10 rows, which cannot be spread evenly"),
        ({"chain": 2, "data": 2}, None, "the data have 0 rows"),
        ({"batch": 2}, None, r"mesh must have the axes 'chain' and 'data' .* has \['batch'\]"),
        ({}, None, "mesh must have the axes"),
    ],
)
def test_a_mesh_that_does_not_fit_is_one_sentence(monkeypatch, sizes, data, message):
    check = getattr(check_mesh, "__wrapped__", check_mesh)
    with pytest.raises(ValueError, match=message):
        check(FakeMesh(**sizes), 6, data)
