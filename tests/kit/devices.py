"""A test program on several virtual devices, in a process of its own."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]


def found_on_devices(number: int, program: str, size: str) -> Any:
    """Run the module `program` on so many devices; return what its last line says, as JSON."""
    flags = f"--xla_force_host_platform_device_count={number} --xla_backend_optimization_level=0"
    environment = {**os.environ, "JAX_PLATFORMS": "cpu", "XLA_FLAGS": flags}
    command = [sys.executable, "-m", program, size]
    result = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout.splitlines()[-1])
