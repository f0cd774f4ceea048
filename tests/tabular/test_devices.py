"""Tests of tabular.devices: as many devices as take equally many chains each. Meshes of several
are tested in tests/ensembles/devices_program.py.
"""

import jax
import pytest

from jaxbnn.tabular.devices import devices_for, mesh_for


@pytest.mark.parametrize(
    ("devices", "chains", "expected"), [(1, 10, 1), (2, 10, 2), (4, 10, 2), (3, 4, 2), (8, 5, 5)]
)
def test_devices_divide_the_chains(monkeypatch, devices, chains, expected):
    monkeypatch.setattr(jax, "local_device_count", lambda: devices)
    assert devices_for(chains) == expected


def test_a_single_device_needs_no_mesh(monkeypatch):
    monkeypatch.setattr(jax, "local_device_count", lambda: 1)
    assert mesh_for(10) is None
