"""Which network and which noise `auto` takes, and what each would have reached.

    python -m experiments benchmark networks --set write_page=true

On data sets that are not among those of `benchmark command`, with few rows and with more: every
candidate is fitted, and scored on test rows; and so is what `auto` takes by its trial, which sees
training rows only. Each fit runs in a process of its own. Results are stored one by one, also
in `record/benchmarks/networks.json`, from which any machine goes on; what is stored is not run
again, unless the code has changed.
"""

import itertools
import json
import sys
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from experiments.benchmarks import check_known
from experiments.benchmarks.peers import run_module
from experiments.benchmarks.samplers.fit import rows_of
from experiments.benchmarks.stored import (
    FOLDER,
    Stored,
    age_of,
    by_one_code,
    say_how_many_are_earlier,
)
from experiments.datasets import Split, tabular
from experiments.record.code import code_digest
from experiments.results import Row, markdown_table, written_whole

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "network_choice.md"
KEPT = FOLDER / "networks.json"
SETS = (
    "bikesharing",
    "kin8nm",
    "power-plant",
    "protein-tertiary-structure",
    "naval-propulsion-plant",
)
ROWS = (200, 800)
DEEP = (16, 16, 16, 16)
# What `BayesianRegressor` is called with.
FITS: dict[str, dict[str, Any]] = {
    "linear, gaussian": {"hidden": (), "likelihood": "gaussian", "sampler": "nuts"},
    "50, gaussian": {"hidden": (50,), "likelihood": "gaussian", "sampler": "ensemble"},
    "50, heteroscedastic": {
        "hidden": (50,),
        "likelihood": "heteroscedastic",
        "sampler": "ensemble",
    },
    "16 x 4, heteroscedastic": {
        "hidden": DEEP,
        "likelihood": "heteroscedastic",
        "sampler": "ensemble",
    },
    "auto": {},
}
_NUM_TEST = 2000
_MOST_SECONDS = 1200


def split_of(name: str, size: int) -> Split:
    """Return `size` random training rows and 2,000 test rows.

    Of bikesharing both are training rows of `benchmark ensembles`, whose test rows stay unseen, and
    the target is the logarithm of the rentals and one more.
    """
    if name != "bikesharing":
        return rows_of("numbers", name, size)
    whole = tabular(name, 0)
    order = np.random.default_rng(0).permutation(len(whole.y_train))
    test, train = order[:_NUM_TEST], order[_NUM_TEST : _NUM_TEST + size]
    x, y = whole.x_train, np.log1p(whole.y_train)
    return Split(x[train], y[train], x[test], y[test])


def run(
    out_dir: Path,
    *,
    sets: tuple[str, ...] | list[str] = SETS,
    rows: tuple[int, ...] | list[int] = ROWS,
    fits: tuple[str, ...] | list[str] = tuple(FITS),
    write_page: bool = False,
) -> list[Row]:
    """Fit what is not stored yet; one row a number of each set, size and fit.

    Parameters
    ----------
    out_dir
        Where results are stored.
    sets, fits
        Some of SETS and of FITS.
    rows
        Numbers of training rows.
    write_page
        Whether to write `docs/network_choice.md` from all that is stored of today's code.
    """
    check_known(sets, SETS)
    check_known(fits, FITS)
    stored = Stored(out_dir / "stored", KEPT)
    stored.keep()  # what was stored when this was stopped
    for size, name, fit in itertools.product(rows, sets, fits):
        case = f"{name}-{size}-{fit}".replace(" ", "")
        if case in stored and stored[case]["code"] == _code():
            continue
        measure = partial(_measured, out_dir / "work" / case, name, size, fit)
        found = by_one_code(measure, _code)
        if found is not None:
            stored[case] = {"set": name, "rows": size, "fit": fit, **found}
            stored.keep()
            print(f"{case}: {found}", flush=True)
    results, code = stored.values(), _code()
    say_how_many_are_earlier(results, lambda one: code)
    if write_page:
        today = [one for one in results if one["code"] == code]
        with written_whole(PAGE) as temporary:
            temporary.write_text(page_of(today), encoding="utf-8")
        print(PAGE)
    return [
        Row(
            quantity,
            f"{one['set']}, {one['rows']} rows, {one['fit']}{age_of(one, code)}",
            one[quantity],
        )
        for one in results
        for quantity in ("log_score", "cpu_seconds")
        if "over_limit" not in one
    ]


def _measured(work: Path, name: str, size: int, fit: str) -> dict[str, Any] | None:
    """Fit once in a process; None, after a sentence, if it fails within the limit."""
    ended = run_module(__name__, (name, size, fit), work, _MOST_SECONDS)
    if ended.seconds >= _MOST_SECONDS - 1:
        return {"cpu_seconds": ended.seconds, "over_limit": True}
    if ended.found is None:
        print(f"{name}, {size} rows: {fit} failed: {ended.said}", flush=True)
        return None
    return {"cpu_seconds": ended.seconds, **ended.found}


