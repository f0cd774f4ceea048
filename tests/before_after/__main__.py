"""Measure every finding before its mend and now, in one table.

    python -m tests.before_after [--only WORD] [--before COMMIT] [--table tests/BEFORE_AFTER.md]

Each module beside this file has a `TITLE` and a function `measure()`, which returns pairs
(quantity, value as text) and calls public functions that exist at both commits. It runs twice,
each time in a process of its own: over a checkout of the commit before the mends, made for this
run, and over the working tree. A module whose mend is younger names the commit before it in a
constant `BEFORE`, and its title says so. What is measured again alone (`--only`) takes the place of
its rows.
"""

import argparse
import ast
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from experiments.record.ledger import current_commit

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
BEFORE = "4bf3397"
FILE = "tests/BEFORE_AFTER.md"
LONGEST_SECONDS = 1800
_MARK = "\x1emeasured "  # so that what a library prints is not taken for the result
_PROGRAM = f"""
import importlib.util, json, sys
spec = importlib.util.spec_from_file_location("measured", sys.argv[1])
module = importlib.util.module_from_spec(spec)
sys.modules["measured"] = module
spec.loader.exec_module(module)
print({_MARK!r} + json.dumps([module.TITLE, module.measure()]))
"""
_INTRODUCTION = """# Findings, before and after

Measured by

    python -m tests.before_after

over commit {before}, or the one that the finding names, and over {after}. "refused" stands before
the sentence that the call ends with; "failed" before an exception that says nothing to the user.

| finding | quantity | before | after |
| --- | --- | --- | --- |
"""


@contextmanager
def checkout(commit: str) -> Iterator[Path]:
    """Put the files of a commit into a folder that goes when the block ends."""
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder) / "tree"
        subprocess.run(
            ["git", "worktree", "add", "--quiet", "--detach", tree, commit], cwd=ROOT, check=True
        )
        try:
            yield tree
        finally:
            subprocess.run(["git", "worktree", "remove", "--force", tree], cwd=ROOT, check=True)


def measure(module: Path, tree: Path) -> tuple[str, dict[str, str]]:
    """Run one module over a tree; a process that ends badly is a result too."""
    with tempfile.TemporaryDirectory() as folder:
        ended = subprocess.run(
            [sys.executable, "-c", _PROGRAM, module],
            cwd=folder,
            env=os.environ | {"PYTHONPATH": str(tree)},
            capture_output=True,
            text=True,
            timeout=LONGEST_SECONDS,
        )
    for line in reversed(ended.stdout.splitlines()):
        if _MARK.strip() in line:
            title, pairs = json.loads(line.split("measured ", 1)[1])
            return title, dict(pairs)
    last = (ended.stderr.strip().splitlines() or ["no output"])[-1]
    return module.stem, {"the measuring script": f"failed: {last}"}


def rows(only: str, before: str) -> Iterator[str]:
    """Yield the table's rows as they are measured."""
    modules = [m for m in sorted(HERE.glob("*.py")) if not m.stem.startswith("_")]
    for module in modules:
        if only not in module.stem:
            continue
        own = before_of(module)
        with checkout(own or before) as old:
            title, was = measure(module, old)
        _, now = measure(module, ROOT)
        title += f" (before: {own})" if own else ""
        for quantity in was | now:
            cells = (title, quantity, was.get(quantity, "-"), now.get(quantity, "-"))
            yield "| " + " | ".join(_cell(text) for text in cells) + " |"


def before_of(module: Path) -> str | None:
    """Return the commit that a module names in `BEFORE`; it is not imported, since it measures."""
    for statement in ast.parse(module.read_text()).body:
        if isinstance(statement, ast.Assign) and ast.unparse(statement.targets[0]) == "BEFORE":
            return ast.literal_eval(statement.value)
    return None


def _cell(text: str) -> str:
    return " ".join(str(text).split()).replace("|", "\\|")


def main() -> None:
    """Measure, print, and write the table where all of it was measured."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--only", default="", help="modules whose name holds this word")
    parser.add_argument("--before", default=BEFORE, help=f"the commit to compare with ({BEFORE})")
    parser.add_argument("--table", type=Path, default=ROOT / FILE)
    arguments = parser.parse_args()
    text = _INTRODUCTION.format(before=arguments.before, after=f"commit {current_commit(10)}")
    print(text, end="")
    for row in rows(arguments.only, arguments.before):
        print(row, flush=True)
        text += row + "\n"
    if arguments.only:
        text = merged(arguments.table.read_text(), text) if arguments.table.exists() else text
    arguments.table.write_text(text)


def merged(table: str, part: str) -> str:
    """Return the table with the rows of `part` in the places of those of the same findings."""
    new: dict[str, list[str]] = {}
    for row in [line for line in part.splitlines() if line.startswith("| ")][2:]:
        new.setdefault(_title(row), []).append(row)
    names = " and ".join(f'"{title}"' for title in new)
    head, _, notes = table.rstrip("\n").partition("\n\nMeasured again")
    lines, left = [], dict(new)
    for line in head.splitlines():
        if _title(line) not in new:
            lines.append(line)
        else:  # the first of the old rows makes room for all the new ones
            lines += left.pop(_title(line), [])
    for rows_of_a_new_finding in left.values():
        lines += rows_of_a_new_finding
    earlier = [f"Measured again{notes}"] if notes else []
    note = f"Measured again over commit {current_commit(10)}: {names}."
    return "\n".join([*lines, "", *earlier, note]) + "\n"


def _title(line: str) -> str:
    """Return a row's first cell; a line of text is no row of a finding."""
    return line.removeprefix("| ").split(" | ")[0] if line.startswith("| ") else ""


if __name__ == "__main__":
    main()
