"""`docs/command_comparison.md`, from stored results."""

from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from experiments.benchmarks.command.tables import CLASSES, NO_MEASUREMENT, NUMBERS
from experiments.results import written_whole

_NAMES = {
    "jaxbnn": "`jaxbnn fit`",
    "linear": "ridge, logistic",
    "forest": "random forest",
    "boosting": "gradient boosting",
    "gaussian_process": "Gaussian process",
    "bde": "bde 1.0.2",
}
_HEAD = """# The command against what people would use instead

Made by `python -m experiments benchmark command --set write_page=true` from the results that it stores.

Twelve data sets, for each {splits} random splits: a fifth of the rows is held out, the same for every method. `jaxbnn
fit` is run without an option (but `--seed`, which chooses the split) and each method in a process of its own; CPU
seconds are its processor time and its children's, imports and compilation among them. No setting is chosen on test rows.
Ridge and logistic regression take their penalty, gradient boosting its rate, trees, leaves and rows a leaf from
cross-validation of the training rows; the forest's density is a Gaussian whose variance, a + b times that of its trees, is fitted to its
out-of-bag rows; ridge's and boosting's is a Gaussian with the error of cross-validation; the Gaussian process has a length scale a
column for numbers, one for classes, and of two kernels, squared exponential and Matérn 3/2, that of the larger marginal likelihood.
bde (Bayesian deep ensembles; Sommer et al., 2025) has the settings of its paper (airfoil: 10 members, four layers of 16,
50,000 + 1,000 steps) for all sets, and one core-hour a set: where that is not enough, fewer splits were run. Where they are fewer, or
predictions were NaN on some, the number in brackets says of how many splits a mean is.
"""  # noqa: E501


# What the command asks of chains, by R-hat and by effective draws of what they predict.
_RHAT, _ESS = 1.05, 100
# With fewer the error of a mean difference is mostly luck.
_FEWEST_SPLITS = 3
# Fewer copies are not told of.
_MANY_COPIES = 0.1


def write(
    path: Path, stored: list[dict[str, Any]], code: str, copies: Mapping[str, float] | None = None
) -> None:
    """Write the page from all results of the methods that it names.

    `code` is today's digest, and `copies` which share of a set's held-out rows has copies among the
    training rows.
    """
    results = [one for one in stored if one["method"] in _NAMES]
    splits = len({one["split"] for one in results})
    parts = [_HEAD.format(splits=splits), _staleness(results, code), _verdict(results)]
    parts += _believed([one for one in results if one["method"] == "jaxbnn"])
    parts += _without_numbers(results)
    parts += _of_copies(copies or {})
    parts.append("## Mean log score\n\nOf a held-out row, in nats; higher is better.\n")
    parts.append(_table(results, (*NUMBERS, *CLASSES), "log_score"))
    parts += ["## Typical error (RMSE)\n", _table(results, NUMBERS, "rmse")]
    parts += ["## Share of rows that were right\n", _table(results, CLASSES, "accuracy")]
    parts += ["## Coverage of the 90 % intervals\n", _table(results, NUMBERS, "coverage")]
    parts += ["## CPU seconds a split\n", _table(results, (*NUMBERS, *CLASSES), "cpu_seconds")]
    parts += _by_the_clock([one for one in results if one["method"] == "jaxbnn"])
    with written_whole(path) as temporary:
        temporary.write_text("\n".join(parts).rstrip() + "\n", "utf-8")


def _staleness(results: list[dict[str, Any]], code: str) -> str:
    ours = [one for one in results if one["method"] == "jaxbnn"]
    today = [one for one in ours if one.get("code") == code]
    old = len(ours) - len(today)
    text = f"All {len(ours)} results of jaxbnn are by today's code."
    if old:
        text = f"{old} of {len(ours)} results of jaxbnn are by an earlier state of its code."
    if again := [one["is_as_before"] for one in today if "is_as_before" in one]:
        text += (
            f" Of {len(again)} that were run again after a change, {sum(again)} came out the same "
            "to the last digit."
        )
    return text + "\n"


def _believed(ours: list[dict[str, Any]]) -> list[str]:
    """Say how many fits are to be believed, by what the command itself asks of chains."""
    told = []
    for kind, sets in (("numbers", NUMBERS), ("classes", CLASSES)):
        fits = [one for one in ours if one["set"] in sets and "rhat" in one]
        settled = [one for one in fits if one["rhat"] <= _RHAT and one["ess_bulk"] >= _ESS]
        if fits:
            rhats = sorted(one["rhat"] for one in fits)
            told.append(
                f"{len(settled)} of {len(fits)} fits of {kind} (R-hat {rhats[0]:.3g} to "
                f"{rhats[-1]:.3g})"
            )
    if not told:
        return []
    return [
        f"{' and '.join(told)} have chains that agree about what they predict: R-hat at most "
        f"{_RHAT}, and {_ESS} effective draws. The others are told not to be believed yet: their "
        "scores are those of chains that have not settled.\n"
    ]


