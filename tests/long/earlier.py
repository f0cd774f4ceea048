"""Outcomes of an earlier commit, for the tests that nothing changed since then can touch.

A long test that fails for a reason of its own, a tolerance say, is mended in hours less if all the
others need not run again. What may have changed is therefore narrow: files of `tests/` that are
neither the statistical kit nor what runs the tests, and modules of the library. Of these, some
differ by checks alone, which may end a call but change no number of one that goes on: a test file
counts as touched if it, or what names it, mentions such a module, by its text, so that programs
which are run by name count too; but not those of its tests that the quick suite makes with fewer
chains, where the same checks would end them. Of all other modules what leads to them is changed as
well, see `tests.long.users`. A test file that changed is touched itself. The library never imports
the experiments: where they or their configs changed, what mentions either is touched. Where the
record, what writes and reads it, or a page changed, what names its folder or its file is touched.
What had failed is run again in any case.

A table of the library of which only comments changed counts as unchanged.

Outcomes lie in `.long/<commit>/`, which git ignores; `keep` puts them into `tests/long/kept/`, so
that another checkout can go on with them.
"""

import ast
import json
import re
import subprocess
import sys
import tomllib
from collections.abc import Collection, Mapping
from pathlib import Path

from experiments.record.checks import without_checks
from experiments.record.code import BIAS_TABLE, PACKAGES
from tests.long.definitions import changed_names
from tests.long.users import EXPERIMENTS, users_of

_EVERY_TEST = (
    "tests/kit/",
    "tests/conftest.py",
    "tests/long/shard.py",
    "tests/long/comparisons.py",
)
_NO_TEST = tuple(
    f"tests/long/{name}.py"
    for name in ("__main__", "definitions", "earlier", "users", "test_earlier", "test_users")
)
# Bad input for the public functions; modules that are imported by names made at run time.
_HOSTILE = "tests/kit/hostile"
_LIBRARY = "jaxbnn/"
# Of what no module of the library imports: tests of it name one of the two.
_EXPERIMENTS = ("experiments/", "configs/")
# What no kernel reads: tests of what is written there name it.
_PAGES = ("record/", "docs/")
_PAGE = (".md", "mkdocs.yml", BIAS_TABLE)
# What writes and reads the record: no study's numbers come from there.
_OF_RECORD = "experiments/record/"
_NAMES_RECORD = r"\bexperiments(\.record\b| import .*\brecord\b)|\bledger\b"
# They read the record under names of their own.
_READERS = r"\bexperiments\.(record import|record\.pages|benchmarks)\b"
_KEPT = "tests/long/kept/"


def keep(root: Path, folder: Path) -> Path:
    """Put a commit's outcomes and comparisons where git sees them; return the outcomes' file."""
    kept = root / _KEPT
    kept.mkdir(parents=True, exist_ok=True)
    for ending in ("jsonl", "comparisons"):
        texts = [path.read_text(encoding="utf-8") for path in sorted(folder.glob(f"*.{ending}"))]
        (kept / f"{folder.name}.{ending}").write_text("".join(texts), encoding="utf-8")
    return kept / f"{folder.name}.jsonl"


def take_over(root: Path, folder: Path, commit: str, tests: list[str]) -> None:
    """Copy a commit's outcomes of tests that are not touched into this commit's folder.

    Ends the program in a sentence where anything changed that may touch every test.
    """
    outcomes = _held(root, folder, commit, "jsonl")
    comparisons = _held(root, folder, commit, "comparisons")
    if not outcomes:
        sys.exit(
            f"{folder.parent / commit} is not there, nor {_KEPT}{commit}.jsonl; give a commit "
            "other than this one, whose outcomes were kept, by ten digits."
        )
    git = ["git", "diff", "--name-only", commit, "HEAD"]
    found = subprocess.run(git, cwd=root, capture_output=True, text=True, check=True)
    changed = [
        path
        for path in found.stdout.split()
        if not (path.startswith(_LIBRARY) and path.endswith(".toml"))
        or not _reads_the_same(*_both(root, commit, path))
    ]
    rewritten: dict[str, Collection[str] | None] = {}
    for path in changed:
        if not path.startswith(_LIBRARY) or path == BIAS_TABLE:
            continue
        if not path.endswith(".py"):
            sys.exit(f"{path} changed since then, which may touch every test: run them all.")
        before, now = _both(root, commit, path)
        if not differs_by_checks(before, now):
            rewritten[path] = changed_names(_unchecked(before), _unchecked(now))
    families = {path: families_of(root, path) for path in changed}
    others = [path for path in changed if not families[path] and path not in rewritten]
    touched = touched_by(root, others, rewritten)
    rest = [path for path in others if not path.startswith(_LIBRARY) or path == BIAS_TABLE]
    by_checks = touched - touched_by(root, rest, rewritten)
    again = tuple(f"[{name}]" for names in families.values() for name in names)
    kept = set()
    name = f"from-{commit}"
    with (folder / f"{name}.jsonl").open("w", encoding="utf-8") as file:
        for path in outcomes:
            for line in map(json.loads, path.open(encoding="utf-8")):
                is_kept = line["outcome"] != "failed" and line["test"] in tests
                is_kept &= not line["test"].endswith(again)
                path = line["test"].split("::")[0]
                is_kept &= path not in touched or (path in by_checks and is_quick(line, tests))
                if is_kept:
                    kept.add(line["test"])
                    file.write(json.dumps({"commit": commit, **line}) + "\n")
    with (folder / f"{name}.comparisons").open("w", encoding="utf-8") as file:
        for path in comparisons:
            for text in path.open(encoding="utf-8"):
                if json.loads(text)["test"] in kept:
                    file.write(text)
    told = ", ".join([*sorted(touched), *again]) or "none"
    print(f"{len(kept)} outcomes of {commit}; run again: {told}")


