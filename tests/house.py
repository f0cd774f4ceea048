"""The library's size and shape, before and now, counted from its files.

    python -m tests.house [--before COMMIT] [--page docs/house.md]

Nothing is imported: every number is read from the syntax trees of two checkouts.
"""

import argparse
import ast
from collections.abc import Iterator
from pathlib import Path

from experiments.record.ledger import current_commit
from tests.before_after.__main__ import BEFORE, ROOT, checkout

PAGE = ROOT / "docs" / "house.md"
_TEXT = """# The code base in numbers

Counted by `python -m tests.house` from the files of `jaxbnn/` at commit {before} and at {after}.
A function's lines are those of its code, without its docstring; a call is as wide as the largest
number of parameters that a private function, or one that no package lists as public, takes.

| | before | now |
| --- | --- | --- |
{rows}
"""


def counted(root: Path) -> dict[str, str]:
    """Return what is counted of one checkout, by its name."""
    trees = {
        path: ast.parse(path.read_text(encoding="utf-8"))
        for path in sorted((root / "jaxbnn").rglob("*.py"))
    }
    lines = {path: len(path.read_text(encoding="utf-8").splitlines()) for path in trees}
    public = {path: names for path, tree in trees.items() if (names := _all_of(tree))}
    listed = set().union(*public.values())
    functions = [(one, path) for path, tree in trees.items() for one in _functions(tree)]
    longest, where = max(functions, key=lambda pair: _code_lines(pair[0]))
    inside = [pair for pair in functions if pair[0].name not in listed | {"__init__"}]
    widest, place = max(inside, key=lambda pair: _width(pair[0]))
    sampling = [path for path in trees if path.is_relative_to(root / "jaxbnn" / "sampling")]
    (body,) = [one for one, path in functions if one.name == "sample" and path in sampling]
    return {
        "files": str(len(trees)),
        "lines": f"{sum(lines.values()):,}",
        "longest file": _named(max(lines, key=lines.__getitem__), root, max(lines.values())),
        "files of more than 350 lines": str(sum(n > 350 for n in lines.values())),
        "longest function": f"{_code_lines(longest)} lines, `{longest.name}` of "
        f"`{where.relative_to(root)}`",
        "widest internal call": f"{_width(widest)} parameters, `{widest.name}` of "
        f"`{place.relative_to(root)}`",
        "public names, over all packages": str(len(listed)),
        "files and lines of the runner, `sampling`": f"{len(sampling)}, "
        f"{sum(lines[path] for path in sampling):,}",
        "body of `sample`": f"{_code_lines(body)} lines",
    }


def _named(path: Path, root: Path, count: int) -> str:
    return f"{count}, `{path.relative_to(root)}`"


def _all_of(tree: ast.Module) -> set[str]:
    for node in tree.body:
        is_all = isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__"
        if is_all and isinstance(node.value, ast.List | ast.Tuple):
            return {ast.literal_eval(one) for one in node.value.elts}
    return set()


def _functions(tree: ast.Module) -> Iterator[ast.FunctionDef]:
    yield from (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef))


def _code_lines(function: ast.FunctionDef) -> int:
    body = function.body[1:] if ast.get_docstring(function) else function.body
    return (body[-1].end_lineno or 0) - body[0].lineno + 1 if body else 0


def _width(function: ast.FunctionDef) -> int:
    given = function.args
    names = [one.arg for one in (*given.posonlyargs, *given.args, *given.kwonlyargs)]
    return len([name for name in names if name not in ("self", "cls")])


def main() -> None:
    """Count both checkouts and write the page."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--before", default=BEFORE)
    parser.add_argument("--page", type=Path, default=PAGE)
    options = parser.parse_args()
    with checkout(options.before) as tree:
        before = counted(tree)
    now = counted(ROOT)
    rows = "\n".join(f"| {name} | {before[name]} | {now[name]} |" for name in now)
    text = _TEXT.format(before=options.before, after=current_commit(10), rows=rows)
    options.page.write_text(text, encoding="utf-8")
    print(text, end="")


if __name__ == "__main__":
    main()
