"""The estimators on data whose truth is known: what is recovered, and whether intervals hold.

    python -m experiments benchmark known_truth --set write_page=true

Heavy tails, counts, and columns of which few matter. Every fit has default settings but for what
its name says, and is judged on fresh rows of the same law. Results are stored one by one, also in
`record/benchmarks/known_truth.json`, from which any machine goes on; what is stored is not run
again, unless the code has changed. A fit takes about seven minutes of one core.
"""

import itertools
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float
from scipy import stats

from experiments.benchmarks import check_known
from experiments.benchmarks.stored import FOLDER, Stored
from experiments.record.code import code_digest
from experiments.results import Row, markdown_table, written_whole

PAGE = Path(__file__).parents[2] / "docs" / "known_truth.md"
KEPT = FOLDER / "known_truth.json"
LEVEL = 0.9
_NUM_FRESH = 10_000
_DEGREES, _CONCENTRATION = 3.0, 2.0
_COLUMNS, _THAT_MATTER, _NOISE = 200, 5, 0.5

Rows = Float[np.ndarray, "n d"]
Numbers = Float[np.ndarray, " n"]


class Drawn(NamedTuple):
    """Rows, targets, and the mean log density or log probability of the targets under the truth."""

    x: Rows
    y: Numbers
    log_score: float


Draw = Callable[[np.random.Generator, int], Drawn]


def heavy_tails(rng: np.random.Generator, num: int) -> Drawn:
    """Draw y = sin(2 x_1) + x_2 / 2 + .3 t, t with three degrees of freedom."""
    x = rng.uniform(-2, 2, (num, 3))
    mean = np.sin(2 * x[:, 0]) + 0.5 * x[:, 1]
    law = stats.t(_DEGREES, mean, 0.3)
    y = law.rvs(random_state=rng)
    return Drawn(x, y, float(law.logpdf(y).mean()))


def counts(rng: np.random.Generator, num: int) -> Drawn:
    """Draw Poisson counts of mean exp(1 + sin(2 x_1) + x_2 / 2)."""
    x = rng.uniform(-2, 2, (num, 3))
    law = stats.poisson(np.exp(1 + np.sin(2 * x[:, 0]) + 0.5 * x[:, 1]))
    y = law.rvs(random_state=rng)
    return Drawn(x, y.astype(float), float(law.logpmf(y).mean()))


def scattered_counts(rng: np.random.Generator, num: int) -> Drawn:
    """Draw counts of the same means, with variance m + m^2 / 2."""
    x = rng.uniform(-2, 2, (num, 3))
    mean = np.exp(1 + np.sin(2 * x[:, 0]) + 0.5 * x[:, 1])
    law = stats.nbinom(_CONCENTRATION, _CONCENTRATION / (_CONCENTRATION + mean))
    y = law.rvs(random_state=rng)
    return Drawn(x, y.astype(float), float(law.logpmf(y).mean()))


def many_columns(rng: np.random.Generator, num: int) -> Drawn:
    """Draw y = x_1 + x_2 - x_3 + x_4 / 2 + sin(2 x_5) + noise, of 200 normal columns."""
    x = rng.standard_normal((num, _COLUMNS))
    mean = x[:, 0] + x[:, 1] - x[:, 2] + 0.5 * x[:, 3] + np.sin(2 * x[:, 4])
    law = stats.norm(mean, _NOISE)
    y = law.rvs(random_state=rng)
    return Drawn(x, y, float(law.logpdf(y).mean()))


class Fit(NamedTuple):
    """Data, their number, and the settings of a `BayesianRegressor`; or of ridge or lasso."""

    draw: Draw
    rows: int
    settings: dict[str, Any]
    peer: str | None = None


