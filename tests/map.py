"""Which test file covers which module, read from the names and first lines of the test files.

`tests/<room>/test_<module>.py` covers `jaxbnn/<room>/<module>.py`, also where the module lies in a
folder of that room, and `tests/experiments/test_<module>.py` covers `experiments/<module>.py`. Any
other module is named in the first line of the one test file that covers it,

    \"\"\"Tests of gibbs.starts and gibbs.stages: <what they state>.\"\"\"

with the names of `jaxbnn` shortened by that word and those of `experiments` whole. The name of a
folder of `experiments` covers what nothing else names in it. `python -m tests.map` prints the map.
"""

import ast
import re
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).parents[1]
_NAME = re.compile(r"(?<![\w.])[a-z_]\w*(?:\.[a-z_]\w*)+")


def modules() -> dict[str, Path]:
    """Return every module of both packages, by its name from the root: `jaxbnn.gibbs.stages`."""
    paths = [*(ROOT / "jaxbnn").rglob("*.py"), *(ROOT / "experiments").rglob("*.py")]
    return {
        ".".join(path.relative_to(ROOT).with_suffix("").parts): path
        for path in sorted(paths)
        if path.name not in ("__init__.py", "conftest.py")
    }


def test_files() -> list[Path]:
    """Return every test file."""
    return sorted((ROOT / "tests").rglob("test_*.py"))


def covered() -> dict[str, list[Path]]:
    """Return the test files that cover each module; there should be one."""
    found: dict[str, list[Path]] = {name: [] for name in modules()}
    folders: dict[str, Path] = {}
    for path in test_files():
        for name in {*_by_file_name(path, found), *names(path)}:
            if name in found:
                found[name].append(path)
            else:
                folders[name] = path
    for name, paths in found.items():
        if not paths and name.startswith("experiments."):
            parts = name.split(".")
            within = (".".join(parts[:length]) for length in range(len(parts) - 1, 1, -1))
            paths += [folders[folder] for folder in within if folder in folders][:1]
    return found


def names(path: Path) -> set[str]:
    """Return the modules, and folders of experiments, that a test file's first line names."""
    return {name for word in _words(path) if (name := _whole_name(word))}


def unknown_names(path: Path) -> set[str]:
    """Return what a first line names in `experiments` or a room of `jaxbnn` and is not there."""
    rooms = {child.name for child in (ROOT / "jaxbnn").iterdir() if child.is_dir()}
    words = {word.removeprefix("jaxbnn.") for word in _words(path)}
    meant = {word for word in words if word.split(".")[0] in rooms | {"experiments"}}
    return {word for word in meant if not _whole_name(word)}


def _words(path: Path) -> list[str]:
    """Return the dotted names in the first line of a test file, which may be wrapped."""
    text = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    return _NAME.findall(text.split("\n\n")[0])


def _whole_name(word: str) -> str | None:
    for name in (word, f"jaxbnn.{word}"):
        path = ROOT.joinpath(*name.split("."))
        is_folder = name.startswith("experiments.") and path.is_dir()
        if path.with_suffix(".py").is_file() or is_folder:
            return name
    return None


def _by_file_name(path: Path, known: dict[str, list[Path]]) -> list[str]:
    """Return the module that a test file is called after, if there is one."""
    folder = path.relative_to(ROOT / "tests").parts[:-1]
    module = path.stem.removeprefix("test_")
    if folder[:1] == ("experiments",):
        name = ".".join((*folder, module))
        return [name] if name in known else []
    within = "".join(f"{part}." for part in ("jaxbnn", *folder))
    if f"{within}{module}" in known:
        return [f"{within}{module}"]
    deeper = [name for name in known if name.startswith(within) and name.endswith(f".{module}")]
    return deeper if folder and len(deeper) == 1 else []


def what_to_write(name: str) -> str:
    """Return how to name a module that no test file covers."""
    short = name.removeprefix("jaxbnn.")
    *folders, module = short.split(".")
    room = folders[0] if folders else ""
    return (
        f"{name} is named by no test file: call its tests tests/{room}/test_{module}.py, or name "
        f"it in the first line of the file that covers it, as in "
        f'"""Tests of {short}: <what they state>."""'
    )


def main() -> None:
    """Print each test file with what it covers."""
    by_file = defaultdict(list)
    for name, paths in covered().items():
        for path in paths:
            by_file[path].append(name)
    for path, covers in sorted(by_file.items()):
        print(path.relative_to(ROOT), *covers)


if __name__ == "__main__":
    main()
