"""Run the tests with the lowest version of each package that `pyproject.toml` allows.

    python -m tests.lowest [--python python3.11] [-- PYTEST OPTIONS]

An environment is made anew in `.lowest`, by the lowest Python, and the project is installed there
with each declared package at its minimum; pip tells of a minimum that is below what another package
asks for, or was never released. Then all tests run but the long ones, and the long ones of
`interop`, where packages from elsewhere are used; or what the options say, once.
"""

import argparse
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / ".lowest"
# Our code runs without the first two; the last one needs a GPU.
NOT_TRIED = {"lint", "docs", "cuda"}


def project() -> dict[str, Any]:
    """Return the table of the project in `pyproject.toml`."""
    return tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def requirements() -> list[Requirement]:
    """Return what the project and its extras ask for, but for extras that ask for others."""
    table = project()
    lists = [table["dependencies"], *table["optional-dependencies"].values()]
    found = [Requirement(text) for one in lists for text in one]
    return [one for one in found if one.name != table["name"]]


def minimums() -> dict[str, Version]:
    """Return the minimum of each package; of several that are declared for it, the largest."""
    found: dict[str, Version] = {}
    for one in requirements():
        least = [Version(part.version) for part in one.specifier if part.operator == ">="]
        if len(least) != 1:
            raise ValueError(f"pyproject.toml asks for '{one}'; write a minimum, {one.name}>=...")
        name = canonicalize_name(one.name)
        found[name] = max(least[0], found.get(name, least[0]))
    return found


def make_environment(python: str) -> Path:
    """Install the project at its minimums into `.lowest`; return the Python there."""
    subprocess.run([python, "-m", "venv", "--clear", str(FOLDER)], check=True)
    pins = FOLDER / "minimums.txt"
    pins.write_text("".join(f"{name}=={least}\n" for name, least in minimums().items()))
    extras = ",".join(sorted(set(project()["optional-dependencies"]) - NOT_TRIED))
    inside = FOLDER / "bin" / "python"
    command = [str(inside), "-m", "pip", "install", "--quiet", "-c", str(pins)]
    subprocess.run([*command, "-e", f"{ROOT}[{extras}]"], check=True)
    return inside


def main(arguments: list[str] | None = None) -> int:
    """Make the environment and run the tests in it."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    own, options = given, []
    if "--" in given:
        own, options = given[: given.index("--")], given[given.index("--") + 1 :]
    lowest_python = f"python{project()['requires-python'].removeprefix('>=')}"
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--python", default=lowest_python, help="what makes the environment")
    python = parser.parse_args(own).python
    if shutil.which(python) is None:
        parser.error(f"there is no {python} here; name another by --python.")
    try:
        inside = make_environment(python)
    except subprocess.CalledProcessError as error:
        return error.returncode  # what failed has said why
    runs = [options] if options else [[], ["-m", "long", "tests/interop"]]
    codes = [subprocess.run([inside, "-m", "pytest", *run], cwd=ROOT).returncode for run in runs]
    return max(codes)


if __name__ == "__main__":
    sys.exit(main())
