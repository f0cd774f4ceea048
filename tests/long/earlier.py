"""Outcomes of an earlier commit, for the tests that nothing changed since then can touch.

A long test that fails for a reason of its own, a tolerance say, is mended in hours less if all the
others need not run again. What may have changed is therefore narrow: files of `tests/` that are
neither the statistical kit nor what runs the tests. A test file counts as touched if it changed, or
if it or what names it mentions a changed module: by its text, so that programs which are run by
name count too.
"""

import json
import re
import subprocess
import sys
from pathlib import Path

_EVERY_TEST = (
    "tests/kit/",
    "tests/conftest.py",
    "tests/long/shard.py",
    "tests/long/comparisons.py",
)
_NO_TEST = ("tests/long/__main__.py", "tests/long/earlier.py")


def take_over(root: Path, folder: Path, commit: str, tests: list[str]) -> None:
    """Copy what `.long/<commit>/` holds of tests that are not touched into this commit's folder.

    Ends the program in a sentence where anything changed that may touch every test.
    """
    before = folder.parent / commit
    if not before.is_dir():
        sys.exit(f"{before} is not there; give a commit whose outcomes were kept, by ten digits.")
    git = ["git", "diff", "--name-only", commit, "HEAD"]
    found = subprocess.run(git, cwd=root, capture_output=True, text=True, check=True)
    changed = found.stdout.split()
    touched = touched_by(root, changed)
    kept = set()
    name = f"from-{commit}"
    with (folder / f"{name}.jsonl").open("w", encoding="utf-8") as file:
        for path in sorted(before.glob("*.jsonl")):
            for line in map(json.loads, path.open(encoding="utf-8")):
                if line["test"] in tests and line["test"].split("::")[0] not in touched:
                    kept.add(line["test"])
                    file.write(json.dumps({"commit": commit, **line}) + "\n")
    with (folder / f"{name}.comparisons").open("w", encoding="utf-8") as file:
        for path in sorted(before.glob("*.comparisons")):
            for text in path.open(encoding="utf-8"):
                if json.loads(text)["test"] in kept:
                    file.write(text)
    print(f"{len(kept)} outcomes of {commit}; run again: {', '.join(sorted(touched)) or 'none'}")


def touched_by(root: Path, changed: list[str]) -> set[str]:
    """Return the files of tests that changed files may touch, as paths below `root`."""
    for path in changed:
        is_test = path.startswith("tests/") and path.endswith(".py")
        if not is_test or path.startswith(_EVERY_TEST):
            sys.exit(f"{path} changed since then, which may touch every test: run them all.")
    texts = {
        str(path.relative_to(root)): path.read_text(encoding="utf-8")
        for path in (root / "tests").rglob("*.py")
    }
    touched = {path for path in changed if path not in _NO_TEST}
    while True:
        stems = {Path(path).stem for path in touched} - {"__init__", "__main__"}
        # What uses a test file imports it; prose names it with its ending, and functions of
        # other files may be called alike.
        words = [
            rf"(?<!def )\b{s}\b(?!\.py)" if s.startswith("test_") else re.escape(s)
            for s in sorted(stems)
        ]
        named = re.compile("|".join(words))
        more = {path for path, text in texts.items() if stems and named.search(text)}
        more -= touched | set(_NO_TEST)
        if not more:
            return touched
        touched |= more