def _without_numbers(results: list[dict[str, Any]]) -> list[str]:
    """Say whose predictions or log scores were no numbers, and on how many splits."""
    told = []
    for key, said in (
        ("is_nan", "without a score, predictions being NaN"),
        ("infinite_log_score", "in no mean of log scores, theirs being infinite"),
    ):
        lost = Counter((_NAMES[one["method"]], one["set"]) for one in results if key in one)
        if lost:
            each = [f"{method} on {number} of {data}" for (method, data), number in lost.items()]
            told.append(f"Splits {said}: {', '.join(each)}.\n")
    return told


def _of_copies(copies: Mapping[str, float]) -> list[str]:
    """Say where held-out rows have copies, since that bounds no density from above."""
    return [
        f"Of the held-out rows of {name} {share:.0%} stand among the training rows, too, target "
        "and all: a density may be as high as it likes there, and a method that takes noise to be "
        "nearly nothing wins or loses nats without bound. `jaxbnn fit` takes it to be at least "
        "the error of rounding.\n"
        for name, share in copies.items()
        if share > _MANY_COPIES and name in NUMBERS
    ]


def _table(results: list[dict[str, Any]], sets: tuple[str, ...], quantity: str) -> str:
    lines = ["| set | " + " | ".join(_NAMES.values()) + " |", "| --- " * (len(_NAMES) + 1) + "|"]
    most = len({one["split"] for one in results})
    for name in sets:
        cells = []
        for method in _NAMES:
            values = list(_by_split(results, name, method, quantity).values())
            number = len(values) if len(values) < most else None
            cells.append(_cell(values, _error(values), number))
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def _by_the_clock(ours: list[dict[str, Any]]) -> list[str]:
    """Say how long `fit` took by the clock, on as many cores as each result had."""
    cores = sorted({one["cores"] for one in ours if "cores" in one})
    if not cores:
        return []
    names = [f"{number} core{'s' * (number > 1)}" for number in cores]
    lines = ["| set | " + " | ".join(names) + " |", "| --- " * (len(cores) + 1) + "|"]
    for name in (*NUMBERS, *CLASSES):
        cells = []
        for number in cores:
            of = [one for one in ours if one.get("cores") == number]
            values = list(_by_split(of, name, "jaxbnn", "wall_seconds").values())
            cells.append(_cell(values, _error(values), len(values)))
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    text = (
        "`jaxbnn fit` by the clock, on so many cores; in brackets the number of splits. These and "
        "the seconds above are of several days and machines, on some of which other fits ran "
        "meanwhile: fits on two threads of one processor slow each other, and small differences "
        "mean nothing.\n"
    )
    return ["## Seconds that a user waits\n", text, "\n".join(lines) + "\n"]


def _cell(values: list[float], error: float, number: int | None = None) -> str:
    if not values:
        return "-"
    said = _said(float(np.mean(values))) + (f" ± {_said(error)}" if len(values) > 1 else "")
    return said if number is None else f"{said} ({number})"


def _verdict(results: list[dict[str, Any]]) -> str:
    """Say on how many sets ours is best, or within one standard error of the best."""
    near, behind, counted, few = [], [], [], []
    for name in (*NUMBERS, *CLASSES):
        ours = _by_split(results, name, "jaxbnn", "log_score")
        gaps = {}
        for method in _NAMES:
            other = _by_split(results, name, method, "log_score")
            shared = [other[split] - ours[split] for split in ours if split in other]
            if method != "jaxbnn" and 0 < len(shared) < _FEWEST_SPLITS:
                few.append(f"{_NAMES[method]} on {name}")
            elif method != "jaxbnn" and shared:
                gaps[method] = (float(np.mean(shared)), _error(shared))
        if not gaps:
            continue
        counted.append(name)
        if all(gap <= error for gap, error in gaps.values()):
            near.append(name)
        if gaps.get("linear", (0.0, 0.0))[0] > 0:
            behind.append(name)
    text = (
        f"`jaxbnn fit` is best, or within one standard error of the best (of the difference, over "
        f"splits), in log score on {len(near)} of {len(counted)} sets"
    )
    others = [name for name in counted if name not in near]
    text += f"; not on {', '.join(others)}." if others else "."
    text += f" Behind ridge or logistic regression: {', '.join(behind) or 'on none'}."
    if few:
        text += f" With fewer than {_FEWEST_SPLITS} splits, and not judged: {', '.join(few)}."
    return text + "\n"


def _by_split(
    results: list[dict[str, Any]], name: str, method: str, quantity: str
) -> dict[int, float]:
    return {
        one["split"]: one[quantity]
        for one in results
        if (one["set"], one["method"]) == (name, method)
        and quantity in one
        and not NO_MEASUREMENT & one.keys()
    }


def _error(values: list[float]) -> float:
    return float(np.std(values, ddof=1) / np.sqrt(len(values))) if len(values) > 1 else 0.0


def _said(value: float) -> str:
    return f"{value:.0f}" if abs(value) >= 100 else f"{value:.3g}"
