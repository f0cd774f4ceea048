"""`docs/ensembles_comparison.md` and its pictures, from stored results and recorded studies."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np

from experiments.benchmarks.ensembles.conclusions import conclusions
from experiments.benchmarks.ensembles.ours import CURVE
from experiments.benchmarks.ensembles.tables import SEEDS
from experiments.benchmarks.stored import FOLDER
from experiments.record.pages import is_stale
from experiments.results import written_whole

_NAMES = {
    "ensemble": "`optimised_starts` alone",
    "quick": "`sample_ensemble`, unadjusted",
    **{name: f"unadjusted, {factor:g} times the steps" for name, factor in CURVE.items()},
    "exact": "`sample_ensemble`, exact",
    "nuts": "NUTS from the same starts",
    "bde": "bde 1.0.2",
}
_COLUMNS = {
    "cpu_seconds": "CPU s",
    "nll": "NLL",
    "nll_worst_row": "of it one row's",
    "lppd": "LPPD",
    "rmse": "RMSE",
    "rmse_chain": "RMSE of a chain",
    "coverage": "coverage of 90 %",
    "rhat_median": "R-hat, median",
    "rhat_95": "R-hat, 95 %",
    "settled": "chains settled",
    "undone": "steps undone",
    "stuck": "chains stuck",
}
# Studies of `configs/ensembles`: what each answers, and its tables to be read.
_STUDIES = {
    "bias": (
        "What unadjusted draws are off by",
        "All kernels begin where a long exact run has come to, and draws of each chain are "
        "compared with the exact ones of the same chain. What a second exact run differs by is "
        "Monte Carlo error; only more than that is bias.",
        ("bias",),
    ),
    "modes": (
        "How many chains",
        "Mean log predictive density by so many chains, of rows held out of airfoil's training "
        "rows, with its standard deviation over sets of chains; then the arms' scores with all "
        "their chains. The CPU seconds are of a run beside other work on the same cores, which can "
        "make them longer by two thirds: compare scores by steps, not by these.",
        ("lppd", "arms"),
    ),
    "between_modes": (
        "From mode to mode",
        "Ten chains on airfoil go on in rounds, each after a move that could take them to other "
        "modes; rows held out are of the training rows.",
        ("arms",),
    ),
    "exactness": (
        "Two exact kernels that start differently",
        "Chains from trained networks, and chains of another kernel that come from the prior "
        "through powers of the likelihood: how far their predictive densities are apart, beside "
        "how far halves are in which both sides' chains are dealt at random; and R-hat of the "
        "predictions on each side.",
        ("agreement", "sides"),
    ),
    "metric": (
        "What narrow directions in the metric gain",
        "The exact kernel with the prior's diagonal alone, and with directions found from the "
        "likelihood's scores.",
        ("metric",),
    ),
}
_HEAD = """# Optimised starts and microcanonical chains against bde

Made by `python -m experiments benchmark ensembles --set write_page=true` from the results that it stores.

The network, prior and likelihood are those of the benchmark of bde (Bayesian deep ensembles; Sommer et al., 2025): four hidden
layers of 16 ReLU units, N(0, 1) on every weight, a Gaussian whose mean and scale (softplus of the second output) the network
gives; ten chains; a fifth of the rows held out with seed 0, inputs and target standardised by the training rows. Each method runs
in a process of its own, on a core that it has to itself, on several days. CPU seconds are its processor time with imports,
compilation and starts. bde has the settings that its paper prints for airfoil (50,000 + 1,000 steps). Ours were chosen on a split
of airfoil's training rows (`--set is_development=true`); no setting was chosen on test rows. The seeds are the samplers'.

