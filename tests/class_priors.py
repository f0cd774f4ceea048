"""Which prior scales, and which units, tell classes apart: held-out log scores of short chains.

    python -m tests.class_priors

What `jaxbnn.tabular.settings.usual_scales` has for classes rests on this, and not on the sets of
`benchmark command`: the classes are of three sets of scikit-learn's, and of two UCI sets of numbers
cut into thirds or six unequal classes. Each fit has few rows, as where the prior matters. A fit
takes a few seconds once its program is compiled; all of them about twenty minutes of a core.
Results are stored one by one, also in `record/benchmarks/class_priors.json`, from which any machine
goes on; what is stored is not run again, unless the code has changed.
"""

import hashlib
import inspect
import itertools
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from experiments.benchmarks import check_known
from experiments.benchmarks.stored import FOLDER, Stored, age_of, digest_by_now
from experiments.datasets import Split, standardised, uci
from experiments.errors import InputError
from experiments.record.code import code_digest
from experiments.results import Row, markdown_table, written_whole
from jaxbnn.prediction import scores
from jaxbnn.tabular.posteriors import make_posterior
from jaxbnn.tabular.samplers import run as sampled
from jaxbnn.tabular.settings import Settings

PAGE = Path(__file__).with_name("CLASS_PRIORS.md")
KEPT = FOLDER / "class_priors.json"
_ROWS, _HELD_OUT = 160, 2000
# Shares of the rows below each border: thirds, and six classes of which two are common.
_THIRDS, _SIXTHS = (1 / 3, 2 / 3), (0.33, 0.68, 0.76, 0.82, 0.87)
_UCI = {
    "kin8nm": ("kin8nm", _THIRDS),
    "protein": ("protein-tertiary-structure", _SIXTHS),
}
SETS = ("wines", "cancer", "digits", *_UCI)


class Network(NamedTuple):
    """Hidden units, their activation, and the prior's scales of the first and the last layer."""

    hidden: tuple[int, ...]
    activation: str
    scales: tuple[float, float]

    def __str__(self) -> str:
        """Return it as the table names it."""
        first, last = self.scales
        if not self.hidden:
            return f"none, {first:g}"
        return f"{self.hidden[0]} {self.activation}, {first:g} and {last:g}"


_EACH = ((2.0, 1.0), (2.0, 3.0), (1.0, 3.0), (1.0, 6.0))
NETWORKS = {
    str(one): one
    for one in [
        *(Network((), "tanh", (scale, scale)) for scale in (3.0, 6.0, 12.0)),
        *(Network((50,), "tanh", scales) for scales in _EACH),
        *(Network((50,), "relu", scales) for scales in _EACH[:3]),
    ]
}


def run(
    out_dir: Path,
    *,
    sets: tuple[str, ...] | list[str] = SETS,
    networks: tuple[str, ...] | list[str] = tuple(NETWORKS),
    splits: tuple[int, ...] | list[int] = (0, 1, 2),
    write_table: bool = False,
) -> list[Row]:
    """Fit what is not stored yet; one row a set, network and split.

    Parameters
    ----------
    out_dir
        Where results are stored.
    sets, networks
        Some of SETS and of NETWORKS.
    splits
        Seeds of the rows and of the chains.
    write_table
        Whether to write the table beside this file from all that is stored; it says how much is of
        an earlier state of the code.
    """
    check_known(sets, SETS)
    check_known(networks, NETWORKS)
    stored = Stored(out_dir / "stored", KEPT)
    stored.keep()  # what was stored when this was stopped
    code = _code()  # of what this process has loaded
    # A program serves all splits of a set.
    for name, network, split in itertools.product(sets, networks, splits):
        case = f"{name}, {network}, {split}"
        if case in stored and stored[case].get("code") == code:
            continue
        score = log_score(name, NETWORKS[network], split)
        if digest_by_now(_code) != code:
            raise InputError("The code was changed since it was loaded: begin again.")
        found = {"set": name, "network": network, "split": split, "log_score": score}
        stored[case] = found | {"code": code}
        stored.keep()
        print(f"{case}: {score:.4f}", flush=True)
    results = stored.values()
    if write_table:
        with written_whole(PAGE) as temporary:
            temporary.write_text(table_of(results, code), encoding="utf-8")
        print(PAGE)
    return [
        Row(
            "log_score",
            f"{one['set']}, {one['network']}, split {one['split']}{age_of(one, code)}",
            one["log_score"],
        )
        for one in results
    ]


