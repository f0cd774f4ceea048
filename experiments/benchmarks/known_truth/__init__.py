"""The estimators on data whose truth is known: what is recovered, and whether intervals hold.

    python -m experiments benchmark known_truth --set write_page=true

Heavy tails, counts, and columns of which few matter. Every fit has default settings but for what
its name says, is judged on fresh rows of the same law, and runs in a process of its own. Results
are stored one by one, also in `record/benchmarks/known_truth.json`, from which any machine goes on;
what is stored is not run again, unless the code has changed. A fit takes about seven minutes of one
core.
"""

import itertools
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from experiments.benchmarks import check_known
from experiments.benchmarks.known_truth import laws
from experiments.benchmarks.known_truth.laws import (
    COLUMNS,
    CONCENTRATION,
    DEGREES,
    FITS,
    LEVEL,
    NOISE,
    NUM_FRESH,
    THAT_MATTER,
    heavy_tails,
    scattered_counts,
)
from experiments.benchmarks.peers import run_module
from experiments.benchmarks.stored import (
    FOLDER,
    Stored,
    age_of,
    by_one_code,
    say_how_many_are_earlier,
)
from experiments.record.code import code_digest
from experiments.results import Row, markdown_table, written_whole

PAGE = Path(__file__).parents[3] / "docs" / "known_truth.md"
KEPT = FOLDER / "known_truth.json"


def run(
    out_dir: Path,
    *,
    fits: tuple[str, ...] | list[str] = tuple(FITS),
    seeds: tuple[int, ...] | list[int] = (0, 1, 2, 3, 4),
    write_page: bool = False,
) -> list[Row]:
    """Fit what is not stored yet; one row a number of each fit and seed.

    Parameters
    ----------
    out_dir
        Where results are stored.
    fits
        Some of FITS.
    seeds
        Of the data and of the fits.
    write_page
        Whether to write `docs/known_truth.md` from all that is stored; it says how much is of an
        earlier state of the code.
    """
    check_known(fits, FITS)
    stored = Stored(out_dir / "stored", KEPT)
    stored.keep()  # what was stored when this was stopped
    for seed, name in itertools.product(seeds, fits):
        case = f"{name}-{seed}"
        if case in stored and stored[case]["code"] == _code():
            continue
        found = by_one_code(partial(_measured, out_dir / "work" / case, name, seed), _code)
        if found is not None:
            stored[case] = {"fit": name, "seed": seed, **found}
            stored.keep()
            print(f"{case}: {found}", flush=True)
    results, code = stored.values(), _code()
    say_how_many_are_earlier(results, lambda one: code)
    if write_page:
        with written_whole(PAGE) as temporary:
            temporary.write_text(page_of(results, code), encoding="utf-8")
        print(PAGE)
    about = ("fit", "seed", "code", "likelihood")
    return [
        Row(quantity, f"{one['fit']}, seed {one['seed']}{age_of(one, code)}", value)
        for one in results
        for quantity, value in one.items()
        if quantity not in about
    ]


def _measured(work: Path, name: str, seed: int) -> dict[str, Any] | None:
    """Fit once in a process; None, after a sentence, if it fails."""
    ended = run_module(laws.__name__, (name, seed), work)
    if ended.found is None:
        print(f"{name}, seed {seed}: failed: {ended.said}", flush=True)
        return None
    return {**ended.found, "cpu_seconds": ended.seconds, "wall_seconds": ended.wall}


def _code() -> str:
    # No fit here is by gibbs.
    return code_digest(["jaxbnn.estimators.regressor", laws.__name__], ("jaxbnn.gibbs",))[:16]


