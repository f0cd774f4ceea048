"""Which sampler `auto` takes: by measured log scores and times of cases of like size.

The cases, in `samplers.toml`, are made by `python -m experiments benchmark samplers` from data sets
on which nothing else is judged.
"""

import functools
import math
import tomllib
from collections.abc import Sequence
from importlib import resources
from typing import Any

# Processor seconds that one waits for: five minutes of two cores.
MOST_SECONDS = 600
_NEIGHBOURS = 3
_TOO_LONG = {"seconds": MOST_SECONDS}  # at least


@functools.cache
def measured_cases() -> tuple[dict[str, Any], ...]:
    """Return the table: a dict a case, with `kind`, `set`, `rows`, `parameters` and samplers.

    A sampler's entry is {"log_score": nats a test row, "seconds": of a processor}; one that did not
    end within MOST_SECONDS has none.
    """
    text = resources.files("jaxbnn.tabular").joinpath("samplers.toml").read_text("utf-8")
    return tuple(tomllib.loads(text)["case"])


def best_sampler(
    candidates: Sequence[str],
    num_data: int,
    num_parameters: int,
    *,
    is_class: bool,
    preferred: Sequence[str] = (),
    cases: Sequence[dict[str, Any]] | None = None,
) -> str:
    """Return the candidate of the largest log score among those that end in time.

    Judged by the three cases of the same kind whose rows and parameters are nearest, in logarithms;
    a case's seconds are taken to grow as rows times parameters. Where none ends in time, the
    quickest is returned.

    Parameters
    ----------
    candidates
        Names of samplers, at least one.
    num_data, num_parameters
        Training rows, and the parameters of a network of one output.
    is_class
        Whether the targets are classes.
    preferred
        If any of these ends in time, only they are compared.
    cases
        As `measured_cases` returns, which it is if None.

    Examples
    --------
    >>> case = {"kind": "numbers", "rows": 100, "parameters": 50}
    >>> case |= {"nuts": {"log_score": -1.0, "seconds": 60}}
    >>> case |= {"dvi": {"log_score": -1.2, "seconds": 6}}
    >>> [best_sampler(("nuts", "dvi"), n, 50, is_class=False, cases=[case]) for n in (500, 5000)]
    ['nuts', 'dvi']
    """
    kind = "classes" if is_class else "numbers"
    known = [one for one in (measured_cases() if cases is None else cases) if one["kind"] == kind]

    def distance(case: dict[str, Any]) -> float:
        rows, parameters = num_data / case["rows"], num_parameters / case["parameters"]
        return math.hypot(math.log(rows), math.log(parameters))

    nearest = sorted(known, key=distance)[:_NEIGHBOURS]

    def seconds(sampler: str) -> float:
        """Return those of the slowest of the nearest cases, at the size that is asked for."""
        size = num_data * num_parameters
        return max(
            case.get(sampler, _TOO_LONG)["seconds"] * size / (case["rows"] * case["parameters"])
            for case in nearest
        )

    in_time = [
        sampler
        for sampler in candidates
        if seconds(sampler) <= MOST_SECONDS and all(sampler in case for case in nearest)
    ]
    if in_time:
        in_time = [sampler for sampler in in_time if sampler in preferred] or in_time
        return max(in_time, key=lambda sampler: sum(case[sampler]["log_score"] for case in nearest))
    return min(candidates, key=seconds)