def _code() -> str:
    """Return a digest of the code behind a result: of the package, and of what a fit is here."""
    # No fit here is by gibbs, or chooses its sampler.
    used = code_digest(
        [
            *(f"jaxbnn.tabular.{name}" for name in ("posteriors", "samplers", "settings")),
            "jaxbnn.prediction.scores",
            "experiments.datasets",
        ],
        ("jaxbnn.gibbs", "jaxbnn.tabular.choice"),
    )
    here = [inspect.getsource(function) for function in (log_score, table)]
    return hashlib.sha256(repr([used, *here, _ROWS, _HELD_OUT, _UCI]).encode()).hexdigest()[:16]


def log_score(name: str, network: Network, split: int, **changes: Any) -> float:
    """Return the mean log score of held-out rows, in nats; `changes` are of the chains.

    Raises
    ------
    KeyboardInterrupt
        The chains were stopped: those that there are would be scored as if they were whole.
    """
    x, y = table(name)
    order = np.random.default_rng(100 + split).permutation(len(y))
    train, test = order[:_ROWS], order[_ROWS : _ROWS + _HELD_OUT]
    x = x[:, x[train].std(axis=0) > 0]
    scaled = standardised(Split(x[train], y[train], x[test], y[test]))
    seen, fresh = scaled.x_train.astype(np.float32), scaled.x_test.astype(np.float32)
    settings = Settings(
        *("nuts", network.hidden, 2, 200, 200, 0.3, split, "categorical"),
        relevance=bool(network.hidden),
        activation=network.activation,
        weight_scales=network.scales,
    )._replace(**changes)
    posterior = make_posterior("nuts", settings, seen, y[train], int(y.max()) + 1)
    fitted = sampled("nuts", posterior, settings)
    if fitted.draws is not None and fitted.draws.interrupted:
        raise KeyboardInterrupt
    return float(np.mean(scores(fitted.positions, fresh, y[test], posterior).log_score))


def table(name: str) -> tuple[np.ndarray, np.ndarray]:
    """Return rows and classes, whole numbers from 0."""
    # Here, so that the other benchmarks need no scikit-learn.
    from sklearn import datasets

    if name in _UCI:
        folder, borders = _UCI[name]
        split = uci(folder, 0)
        y = np.asarray(split.y_train)
        return np.asarray(split.x_train), np.searchsorted(np.quantile(y, borders), y).astype("i4")
    load = {
        "wines": datasets.load_wine,
        "cancer": datasets.load_breast_cancer,
        "digits": datasets.load_digits,
    }
    found = load[name]()
    y = found.target % 2 if name == "digits" else found.target
    return found.data, y.astype("i4")


def table_of(results: list[dict[str, Any]], code: str) -> str:
    """Return the text: a table of mean log scores, a row a network and a column a set.

    `code` is today's digest.
    """
    names = [name for name in SETS if any(one["set"] == name for one in results)]
    lines = []
    for network in NETWORKS:
        cells = [network]
        for name in names:
            found = [
                one["log_score"]
                for one in results
                if (one["set"], one["network"]) == (name, network)
            ]
            cells.append(f"{np.mean(found):.3f}" if found else "-")
        lines.append(cells)
    splits = len({one["split"] for one in results})
    held_out = [f"{_rows_held_out(name):,} of {name}" for name in names]
    old = sum(age_of(one, code) != "" for one in results)
    age = f"{old} of {len(results)} results are by an earlier state of the code." if old else ""
    return (
        "# Prior scales and units for classes\n\n"
        "Made by `python -m tests.class_priors`.\n\n"
        f"Mean log scores of held-out rows, in nats, over {splits} splits: {_ROWS} rows "
        "to learn from, two chains of 200 + 200\ndraws, scales of the prior learnt, with hidden "
        "units one for each column. Hidden units, their activation, and the prior's\n"
        "scales of the first and the last layer (of lines between classes, their only one). "
        "Digits are even or odd, kin8nm is cut\ninto thirds, protein into six classes of which "
        f"two are common.\n\nHeld-out rows of a split: {', '.join(held_out)}.\n\n"
        + f"{age}\n\n" * bool(age)
        + markdown_table(["network", *names], lines)
    )


def _rows_held_out(name: str) -> int:
    return min(_HELD_OUT, len(table(name)[1]) - _ROWS)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        run(Path(folder), splits=(0, 1), write_table=True)
