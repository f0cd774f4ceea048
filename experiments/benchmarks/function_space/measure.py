"""What is measured, in a process of its own: the time of steps, or the largest memory of a run.

Times are CPU seconds of one core, so that other work on the machine counts little; programs that
are compared take turns, and ratios are medians over the turns.
"""

import json
import os
import resource
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

SECONDS = 0.15  # of one measurement, about


def main(arguments: list[str]) -> None:
    """Measure what the first argument names with the options of the second, in JSON; print JSON."""
    # One core, and before JAX makes its threads.
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    what, options = arguments
    measure: Callable[..., Any] = steps if what == "steps" else memory
    print(json.dumps(measure(**json.loads(options))))


def steps(
    sizes: list[dict], samplers: list[str], with_published: bool, num_rounds: int
) -> list[dict[str, Any]]:
    """Return milliseconds a step of each sampler at each size, of its floor, and of the published.

    Ratios to the floor and of the published form to ours are medians over rounds.
    """
    from experiments.benchmarks.function_space import programs

    found = []
    for options in sizes:
        size = programs.Size(**options)
        for sampler in samplers:
            timed = {
                "step": programs.steps(sampler, size),
                "floor": programs.floor(sampler, size),
            }
            if with_published:
                timed["published"] = programs.published_steps(sampler, size)
            times = _alternate(timed, num_rounds)
            line: dict[str, Any] = {"sampler": sampler, "size": options}
            line |= {name: statistics.median(values) for name, values in times.items()}
            line |= _ratio("to_floor", times["step"], times["floor"])
            if with_published:
                line |= _ratio("speed_up", times["published"], times["step"])
            found.append(line)
            print(f"{line}", file=sys.stderr, flush=True)
    return found


def memory(width: int, sampler: Any, num_steps: int) -> dict[str, float]:
    """Return megabytes of resident memory at most, JAX's own included, of a cell of the study."""
    from experiments.benchmarks.function_space import programs

    programs.watched_steps(sampler, programs.Size(width), num_steps)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return {"megabytes": peak / (2**20 if sys.platform == "darwin" else 2**10)}


def _ratio(name: str, above: list[float], below: list[float]) -> dict[str, float]:
    ratios = sorted(a / b for a, b in zip(above, below, strict=True))
    return {name: statistics.median(ratios), f"{name}_min": ratios[0], f"{name}_max": ratios[-1]}


def _alternate(timed: dict[str, Callable[[int], None]], num_rounds: int) -> dict[str, list[float]]:
    counts = {}
    for name, program in timed.items():
        program(1)
        counts[name] = max(1, round(SECONDS / _seconds(program, 2)))
    times: dict[str, list[float]] = {name: [] for name in timed}
    for turn in range(num_rounds):
        for name in timed if turn % 2 else reversed(timed):
            times[name].append(1000 * _seconds(timed[name], counts[name]))
    return times


def _seconds(program: Callable[[int], None], num_steps: int) -> float:
    start = time.process_time()
    program(num_steps)
    return (time.process_time() - start) / num_steps


if __name__ == "__main__":
    main(sys.argv[1:])
