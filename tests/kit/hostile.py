"""Bad and extreme input for the public functions: an answer or one sentence, nothing else.

`python -m tests.kit.hostile [--examples N] [--only WORD]` tries N calls a family and prints the
table kind of input x outcome; it ends with 1 if any call gave a NaN out of finite numbers, an
array of a wrong shape, or an exception that is not one sentence of ours. It runs as a user's
program does: without the tests' import hook and strict modes.
"""

import argparse
import ast
import functools
import importlib
import multiprocessing
import pickle
import sys
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

import jaxbnn
from experiments.record.ledger import current_commit
from tests.kit.lowering import share_contexts
from tests.kit.memory import Programs

ROOT = Path(__file__).parents[2]
LONGEST_SENTENCE = 500
FILE = "tests/HOSTILE.md"
_INTRODUCTION = """# Bad input, and what came of it

Made on version {version}, commit {commits}, by

    {command}

Each call ended in an answer (finite where the input is, and of the right shape), in one sentence,
or in a failure: a traceback from inside, a NaN out of numbers, an answer out of what is no number
or no label. The command prints every kind in every family, and failures one by one.
"""


class Call(NamedTuple):
    """One call to make.

    Attributes
    ----------
    name, kind
        What is called, and the kind of its input; rows of the table.
    function
        Takes nothing; returns a PyTree of arrays.
    shapes
        What the answer must look like: a PyTree of shapes as its leaves (None: not looked at).
    allows
        "finite"; "infinite": finite or infinite, where a number has no finite answer in its
        type; "nan": NaN too, where NaN went in; "nothing": only a sentence.
    """

    name: str
    kind: str
    function: Callable[[], Any]
    shapes: Any = None
    allows: str = "finite"


class Said(str):
    """What a command said before it ended with 2."""


def outcome(call: Call) -> tuple[str, str]:
    """Make the call: ("answer" or "sentence" or "FAILURE", what was seen)."""
    try:
        with warnings.catch_warnings():
            # A cast that loses the imaginary part is a wrong answer.
            warnings.simplefilter("error", np.exceptions.ComplexWarning)
            answer = call.function()
        if isinstance(answer, Said):
            is_one = answer.strip() and "\n" not in answer.strip()
            short = len(answer) <= LONGEST_SENTENCE
            return ("sentence" if is_one and short else "FAILURE"), answer
        problem = _problem(call, answer)
    except (ValueError, TypeError) as error:
        problem = _not_a_sentence(error)
        if problem is None:
            return "sentence", str(error)
    except Exception as error:
        problem = f"{type(error).__name__}: {error} {_where(error)}"
    return ("FAILURE", problem) if problem else ("answer", "")


def _problem(call: Call, answer: Any) -> str | None:
    if call.allows == "nothing":
        return "an answer out of what is no number"
    leaves = [np.asarray(leaf) for leaf in jax.tree.leaves(answer) if not _is_key(leaf)]
    if call.shapes is not None:
        shapes = [leaf.shape for leaf in leaves]
        if shapes != list(call.shapes):
            return f"shapes {shapes}, not {list(call.shapes)}"
    for leaf in leaves:
        if not jnp.issubdtype(leaf.dtype, jnp.inexact):  # NumPy's does not know bfloat16
            continue
        leaf = leaf.astype(np.float32) if leaf.dtype == jnp.bfloat16 else leaf
        if call.allows != "nan" and np.isnan(leaf).any():
            return "a silent NaN"
        if call.allows == "finite" and not np.isfinite(leaf).all():
            return "a silent infinity"
    return None


def _is_key(leaf: Any) -> bool:
    return isinstance(leaf, jax.Array) and jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key)