NLL is that of the one Gaussian with the mean and the variance of all draws together, beside it what the one row with the most
adds to it, and LPPD the mean log density of the mixture, all in nats a row of the standardised target. RMSE is that of the mean
of all draws, beside it the root mean square of the chains' own: what lies between them is gained by chains that differ, and
goes where they agree. R-hat is the rank-normalised one of the predictive means, over the test rows. A chain has settled when its
log density is stationary at the end of the way in; steps between kept draws are undone where the energy would have changed too
much; a chain is stuck of which more than half of them were, or which accepted less than half of what was wanted. Numbers are
means over the seeds, ± one standard error.
"""  # noqa: E501


_OF_NUTS = """
NUTS has 200 steps of window adaptation a chain and then 100 draws, of at most eight doublings,
which nobody tuned.
"""


def write(path: Path, results: list[dict[str, Any]], recorded: Path = FOLDER) -> None:
    """Write the page and its pictures from all results, and recorded runs of other benchmarks."""
    parts = [_HEAD + _OF_NUTS * any(one["method"] == "nuts" for one in results)]
    for name in SEEDS:
        here = [one for one in results if one["set"] == name]
        if here:
            parts.append(f"## {name.capitalize()}\n\n{_table(here)}\n{_verdict(here)}")
        if any(one["method"] in CURVE for one in here):
            picture = path.with_name(f"{path.stem}_{name}.png")
            _draw(picture, name, here)
            parts.append(f"![NLL against CPU seconds, {name}]({picture.name})\n")
    parts += [_speed(recorded), *_studies(recorded.parent / "ensembles")]
    with written_whole(path) as temporary:
        temporary.write_text("\n".join(parts).rstrip() + "\n", encoding="utf-8")


def _speed(recorded: Path) -> str:
    """Say what `sample` adds to ten chains' steps and what a second device gains."""
    runner = _recorded(recorded / "runner", "ratio", "airfoil microcanonical, 10 chains")
    gain, most = (
        _recorded(
            recorded / "scale",
            "times_the_fewest_devices",
            f"cpu, 2 {kind}, 10 microcanonical chains on airfoil",
        )
        for kind in ("devices", "processes side by side")
    )
    lines = ["## Ten microcanonical chains of the network on airfoil\n"]
    if runner:
        lines.append(
            f"* `sample` runs them at {runner:.3f} of the speed of a scan written by hand that "
            "stores the same draws (`python -m experiments benchmark runner`, median of its pairs; "
            f"{_measured(recorded / 'runner')})."
        )
    if gain:
        beside = (
            "; two separate processes, with five chains and a core each, run them at "
            f"{most:.2f} times{_no_loss(gain, most)}"
            if most
            else ""
        )
        lines.append(
            f"* Two devices of one core each run them at {gain:.2f} times the speed of one"
            f"{beside} "
            f"(`python -m experiments benchmark scale`; {_measured(recorded / 'scale')})."
        )
    return "\n".join(lines) + "\n" if runner or gain else ""


def _no_loss(gain: float, most: float) -> str:
    return ": two devices lose nothing by sharing one program" if gain >= most else ""


def _measured(folder: Path) -> str:
    """Say when a recorded benchmark ran, and of which commit."""
    run = json.loads((folder / "run.json").read_text(encoding="utf-8"))
    return f"measured on {run['date'][:10]} at {run['commit'][:10]}"


def _studies(folder: Path) -> list[str]:
    """Return a section for each recorded study, at the largest scale that is recorded."""
    parts = []
    for name, (title, text, tables) in _STUDIES.items():
        scales = [scale for scale in ("paper", "desk") if (folder / name / scale).exists()]
        if scales:
            config = f"configs/ensembles/{name}.toml --scale {scales[0]}"
            whole = folder / name / scales[0]
            run = json.loads((whole / "run.json").read_text(encoding="utf-8"))
            old = " **Of earlier code.**" if is_stale(run) else ""
            parts.append(f"## {title}\n\n{text} Made by `python -m experiments {config}`.{old}\n")
            parts += [(whole / f"{table}.md").read_text(encoding="utf-8") for table in tables]
            said = conclusions(name, _rows(whole))
            parts += [f"{said}\n"] if said else []
    return parts


def _rows(folder: Path) -> list[dict[str, Any]]:
    """Return a recorded run's numbers, none where it has no file of them."""
    path = folder / "metrics.json"
    return json.loads(path.read_text(encoding="utf-8"))["rows"] if path.exists() else []


