"""Tests of jaxbnn._public: the public names are complete, documented, and hide no subpackage."""

import ast
import importlib
import importlib.util
import inspect
import pkgutil
import re
import subprocess
import sys
from pathlib import Path

import pytest

import jaxbnn

# The command is no name to import.
SUBPACKAGES = [
    module.name
    for module in pkgutil.iter_modules(jaxbnn.__path__)
    if module.name != "cli" and not module.name.startswith("_")
]


def _public():
    for name in jaxbnn.__all__:
        yield "jaxbnn", name, getattr(jaxbnn, name)
    for package in SUBPACKAGES:
        module = getattr(jaxbnn, package)
        for name in module.__all__:
            yield f"jaxbnn.{package}", name, getattr(module, name)


def test_jax_is_imported_with_the_first_name_and_not_before():
    """The command tells that it has begun before the seconds that JAX takes to import."""
    program = """
import sys, jaxbnn
assert jaxbnn.__version__ and not hasattr(jaxbnn, "_nothing")
assert not {"jax", "jaxbnn.cli.fit"} & set(sys.modules)
import jaxbnn.cli.command
assert "jax" not in sys.modules
assert "pcn" in dir(jaxbnn) and jaxbnn.pcn is jaxbnn.kernels.pcn
try:
    jaxbnn.nothing
except AttributeError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout == "module 'jaxbnn' has no attribute 'nothing'\n", done.stderr


def test_no_public_function_has_the_name_of_a_subpackage():
    for where, name, value in _public():
        if name in SUBPACKAGES:
            assert inspect.ismodule(value), f"{where}.{name} hides a subpackage"


def test_every_subpackage_is_reached_from_the_top():
    assert set(SUBPACKAGES) <= set(jaxbnn.__all__)


def test_all_is_sorted_and_whole():
    assert list(jaxbnn.__all__) == sorted(jaxbnn.__all__)
    bound = {
        name
        for name, value in (vars(jaxbnn) | vars(jaxbnn._public)).items()
        if not name.startswith("_") and not inspect.ismodule(value)
    }
    assert bound <= set(jaxbnn.__all__)


@pytest.mark.parametrize(
    "value",
    [
        pytest.param(value, id=f"{where}.{name}")
        for where, name, value in _public()
        if inspect.isfunction(value) or inspect.isclass(value)
    ],
)
def test_public_names_are_documented(value):
    assert inspect.getdoc(value)


# Names that a room may have: what a user or a kernel's author calls. State, Info and result classes
# are importable from their room and are not counted.
MOST_NAMES = 30
MOST_IN_ALL = 220


def test_no_room_has_more_names_than_a_reader_can_take_in():
    count = {package: len(getattr(jaxbnn, package).__all__) for package in SUBPACKAGES}
    assert max(count.values()) <= MOST_NAMES, count
    assert sum(count.values()) <= MOST_IN_ALL, count


def test_names_of_the_top_are_names_of_a_room():
    rooms = {name for package in SUBPACKAGES for name in getattr(jaxbnn, package).__all__}
    assert set(jaxbnn.__all__) <= rooms | set(SUBPACKAGES)


ROOT = Path(jaxbnn.__file__).parents[1]


def _names_in(file):
    """Names that a file of experiments takes from jaxbnn, as (room, name)."""
    rooms = {"jaxbnn": "jaxbnn"}
    tree = ast.parse(file.read_text(encoding="utf-8"))
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "jaxbnn":
            for name in node.names:
                if node.module == "jaxbnn" and name.name in SUBPACKAGES:
                    rooms[name.asname or name.name] = f"jaxbnn.{name.name}"
                yield node.module, name.name
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Attribute):
            inner = node.value
            if isinstance(inner.value, ast.Name) and inner.value.id == "jaxbnn":
                yield f"jaxbnn.{inner.attr}", node.attr
    for node in ast.walk(tree):
        is_member = isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name)
        if is_member and node.value.id in rooms:
            yield rooms[node.value.id], node.attr


def test_experiments_use_public_names():
    public = {(where, name) for where, name, _ in _public()}
    rooms = {"jaxbnn", *(f"jaxbnn.{package}" for package in SUBPACKAGES)}
    used = {
        (room, name)
        for file in (ROOT / "experiments").rglob("*.py")
        for room, name in _names_in(file)
        if room in rooms and not name.startswith("__")
    }
    assert used - public == set()
    assert len(used) > 100  # the search finds what there is


def test_the_documentation_names_what_there_is():
    """`jaxbnn.room.name` in the README, the docs and the docstrings can be imported."""
    files = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md"), *(ROOT / "jaxbnn").rglob("*.py")]
    for file in files:
        text = file.read_text(encoding="utf-8")
        for room, name in re.findall(r"`jaxbnn\.([a-z_]+)\.([A-Za-z_]+)[(`]", text):
            found = importlib.import_module(f"jaxbnn.{room}")
            is_module = importlib.util.find_spec(f"jaxbnn.{room}.{name}") is not None
            assert hasattr(found, name) or is_module, f"{file}: jaxbnn.{room}.{name}"