def _not_a_sentence(error: Exception) -> str | None:
    message = str(error)
    frame = traceback.extract_tb(error.__traceback__)[-1]
    home = Path(frame.filename).resolve()
    is_ours = any(home.is_relative_to(ROOT / part) for part in ("jaxbnn", "experiments"))
    # A dtype that JAX does not know at all it refuses in one sentence of its own.
    is_no_number = "valid JAX" in message and "\n" not in message
    raised = is_ours and any(a <= frame.lineno <= b for a, b in _raising(frame.filename))
    if not raised and not is_no_number:
        return f"not our sentence: {type(error).__name__}: {message[:200]!r} {_where(error)}"
    if "\n" in message.strip() or len(message) > LONGEST_SENTENCE or not message:
        return f"not one sentence: {message[:200]!r}"
    return None


@functools.cache
def _raising(path: str) -> list[tuple[int, int]]:
    """Return the first and last lines of a module's raise statements."""
    tree = ast.parse(Path(path).read_text(encoding="utf-8"))
    return [
        (node.lineno, node.end_lineno) for node in ast.walk(tree) if isinstance(node, ast.Raise)
    ]


def _where(error: Exception) -> str:
    frames = traceback.extract_tb(error.__traceback__)
    ours = [f for f in frames if str(ROOT / "jaxbnn") in f.filename]
    last = ours[-1] if ours else frames[-1]
    return f"at {Path(last.filename).name}:{last.lineno}"


class Report:
    """Counts of outcomes by family and kind, and the failures one by one."""

    def __init__(self, *commits: str):
        self.commits = set(commits)
        self.counts: dict[tuple[str, str], Counter] = {}
        self.failures: dict[tuple[str, str, str], tuple[int, str]] = {}

    def add(self, family: str, call: Call, number: int, words: str = "") -> None:
        """Make a call and count its outcome; a sentence must hold `words`."""
        what, seen = outcome(call)
        if what == "sentence" and words not in seen:
            what = "FAILURE"
        self.counts.setdefault((family, call.kind), Counter())[what] += 1
        if what == "FAILURE":
            self.failures.setdefault((family, call.name, call.kind), (number, seen))

    def merge(self, other: "Report") -> None:
        """Add the counts and failures of another report."""
        for key, count in other.counts.items():
            self.counts.setdefault(key, Counter()).update(count)
        self.failures |= other.failures
        self.commits |= other.commits

    def table(self) -> str:
        """Return Markdown: family, kind, number tried, answers, sentences, failures."""
        columns = ("answer", "sentence", "FAILURE")
        lines = ["| family | kind of input | tried | answers | sentences | failures |"]
        lines.append("| --- | --- | --- | --- | --- | --- |")
        for (family, kind), count in sorted(self.counts.items()):
            numbers = " | ".join(str(count[column]) for column in columns)
            lines.append(f"| {family} | {kind} | {count.total()} | {numbers} |")
        total = sum(self.counts.values(), Counter())
        numbers = " | ".join(str(total[column]) for column in columns)
        lines.append(f"| all |  | {total.total()} | {numbers} |")
        return "\n".join(lines)

    def summary(self) -> str:
        """Return two short Markdown tables: all families by kind, and all kinds by family."""
        return "\n\n".join(
            _sums(name, [(key[index], count) for key, count in self.counts.items()])
            for name, index in (("kind of input", 1), ("family", 0))
        )


def _sums(name: str, counts: list[tuple[str, Counter]]) -> str:
    totals: dict[str, Counter] = {}
    for key, count in counts:
        totals.setdefault(key, Counter()).update(count)
    lines = [
        f"| {name} | tried | answers | sentences | failures |",
        "| --- | --- | --- | --- | --- |",
    ]
    everything = sum(totals.values(), Counter())
    for key, count in [*sorted(totals.items()), ("all", everything)]:
        numbers = " | ".join(str(count[c]) for c in ("answer", "sentence", "FAILURE"))
        lines.append(f"| {key} | {count.total()} | {numbers} |")
    return "\n".join(lines)


