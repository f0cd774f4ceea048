"""Tests of cli.cores: as many devices as cores that the process may use, unless told otherwise."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from jaxbnn.cli.cores import use_cores

ROOT = Path(__file__).parents[2]
PROGRAM = """
import os
from jaxbnn.cli.cores import use_cores
os.sched_getaffinity = lambda process: set(range({cores}))
use_cores({most})
import jax
print(jax.device_count())
"""


@pytest.mark.parametrize(
    ("cores", "most", "flags", "expected"),
    [(3, 10, "", 3), (8, 4, "", 4), (3, 10, "--xla_force_host_platform_device_count=2", 2)],
)
def test_devices_are_cores_but_no_more_than_chains(cores, most, flags, expected):
    environment = {**os.environ, "JAX_PLATFORMS": "cpu", "XLA_FLAGS": flags}
    command = [sys.executable, "-c", PROGRAM.format(cores=cores, most=most)]
    result = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    assert int(result.stdout) == expected


def test_a_process_that_has_computed_already_keeps_its_devices():
    import jax

    before = jax.device_count()
    use_cores(before + 1)
    assert jax.device_count() == before
