"""Which texts use what changed modules of the library compute, by the names that lead to it.

From a changed module the way goes to all modules that import it, by names: an import from a package
leads to the module that defines the name, so that packages, which only hand names on, carry
nothing. A text uses these modules if it names one of them, or one of their public names; or if it
takes names that are made at run time, which may be anybody's. A name is used where it is taken from
something, imported or quoted: as a word alone it may be the text's own. Where only some definitions
of a module changed, the way begins at their names.
"""

import ast
import re
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path

from experiments.record import code

# Of a text that may use any module: programs of pages, names made at run time, and the command.
_ANY = (
    r"\bdocs\b|\.md\b",
    r"import_module\((?![\"'])|__import__\((?![\"'])|pkgutil|\.__all__\b|getmembers",
    r"getattr\((jaxbnn|package)",
    # Unless the module is one that the text names.
    r"(?s:\A(?!.*^module = importlib\.import_module\([\"']).*?getattr\(module\b)",
    r"jaxbnn (fit|predict)\b|[\"']-m[\"'], [\"']jaxbnn[\"']|README|\bcli\b",
)
# They load names late, by programs of their own.
_TOP = ("jaxbnn", "jaxbnn._public")
# Programs of all studies and benchmarks are named by the one word.
EXPERIMENTS = r"\b(experiments|configs)\b"


def users_of(root: Path, changed: Mapping[str, Collection[str] | None]) -> re.Pattern[str]:
    """Return the pattern of a text that may use a changed module of the library.

    Parameters
    ----------
    root
        The folder of the repository that this module lies in.
    changed
        Paths of modules, below `root`, that are there, and the names of each whose definitions
        changed; None: any.
    """
    texts = {
        _module(path.relative_to(root)): path.read_text(encoding="utf-8")
        for one in code.PACKAGES
        for path in (root / one).rglob("*.py")
    }
    packages = {name for name, text in texts.items() if name in _TOP or _hands_on(text)}
    used = {name: code._imports(name) for name in texts.keys() - packages}
    of_modules = {_module(Path(path)): names for path, names in changed.items()}
    if of_modules.keys() & packages or of_modules.keys() - texts.keys():
        return re.compile("")  # what is handed on, or is gone: anything
    modules = {name for name, names in of_modules.items() if names is None}
    partly = {name: names for name, names in of_modules.items() if names is not None}
    for name, of_it in partly.items():
        takes = re.compile(rf"\b({'|'.join(map(re.escape, of_it)) or '(?!)'})\b")
        modules |= {
            one for one, others in used.items() if name in others and takes.search(texts[one])
        }
    while True:
        names = _used(_handed_on(packages, modules, partly))
        pattern = re.compile(names)
        more = {name for name, others in used.items() if others & modules}
        # A package as a whole: its names are then taken from it.
        of_packages = {name for name, others in used.items() if others & packages}
        more |= {name for name in of_packages if pattern.search(texts[name])}
        if more <= modules:
            break
        modules |= more
    words = [*_ANY, names]
    changed_or_using = modules | partly.keys()
    if any(name.startswith("experiments.") for name in changed_or_using):
        words.append(EXPERIMENTS)
    for name in sorted(changed_or_using):
        package, stem = name.rsplit(".", 1)
        words.append(rf"\b{package.split('.')[-1]}[./]{stem}\b")
        words.append(rf"\bfrom {re.escape(package)} import (\([^)]*|.*)\b{stem}\b")
    return re.compile("|".join(words), re.MULTILINE)


def _used(handed: Mapping[str, Collection[str]]) -> str:
    """Return the pattern of a text that uses public names of packages, be they common words.

    Examples
    --------
    >>> pattern = re.compile(_used({"jaxbnn.plots": ["density", "trace"]}), re.MULTILINE)
    >>> uses = ["plots.density(x)", "from jaxbnn.plots import (\\n    density,\\n)", "'density'"]
    >>> uses += ["from jaxbnn.plots import ess, density as f"]
    >>> uses += ["from jaxbnn import a\\nimport jaxbnn.plots as p\\n\\np.density(x)\\n"]
    >>> all(map(pattern.search, uses))
    True
    >>> any(map(pattern.search, ["# the density at 0", "def density(x):", "law.density(x)"]))
    False
    """
    if not handed:
        return "(?!)"
    of_package = "|".join(
        rf"(jaxbnn|{package.split('.')[-1]})\.({'|'.join(sorted(names))})"
        for package, names in handed.items()
    )
    name = "|".join(sorted({name for names in handed.values() for name in names}))
    imported = rf"\bfrom [\w.]+ import (\([^)]*|.*)\b({name})\b"
    # Where something of the library has a name of the text's own, of whatever it is.
    renamed = r"import jaxbnn[\w.]* as |from jaxbnn[\w.]* import [^\n]*\bas "
    of_any = rf"(?s:\A(?=.*?(?:{renamed})).*?\.({name})\b)"
    return rf"\b({of_package})\b|{imported}|[\"']({name})[\"']|{of_any}"


def _hands_on(text: str) -> bool:
    """Return whether a module does nothing but hand names on.

    Examples
    --------
    >>> _hands_on("from a import b\\n__all__ = ['b']\\n"), _hands_on("from a import b\\nx = b()\\n")
    (True, False)
    """
    tree = ast.parse(text)
    return "__all__" in text and not any(
        isinstance(node, ast.FunctionDef | ast.ClassDef | ast.Call) for node in ast.walk(tree)
    )


def _handed_on(
    packages: Iterable[str], modules: set[str], partly: Mapping[str, Collection[str]]
) -> dict[str, list[str]]:
    """Return the names that packages hand on from these modules, by package."""

    def is_changed(package: str, name: str) -> bool:
        definers = set(code._definers(package, name))
        of_parts = [of_it for one, of_it in partly.items() if one in definers]
        is_renamed = code._reexported(package)[name][1] != name
        return bool(definers & modules) or any(is_renamed or name in of_it for of_it in of_parts)

    found = {
        package: [name for name in code._reexported(package) if is_changed(package, name)]
        for package in sorted(packages)
    }
    return {package: names for package, names in found.items() if names}


def _module(path: Path) -> str:
    """Return a path's name as a module.

    Examples
    --------
    >>> _module(Path("jaxbnn/dvi/__init__.py")), _module(Path("jaxbnn/dvi/model.py"))
    ('jaxbnn.dvi', 'jaxbnn.dvi.model')
    """
    parts = path.with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
