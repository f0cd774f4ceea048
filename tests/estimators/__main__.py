"""Run scikit-learn's `check_estimator` on both estimators, and write `tests/ESTIMATORS.md`.

    python -m tests.estimators [--only BayesianRegressor]

A hundred tiny data sets in thirty shapes are fitted: nearly all of the time is compilation.
"""

import os

os.environ.setdefault("SCIPY_ARRAY_API", "1")  # before scikit-learn: else it skips a check

import argparse
import warnings
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import jax
import sklearn
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.estimator_checks import check_estimator

from experiments.record.ledger import current_commit
from jaxbnn.estimators import BayesianClassifier, BayesianRegressor, base
from tests.estimators import beside_command

FILE = Path(__file__).parents[1] / "ESTIMATORS.md"
ESTIMATORS = {kind.__name__: kind for kind in (BayesianRegressor, BayesianClassifier)}
# Few draws: most checks are of the interface, and those of the predictions ask for R^2 > 0.5 and
# for 83 % of the labels.
SETTINGS: dict[str, Any] = {
    "hidden": (4,),
    "sampler": "pcn",
    "chains": 2,
    "warmup": 50,
    "samples": 20,
    "random_state": 0,
}
_TEXT = """# scikit-learn's checks of the estimators

What `check_estimator` says (scikit-learn {sklearn}, JAX {jax}, commit {commit}); made by
`python -m tests.estimators`. No check is expected to fail.

| estimator | checks | passed | failed | skipped | fits | in shapes |
| --- | --- | --- | --- | --- | --- | --- |
{rows}
{others}
Both were made with {settings}.
"""
_BESIDE = """
## Beside the command

The rows that `jaxbnn fit --seed 0` holds out, scored by it and by the estimators, which were fitted
to the other rows with {settings}.
With the command's seed the draws are the same, with another they are others.

| set | score | command | estimator, `random_state=0` | `random_state=1` |
| --- | --- | --- | --- | --- |
{rows}
"""


class Outcome(NamedTuple):
    """What the checks said of one estimator."""

    name: str
    counts: Counter
    others: list[str]
    fits: int
    shapes: int

    @property
    def row(self) -> str:
        """A row of the table."""
        numbers = [self.counts[word] for word in ("passed", "failed", "skipped")]
        cells = [f"`{self.name}`", sum(self.counts.values()), *numbers, self.fits, self.shapes]
        return "| " + " | ".join(map(str, cells)) + " |"


def checked(name: str) -> Outcome:
    """Run all checks on one estimator."""
    shapes: list[tuple] = []
    run = base.run

    def counting(sampler, posterior, *arguments):
        shapes.append((posterior.x.shape, posterior.network))
        return run(sampler, posterior, *arguments)

    with mock.patch.object(base, "run", counting), warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # so few draws do not settle
        found = check_estimator(ESTIMATORS[name](**SETTINGS), on_fail=None, on_skip=None)
    others = [
        f"- {name}, {one['check_name']}, {one['status']}: {one['exception']}"
        for one in found
        if one["status"] != "passed"
    ]
    counts = Counter(one["status"] for one in found)
    return Outcome(name, counts, others, len(shapes), len(set(shapes)))


def main() -> int:
    """Print what the checks say, of both write it to the page; 1 if any failed."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--only", choices=ESTIMATORS, help="one of the two; writes no page")
    only = parser.parse_args().only
    outcomes = [checked(name) for name in ([only] if only else ESTIMATORS)]
    others = [line for outcome in outcomes for line in outcome.others]
    text = _TEXT.format(
        sklearn=sklearn.__version__,
        jax=jax.__version__,
        commit=current_commit(),
        rows="\n".join(outcome.row for outcome in outcomes),
        others="".join(f"{line}\n" for line in ["", *others] if others),
        settings=", ".join(f"`{key}={value!r}`" for key, value in SETTINGS.items()),
    )
    if not only:
        of_command = ", ".join(
            f"`{key}={value!r}`" for key, value in beside_command.SETTINGS.items()
        )
        text += _BESIDE.format(settings=of_command, rows="\n".join(beside_command.rows()))
        FILE.write_text(text, encoding="utf-8")
    print(text)
    return int(any(outcome.counts["failed"] for outcome in outcomes))


if __name__ == "__main__":
    raise SystemExit(main())
