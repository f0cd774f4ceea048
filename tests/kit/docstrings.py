"""What the docstrings of the public names say, section by section."""

import ast
import inspect
import pkgutil
import re
import sys
import textwrap
from types import ModuleType
from typing import Any, NamedTuple

import jaxbnn

SECTIONS = ("Parameters", "Attributes", "Returns", "Raises", "Notes", "Examples")
_UNDERLINED = re.compile(rf"^({'|'.join(SECTIONS)})\n-{{3,}}\n", re.MULTILINE)
# What a citation looks like: authors and a year, or a place in a paper that is cited above.
_CITATION = re.compile(
    r"et\s+al\.|[(,]\s?\d{4}\)|[Ee]rrat(um|a) [A-D]?\d|\d{4}, (equation|section|table)"
)
_BY_NAME = re.compile(r"`(?:\w+\.)*(\w+)")


class Entry(NamedTuple):
    """What the docstring and the source text of one public name say.

    Attributes
    ----------
    name
        Where it is imported from, e.g. "jaxbnn.pcn".
    value
        The function, class or other object.
    signature
        As in the source text, with the shapes of arrays.
    text
        What stands before the first section.
    sections
        The docstring's sections by name.
    source
        Sentences of the docstring, else of its module's, that cite a paper; "" without any.
    """

    name: str
    value: Any
    signature: str
    text: str
    sections: dict[str, str]
    source: str


def public_entries() -> list[Entry]:
    """Return each public object once, under its shortest name, packages in alphabetical order."""
    modules = ["jaxbnn"]
    for module in pkgutil.iter_modules(jaxbnn.__path__, "jaxbnn."):
        if module.name not in ("jaxbnn.__main__", "jaxbnn.cli", "jaxbnn.tabular"):
            modules.append(module.name)
    found: dict[int, Entry] = {}
    for name in [*modules, *(f"jaxbnn.interop.{tool}" for tool in jaxbnn.interop.__all__)]:
        for member, value in _members(_module(name)):
            if not inspect.ismodule(value):
                found.setdefault(id(value), _entry(f"{name}.{member}", value))
    return list(found.values())


def examples_of(entries: list[Entry]) -> dict[str, str]:
    """Return for each entry the name of the one whose example shows it: its own, where it has one.

    Else that of a function which returns it, by its annotation or the section on what it returns,
    or which the first paragraph of its docstring names.
    """
    with_example = [entry for entry in entries if "Examples" in entry.sections]
    by_short_name = {entry.name.rsplit(".", 1)[1]: entry.name for entry in with_example}
    returned: dict[str, str] = {}
    for entry in with_example:
        annotation = re.findall(r"\w+", entry.signature.rpartition("->")[2])
        for word in [*annotation, *_BY_NAME.findall(entry.sections.get("Returns", ""))]:
            returned.setdefault(word, entry.name)
    shown = {entry.name: entry.name for entry in with_example}
    for entry in entries:
        short = entry.name.rsplit(".", 1)[1]
        named = [by_short_name.get(word) for word in _BY_NAME.findall(entry.text.split("\n\n")[0])]
        makers = [returned.get(short), *named]
        maker = next((name for name in makers if name is not None), None)
        if maker is not None:
            shown.setdefault(entry.name, maker)
    return shown


def _entry(name: str, value: Any) -> Entry:
    text, sections = _sections(inspect.getdoc(value) or "")
    module = sys.modules.get(getattr(value, "__module__", ""), None)
    return Entry(
        name=name,
        value=value,
        signature=_signature(name.rsplit(".", 1)[1], value),
        text=text,
        sections=sections,
        source=_cited(sections.get("Notes", ""))
        or _cited(text)
        or _cited(inspect.getdoc(module) or "" if module else ""),
    )


def _sections(doc: str) -> tuple[str, dict[str, str]]:
    parts = _UNDERLINED.split(doc)
    return parts[0].strip(), {
        name: body.strip("\n") for name, body in zip(parts[1::2], parts[2::2], strict=True)
    }


def _cited(text: str) -> str:
    """Return the paragraphs that cite something."""
    return " ".join(part for part in re.split(r"\n\s*\n", text) if _CITATION.search(part))


def _signature(name: str, value: Any) -> str:
    """Return the signature as it is written, since shapes are lost in annotations' own text."""
    try:
        node = ast.parse(textwrap.dedent(inspect.getsource(value))).body[0]
    except (TypeError, OSError):
        return f"{name} = {value}"
    if isinstance(node, ast.ClassDef):
        methods = {part.name: part for part in node.body if isinstance(part, ast.FunctionDef)}
        if "__init__" not in methods:
            fields = [ast.unparse(part) for part in node.body if isinstance(part, ast.AnnAssign)]
            return _call(name, [field for field in fields if "ClassVar" not in field], "")
        function = methods["__init__"]
        del function.args.args[0]
    elif isinstance(node, ast.FunctionDef):
        function = node
    else:
        return f"{name} = {value}"
    returns = "" if function.returns is None else f" -> {ast.unparse(function.returns)}"
    if isinstance(node, ast.ClassDef):
        returns = ""
    return _call(name, _arguments(function.args), returns)


def _arguments(arguments: ast.arguments) -> list[str]:
    """Return the arguments one by one, with annotations and defaults."""
    shown = []
    positional = [*arguments.posonlyargs, *arguments.args]
    defaults = [None] * (len(positional) - len(arguments.defaults)) + arguments.defaults
    for argument, default in zip(positional, defaults, strict=True):
        shown.append(_argument(argument, default))
    if arguments.vararg is not None:
        shown.append(f"*{_argument(arguments.vararg, None)}")
    elif arguments.kwonlyargs:
        shown.append("*")
    for argument, default in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True):
        shown.append(_argument(argument, default))
    return shown


def _argument(argument: ast.arg, default: ast.expr | None) -> str:
    text = ast.unparse(argument)
    if default is None:
        return text
    return f"{text} = {ast.unparse(default)}" if argument.annotation else f"{text}=..."


def _call(name: str, arguments: list[str], returns: str) -> str:
    line = f"{name}({', '.join(arguments)}){returns}"
    if len(line) <= 96:
        return line
    return "\n".join([f"{name}(", *(f"    {argument}," for argument in arguments), f"){returns}"])


def _members(module: ModuleType) -> list[tuple[str, Any]]:
    names = getattr(module, "__all__", None)
    if names is None:  # a tool's own module: what it defines
        names = [
            name
            for name, value in vars(module).items()
            if getattr(value, "__module__", "") == module.__name__ and not name.startswith("_")
        ]
    return [(name, getattr(module, name)) for name in sorted(names)]


def _module(name: str) -> ModuleType:
    __import__(name)
    return sys.modules[name]