def fitted(name: str, size: int, fit: str, **settings: Any) -> dict[str, Any]:
    """Return a fit's mean log score of the test rows, and what it took.

    That is the network, the noise, the sampler, and whether each column has a scale of the prior.
    `settings` replace its own.
    """
    # Here, so that who only wants the page needs no scikit-learn.
    from jaxbnn.estimators import BayesianRegressor

    split = split_of(name, size)
    model = BayesianRegressor(random_state=0, **FITS[fit] | settings)
    model.fit(split.x_train, split.y_train)
    return {
        "log_score": model.log_score(split.x_test, split.y_test),
        "rhat": model.verdict_.numbers["rhat"],
        "taken": [
            list(model.hidden_),
            model.likelihood_,
            model.sampler_,
            hasattr(model, "relevance_"),
        ],
    }


def _code() -> str:
    return code_digest(["jaxbnn.estimators.regressor", __name__])[:16]


_HEAD = """# The network and the noise that auto takes

Made by `python -m experiments benchmark networks --set write_page=true`.

Where neither a network nor a likelihood is asked for, `jaxbnn fit` and `BayesianRegressor` try some on numbers, by
cross-validation with trained networks, which takes seconds. Here every one of them was also fitted in full, by
{samplers}, and scored on 2,000 test rows: mean log scores, in nats a row of the target's units, higher is better, and in bold what auto took, sampler included. The data sets are
not among those of `benchmark command`. One seed a case.

"""  # noqa: E501


def page_of(results: list[dict[str, Any]]) -> str:
    """Return the page: a line a case, with the score of what auto took in bold."""
    known = {(one["set"], one["rows"], one["fit"]): one for one in results}
    named = [name for name in FITS if name != "auto"]
    lines, among, others = [], [], []
    for name, size in sorted({(one["set"], one["rows"]) for one in results}):
        of_case = {f: known.get((name, size, f), {}) for f in FITS}
        auto = of_case.pop("auto")
        scores = {f: one["log_score"] for f, one in of_case.items() if "log_score" in one}
        taken = _name_of(auto["taken"]) if "taken" in auto else None
        cells = [_cell(one, is_bold=f == taken) for f, one in of_case.items()]
        gap = seconds = "-"
        if "log_score" in auto and scores.keys() == set(named):
            behind = max(scores.values()) - auto["log_score"]
            gap, seconds = f"{behind:.3f}", f"{auto['cpu_seconds']:.0f}"
            if taken is None:
                others.append(f"{_spoken(auto['taken'])} ({name}, {size} rows)")
            else:
                is_best = taken == max(scores, key=scores.__getitem__)
                among.append((is_best, behind))
        lines.append([name, size, *cells, gap, seconds])
    samplers = ", ".join(f"{FITS[name]['sampler']} ({name})" for name in named)
    header = ["set", "rows", *named, "behind the best", "CPU s of auto"]
    text = _HEAD.format(samplers=samplers) + markdown_table(header, lines)
    if among:
        hits, most = sum(is_best for is_best, _ in among), max(behind for _, behind in among)
        text += (
            f"\nWhat auto took was the best in {hits} of {len(among)} cases, and at most "
            f"{most:.3f} nats behind it.\n"
        )
    if others:
        number = f"{len(others)} of {len(others) + len(among)} cases"
        text += f"\nIn {number} auto took none of these, but {'; '.join(others)}.\n"
    return text


def _name_of(taken: list[Any]) -> str | None:
    """Return which of FITS is this network, likelihood and sampler; None if none is."""
    hidden, *others = taken
    fits = {(f["hidden"], f["likelihood"], f["sampler"], False): n for n, f in FITS.items() if f}
    return fits.get((tuple(hidden), *others))


def _spoken(taken: list[Any]) -> str:
    hidden, likelihood, sampler, has_relevance = taken
    network = ", ".join(map(str, hidden)) or "linear"
    return f"{network}, {likelihood}, by {sampler}" + has_relevance * " with relevance"


def _cell(found: dict[str, Any], *, is_bold: bool) -> str:
    if "over_limit" in found:
        return f"> {_MOST_SECONDS} CPU s"
    if not found:
        return "-"
    score = f"{found['log_score']:.3f}"
    return f"**{score}**" if is_bold else score


if __name__ == "__main__":
    found = fitted(sys.argv[1], int(sys.argv[2]), sys.argv[3])
    Path(sys.argv[4]).write_text(json.dumps(found) + "\n", encoding="utf-8")