def _recorded(folder: Path, quantity: str, setting: str) -> float | None:
    """Return a number of a recorded benchmark, if there is such a run with this number."""
    rows = _rows(folder)
    found = [r["value"] for r in rows if (r["quantity"], r["setting"]) == (quantity, setting)]
    return found[0] if found else None


def _table(results: list[dict[str, Any]]) -> str:
    lines = ["| | seeds | " + " | ".join(_COLUMNS.values()) + " |"]
    lines.append("| --- " * (len(_COLUMNS) + 2) + "|")
    for method, name in _NAMES.items():
        here = [one for one in results if one["method"] == method]
        if here:
            cells = [_cell([one[q] for one in here if q in one]) for q in _COLUMNS]
            lines.append(f"| {name} | {len(here)} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def _draw(path: Path, name: str, results: list[dict[str, Any]]) -> None:
    """Draw NLL against processor seconds: a point a run, and a line through those of the curve."""
    figure, axis = plt.subplots(figsize=(6, 4))
    for method, label in _NAMES.items():
        here = [one for one in results if one["method"] == method]
        if here and method not in CURVE:
            axis.plot(*_points(here), "o", label=label)
    unadjusted = [one for one in results if one["method"] in ("quick", *CURVE)]
    seeds = sorted({one["seed"] for one in unadjusted if one["method"] in CURVE})
    for seed in seeds:
        here = [one for one in unadjusted if one["seed"] == seed]
        here.sort(key=lambda one: one["cpu_seconds"])
        axis.plot(*_points(here), ".-", color="grey", zorder=1)
    if seeds:
        label = "unadjusted, with fewer or more steps"
        axis.plot([], [], ".-", color="grey", label=label)
    axis.set(xscale="log", xlabel="CPU seconds", ylabel="NLL (nats a row)", title=name)
    axis.legend(fontsize=8)
    with written_whole(path) as temporary:
        figure.savefig(temporary, dpi=120, bbox_inches="tight")
    plt.close(figure)


def _points(results: list[dict[str, Any]]) -> tuple[list[float], list[float]]:
    return [one["cpu_seconds"] for one in results], [one["nll"] for one in results]


def _verdict(results: list[dict[str, Any]]) -> str:
    """Say what ours reaches, beside bde, over the seeds that both have."""
    sentences = []
    for method in ("quick", *CURVE, "exact"):
        by_seed = {one["seed"]: one for one in results if one["method"] == method}
        theirs = {one["seed"]: one for one in results if one["method"] == "bde"}
        if shared := sorted(by_seed.keys() & theirs.keys()):
            scores = [[one[k]["nll"] for k in shared] for one in (by_seed, theirs)]
            part = np.sum([by_seed[k]["cpu_seconds"] for k in shared]) / np.sum(
                [theirs[k]["cpu_seconds"] for k in shared]
            )
            said = _beside(*scores)
            sentences.append(f"{_NAMES[method]}: {said} in {part:.0%} of its CPU seconds.")
    return " ".join(sentences) + "\n" if sentences else ""


def _beside(ours: Sequence[float], theirs: Sequence[float]) -> str:
    """Say how far NLL is from bde's, and whether that is more than chance.

    A seed of ours and one of bde's have nothing in common: the runs are no pairs.
    """
    gap = float(np.mean(ours) - np.mean(theirs))
    where = "below" if gap < 0 else "above"
    if len(ours) == 1:
        return f"NLL {abs(gap):.3f} {where} bde's (one seed)"
    error = float(np.sqrt(sum(np.var(one, ddof=1) / len(one) for one in (ours, theirs))))
    said = f"NLL {abs(gap):.3f} ± {error:.2g} {where} bde's"
    return f"{said}, level with it," if abs(gap) < 2 * error else said


def _cell(values: list[float]) -> str:
    if not values:
        return "-"
    mean = float(np.mean(values))
    said = f"{mean:.0f}" if abs(mean) >= 100 else f"{mean:.4g}"
    if len(values) == 1:
        return said
    return f"{said} ± {np.std(values, ddof=1) / np.sqrt(len(values)):.2g}"