FITS = {
    "heavy tails, student-t": Fit(heavy_tails, 600, {"likelihood": "student-t"}),
    "heavy tails, gaussian": Fit(heavy_tails, 600, {"likelihood": "gaussian"}),
    "counts": Fit(counts, 600, {}),
    "scattered counts, negative-binomial": Fit(
        scattered_counts, 600, {"likelihood": "negative-binomial"}
    ),
    "scattered counts": Fit(scattered_counts, 600, {}),
    "200 columns": Fit(many_columns, 150, {}),
    "200 columns, relevance": Fit(many_columns, 150, {"relevance": True}),
    "200 columns, ridge": Fit(many_columns, 150, {}, "ridge"),
    "200 columns, lasso": Fit(many_columns, 150, {}, "lasso"),
}


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
        Whether to write `docs/known_truth.md` from all that is stored of today's code.
    """
    check_known(fits, FITS)
    stored, code = Stored(out_dir / "stored", KEPT), _code()
    for seed, name in itertools.product(seeds, fits):
        case = f"{name}-{seed}"
        if case in stored and stored[case]["code"] == code:
            continue
        found = judged(name, seed)
        stored[case] = {"fit": name, "seed": seed, "code": code, **found}
        stored.keep()
        print(f"{case}: {found}", flush=True)
    results = stored.values()
    if write_page:
        with written_whole(PAGE) as temporary:
            today = [one for one in results if one["code"] == code]
            temporary.write_text(page_of(today), encoding="utf-8")
        print(PAGE)
    about = ("fit", "seed", "code", "likelihood")
    return [
        Row(quantity, f"{one['fit']}, seed {one['seed']}", value)
        for one in results
        for quantity, value in one.items()
        if quantity not in about
    ]


def judged(name: str, seed: int, num_fresh: int = _NUM_FRESH, **settings: Any) -> dict[str, Any]:
    """Return what one fit recovers, and how it does on fresh rows; `settings` add to its own."""
    fit = FITS[name]
    rng = np.random.default_rng(seed)
    seen, fresh = fit.draw(rng, fit.rows), fit.draw(rng, num_fresh)
    begun = time.process_time()
    if fit.peer is not None:
        found = _by_peer(fit.peer, seen, fresh)
    else:
        found = _by_estimator(fit.settings | settings, seed, seen, fresh)
    return {**found, "cpu_seconds": time.process_time() - begun}


def _by_estimator(settings: dict[str, Any], seed: int, seen: Drawn, fresh: Drawn) -> dict[str, Any]:
    # Here, so that the other benchmarks need no scikit-learn.
    from jaxbnn.estimators import BayesianRegressor

    model = BayesianRegressor(random_state=seed, **settings).fit(seen.x, seen.y)
    low, high = model.predict_interval(fresh.x, LEVEL).T
    found = {
        "likelihood": model.likelihood_,
        "rmse": _rmse(np.asarray(model.predict(fresh.x)), fresh.y),
        "coverage": float(np.mean((low <= fresh.y) & (fresh.y <= high))),
        "log_score_below_the_truth": fresh.log_score - model.log_score(fresh.x, fresh.y),
        "rhat": float(model.verdict_.numbers.get("rhat", np.nan)),
    }
    for name in ("degrees", "concentration"):
        leaf = f"log_{name}"
        if isinstance(model.draws_.positions, dict) and leaf in model.draws_.positions:
            values = np.exp(np.asarray(model.draws_.positions[leaf], float))
            ends = np.quantile(values, [(1 - LEVEL) / 2, 0.5, (1 + LEVEL) / 2])
            found |= dict(zip((f"{name}_lower", name, f"{name}_upper"), ends.tolist(), strict=True))
    if hasattr(model, "relevance_"):  # asked for, or taken
        largest = np.argsort(model.relevance_)[-_THAT_MATTER:]
        found["columns_found"] = int(np.sum(largest < _THAT_MATTER))
    return found


def _by_peer(peer: str, seen: Drawn, fresh: Drawn) -> dict[str, Any]:
    from sklearn.linear_model import LassoCV, RidgeCV

    model = {"ridge": RidgeCV(np.geomspace(0.01, 1e4, 40)), "lasso": LassoCV(random_state=0)}[peer]
    return {"rmse": _rmse(model.fit(seen.x, seen.y).predict(fresh.x), fresh.y)}


def _rmse(predicted: Numbers, y: Numbers) -> float:
    return float(np.sqrt(np.mean(np.square(np.asarray(predicted, float) - y))))


def _code() -> str:
    return code_digest(["jaxbnn.estimators.regressor", __name__])[:16]


_HEAD = f"""# The estimators where the truth is known

Made by `python -m experiments benchmark known_truth --set write_page=true`.

Data of a known law; every fit is `BayesianRegressor` with default settings, but for what its name says, and is judged on
{_NUM_FRESH:,} fresh rows. Coverage is that of {LEVEL:.0%} intervals; of counts they hold more, since a count has a jump.
The log score is given as what is lacking to that of the true law, in nats a row. Numbers are means over the seeds,
± one standard error; R-hat is the largest of the predictions' and of the seeds: beyond 1.05 chains had not settled.

* heavy tails: 600 rows of y = sin(2 x_1) + x_2 / 2 + .3 t, t with {_DEGREES:g} degrees of freedom.
* counts: 600 rows, Poisson of mean exp(1 + sin(2 x_1) + x_2 / 2); scattered counts have variance m + m^2 /
  {_CONCENTRATION:g}, a negative binomial of concentration {_CONCENTRATION:g}.
* {_COLUMNS} columns: 150 rows of {_COLUMNS} normal columns of which {_THAT_MATTER} matter, noise {_NOISE:g}, which is the least RMSE.

"""  # noqa: E501


def page_of(results: list[dict[str, Any]]) -> str:
    """Return the page."""
    parts = [_HEAD]
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
            rhat = max(one.get("rhat") or np.nan for one in here)
            cost = _cell(here, "cpu_seconds")
            lines.append([name, taken, len(here), *cells, _recovered(here), rhat, cost])
    return "".join([*parts, markdown_table(header, lines)])


def _recovered(results: list[dict[str, Any]]) -> str:
    """Say in how many fits the interval of what was learnt holds the truth, or columns found."""
    # Poisson counts, for instance, have a concentration that is learnt, and none that is true.
    of = FITS[results[0]["fit"]].draw
    for draw, name, truth in (
        (heavy_tails, "degrees", _DEGREES),
        (scattered_counts, "concentration", _CONCENTRATION),
    ):
        if draw is of and name in results[0]:
            held = sum(one[f"{name}_lower"] <= truth <= one[f"{name}_upper"] for one in results)
            said = f"{name} {_cell(results, name)}"
            return f"{said}; {LEVEL:.0%} interval holds {truth:g} in {held} of {len(results)}"
    if "columns_found" in results[0]:
        return f"{_cell(results, 'columns_found')} of {_THAT_MATTER} columns"
    return "-"


def _cell(results: list[dict[str, Any]], quantity: str) -> str:
    values = [one[quantity] for one in results if quantity in one]
    if not values:
        return "-"
    said = f"{np.mean(values):.3g}"
    if len(values) == 1:
        return said
    return f"{said} ± {np.std(values, ddof=1) / np.sqrt(len(values)):.1g}"