_HEAD = f"""# The estimators where the truth is known

Made by `python -m experiments benchmark known_truth --set write_page=true`.

Data of a known law. Fits are of `BayesianRegressor` with default settings, but for what its name says (ridge and lasso are
scikit-learn's, by cross-validation), and are judged on {NUM_FRESH:,} fresh rows. Coverage is that of {LEVEL:.0%} intervals; of counts they hold more, since a count has a jump.
The log score is given as what is lacking to that of the true law, in nats a row. Numbers are means over the seeds,
± one standard error. R-hat is the largest of the predictions and of the seeds: where it is beyond 1.05 the verdict was "do
not believe it yet", and the scores are those of a mixture of chains that had not settled. Two rows of the same data that differ in
CPU seconds alone are of the same model, which one of them asks for by name and the other chose by itself.

* heavy tails: 600 rows of y = sin(2 x_1) + x_2 / 2 + .3 t, t with {DEGREES:g} degrees of freedom.
* counts: 600 rows, Poisson of mean exp(1 + sin(2 x_1) + x_2 / 2); scattered counts have variance m + m^2 /
  {CONCENTRATION:g}, a negative binomial of concentration {CONCENTRATION:g}.
* {COLUMNS} columns: 150 rows of {COLUMNS} normal columns of which {THAT_MATTER} matter, noise {NOISE:g}, which is the least RMSE.

"""  # noqa: E501


def page_of(results: list[dict[str, Any]], code: str) -> str:
    """Return the page; `code` is today's digest."""
    parts = [_HEAD]
    if old := sum(one["code"] != code for one in results):
        parts.append(f"{old} of {len(results)} results are by an earlier state of the code.\n\n")
    parts.append(_of_seconds(results))
    header = [
        "",
        "likelihood",
        "seeds",
        "RMSE",
        "coverage",
        "log score lacks",
        "recovered",
        "R-hat, largest",
        "CPU s",
    ]
    lines = []
    for name in FITS:
        here = [one for one in results if one["fit"] == name]
        if here:
            quantities = ("rmse", "coverage", "log_score_below_the_truth")
            cells = [_cell(here, quantity) for quantity in quantities]
            taken = ", ".join(sorted({one.get("likelihood", "-") for one in here}))
            largest = max(one.get("rhat") or np.nan for one in here)
            rhat = None if np.isnan(largest) else f"{largest:.2f}"
            cost = _seconds(here)
            lines.append([name, taken, len(here), *cells, _recovered(here), rhat, cost])
    return "".join([*parts, markdown_table(header, lines)])


def _of_seconds(results: list[dict[str, Any]]) -> str:
    """Say what the CPU seconds are of."""
    # The clock is read around processes alone.
    shared = sum("wall_seconds" not in one for one in results)
    text = ""
    if shared < len(results):
        text = "CPU seconds are of a process for each fit, imports and compilation among them. "
    if shared:
        text += (
            f"{shared} of {len(results)} results are of fits that shared processes: whichever of "
            "equal shapes came first compiled for all, so that their CPU seconds are not to be "
            "compared with one another. "
        )
    return f"{text.rstrip()}\n\n"


def _recovered(results: list[dict[str, Any]]) -> str:
    """Say in how many fits the interval of what was learnt holds the truth, or columns found."""
    # Poisson counts, for instance, have a concentration that is learnt, and none that is true.
    of = FITS[results[0]["fit"]].draw
    for draw, name, truth in (
        (heavy_tails, "degrees", DEGREES),
        (scattered_counts, "concentration", CONCENTRATION),
    ):
        if draw is of and name in results[0]:
            held = sum(one[f"{name}_lower"] <= truth <= one[f"{name}_upper"] for one in results)
            said = f"{name} {_cell(results, name)}"
            return f"{said}; {LEVEL:.0%} interval holds {truth:g} in {held} of {len(results)}"
    if "columns_found" in results[0]:
        return f"{_cell(results, 'columns_found')} of {THAT_MATTER} columns"
    return "-"


def _seconds(results: list[dict[str, Any]]) -> str:
    """Return whole seconds, but of what takes less than ten."""
    values = [one["cpu_seconds"] for one in results]
    if np.mean(values) < 10:
        return _cell(results, "cpu_seconds")
    said = f"{np.mean(values):.0f}"
    return said if len(values) == 1 else f"{said} ± {_error(values):.0f}"


def _cell(results: list[dict[str, Any]], quantity: str) -> str:
    values = [one[quantity] for one in results if quantity in one]
    if not values:
        return "-"
    said = f"{np.mean(values):.3g}"
    return said if len(values) == 1 else f"{said} ± {_error(values):.1g}"


def _error(values: list[float]) -> float:
    """Return the standard error of a mean."""
    return float(np.std(values, ddof=1) / np.sqrt(len(values)))
