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

import numpy as np

# Processor seconds that one waits for: five minutes of two cores.
MOST_SECONDS = 600
# Of the chains of nuts whose times were measured: four, of 400 + 400 draws each.
MEASURED_STEPS = 4 * 800
# In nats a test row: means of three cases differed by as much between two releases of jaxlib.
_TIE = 0.01
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
    """Return the candidate of the largest log score, or the quickest of equals, that ends in time.

    Judged by one case of each data set of the same kind, whose rows and parameters are nearest, in
    logarithms; mean scores less than .01 nats apart are equal. For the time see `expected_seconds`;
    where none ends in time, the quickest is returned.

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
    >>> cases = [
    ...     {
    ...         "kind": "numbers",
    ...         "set": "moons",
    ...         "rows": rows,
    ...         "parameters": 50,
    ...         "nuts": {"log_score": -1.0, "seconds": rows / 2},
    ...         "dvi": {"log_score": -1.2, "seconds": 6},
    ...     }
    ...     for rows in (100, 1000)
    ... ]
    >>> [best_sampler(("nuts", "dvi"), n, 50, is_class=False, cases=cases) for n in (500, 5000)]
    ['nuts', 'dvi']
    """
    kind = "classes" if is_class else "numbers"
    known = [one for one in (measured_cases() if cases is None else cases) if one["kind"] == kind]

    def distance(case: dict[str, Any]) -> float:
        rows, parameters = num_data / case["rows"], num_parameters / case["parameters"]
        return math.hypot(math.log(rows), math.log(parameters))

    sets = sorted({case["set"] for case in known})
    nearest = [min((c for c in known if c["set"] == one), key=distance) for one in sets]
    seconds = {
        sampler: expected_seconds(sampler, known, num_data * num_parameters)
        for sampler in candidates
    }
    in_time = [
        sampler
        for sampler in candidates
        if seconds[sampler] <= MOST_SECONDS and all(sampler in case for case in nearest)
    ]
    if in_time:
        in_time = [sampler for sampler in in_time if sampler in preferred] or in_time
        scores = {s: np.mean([case[s]["log_score"] for case in nearest]) for s in in_time}
        best = max(scores.values())
        return min((s for s in in_time if scores[s] > best - _TIE), key=seconds.__getitem__)
    return min(candidates, key=seconds.__getitem__)


def ends_in_time(
    sampler: str, num_data: int, num_parameters: int, *, is_class: bool = False, times: float = 1.0
) -> bool:
    """Whether a sampler is expected to sample so many like networks within MOST_SECONDS."""
    kind = "classes" if is_class else "numbers"
    known = [one for one in measured_cases() if one["kind"] == kind]
    return times * expected_seconds(sampler, known, num_data * num_parameters) <= MOST_SECONDS


def expected_seconds(sampler: str, cases: Sequence[dict[str, Any]], size: int) -> float:
    """Return a + b size for rows times parameters, by least squares over the cases.

    a is mostly compilation. Neither is negative. A case in which the sampler did not end counts as
    one of MOST_SECONDS.

    Examples
    --------
    >>> cases = [
    ...     {"rows": 100, "parameters": 10, "dvi": {"seconds": 20}},
    ...     {"rows": 300, "parameters": 10, "dvi": {"seconds": 40}},
    ... ]
    >>> round(expected_seconds("dvi", cases, 10_000), 6)
    110.0
    """
    # Here, so that the command's first line does not wait for it.
    from scipy.optimize import nnls

    sizes = np.array([case["rows"] * case["parameters"] for case in cases], float)
    seconds = np.array([case.get(sampler, _TOO_LONG)["seconds"] for case in cases], float)
    rows = np.stack([np.ones_like(sizes), sizes / sizes.max()], axis=1)
    (start, growth), _ = nnls(rows, seconds)
    return float(start + growth * size / sizes.max())
