"""Run the tests of what was changed.

    python -m tests.changed [FILE ...] [--base main] [--list] [-- PYTEST OPTIONS]

Changed is what differs from the base, committed or not, and the files named. A module brings the
test file that covers it (`tests/map.py`) and its own examples; a test file itself; a helper of the
tests, those that import it; a page, the tests of the pages.
"""

import argparse
import re
import subprocess
import sys
import time
from collections.abc import Iterable
from pathlib import Path

from tests.map import ROOT, covered, test_files


def changed_files(base: str) -> list[Path]:
    """Return the files that differ from the base or are not yet tracked."""
    merge_base = _git("merge-base", "HEAD", base) or "HEAD"
    names = _git("diff", "--name-only", "--diff-filter=d", merge_base).splitlines()
    names += _git("ls-files", "--others", "--exclude-standard").splitlines()
    return [ROOT / name for name in dict.fromkeys(names)]


def _git(*arguments: str) -> str:
    result = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True)
    return result.stdout.strip() if result.returncode == 0 else ""


def tests_of(files: Iterable[Path]) -> list[Path]:
    """Return what pytest should run for these files, in their order, each once."""
    by_module = {
        ROOT.joinpath(*name.split(".")).with_suffix(".py"): paths
        for name, paths in covered().items()
    }
    chosen: list[Path] = []
    for path in files:
        path = path.resolve()
        if path in by_module:
            has_examples = path.is_relative_to(ROOT / "jaxbnn")
            chosen += [*by_module[path], *([path] if has_examples else [])]
        elif path.name.startswith("test_") and path.suffix == ".py":
            chosen.append(path)
        elif path.suffix == ".py" and path.is_relative_to(ROOT / "tests"):
            chosen += _importers(path)
        elif path.suffix == ".md" or path.is_relative_to(ROOT / "docs"):
            chosen += [*ROOT.glob("tests/test_readme.py"), *ROOT.glob("tests/docs/test_*.py")]
    return list(dict.fromkeys(chosen))


def _importers(helper: Path) -> list[Path]:
    """Return the test files that import a helper of the tests by name, or are its own."""
    name = ".".join(helper.relative_to(ROOT).with_suffix("").parts)
    folder, _, module = name.rpartition(".")
    imports = re.compile(
        rf"^(from {re.escape(name)} import|import {re.escape(name)}\b|"
        rf"from {re.escape(folder)} import [^\n]*\b{module}\b)",
        re.MULTILINE,
    )
    found = [path for path in test_files() if imports.search(path.read_text(encoding="utf-8"))]
    return found + list((ROOT / "tests").rglob(f"test_{module}.py"))


def main(arguments: list[str] | None = None) -> int:
    """Choose the tests and run them."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    own, options = given, []
    if "--" in given:
        own, options = given[: given.index("--")], given[given.index("--") + 1 :]
    parser = argparse.ArgumentParser(description="Run the tests of what was changed.")
    parser.add_argument("files", nargs="*", type=Path, help="besides what git says has changed")
    parser.add_argument("--base", default="main", help="the branch or commit to compare with")
    parser.add_argument("--list", action="store_true", help="print the tests and run none")
    chosen = parser.parse_args(own)
    missing = [str(path) for path in chosen.files if not path.exists()]
    if missing:
        parser.error(f"there is no file {', '.join(missing)}.")
    # A file that is named says what is wanted; what else has changed is then left out.
    tests = tests_of(chosen.files or changed_files(chosen.base))
    names = [str(path.relative_to(ROOT)) for path in tests]
    if not names:
        print("No changed file has tests; name one: python -m tests.changed FILE")
        return 0
    print("\n".join(names), flush=True)
    if chosen.list:
        return 0
    begun = time.monotonic()
    # Two workers import everything twice, which a few files do not make up for.
    workers = ["-n", "0"] if len(names) <= 3 else []
    command = [sys.executable, "-m", "pytest", *workers, *names, *options]
    result = subprocess.run(command, cwd=ROOT)
    print(f"{len(names)} files in {time.monotonic() - begun:.0f} s")
    return result.returncode


if __name__ == "__main__":
    sys.exit(main())
