"""What a study's numbers were computed with: a digest of the modules it uses.

Two versions of a module have the same digest when their syntax trees are the same without
docstrings and without checks of what is given, see `experiments.record.checks`: a check may end a
run, but changes no number of one that goes on. Where the experiments catch refusals, and go on
without, checks are code like any other. Comments and layout are not in the tree. The modules are
found by reading import statements, from the module of the study on; files of data that lie
beside a module and are named in it are a part of it, but for the one that recording writes. A name
imported from a package leads to the module that defines it, so that `from jaxbnn import pcn` uses
`jaxbnn.kernels.pcn` and not all of `jaxbnn`. Modules that only decide, by the clock, when the host
looks at a run and what it tells are left out: no number may depend on the clock.
"""

import ast
import hashlib
import importlib.util
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

from experiments.record.checks import catches_refusals, without_checks

PACKAGES = ("jaxbnn", "experiments")
# Endings of files of data that a module may read from beside it.
DATA = (".toml", ".json", ".csv", ".npz")
# Made of the record, and read for sentences alone: to record a run must not make its code another.
BIAS_TABLE = "jaxbnn/diagnostics/energy_errors.toml"
# By the clock, which is never the same twice; `tests/sampling` shows that the draws are.
BY_THE_CLOCK = ("jaxbnn.sampling.pace", "jaxbnn.sampling.progress")
ROOT = Path(__file__).parents[2]


def code_digest(modules: Iterable[str], never_run: tuple[str, ...] = ()) -> str:
    """Return the digest of the modules named and of all that they use, over hexadecimal digits.

    Packages that are `never_run` are left out: what is imported there, or by them alone, is
    another's.
    """
    names, seen = used_modules(modules, never_run), hashlib.sha256()
    with_checks = any(map(_goes_on, names))
    if with_checks:
        names = used_modules(modules, never_run, with_checks=True)
    for name in sorted(names):
        seen.update(f"{name} {_digest(name, with_checks)}\n".encode())
    return seen.hexdigest()


def forget() -> None:
    """Forget all files that were read, so that the next digest is of them as they are by then."""
    for kept in (_digest, _goes_on, _imports, _reexported, _loaded_late, _file, _source):
        kept.cache_clear()


def used_modules(
    modules: Iterable[str], never_run: tuple[str, ...] = (), *, with_checks: bool = False
) -> set[str]:
    """Return the modules of this repository that `modules` use, themselves among them.

    But for those of the packages that are `never_run`, and, unless asked for `with_checks`, for
    those of which only checks are taken.
    """
    waiting, found = list(modules), set()
    while waiting:
        name = waiting.pop()
        is_out = any(name == package or name.startswith(f"{package}.") for package in never_run)
        is_out = is_out or name in BY_THE_CLOCK
        if name in found or is_out or _file(name) is None:
            continue
        found.add(name)
        waiting += _imports(name, with_checks=with_checks)
    return found


@cache
def _goes_on(module: str) -> bool:
    """Whether a module of the experiments catches errors such as checks raise, and goes on."""
    return module.startswith("experiments.") and catches_refusals(_parsed(_source(module)))


@cache
def _digest(module: str, with_checks: bool) -> str:
    source, path = _source(module), _file(module)
    assert path is not None
    seen = _hashed(source, with_checks).copy()
    for name in sorted(_named_files(source)):
        beside = path.parent / name
        if beside.is_file() and beside != ROOT / BIAS_TABLE:
            seen.update(beside.read_bytes())
    return seen.hexdigest()


def _plain(node: Any) -> Any:
    """Return a tree as tuples, without docstrings, positions and the fields that hold nothing.

    `ast.dump` would name fields that only some versions of Python have.
    """
    if isinstance(node, list):
        return tuple(_plain(item) for item in node)
    if not isinstance(node, ast.AST):
        return node
    fields = dict(ast.iter_fields(node))
    if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
        fields["body"] = node.body[ast.get_docstring(node, clean=False) is not None :]
    if isinstance(node, ast.JoinedStr):
        # From 3.12 on Python ends a format that holds another with a string of nothing.
        fields["values"] = [part for part in node.values if not _is_empty_string(part)]
    filled = {name: value for name, value in fields.items() if value not in (None, [])}
    return (type(node).__name__, *((name, _plain(value)) for name, value in filled.items()))