def is_quick(line: Mapping[str, str], tests: Collection[str]) -> bool:
    """Return whether a long test is one of the quick suite with more chains, or with mutants.

    Parameters
    ----------
    line
        With the name of the test.
    tests
        All long tests.

    Examples
    --------
    >>> tests = ["t.py::test[a-full]", "t.py::test[b-full]", "t.py::test[b-short]", "t.py::run"]
    >>> [is_quick({"test": name}, tests) for name in tests]
    [True, False, False, False]
    """
    name, _, case = line["test"].partition("[")
    sizes = {"full": "short", "mutants": "short"}
    parts = case.removesuffix("]").split("-")
    quick = f"{name}[{'-'.join(sizes.get(part, part) for part in parts)}]"
    return bool(sizes.keys() & set(parts)) and quick not in tests


def _held(root: Path, folder: Path, commit: str, ending: str) -> list[Path]:
    """Return a commit's files of outcomes or comparisons: of this checkout, or the kept ones.

    Of this commit itself the kept ones alone: its folder is what is written to.
    """
    own = sorted((folder.parent / commit).glob(f"*.{ending}")) if commit != folder.name else []
    return own or sorted((root / _KEPT).glob(f"{commit}.{ending}"))


def _both(root: Path, commit: str, path: str) -> tuple[str, str]:
    """Return a file's text at the earlier commit, and now; "" where it is not there."""
    git = ["git", "show", f"{commit}:{path}"]
    before = subprocess.run(git, cwd=root, capture_output=True, text=True).stdout
    now = root / path
    return before, now.read_text(encoding="utf-8") if now.exists() else ""


def differs_by_checks(before: str, now: str) -> bool:
    """Return whether two texts of a module are the same program but for checks of what is given.

    What a check is, `experiments.record.checks` says.

    Examples
    --------
    >>> body = "def f(x):\\n    {}return x + 1\\n"
    >>> check = "if x < 0:\\n        raise ValueError(x)\\n    "
    >>> differs_by_checks(body.format(""), body.format(check))
    True
    >>> differs_by_checks(body.format(""), body.format("x = 2\\n    "))
    False
    >>> differs_by_checks(body.format(""), body.format("") + "def check_size(x):\\n    pass\\n")
    True
    """
    return ast.dump(_unchecked(before)) == ast.dump(_unchecked(now))


def _reads_the_same(before: str, now: str) -> bool:
    """Return whether two texts of a table differ in comments only.

    Examples
    --------
    >>> _reads_the_same("a = 1", "# one\\na = 1"), _reads_the_same("a = 1", "a = 2")
    (True, False)
    """
    return tomllib.loads(before) == tomllib.loads(now)


def _unchecked(text: str) -> ast.Module:
    return without_checks(ast.parse(text))


def families_of(root: Path, path: str) -> list[str]:
    """Return the families of bad input that are all that a changed file may touch, or none.

    Each is a test of its own, by its name. Where another file takes something from this one, more
    may be touched.
    """
    now = root / path
    if not path.startswith(_HOSTILE) or not now.exists():
        return []
    others = [one for one in (root / "tests").rglob("*.py") if one.stem != now.stem]
    if any(re.search(rf"\b{now.stem}\b", one.read_text(encoding="utf-8")) for one in others):
        return []
    return [
        key.value
        for node in ast.parse(now.read_text(encoding="utf-8")).body
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Dict)
        if [getattr(target, "id", "") for target in node.targets] == ["FAMILIES"]
        for key in node.value.keys
        if isinstance(key, ast.Constant) and isinstance(key.value, str)
    ]