def try_family(report: Report, family: str, strategy: st.SearchStrategy, examples: int) -> None:
    """Draw `examples` calls from the strategy of a family and make them."""

    @seed(20240)
    @settings(
        max_examples=examples,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(strategy)
    def go(pair):
        number, call = pair
        report.add(family, call, number)
        programs.drop_if_many(look_at_maps=True)

    programs = Programs()
    go()


_MODULES = (
    "calls",
    "command",
    "diagnostics",
    "diagnostics_found",
    "ensembles",
    "files",
    "gibbs_found",
    "kernels",
    "kernels_found",
    "models",
    "networks",
    "numerics",
    "packages",
    "plots",
    "readings",
    "results",
    "runner",
)


def families() -> dict[str, st.SearchStrategy]:
    """Return the strategy of each family of calls."""
    modules = [importlib.import_module(f"tests.kit.hostile_{name}") for name in _MODULES]
    return {name: one for module in modules for name, one in module.FAMILIES.items()}


def try_one(family: str, examples: int, folder: Path | None) -> Report:
    """Try one family by its name; with a folder, keep what came of it there, or read it back."""
    from tests.kit import hostile_files

    kept = folder / f"{family.replace('/', ' ')}.pickle" if folder else None
    if kept and kept.exists():
        return pickle.loads(kept.read_bytes())
    report = Report(current_commit(10) or "")
    # Files are compiled by nobody, so that many more are tried in the same time.
    count = examples * (8 if family in hostile_files.FAMILIES else 1)
    try_family(report, family, families()[family], count)
    if kept:
        kept.parent.mkdir(parents=True, exist_ok=True)
        kept.write_bytes(pickle.dumps(report))
    return report


def main(arguments: list[str] | None = None) -> int:
    """Try every family; print the table and the failures."""
    from tests.kit import hostile_found, hostile_options

    parser = argparse.ArgumentParser(description="Bad and extreme input, and what comes of it.")
    parser.add_argument("--examples", type=int, default=200, help="calls a family")
    parser.add_argument("--only", default="", help="families whose name holds this word")
    parser.add_argument(
        "--jobs", type=int, default=1, help="families side by side; 0: in this process"
    )
    parser.add_argument("--keep", type=Path, help="a folder: families found there are not tried")
    parser.add_argument("--table", type=Path, help="write its sums by kind and family to this file")
    options = parser.parse_args(arguments)
    share_contexts()
    report = Report(current_commit(10) or "")
    for number, call in enumerate(hostile_found.calls()):
        report.add("found before", call, number, words=call.name)
    if options.only in hostile_options.FAMILY:
        for number, call in enumerate(hostile_options.calls()):
            report.add(hostile_options.FAMILY, call, number)
    names = [family for family in families() if options.only in family]
    each = (options.examples, options.keep)
    for name, found in _tried(names, each, options.jobs):
        report.merge(found)
        print(f"{name}: done", file=sys.stderr, flush=True)
    print(report.table())
    if options.table:
        command = f"python -m tests.kit.hostile --examples {options.examples} --table {FILE}"
        text = _INTRODUCTION.format(
            command=command, version=jaxbnn.__version__, commits=", ".join(sorted(report.commits))
        )
        options.table.write_text(f"{text}\n{report.summary()}\n", encoding="utf-8")
    for (family, name, kind), (number, seen) in report.failures.items():
        print(f"FAILURE {family}: {name}, {kind} (number {number}): {seen}", file=sys.stderr)
    return 1 if report.failures else 0


def _tried(names: list[str], each: tuple, jobs: int) -> Iterator[tuple[str, Report]]:
    if not jobs:
        yield from ((name, try_one(name, *each)) for name in names)
        return
    # A process a family: what one has compiled does not pile up for the next.
    context = multiprocessing.get_context("spawn")
    with context.Pool(jobs, maxtasksperchild=1) as pool:
        tasks = [(name, pool.apply_async(try_one, (name, *each))) for name in names]
        for name, task in tasks:
            yield name, task.get()


if __name__ == "__main__":
    from tests.kit import hostile  # the module that the calls import, not a second one

    sys.exit(hostile.main())
