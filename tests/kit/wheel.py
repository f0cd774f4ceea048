"""The wheel as a release would carry it, and what its extras bring."""

import functools
import shutil
import subprocess
import sys
import zipfile
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement

ROOT = Path(__file__).parents[2]
_FILES = ("pyproject.toml", "README.md", "LICENSE")


def build_wheel(tree: Path, folder: Path) -> Path:
    """Build the wheel of a tree from a copy, so that the tree stays as it was."""
    copy = folder / "tree"
    for part in ("jaxbnn", "experiments"):
        shutil.copytree(tree / part, copy / part, ignore=shutil.ignore_patterns("__pycache__"))
    for name in _FILES:
        shutil.copy(tree / name, copy)
    program = "from setuptools import build_meta; import sys; build_meta.build_wheel(sys.argv[1])"
    command = [sys.executable, "-c", program, str(folder)]
    subprocess.run(command, cwd=copy, check=True, capture_output=True)
    (wheel,) = folder.glob("*.whl")
    return wheel


def requirements(wheel: Path) -> list[Requirement]:
    """Return what the wheel's metadata asks for, extras included."""
    with zipfile.ZipFile(wheel) as archive:
        (name,) = [n for n in archive.namelist() if n.endswith(".dist-info/METADATA")]
        lines = archive.read(name).decode().splitlines()
    return [Requirement(line[15:]) for line in lines if line.startswith("Requires-Dist: ")]


def extras(wheel: Path) -> set[str]:
    """Return the names of the wheel's extras."""
    with zipfile.ZipFile(wheel) as archive:
        (name,) = [n for n in archive.namelist() if n.endswith(".dist-info/METADATA")]
        lines = archive.read(name).decode().splitlines()
    return {line[16:] for line in lines if line.startswith("Provides-Extra: ")}


def brought(wheel: Path, extra: str) -> set[str]:
    """Return the distributions that come with `jaxbnn[extra]`, with all that they need."""
    return _closure(requirements(wheel), extra, requirements(wheel))


def _closure(wanted: list[Requirement], extra: str, own: list[Requirement]) -> set[str]:
    found: set[str] = set()
    for requirement in wanted:
        marker = requirement.marker
        if marker is not None and not marker.evaluate({"extra": extra}):
            continue
        if requirement.name == "jaxbnn":
            for other in requirement.extras:
                found |= _closure(own, other, own)
        else:
            found |= _needed(_canonical(requirement.name), frozenset(requirement.extras))
    return found


@functools.cache
def _needed(name: str, with_extras: frozenset[str]) -> frozenset[str]:
    found = {name}
    try:
        lines = metadata.distribution(name).requires or []
    except metadata.PackageNotFoundError:  # not for this system
        return frozenset(found)
    for requirement in map(Requirement, lines):
        marker = requirement.marker
        given = [{"extra": extra} for extra in ("", *with_extras)]
        if marker is None or any(marker.evaluate(one) for one in given):
            found |= _needed(_canonical(requirement.name), frozenset(requirement.extras))
    return frozenset(found)


def importable(distributions: set[str]) -> set[str]:
    """Return the names of modules that these distributions bring."""
    by_module = metadata.packages_distributions()
    return {
        module
        for module, of in by_module.items()
        if distributions & {_canonical(name) for name in of}
    }


def _canonical(name: str) -> str:
    return name.lower().replace("_", "-").replace(".", "-")
