"""Function-space samplers on one core: a step's time against its floor and the published form.

    python -m experiments benchmark function_space

One hidden layer, 10 outputs, float32. The floor of a step is its own matrix products,
factorisation and normals, timed alone in the same run; the published form has all inputs and
matrices as wide as the network. Measured in processes of their own, on one core.
"""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from experiments.benchmarks.function_space.picture import draw_costs
from experiments.results import Row

SAMPLERS = ("pCN", "pCNL", "LMC")
WIDTHS, NUM_DATA, NUM_INPUTS = (512, 2048), 256, 3072
WIDEST = 4192
# The picture's axes; the other two sizes stay where the picture's title says.
PICTURE_WIDTH = 1024
ALONG = {
    "width": (128, 256, 512, 1024, 2048, 4192),
    "n": (64, 128, 256, 512),
    "d_in": (64, 256, 784, 3072, 12288),
}


def run(
    out_dir: Path,
    *,
    widths: tuple[int, ...] | list[int] = WIDTHS,
    num_rounds: int = 7,
    with_published: bool = True,
    with_picture: bool = True,
    memory_steps: int = 20,
) -> list[Row]:
    """Measure; one row a number: milliseconds a step, its ratios, and megabytes.

    Parameters
    ----------
    out_dir
        Where the command writes the table, and `cost.png`.
    widths
        Of the table.
    num_rounds
        Turns that the compared programs take.
    with_published
        Whether the published form is timed (it takes most of the time).
    with_picture
        Whether cost is measured against width, number of data and number of inputs.
    memory_steps
        Steps of the run at the largest width, with the study's projections, whose memory is
        measured; 0 for none.
    """
    rows: list[Row] = []
    sizes = [{"width": width, "n": NUM_DATA, "d_in": NUM_INPUTS} for width in widths]
    options = {"samplers": SAMPLERS, "with_published": with_published, "num_rounds": num_rounds}
    for line in _measure("steps", sizes=sizes, **options):
        rows += _rows(line)
    if memory_steps:
        for sampler in SAMPLERS:
            found = _measure("memory", width=WIDEST, sampler=sampler, num_steps=memory_steps)
            setting = f"{sampler}, width {WIDEST}, with 100 projections, {memory_steps} steps"
            rows.append(Row("resident_megabytes", setting, found["megabytes"]))
    if with_picture:
        curves = {}
        base = {"width": PICTURE_WIDTH, "n": NUM_DATA, "d_in": NUM_INPUTS}
        for axis, values in ALONG.items():
            sizes = [base | {axis: value} for value in values]
            options = {"samplers": SAMPLERS[:2], "with_published": False, "num_rounds": 3}
            curves[axis] = _measure("steps", sizes=sizes, **options)
        print(draw_costs(curves, base, out_dir / "cost.png"))
    return rows


def _rows(line: dict[str, Any]) -> list[Row]:
    setting = f"{line['sampler']}, width {line['size']['width']}, n = {line['size']['n']}"
    quantities = {
        "milliseconds_a_step": "step",
        "milliseconds_of_the_floor": "floor",
        "ratio_to_floor": "to_floor",
        "ratio_to_floor_min": "to_floor_min",
        "ratio_to_floor_max": "to_floor_max",
        "milliseconds_of_the_published_form": "published",
        "published_over_ours": "speed_up",
    }
    return [Row(name, setting, line[key]) for name, key in quantities.items() if key in line]


def _measure(what: str, **options: Any) -> Any:
    """Run `measure` in a process with one thread, and return what it prints."""
    environment = os.environ | {
        "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false",
        "OMP_NUM_THREADS": "1",
        "JAX_PLATFORMS": "cpu",
    }
    module = "experiments.benchmarks.function_space.measure"
    command = [sys.executable, "-m", module, what, json.dumps(options)]
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])
