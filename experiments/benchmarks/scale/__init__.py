"""What more devices and more chains cost: a Gibbs run of many rows, and steps a second.

Steps are those of cheap chains, by their number, and of ten microcanonical chains on airfoil. Each
measurement is a process of its own, since the number of devices is fixed when JAX starts: with as
many virtual devices as it is about on processors, of accelerators with the first ones there are.
"""

import json
import math
import os
import statistics
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import matplotlib.pyplot as plt
from matplotlib.ticker import NullFormatter, ScalarFormatter

from experiments.errors import InputError
from experiments.results import Row, markdown_table
from jaxbnn.plots import COLORS

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
    ensemble_devices: Sequence[int] = (1, 2),
    ensemble_chains: int = 10,
    ensemble_steps: int = 500,
    ensemble_rounds: int = 3,
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
    ensemble_devices, ensemble_chains, ensemble_steps, ensemble_rounds
        Numbers of devices, of a core each, over which microcanonical chains on airfoil are spread;
        the chains; steps a chain; and how often all numbers of devices are measured in turn,
        each beside as many processes that share nothing (on processors).
    platform
        JAX's name of it: "cpu" or "cuda".
    """
    table = []
    _check_machine(platform, [rows_devices] * bool(rows) + [*devices], ensemble_devices)
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
        if (knee := _flat_until(sizes, rates)) is not None:
            where = f"{platform}, {count} devices"
            table.append(Row("chains_until_a_step_costs_twice", where, knee))
    table += _ensembles(
        platform, ensemble_devices, ensemble_chains, ensemble_steps, ensemble_rounds
    )
    if curves:
        print("\n" + _ratios(curves), flush=True)
        _draw(curves, out_dir / "throughput.png")
    return table


def _ensembles(
    platform: str, devices: Sequence[int], chains: int, steps: int, rounds: int
) -> list[Row]:
    """Return steps a second over devices, and over processes that share nothing but the machine.

    The processes have a core and an equal part of the chains each, and say what the cores give at
    most: cores of a machine may share their units. They are for processors alone.
    """
    arms = [(count, "devices") for count in devices]
    if platform == "cpu":
        arms += [(n, "processes side by side") for n in devices if n > 1 and chains % n == 0]
    rates_of: dict[tuple[int, str], list[float]] = {arm: [] for arm in arms}
    for _ in range(rounds):
        for (count, kind), rates in rates_of.items():
            if kind == "devices":
                found = [_child(platform, count, "ensemble", steps, chains)]
            else:
                found = _side_by_side(platform, count, steps, chains)
            rates.append(sum(one["chain_steps_a_second"] for one in found))
    table = []
    for (count, kind), rates in rates_of.items():
        setting = f"{platform}, {count} {kind}, {chains} microcanonical chains on airfoil"
        table.append(Row("chain_steps_per_second", setting, statistics.median(rates)))
        fewest = rates_of[min(devices), "devices"]
        ratio = statistics.median(a / b for a, b in zip(rates, fewest, strict=True))
        table.append(Row("times_the_fewest_devices", setting, ratio))
        print(f"{setting}: {statistics.median(rates):,.0f} steps a second, {ratio:.2f} times")
    return table


def _side_by_side(platform: str, count: int, steps: int, chains: int) -> list[dict]:
    with ThreadPoolExecutor(count) as pool:
        return list(
            pool.map(
                lambda core: _child(platform, 1, "ensemble", steps, chains // count, core),
                range(count),
            )
        )


def _costs(sizes: Sequence[int], rates: Sequence[float]) -> list[float]:
    """Microseconds a step of all chains."""
    return [1e6 * size / rate for size, rate in zip(sizes, rates, strict=True)]


def _check_machine(platform: str, devices: Sequence[int], with_a_core: Sequence[int]) -> None:
    """Raise, before anything is measured, where the machine lacks devices or cores for them."""
    if not (devices or with_a_core):
        return
    most = max([*devices, *with_a_core])
    found = _child(platform, most, "devices")
    if found["devices"] < most:
        raise InputError(
            f"{most} devices are asked for, but {platform} has {found['devices']} here; give "
            "smaller rows_devices, devices and ensemble_devices."
        )
    cores = max(with_a_core, default=0)
    if platform == "cpu" and found["cores"] < cores:
        raise InputError(
            f"ensemble_devices asks for {cores} devices of a core each, but {found['cores']} may "
            "be used; give smaller numbers, or none."
        )


def _flat_until(sizes: Sequence[int], rates: Sequence[float]) -> float | None:
    """Return the most chains whose step costs less than twice that of the fewest; None: not seen.

    Between two sizes the cost is taken as a power of the number of chains.

    Examples
    --------
    >>> _flat_until([1, 16, 256], [1.0, 16.0, 64.0]), _flat_until([1, 8], [1.0, 8.0])
    (64.0, None)
    """
    costs = _costs(sizes, rates)
    limit = 2 * costs[0]
    for i in range(1, len(costs)):
        if costs[i] >= limit:
            share = math.log(limit / costs[i - 1]) / math.log(costs[i] / costs[i - 1])
            return sizes[i - 1] * (sizes[i] / sizes[i - 1]) ** share
    return None


def _ratios(curves: dict[int, tuple[list[int], list[float]]]) -> str:
    """Return the costs as a table, each with its ratio to that of the fewest chains."""
    lines: dict[int, dict[int, str]] = {}
    for count, (sizes, rates) in curves.items():
        costs = _costs(sizes, rates)
        for size, cost in zip(sizes, costs, strict=True):
            lines.setdefault(size, {})[count] = f"{cost:.3g} ({cost / costs[0]:.2f})"
    header = ["chains", *(f"{count} device{'s' if count > 1 else ''}" for count in curves)]
    rows = [[str(n), *(cells.get(c, "") for c in curves)] for n, cells in sorted(lines.items())]
    flat = [
        f"more than {sizes[-1]}" if knee is None else f"{knee:.0f}"
        for sizes, rates in curves.values()
        for knee in [_flat_until(sizes, rates)]
    ]
    table = markdown_table(header, [*rows, ["less than twice until", *flat]])
    return f"µs a step of all chains (ratio to the fewest chains):\n{table}"


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
        flags += " --xla_cpu_multi_thread_eigen=false" if "ensemble" in arguments else ""
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
    axes.set_prop_cycle(color=COLORS)
    for count, (sizes, rates) in curves.items():
        costs, knee = _costs(sizes, rates), _flat_until(sizes, rates)
        (line,) = axes.plot(
            sizes, costs, "o-", markersize=4, label=f"{count} device{'s' if count > 1 else ''}"
        )
        if knee is not None:
            axes.plot(knee, 2 * costs[0], "s", markerfacecolor="none", color=line.get_color())
    axes.set(xscale="log", yscale="log", xlabel="chains", ylabel="µs a step of all chains")
    axes.set_xticks(sorted({size for sizes, _ in curves.values() for size in sizes}))
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter(ScalarFormatter())
        axis.set_minor_formatter(NullFormatter())
    axes.set_title("What a step of all chains costs\n(square: twice the fewest chains' cost)")
    axes.legend()
    figure.savefig(path, dpi=150)
    plt.close(figure)