def _is_empty_string(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and node.value == ""


@cache
def _imports(module: str, *, with_checks: bool = True) -> frozenset[str]:
    """Return the modules whose names a module imports, wherever the statement stands.

    Without checks, those alone of whose names something is used for more than to check.
    """
    found: set[str] = set()
    for node in _import_statements(_source(module), with_checks):
        if isinstance(node, ast.Import):
            ours = {alias.name for alias in node.names if _is_ours(alias.name)}
            found |= ours.union(*(_loaded_late(name) for name in ours))
        elif node.module and _is_ours(node.module):
            if node.module in _loaded_late(module):
                continue  # by name, where a name is used
            for alias in node.names:
                found |= set(_definers(node.module, alias.name))
    return frozenset(found)


def _definers(module: str, name: str) -> Iterator[str]:
    """Yield the modules that `from module import name` leads to."""
    source = _reexported(module).get(name)
    if source is not None and source[0] != module:
        yield from _definers(*source)  # a function hides the module of its name
    elif _file(f"{module}.{name}") is not None:
        yield f"{module}.{name}"
    else:
        yield module


@cache
def _reexported(module: str) -> dict[str, tuple[str, str]]:
    """Return the names that a package takes from its own modules: name -> (module, name there)."""
    path = _file(module)
    if path is None or path.name != "__init__.py":
        return {}
    bodies = [_parsed(_source(name)).body for name in (module, *_loaded_late(module))]
    return {
        alias.asname or alias.name: (node.module, alias.name)
        for body in bodies
        for node in body
        if isinstance(node, ast.ImportFrom) and node.module and _is_ours(node.module)
        for alias in node.names
    }


@cache
def _loaded_late(package: str) -> frozenset[str]:
    """Return the modules that hold the names of a package which loads them when they are used.

    Such a package has `from module import *` where type checkers, but not Python, read it.
    """
    path = _file(package)
    if path is None:
        return frozenset()
    return frozenset(
        node.module
        for node in _import_statements(_source(package), True)
        if isinstance(node, ast.ImportFrom) and node.module and _is_ours(node.module)
        if any(alias.name == "*" for alias in node.names)
    )


def _is_ours(module: str) -> bool:
    return module.split(".")[0] in PACKAGES


@cache
def _file(module: str) -> Path | None:
    """Return the file of a module of this repository, or None for other modules."""
    if not _is_ours(module):
        return None
    base = ROOT.joinpath(*module.split("."))
    for path in (base.with_suffix(".py"), base / "__init__.py"):
        if path.is_file():
            return path
    return None


@cache
def _source(module: str) -> bytes:
    path = _file(module)
    assert path is not None
    return path.read_bytes()


# What follows is told by the contents, and need not be forgotten with the files.


@cache
def _parsed(source: bytes) -> ast.Module:
    return ast.parse(importlib.util.decode_source(source))


@cache
def _unchecked(source: bytes) -> ast.Module:
    return without_checks(_parsed(source))


@cache
def _hashed(source: bytes, with_checks: bool) -> Any:
    tree = _parsed(source) if with_checks else _unchecked(source)
    return hashlib.sha256(repr(_plain(tree)).encode())


@cache
def _named_files(source: bytes) -> frozenset[str]:
    """Return the strings of a module that may name files of data."""
    nodes = ast.walk(_parsed(source))
    texts = {node.value for node in nodes if isinstance(node, ast.Constant)}
    return frozenset(t for t in texts if isinstance(t, str) and Path(t).suffix in DATA)


@cache
def _import_statements(source: bytes, with_checks: bool) -> tuple[ast.Import | ast.ImportFrom, ...]:
    """Return them wherever they stand."""
    nodes = ast.walk(_parsed(source) if with_checks else _unchecked(source))
    return tuple(node for node in nodes if isinstance(node, ast.Import | ast.ImportFrom))
