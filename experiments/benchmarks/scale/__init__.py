"""What more devices and more chains cost: a Gibbs run of many rows, and steps a second.

Each measurement is a process of its own, with as many virtual devices as it is about (on a
machine with accelerators their own number is taken): the number is fixed when JAX starts.
"""

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import matplotlib.pyplot as plt
from matplotlib.ticker import ScalarFormatter

from experiments.errors import InputError
from experiments.results import Row

MIB = 2**20


def run(
    out_dir: Path,
    *,
    rows: int = 1_000_000,
    rows_devices: int = 8,
    rows_steps: int = 5,
    devices: Sequence[int] = (1, 2, 4, 8),
    chains: Sequence[int] = (1, 8, 64, 512, 4096),
    steps: int = 200,
    platform: str = "cpu",
) -> list[Row]:
    """Measure, draw `throughput.png`, and return the rows.

    Parameters
    ----------
    out_dir
        Where the command writes the table.
    rows, rows_devices, rows_steps
        Data, devices and sweeps of the Gibbs run whose data axis is spread; no rows: no such run.
    devices
        Numbers of virtual devices for throughput, none for no throughput; numbers of chains that
        they do not divide are left out.
    chains
        Numbers of chains for throughput.
    steps
        Steps a chain for throughput.
    platform
        JAX's name of it: "cpu" or "cuda".
    """
    table = []
    if rows:
        table += _gibbs(_child(platform, rows_devices, "gibbs", rows, rows_steps), rows)
    curves = {}
    for count in devices:
        sizes = [number for number in chains if number % count == 0]
        rates = _child(platform, count, "throughput", steps, *sizes)["chain_steps_a_second"]
        curves[count] = (sizes, rates)
        print(f"{count} devices: " + ", ".join(f"{rate:.3g}" for rate in rates), flush=True)
        table += [
            Row("chain_steps_per_second", f"{platform}, {count} devices, {number} chains", rate)
            for number, rate in zip(sizes, rates, strict=True)
        ]
    if curves:
        _draw(curves, out_dir / "throughput.png")
    return table


def _gibbs(found: dict, rows: int) -> list[Row]:
    setting = f"{rows} rows over {found['devices']} devices"
    print(
        f"{setting}: {found['seconds_a_sweep']:.3g} s a sweep; a device holds "
        f"{found['held_bytes'] / MIB:.0f} MiB of state and data (model: "
        f"{found['model_bytes'] / MIB:.0f}), and in a sweep at most "
        f"{found['peak_bytes'] / MIB:.0f}",
        flush=True,
    )
    return [
        Row("seconds_per_sweep", setting, found["seconds_a_sweep"]),
        Row("model_mebibytes_per_device", setting, found["model_bytes"] / MIB),
        Row("held_mebibytes_per_device", setting, found["held_bytes"] / MIB),
        Row("peak_mebibytes_per_device", setting, found["peak_bytes"] / MIB),
        Row("resident_mebibytes_of_all", setting, found["resident_bytes"] / MIB),
    ]


def _child(platform: str, devices: int, *arguments: object) -> dict:
    flags = os.environ.get("XLA_FLAGS", "")
    if platform == "cpu":
        flags += f" --xla_force_host_platform_device_count={devices}"
    environment = {**os.environ, "XLA_FLAGS": flags.strip(), "JAX_PLATFORMS": platform}
    command = [sys.executable, "-m", "experiments.benchmarks.scale.program", str(devices)]
    result = subprocess.run(
        [*command, *map(str, arguments)], env=environment, stdout=subprocess.PIPE, text=True
    )
    if result.returncode:
        raise InputError(f"The measurement on {devices} devices ended with {result.returncode}.")
    return json.loads(result.stdout.splitlines()[-1])


def _draw(curves: dict[int, tuple[list[int], list[float]]], path: Path) -> None:
    figure, axes = plt.subplots(figsize=(5, 3.5), layout="constrained")
    for count, (sizes, rates) in curves.items():
        seconds = [1e6 * size / rate for size, rate in zip(sizes, rates, strict=True)]
        axes.plot(sizes, seconds, "o-", label=f"{count} device{'s' if count > 1 else ''}")
    axes.set(xscale="log", yscale="log", xlabel="chains", ylabel="µs a step of all chains")
    axes.xaxis.set_major_formatter(ScalarFormatter())
    axes.set_title("What a step of all chains costs")
    axes.legend()
    figure.savefig(path, dpi=150)
    plt.close(figure)