def touched_by(
    root: Path, changed: list[str], rewritten: Mapping[str, Collection[str] | None] | None = None
) -> set[str]:
    """Return the files of tests that changed files may touch, as paths below `root`.

    Of the library `changed` are those that differ by checks alone, `rewritten` all others, with the
    names that changed in them (None: any). Examples in docstrings are tests of their module.
    """
    changed = [path for path in changed if not path.startswith(_KEPT)]
    pages = [path for path in changed if path.startswith(_PAGES) or path.endswith(_PAGE)]
    changed = [path for path in changed if path not in pages]
    for path in changed:
        is_test = path.startswith("tests/") and path.endswith(".py")
        may_touch_all = path.startswith(_EVERY_TEST) and not path.startswith(_HOSTILE)
        is_known = path.startswith((_LIBRARY, *_EXPERIMENTS)) or is_test
        if not is_known or may_touch_all:
            sys.exit(f"{path} changed since then, which may touch every test: run them all.")
    texts = {
        str(path.relative_to(root)): path.read_text(encoding="utf-8")
        for path in (root / "tests").rglob("*.py")
    }
    # What collects the tests names many, and computes nothing.
    spared = {*_NO_TEST, "tests/conftest.py"}
    of_record = [path for path in changed if path.startswith(_OF_RECORD)]
    changed = [path for path in changed if path not in of_record]
    experiments = [path for path in changed if path.startswith(_EXPERIMENTS)]
    touched = {path for path in changed if path not in (*_NO_TEST, *experiments)}
    examples: set[str] = set()
    if rewritten:
        uses = users_of(root, rewritten)
        touched |= {path for path, text in texts.items() if uses.search(text)} - spared
        library = [path for one in PACKAGES for path in (root / one).rglob("*.py")]
        examples = {
            str(path.relative_to(root))
            for path in library
            if uses.search(path.read_text(encoding="utf-8"))
        }.union(rewritten)
    if experiments:
        of_them = re.compile(EXPERIMENTS)
        touched |= {path for path, text in texts.items() if of_them.search(text)} - spared
    if of_record:
        of_it = re.compile(rf"{_NAMES_RECORD}|{_named_page('record/')}")
        touched |= {path for path, text in texts.items() if of_it.search(text)} - spared
    if pages:
        of_pages = re.compile("|".join(sorted(map(_named_page, pages))))
        touched |= {path for path, text in texts.items() if of_pages.search(text)} - spared
    while True:
        modules = {path for path in touched if path.startswith(_LIBRARY)}
        words = [_named(Path(path)) for path in sorted(touched - modules)]
        # Of a module that differs by checks alone: what names it with its package.
        dotted = [Path(path).with_suffix("").parts[-2:] for path in sorted(modules)]
        words += [rf"\b{re.escape('.'.join(parts))}\b" for parts in dotted]
        named = re.compile("|".join(filter(None, words)), re.MULTILINE)
        more = {path for path, text in texts.items() if named.pattern and named.search(text)}
        # Fixtures of a folder are taken by their names, without an import.
        folders = tuple(path[: -len("conftest.py")] for path in touched if "/conftest.py" in path)
        more |= {path for path in texts if path.startswith(folders)}
        more -= touched | spared
        if not more:
            return touched | examples
        touched |= more


def _named_page(path: str) -> str:
    """Return the pattern of a text that names a page, or its folder where pages have one.

    Examples
    --------
    >>> pattern = re.compile(_named_page("record/toy/run.json"))
    >>> texts = ["record/toy", "'record'", "experiments.benchmarks.stored", "record(comparison)"]
    >>> [bool(pattern.search(text)) for text in texts]
    [True, True, True, False]
    >>> re.search(_named_page("docs.md"), "docs-md"), _named_page("README.md")
    (None, '\\\\bREADME\\\\b')
    """
    if path.startswith(_PAGES):
        folder = path.split("/")[0]
        readers = "|" + _READERS if folder == "record" else ""
        return rf"\b{folder}/|[\"']{folder}[\"']{readers}"
    page = Path(path)
    return rf"\b{page.stem if page.stem.isupper() else re.escape(page.name)}\b"


def _named(path: Path) -> str:
    """Return the pattern of a text that uses a file of tests: as a module, a program or a word.

    Examples
    --------
    >>> pattern = re.compile(_named(Path("tests/room/map.py")), re.MULTILINE)
    >>> uses = ["import tests.room.map", "from tests.room import one, map as two", "python map.py"]
    >>> all(map(pattern.search, [*uses, "from tests.room import (\\n    map,\\n)", "run('map')"]))
    True
    >>> any(map(pattern.search, ["jax.tree.map", "map(f, x)", "a map of the house"]))
    False
    """
    stem = path.stem
    if stem in ("__init__", "__main__"):
        return ""
    if stem.startswith("test_"):
        # What uses a test file imports it; prose names it with its ending, and functions of
        # other files may be called alike.
        return rf"(?<!def )\b{stem}\b(?!\.py)"
    stem = "hostile" if stem.startswith("hostile") else rf"{stem}\b"
    in_folder = rf"\b{path.parent.name}[./]{stem}"
    imported = rf"\bimport\b.*\b{stem}|^ +{stem},$"
    return rf"{in_folder}|{imported}|\b{stem}\.py\b|[\"']{stem}[\"']"
